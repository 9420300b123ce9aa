//! Who goes to the store next: reads, which clients wait for, always at once; write-outs as far as
//! reads do not feel them. Here is how many write-outs may be at the store; `flush.rs` and
//! `shard/write_outs.rs` say which.
//!
//! A store does a certain number of requests at a time, and more of them only wait there, where
//! nobody can overtake them. So the number at the store is limited to about what it does
//! ([`Capacity`]). Besides reads, write-outs get what the reads leave, and at least one; if
//! somebody waits for them they get as much as the reads. So a read waits behind few, and
//! write-outs have at least half of the store whatever the readers do.
//!
//! A store that takes many writes at once has only taken them into memory: the disk feels them
//! later, all at the next flush. Beside reads from the disk such writes go out in portions, each
//! followed by a flush of its own.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, TryLockError};
use std::time::{Duration, Instant};

use crate::clock;
use crate::lock::sleep_lock;

/// A read counts as there for one to two such periods after its end: its client soon sends another.
const PERIOD: Duration = Duration::from_millis(50);

/// What is measured is true for so long.
const FRESH: Duration = Duration::from_secs(5);

/// Measurements that a mean is made of.
const SAMPLES: u32 = 8;

/// Twice as many requests at the store must raise the rate by so much to be worth it.
const WORTH: f64 = 1.15;

/// Levels of requests at the store: 1 to 1,024. The first is in the middle: neither does the first
/// burst take long to reach many, nor does a read wait for many.
const LEVELS: usize = 11;
const LEVEL_FIRST: usize = 3;

/// A portion of twice the size must raise the rate by so much to be worth it; the smallest have 2^4
/// blocks. A read that is in between makes larger ones look better than they are.
const PORTION_WORTH: f64 = 1.35;
const PORTION_LEAST: usize = 4;

/// Beside readers no more than so many, or twice the readers, are tried.
const BESIDE_READERS: usize = 64;

/// Number of requests at the store that should be aimed at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Aim {
    /// What the store does at a time.
    Capacity(usize),
    /// To measure what it does with so many.
    Measure(usize),
}

/// Number of write-outs that may start beside `writing` others at the store, while clients wait for
/// `reading` reads, now or a moment ago. `is_pressing`: somebody waits for write-outs.
fn may_start(writing: usize, reading: usize, is_pressing: bool, aim: Aim) -> usize {
    let most = match (reading, aim) {
        // As many again wait at the store, so that it never lacks the next one.
        (0, Aim::Capacity(all)) => 2 * all,
        (0, Aim::Measure(all)) => all,
        (_, Aim::Capacity(all) | Aim::Measure(all)) => {
            let share = if is_pressing { reading } else { 1 };
            all.saturating_sub(reading).max(share)
        }
    };
    most.saturating_sub(writing)
}

/// Number of blocks that may go to a store that takes many writes at once, of which `unsynced` wait
/// for a flush. Without readers there is no limit.
fn may_start_many(reading: usize, is_syncing: bool, unsynced: usize, aim: Aim) -> usize {
    let (Aim::Capacity(portion) | Aim::Measure(portion)) = aim;
    match (reading, is_syncing) {
        (0, _) => usize::MAX,
        (_, true) => 0,
        (_, false) => portion.saturating_sub(unsynced),
    }
}

/// What a store does at a time, found by trying: it is the smallest number of requests such that
/// twice as many do not make it noticeably faster. Half as many, so many, and twice as many are
/// measured anew every few seconds, while there is something to do.
#[derive(Debug)]
struct Capacity {
    /// It is 2^this.
    level: usize,
    least: usize,
    worth: f64,
    measured: [Measured; LEVELS],
}

/// The requests that found about so many at the store, themselves included.
#[derive(Clone, Copy, Debug, Default)]
struct Measured {
    /// Mean number at the store, and mean time in seconds.
    requests: f64,
    seconds: f64,
    samples: u32,
    last: Option<Instant>,
}

