//! A number with its error: the interval around it that holds the truth nine times in ten. How the
//! number is worked out is in `control.rs`.

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

/// A number and its error: the interval `value - error ..= value + error` holds the truth nine
/// times in ten.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Estimate {
    /// The number.
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
