//! Placement below a client's cache: when a block comes to a lower level, and when it goes.
//! Replacement, which decides what gives way, is the business of the policies.
//!
//! Access-based placement is not here: it is what [`Level`](crate::Level) does.

mod adaptive;
mod estimate;
mod hierarchy;
mod lower;
mod reloads;
mod rules;
mod staging;

pub use estimate::{CONFIDENT, Estimator};
pub use hierarchy::{Hierarchy, Move};
pub use lower::{Down, LowerLevel, PlacementCounts, Read};
pub use reloads::{ReloadCounts, ReloadQueue};
pub use rules::{Eviction, OnHit, Order, Placement, PlacementError, Staging, Threshold, WayDown};
