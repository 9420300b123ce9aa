//! What can go wrong with a recording or a trace, said so that a person can act on it.

use std::path::PathBuf;

/// A recording or trace that cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused.
    #[error("{}: {source}", path.display())]
    Io {
        /// File concerned.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A record that does not say what its format promises.
    #[error("{}, {place}: expected {expected}, found {found}", path.display())]
    Damaged {
        /// File concerned.
        path: PathBuf,
        /// `line 17` or `byte 4096`.
        place: String,
        /// What the format wants there.
        expected: String,
        /// What is there, shortened.
        found: String,
    },
    /// No known format fits, or the one asked for does not exist or does not fit.
    #[error("{0}")]
    Format(String),
    /// A limit of this program: more distinct blocks than it can number, and the like.
    #[error("{0}")]
    Limit(String),
}
