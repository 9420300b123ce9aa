//! Every store against one suite of behaviour, and what is particular to each.

mod file;
mod memory;
mod suite;
