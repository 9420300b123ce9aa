//! Backing stores: the places of a volume's bytes that are not cached.
//!
//! Here: the [`Store`] trait and its implementations. Not here: caching, policies, the NBD protocol
//! towards clients.

mod delay;
mod fail;
mod file;
mod kind;
mod kinds;
mod log;
mod medium;
mod memory;
mod nbd;
mod object;
mod open;
mod parse;
mod pool;
mod span;
mod store;

pub use delay::{Delay, DelayStore};
pub use fail::{FailHandle, FailRule, FailStore, FailWith, Failure, RequestKind, Trigger};
pub use file::{FileOptions, FileStore};
pub use kind::{Description, Kind, StoreSpec, Words};
pub use kinds::kinds;
pub use log::{LogOptions, LogStore};
pub use medium::os_error;
pub use memory::MemoryStore;
#[cfg(feature = "object")]
pub use object::BucketStore;
pub use object::{ObjectPlace, ObjectService, ObjectSpec};
pub use open::{AWAY, OnWarning, OpenOptions, Upstream};
pub use parse::{Parsed, Setting, SpecError, Text, write_options};
pub use span::SpanStore;
pub use store::{
    Absence, Answer, Backlog, Buffer, Extent, Facts, ManyWrite, ManyWritten, OnLoss, Store,
    Version, Zeroing,
};
