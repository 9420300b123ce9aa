//! The order of operations: those that share a block run one after another, in the order of
//! arrival. An operation enters with all of its blocks at once, so operations cannot wait in a
//! circle.

use std::collections::VecDeque;
use std::ops::Range;

use tokio::sync::oneshot;

/// An operation that runs or waits.
struct Entry {
    id: u64,
    blocks: Range<u64>,
    /// Number of earlier unfinished operations that share a block with it.
    before: usize,
    /// Notified when `before` reaches 0.
    waiting: Option<oneshot::Sender<()>>,
}

/// All unfinished operations, in the order of their arrival.
#[derive(Default)]
pub(super) struct Gate {
    entries: VecDeque<Entry>,
    next: u64,
}

impl Gate {
    /// Whether an operation on these blocks could start now.
    pub(super) fn is_free(&self, blocks: &Range<u64>) -> bool {
        !self.entries.iter().any(|entry| overlap(&entry.blocks, blocks))
    }

    /// Adds an operation. Returns its number, and what it must wait for before it starts, if
    /// anything.
    pub(super) fn enter(&mut self, blocks: Range<u64>) -> (u64, Option<oneshot::Receiver<()>>) {
        let before = self.entries.iter().filter(|entry| overlap(&entry.blocks, &blocks)).count();
        let (id, (sender, turn)) = (self.next, oneshot::channel());
        self.next += 1;
        let waiting = (before > 0).then_some(sender);
        self.entries.push_back(Entry { id, blocks, before, waiting });
        (id, (before > 0).then_some(turn))
    }

    /// Removes an operation that ended, or that will not start.
    pub(super) fn leave(&mut self, id: u64) {
        let Some(at) = self.entries.iter().position(|entry| entry.id == id) else { return };
        let Some(gone) = self.entries.remove(at) else { return };
        for later in self.entries.iter_mut().skip(at) {
            if overlap(&gone.blocks, &later.blocks) {
                later.before -= 1;
                if later.before == 0 {
                    // If its caller is gone, nobody listens; the entry is then removed by its
                    // `Turn`.
                    later.waiting.take().map(|sender| sender.send(()));
                }
            }
        }
    }
}

fn overlap(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_on_a_common_block_go_in_their_order() {
        let mut gate = Gate::default();
        let (first, turn) = gate.enter(0..2);
        assert!(turn.is_none());
        let (second, second_turn) = gate.enter(1..3);
        let (third, third_turn) = gate.enter(2..3);
        let (_, turn) = gate.enter(5..6);
        assert!(turn.is_none());
        let (mut second_turn, mut third_turn) = (second_turn.unwrap(), third_turn.unwrap());
        assert!(second_turn.try_recv().is_err());
        gate.leave(first);
        assert!(second_turn.try_recv().is_ok());
        assert!(third_turn.try_recv().is_err());
        assert!(!gate.is_free(&(2..3)) && gate.is_free(&(0..1)));
        gate.leave(second);
        assert!(third_turn.try_recv().is_ok());
        gate.leave(third);
        assert!(gate.is_free(&(0..5)));
    }

    #[test]
    fn who_leaves_before_its_turn_holds_nobody_up() {
        let mut gate = Gate::default();
        let (first, _) = gate.enter(0..9);
        let (second, _) = gate.enter(3..4);
        let (_, third) = gate.enter(3..4);
        gate.leave(second);
        let mut third = third.unwrap();
        assert!(third.try_recv().is_err());
        gate.leave(first);
        assert!(third.try_recv().is_ok());
    }
}
