//! A cache level as a state machine without I/O, clock, threads or unseeded randomness.
//! The simulator counts its answers; the server executes them.
//!
//! * [`Cct`]: what a client holds, learned from the addresses of its buffers.
//! * [`HashedCache`]: gives any policy a hashed index from 64-bit blocks to handles and frame
//!   slots.
//! * [`Level`]: a cache level, in simulations and servers; [`UpperLevel`]: that of a client.
//! * [`content`]: what a cache knows of its neighbour's content, for content-aware policies.
//! * [`placement`]: the rules by which a level below a client's cache places evicted blocks.
//!
//! Not here: the policies (`crates/policy`), trace formats, stores and protocols.
#![forbid(unsafe_code)]

mod bounded_lru_map;
mod cct;
pub mod content;
mod hashed;
mod level;
mod marks;
pub mod placement;
mod streams;

pub use cct::{Cct, CctCounts, Frames};
pub use hashed::{Evicted, Found, Frame, HashedCache, KnownBlocks, Referred};
pub use level::{
    Asker, Below, BelowCounts, CONFIDENT, ClientCounts, ClientEviction, Clients, Deliveries,
    DenseLevel, Estimator, EvictionPlacement, Foresight, Knowledge, Level, MAX_CLIENTS,
    PlacementCounts, PlacementStep, Portion, Request, Sender, Standing, UpperLevel,
};
pub use streams::Streams;
