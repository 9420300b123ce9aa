//! MQ: several LRU queues by reference count, for caches below other caches.
//!
//! A second-level cache sees little locality but a skewed frequency: after long distances, some
//! blocks come back many times and others hardly ever. MQ keeps frequently referenced blocks
//! longer: `Q_0` to `Q_(m-1)` are LRU queues, a block with `f` references is in queue `log2 f`, and
//! the victim is the head of the lowest nonempty queue. A block that is not referenced for
//! `lifeTime` moves one queue down. `Q_out` remembers the counts of evicted blocks.
//!
//! The code follows TPDS 2004, figure 5, procedure by procedure (a queue's head is its front).
//! Deviations, and points that the paper leaves open:
//! * The missed block leaves `Q_out` before the victim enters it; in figure 5 it leaves after. So a
//!   full `Q_out` cannot drop the record that is about to be read.
//! * By default lifeTime is adaptive. The paper gives its aim: the temporal distance, above the
//!   size of the cache, that most references have. [`PeakDistance`] estimates it.
//! * Counts stop at 2^32 - 1.
//! * `ca=yes` (content-aware): victims are examined from the head of the lowest queue on.
//! * Below a cache that keeps what it takes (TPDS 2004, section 6), `take` and `note` report
//!   references, which count like any other, though the block is then only in `Q_out`.
//!
//! The queues are logs of uses (`containers/log.rs`) over the data of each block (`block.rs`). The
//! time at which a block moves down is in the log, since only the heads need it.
//!
//! Invariants:
//! 1. those of the logs; a block is in the queue that it names; a block in no queue has count 0;
//! 2. a block of `Q_0` to `Q_(m-1)` is resident and was referenced; `Q_out` keeps to its bound;
//! 3. no queue number is above `QueueNum` of the count, and no `last` is in the future;
//! 4. `falls` are the expiry times of the heads of `Q_1` to `Q_(m-1)`, and none is before `due`.

mod block;
mod peak_distance;

use std::collections::BTreeMap;
use std::fmt::{self, Debug};

use self::block::{Block, Blocks, ExpireTime, NOWHERE, TIME_MAX};
use self::peak_distance::PeakDistance;
use crate::containers::log::Log;
use crate::content_aware::{
    ALPHA, CA, ContentAware, FILTER_BITS, HASHES, KNOWS, Neighbour, PUBLISH,
};
use crate::registry::{Footprint, Kind, Parameter, PolicyInfo};
use crate::snapshot::{CLOCK_MAX, Snapshot, SnapshotError};
use crate::{Entry, EvictionKind, Evictions, Policy};

pub(super) const INFO: PolicyInfo = PolicyInfo {
    name: "mq",
    aliases: &[],
    summary: "multi-queue: LRU queues by frequency, for second-level caches",
    source: "Zhou, Philbin & Li, USENIX 2001; Zhou, Chen & Li, TPDS 2004",
    parameters: &[
        Parameter { name: "m", kind: Kind::Integer(1, 32), default: "8", help: "number of queues" },
        Parameter {
            name: "lifetime",
            kind: Kind::IntegerOr(1, 1 << 40, "adaptive"),
            default: "adaptive",
            help: "references after which an unreferenced block falls by one queue",
        },
        Parameter {
            name: "qout",
            kind: Kind::Real(0.0, 1000.0),
            default: "4",
            help: "evicted blocks remembered, times the capacity; 0 remembers none",
        },
        CA,
        ALPHA,
        KNOWS,
        FILTER_BITS,
        HASHES,
        PUBLISH,
    ],
    memory: Footprint::new(5, 472),
    build: |arguments, context| {
        let mut mq = Mq::new(
            context.capacity,
            arguments.integer("m") as u32,
            arguments.integer_or_word("lifetime"),
            arguments.real("qout"),
        );
        mq.neighbour = Neighbour::of(arguments, context.capacity);
        Ok(Box::new(mq))
    },
};

const NEVER: u64 = u64::MAX;

