//! The engine: a cache level as a state machine without I/O, clock, thread or randomness that is
//! not seeded. The simulator counts its answers; the server executes them.
//!
//! * [`policy`]: the replacement policies, one file a published algorithm, over plain [`Entry`]
//!   handles. In the dense world of a simulation a handle *is* the renumbered block.
//! * [`Cct`]: what a client holds, learned from the addresses of its buffers.
//! * [`HashedCache`]: gives any policy a hashed index from 64-bit blocks to handles and frame
//!   slots.
//! * [`Level`]: a policy with a write mode and counters.
//! * [`content`]: what a cache knows of its neighbour's content, for content-aware policies.
//! * [`movement`]: schemes that move blocks between the levels of a hierarchy by hints.
//! * [`placement`]: a cache below a client's cache, which places what the client evicts.
//!
//! Trace formats, stores and protocols do not live here.
#![forbid(unsafe_code)]

mod cct;
pub mod content;
mod handles;
mod hashed;
mod heap;
mod level;
mod lists;
mod log;
mod memo;
pub mod movement;
pub mod placement;
pub mod policy;
mod positions;
mod recency;
mod recent;
mod ring;
mod tally;

pub use cct::{Cct, CctCounts, Frames};
pub use hashed::{Evicted, Found, Frame, HashedCache, Served};
pub use level::{Counts, Level, Reference, WriteMode};
pub use memo::{Memo, Refused};
pub use policy::{Departure, Departures, Entry, Fate, Policy};