impl Measured {
    fn is_fresh(&self, now: Instant) -> bool {
        self.samples >= SAMPLES && self.is_recent(now)
    }

    fn is_recent(&self, now: Instant) -> bool {
        self.last.is_some_and(|last| now.saturating_duration_since(last) < FRESH)
    }

    fn note(&mut self, requests: usize, time: Duration, now: Instant) {
        if !self.is_recent(now) {
            self.samples = 0;
        }
        self.samples = (self.samples + 1).min(2 * SAMPLES);
        let weight = 1.0 / f64::from(self.samples);
        self.requests += weight * (requests as f64 - self.requests);
        self.seconds += weight * (time.as_secs_f64() - self.seconds);
        self.last = Some(now);
    }

    /// Requests a second.
    fn rate(&self) -> f64 {
        self.requests / self.seconds.max(1e-9)
    }
}

/// The level of a number of requests: the smallest power of two that is not below it.
fn level_of(requests: usize) -> usize {
    (requests.max(1).next_power_of_two().trailing_zeros() as usize).min(LEVELS - 1)
}

impl Capacity {
    fn new(least: usize, worth: f64) -> Self {
        let level = LEVEL_FIRST.max(least);
        Self { level, least, worth, measured: [Measured::default(); LEVELS] }
    }

    /// A request ended that found `before` at the store when it began and `after` when it ended,
    /// itself included. Only a number that stayed about the same says what the store does with it.
    fn note(&mut self, before: usize, after: usize, time: Duration, now: Instant) {
        let level = level_of(before);
        if level == level_of(after) {
            self.measured[level].note(before, time, now);
        }
    }

    /// What to aim at while at least `others` are at the store anyway.
    fn aim(&mut self, others: usize, now: Instant) -> Aim {
        // Fewer cannot be measured now.
        let least = if others == 0 { self.least } else { level_of(others + 1).max(self.least) };
        loop {
            let level = self.level.max(least);
            let lower = (level > least).then(|| level - 1);
            let most = if others == 0 { usize::MAX } else { BESIDE_READERS.max(2 * others) };
            let is_tried = |higher: &usize| *higher < LEVELS && 1 << higher <= most;
            let higher = Some(level + 1).filter(is_tried);
            let is_stale = |level: usize| !self.measured[level].is_fresh(now);
            let stale = [lower, Some(level), higher].into_iter().flatten().find(|at| is_stale(*at));
            let rate = |level: usize| self.measured[level].rate();
            // The two that are compared first need not wait for the third.
            if let Some(lower) = lower.filter(|&at| !is_stale(at) && !is_stale(level)) {
                if rate(level) < self.worth * rate(lower) {
                    self.level = lower;
                    continue;
                }
            }
            if let Some(stale) = stale {
                return Aim::Measure(1 << stale);
            }
            match higher.filter(|&higher| rate(higher) >= self.worth * rate(level)) {
                Some(higher) => self.level = higher,
                None => return Aim::Capacity(1 << level),
            }
        }
    }
}

/// The requests of a volume with write-back at its store.
#[derive(Debug)]
pub(crate) struct Pace {
    state: Mutex<State>,
    /// Whether the store takes many writes at once.
    pub(crate) is_many: bool,
    /// Held by who starts write-outs; what another one wants meanwhile is done then. Whether none
    /// start any more.
    turn: Mutex<bool>,
    again: AtomicBool,
    /// Whether write-outs are due that could not start.
    is_waiting: AtomicBool,
    /// The shard that is asked first.
    first: AtomicUsize,
}

#[derive(Debug)]
struct State {
    reads: usize,
    /// The most reads at a time in the present period and the one before.
    most_reads: [usize; 2],
    period: Instant,
    writing: usize,
    capacity: Capacity,
    /// Blocks that were written since the last flush, and the time when the first of them was.
    unsynced: usize,
    unsynced_since: Instant,
    /// Since when a flush of the store runs, or is about to.
    syncing: Option<Instant>,
}