#[derive(Clone)]
struct Mq {
    capacity: u32,
    /// `Q_0` to `Q_(m-1)`, with the time at which each block moves down.
    queues: Vec<Log<ExpireTime>>,
    /// Queue `m`.
    q_out: Log,
    /// Size of `Q_out`, in multiples of the capacity and in blocks.
    q_out_times: f64,
    q_out_max: u32,
    blocks: Blocks,
    resident: u32,
    /// References so far.
    current_time: u64,
    life_time: u64,
    /// When the head of each queue moves down, if there is a head; never for `Q_0`.
    falls: Vec<u64>,
    /// Until this time `Adjust` has nothing to do.
    due: u64,
    /// Adapts `life_time`; `None` if that is fixed.
    peak_distance: Option<PeakDistance>,
    neighbour: Option<Neighbour>,
}

/// The procedures of the figure.
impl Mq {
    /// `life_time`: `None` for adaptive; `q_out`: size of `Q_out` in multiples of the capacity.
    fn new(capacity: u32, m: u32, life_time: Option<u64>, q_out: f64) -> Self {
        let peak_distance = life_time.is_none().then(|| PeakDistance::new(capacity));
        Self {
            capacity,
            queues: (0..m).map(|queue| Log::new(queue, 4)).collect(),
            q_out: Log::new(m, 2),
            q_out_times: q_out,
            q_out_max: (q_out * f64::from(capacity)) as u32,
            blocks: Blocks(Vec::new()),
            resident: 0,
            current_time: 0,
            life_time: life_time.unwrap_or(u64::from(capacity)),
            falls: vec![NEVER; m as usize],
            due: NEVER,
            peak_distance,
            neighbour: None,
        }
    }

    /// Number of queues of residents.
    #[inline(always)]
    fn m(&self) -> u32 {
        self.queues.len() as u32
    }

    #[inline(always)]
    fn block(&self, entry: Entry) -> Block {
        self.blocks.0[entry as usize]
    }

    #[inline(always)]
    fn block_mut(&mut self, entry: Entry) -> &mut Block {
        &mut self.blocks.0[entry as usize]
    }

    #[inline(always)]
    fn queue_num(&self, count: u32) -> u32 {
        count.ilog2().min(self.m() - 1)
    }

    /// Inserts a block, which is in no queue, at the tail of `Q_queue`; its lifeTime starts anew.
    #[inline(always)]
    fn append(&mut self, queue: u32, entry: Entry) {
        let expire_time = ExpireTime::new(self.current_time + self.life_time);
        let log = &mut self.queues[queue as usize];
        log.push(&mut self.blocks, entry, expire_time);
        if log.len() == 1 {
            self.note_head(queue);
        }
    }

    /// Moves a resident to the tail of its queue; its lifeTime starts anew.
    #[inline(always)]
    fn renew(&mut self, queue: u32, entry: Entry) {
        let slot = self.block(entry).slot;
        let log = &mut self.queues[queue as usize];
        let may_be_head = log.may_be_front(slot);
        let expire_time = ExpireTime::new(self.current_time + self.life_time);
        log.renew(&mut self.blocks, slot, entry, expire_time);
        if may_be_head {
            self.head_left(queue);
        }
    }

    /// Few moved blocks are heads, so this code is not inlined.
    #[inline(never)]
    fn head_left(&mut self, queue: u32) {
        self.note_head(queue);
    }

    /// Counts a reference and observes its distance from the last one. Returns the new count.
    #[inline(always)]
    fn count(&mut self, entry: Entry) -> u32 {
        let block = self.block(entry);
        if let Some(peak) = &mut self.peak_distance {
            let distance = self.current_time - block.last();
            let known = block.count > 0;
            peak.observe(distance, known & (distance > u64::from(self.capacity)));
        }
        let (count, now) = (block.count.saturating_add(1), self.current_time);
        self.block_mut(entry).set_uses(count, now);
        count
    }

    /// The end of the procedure for a reference, from `b.reference++` on.
    #[inline(always)]
    fn reference(&mut self, entry: Entry) {
        let count = self.count(entry);
        self.append(self.queue_num(count), entry);
        self.adjust();
    }

    #[inline(always)]
    fn adjust(&mut self) {
        self.current_time += 1;
        if self.current_time > self.due {
            self.demote_expired();
        }
        if let Some(peak) = &mut self.peak_distance {
            self.life_time = peak.review(self.current_time).unwrap_or(self.life_time);
        }
    }

    /// The loop of `Adjust`: each expired head moves one queue down.
    #[inline(never)]
    fn demote_expired(&mut self) {
        for k in 1..self.m() {
            if self.falls[k as usize] >= self.current_time {
                continue;
            }
            if let Some(head) = self.queues[k as usize].pop(&self.blocks) {
                self.block_mut(head).set_queue(NOWHERE);
                self.append(k - 1, head);
            }
            self.note_head(k);
        }
        self.due = self.falls.iter().fold(NEVER, |due, &falls| due.min(falls));
    }

