//! The dirty blocks: which blocks have changes that the store does not have yet, since when, which
//! of them the store refused, and how many there may be.
//!
//! Each change that makes a clean block dirty gets the next number. A block that is changed again
//! keeps its number. A flush waits for all numbers up to that of its arrival, and so for the oldest
//! change of every block. A change made while its block is being written out gets a new number.
//!
//! A change is in one of three states: *waiting*, *being written*, or *refused*. Every flush ends
//! by this rule: a refusal belongs to one change and is remembered with it, and only a block that
//! was written alone can be refused. If a run of several blocks fails, it is not known which of
//! them the store would not take. So all of them wait again, and each is then tried alone.
//!
//! Not here: when blocks are written out, and who is told of a refusal (`flush.rs`, `close.rs`).

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use crate::answer::Failed;
use crate::clock;
use crate::config::{VolumeConfig, Write};
use crate::shard::content::State;

/// Pause before a refused block is tried again; it doubles with each refusal.
const RETRY_FIRST: Duration = Duration::from_secs(1);
const RETRY_LONGEST: Duration = Duration::from_secs(60);

#[derive(Default)]
pub(crate) struct DirtySet {
    pub(crate) bounds: DirtyBounds,
    /// The dirty blocks that are not being written out.
    by_block: BTreeMap<u64, Place>,
    /// Waiting changes by number, oldest first.
    waiting: BTreeMap<u64, Change>,
    /// Changes that are being written out.
    writing: BTreeMap<u64, Change>,
    /// Changes that the store refused.
    refused: BTreeMap<u64, Refusal>,
    /// Those of the waiting changes whose blocks have no slot and need not be written out yet.
    without_slot: BTreeSet<u64>,
    next: u64,
    /// Somebody waits for all changes with smaller numbers.
    wanted_below: u64,
    /// Number of refusals so far.
    refusals: u64,
    /// Whether a block refused before was accepted, and the other refused ones have not been tried
    /// since.
    store_is_back: bool,
}

/// The change of a dirty block.
#[derive(Clone, Copy)]
struct Place {
    number: u64,
    /// Whether it may be written out together with its neighbours.
    joins: bool,
}

#[derive(Clone, Copy)]
struct Change {
    block: u64,
    since: Instant,
    /// When its write-out began, while it is being written out.
    begun: Option<Instant>,
    /// How often the store refused it.
    refused: u32,
    /// Whether it was in a run that failed, so that it must be tried alone.
    alone: bool,
}

/// The latest refusal of a change.
struct Refusal {
    change: Change,
    /// Its number among all refusals, counted from 1.
    count: u64,
    retry_at: Instant,
    why: Failed,
}

/// How much of a shard may be dirty, and for how long. They may change while the volume is served.
/// By default nothing may be.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DirtyBounds {
    /// Changes older than this are written out.
    pub(crate) age: Duration,
    /// Waiting blocks in excess of this number are written out.
    pub(crate) high: usize,
    /// From this number of dirty blocks on, a write is answered when the store has it.
    max: usize,
    /// While a change that the store has not refused is older than this, a write is answered when
    /// the store has it.
    max_age: Option<Duration>,
}

impl DirtyBounds {
    /// The bounds that a volume's options give a shard of `capacity` blocks.
    pub(crate) fn new(config: &VolumeConfig, capacity: usize) -> Self {
        let part = |share: f64| (share.clamp(0.0, 1.0) * capacity as f64) as usize;
        // All of the cache bounds nothing: blocks that lost their slots may be dirty, too.
        let max = match config.write {
            Write::Through | Write::Around => 0,
            Write::Back if config.dirty_max_share < 1.0 => part(config.dirty_max_share).max(1),
            Write::Back => usize::MAX,
        };
        let (age, high) = (config.dirty_age, part(config.dirty_share));
        Self { age, high, max, max_age: config.dirty_max_age }
    }
}

impl DirtySet {
    pub(crate) fn new(bounds: DirtyBounds) -> Self {
        Self { bounds, ..Self::default() }
    }

