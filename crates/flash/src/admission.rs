//! A budget of blocks written to flash, and the price that keeps it.
//!
//! The budget of a day flows into a bucket that holds a hundredth of it, so that no 24 hours get
//! more than one hundredth above the budget. (A bucket of one hour would allow a twenty-fourth.)
//!
//! The price of a write is 0 while the bucket is at least half full, and rises as it empties, up to
//! what the best kind of evidence has brought: hits on flash for a block written. A block whose
//! kind has brought less is refused. One in [`PASSES`] of them is written all the same, and paid
//! for, so that it goes on being known what each kind brings.

use crate::directory::Evidence;

const DAY_US: u64 = 86_400_000_000;

/// Parts of a budget that the bucket holds.
const PARTS: u64 = 100;

/// Of so many blocks that are too dear, one is written.
const PASSES: u32 = 16;

/// Writes of a kind before its worth is known.
const ENOUGH: u64 = 64;

/// Hits for this many blocks written are the unit of worth.
const UNIT: u64 = 1 << 16;

/// Why a block is not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// Its kind of evidence brings less than a write costs now.
    TooDear,
    /// The bucket is empty.
    OverBudget,
}

/// The budget.
pub(crate) struct Admission {
    blocks_a_day: u64,
    /// In the bucket: blocks times the microseconds of a day, so that nothing is lost by rounding.
    saved: u128,
    now_us: u64,
    /// Blocks written for each kind of evidence, and the hits that they brought; both are halved
    /// after every `period` blocks.
    written: [u64; Evidence::KINDS],
    hits: [u64; Evidence::KINDS],
    period: u64,
    since: u64,
    refused: u32,
}

impl Admission {
    /// A budget of so many blocks a day, for a level of `capacity` blocks. The bucket is empty, so
    /// that a server which is started again and again keeps the budget too.
    pub(crate) fn new(blocks_a_day: u64, capacity: u32) -> Self {
        Self {
            blocks_a_day,
            saved: 0,
            now_us: 0,
            written: [0; Evidence::KINDS],
            hits: [0; Evidence::KINDS],
            period: u64::from(capacity).max(16 * ENOUGH),
            since: 0,
            refused: 0,
        }
    }

    /// What the bucket holds at most; at least one block.
    fn most(&self) -> u128 {
        u128::from(self.blocks_a_day.div_ceil(PARTS).max(1)) * u128::from(DAY_US)
    }

    pub(crate) fn advance(&mut self, now_us: u64) {
        let passed = now_us.saturating_sub(self.now_us);
        self.now_us = self.now_us.max(now_us);
        let flowed = u128::from(passed) * u128::from(self.blocks_a_day);
        self.saved = (self.saved + flowed).min(self.most());
    }

    /// A block that had been written for this evidence was read from flash.
    pub(crate) fn hit(&mut self, evidence: Evidence) {
        self.hits[evidence as usize] += 1;
    }

    /// Whether a block is to be written; it is then paid for.
    ///
    /// # Errors
    /// It is not, and why.
    pub(crate) fn admits(&mut self, evidence: Evidence) -> Result<(), Refused> {
        if self.saved < u128::from(DAY_US) {
            return Err(Refused::OverBudget);
        }
        if self.worth(evidence as usize).is_some_and(|worth| worth < self.price()) {
            self.refused += 1;
            if self.refused < PASSES {
                return Err(Refused::TooDear);
            }
            self.refused = 0;
        }
        self.saved -= u128::from(DAY_US);
        self.written[evidence as usize] += 1;
        self.since += 1;
        if self.since == self.period {
            self.since = 0;
            self.written.iter_mut().chain(&mut self.hits).for_each(|count| *count /= 2);
        }
        Ok(())
    }

    /// Hits for [`UNIT`] blocks written; `None`: too few were.
    fn worth(&self, kind: usize) -> Option<u64> {
        let written = self.written[kind];
        (written >= ENOUGH).then(|| self.hits[kind] * UNIT / written)
    }

    /// What a write must bring, in the unit of [`worth`](Self::worth).
    fn price(&self) -> u64 {
        let best = (0..Evidence::KINDS).filter_map(|kind| self.worth(kind)).max().unwrap_or(0);
        let missing = self.most().saturating_sub(2 * self.saved);
        (u128::from(best) * missing / self.most()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::{Admission, DAY_US, PASSES, Refused};
    use crate::Evidence;

    const HOUR_US: u64 = DAY_US / 24;

    /// However blocks come, no 24 hours get more than the budget and a hundredth of it, and days in
    /// which enough come get all of it.
    #[test]
    fn a_budget_is_kept_in_any_day() {
        let budget = 24_000;
        let mut admission = Admission::new(budget, 1000);
        let mut written = Vec::new();
        for minute in 0..4 * 24 * 60 {
            admission.advance(minute * HOUR_US / 60);
            // Nothing in every third hour, many in the others.
            let coming = if minute / 60 % 3 == 0 { 0 } else { 60 };
            written.push((0..coming).filter(|_| admission.admits(Evidence::Hit).is_ok()).count());
        }
        let days = written.windows(24 * 60).map(|day| day.iter().sum::<usize>() as u64);
        assert!(days.clone().all(|day| day * 100 <= budget * 101));
        let mut steady = Admission::new(budget, 1000);
        let mut all = 0;
        for minute in 0..24 * 60 {
            steady.advance(minute * HOUR_US / 60);
            all += (0..60).filter(|_| steady.admits(Evidence::Hit).is_ok()).count() as u64;
        }
        assert!(all.abs_diff(budget) * 100 <= budget, "{all}");
    }

    /// While little is left, kinds that bring less are refused first, but some of them pass.
    #[test]
    fn what_brings_less_is_refused_first() {
        let mut admission = Admission::new(100_000, 1 << 20);
        assert_eq!(admission.admits(Evidence::Hit), Err(Refused::OverBudget), "empty at the start");
        admission.advance(DAY_US);
        for at in 0..501 {
            let kind = if at % 2 == 0 { Evidence::Hit } else { Evidence::Returned };
            assert_eq!(admission.admits(kind), Ok(()), "nothing costs anything yet");
            if kind == Evidence::Hit {
                admission.hit(kind);
            }
        }
        let answers: Vec<_> = (0..64).map(|_| admission.admits(Evidence::Returned)).collect();
        let passed = answers.iter().filter(|answer| answer.is_ok()).count();
        assert_eq!(passed, 64 / PASSES as usize);
        assert!(answers.contains(&Err(Refused::TooDear)));
        let rest = (0..).take_while(|_| admission.admits(Evidence::Hit).is_ok()).count();
        assert_eq!(rest, 1000 - 501 - passed);
        assert_eq!(admission.admits(Evidence::Hit), Err(Refused::OverBudget));
    }
}