    /// Updates `falls` of a queue. A new head may expire earlier, since lifeTime changes.
    #[inline(always)]
    fn note_head(&mut self, queue: u32) {
        if (1..self.m()).contains(&queue) {
            let head = self.queues[queue as usize].front_with(&self.blocks);
            let falls = head.map_or(NEVER, |(_, expire_time)| expire_time.get());
            self.falls[queue as usize] = falls;
            self.due = self.due.min(falls);
        }
    }

    /// Removes a resident from its queue.
    #[inline(always)]
    fn detach(&mut self, entry: Entry) {
        let block = self.block_mut(entry);
        let (queue, slot) = (block.queue(), block.slot);
        block.set_queue(NOWHERE);
        let log = &mut self.queues[queue as usize];
        log.remove(slot);
        if log.may_be_front(slot) {
            self.note_head(queue);
        }
    }

    /// The residents in order of eviction.
    fn in_order(&self) -> impl Iterator<Item = Entry> + '_ {
        self.queues.iter().flat_map(|queue| queue.iter(&self.blocks)).map(|(entry, _)| entry)
    }

    /// The first block within the window that the neighbour holds.
    #[inline(never)]
    fn preferred(&mut self) -> Option<Entry> {
        let neighbour = self.neighbour.as_ref()?;
        let mut window = neighbour.window();
        self.queues.iter_mut().find_map(|queue| {
            let found = queue.search(&self.blocks, window, |entry| neighbour.has(entry));
            window = window.saturating_sub(queue.len());
            found
        })
    }

    #[inline(always)]
    fn evict_block(&mut self, out: &mut Evictions) {
        let preferred = if self.neighbour.is_some() { self.preferred() } else { None };
        let mut heads = self.queues.iter_mut().map(|queue| queue.front(&self.blocks));
        if let Some(victim) = preferred.or_else(|| heads.find_map(|head| head)) {
            self.leave(victim);
            let is_kept = self.q_out_max > 0;
            out.push(
                victim,
                [EvictionKind::Evicted, EvictionKind::Remembered][usize::from(is_kept)],
            );
            self.remember(victim, out);
        }
    }

    /// Inserts a block, which is in no queue, at the tail of `Q_out`, unless that has size 0.
    #[inline(always)]
    fn remember(&mut self, entry: Entry, out: &mut Evictions) {
        if self.q_out_max > 0 {
            self.q_out.push(&mut self.blocks, entry, ());
            if self.q_out.len() > self.q_out_max {
                self.forget_oldest(out);
            }
        } else {
            *self.block_mut(entry) = Block::default();
        }
    }

    /// Drops the head of `Q_out`.
    #[inline(always)]
    fn forget_oldest(&mut self, out: &mut Evictions) {
        if let Some(oldest) = self.q_out.pop(&self.blocks) {
            *self.block_mut(oldest) = Block::default();
            out.push(oldest, EvictionKind::Forgotten);
        }
    }

    /// Removes a block from `Q_out`, if it is there.
    #[inline(always)]
    fn recall(&mut self, entry: Entry) {
        if self.remembers(entry) {
            self.q_out.remove(self.block(entry).slot);
            self.block_mut(entry).set_queue(NOWHERE);
        }
    }

    /// Places a non-resident block.
    #[inline(never)]
    fn bring_in(&mut self, entry: Entry, out: &mut Evictions) {
        self.make_room(entry, out);
        let now = self.current_time;
        if self.block(entry).count == 0 {
            self.block_mut(entry).set_uses(1, now);
        }
        self.append(self.queue_num(self.block(entry).count), entry);
    }

    /// Removes a resident block that is about to enter `Q_out`.
    #[inline(always)]
    fn leave(&mut self, entry: Entry) {
        self.detach(entry);
        self.resident -= 1;
    }

    /// Makes room for a missed block: takes it from `Q_out` and, if necessary, evicts another.
    #[inline(always)]
    fn make_room(&mut self, entry: Entry, out: &mut Evictions) {
        self.recall(entry);
        if self.resident == self.capacity {
            self.evict_block(out);
        }
        self.resident += 1;
    }
}

