//! What stands above a server: a client with a first-level cache of the engine, for programs to
//! use; and one that plays a trace through a server, behind such a cache. Both can tell the server
//! what leaves the cache.
//!
//! Not here: the protocol (`undercroft-nbd`), the simulator that foretells what the server counts.
#![forbid(unsafe_code)]

mod cached;
mod following;
mod probe;
mod replay;

pub use cached::{CachedClient, CachedOptions, CachedStats};
pub use probe::{ProbeOptions, Probed, probe};
pub use replay::{
    KnownReport, LevelReport, ProbeReport, Replay, ReplayError, ReplayReport, ToldReport, replay,
};
pub use undercroft_nbd::report::Report;