impl State {
    fn reading(&mut self, now: Instant) -> usize {
        let passed = now.saturating_duration_since(self.period);
        if passed >= PERIOD {
            self.most_reads[1] = if passed < 2 * PERIOD { self.most_reads[0] } else { 0 };
            self.most_reads[0] = 0;
            self.period = now;
        }
        self.reads.max(self.most_reads[0]).max(self.most_reads[1])
    }
}

/// A request at the store. It counts there until this is dropped.
#[derive(Debug)]
pub(crate) struct AtStore {
    pace: Arc<Pace>,
    is_write_out: bool,
    began: Instant,
    /// Requests at the store when it began, itself included.
    found: usize,
}

impl Pace {
    pub(crate) fn new(is_many: bool) -> Self {
        let now = clock::now();
        let capacity = match is_many {
            true => Capacity::new(PORTION_LEAST, PORTION_WORTH),
            false => Capacity::new(0, WORTH),
        };
        let (most_reads, period, unsynced_since) = ([0, 0], now, now);
        let state = State {
            reads: 0,
            most_reads,
            period,
            writing: 0,
            capacity,
            unsynced: 0,
            unsynced_since,
            syncing: None,
        };
        let (again, is_waiting, first) = Default::default();
        let (state, turn) = (Mutex::new(state), Mutex::default());
        Self { state, is_many, turn, again, is_waiting, first }
    }

    /// A write-out of some blocks goes to the store.
    pub(crate) fn begin_write_out(self: &Arc<Self>, blocks: u64) -> AtStore {
        self.begin(true, blocks as usize)
    }

    /// A read goes to the store, or a write that a client waits for.
    pub(crate) fn begin_demand(self: &Arc<Self>, is_read: bool) -> Option<AtStore> {
        // Writes into memory do not wait for a disk.
        (is_read || !self.is_many).then(|| self.begin(false, 1))
    }

    fn begin(self: &Arc<Self>, is_write_out: bool, blocks: usize) -> AtStore {
        let began = clock::now();
        let mut state = sleep_lock(&self.state);
        match is_write_out {
            true => state.writing += 1,
            false => state.reads += 1,
        }
        if is_write_out && self.is_many {
            if state.unsynced == 0 {
                state.unsynced_since = began;
            }
            state.unsynced += blocks;
        }
        let found = state.reads + state.writing;
        drop(state);
        AtStore { pace: Arc::clone(self), is_write_out, began, found }
    }

    /// Calls `start`, which starts write-outs, unless somebody else is doing that now. Then they do
    /// it once more.
    pub(crate) fn in_turn(&self, mut start: impl FnMut()) {
        self.again.store(true, Ordering::SeqCst);
        while self.again.load(Ordering::SeqCst) {
            let is_over = match self.turn.try_lock() {
                Err(TryLockError::WouldBlock) => return,
                Err(TryLockError::Poisoned(turn)) => turn.into_inner(),
                Ok(turn) => turn,
            };
            self.again.store(false, Ordering::SeqCst);
            if !*is_over {
                start();
            }
        }
    }

    /// From now on no write-outs start.
    pub(crate) fn end(&self) {
        *sleep_lock(&self.turn) = true;
    }

    /// Whether write-outs are due that could not start.
    pub(crate) fn is_waiting(&self) -> bool {
        self.is_waiting.load(Ordering::SeqCst)
    }

    pub(crate) fn set_waiting(&self, is_waiting: bool) {
        self.is_waiting.store(is_waiting, Ordering::SeqCst);
    }

    /// Which of `count` shards is asked first now.
    pub(crate) fn first(&self, count: usize) -> usize {
        self.first.fetch_add(1, Ordering::Relaxed) % count.max(1)
    }

    /// Number of requests, or of blocks, that may go to the store now.
    pub(crate) fn room(&self, is_pressing: bool, now: Instant) -> usize {
        let mut state = sleep_lock(&self.state);
        let reading = state.reading(now);
        if self.is_many {
            let aim = state.capacity.aim(0, now);
            return may_start_many(reading, state.syncing.is_some(), state.unsynced, aim);
        }
        let aim = state.capacity.aim(reading, now);
        may_start(state.writing, reading, is_pressing, aim)
    }

