//! When a logical clock has passed another multiple of a period, without a division a reference.

/// A period of a clock that counts up by ones. Invariant: `next` is a multiple of `length`.
#[derive(Clone, Debug)]
pub(super) struct Period {
    length: u64,
    next: u64,
}

impl Period {
    /// From `now` on, every time the clock is a multiple of `length`, which is at least 1.
    pub(super) fn new(length: u64, now: u64) -> Self {
        Self { length, next: (now / length + 1) * length }
    }

    /// Whether `now`, of which every value is to be shown, is such a time.
    #[inline(always)]
    pub(super) fn ends(&mut self, now: u64) -> bool {
        let ends = now == self.next;
        if ends {
            self.next += self.length;
        }
        ends
    }
}
