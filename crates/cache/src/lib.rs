//! The engine: a cache level as a state machine without I/O, clock, threads or unseeded randomness.
//! The simulator counts its answers; the server executes them.
//!
//! * [`policy`]: the replacement policies, one file for each published algorithm, over plain
//!   [`Entry`] handles. In a simulation a handle *is* the renumbered block.
//! * [`Cct`]: what a client holds, learned from the addresses of its buffers.
//! * [`HashedCache`]: gives any policy a hashed index from 64-bit blocks to handles and frame
//!   slots.
//! * [`Level`]: a cache level, in simulations and servers; [`UpperLevel`]: that of a client.
//! * [`content`]: what a cache knows of its neighbour's content, for content-aware policies.
//! * [`placement`]: the rules by which a level below a client's cache places evicted blocks.
//! * [`lists`], [`heap`], and in [`policy`] `directory`, `sketch` and `Lirs`: parts of policies,
//!   also for schemes of movement (`lab/schemes`).
//!
//! Not here: trace formats, stores and protocols.
#![forbid(unsafe_code)]

mod bounded_lru_map;
mod cct;
pub mod content;
mod counts;
mod hashed;
pub mod heap;
mod level;
pub mod lists;
mod log;
mod lru_order;
mod marks;
pub mod placement;
pub mod policy;
mod positions;
mod reference;
mod ring;
mod snapshot;
mod streams;

pub use cct::{Cct, CctCounts, Frames};
pub use counts::Counts;
pub use hashed::{Evicted, Found, Frame, HashedCache, KnownBlocks, Referred};
pub use level::{
    Asker, Below, BelowCounts, CONFIDENT, ClientCounts, ClientEviction, Clients, Deliveries,
    DenseLevel, Estimator, EvictionPlacement, Foresight, Knowledge, Level, MAX_CLIENTS,
    PlacementCounts, PlacementStep, Portion, Request, Sender, Standing, UpperLevel,
};
pub use policy::{Eviction, EvictionKind, Evictions, Policy};
pub use reference::{Entry, Reference, WriteMode};
pub use snapshot::{Snapshot, SnapshotError};
pub use streams::Streams;
