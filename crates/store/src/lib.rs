//! Backing stores: where a volume's bytes live when they are not cached.
//!
//! Here: the [`Store`] trait and what implements it. Not here: caching, policies, the NBD protocol
//! towards clients.

mod delay;
mod fail;
mod file;
mod medium;
mod memory;
#[cfg(feature = "object")]
mod object;
mod open;
mod pool;
mod random;
mod span;
mod spec;
mod store;

pub use delay::{Delay, DelayStore};
pub use fail::{FailHandle, FailRule, FailStore, FailWith, Failure, RequestKind, Trigger};
pub use file::{FileOptions, FileStore};
pub use medium::os_error;
pub use memory::MemoryStore;
#[cfg(feature = "object")]
pub use object::BucketStore;
pub use open::{OpenOptions, Upstream, open};
pub use span::SpanStore;
pub use spec::{
    FileSpec, NbdAddress, NbdTransport, ObjectPlace, ObjectService, ObjectSpec, SpecError,
    StoreSpec,
};
pub use store::{Answer, Buffer, Extent, Facts, ManyWrite, ManyWritten, Store, Zeroing};
