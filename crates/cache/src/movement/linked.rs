//! One level of a scheme behind a hashed index: what a server or a client runs whose neighbours are
//! other processes. It counts as the simulator counts that level.
//!
//! Messages of neighbours are not trusted: numbers out of range are clamped.
//!
//! Not here: the format of the messages (`docs/developer/hints.md`), and the data of the blocks.
//!
//! Invariants (checked by [`LinkedCache::validate`]): those of the index ([`Handles`]) and of the
//! level.

use super::link::{Bid, Left, LinkedLevel, Load, Pass, Passing, Risen, Standing, Upper};
use super::shared::Shared;
use super::{Gauges, SchemeSpec};
use crate::handles::{Handles, Slot};
use crate::policy::SpecError;
use crate::{Counts, Entry, Evicted, Frame};

/// Most references that may pass at once: a neighbour that says more is not believed.
const STEP_MAX: u64 = 1 << 20;

/// Largest hint frequency.
const FREQUENCY_MAX: f64 = 1e9;

/// Blocks that came and went over the links, as the simulator counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounts {
    /// Blocks that came from above, with their data.
    pub demotions_in: u64,
    /// Blocks that came from below to stay.
    pub promotions_in: u64,
    /// Of those, blocks that nobody had asked for.
    pub exchanges_in: u64,
    /// Blocks that went up.
    pub promotions_out: u64,
}

/// A block that has left downwards, or for good.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LeftBlock {
    /// The block.
    pub block: u64,
    /// What goes with it one level down; none: it goes nowhere.
    pub load: Option<Load>,
    /// Whether the levels below may send blocks up for what comes down.
    pub exchanges: bool,
    /// Whether it may come to that at the next level: then nothing should be asked there before
    /// it has said so.
    pub awaits: bool,
}

/// A block that goes up in exchange.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RisenBlock {
    /// The block.
    pub block: u64,
    /// Where its data lies until the next call.
    pub frame: Frame,
    /// What goes with it.
    pub load: Load,
    /// Whose it is.
    pub owner: u16,
}

/// What a reference met.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reached {
    /// The frame that the block had.
    pub before: Option<Frame>,
    /// The frame that it has now.
    pub now: Option<Frame>,
    /// What is said further up; none if the block is not here, and the level below is to be asked.
    pub pass: Option<Pass>,
}

/// Who asks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Asking {
    /// A level above, with what it says; none: a client.
    pub upper: Option<Bid>,
    /// Whose the block is: the number of the level above or of the client.
    pub owner: u16,
}

/// A level with its index, counters and clock.
pub struct LinkedCache {
    level: Box<dyn LinkedLevel>,
    capacity: u32,
    handles: Handles,
    /// Its records and its clock. The last reference stays open: what comes later may belong to it.
    shared: Shared,
    counts: Counts,
    links: LinkCounts,
    evicted: Vec<Evicted>,
    left: Option<LeftBlock>,
}

impl LinkedCache {
    /// A level of `capacity` blocks of `block_bytes`. `has_lower`: whether a level is below, and
    /// not the disk. `seed` is the start of the random numbers, the same at all levels, as a
    /// simulation has it; `hash_seed` makes the index unpredictable, and changes nothing else.
    ///
    /// # Errors
    /// The scheme's levels do not run apart from each other.
    pub fn new(
        scheme: &SchemeSpec,
        capacity: u32,
        block_bytes: u32,
        has_lower: bool,
        seed: u64,
        hash_seed: u64,
    ) -> Result<Self, SpecError> {
        let standing = Standing {
            number: 0,
            capacity,
            block_bytes,
            has_upper: true,
            has_lower,
            way_blocks: capacity.into(),
            seed,
        };
        let level = scheme.level(standing).ok_or_else(|| {
            SpecError(format!(
                "placement {}: its levels cannot be processes of their own; d-hfa, p-hfa, h-hfa \
                 and hint-k can, the others run in simulations",
                scheme.info().name
            ))
        })?;
        let shared = Shared::new(level.lists(), level.period());
        Ok(Self {
            level,
            shared,
            capacity,
            handles: Handles::new(capacity, hash_seed),
            counts: Counts::default(),
            links: LinkCounts::default(),
            evicted: Vec::new(),
            left: None,
        })
    }

    /// Who stands above: blocks of all caches on the way of the level of that number, and how many
    /// caches these are. `below`: blocks of all caches below.
    pub fn introduce(&mut self, upper: u16, blocks: u64, levels: u16, below: u64) {
        self.measure_way(blocks.saturating_add(below));
        self.level.introduce(upper, blocks, levels);
    }

    /// Nobody stands above that has said so: a client asks itself. `below` as before.
    pub fn stand_alone(&mut self, below: u64) {
        self.measure_way(below);
    }

    /// So many blocks are above and below.
    fn measure_way(&mut self, others: u64) {
        if self.time() == 0 {
            self.level.measure_way(others.saturating_add(self.capacity.into()));
            self.shared.set_period(self.level.period());
        }
    }

