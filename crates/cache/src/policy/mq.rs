//! MQ: several LRU queues by reference count, for caches below other caches.
//!
//! A second-level cache sees little locality but a skewed frequency: blocks come back, after long
//! distances, many times or hardly ever. MQ therefore keeps a block the longer the oftener it was
//! referenced: `Q_0` to `Q_(m-1)` are LRU queues, a block with `f` references is in queue
//! `log2 f`, and the victim is the head of the lowest queue that holds anything. A block that stays
//! unreferenced for `lifeTime` falls by one queue. `Q_out` remembers the counts of evicted blocks.
//!
//! The code follows TPDS 2004, figure 5, procedure by procedure (a queue's head is its front).
//! Deviations and what the paper leaves open:
//! * The missed block leaves `Q_out` before the victim enters it, which figure 5 does after: so a
//!   full `Q_out` cannot drop the very record that is about to be read.
//! * lifeTime is by default adaptive. Published is its aim, the temporal distance above the size of
//!   the cache that most references have; how it is estimated here is said at [`PeakDistance`].
//! * Counts stop at 2^32 - 1.
//!
//! Content-aware (`ca=yes`): the victims are looked at from the head of the lowest queue on.
//!
//! Below another cache that keeps what it takes (TPDS 2004, section 6) the references that `take`
//! and `note` report count like any other, though the block itself is then only in `Q_out`.
//!
//! Invariants:
//! 1. an entry is linked in the queue that its block names, and in none if unknown, with count 0;
//! 2. a block of `Q_0` to `Q_(m-1)` is resident and was referenced; `Q_out` keeps to its bound;
//! 3. no queue number is above `QueueNum` of the count, and no `last` is in the future;
//! 4. no head of `Q_1` to `Q_(m-1)` expires before `due`.

use std::collections::BTreeMap;

use super::awareness::{ALPHA, CA, FILTER_BITS, HASHES, KNOWS, PUBLISH, held};
use super::ghosts::Ghosts;
use super::neighbour::{Alone, Neighbour, Stretch, whole};
use super::peak_distance::PeakDistance;
use super::registry::{Kind, Parameter, PolicyInfo};
use super::{Departures, Entry, Policy};
use crate::lists::Lists;
use crate::memo::{CLOCK_MAX, Carried, Memo};

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
    build: |arguments, context| {
        let m = arguments.integer("m") as u32;
        let life_time = arguments.integer_or_word("lifetime");
        let (c, q_out) = (context.capacity, arguments.real("qout"));
        Ok(match held(arguments, c) {
            Some(held) => Box::new(Mq::new(c, m, life_time, q_out, held)),
            None => Box::new(Mq::new(c, m, life_time, q_out, Alone)),
        })
    },
};

/// What is known of a block. The default is that nothing is.
#[derive(Clone, Copy, Debug)]
struct Block {
    /// When an unreferenced block falls: the queues below the head may have it in any order.
    expire_time: u64,
    /// When it was last referenced.
    last: u64,
    /// Number of references.
    count: u32,
    /// The queue it is in; `m` is `Q_out`.
    queue: u32,
}

const NOWHERE: u32 = u32::MAX;

impl Default for Block {
    fn default() -> Self {
        Self { expire_time: 0, last: 0, count: 0, queue: NOWHERE }
    }
}

#[derive(Clone)]
struct Mq<N> {
    capacity: u32,
    /// Number of queues of residents.
    m: u32,
    /// `Q_0` to `Q_(m-1)`, then `Q_out`; heads at the front.
    queues: Lists<Block>,
    q_out: Ghosts,
    resident: u32,
    /// References so far.
    current_time: u64,
    life_time: u64,
    /// Up to this time `Adjust` finds nothing to do.
    due: u64,
    /// What adapts `life_time`, unless it is fixed.
    peak_distance: Option<PeakDistance>,
    neighbour: N,
}

/// The figure's procedures.
impl<N: Neighbour> Mq<N> {
    /// `life_time` is adaptive if not given; `q_out` is in multiples of the capacity.
    fn new(capacity: u32, m: u32, life_time: Option<u64>, q_out: f64, neighbour: N) -> Self {
        let peak_distance =
            if life_time.is_none() { Some(PeakDistance::new(capacity)) } else { None };
        Self {
            capacity,
            m,
            queues: Lists::new(m + 1),
            q_out: Ghosts::new(m, q_out, capacity),
            resident: 0,
            current_time: 0,
            life_time: life_time.unwrap_or(u64::from(capacity)),
            due: u64::MAX,
            peak_distance,
            neighbour,
        }
    }

