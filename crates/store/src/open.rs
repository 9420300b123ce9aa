//! How a store is opened, whatever its kind.

use std::fmt::Display;
use std::io::{self, ErrorKind};
use std::sync::Arc;

use undercroft_text::Uri;

use crate::medium::wrap;
use crate::store::{Answer, Facts, Store};

/// Connects to another NBD server's export, read-only if the second argument is true. The program
/// provides this, since the protocol is not known here.
pub type Upstream = Arc<dyn Fn(Uri, bool) -> Answer<io::Result<Arc<dyn Store>>> + Send + Sync>;

/// Receives a warning about a store, for people; see [`OpenOptions::on_warning`].
pub type OnWarning = Arc<dyn Fn(&str) + Send + Sync>;

/// The kind of an error of opening: the service of the store cannot be reached now, and opening it
/// may succeed later.
pub const AWAY: ErrorKind = ErrorKind::NotConnected;

/// Options for opening a store.
#[derive(Clone, Default)]
pub struct OpenOptions {
    /// Size in bytes, if the text gives none: that of a new store, and required of an existing one.
    pub size: Option<u64>,
    /// Whether to refuse a store that does not exist, instead of creating it.
    pub must_exist: bool,
    /// Whether to refuse changes.
    pub read_only: bool,
    /// Whether a store that has a mark is opened, since its write log is before it
    /// ([`Store::set_mark`]).
    pub has_log: bool,
    /// Opens `nbd://` and similar addresses.
    pub upstream: Option<Upstream>,
    /// Is told the facts of every store that opening creates.
    pub on_made: Option<Arc<dyn Fn(Facts) + Send + Sync>>,
    /// Is told, in words, what a store cannot promise, and later why it makes no changes any more
    /// (see [`Store::stopped`]). The function must not block.
    pub on_warning: Option<OnWarning>,
    /// Where a bucket's objects are, instead of at the service that its specification names.
    #[cfg(feature = "object")]
    pub objects: Option<Arc<dyn object_store::ObjectStore>>,
}

impl OpenOptions {
    /// Says that a store was created.
    pub(crate) fn made(&self, store: &impl Store) {
        self.on_made.iter().for_each(|tell| tell(store.facts()));
    }

    /// The size from the text (`told`) or from these options; the error names `store`.
    ///
    /// # Errors
    /// The two sizes differ.
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
