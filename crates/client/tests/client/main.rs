//! The caching client against a server in this process.
//!
//! Its interface for programs in C is tested in `crates/capi`.

mod cached;
mod support;
