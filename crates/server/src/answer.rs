//! The answers of a volume, before they are translated to the protocol's.

use std::io;
use std::sync::Arc;

use undercroft_nbd::{Extent, Failure, Pieces};

/// Key of the context `base:allocation` within a session.
pub(crate) const BASE_ALLOCATION: u32 = 0;

/// How a request ended.
pub type Outcome = Result<Answer, Failed>;

/// The answer to a request that succeeded.
#[derive(Clone, Debug)]
pub enum Answer {
    /// Done; there is nothing to return.
    Done,
    /// The bytes of a read, in pieces.
    Data(Pieces),
    /// The allocation status of a range, as far as it was examined: at least its first extent.
    Extents(Vec<Extent>),
}

/// Why a request failed. Cheap to clone: several requests may fail for one reason.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct Failed {
    /// The error code for the client.
    pub failure: Failure,
    /// The text for people: what was being done, and where.
    pub message: Arc<str>,
}

impl Failed {
    /// A failure with its reason.
    pub fn new(failure: Failure, message: &str) -> Self {
        Self { failure, message: message.into() }
    }

    pub(crate) fn closing() -> Self {
        Self::new(Failure::ShuttingDown, "the volume is being closed")
    }
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Self {
        Self::new(Failure::from_io(&error), &error.to_string())
    }
}
