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
//! Content-aware (`ca=yes`): the victims are looked at from the head of the lowest queue on. The
//! queues are linked then (`linked.rs`), and logs of uses if not (`logged.rs`).
//!
//! Below another cache that keeps what it takes (TPDS 2004, section 6) the references that `take`
//! and `note` report count like any other, though the block itself is then only in `Q_out`.
//!
//! Invariants:
//! 1. those of the queues (`queues.rs`); what is in none has no count;
//! 2. a block of `Q_0` to `Q_(m-1)` is resident and was referenced; `Q_out` keeps to its bound;
//! 3. no queue number is above `QueueNum` of the count, and no `last` is in the future;
//! 4. `falls` are the expiry times of the heads of `Q_1` to `Q_(m-1)`, and none is before `due`.

mod linked;
mod logged;
mod queues;

use std::collections::BTreeMap;

use self::linked::Linked;
use self::logged::Logged;
use self::queues::{Queues, Uses};
use super::awareness::{ALPHA, CA, FILTER_BITS, HASHES, KNOWS, PUBLISH, held};
use super::ghosts::Ghosts;
use super::peak_distance::PeakDistance;
use super::registry::{Kind, Parameter, PolicyInfo};
use super::{Departures, Entry, Policy};
use crate::memo::{CLOCK_MAX, Carried, Memo, Refused};

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
            Some(held) => Box::new(Mq::new(c, life_time, q_out, Linked::new(m, held))),
            None => Box::new(Mq::new(c, life_time, q_out, Logged::new(m))),
        })
    },
};

/// A time that does not come.
const NEVER: u64 = u64::MAX;

#[derive(Clone)]
struct Mq<Q> {
    capacity: u32,
    /// Number of queues of residents.
    m: u32,
    queues: Q,
    q_out: Ghosts,
    resident: u32,
    /// References so far.
    current_time: u64,
    life_time: u64,
    /// When the head of each queue falls, if there is one: never from `Q_0`.
    falls: Vec<u64>,
    /// Up to this time `Adjust` finds nothing to do.
    due: u64,
    /// What adapts `life_time`, unless it is fixed.
    peak_distance: Option<PeakDistance>,
}

/// The figure's procedures.
impl<Q: Queues> Mq<Q> {
    /// `life_time` is adaptive if not given; `q_out` is in multiples of the capacity.
    fn new(capacity: u32, life_time: Option<u64>, q_out: f64, queues: Q) -> Self {
        let peak_distance =
            if life_time.is_none() { Some(PeakDistance::new(capacity)) } else { None };
        let m = queues.m();
        Self {
            capacity,
            m,
            queues,
            q_out: Ghosts::new(m, q_out, capacity),
            resident: 0,
            current_time: 0,
            life_time: life_time.unwrap_or(u64::from(capacity)),
            falls: vec![NEVER; m as usize],
            due: NEVER,
            peak_distance,
        }
    }

    #[inline(always)]
    fn queue_num(&self, count: u32) -> u32 {
        count.ilog2().min(self.m - 1)
    }

    /// Puts a block that is in no queue at the tail of `Q_queue`, with its whole life before it.
    #[inline(always)]
    fn append(&mut self, queue: u32, entry: Entry) {
        let expire_time = self.current_time + self.life_time;
        self.queues.push(queue, entry, expire_time);
        if self.queues.len(queue) == 1 {
            self.note_head(queue);
        }
    }

    /// Moves a block to the tail of the queue that it is in, with its whole life before it.
    #[inline(always)]
    fn renew(&mut self, queue: u32, entry: Entry) {
        let was_head = self.queues.renew(entry, self.current_time + self.life_time);
        if was_head {
            self.head_left(queue);
        }
    }

    /// Few blocks that move were heads: what is done about these is not compiled in between.
    #[inline(never)]
    fn head_left(&mut self, queue: u32) {
        self.note_head(queue);
    }

    /// Counts the reference to a block: how long since the last one, and one more.
    #[inline(always)]
    fn count(&mut self, entry: Entry) -> u32 {
        let Uses { count, last } = self.queues.uses(entry);
        if let Some(peak) = &mut self.peak_distance {
            let distance = self.current_time - last;
            let known = count > 0;
            peak.observe(distance, known & (distance > u64::from(self.capacity)));
        }
        let count = count.saturating_add(1);
        self.queues.set_uses(entry, Uses { count, last: self.current_time });
        count
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
        for k in 1..self.m {
            if self.falls[k as usize] >= self.current_time {
                continue;
            }
            if let Some((head, _)) = self.queues.front(k) {
                self.queues.remove(head);
                self.append(k - 1, head);
            }
            self.note_head(k);
        }
        self.due = self.falls.iter().fold(NEVER, |due, &falls| due.min(falls));
    }

