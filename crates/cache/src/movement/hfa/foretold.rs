//! The moves of a first pass, as the second one looks them up: the oracle's stand-in for T_out.

use std::sync::Arc;

use crate::Entry;

/// The moves that a first pass counted, of every cache.
#[derive(Clone, Debug, Default)]
pub struct MoveLog {
    /// (block, slot) of each move, a list a cache.
    pub(in super::super) moves: Vec<Vec<(Entry, u64)>>,
}

/// The moves of one cache by block and slot.
pub(super) struct Foretold {
    slots: u64,
    decay: f64,
    /// (block, slot, count), sorted.
    counts: Vec<(Entry, u64, u32)>,
    /// Where the first count of each block is that is not over yet.
    next: Vec<usize>,
}

impl Foretold {
    pub(super) fn new(log: &Arc<MoveLog>, node: usize, slots: u64, decay: f64) -> Self {
        let mut moves = log.moves.get(node).cloned().unwrap_or_default();
        moves.sort_unstable();
        let mut counts: Vec<(Entry, u64, u32)> = Vec::new();
        for (entry, slot) in moves {
            match counts.last_mut() {
                Some(last) if (last.0, last.1) == (entry, slot) => last.2 += 1,
                _ => counts.push((entry, slot, 1)),
            }
        }
        let mut next = Vec::new();
        for (i, &(entry, ..)) in counts.iter().enumerate() {
            if next.len() <= entry as usize {
                next.resize(entry as usize + 1, i);
            }
        }
        Self { slots, decay, counts, next }
    }

    /// Moves in this slot and those to come, later ones less.
    pub(super) fn frequency(&mut self, entry: Entry, slot: u64) -> f64 {
        let Some(next) = self.next.get_mut(entry as usize) else { return 0.0 };
        let is_over = |&(e, s, _): &(Entry, u64, u32)| e == entry && s < slot;
        while self.counts.get(*next).is_some_and(is_over) {
            *next += 1;
        }
        let coming = self.counts[*next..].iter().take_while(|c| c.0 == entry);
        let within = coming.take_while(|c| c.1 - slot < self.slots);
        within.map(|c| self.decay.powi((c.1 - slot) as i32) * f64::from(c.2)).sum()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.counts.len() as u64 * super::t_out::ENTRY_BYTES
    }
}