impl Policy for Mq {
    fn capacity(&self) -> u32 {
        self.capacity
    }

    #[inline(always)]
    fn len(&self) -> u32 {
        self.resident
    }

    fn grow(&mut self, entries: u32) {
        let Blocks(blocks) = &mut self.blocks;
        blocks.resize(blocks.len().max(entries as usize), Block::default());
        self.neighbour.iter_mut().for_each(|n| n.grow(entries));
    }

    #[inline(always)]
    fn contains(&self, entry: Entry) -> bool {
        self.block(entry).queue() < self.m()
    }

    #[inline(always)]
    fn remembers(&self, entry: Entry) -> bool {
        self.block(entry).queue() == self.m()
    }

    #[inline(always)]
    fn touch(&mut self, entry: Entry, _: &mut Evictions) {
        let (from, count) = (self.block(entry).queue(), self.count(entry));
        let to = self.queue_num(count);
        if to == from {
            self.renew(to, entry);
        } else {
            self.detach(entry);
            self.append(to, entry);
        }
        self.adjust();
    }

    #[inline(always)]
    fn admit(&mut self, entry: Entry, out: &mut Evictions) {
        self.make_room(entry, out);
        self.reference(entry);
    }

    /// A reference; the block moves to `Q_out`.
    fn take(&mut self, entry: Entry, out: &mut Evictions) {
        if self.contains(entry) {
            self.leave(entry);
            self.count(entry);
            self.remember(entry, out);
            self.adjust();
        }
    }

    /// A reference; the block becomes the newest of `Q_out`.
    fn note(&mut self, entry: Entry, out: &mut Evictions) {
        if self.contains(entry) {
            return;
        }
        self.recall(entry);
        self.count(entry);
        self.remember(entry, out);
        self.adjust();
    }

    /// Inserts the block into the queue of its count; counts no reference, and no time passes.
    #[inline(always)]
    fn place(&mut self, entry: Entry, out: &mut Evictions) {
        if self.contains(entry) {
            self.renew(self.block(entry).queue(), entry);
        } else {
            self.bring_in(entry, out);
        }
    }

    fn discard(&mut self, entry: Entry, _: &mut Evictions) {
        if self.contains(entry) {
            self.leave(entry);
        } else {
            self.recall(entry);
        }
        *self.block_mut(entry) = Block::default();
    }

    /// lifeTime stays until its next review.
    fn resize(&mut self, capacity: u32, out: &mut Evictions) {
        self.capacity = capacity;
        self.neighbour.iter_mut().for_each(|n| n.resize(capacity));
        if let Some(peak) = &mut self.peak_distance {
            peak.resize(capacity, self.current_time);
        }
        self.q_out_max = (self.q_out_times * f64::from(capacity)) as u32;
        while self.q_out.len() > self.q_out_max {
            self.forget_oldest(out);
        }
        while self.resident > capacity {
            self.evict_block(out);
        }
    }

    /// Lowest queue first, each from its head.
    fn residents(&self) -> Vec<Entry> {
        self.in_order().collect()
    }

    fn victim(&self) -> Option<Entry> {
        let order = || self.in_order().filter(|_| self.resident == self.capacity);
        let held = self.neighbour.as_ref().and_then(|n| n.first_held(order()));
        held.or_else(|| order().next())
    }

    #[inline(always)]
    fn prefetch(&self, entry: Entry) -> u32 {
        self.block(entry).slot
    }

    fn content_aware(&mut self) -> Option<&mut dyn ContentAware> {
        if self.neighbour.is_some() { Some(self) } else { None }
    }

