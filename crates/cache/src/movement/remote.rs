//! One level of a scheme behind a hashed index, for a server or a client whose neighbours are other
//! processes. Its counts are those of the same level in the simulator.
//!
//! Messages of neighbours are not trusted: numbers out of range are clamped.
//!
//! Not here: the format of the messages (`docs/developer/hints.md`), and the data of the blocks.
//!
//! Invariants (checked by [`RemoteLevel::validate`]): those of the index ([`Handles`]) and of the
//! level.

use super::level::{
    Bid, Demoted, Evicted, LevelConfig, Load, Pass, Passing, Promoted, SchemeLevel, Upper,
};
use super::{Gauges, SchemeSpec};
use crate::handles::{Handles, Slot};
use crate::policy::SpecError;
use crate::{Counts, Entry, Frame};

/// Most references in one step. Larger numbers from a neighbour are clamped.
const STEP_MAX: u64 = 1 << 20;

/// Largest hint frequency that is accepted.
const FREQUENCY_MAX: f64 = 1e9;

/// Blocks that came and went over the links, counted as in the simulator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounts {
    /// Blocks that came from above, with their data.
    pub demotions_in: u64,
    /// Blocks that came from below to stay.
    pub promotions_in: u64,
    /// The part of `promotions_in` that no request asked for.
    pub exchanges_in: u64,
    /// Blocks that went up.
    pub promotions_out: u64,
}

/// A block that left a level downwards, or was dropped.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EvictedBlock {
    /// The block.
    pub block: u64,
    /// What goes with the block one level down; `None`: it is dropped.
    pub load: Option<Load>,
    /// Whether the levels below may send a block up in exchange.
    pub exchanges: bool,
    /// Whether such an exchange may happen at the next level. Then send that level no request
    /// before it has answered.
    pub awaits: bool,
}

/// A block that goes up in exchange for one that came down.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PromotedBlock {
    /// The block.
    pub block: u64,
    /// Where its data is until the next call.
    pub frame: Frame,
    /// What goes with the block.
    pub load: Load,
    /// Number of the client that owns the block.
    pub owner: u16,
}

/// The result of a reference.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lookup {
    /// The frame that the block had.
    pub before: Option<Frame>,
    /// The frame that the block has now.
    pub now: Option<Frame>,
    /// The answer for the level above; `None` if the block is not resident: ask the level below.
    pub pass: Option<Pass>,
}

/// The sender of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Requester {
    /// What the level above says with the request; `None`: a client sends it.
    pub upper: Option<Bid>,
    /// Number of the level above or of the client; the block belongs to it.
    pub owner: u16,
}

/// A level with its index and counters.
pub struct RemoteLevel {
    level: Box<dyn SchemeLevel>,
    capacity: u32,
    handles: Handles,
    /// References so far. The last one stays open, since later calls may belong to it.
    now: u64,
    counts: Counts,
    links: LinkCounts,
    /// What the last call evicted, with the frame that it had.
    evicted: Vec<crate::Evicted>,
    left: Option<EvictedBlock>,
}

impl RemoteLevel {
    /// A level of `capacity` blocks of `block_bytes`. `has_lower`: whether a level is below; if
    /// not, the disk is. `seed` starts the random numbers and is equal at all levels, as in a
    /// simulation. `hash_seed` makes the index unpredictable; it changes nothing else.
    ///
    /// # Errors
    /// The levels of the scheme cannot run apart from each other.
    pub fn new(
        scheme: &SchemeSpec,
        capacity: u32,
        block_bytes: u32,
        has_lower: bool,
        seed: u64,
        hash_seed: u64,
    ) -> Result<Self, SpecError> {
        let level = scheme.level(LevelConfig {
            capacity,
            block_bytes,
            has_upper: true,
            has_lower,
            way_blocks: capacity.into(),
            seed,
            draws: &[],
        })?;
        Ok(Self {
            level,
            capacity,
            handles: Handles::new(capacity, hash_seed),
            now: 0,
            counts: Counts::default(),
            links: LinkCounts::default(),
            evicted: Vec::new(),
            left: None,
        })
    }

    /// Introduces the level above with the number `upper`. `blocks`: of all caches on its way;
    /// `levels`: how many caches these are; `below`: blocks of all caches below this one.
    pub fn introduce(&mut self, upper: u16, blocks: u64, levels: u16, below: u64) {
        self.measure_way(blocks.saturating_add(below));
        self.level.introduce(upper, blocks, levels);
    }

    /// No level above was introduced: clients ask directly. `below`: blocks of all caches below
    /// this one.
    pub fn stand_alone(&mut self, below: u64) {
        self.measure_way(below);
    }

