//! Every store against one suite of behaviour, and what is particular to each.

mod delay;
mod fail;
mod file;
mod memory;
mod span;
mod suite;
