//! Detects when a logical clock reaches a multiple of a period, without a division for each
//! reference.

/// A period of a clock that counts up by ones. Invariant: `next` is a multiple of `length`.
#[derive(Clone, Debug)]
pub(crate) struct Period {
    length: u64,
    next: u64,
}

impl Period {
    /// Starts at `now`. `length` is at least 1.
    pub(crate) fn new(length: u64, now: u64) -> Self {
        Self { length, next: (now / length + 1) * length }
    }

    /// Whether `now` is a multiple of `length`. It must be called for every value of the clock.
    #[inline(always)]
    pub(crate) fn ends(&mut self, now: u64) -> bool {
        let ends = now == self.next;
        if ends {
            self.next += self.length;
        }
        ends
    }
}
