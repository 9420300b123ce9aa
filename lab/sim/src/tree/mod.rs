//! Levels that work together in one process, so that everything a level asks for happens at once.
//! Simulations drive them; tests compare servers and clients with them.
//!
//! * [`Hierarchy`]: levels one below the other, under eviction-based and global placement.
//! * [`Cluster`]: several clients above one or more [servers](Server).
//!
//! Not here: the [levels](undercroft_level::Level) themselves, two content-aware levels
//! ([`Pair`](undercroft_level::content::Pair)), the caches of a scheme of movement
//! (`lab/schemes`), and time.

mod cluster;
mod hierarchy;
mod holders;
mod marginal;
mod server;

pub use cluster::{Client, Cluster, ClusterCounts, ClusterRules, Source};
pub use hierarchy::{Hierarchy, Move};
pub use holders::{Holders, MAX_HOLDERS};
pub use marginal::{Marginal, Shift};
pub use server::{Division, Server, ServerSpec, rendezvous};
