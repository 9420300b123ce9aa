//! The server below, where it runs the next level of the scheme of movement that this volume runs
//! one of: what a shard says to it, and what it hears.
//!
//! All is said under the lock of the shard, so that what goes down is known to go before anything
//! can change the block again. Not here: how it is said (`serve/upstream/moves.rs`), and what a
//! shard does about it (`levels.rs`).

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use bytes::Bytes;
use undercroft_cache::movement::{Load, Pass};
use undercroft_hints::{AskedAt, Departed};

use crate::counters::LowerStats;

/// A block that comes up from below, unasked for.
#[derive(Clone, Debug)]
pub struct Ascended {
    /// The block.
    pub block: u64,
    /// What goes with it.
    pub load: Load,
    /// All of its bytes.
    pub data: Bytes,
}

/// What came up for blocks that went down.
pub struct Settlement {
    /// To be placed.
    pub ascended: Vec<Ascended>,
    /// To be kept until that is done: the level is not settled before.
    pub hold: Box<dyn Send>,
}

/// A settlement to come, when all that was waited for is known.
pub type Settling = Pin<Box<dyn Future<Output = Settlement> + Send>>;

/// The level below. Called with locks held: must not wait, and must not ask the volume anything.
pub trait Lower: fmt::Debug + Send + Sync {
    /// Blocks of all levels below.
    fn blocks(&self) -> u64;

    /// The request for a block is about to be made that this is said of.
    fn ask(&self, asked: AskedAt);

    /// A block has left downwards. With `awaits`, another may come up for it: then
    /// [`settle`](Self::settle) is to be called soon.
    fn down(&self, departed: Departed, awaits: bool);

    /// What was answered last of a block that was asked for; fresh if nothing was.
    fn answer(&self, block: u64) -> Pass;

    /// Whether nothing may still come up.
    fn is_settled(&self) -> bool;

    /// Sends what waits, and waits for what comes up for it.
    fn settle(&self) -> Settling;

    /// What came of it so far.
    fn told(&self) -> LowerStats;
}
