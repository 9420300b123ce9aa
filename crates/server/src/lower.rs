//! The interface to the server below, if it runs the next level of the movement scheme of which
//! this volume runs one level: what a shard sends to it and learns from it.
//!
//! It is called under the lock of the shard, so that a block is announced to move down before
//! anything can change it again. Not here: how messages are sent
//! (`serve/upstream/level_sender.rs`), and what a shard does with the answers (`levels.rs`).

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use bytes::Bytes;
use undercroft_cache::movement::{Load, Pass};
use undercroft_hints::{AskedAt, Departed};

use crate::counters::LowerStats;

/// A block that comes up from below without a request.
#[derive(Clone, Debug)]
pub struct Ascended {
    /// The block.
    pub block: u64,
    /// The load that goes with it.
    pub load: Load,
    /// The data of the whole block.
    pub data: Bytes,
}

/// The blocks that came up in exchange for blocks that went down.
pub struct Settlement {
    /// The blocks to place.
    pub ascended: Vec<Ascended>,
    /// Keep this until they are placed; until it is dropped, the level is not settled.
    pub hold: Box<dyn Send>,
}

/// A pending settlement.
pub type Settling = Pin<Box<dyn Future<Output = Settlement> + Send>>;

/// The level below. Called with locks held: an implementation must not wait, and must not call the
/// volume.
pub trait Lower: fmt::Debug + Send + Sync {
    /// Total blocks of all levels below.
    fn blocks(&self) -> u64;

    /// Announces a request for a block that is about to be made.
    fn ask(&self, asked: AskedAt);

    /// A block has moved down. With `awaits`, another block may come up in exchange;
    /// [`settle`](Self::settle) must then be called soon.
    fn down(&self, departed: Departed, awaits: bool);

    /// The latest answer about a requested block; `Fresh` if there is none.
    fn answer(&self, block: u64) -> Pass;

    /// Whether no exchange is pending.
    fn is_settled(&self) -> bool;

    /// Sends waiting blocks, and waits for the blocks that come up in exchange.
    fn settle(&self) -> Settling;

    /// The counts so far.
    fn told(&self) -> LowerStats;
}
