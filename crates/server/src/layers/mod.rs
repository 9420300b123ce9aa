//! What the requests of a client pass on their way to the volume: a chain of layers, built when the
//! client connects. Each layer is a session of the protocol that has the next one.
//!
//! From the outermost: access (`access.rs`), limits (`rate_limit.rs`), hints if the client has
//! opted in (`hints.rs`), reports of losses if the store can lose something (`losses.rs`),
//! read-ahead if the volume has it (`read_ahead.rs`), and the volume (`volume.rs`).
//!
//! A new layer: a file here with a type that has `next`, and passes on to it both what it does not
//! keep in `serve`, and `no_more`; one line where the chain is built, in `volume.rs` (within hints)
//! or in `exports/mod.rs` (around hints, with the client known). What a layer owes that keeps
//! requests is in docs/developer/add-a-layer.md; `rate_limit.rs` is one.
//!
//! Not here: what the volume does with a request (`volume`).

pub(crate) mod access;
pub(crate) mod hints;
mod losses;
pub(crate) mod rate_limit;
mod read_ahead;
pub(crate) mod volume;
