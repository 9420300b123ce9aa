//! Placement below a client's cache: the configurable choices, a queue of blocks to be read back,
//! and the choice between reload and demotion by cost.
//!
//! Not here: the [level](crate::Level), which places blocks, and the policies, which choose
//! victims.

mod cost;
mod info;
#[cfg(test)]
pub(crate) mod random;
mod reloads;
mod rules;

pub use cost::{Load, WayByCost};
pub use info::{PlacementInfo, SIMULATED, placements};
pub use reloads::{ReloadCounts, ReloadQueue};
pub use rules::{
    DataSource, Eviction, OnHit, Order, Placement, PlacementError, Staging, Threshold,
};