    /// Whether a write may be answered now, and reach the store later.
    pub(crate) fn allows_more(&self) -> bool {
        if self.count() + self.writing_count() >= self.bounds.max {
            return false;
        }
        let Some(max_age) = self.bounds.max_age else { return true };
        let is_old = |since: Instant| clock::now().saturating_duration_since(since) >= max_age;
        !self.oldest_on_its_way().is_some_and(is_old)
    }

    /// Whether writes must soon wait for the store, or old changes wait for it much longer than
    /// the operator wants.
    pub(crate) fn is_near_bounds(&self, now: Instant) -> bool {
        let DirtyBounds { age, max, max_age, .. } = self.bounds;
        let late = max_age.map_or(2 * age, |max| max / 2);
        let is_late = |since: Instant| now.saturating_duration_since(since) >= late;
        self.count() + self.writing_count() > max / 2
            || self.oldest_on_its_way().is_some_and(is_late)
    }

    /// Number of blocks that are dirty and not being written out.
    pub(crate) fn count(&self) -> usize {
        self.by_block.len()
    }

    /// Number of blocks that wait to be written out: dirty, not being written, and not refused.
    pub(crate) fn waiting_count(&self) -> usize {
        self.waiting.len()
    }

    /// Number of blocks that are being written out.
    pub(crate) fn writing_count(&self) -> usize {
        self.writing.len()
    }

    /// The number of the next change; all changes so far have smaller numbers.
    pub(crate) fn now(&self) -> u64 {
        self.next
    }

    /// Marks a changed block dirty.
    pub(crate) fn mark(&mut self, block: u64, state: &mut State, at: Instant) {
        if state.dirty.is_none() {
            state.dirty = Some(self.next);
            let change = Change { block, since: at, begun: None, refused: 0, alone: false };
            self.wait(self.next, change);
            self.next += 1;
        }
    }

    /// Marks a block clean: the store has its content, or the content is no longer needed.
    pub(crate) fn clean(&mut self, block: u64, state: &mut State) {
        if let Some(number) = state.dirty.take() {
            self.remove(block, number);
        }
    }

    /// Starts a write-out of the block; returns the number of its change.
    pub(crate) fn start(&mut self, block: u64, state: &mut State) -> Option<u64> {
        let number = state.dirty.take()?;
        let change = self.remove(block, number)?;
        self.writing.insert(number, Change { begun: Some(clock::now()), ..change });
        Some(number)
    }

    /// A write-out ended; the block was written `alone` or in a run of several.
    pub(crate) fn end(
        &mut self,
        number: u64,
        alone: bool,
        state: &mut State,
        result: Result<(), Failed>,
    ) {
        let Some(mut change) = self.writing.remove(&number) else { return };
        let Err(why) = result else {
            self.store_is_back |= change.refused > 0;
            return;
        };
        // The block is dirty as before. A change made meanwhile becomes part of this one.
        self.clean(change.block, state);
        state.dirty = Some(number);
        if !alone {
            change.alone = true;
            return self.wait(number, change);
        }
        self.refusals += 1;
        let pause = RETRY_FIRST.saturating_mul(1 << change.refused.min(16)).min(RETRY_LONGEST);
        change.refused = change.refused.saturating_add(1);
        self.by_block.insert(change.block, Place { number, joins: false });
        let (count, retry_at) = (self.refusals, clock::now() + pause);
        self.refused.insert(number, Refusal { change, count, retry_at, why });
    }

    /// A write-out must be repeated, without having failed.
    pub(crate) fn again(&mut self, number: u64, state: &mut State) {
        if let Some(change) = self.writing.remove(&number) {
            self.clean(change.block, state);
            state.dirty = Some(number);
            self.wait(number, change);
        }
    }

    fn wait(&mut self, number: u64, change: Change) {
        self.by_block.insert(change.block, Place { number, joins: !change.alone });
        self.waiting.insert(number, change);
    }

