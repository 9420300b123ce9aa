//! Reuse distances of one kind, and how far a sample of the blocks can be trusted with them.
//!
//! The blocks of a sample fall into groups. How much the groups differ from one another says how
//! much another sample would differ from this one.

use super::bins::Histogram;

/// Groups of a sample.
const GROUPS: usize = 16;

/// Reuse distances, and the references that have none.
pub struct Distances {
    /// One group if nothing is sampled.
    groups: Vec<Group>,
}

#[derive(Clone, Default)]
struct Group {
    histogram: Histogram,
    /// First references.
    cold: u64,
}

impl Distances {
    /// None so far, of all blocks or of a sample.
    pub fn new(is_sample: bool) -> Self {
        let groups = if is_sample { GROUPS } else { 1 };
        Self { groups: vec![Group::default(); groups] }
    }

    /// Counts a reference to a block, with its distance unless it is the first.
    #[inline]
    pub fn add(&mut self, entry: u32, distance: Option<u64>) {
        let group = entry as usize & (self.groups.len() - 1);
        let group = &mut self.groups[group];
        match distance {
            Some(distance) => group.histogram.add(distance),
            None => group.cold += 1,
        }
    }

    /// The distances of all groups.
    pub fn histogram(&self) -> Histogram {
        let mut all = Histogram::default();
        self.groups.iter().for_each(|group| all.merge(&group.histogram));
        all
    }

    /// First references.
    pub fn cold(&self) -> u64 {
        self.groups.iter().map(|group| group.cold).sum()
    }

    /// Two standard errors of the share of references up to a distance, at the distance where they
    /// are largest: by the ratios of the groups. 0 if nothing is sampled.
    pub fn error(&self) -> f64 {
        if self.groups.len() == 1 {
            return 0.0;
        }
        let size = |group: &Group| (group.histogram.total() + group.cold) as f64;
        let all: f64 = self.groups.iter().map(size).sum();
        if all == 0.0 {
            return 0.0;
        }
        let mut worst = 0.0_f64;
        let mut sums = vec![0.0; self.groups.len()];
        for (bin, _) in self.histogram().bins() {
            for (sum, group) in sums.iter_mut().zip(&self.groups) {
                *sum += group.histogram.count(bin) as f64;
            }
            let share = sums.iter().sum::<f64>() / all;
            let off = |(sum, group): (&f64, &Group)| (sum - share * size(group)).powi(2);
            let squares: f64 = sums.iter().zip(&self.groups).map(off).sum();
            let groups = self.groups.len() as f64;
            worst = worst.max((groups / (groups - 1.0) * squares).sqrt() / all);
        }
        2.0 * worst
    }
}
