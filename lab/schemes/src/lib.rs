//! Schemes of movement: algorithms that decide for all levels of a hierarchy together which level
//! keeps a block and when it moves, with hints that travel with requests, replies and blocks. One
//! file for each published algorithm, and one for our own (`tandem.rs`); `registry.rs` lists them.
//!
//! A scheme works on a [`Topology`]: caches with capacities, each above another cache or the disk,
//! and clients, each with the caches on its way to the disk. The scheme says which cache had a
//! block, and records each [`Move`]. The simulator computes what moves cost.
//!
//! If the levels of a scheme can be written apart from each other, they are `SchemeLevel`s
//! (`level.rs`), and stacked (`stack.rs`): HFA's variants and Hint-K. The other schemes decide for
//! all levels at once. All of them run in simulations only (docs/developer/decisions.md).
//!
//! Not here: placement at the access, and placement below unmodified clients: those are rules of a
//! level, and a server has them (`crates/level/src/placement`).
#![forbid(unsafe_code)]

mod activity;
mod bidifilter;
mod chances;
mod demote;
mod hfa;
mod hint_k;
mod index;
mod info;
mod level;
mod list_queues;
mod promote;
mod promote_arc;
mod registry;
mod segments;
mod stack;
mod tandem;
mod tandem_ghosts;
mod topology;

pub use hfa::MoveLog;
pub use info::{Build, DEFAULT_SEED, SchemeInfo};
pub use registry::{SchemeSpec, schemes};
pub use topology::{MAX_NODES, Node, Topology, TopologyError};

use undercroft_policy::{Entry, Reference};

/// A move of a block. The second field is the number of a cache in the [`Topology`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    /// The block came from the disk, or was written by the client, and this cache keeps it.
    Filled(Entry, usize),
    /// The block was read through this cache, which kept a copy.
    Copied(Entry, usize),
    /// The block came up from a cache below, which gave it up, and this cache keeps it.
    Promoted(Entry, usize),
    /// The cache above gave the block up and sent it down, and this cache keeps it.
    Demoted(Entry, usize),
    /// The cache above gave the block up; this cache had it already, so its data was not sent.
    Resent(Entry, usize),
    /// This cache dropped the block.
    Dropped(Entry, usize),
}

/// The parts of a cache, for schemes that divide it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Gauges {
    /// Blocks in the queue of hot blocks (HFA), or in the frequent area (BiDiFilter).
    pub hot_blocks: u32,
    /// Blocks that this queue may hold at present.
    pub hot_target: u32,
    /// Probability that this cache passes a block up (PROMOTE), to the first cache above.
    pub probability: f64,
}

/// A scheme of movement for the caches of a topology.
///
/// Contract, checked by the tests of this crate: no cache holds more than its capacity; in an
/// exclusive scheme at most one cache on the way of a client holds a block; every change of
/// residence is in `moves`; equal calls give equal answers on every machine.
pub trait Scheme: Send {
    /// Makes entries below `entries` valid.
    fn grow(&mut self, entries: u32);

    /// Serves a reference of a client. Returns the node that had the block; `None` for the disk. A
    /// write is handled like a read, but its data comes from the client. Appends to `moves`.
    fn reference(
        &mut self,
        client: usize,
        reference: Reference,
        moves: &mut Vec<Move>,
    ) -> Option<usize>;

    /// Prefetches what is known of blocks that are referenced next, so that their cache misses
    /// overlap. Changes nothing.
    fn warm(&self, entries: &[Entry]) {
        let _ = entries;
    }

    /// Whether a node holds a block.
    fn holds(&self, node: usize, entry: Entry) -> bool;

    /// Number of blocks that a node holds.
    fn len(&self, node: usize) -> u32;

    /// The parts of a node, if the scheme has such.
    fn gauges(&self, node: usize) -> Option<Gauges> {
        let _ = node;
        None
    }

    /// Bytes that a server would keep for a node beyond two list links for each block: what travels
    /// with blocks, tables, ghosts, sketches.
    fn overhead_bytes(&self, node: usize) -> u64;

    /// The logged moves, for a second pass (oracle); `None` if they are not logged.
    fn take_log(&mut self) -> Option<MoveLog> {
        None
    }

    /// The inner state of a node in the terms of the specification: queues from the next victim on,
    /// tables, counts.
    fn describe(&self, node: usize) -> Vec<(&'static str, String)>;

    /// Recounts everything and checks the invariants in the head of the scheme's file.
    ///
    /// # Errors
    /// Says which invariant does not hold.
    fn validate(&self) -> Result<(), String>;
}