    fn remove(&mut self, block: u64, number: u64) -> Option<Change> {
        self.by_block.remove(&block);
        self.without_slot.remove(&number);
        let refused = || self.refused.remove(&number).map(|refusal| refusal.change);
        self.waiting.remove(&number).or_else(refused)
    }

    /// The block of a waiting change has no slot; it may wait nevertheless.
    pub(crate) fn wait_without_slot(&mut self, number: u64) {
        if self.waiting.contains_key(&number) {
            self.without_slot.insert(number);
        }
    }

    /// The block of a change has a slot.
    pub(crate) fn has_slot(&mut self, number: u64) {
        self.without_slot.remove(&number);
    }

    /// Number of blocks that wait without a slot.
    pub(crate) fn count_without_slot(&self) -> usize {
        self.without_slot.len()
    }

    /// The block that has waited longest without a slot.
    pub(crate) fn oldest_without_slot(&self) -> Option<u64> {
        self.all_without_slot().next()
    }

    /// The block that has waited longest without a slot does not count as one of these any more.
    pub(crate) fn pass_without_slot(&mut self) {
        self.without_slot.pop_first();
    }

    /// The blocks that wait without a slot.
    pub(crate) fn all_without_slot(&self) -> impl Iterator<Item = u64> + '_ {
        self.without_slot.iter().filter_map(|number| Some(self.waiting.get(number)?.block))
    }

    /// Whether the store refused this change at the last attempt.
    fn is_refused(&self, number: u64) -> bool {
        !self.refused.is_empty() && self.refused.contains_key(&number)
    }

    /// Makes a refused change wait again. It may first join a run, because a store that has
    /// recovered accepts runs.
    pub(crate) fn try_again(&mut self, number: u64) {
        if let Some(Refusal { change, .. }) = self.refused.remove(&number) {
            self.wait(number, Change { alone: false, ..change });
        }
    }

    /// Whether every change with a number below `bound` was accepted or refused.
    pub(crate) fn is_tried_below(&self, bound: u64) -> bool {
        let first = |number: Option<&u64>| number.is_none_or(|&number| number >= bound);
        first(self.waiting.keys().next()) && first(self.writing.keys().next())
    }

    /// Somebody waits for all changes with numbers below `bound`. Those that the store refused and
    /// that have not been tried since the first `known` refusals are tried once more.
    pub(crate) fn want_below(&mut self, bound: u64, known: u64) {
        self.wanted_below = self.wanted_below.max(bound);
        let refused = self.refused.range(..bound).filter(|(_, refusal)| refusal.count <= known);
        let again: Vec<u64> = refused.map(|(&number, _)| number).collect();
        again.into_iter().for_each(|number| self.try_again(number));
    }

    /// Whether somebody waits for a change that waits to be written out.
    pub(crate) fn is_wanted(&self) -> bool {
        self.waiting.keys().next().is_some_and(|&number| number < self.wanted_below)
    }

    /// The waiting blocks that are due, oldest first: somebody waits for them, or they are too
    /// many, or too old.
    pub(crate) fn due_waiting(&self, now: Instant) -> impl Iterator<Item = u64> + '_ {
        let too_many = self.waiting.len().saturating_sub(self.bounds.high);
        let since = now.checked_sub(self.bounds.age);
        let is_due = move |(index, (number, change)): &(usize, (&u64, &Change))| {
            let is_old = since.is_some_and(|since| change.since <= since);
            **number < self.wanted_below || *index < too_many || is_old
        };
        self.waiting.iter().enumerate().take_while(is_due).map(|(_, (_, change))| change.block)
    }

    /// Since when the store has had the oldest write-out.
    pub(crate) fn at_store_since(&self) -> Option<Instant> {
        self.writing.values().filter_map(|change| change.begun).min()
    }

    /// Number of changes with numbers below `bound` that the store has neither taken nor refused.
    pub(crate) fn untried_below(&self, bound: u64) -> usize {
        self.waiting.range(..bound).count() + self.writing.range(..bound).count()
    }

    /// The run of consecutive waiting blocks around `block`, at most `max`, including `block` if it
    /// waits. A block that must be tried alone has no neighbours.
    pub(crate) fn neighbours(&self, block: u64, max: usize) -> Vec<u64> {
        if self.by_block.get(&block).is_some_and(|place| !place.joins) {
            return vec![block];
        }
        let joins = |(&block, place): (&u64, &Place)| place.joins.then_some(block);
        let mut run: BTreeSet<u64> = BTreeSet::new();
        let mut below = self.by_block.range(..block).rev().map_while(joins);
        let mut above = self.by_block.range(block..).map_while(joins);
        let mut expected = block;
        while run.len() < max && above.next() == Some(expected) {
            run.insert(expected);
            expected += 1;
        }
        expected = block;
        while run.len() < max && expected > 0 && below.next() == Some(expected - 1) {
            expected -= 1;
            run.insert(expected);
        }
        run.into_iter().collect()
    }

    /// The blocks that are being written out.
    pub(crate) fn being_written(&self) -> impl Iterator<Item = u64> + '_ {
        self.writing.values().map(|change| change.block)
    }

    /// Whether a dirty block may be written out together with others.
    pub(crate) fn joins(&self, block: u64) -> bool {
        self.by_block.get(&block).is_some_and(|place| place.joins)
    }

    /// The dirty blocks of a range, in order.
    pub(crate) fn within(&self, first: u64, last: u64) -> impl Iterator<Item = u64> + '_ {
        self.by_block.range(first..=last).map(|(&block, _)| block)
    }

    /// Whether the block waits to be written out.
    pub(crate) fn waits(&self, block: u64) -> bool {
        let place = self.by_block.get(&block);
        place.is_some_and(|place| !self.is_refused(place.number))
    }

    /// Number of refusals so far.
    pub(crate) fn refusals(&self) -> u64 {
        self.refusals
    }

    /// The reason why a change with a number below `bound` was refused after the first `known`
    /// refusals, if one was.
    pub(crate) fn refused_since(&self, known: u64, bound: u64) -> Option<Failed> {
        let mut refused = self.refused.range(..bound).map(|(_, refusal)| refusal);
        refused.find(|refusal| refusal.count > known).map(|refusal| refusal.why.clone())
    }

    /// The refused blocks to try again now. After the store has accepted a refused block, these are
    /// all refused blocks.
    pub(crate) fn due(&mut self, now: Instant, most: usize) -> Vec<u64> {
        if std::mem::take(&mut self.store_is_back) {
            self.refused.values_mut().for_each(|refusal| refusal.retry_at = now);
        }
        let due = self.refused.values().filter(|refusal| refusal.retry_at <= now);
        due.take(most).map(|refusal| refusal.change.block).collect()
    }

    /// When the oldest change was made that waits or is being written out. A refused one does not
    /// count: the store may never take it.
    pub(crate) fn oldest_on_its_way(&self) -> Option<Instant> {
        let first = |changes: &BTreeMap<u64, Change>| Some(changes.values().next()?.since);
        first(&self.waiting).into_iter().chain(first(&self.writing)).min()
    }

    /// When the oldest change was made that the store does not have.
    pub(crate) fn oldest_change(&self) -> Option<Instant> {
        let refused = self.refused.values().next().map(|refusal| refusal.change.since);
        self.oldest_on_its_way().into_iter().chain(refused).min()
    }

    /// Every block whose last change the store does not have, including those being written out, in
    /// order; and the last refusal, if any.
    pub(crate) fn all(&self) -> (BTreeSet<u64>, Option<Failed>) {
        let last = self.refused.values().max_by_key(|refusal| refusal.count);
        let why = last.map(|refusal| refusal.why.clone());
        (self.by_block.keys().copied().chain(self.being_written()).collect(), why)
    }
}

