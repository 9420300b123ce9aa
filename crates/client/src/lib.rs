//! What stands above a server: a client that plays a trace through it, with a first-level cache of
//! the engine in front.
//!
//! Not here: the protocol (`undercroft-nbd`), the simulator that foretells what the server counts.
#![forbid(unsafe_code)]

mod replay;

pub use replay::{Replay, ReplayError, ReplayReport, replay};