    #[inline(always)]
    fn queue_num(&self, count: u32) -> u32 {
        count.ilog2().min(self.m - 1)
    }

    /// Puts an unlinked block at the tail of `Q_queue`, with its whole life before it.
    #[inline(always)]
    fn append(&mut self, queue: u32, entry: Entry) {
        self.queues.push_back(queue, entry);
        let block = self.queues.data_mut(entry);
        block.queue = queue;
        block.expire_time = self.current_time + self.life_time;
        self.due = self.due.min(block.expire_time);
    }

    /// Counts the reference to a block: how long since the last one, and one more.
    #[inline(always)]
    fn count(&mut self, entry: Entry) -> u32 {
        let block = self.queues.data_mut(entry);
        if let Some(peak) = &mut self.peak_distance {
            let distance = self.current_time - block.last;
            let known = block.count > 0;
            peak.observe(distance, known & (distance > u64::from(self.capacity)));
        }
        block.last = self.current_time;
        block.count = block.count.saturating_add(1);
        block.count
    }

    /// The tail of the procedure for a reference, from `b.reference++` on.
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

    /// The loop of `Adjust`: each head that has expired falls by one queue.
    #[inline(never)]
    fn demote_expired(&mut self) {
        self.due = u64::MAX;
        for k in 1..self.m {
            let Some(head) = self.queues.front(k) else { continue };
            if self.queues.data(head).expire_time < self.current_time {
                self.neighbour.leaves(&self.queues, head);
                self.queues.remove(k, head);
                self.append(k - 1, head);
            }
            self.note_head(k);
        }
    }

    /// The head of a queue may be another than before, and expire earlier: lifeTime changes.
    #[inline(always)]
    fn note_head(&mut self, queue: u32) {
        if let Some(head) = self.queues.front(queue) {
            self.due = self.due.min(self.queues.data(head).expire_time);
        }
    }

    /// Takes a block out of the queue that it is in: which one?
    #[inline(always)]
    fn detach(&mut self, entry: Entry) -> u32 {
        let queue = self.queues.data(entry).queue;
        let was_head = self.queues.front(queue) == Some(entry);
        self.neighbour.leaves(&self.queues, entry);
        self.queues.remove(queue, entry);
        if was_head {
            self.note_head(queue);
        }
        queue
    }

    /// Moves a block to the tail of the queue that it is in, with its whole life before it.
    #[inline(always)]
    fn renew(&mut self, queue: u32, entry: Entry) {
        let was_head = self.queues.front(queue) == Some(entry);
        self.neighbour.leaves(&self.queues, entry);
        self.queues.move_to_back(queue, entry);
        if was_head {
            self.note_head(queue);
        }
        let expire_time = self.current_time + self.life_time;
        self.queues.data_mut(entry).expire_time = expire_time;
        self.due = self.due.min(expire_time);
    }

    /// The head of the lowest queue that is not empty.
    #[inline(always)]
    fn next_victim(&self) -> Option<Entry> {
        (0..self.m).find_map(|k| self.queues.front(k))
    }

    #[inline(always)]
    fn evict_block(&mut self, out: &mut Departures) {
        let preferred = if N::IS_KNOWN {
            let order = order(&self.queues, self.m);
            self.neighbour.prefer(&self.queues, order)
        } else {
            None
        };
        if let Some(victim) = preferred.or_else(|| self.next_victim()) {
            self.leave(victim);
            self.q_out.evict(&mut self.queues, victim, out);
        }
    }

    /// Unlinks a resident block that is about to enter `Q_out`.
    #[inline(always)]
    fn leave(&mut self, entry: Entry) {
        self.detach(entry);
        self.queues.data_mut(entry).queue = self.m;
        self.resident -= 1;
    }

    /// Makes room for a missed block: it leaves `Q_out`, and if need be another one the cache.
    #[inline(always)]
    fn make_room(&mut self, entry: Entry, out: &mut Departures) {
        if self.remembers(entry) {
            self.queues.remove(self.m, entry);
        }
        if self.resident == self.capacity {
            self.evict_block(out);
        }
        self.resident += 1;
    }
}