#[cfg(test)]
mod tests {
    use undercroft_nbd::Failure;

    use super::*;

    fn refuse() -> Result<(), Failed> {
        Err(Failed::new(Failure::Io, "refused"))
    }

    /// Marks blocks dirty, in order; returns their states.
    fn dirty(set: &mut DirtySet, blocks: &[u64]) -> Vec<State> {
        let mark = |&block: &u64| {
            let mut state = State::default();
            set.mark(block, &mut state, Instant::now());
            state
        };
        blocks.iter().map(mark).collect()
    }

    #[test]
    fn a_refusal_belongs_to_its_own_change() {
        let mut set = DirtySet::default();
        let mut states = dirty(&mut set, &[10, 11]);
        let bound = 1;
        let numbers: Vec<u64> =
            [10, 11].iter().zip(&mut states).map(|(&b, s)| set.start(b, s).unwrap()).collect();
        for (&number, state) in numbers.iter().zip(&mut states) {
            set.end(number, true, state, refuse());
        }
        // Block 11 was refused last. A flush that arrived before its change is told of block 10
        // only.
        assert!(set.refused_since(0, bound).is_some());
        assert!(set.refused_since(1, bound).is_none() && set.refused_since(1, 2).is_some());
        assert!(set.is_tried_below(2) && set.count() == 2);
        set.want_below(2, set.refusals());
        assert!(!set.is_tried_below(2), "a flush that came later tries again");
    }

