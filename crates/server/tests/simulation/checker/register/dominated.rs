//! Which of the possible orders need not be followed, since another allows all that they allow.
//! Without this they are as many as the subsets of the operations that are open.

use std::cmp::Reverse;

use super::{Possible, Register};
use crate::history::{Action, End, Step};

impl Register<'_> {
    /// Drops the orders of which another that is kept allows all that they allow.
    pub(super) fn drop_dominated(&mut self) {
        if self.possible.len() < 2 {
            return;
        }
        let mut possible = std::mem::take(&mut self.possible);
        let reads = self.slots(|open| open.is_read());
        // Whoever allows more comes first.
        let key = |p: &Possible| (p.current, p.floor, p.has_gone_back);
        let rest = |p: &Possible| {
            let (changes, reads) = ((p.done & !reads).count_ones(), (p.done & reads).count_zeros());
            let allows = (Reverse(p.since), Reverse(p.is_trimmed), changes + reads);
            (allows, self.binds(p.kept), p.kept, p.done)
        };
        possible.sort_by_cached_key(|p| (key(p), rest(p)));
        let mut first = 0;
        for p in possible {
            if self.possible.last().is_some_and(|last| key(last) != key(&p)) {
                first = self.possible.len();
            }
            if !self.possible[first..].iter().any(|before| self.allows_all(before, &p, reads)) {
                self.possible.push(p);
            }
        }
    }

    /// Whether one of two orders with the same value there allows all that the other does: what
    /// has yet to happen may have happened just before the value came, or never, unless that value
    /// is older.
    fn allows_all(&self, one: &Possible, other: &Possible, reads: u128) -> bool {
        let may_have_been = self.slots(|open| {
            let is_answered = matches!(open.operation.end, Some((_, End::Done)));
            let is_trim = open.operation.action == Action::Trim;
            !is_answered || is_trim || open.operation.call < one.since
        });
        let more = one.done & !other.done;
        let less = other.done & !one.done;
        one.since >= other.since
            && one.is_trimmed >= other.is_trimmed
            && more & !reads == 0
            && less & (reads | !may_have_been) == 0
            && self.binds_no_more(one.kept, other.kept)
    }

    /// From when on what a loss left keeps older values from coming back, once it is flushed; 0: it
    /// does not.
    fn binds(&self, kept: u32) -> Step {
        let change = self.change(kept).filter(|o| matches!(o.end, Some((_, End::Done))));
        change.map_or(0, |operation| operation.call)
    }

    /// Whether what one loss left binds no more than what another left, now and later.
    fn binds_no_more(&self, one: u32, other: u32) -> bool {
        let ended = |kept| self.change(kept).and_then(|o| o.end).map_or(0, |(end, _)| end);
        let is_later = || ended(one) >= ended(other);
        one == other || self.binds(one) == 0 || self.binds(one) <= self.binds(other) && is_later()
    }
}
