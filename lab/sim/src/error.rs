//! Errors of simulations.

use undercroft_level::placement::PlacementError;
use undercroft_policy::SpecError;

/// Why a simulation failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The trace cannot be read.
    #[error(transparent)]
    Trace(#[from] undercroft_trace::Error),
    /// Whoever asked for the simulation stopped it.
    #[error("stopped")]
    Stopped,
    /// The request is invalid; the message gives the reason and a valid request.
    #[error("{0}")]
    Request(String),
    /// Results cannot be written or read back.
    #[error("{path}: {source}")]
    Results {
        /// File concerned.
        path: String,
        /// Error of the operating system.
        source: std::io::Error,
    },
}

impl Error {
    /// A share `rate` of the blocks has none of the trace.
    pub(crate) fn empty_sample(rate: f64) -> Self {
        Self::Request(format!("a sample of {rate} of the blocks holds none: use a larger rate"))
    }
}

impl From<SpecError> for Error {
    fn from(error: SpecError) -> Self {
        Self::Request(error.to_string())
    }
}

impl From<PlacementError> for Error {
    fn from(error: PlacementError) -> Self {
        Self::Request(error.to_string())
    }
}