    /// The head of a queue may be another than before, and expire earlier: lifeTime changes.
    #[inline(always)]
    fn note_head(&mut self, queue: u32) {
        if (1..self.m).contains(&queue) {
            let falls = self.queues.front(queue).map_or(NEVER, |(_, expire_time)| expire_time);
            self.falls[queue as usize] = falls;
            self.due = self.due.min(falls);
        }
    }

    /// Takes a block out of the queue that it is in.
    #[inline(always)]
    fn detach(&mut self, entry: Entry) {
        let queue = self.queues.queue_of(entry);
        let was_head = self.queues.remove(entry);
        if was_head {
            self.note_head(queue);
        }
    }

    #[inline(always)]
    fn evict_block(&mut self, out: &mut Departures) {
        let preferred = self.queues.prefer();
        let head = |queues: &mut Q| (0..self.m).find_map(|k| queues.front(k));
        if let Some(victim) = preferred.or_else(|| head(&mut self.queues).map(|(e, _)| e)) {
            self.leave(victim);
            self.q_out.evict(&mut self.queues, victim, out);
        }
    }

    /// Places a block that is not resident.
    #[inline(never)]
    fn bring_in(&mut self, entry: Entry, out: &mut Departures) {
        self.make_room(entry, out);
        let mut uses = self.queues.uses(entry);
        if uses.count == 0 {
            uses = Uses { count: 1, last: self.current_time };
            self.queues.set_uses(entry, uses);
        }
        self.append(self.queue_num(uses.count), entry);
    }

    /// Takes out a resident block that is about to enter `Q_out`.
    #[inline(always)]
    fn leave(&mut self, entry: Entry) {
        self.detach(entry);
        self.resident -= 1;
    }

    /// Makes room for a missed block: it leaves `Q_out`, and if need be another one the cache.
    #[inline(always)]
    fn make_room(&mut self, entry: Entry, out: &mut Departures) {
        if self.remembers(entry) {
            self.queues.remove(entry);
        }
        if self.resident == self.capacity {
            self.evict_block(out);
        }
        self.resident += 1;
    }
}

impl<Q: Queues> Policy for Mq<Q> {
    fn capacity(&self) -> u32 {
        self.capacity
    }

    #[inline(always)]
    fn len(&self) -> u32 {
        self.resident
    }

    fn grow(&mut self, entries: u32) {
        self.queues.grow(entries);
    }

    #[inline(always)]
    fn contains(&self, entry: Entry) -> bool {
        self.queues.queue_of(entry) < self.m
    }

    #[inline(always)]
    fn remembers(&self, entry: Entry) -> bool {
        self.queues.queue_of(entry) == self.m
    }

