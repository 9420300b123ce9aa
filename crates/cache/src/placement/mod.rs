//! Placement below a client's cache: when a block comes to a lower level, and when it goes.
//! Replacement, which decides what gives way, is the business of the policies.
//!
//! Access-based placement is not here: it is what [`Level`](crate::Level) does.

mod adaptive;
mod clients;
mod cost;
mod deliveries;
mod estimate;
mod hierarchy;
mod holders;
mod lower;
mod marginal;
#[cfg(test)]
mod random;
mod reloads;
mod rules;
mod server;
mod staging;
mod sums;

pub use clients::{Client, Cluster, ClusterCounts, ClusterRules, Source};
pub use cost::{Load, WayByCost};
pub use deliveries::{Deliveries, MAX_CLIENTS, Standing};
pub use estimate::{CONFIDENT, Estimator};
pub use hierarchy::{Hierarchy, Move};
pub use holders::{Holders, MAX_HOLDERS};
pub use lower::{Down, LowerLevel, PlacementCounts, Referred};
pub use marginal::{Marginal, Shift};
pub use reloads::{ReloadCounts, ReloadQueue};
pub use rules::{Eviction, OnHit, Order, Placement, PlacementError, Staging, Threshold, WayDown};
pub use server::{Division, Server, ServerSpec, rendezvous};
