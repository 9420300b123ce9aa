//! Whether the workload has just changed: the newest epoch does not fit the ones before it.

use crate::estimate::Estimate;

/// The newest epochs, taken together, and the number of epochs before them, at least: fewer do not
/// show how much epochs differ anyway.
pub(crate) const NEWEST: usize = 2;
const BEFORE: usize = 4;

/// Standard deviations by which the newest epochs must differ. With few epochs, a deviation is
/// known badly.
const DEVIATIONS: f64 = 4.5;

/// Least difference of a miss ratio that is a change.
const LEAST: f64 = 0.05;

/// Whether the miss ratio of the newest epochs does not fit those of each epoch before: it is
/// further from their mean than the errors of the sample, the number of sampled reads in the newest
/// epochs and the differences of the epochs before explain.
pub(crate) fn has_changed(newest: &Estimate, reads: f64, before: &[Estimate]) -> bool {
    if before.len() < BEFORE || reads < 1.0 {
        return false;
    }
    let count = before.len() as f64;
    let mean = before.iter().map(|epoch| epoch.value).sum::<f64>() / count;
    let squares: f64 = before.iter().map(|epoch| (epoch.value - mean).powi(2)).sum();
    let over_time = squares / (count - 1.0) * (1.0 / NEWEST as f64 + 1.0 / count);
    // Of independent reads, which is the least that they differ.
    let ratio = mean.clamp(0.0, 1.0);
    let by_chance = ratio * (1.0 - ratio) / reads;
    let deviation = (over_time + by_chance + newest.standard().powi(2)).sqrt();
    (newest.value - mean).abs() > LEAST.max(DEVIATIONS * deviation)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate::WIDENING;

    fn is_change(newest: f64, before: &[f64], standard: f64) -> bool {
        let error = standard * 1.696 * WIDENING;
        let of = |value| Estimate { value, error };
        has_changed(&of(newest), 1000.0, &before.iter().copied().map(of).collect::<Vec<_>>())
    }

    #[test]
    fn only_what_nothing_explains_is_a_change() {
        assert!(is_change(0.8, &[0.30, 0.31, 0.29, 0.30], 0.01));
        assert!(!is_change(0.34, &[0.30, 0.31, 0.29, 0.30], 0.0), "too small");
        assert!(!is_change(0.5, &[0.30, 0.31, 0.29, 0.30], 0.05), "the sample's error");
        assert!(!is_change(0.5, &[0.30, 0.45, 0.2, 0.35], 0.01), "they differ anyway");
        assert!(!is_change(0.8, &[0.30, 0.31, 0.29], 0.01), "too few");
        assert!(is_change(0.0, &[1.0; 4], 0.0));
        let few = has_changed(
            &Estimate { value: 0.6, error: 0.0 },
            20.0,
            &[Estimate { value: 0.3, error: 0.0 }; 5],
        );
        assert!(!few, "20 reads say little");
    }
}