    #[inline(always)]
    fn touch(&mut self, entry: Entry, _: &mut Departures) {
        let (from, count) = (self.queues.queue_of(entry), self.count(entry));
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
            self.queues.remove(entry);
        }
        self.count(entry);
        self.q_out.keep(&mut self.queues, entry, out);
        self.adjust();
    }

    /// The block goes where its count belongs; no reference is counted and no time passes.
    #[inline(always)]
    fn place(&mut self, entry: Entry, out: &mut Departures) {
        if self.contains(entry) {
            self.renew(self.queues.queue_of(entry), entry);
        } else {
            self.bring_in(entry, out);
        }
    }

    fn discard(&mut self, entry: Entry, _: &mut Departures) {
        if self.contains(entry) {
            self.leave(entry);
            self.queues.forget(entry);
        } else if self.remembers(entry) {
            self.queues.remove(entry);
            self.queues.forget(entry);
        }
    }

    fn victim(&self) -> Option<Entry> {
        if self.resident < self.capacity {
            return None;
        }
        let head = || (0..self.m).find_map(|k| self.queues.iter(k).next());
        self.queues.would_prefer().or_else(|| head().map(|(entry, _)| entry))
    }

    /// lifeTime stays what it is until it is next reviewed.
    fn resize(&mut self, capacity: u32, out: &mut Departures) {
        self.capacity = capacity;
        self.queues.adopt(capacity);
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
        (0..self.m).flat_map(|k| self.queues.iter(k)).map(|(entry, _)| entry).collect()
    }

    fn asks_neighbour(&self) -> bool {
        Q::IS_AWARE
    }

    fn neighbour_holds(&mut self, entry: Entry, holds: bool) {
        self.queues.learn(entry, holds);
    }

    fn neighbour_has(&self, entry: Entry) -> bool {
        self.queues.neighbour_has(entry)
    }

    #[inline(always)]
    fn warm(&self, entry: Entry) -> u32 {
        self.queues.warm(entry)
    }

    fn warm_further(&self, entry: Entry) -> u32 {
        self.queues.warm_further(entry)
    }

    fn carry(&mut self, memo: &mut Memo<'_>) -> Carried {
        memo.number(&mut self.current_time, 0..=Q::TIME_MAX)?;
        let now = self.current_time;
        if let Some(peak) = &mut self.peak_distance {
            memo.number(&mut self.life_time, 1..=CLOCK_MAX)?;
            peak.carry(memo)?;
            peak.adopt(self.capacity, now);
        }
        for queue in 0..=self.m {
            let saved =
                self.queues.iter(queue).map(|(e, expires)| (e, (self.queues.uses(e), expires)));
            let blocks =
                memo.sequence(self.queues.len(queue), saved, |memo, (uses, expires)| {
                    memo.number(&mut uses.count, 1..=u32::MAX)?;
                    memo.number(&mut uses.last, 0..=now)?;
                    if queue < self.m { memo.number(expires, 0..=2 * CLOCK_MAX) } else { Ok(()) }
                })?;
            for (entry, (uses, expires)) in blocks {
                if self.queues.queue_of(entry) <= self.m {
                    return Err(Refused::twice(entry));
                }
                self.queues.set_uses(entry, uses);
                self.queues.push(queue, entry, expires);
            }
        }
        self.resident = (0..self.m).map(|k| self.queues.len(k)).sum();
        (1..self.m).for_each(|k| self.note_head(k));
        Ok(())
    }

    fn validate(&self) -> Result<(), String> {
        let head = |k| self.queues.iter(k).next().map_or(NEVER, |(_, expire_time)| expire_time);
        let falls: Vec<u64> = (0..self.m).map(|k| if k > 0 { head(k) } else { NEVER }).collect();
        if self.falls != falls || falls.iter().any(|&falls| falls < self.due) {
            return Err(format!("heads fall at {falls:?}, not {:?}, due {}", self.falls, self.due));
        }
        let held: u32 = (0..self.m).map(|k| self.queues.len(k)).sum();
        if held != self.resident || held > self.capacity {
            return Err(format!("{held} held, {} counted", self.resident));
        }
        for queue in 0..=self.m {
            for (entry, _) in self.queues.iter(queue) {
                let Uses { count, last } = self.queues.uses(entry);
                let due = count > 0 && (queue == self.m || queue <= self.queue_num(count));
                if !due || last > self.current_time {
                    return Err(format!("entry {entry} in queue {queue}: {count} uses, at {last}"));
                }
            }
        }
        let entries = 0..self.queues.entries();
        let mut unknown = entries.filter(|&entry| self.queues.queue_of(entry) > self.m);
        if let Some(entry) = unknown.find(|&entry| self.queues.uses(entry).count > 0) {
            return Err(format!("entry {entry} is in no queue, but was counted"));
        }
        self.q_out.check(&self.queues)?;
        self.queues.check()
    }

    fn describe(&self) -> Vec<(&'static str, String)> {
        let entries = |queue| self.queues.iter(queue).map(|(entry, _)| entry).collect::<Vec<_>>();
        let queues: Vec<_> = (0..self.m).map(entries).collect();
        let count = |entry| self.queues.uses(entry).count;
        let state = (0..self.m).flat_map(|queue| {
            let state = move |(e, expires)| (e, [count(e).into(), queue.into(), expires]);
            self.queues.iter(queue).map(state)
        });
        let counts = self.residents().into_iter().map(|entry| (entry, count(entry)));
        let q_out = entries(self.m).into_iter().map(|entry| (entry, count(entry)));
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
        let mut mq = Mq::new(2, None, 4.0, Logged::new(8));
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