    /// Whether what was written must be flushed before more is written. If so, the caller flushes.
    pub(crate) fn must_sync(&self, now: Instant) -> bool {
        let mut state = sleep_lock(&self.state);
        let (reading, aim) = (state.reading(now), state.capacity.aim(0, now));
        let is_syncing = state.syncing.is_some();
        let room = may_start_many(reading, is_syncing, state.unsynced, aim);
        let must = self.is_many && !is_syncing && state.writing == 0 && room == 0;
        if must {
            state.syncing = Some(now);
        }
        must
    }

    /// Since when a flush of the store runs: write-outs beside readers wait for it.
    pub(crate) fn syncing_since(&self) -> Option<Instant> {
        sleep_lock(&self.state).syncing
    }

    /// A flush of the store begins.
    pub(crate) fn begin_sync(self: &Arc<Self>) -> Syncing {
        let mut state = sleep_lock(&self.state);
        state.syncing.get_or_insert_with(clock::now);
        Syncing { pace: Arc::clone(self), covered: state.unsynced }
    }
}

/// A flush of the store. It runs until this is dropped.
#[derive(Debug)]
pub(crate) struct Syncing {
    pace: Arc<Pace>,
    /// Blocks that were written before it.
    covered: usize,
}

impl Syncing {
    /// It ended, well or not.
    pub(crate) fn ended(self, is_done: bool) {
        let (now, covered, pace) = (clock::now(), self.covered, &self.pace);
        let mut state = sleep_lock(&pace.state);
        let (since, all) = (state.unsynced_since, state.unsynced);
        state.unsynced = all - covered.min(all);
        state.unsynced_since = now;
        // More than a portion was written without readers.
        let (Aim::Capacity(portion) | Aim::Measure(portion)) = state.capacity.aim(0, now);
        if is_done && pace.is_many && covered <= portion && state.reading(now) > 0 {
            let time = now.saturating_duration_since(since);
            state.capacity.note(covered, covered, time, now);
        }
    }
}

impl Drop for Syncing {
    fn drop(&mut self) {
        sleep_lock(&self.pace.state).syncing = None;
    }
}

impl AtStore {
    /// The store has answered, after the request has waited, or at once: then no disk was needed.
    pub(crate) fn answered(self, waited: bool) {
        let now = clock::now();
        let time = now.saturating_duration_since(self.began);
        let mut state = sleep_lock(&self.pace.state);
        let after = state.reads + state.writing;
        if !self.is_write_out && waited {
            let reads = state.reads;
            state.reading(now);
            state.most_reads[0] = state.most_reads[0].max(reads);
        } else if self.is_write_out && waited && !self.pace.is_many {
            state.capacity.note(self.found, after, time, now);
        }
    }
}

