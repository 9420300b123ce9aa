//! Every store against one suite of behaviour, and what is particular to each.

mod delay;
mod fail;
mod file;
mod many;
mod memory;
#[cfg(feature = "object")]
mod object;
mod open;
mod span;
mod suite;
