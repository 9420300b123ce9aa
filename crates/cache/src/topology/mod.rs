//! Levels that work together in one process, where everything that a level asks for can be done at
//! once: what a simulation drives, and what tests hold servers and clients against.
//!
//! * [`Hierarchy`]: levels one below the other, under eviction-based and global placement.
//! * [`Pair`]: two levels with placement at the access, of which either or both are content-aware.
//! * [`Cluster`]: several clients above one or more [servers](Server).
//!
//! Not here: levels of a scheme of movement ([`movement`](crate::movement)), and time.

mod cluster;
mod hierarchy;
mod holders;
mod marginal;
mod pair;
mod server;

pub use cluster::{Client, Cluster, ClusterCounts, ClusterRules, Source};
pub use hierarchy::{Hierarchy, Move};
pub use holders::{Holders, MAX_HOLDERS};
pub use marginal::{Marginal, Shift};
pub use pair::{AwareCounts, Pair};
pub use server::{Division, Server, ServerSpec, rendezvous};
