//! A number with its error: the interval around it that holds the truth nine times in ten, and
//! which differences of hit ratios count. How the number is worked out is in `control.rs`, and for
//! traces in `undercroft_sim::advise`.

use serde::Serialize;

/// Factor of a standard error for an interval that holds the truth nine times in ten: Student's t
/// of 31 degrees of freedom.
const NINE_IN_TEN: f64 = 1.696;

/// How much wider intervals are than the theory says, since a miniature of few blocks is not quite
/// like a large cache. Measured against full runs.
pub const WIDENING: f64 = 1.5;

/// How much wider the intervals of figures are that a known ratio corrected: most of the error
/// that the theory knows is gone then, not so what it does not know. Measured:
/// `docs/measurements/advice.md`.
pub const WIDENING_CORRECTED: f64 = 2.3;

/// A difference of the hit ratios of a trace that is not worth a change, whatever its error.
pub const SMALL_IN_TRACES: f64 = 0.01;

/// A difference of the hit ratios of a running server that is not worth a change, whatever its
/// error.
pub(crate) const SMALL_IN_SERVERS: f64 = 0.002;

/// Errors of differences of hit ratios above this one leave open whether there is a difference.
const VAGUE: f64 = 0.05;

/// A number and its error: the interval `value - error ..= value + error` holds the truth nine
/// times in ten; that of a trace does if its parts are independent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Estimate {
    /// The number. Scripts read differences only.
    #[serde(rename = "gain")]
    pub value: f64,
    /// Half the width of the interval.
    pub error: f64,
}

impl Estimate {
    /// A number with a standard error.
    pub(crate) fn new(value: f64, standard: f64) -> Self {
        Self { value, error: NINE_IN_TEN * WIDENING * standard }
    }

    /// A number that a known one corrected, with a standard error.
    pub(crate) fn corrected(value: f64, standard: f64) -> Self {
        Self { value, error: NINE_IN_TEN * WIDENING_CORRECTED * standard }
    }

    /// The standard error as theory has it, of a number that was not corrected.
    pub(crate) fn standard(&self) -> f64 {
        self.error / (NINE_IN_TEN * WIDENING)
    }

    /// Whether it is above 0 by more than its error.
    pub fn is_above_zero(&self) -> bool {
        self.value > self.error
    }

    /// What is known of a difference of hit ratios, of which `small` is not worth a change.
    pub fn verdict(&self, small: f64) -> Verdict {
        let least = self.error.max(small);
        match self.value {
            value if value > least => Verdict::Gain,
            value if value < -least => Verdict::Loss,
            _ if self.error > VAGUE => Verdict::Unknown,
            _ => Verdict::None,
        }
    }

    /// The sum with another number, of which nothing is known but its error.
    pub(crate) fn plus(&self, other: &Self) -> Self {
        Self { value: self.value + other.value, error: self.error + other.error }
    }

    /// The difference from an independent number.
    pub fn minus(&self, other: &Self) -> Self {
        Self { value: self.value - other.value, error: self.error.hypot(other.error) }
    }

    /// The number times a factor.
    pub fn times(&self, factor: f64) -> Self {
        Self { value: self.value * factor, error: self.error * factor.abs() }
    }
}

/// What is known of a difference of hit ratios.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is above its error.
    Gain,
    /// It is as far below 0.
    Loss,
    /// It is within its error, and the error is small.
    None,
    /// It is within its error, and the error is so large that the difference may be, too.
    Unknown,
}