    /// Sets the blocks of all other levels, above and below.
    fn measure_way(&mut self, others: u64) {
        if self.now == 0 {
            self.level.measure_way(others.saturating_add(self.capacity.into()));
        }
    }

    /// `references` references were made above since the last call, wherever they were served. The
    /// calls that follow belong to the last of them.
    pub fn pass_time(&mut self, references: u64) {
        let references = references.min(STEP_MAX).max(u64::from(self.now == 0));
        self.now += references;
        self.level.begin_references(references);
    }

    /// References so far.
    pub fn time(&self) -> u64 {
        self.now
    }

    /// What goes with a request to the level below.
    pub fn bid(&self) -> Bid {
        self.level.bid()
    }

    /// Serves a counted reference. `cold` is called on a miss: whether the block was never
    /// referenced before.
    pub fn reference(
        &mut self,
        block: u64,
        is_write: bool,
        requester: Requester,
        cold: impl FnOnce() -> bool,
    ) -> Lookup {
        self.start();
        self.open_first();
        let upper = requester.upper.map(|bid| Upper { number: requester.owner, bid });
        if let Some(upper) = upper {
            self.level.hear(upper);
        }
        let entry = self.find_held(block);
        self.count(is_write, entry.is_some());
        let Some(entry) = entry else {
            self.counts.cold_reads += u64::from(cold() && !is_write);
            return Lookup { before: None, now: None, pass: None };
        };
        let before = self.handles.slot(entry).frame;
        let (pass, evicted) = self.level.serve(entry, is_write, upper);
        let mut now = Some(before);
        if matches!(pass, Pass::Moved { .. }) {
            self.links.promotions_out += 1;
            self.handles.release(entry);
            now = None;
        }
        self.settle(evicted);
        Lookup { before: Some(before), now, pass: Some(pass) }
    }

    /// Counts a write of a block that a level above holds; it passes through.
    pub fn passes_write(&mut self) {
        self.start();
        self.open_first();
        self.count(true, false);
    }

    /// The block of a reference that was not served here comes up. Returns the answer for the
    /// level above, and the frame of the block if it stays here.
    pub fn arrive(
        &mut self,
        block: u64,
        is_write: bool,
        requester: Requester,
        pass: Pass,
    ) -> (Pass, Option<Frame>) {
        self.start();
        self.open_first();
        if pass == Pass::Kept || self.frame(block).is_some() {
            return (Pass::Kept, None);
        }
        let (entry, pass) = (self.enter(block), sound(pass));
        let upper = requester.upper.is_some().then_some(requester.owner);
        let passing = Passing { entry, is_write, upper, owner: requester.owner };
        let (further, evicted) = self.level.pass(passing, pass);
        self.settle(evicted);
        if further != Pass::Kept {
            self.drop_if_unknown(entry);
            return (further, None);
        }
        self.links.promotions_in += u64::from(matches!(pass, Pass::Moved { .. }));
        (further, Some(self.handles.give_frame(entry)))
    }

    /// A block comes down from a level above. Returns its frame, and a hotness if
    /// [`exchange`](Self::exchange) is to be called with it after the evicted block has been dealt
    /// with. `None` if the block is resident already.
    pub fn demoted(
        &mut self,
        block: u64,
        owner: u16,
        load: Load,
        exchanges: bool,
    ) -> Option<(Frame, Option<f64>)> {
        self.start();
        self.open_first();
        if self.frame(block).is_some() {
            return None;
        }
        let (entry, load) = (self.enter(block), sound_load(load));
        let (hotness, evicted) = self.level.demoted(Demoted { entry, owner, load, exchanges });
        self.links.demotions_in += 1;
        self.settle(evicted);
        Some((self.handles.give_frame(entry), hotness))
    }

    /// The block that goes up in exchange for `block`, which came down with this `hotness`.
    pub fn exchange(&mut self, block: u64, hotness: f64) -> Option<PromotedBlock> {
        self.start();
        // A block that is no longer known cannot be the one that goes up.
        let entry = self.handles.find(block).unwrap_or(Entry::MAX);
        let Promoted { entry, owner, load } = self.level.exchange(entry, hotness, &|_| true)?;
        self.links.promotions_out += 1;
        let Slot { block, frame } = self.handles.slot(entry);
        self.handles.release(entry);
        self.drop_if_unknown(entry);
        Some(PromotedBlock { block, frame, load, owner })
    }

    /// A block comes up in exchange. Returns its frame; `None` if it is resident already.
    pub fn exchanged(&mut self, block: u64, owner: u16, load: Load) -> Option<Frame> {
        self.start();
        self.open_first();
        if self.frame(block).is_some() {
            return None;
        }
        let (entry, load) = (self.enter(block), sound_load(load));
        let evicted = self.level.exchanged(Promoted { entry, owner, load });
        self.links.promotions_in += 1;
        self.links.exchanges_in += 1;
        self.settle(evicted);
        Some(self.handles.give_frame(entry))
    }

