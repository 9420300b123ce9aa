//! Why a server does not start or stop properly.

/// Why a server could not start or stop properly.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The configuration is invalid.
    #[error("{0}")]
    Plan(String),
    /// Something could not be opened, bound, or written.
    #[error("{0}")]
    Work(String),
    /// A store or a device cannot be reached now; opening it may succeed later.
    #[error("{0}")]
    Away(String),
}

/// What could not be opened, bound, or written, and why.
pub(crate) fn work(what: &str, error: &dyn std::fmt::Display) -> ServeError {
    ServeError::Work(format!("{what}: {error}"))
}
