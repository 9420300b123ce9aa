//! What a flash level below a simulated server learns of the memory above it: which blocks are
//! read, written, placed and evicted there.
//!
//! Not here: what goes to flash and what leaves (`undercroft_flash`).

use undercroft_flash::{Below, Directory, Evidence, Flash, Reference, Slot, Slots};
use undercroft_level::{Evicted, Level, Referred, Streams};
use undercroft_policy::{Context, Entry, Evictions, Policy, Spec};
use undercroft_trace::BlockNames;

use crate::{Error, FlashLevel, FlashOutcome};

/// A flash level in a running simulation, below the memory of one server.
pub(crate) struct BelowMemory {
    level: Below<Box<dyn Directory + Send>>,
    /// The streams, and the real number of each block, by which they are recognised.
    streams: Option<(Streams, Vec<u64>)>,
    /// The number of each block in the directory: the real one, or its position if one of them is
    /// too large.
    keys: Vec<u64>,
    us_per_request: f64,
    /// Whether the last read found its block here.
    was_here: bool,
    reloads: u64,
}

impl BelowMemory {
    /// An empty level for `unique` blocks of `block_bytes`. `names`: their real numbers, if they
    /// are those of one client.
    ///
    /// # Errors
    /// The size is none for this trace, the budget is less than a block, or the order cannot be
    /// made.
    pub(crate) fn new(
        level: &FlashLevel,
        block_bytes: u32,
        unique: u32,
        names: Option<&BlockNames>,
    ) -> Result<Self, Error> {
        let capacity = level.size.blocks(block_bytes, unique)?;
        if level.spec.budget.bytes().is_some_and(|bytes| bytes < block_bytes.into()) {
            return Err(Error::Request("flash: the budget is less than a block a day".into()));
        }
        let directory: Box<dyn Directory + Send> = match &level.order {
            None => Box::new(Slots::new(capacity, 0)),
            Some(order) => Box::new(Ordered::new(order, capacity, unique)?),
        };
        let most = directory.limit();
        let real = names.map(|names| (0..unique).map(|at| names.name(at)).collect::<Vec<_>>());
        let fitting = real.clone().filter(|names| names.iter().all(|&name| name < most));
        // An order of its own has the positions as handles.
        let keys = fitting.filter(|_| level.order.is_none());
        let streams = Streams::beyond(level.spec.sequential_bytes, block_bytes);
        Ok(Self {
            level: Below::new(Flash::new(directory, &level.spec, block_bytes)),
            // Without real numbers nothing is known of what lies in a row.
            streams: streams.zip(real),
            keys: keys.unwrap_or_else(|| (0..unique.into()).collect()),
            us_per_request: level.requests_per_s.map_or(0.0, |rate| 1e6 / rate),
            was_here: false,
            reloads: 0,
        })
    }

    /// The time is so many microseconds since the start.
    pub(crate) fn advance(&mut self, now_us: u64) {
        self.level.flash.advance(now_us);
    }

    /// Whether a block lies here.
    pub(crate) fn has(&self, block: u64) -> bool {
        self.level.flash.has(self.keys[block as usize])
    }

    /// The request with this number comes, counted from 0.
    pub(crate) fn at_request(&mut self, at: u64) {
        self.level.flash.advance((at as f64 * self.us_per_request) as u64);
    }

    /// The memory served a reference.
    pub(crate) fn referred(
        &mut self,
        block: u64,
        is_write: bool,
        referred: Referred,
        memory: &Level,
    ) {
        let key = self.keys[block as usize];
        let streams = self.streams.as_mut();
        let is_streamed = streams.is_some_and(|(all, names)| all.note(names[block as usize]));
        let Referred { hit, before, now } = referred;
        let reference = Reference { block: key, is_write, is_streamed, hit, before };
        let answer = self.level.referred(&reference);
        self.was_here = answer.slot.is_some();
        self.left(memory.evicted());
        self.level.holds(key, now, answer.evidence);
    }

    /// The memory placed a block that nobody requested. `is_reload`: its contents had to be read.
    pub(crate) fn arrived(&mut self, block: u64, is_reload: bool, memory: &Level) {
        let key = self.keys[block as usize];
        let answer = self.level.arrived(key);
        self.reloads += u64::from(is_reload && answer.slot.is_some());
        self.left(memory.evicted());
        if let Some(frame) = memory.frame(block) {
            self.level.holds(key, Some(frame), answer.evidence);
        }
    }

    /// Blocks left the memory.
    pub(crate) fn left(&mut self, evicted: &[Evicted]) {
        for gone in evicted {
            self.level.left(self.keys[gone.block as usize], gone.frame);
        }
    }

    /// Whether the last read found its block here.
    pub(crate) fn was_here(&self) -> bool {
        self.was_here
    }

    pub(crate) fn restart_counts(&mut self) {
        self.level.flash.restart_counts();
        self.reloads = 0;
    }

    pub(crate) fn outcome(&self) -> FlashOutcome {
        let capacity = self.level.flash.directory().capacity();
        FlashOutcome {
            capacity,
            counts: *self.level.flash.counts(),
            reloads: self.reloads,
            timed: None,
        }
    }
}

/// A directory in the order of any policy, in which each block is its own slot: to measure what a
/// server's order loses.
struct Ordered {
    policy: Box<dyn Policy>,
    evidence: Vec<Evidence>,
    out: Evictions,
}

impl Ordered {
    fn new(order: &Spec, capacity: u32, entries: Entry) -> Result<Self, Error> {
        let mut policy = order.build(&Context::new(capacity))?;
        policy.grow(entries);
        let evidence = vec![Evidence::None; entries as usize];
        Ok(Self { policy, evidence, out: Evictions::new() })
    }
}

impl Directory for Ordered {
    fn capacity(&self) -> u32 {
        self.policy.capacity()
    }

    fn limit(&self) -> u64 {
        self.evidence.len() as u64
    }

    fn find(&self, block: u64) -> Option<Slot> {
        let entry = block as Entry;
        self.policy.contains(entry).then_some(entry)
    }

    fn touch(&mut self, slot: Slot) -> Evidence {
        self.out.clear();
        self.policy.touch(slot, &mut self.out);
        self.evidence[slot as usize]
    }

    fn keep(&mut self, _: Slot) {}

    fn place(&mut self, block: u64, evidence: Evidence) -> Option<(Slot, Option<u64>)> {
        self.out.clear();
        let entry = block as Entry;
        self.policy.admit(entry, &mut self.out);
        self.evidence[entry as usize] = evidence;
        Some((entry, self.out.evicted().next().map(u64::from)))
    }

    fn empty(&mut self, slot: Slot) {
        self.out.clear();
        self.policy.discard(slot, &mut self.out);
    }

    fn block_in(&self, slot: Slot) -> Option<u64> {
        self.policy.contains(slot).then_some(slot.into())
    }
}
