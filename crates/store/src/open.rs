//! How a store is opened, whatever its kind.

use std::fmt::Display;
use std::io::{self, ErrorKind};
use std::sync::Arc;

use undercroft_text::Uri;

use crate::medium::wrap;
use crate::store::{Answer, Store};

/// Connects to another NBD server's export, read-only if told so. The protocol is not known here;
/// the program passes in what does.
pub type Upstream = Arc<dyn Fn(Uri, bool) -> Answer<io::Result<Arc<dyn Store>>> + Send + Sync>;

/// How to open a store.
#[derive(Clone, Default)]
pub struct OpenOptions {
    /// Bytes, if the text does not say: what is made is of this size, what exists must have it.
    pub size: Option<u64>,
    /// Changes are refused.
    pub read_only: bool,
    /// Opens `nbd://` and the like.
    pub upstream: Option<Upstream>,
}

impl OpenOptions {
    /// The size that a text and these options agree on; `store` is named in the error.
    ///
    /// # Errors
    /// They do not.
    pub fn one_size(&self, told: Option<u64>, store: &impl Display) -> io::Result<Option<u64>> {
        match (told, self.size) {
            (Some(text), Some(option)) if text != option => {
                let why = format!("has two sizes, {text} and {option} bytes; say one");
                Err(wrap(store.to_string(), invalid(&why)))
            }
            _ => Ok(told.or(self.size)),
        }
    }
}

pub(crate) fn invalid(why: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidInput, why)
}
