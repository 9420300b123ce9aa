//! Every store against one suite of behaviour, and what is particular to each.

mod delay;
mod fail;
mod file;
#[cfg(feature = "object")]
mod late;
mod log;
mod log_lives;
mod many;
mod memory;
mod missing;
#[cfg(feature = "object")]
mod object;
mod open;
#[cfg(feature = "object")]
mod service;
mod span;
mod suite;