    #[test]
    fn a_failed_run_is_tried_block_by_block() {
        let mut set = DirtySet::default();
        let mut states = dirty(&mut set, &[10, 11, 12]);
        assert_eq!(set.neighbours(11, 8), [10, 11, 12]);
        let number = set.start(11, &mut states[1]).unwrap();
        set.end(number, false, &mut states[1], refuse());
        assert_eq!(set.refusals(), 0, "it may have been a neighbour");
        assert_eq!((set.neighbours(11, 8), set.neighbours(10, 8)), (vec![11], vec![10]));
        let number = set.start(11, &mut states[1]).unwrap();
        set.end(number, true, &mut states[1], refuse());
        assert!(set.is_refused(number) && !set.waits(11) && set.waits(10));
        assert_eq!(set.due_waiting(Instant::now()).count(), 2, "it is in nobody's way");
        assert_eq!(set.count(), 3);
    }

    #[test]
    fn a_store_that_is_back_is_offered_everything() {
        let mut set = DirtySet::default();
        let mut states = dirty(&mut set, &[10, 11]);
        for (block, state) in (10..).zip(&mut states) {
            let number = set.start(block, state).unwrap();
            set.end(number, true, state, refuse());
        }
        assert!(set.due(Instant::now(), 9).is_empty(), "not yet");
        assert_eq!(set.due(Instant::now() + RETRY_FIRST, 9), [10, 11]);
        set.try_again(states[0].dirty.unwrap());
        let number = set.start(10, &mut states[0]).unwrap();
        set.end(number, true, &mut states[0], Ok(()));
        assert_eq!(set.due(Instant::now(), 9), [11]);
    }

    #[test]
    fn of_the_blocks_without_a_slot_the_oldest_must_go() {
        let mut set = DirtySet::default();
        let mut states = dirty(&mut set, &[10, 11, 12, 13]);
        (0..4).for_each(|number| set.wait_without_slot(number));
        set.has_slot(1);
        assert_eq!(set.all_without_slot().collect::<Vec<_>>(), [10, 12, 13]);
        assert_eq!((set.count_without_slot(), set.oldest_without_slot()), (3, Some(10)));
        set.pass_without_slot();
        assert_eq!((set.count_without_slot(), set.oldest_without_slot()), (2, Some(12)));
        set.start(12, &mut states[2]).unwrap();
        set.clean(13, &mut states[3]);
        assert_eq!(set.all_without_slot().count(), 0);
        set.wait_without_slot(2);
        assert_eq!(set.all_without_slot().count(), 0, "it is being written out");
    }
}
