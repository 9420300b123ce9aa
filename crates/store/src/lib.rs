//! Backing stores: where a volume's bytes live when they are not cached.
//!
//! Here: the [`Store`] trait and what implements it. Not here: caching, policies, the NBD protocol
//! towards clients.

mod delay;
mod fail;
mod file;
mod medium;
mod memory;
mod pool;
mod random;
mod span;
mod store;

pub use delay::{Delay, DelayStore};
pub use fail::{FailHandle, FailRule, FailStore, FailWith, Failure, RequestKind, Trigger};
pub use file::{FileOptions, FileStore};
pub use medium::os_error;
pub use memory::MemoryStore;
pub use span::SpanStore;
pub use store::{Answer, Buffer, Extent, Facts, Store, Zeroing};