/// The queues from the lowest on.
fn order(queues: &Lists<Block>, m: u32) -> impl Iterator<Item = Stretch> + '_ {
    (0..m).map(|k| whole(queues, k))
}

impl<N: Neighbour> Policy for Mq<N> {
    fn capacity(&self) -> u32 {
        self.capacity
    }

    #[inline(always)]
    fn len(&self) -> u32 {
        self.resident
    }

    fn grow(&mut self, entries: u32) {
        self.queues.grow(entries);
        self.neighbour.grow(entries);
    }

    #[inline(always)]
    fn contains(&self, entry: Entry) -> bool {
        self.queues.data(entry).queue < self.m
    }

    #[inline(always)]
    fn remembers(&self, entry: Entry) -> bool {
        self.queues.data(entry).queue == self.m
    }

    #[inline(always)]
    fn touch(&mut self, entry: Entry, _: &mut Departures) {
        self.detach(entry);
        self.reference(entry);
    }

    #[inline(always)]
    fn admit(&mut self, entry: Entry, out: &mut Departures) {
        self.make_room(entry, out);
        self.reference(entry);
    }

    /// A reference after which the block is in `Q_out`.
    fn take(&mut self, entry: Entry, out: &mut Departures) {
        if self.contains(entry) {
            self.leave(entry);
            self.count(entry);
            self.q_out.keep(&mut self.queues, entry, out);
            self.adjust();
        }
    }

    /// A reference after which the block is in `Q_out`, as its newest.
    fn note(&mut self, entry: Entry, out: &mut Departures) {
        if self.contains(entry) {
            return;
        }
        if self.remembers(entry) {
            self.queues.remove(self.m, entry);
        }
        self.queues.data_mut(entry).queue = self.m;
        self.count(entry);
        self.q_out.keep(&mut self.queues, entry, out);
        self.adjust();
    }

    /// The block goes where its count belongs; no reference is counted and no time passes.
    fn place(&mut self, entry: Entry, out: &mut Departures) {
        if self.contains(entry) {
            let queue = self.queues.data(entry).queue;
            return self.renew(queue, entry);
        }
        self.make_room(entry, out);
        let block = self.queues.data_mut(entry);
        if block.count == 0 {
            (block.count, block.last) = (1, self.current_time);
        }
        let queue = self.queue_num(self.queues.data(entry).count);
        self.append(queue, entry);
    }

    fn discard(&mut self, entry: Entry, _: &mut Departures) {
        let queue = self.queues.data(entry).queue;
        if queue != NOWHERE {
            self.resident -= u32::from(queue < self.m);
            self.detach(entry);
            *self.queues.data_mut(entry) = Block::default();
        }
    }

    fn victim(&self) -> Option<Entry> {
        if self.resident < self.capacity {
            return None;
        }
        let preferred = self.neighbour.would_prefer(&self.queues, order(&self.queues, self.m));
        preferred.or_else(|| self.next_victim())
    }

    /// lifeTime stays what it is until it is next reviewed.
    fn resize(&mut self, capacity: u32, out: &mut Departures) {
        self.capacity = capacity;
        self.neighbour.adopt(capacity);
        if let Some(peak) = &mut self.peak_distance {
            peak.adopt(capacity, self.current_time);
        }
        self.q_out.resize(&mut self.queues, capacity, out);
        while self.resident > capacity {
            self.evict_block(out);
        }
    }

    /// Lowest queue first, each from its head.
    fn residents(&self) -> Vec<Entry> {
        (0..self.m).flat_map(|k| self.queues.iter(k)).collect()
    }

    fn asks_neighbour(&self) -> bool {
        N::IS_KNOWN
    }

    fn neighbour_holds(&mut self, entry: Entry, holds: bool) {
        self.neighbour.learn(&self.queues, entry, holds);
    }

    fn neighbour_has(&self, entry: Entry) -> bool {
        self.neighbour.has(entry)
    }

    #[inline(always)]
    fn warm(&self, entry: Entry) -> u32 {
        self.queues.warm(entry)
    }

    fn warm_further(&self, entry: Entry) -> u32 {
        self.queues.warm_beside(entry)
    }