    fn save_load(&mut self, snapshot: &mut Snapshot<'_>) -> Result<(), SnapshotError> {
        snapshot.number(&mut self.current_time, 0..=TIME_MAX)?;
        let now = self.current_time;
        if let Some(peak) = &mut self.peak_distance {
            snapshot.number(&mut self.life_time, 1..=CLOCK_MAX)?;
            peak.save_load(snapshot)?;
            peak.resize(self.capacity, now);
        }
        let uses = |snapshot: &mut Snapshot<'_>, (count, last): &mut (u32, u64)| {
            snapshot.number(count, 1..=u32::MAX)?;
            snapshot.number(last, 0..=now)
        };
        let uses_of = |entry| (self.block(entry).count, self.block(entry).last());
        let saved = |queue: &Log<ExpireTime>| -> Vec<_> {
            let blocks = queue.iter(&self.blocks);
            blocks.map(|(entry, time)| (entry, (uses_of(entry), time.get()))).collect()
        };
        let queues: Vec<_> = self.queues.iter().map(saved).collect();
        let q_out: Vec<_> = self.q_out.iter(&self.blocks).map(|(e, ())| (e, uses_of(e))).collect();
        for (queue, saved) in (0..).zip(queues) {
            let blocks = snapshot.entries_with(
                saved.len() as u32,
                saved.into_iter(),
                |snapshot, (block, expire_time)| {
                    uses(snapshot, block)?;
                    snapshot.number(expire_time, 0..=2 * CLOCK_MAX)
                },
            )?;
            for (entry, ((count, last), expire_time)) in blocks {
                self.block_mut(entry).set_uses(count, last);
                let log = &mut self.queues[queue as usize];
                log.push(&mut self.blocks, entry, ExpireTime::new(expire_time));
            }
            self.note_head(queue);
        }
        let ghosts = snapshot.entries_with(q_out.len() as u32, q_out.into_iter(), uses)?;
        for (entry, (count, last)) in ghosts {
            self.block_mut(entry).set_uses(count, last);
            self.q_out.push(&mut self.blocks, entry, ());
        }
        self.resident = self.queues.iter().map(Log::len).sum();
        Ok(())
    }

    fn validate(&self) -> Result<(), String> {
        self.queues.iter().try_for_each(|queue| queue.check(&self.blocks))?;
        self.q_out.check(&self.blocks)?;
        let head = |log: &Log<ExpireTime>| {
            log.iter(&self.blocks).next().map_or(NEVER, |(_, expire_time)| expire_time.get())
        };
        let mut falls: Vec<u64> = self.queues.iter().map(head).collect();
        falls[0] = NEVER;
        if self.falls != falls || falls.iter().any(|&falls| falls < self.due) {
            return Err(format!("heads fall at {falls:?}, not {:?}, due {}", self.falls, self.due));
        }
        let held: u32 = self.queues.iter().map(Log::len).sum();
        if held != self.resident || held > self.capacity || self.q_out.len() > self.q_out_max {
            return Err(format!("{held} held, {} remembered", self.q_out.len()));
        }
        let mut named = 0;
        for (entry, block) in self.blocks.0.iter().enumerate() {
            let is_known = block.queue() != NOWHERE;
            named += u32::from(is_known);
            let is_due = block.queue() == self.m()
                || block.count > 0 && block.queue() <= self.queue_num(block.count);
            if is_known != (block.count > 0)
                || is_known && (!is_due || block.last() > self.current_time)
            {
                return Err(format!("entry {entry}: {block:?}"));
            }
        }
        let listed = held + self.q_out.len();
        if named == listed { Ok(()) } else { Err(format!("{named} name a queue, not {listed}")) }
    }
}

impl ContentAware for Mq {
    fn neighbour_holds(&mut self, entry: Entry, holds: bool) {
        let is_new = self.neighbour.as_mut().is_some_and(|n| n.set(entry, holds));
        if is_new && self.contains(entry) {
            let block = self.block(entry);
            self.queues[block.queue() as usize].search_again_from(&self.blocks, block.slot);
        }
    }

    fn neighbour_has(&self, entry: Entry) -> bool {
        self.neighbour.as_ref().is_some_and(|n| n.has(entry))
    }
}

/// The queues, counts and times of the specification.
impl Debug for Mq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entries = |queue: &Log<ExpireTime>| {
            queue.iter(&self.blocks).map(|(entry, _)| entry).collect::<Vec<_>>()
        };
        let queues: Vec<_> = self.queues.iter().map(entries).collect();
        let count = |entry| (entry, self.block(entry).count);
        let q_out = self.q_out.iter(&self.blocks).map(|(entry, ())| count(entry));
        let bins = self.peak_distance.iter().flat_map(PeakDistance::filled);
        f.debug_struct("Mq")
            .field("queues", &queues)
            .field("ref", &self.in_order().map(count).collect::<BTreeMap<_, _>>())
            .field("qout", &q_out.collect::<BTreeMap<_, _>>())
            .field("life_time", &self.life_time)
            .field("hist_bins_log2", &bins.collect::<BTreeMap<_, _>>())
            .finish()
    }
}

#[cfg(test)]
mod tests;
