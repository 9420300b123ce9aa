//! Histograms in powers of two, and the hill that most histograms of reuse distances show.

use serde::Serialize;

/// The bin of a distance: the distance rounded up to a power of two.
pub fn bin(distance: u64) -> u64 {
    1 << index(distance)
}

/// log2 of the bin. Distances above 2^63, which no trace has, fall into the last bin.
fn index(distance: u64) -> usize {
    let log2 = u64::BITS - distance.saturating_sub(1).leading_zeros();
    log2.min(u64::BITS - 1) as usize
}

/// A histogram in powers of two: bin 4 counts the distances 3 and 4.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    counts: [u64; 64],
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: [0; 64] }
    }
}

impl Histogram {
    /// Counts one distance.
    #[inline]
    pub fn add(&mut self, distance: u64) {
        self.add_many(distance, 1);
    }

    /// Counts so many equal distances.
    #[inline]
    pub fn add_many(&mut self, distance: u64, count: u64) {
        self.counts[index(distance)] += count;
    }

    /// Adds the counts of another histogram.
    pub fn merge(&mut self, other: &Self) {
        self.counts.iter_mut().zip(&other.counts).for_each(|(ours, theirs)| *ours += theirs);
    }

    /// The count of the bin of a distance.
    pub fn count(&self, distance: u64) -> u64 {
        self.counts[index(distance)]
    }

    /// Distances counted.
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Every bin from the first to the last that is not empty, with its count.
    pub fn bins(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let first = self.counts.iter().position(|&count| count > 0).unwrap_or(0);
        let end = self.counts.iter().rposition(|&count| count > 0).map_or(0, |last| last + 1);
        (first..end).map(|log2| (1 << log2, self.counts[log2]))
    }

    /// The bin of the median; `None` if nothing was counted.
    pub fn median(&self) -> Option<u64> {
        let half = self.total().div_ceil(2);
        let mut sum = 0;
        self.bins()
            .find(|&(_, count)| {
                sum += count;
                sum >= half
            })
            .map(|(bin, _)| bin)
    }

    /// The hill: the fullest bin, of several the smallest, and the bins around it without a gap
    /// that have at least a tenth of its count. `None` if nothing was counted.
    pub fn hill(&self) -> Option<Hill> {
        let full = *self.counts.iter().max().filter(|&&count| count > 0)?;
        let peak = self.counts.iter().position(|&count| count == full)?;
        let belongs = |log2: &usize| u128::from(self.counts[*log2]) * 10 >= u128::from(full);
        let first = (0..peak).rev().take_while(belongs).last().unwrap_or(peak);
        let last = (peak + 1..64).take_while(belongs).last().unwrap_or(peak);
        Some(Hill { min: 1 << first, peak: 1 << peak, max: 1 << last })
    }
}

/// Beginning, peak and end of a histogram's hill, as bins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Hill {
    /// Lowest bin.
    pub min: u64,
    /// Fullest bin.
    pub peak: u64,
    /// Highest bin.
    pub max: u64,
}