    fn carry(&mut self, memo: &mut Memo<'_>) -> Carried {
        memo.clock(&mut self.current_time)?;
        let now = self.current_time;
        if let Some(peak) = &mut self.peak_distance {
            memo.number(&mut self.life_time, 1..=CLOCK_MAX)?;
            peak.carry(memo)?;
            peak.adopt(self.capacity, now);
        }
        for queue in 0..=self.m {
            let resident = queue < self.m;
            self.queues.carry(queue, memo, |memo, block| {
                block.queue = queue;
                memo.number(&mut block.count, 1..=u32::MAX)?;
                memo.number(&mut block.last, 0..=now)?;
                let expires = &mut block.expire_time;
                if resident { memo.number(expires, 0..=2 * CLOCK_MAX) } else { Ok(()) }
            })?;
        }
        self.resident = (0..self.m).map(|k| self.queues.len(k)).sum();
        (1..self.m).for_each(|k| self.note_head(k));
        Ok(())
    }

    fn validate(&self) -> Result<(), String> {
        let mut heads = (1..self.m).filter_map(|k| self.queues.front(k));
        if heads.any(|head| self.queues.data(head).expire_time < self.due) {
            return Err(format!("a head expires before {}", self.due));
        }
        let held: u32 = (0..self.m).map(|k| self.queues.len(k)).sum();
        if held != self.resident || held > self.capacity {
            return Err(format!("{held} held, {} counted", self.resident));
        }
        for queue in 0..=self.m {
            for entry in self.queues.iter(queue) {
                let block = self.queues.data(entry);
                let due =
                    block.count > 0 && (queue == self.m || queue <= self.queue_num(block.count));
                if block.queue != queue || !due || block.last > self.current_time {
                    return Err(format!("entry {entry} in queue {queue}: {block:?}"));
                }
            }
        }
        let unknown = |e: &Entry| !self.queues.linked(*e);
        match (0..self.queues.entries())
            .filter(unknown)
            .map(|e| self.queues.data(e))
            .find(|b| b.queue != NOWHERE || b.count != 0)
        {
            Some(block) => Err(format!("a block in no queue: {block:?}")),
            None => {
                self.q_out.check(&self.queues)?;
                self.neighbour.check(&self.queues)?;
                self.queues.check()
            }
        }
    }

    fn describe(&self) -> Vec<(&'static str, String)> {
        let queues: Vec<Vec<_>> = (0..self.m).map(|k| self.queues.iter(k).collect()).collect();
        let block = |e: Entry| (e, self.queues.data(e));
        let residents = || self.residents().into_iter().map(block);
        let state = residents().map(|(e, b)| (e, [b.count.into(), b.queue.into(), b.expire_time]));
        let counts = residents().map(|(e, b)| (e, b.count));
        let q_out = self.queues.iter(self.m).map(block).map(|(e, b)| (e, b.count));
        let bins = self.peak_distance.iter().flat_map(PeakDistance::filled);
        vec![
            ("queues", format!("{queues:?}")),
            ("entry_ref_queue_expire", format!("{:?}", state.collect::<BTreeMap<_, _>>())),
            ("ref", format!("{:?}", counts.collect::<BTreeMap<_, _>>())),
            ("qout", format!("{:?}", q_out.collect::<BTreeMap<_, _>>())),
            ("life_time", format!("{}", self.life_time)),
            ("hist_bins_log2", format!("{:?}", bins.collect::<BTreeMap<_, _>>())),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::super::period::Period;
    use super::*;

    /// Worked example `mq-adapt-1`, which reviews lifeTime oftener than a cache of 2 would.
    #[test]
    fn life_time_finds_the_distance_of_a_loop() {
        let mut mq = Mq::new(2, 8, None, 4.0, Alone);
        mq.peak_distance.as_mut().expect("adaptive by default").period = Period::new(8, 0);
        mq.grow(3);
        for entry in [0, 1, 2].repeat(4) {
            assert!(!mq.access(entry, &mut Departures::new()));
        }
        let state = mq.describe();
        let value = |name| &state.iter().find(|(n, _)| *n == name).expect(name).1;
        assert_eq!(value("queues"), "[[], [], [1, 2], [], [], [], [], []]");
        assert_eq!(value("ref"), "{1: 4, 2: 4}");
        assert_eq!(value("life_time"), "4");
        assert_eq!(value("hist_bins_log2"), "{2: 6}");
    }
}
