//! What stands above a server, against a real server in this process: the caching client, and the
//! replay of traces.
//!
//! The same for programs in C is in `crates/capi`.

mod aware;
mod cached;
mod cooperation;
mod equality;
mod support;
mod telling;
