//! What other sizes of a cache would save: a curve through the sizes that were simulated.
//!
//! Not here: where the figures come from (`adviser.rs`), and who should get memory.

use crate::estimate::Estimate;
use crate::figures::{Figures, State};

/// The disk reads that other sizes would save, with today's policy and placement, as a share of the
/// reads.
#[derive(Clone, Debug)]
pub struct Curve {
    /// Bytes of the cache today.
    today: f64,
    /// Sizes in bytes, rising, and what is saved there.
    points: Vec<(f64, Estimate)>,
}

impl Curve {
    /// The curve of a cache with blocks of so many bytes; `None` unless the figures are ready.
    pub fn of(figures: &Figures, block_bytes: u32) -> Option<Self> {
        let today = figures.today().filter(|_| figures.state == State::Ready)?;
        let bytes = |blocks: u32| f64::from(blocks) * f64::from(block_bytes);
        let of_today = figures
            .cells
            .iter()
            .filter(|cell| (&cell.policy, &cell.placement) == (&today.policy, &today.placement));
        let points = of_today.map(|cell| (bytes(cell.blocks), cell.saved)).collect();
        Some(Self::through(bytes(today.blocks), points))
    }

    /// The curve of a cache of `today` bytes through sizes in bytes and what is saved there.
    pub fn through(today: f64, mut points: Vec<(f64, Estimate)>) -> Self {
        points.sort_by(|one, other| one.0.total_cmp(&other.0));
        Self { today, points }
    }

    /// Bytes of the cache today.
    pub fn today(&self) -> f64 {
        self.today
    }

    /// What is saved with so many bytes: on the straight line between the sizes beside it, and
    /// beyond the last one no more than there.
    pub fn at(&self, bytes: f64) -> Estimate {
        let next = self.points.iter().position(|(size, _)| *size >= bytes);
        let Some(next) = next else {
            return self.points.last().map(|last| last.1).unwrap_or_default();
        };
        let (end, after) = self.points[next];
        let Some(before) = next.checked_sub(1) else { return after };
        let (start, before) = self.points[before];
        let share = (bytes - start) / (end - start);
        let between = |from: f64, to: f64| from + share * (to - from);
        Estimate {
            value: between(before.value, after.value),
            error: between(before.error, after.error),
        }
    }

    /// What one byte less costs, as a share of the reads: the slope, at today's size, of the
    /// parabola through half of it, today's and twice as much. The straight lines to either side
    /// would be too steep or too flat, since the curve bends.
    pub fn slope(&self) -> Estimate {
        let below = self.at(self.today / 2.0).times(-2.0 / self.today);
        below.times(2.0 / 3.0).plus(&self.above().times(1.0 / 3.0))
    }

    /// What one byte more saves: the same slope, but no more than twice that of the line to twice
    /// the size. What fits already needs no more, however much half of it would cost.
    pub fn slope_upward(&self) -> Estimate {
        let (slope, most) = (self.slope(), self.above().times(2.0));
        if slope.value <= most.value { slope } else { most }
    }

    /// The slope of the line to twice today's size.
    fn above(&self) -> Estimate {
        self.at(self.today * 2.0).times(1.0 / self.today)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slope_is_that_of_a_parabola() {
        let of = |value| Estimate { value, error: 0.03 };
        let today = (100.0, Estimate::default());
        let line = Curve::through(100.0, vec![(200.0, of(0.2)), today, (50.0, of(-0.1))]);
        let Estimate { value, error } = line.slope();
        assert!((value - 0.002).abs() < 1e-12 && (error - 0.0005).abs() < 1e-12, "{value} {error}");
        assert_eq!(line.at(150.0).value, 0.1);
        assert_eq!(line.at(900.0).value, 0.2);
        // y = 1 - (x / 100 - 2)^2
        let bent = Curve::through(100.0, vec![(50.0, of(-1.25)), today, (200.0, of(1.0))]);
        assert!((bent.slope().value - 0.02).abs() < 1e-12);
        assert!((bent.slope_upward().value - 0.02).abs() < 1e-12);
        let fits = Curve::through(100.0, vec![(50.0, of(-0.5)), today, (200.0, of(0.0))]);
        assert_eq!(fits.slope_upward().value, 0.0);
    }
}
