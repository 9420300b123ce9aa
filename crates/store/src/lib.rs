//! Backing stores: where a volume's bytes live when they are not cached.
//!
//! Here: the [`Store`] trait and what implements it. Not here: caching, policies, the NBD protocol
//! towards clients.

mod store;

pub use store::{Answer, Buffer, Extent, Facts, Store, Zeroing};
