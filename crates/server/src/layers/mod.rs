//! What the requests of a client pass on their way to the volume: a chain of layers, built when the
//! client connects. Each layer is a session of the protocol that has the next one.
//!
//! From the outermost: access (`access.rs`), limits (`rate_limit.rs`), hints if the client has
//! opted in (`hints.rs`), reports of losses if the store can lose something (`losses.rs`),
//! read-ahead if the volume has it (`read_ahead.rs`), and the volume (`volume.rs`).
//!
//! A new layer: a file here with a type that has `next`, and passes on in `serve` what it does not
//! keep; one line where the chain is built, in `volume.rs` or in `exports/mod.rs`.
//!
//! Not here: what the volume does with a request (`volume`).

pub(crate) mod access;
pub(crate) mod hints;
mod losses;
pub(crate) mod rate_limit;
mod read_ahead;
pub(crate) mod volume;