impl Drop for AtStore {
    fn drop(&mut self) {
        let mut state = sleep_lock(&self.pace.state);
        match self.is_write_out {
            true => state.writing -= 1,
            false => state.reads -= 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flush_that_is_given_up_holds_nothing_back() {
        let pace = Arc::new(Pace::new(true));
        let syncing = pace.begin_sync();
        assert!(sleep_lock(&pace.state).syncing.is_some());
        drop(syncing);
        assert!(sleep_lock(&pace.state).syncing.is_none());
        pace.begin_sync().ended(false);
        assert!(sleep_lock(&pace.state).syncing.is_none());
    }

    #[test]
    fn without_readers_the_store_always_has_the_next_one() {
        for all in [1, 4, 64] {
            assert_eq!(may_start(0, 0, false, Aim::Capacity(all)), 2 * all);
            assert_eq!(may_start(2 * all - 1, 0, true, Aim::Capacity(all)), 1);
            assert_eq!(may_start(2 * all, 0, true, Aim::Capacity(all)), 0);
            assert_eq!(may_start(0, 0, false, Aim::Measure(all)), all, "not one more");
        }
    }

    /// A store that does `all` at a time makes a read wait for what stands before it.
    #[test]
    fn a_read_waits_for_few_and_write_outs_go_on() {
        for (all, reading, is_pressing) in cases(&[1, 4, 64], &[1, 2, 16, 200]) {
            let most = may_start(0, reading, is_pressing, Aim::Capacity(all));
            assert!(most >= 1, "they go on");
            let alone = reading.max(all);
            assert!(reading + most <= 2 * alone, "{all} {reading} {is_pressing}: {most}");
            if is_pressing {
                assert!(2 * most >= reading, "half of the store: {all} {reading}: {most}");
            }
            assert_eq!(may_start(most, reading, is_pressing, Aim::Capacity(all)), 0);
        }
    }

    fn cases(all: &[usize], reading: &[usize]) -> Vec<(usize, usize, bool)> {
        let pairs = all.iter().flat_map(|&all| reading.iter().map(move |&reads| (all, reads)));
        pairs.flat_map(|(all, reads)| [(all, reads, false), (all, reads, true)]).collect()
    }

    #[test]
    fn what_is_only_in_memory_is_flushed_before_more_beside_readers() {
        let aim = Aim::Capacity(32);
        assert_eq!(may_start_many(0, true, 5000, aim), usize::MAX, "nobody reads");
        assert_eq!(may_start_many(1, false, 0, aim), 32);
        assert_eq!(may_start_many(1, false, 30, aim), 2);
        assert_eq!(may_start_many(1, false, 5000, aim), 0);
        assert_eq!(may_start_many(1, true, 0, aim), 0, "it is being flushed");
    }

    /// What the capacity of a store is found to be, if so many requests at it take so long.
    fn found(capacity: &mut Capacity, now: &mut Instant, time: impl Fn(usize) -> f64) -> usize {
        for _ in 0..100 {
            match capacity.aim(0, *now) {
                Aim::Capacity(all) => return all,
                Aim::Measure(all) => {
                    let took = Duration::from_secs_f64(time(all));
                    *now += took;
                    (0..SAMPLES).for_each(|_| capacity.note(all, all, took, *now));
                }
            }
        }
        panic!("it is never found: {capacity:?}");
    }

    #[test]
    fn the_capacity_is_found_and_followed() {
        let (mut capacity, mut now) = (Capacity::new(0, WORTH), Instant::now());
        // Of a store that does `all` at a time, each in 5 ms.
        let store = |all: usize| move |at_it: usize| 0.005 * (at_it as f64 / all as f64).max(1.0);
        for all in [1, 4, 16, 2, 256, 1, 1024] {
            assert_eq!(found(&mut capacity, &mut now, store(all)), all);
            // Another tenant of the disk: slower, and as many at a time.
            now += FRESH;
            let slower = |at_it: usize| 3.0 * store(all)(at_it);
            assert_eq!(found(&mut capacity, &mut now, slower), all);
            now += FRESH;
        }
        // Without limit there is the largest number that is tried.
        assert_eq!(found(&mut capacity, &mut now, |_| 0.02), 1 << (LEVELS - 1));
    }

    #[test]
    fn what_readers_hide_is_not_measured() {
        let (mut capacity, now) = (Capacity::new(0, WORTH), Instant::now());
        // Sixteen readers are always there: the next that can be measured is 32.
        assert_eq!(capacity.aim(16, now), Aim::Measure(32));
        (0..SAMPLES).for_each(|_| capacity.note(32, 30, Duration::from_millis(160), now));
        assert_eq!(capacity.aim(16, now), Aim::Measure(64));
        (0..SAMPLES).for_each(|_| capacity.note(64, 60, Duration::from_millis(320), now));
        assert_eq!(capacity.aim(16, now), Aim::Capacity(32));
        // A number that changed meanwhile says nothing.
        let mut other = Capacity::new(0, WORTH);
        (0..SAMPLES).for_each(|_| other.note(1, 16, Duration::from_millis(80), now));
        assert!(other.measured.iter().all(|level| level.samples == 0));
    }
}
