//! What measures a server from outside: a load generator ([`Load`]), the replay of traces
//! ([`replay()`]), and finding out by asking what cache a server has ([`probe()`]).
//!
//! Not here: what programs link to use a server (`undercroft-client`, `undercroft-nbd`). Nothing
//! that others depend on depends on this.
#![forbid(unsafe_code)]

mod load;
mod probe;
mod replay;

pub use load::{Latencies, Load, LoadError, LoadReport};
pub use probe::{ProbeOptions, Probed, probe};
pub use replay::{
    KnownReport, LevelReport, ProbeReport, Replay, ReplayError, ReplayReport, ToldReport, replay,
};
