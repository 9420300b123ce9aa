//! Which blocks hold changes that the store does not have yet, and since when.
//!
//! Every change that makes a clean block dirty gets the next number. A block that is changed again
//! keeps its number, so that a flush, which waits for all numbers up to the one of its arrival,
//! waits for the oldest change of every block. While a block is written out its number is in
//! `writing`; a change meanwhile gets a new one.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use crate::answer::Failed;
use crate::content::State;

#[derive(Default)]
pub(crate) struct DirtySet {
    by_block: BTreeMap<u64, u64>,
    by_number: BTreeMap<u64, (u64, Instant)>,
    /// Numbers being written out, with the time of their change.
    writing: BTreeMap<u64, Instant>,
    next: u64,
    /// Write-outs that failed so far, and what the last one was.
    failures: u64,
    last_failure: Option<(u64, Failed)>,
}

impl DirtySet {
    /// Blocks that are dirty and not being written out.
    pub(crate) fn count(&self) -> usize {
        self.by_block.len()
    }

    /// The number that the next change gets: all changes so far have smaller ones.
    pub(crate) fn now(&self) -> u64 {
        self.next
    }

    /// The block was changed.
    pub(crate) fn mark(&mut self, block: u64, state: &mut State, at: Instant) {
        if state.dirty.is_none() {
            state.dirty = Some(self.next);
            self.insert(block, self.next, at);
            self.next += 1;
        }
    }

    /// The store has the block's content, or nobody needs it any more.
    pub(crate) fn clean(&mut self, block: u64, state: &mut State) {
        if let Some(number) = state.dirty.take() {
            self.by_block.remove(&block);
            self.by_number.remove(&number);
        }
    }

    /// A write-out of the block begins.
    pub(crate) fn start(&mut self, block: u64, state: &mut State) -> Option<u64> {
        let number = state.dirty.take()?;
        self.by_block.remove(&block);
        let (_, since) = self.by_number.remove(&number)?;
        self.writing.insert(number, since);
        Some(number)
    }

    /// A write-out ended.
    pub(crate) fn end(
        &mut self,
        block: u64,
        number: u64,
        state: &mut State,
        result: Result<(), Failed>,
    ) {
        let since = self.writing.remove(&number);
        if let (Err(failed), Some(since)) = (result, since) {
            // Dirty as before; a change made meanwhile is part of it now.
            self.clean(block, state);
            state.dirty = Some(number);
            self.insert(block, number, since);
            self.failures += 1;
            self.last_failure = Some((number, failed));
        }
    }

    /// A write-out has to be made again, through no failure.
    pub(crate) fn again(&mut self, block: u64, number: u64, state: &mut State) {
        if let Some(since) = self.writing.remove(&number) {
            self.clean(block, state);
            state.dirty = Some(number);
            self.insert(block, number, since);
        }
    }

    fn insert(&mut self, block: u64, number: u64, since: Instant) {
        self.by_block.insert(block, number);
        self.by_number.insert(number, (block, since));
    }

    /// Whether the store has every change with a number below `bound`.
    pub(crate) fn is_clean_below(&self, bound: u64) -> bool {
        let first = |number: Option<&u64>| number.is_none_or(|&number| number >= bound);
        first(self.by_number.keys().next()) && first(self.writing.keys().next())
    }

    /// The dirty blocks with numbers below `bound`, oldest first, with the time of their change.
    pub(crate) fn oldest(&self, bound: u64) -> impl Iterator<Item = (u64, Instant)> + '_ {
        self.by_number.range(..bound).map(|(_, &found)| found)
    }

    /// The dirty blocks around `block` that follow one another without a gap, at most `max`, with
    /// `block` among them if it is dirty.
    pub(crate) fn neighbours(&self, block: u64, max: usize) -> Vec<u64> {
        let mut run: BTreeSet<u64> = BTreeSet::new();
        let mut below = self.by_block.range(..block).rev().map(|(&b, _)| b);
        let mut above = self.by_block.range(block..).map(|(&b, _)| b);
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

    /// The dirty blocks of a range, in order.
    pub(crate) fn within(&self, first: u64, last: u64) -> impl Iterator<Item = u64> + '_ {
        self.by_block.range(first..=last).map(|(&block, _)| block)
    }

    pub(crate) fn contains(&self, block: u64) -> bool {
        self.by_block.contains_key(&block)
    }

    /// Write-outs that failed so far.
    pub(crate) fn failures(&self) -> u64 {
        self.failures
    }

    /// The last failure after the first `known` ones, if it concerns a change below `bound`.
    pub(crate) fn failure_since(&self, known: u64, bound: u64) -> Option<Failed> {
        let (number, failed) = self.last_failure.as_ref()?;
        (self.failures > known && *number < bound).then(|| failed.clone())
    }
}