    /// So many references have been made above since this was called last, wherever they were
    /// served; the last of them is the one that what follows belongs to.
    pub fn pass_time(&mut self, references: u64) {
        let mut left = references.min(STEP_MAX);
        if self.time() == 0 {
            left = left.max(1);
        }
        // Nothing but the clock changes within a slot.
        loop {
            left -= self.shared.pass_within_slot(left);
            if left == 0 {
                return;
            }
            self.level.end_slot(&mut self.shared.at_hand());
            left -= 1;
            if self.shared.tick() {
                self.level.begin_slot(&mut self.shared.at_hand());
            }
        }
    }

    /// References so far.
    pub fn time(&self) -> u64 {
        self.shared.now()
    }

    /// What goes along with a request to the level below.
    pub fn bid(&self) -> Bid {
        Bid { life: self.level.life(&self.shared), ..self.level.bid() }
    }

    /// A level above says its life with a request.
    pub fn hear_life(&mut self, upper: u16, life: u64) {
        self.level.hear_life(&self.shared, upper, life);
    }

    /// A counted reference. `cold` is asked on a miss: whether nobody referenced the block before.
    pub fn reference(
        &mut self,
        block: u64,
        is_write: bool,
        asking: Asking,
        cold: impl FnOnce() -> bool,
    ) -> Reached {
        self.start();
        self.clock();
        let entry = self.find_held(block);
        self.count(is_write, entry.is_some());
        let Some(entry) = entry else {
            self.counts.cold_reads += u64::from(cold() && !is_write);
            return Reached { before: None, now: None, pass: None };
        };
        let before = self.handles.slot(entry).frame;
        let upper = asking.upper.map(|bid| Upper { number: asking.owner, bid });
        let mut left = None;
        let pass = self.level.serve(&mut self.shared.at_hand(), entry, is_write, upper, &mut left);
        let mut now = Some(before);
        if matches!(pass, Pass::Moved { .. }) {
            self.links.promotions_out += 1;
            self.handles.release(entry);
            now = None;
        }
        self.settle(left);
        Reached { before: Some(before), now, pass: Some(pass) }
    }

    /// A write of a block that a level above holds: it passes through.
    pub fn passes_write(&mut self) {
        self.start();
        self.clock();
        self.count(true, false);
    }

    /// The block of a reference that was not served here comes up: what is said further up, and its
    /// frame if it stays.
    pub fn arrive(
        &mut self,
        block: u64,
        is_write: bool,
        asking: Asking,
        pass: Pass,
    ) -> (Pass, Option<Frame>) {
        self.start();
        self.clock();
        if pass == Pass::Kept || self.frame(block).is_some() {
            return (Pass::Kept, None);
        }
        let pass = sound(pass);
        let entry = self.enter(block);
        let upper = asking.upper.is_some().then_some(asking.owner);
        let passing = Passing { entry, is_write, upper, owner: asking.owner, is_told: true };
        let mut left = None;
        let (further, stays) =
            self.level.pass(&mut self.shared.at_hand(), passing, pass, &mut left);
        self.settle(left);
        if !stays {
            self.drop_if_unknown(entry);
            return (further, None);
        }
        self.links.promotions_in += u64::from(matches!(pass, Pass::Moved { .. }));
        (further, Some(self.handles.give_frame(entry)))
    }

    /// A block comes down from a level above: its frame, and how hot it is if
    /// [`exchange`](Self::exchange) is to be called with that when what left for it has been dealt
    /// with. None if it is here already.
    pub fn demoted(
        &mut self,
        block: u64,
        owner: u16,
        load: Load,
        exchanges: bool,
    ) -> Option<(Frame, Option<f64>)> {
        self.start();
        self.clock();
        if self.frame(block).is_some() {
            return None;
        }
        let entry = self.enter(block);
        let mut left = None;
        let (level, load) = (&mut self.level, sound_load(load));
        let heat =
            level.demoted(&mut self.shared.at_hand(), entry, owner, load, exchanges, &mut left);
        self.links.demotions_in += 1;
        self.settle(left);
        Some((self.handles.give_frame(entry), heat))
    }

    /// What goes up for a block that came down as hot as that.
    pub fn exchange(&mut self, block: u64, heat: f64) -> Option<RisenBlock> {
        self.start();
        // One that is not known any more is not the one that goes up either.
        let entry = self.handles.find(block).unwrap_or(Entry::MAX);
        let Risen { entry, owner, load } =
            self.level.exchange(&mut self.shared.at_hand(), entry, heat, &|_| true)?;
        self.links.promotions_out += 1;
        let Slot { block, frame } = self.handles.slot(entry);
        self.handles.release(entry);
        self.drop_if_unknown(entry);
        Some(RisenBlock { block, frame, load, owner })
    }

