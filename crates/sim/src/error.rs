//! What can go wrong with a simulation.

use undercroft_cache::policy::SpecError;

/// A simulation that cannot be done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The trace cannot be read.
    #[error(transparent)]
    Trace(#[from] undercroft_trace::Error),
    /// What was asked for makes no sense: says why, and what would.
    #[error("{0}")]
    Request(String),
    /// Results cannot be written or read back.
    #[error("{path}: {source}")]
    Results {
        /// File concerned.
        path: String,
        /// What the system said.
        source: std::io::Error,
    },
}

impl From<SpecError> for Error {
    fn from(error: SpecError) -> Self {
        Self::Request(error.to_string())
    }
}