    /// Removes a block. Returns the frame that it had.
    pub fn discard(&mut self, block: u64) -> Option<Frame> {
        self.start();
        let entry = self.find_held(block)?;
        let frame = self.handles.slot(entry).frame;
        self.level.discard(entry);
        self.handles.release(entry);
        self.drop_if_unknown(entry);
        Some(frame)
    }

    /// What the last call evicted, downwards or for good.
    pub fn left(&self) -> Option<EvictedBlock> {
        self.left
    }

    /// What the last call evicted, downwards or for good, with the frame that it had.
    pub fn evicted(&self) -> &[crate::Evicted] {
        &self.evicted
    }

    /// The frame of a resident block.
    pub fn frame(&self, block: u64) -> Option<Frame> {
        self.handles.frame(self.handles.find(block)?)
    }

    /// The resident blocks with their frames.
    pub fn residents(&self) -> Vec<(u64, Frame)> {
        self.residents_within(0..self.handles())
    }

    /// See [`HashedCache::residents_within`](crate::HashedCache::residents_within).
    pub fn residents_within(&self, part: std::ops::Range<u32>) -> Vec<(u64, Frame)> {
        self.handles.residents_within(part)
    }

    /// See [`HashedCache::handles`](crate::HashedCache::handles).
    pub fn handles(&self) -> u32 {
        self.handles.count()
    }

    /// Capacity in blocks.
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Number of resident blocks.
    pub fn len(&self) -> u32 {
        self.level.len()
    }

    /// Whether no block is resident.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Its counters as a level of a hierarchy.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Blocks that came and went over the links.
    pub fn link_counts(&self) -> LinkCounts {
        self.links
    }

    /// Its parts, if the scheme has such.
    pub fn gauges(&self) -> Option<Gauges> {
        self.level.gauges()
    }

    fn start(&mut self) {
        self.evicted.clear();
        self.left = None;
    }

    /// Begins the first reference, if none has begun.
    fn open_first(&mut self) {
        if self.now == 0 {
            self.pass_time(1);
        }
    }

    fn count(&mut self, is_write: bool, hit: bool) {
        let counts = &mut self.counts;
        if is_write {
            counts.writes += 1;
            counts.write_hits += u64::from(hit);
        } else {
            counts.reads += 1;
            counts.read_hits += u64::from(hit);
        }
    }

    /// Frees the frame of an evicted block and notes the eviction.
    fn settle(&mut self, evicted: Option<Evicted>) {
        let Some(Evicted { entry, load, exchanges, awaits, .. }) = evicted else { return };
        let Slot { block, frame } = self.handles.slot(entry);
        self.counts.evictions += 1;
        self.evicted.push(crate::Evicted { block, frame, held: false });
        self.left = Some(EvictedBlock { block, load, exchanges, awaits });
        self.handles.release(entry);
        self.drop_if_unknown(entry);
    }

    /// The handle of a block; a new one if it has none.
    fn enter(&mut self, block: u64) -> Entry {
        let used = self.capacity as usize + self.level.remembered_max() as usize;
        let level = &self.level;
        self.handles.sweep(used, |entry| level.holds(entry) || level.remembers(entry));
        let (entry, _) = self.handles.enter(block);
        self.level.grow(self.handles.count());
        entry
    }

    /// The handle of a resident block.
    fn find_held(&self, block: u64) -> Option<Entry> {
        self.handles.find(block).filter(|&entry| self.level.holds(entry))
    }

    fn drop_if_unknown(&mut self, entry: Entry) {
        if !self.level.holds(entry) && !self.level.remembers(entry) {
            self.handles.drop_handle(entry);
        }
    }

    /// Checks the invariants in the head of this file, and the level's own.
    ///
    /// # Errors
    /// Says which does not hold.
    pub fn validate(&self) -> Result<(), String> {
        self.level.validate()?;
        self.handles.validate(self.level.len(), |entry| self.level.holds(entry))
    }
}

/// Clamps what a neighbour says of a block to valid ranges.
fn sound_load(load: Load) -> Load {
    Load { frequency: sound_frequency(load.frequency), ..load }
}

fn sound_frequency(frequency: f64) -> f64 {
    // NaN becomes 0.
    if frequency > 0.0 { frequency.min(FREQUENCY_MAX) } else { 0.0 }
}

fn sound(pass: Pass) -> Pass {
    match pass {
        Pass::Fresh { nearest } => Pass::Fresh { nearest: sound_frequency(nearest) },
        Pass::Moved { load, nearest } => {
            Pass::Moved { load: sound_load(load), nearest: sound_frequency(nearest) }
        }
        Pass::Kept => Pass::Kept,
    }
}
