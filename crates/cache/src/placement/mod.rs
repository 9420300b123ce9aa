//! Placement below a client's cache: the choices that a person has, and what the user of a level
//! needs to carry them out: a queue of blocks to be read back, and the choice of the way down.
//!
//! Not here: the [level](crate::Level) that places, and policies, which say what gives way.

mod cost;
#[cfg(test)]
pub(crate) mod random;
mod reloads;
mod rules;

pub use cost::{Load, WayByCost};
pub use reloads::{ReloadCounts, ReloadQueue};
pub use rules::{Eviction, OnHit, Order, Placement, PlacementError, Staging, Threshold, WayDown};