    /// A block comes up in exchange: its frame; none if it is here already.
    pub fn exchanged(&mut self, block: u64, owner: u16, load: Load) -> Option<Frame> {
        self.start();
        self.clock();
        if self.frame(block).is_some() {
            return None;
        }
        let entry = self.enter(block);
        let mut left = None;
        let risen = Risen { entry, owner, load: sound_load(load) };
        self.level.exchanged(&mut self.shared.at_hand(), risen, &mut left);
        self.links.promotions_in += 1;
        self.links.exchanges_in += 1;
        self.settle(left);
        Some(self.handles.give_frame(entry))
    }

    /// Forgets that a block is here: the frame that it had.
    pub fn discard(&mut self, block: u64) -> Option<Frame> {
        self.start();
        let entry = self.find_held(block)?;
        let frame = self.handles.slot(entry).frame;
        self.level.forget(&mut self.shared.at_hand(), entry);
        self.handles.release(entry);
        self.drop_if_unknown(entry);
        Some(frame)
    }

    /// What left in the last call, downwards or for good.
    pub fn left(&self) -> Option<LeftBlock> {
        self.left
    }

    /// What left in the last call, downwards or for good, with the frame that it had.
    pub fn evicted(&self) -> &[Evicted] {
        &self.evicted
    }

    /// The frame of a block that is here.
    pub fn frame(&self, block: u64) -> Option<Frame> {
        self.handles.frame(self.handles.find(block)?)
    }

    /// The blocks that are here, with their frames.
    pub fn residents(&self) -> Vec<(u64, Frame)> {
        let slot = |entry: Entry| self.handles.slot(entry);
        self.level
            .residents(&self.shared)
            .into_iter()
            .map(slot)
            .map(|s| (s.block, s.frame))
            .collect()
    }

    /// As [`HashedCache::residents_within`](crate::HashedCache::residents_within).
    pub fn residents_within(&self, part: std::ops::Range<u32>) -> Vec<(u64, Frame)> {
        self.handles.residents_within(part)
    }

    /// As [`HashedCache::handles`](crate::HashedCache::handles).
    pub fn handles(&self) -> u32 {
        self.handles.count()
    }

    /// Blocks that it may hold.
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Blocks that it holds.
    pub fn len(&self) -> u32 {
        self.level.len()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Its counters as a level of a hierarchy.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// What came and went over the links.
    pub fn link_counts(&self) -> LinkCounts {
        self.links
    }

    /// Its parts, where the scheme has such.
    pub fn gauges(&self) -> Option<Gauges> {
        self.level.gauges()
    }

    fn start(&mut self) {
        self.evicted.clear();
        self.left = None;
    }

    /// The first reference opens by itself.
    fn clock(&mut self) {
        if self.time() == 0 {
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

    /// Carries out what left.
    fn settle(&mut self, left: Option<Left>) {
        let Some(left) = left else { return };
        let (awaits, Left { entry, load, exchanges, .. }) =
            (self.level.awaits_exchange(&left), left);
        let Slot { block, frame } = self.handles.slot(entry);
        self.counts.evictions += 1;
        self.evicted.push(Evicted { block, frame, held: false });
        self.left = Some(LeftBlock { block, load, exchanges, awaits });
        self.handles.release(entry);
        self.drop_if_unknown(entry);
    }

    /// The handle of a block: the one that it has, or a fresh one.
    fn enter(&mut self, block: u64) -> Entry {
        let used = self.capacity as usize + self.level.remembered_max() as usize;
        let (level, shared) = (&self.level, &self.shared);
        let knows = |entry| shared.level_of(entry).is_some() || level.remembers(shared, entry);
        self.handles.sweep(used, knows);
        let (entry, _) = self.handles.enter(block);
        self.level.grow(self.handles.count());
        self.shared.blocks.grow(self.handles.count());
        entry
    }

    /// The handle of a block that is here.
    fn find_held(&self, block: u64) -> Option<Entry> {
        self.handles.find(block).filter(|&entry| self.is_held(entry))
    }

    fn is_held(&self, entry: Entry) -> bool {
        self.shared.level_of(entry).is_some()
    }

    fn drop_if_unknown(&mut self, entry: Entry) {
        if !self.is_held(entry) && !self.level.remembers(&self.shared, entry) {
            self.handles.drop_handle(entry);
        }
    }

    /// Checks the invariants in the head of this file, and the level's own.
    ///
    /// # Errors
    /// Says which does not hold.
    pub fn validate(&self) -> Result<(), String> {
        self.level.validate(&self.shared)?;
        self.shared.blocks.check()?;
        self.handles.validate(self.level.len(), |entry| self.is_held(entry))
    }
}

/// What a neighbour said, as far as it can be.
fn sound_load(load: Load) -> Load {
    Load { frequency: sound_frequency(load.frequency), ..load }
}

fn sound_frequency(frequency: f64) -> f64 {
    // Not a number is none.
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
