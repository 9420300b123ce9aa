//! Tools that measure a server from outside: a load generator ([`Load`]), the replay of traces
//! ([`replay()`]), and a probe that finds out what cache a server has ([`probe()`]).
//!
//! Not here: the libraries by which programs use a server (`undercroft-client`, `undercroft-nbd`).
//! No library depends on this crate.
#![forbid(unsafe_code)]

mod load;
mod probe;
mod replay;

pub use load::{Latencies, Load, LoadError, LoadReport};
pub use probe::{ProbeOptions, Probed, probe};
pub use replay::{
    KnownReport, ProbeReport, Replay, ReplayError, ReplayReport, ToldReport, first_data, replay,
};
