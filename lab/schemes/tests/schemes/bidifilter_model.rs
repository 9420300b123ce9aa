//! A naive model of BiDiFilter, from its rules in `docs/developer/algorithms.md`: plain vectors,
//! exact counts.

use super::models::{Counts, Options, without};

/// Vectors run from the oldest to the newest.
pub(crate) struct BiDiFilter {
    sizes: [usize; 2],
    most_frequent: usize,
    most_protected: usize,
    recent: Vec<u32>,
    frequent: Vec<u32>,
    probation: Vec<u32>,
    protected: Vec<u32>,
    counts: Counts,
    pub(crate) moved: (usize, usize),
}

impl BiDiFilter {
    pub(crate) fn new(options: &Options<'_>, sizes: &[u32]) -> Self {
        assert_eq!(options.get("sketch"), Some("exact"), "the model counts exactly");
        let sizes = [sizes[0] as usize, sizes[1] as usize];
        let share = |of: usize, key: &str, usual: f64| {
            // The recent area has room for a block at least, and so has probation.
            ((of as f64 * options.number(key, usual)) as usize).min(of - 1)
        };
        Self {
            most_frequent: share(sizes[0], "frequent", 0.5),
            most_protected: share(sizes[1], "protected", 0.8),
            counts: Counts::new(sizes[1]),
            sizes,
            recent: Vec::new(),
            frequent: Vec::new(),
            probation: Vec::new(),
            protected: Vec::new(),
            moved: (0, 0),
        }
    }

    pub(crate) fn reference(&mut self, x: u32) -> Option<usize> {
        self.moved = (0, 0);
        self.counts.add(x);
        for area in [&mut self.recent, &mut self.frequent] {
            if area.contains(&x) {
                without(area, x);
                area.push(x);
                return Some(0);
            }
        }
        if self.probation.contains(&x) || self.protected.contains(&x) {
            self.hit_below(x);
            return Some(1);
        }
        self.recent.push(x);
        if self.recent.len() > self.sizes[0] - self.most_frequent {
            let oldest = self.recent.remove(0);
            self.leave_recent(oldest);
        }
        None
    }

    fn leave_recent(&mut self, x: u32) {
        if self.frequent.len() < self.most_frequent {
            self.frequent.push(x);
            return;
        }
        if self.probation.len() + self.protected.len() == self.sizes[1] {
            let Some(&victim) = self.probation.first() else { return };
            if self.counts.of(x) <= self.counts.of(victim) {
                return;
            }
            self.probation.remove(0);
        }
        self.probation.push(x);
        self.moved.0 = 1;
    }

    fn hit_below(&mut self, x: u32) {
        let oldest = self.frequent.first().copied();
        if let Some(oldest) = oldest.filter(|&oldest| self.counts.of(x) > self.counts.of(oldest)) {
            without(&mut self.probation, x);
            without(&mut self.protected, x);
            self.frequent.remove(0);
            self.frequent.push(x);
            self.probation.push(oldest);
            self.moved = (1, 1);
            return;
        }
        // Segmented LRU.
        without(&mut self.probation, x);
        without(&mut self.protected, x);
        self.protected.push(x);
        if self.protected.len() > self.most_protected {
            let oldest = self.protected.remove(0);
            self.probation.push(oldest);
        }
    }

    pub(crate) fn held(&self, level: usize) -> Vec<u32> {
        match level {
            0 => [&self.recent[..], &self.frequent].concat(),
            _ => [&self.probation[..], &self.protected].concat(),
        }
    }
}
