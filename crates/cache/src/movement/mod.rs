//! Schemes of movement: who of the levels of a hierarchy keeps a block, and when it moves, decided
//! for all levels together and by hints that travel with requests, replies and blocks. One file a
//! published algorithm, and one of our own (`tandem.rs`); `registry.rs` lists them.
//!
//! A scheme works on a [`Topology`]: caches with sizes, each above another one or above the disk,
//! and clients, each with the caches on its way to the disk. It says which cache had a block, and
//! records each [`Move`]; what a move costs is the business of the simulator.
//!
//! A scheme of which one level can be written apart from the others is a `SchemeLevel`
//! (`level.rs`): HFA's variants and Hint-K. A simulation stacks its levels up (`stack.rs`); a
//! server or a client runs one of them beside other processes ([`RemoteLevel`], `remote.rs`). The
//! other schemes decide for all levels at once, and run in simulations.
//!
//! Placement at the access and below unmodified clients is not here: see `placement`.

mod activity;
mod bidifilter;
mod chances;
mod demote;
mod hfa;
mod hint_k;
mod index;
mod info;
mod level;
mod promote;
mod promote_arc;
mod registry;
mod remote;
mod segments;
mod stack;
mod tandem;
mod topology;

pub use hfa::MoveLog;
pub use info::{Build, DEFAULT_SEED, SchemeInfo};
pub use level::{Bid, Load, Pass};
pub use registry::{SchemeSpec, schemes, schemes_with_levels};
pub use remote::{EvictedBlock, LinkCounts, Lookup, PromotedBlock, RemoteLevel, Requester};
pub use topology::{MAX_NODES, Node, Topology, TopologyError};

use crate::{Entry, Reference};

/// Something that happened to a block. A node is the number of a cache in the [`Topology`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    /// It came from the disk, or was written by the client, and this cache keeps it.
    Filled(Entry, usize),
    /// It was read through this cache, which kept a copy.
    Copied(Entry, usize),
    /// It came up from a cache below, which gave it up, and this cache keeps it.
    Promoted(Entry, usize),
    /// The cache above gave it up and sent it down, and this cache keeps it.
    Demoted(Entry, usize),
    /// The cache above gave it up, and this cache, asked whether it wants the data, has it already.
    Resent(Entry, usize),
    /// This cache gave it up, to nobody.
    Dropped(Entry, usize),
}

/// What a cache holds, by parts, where the scheme has such.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Gauges {
    /// Blocks in the queue of hot blocks (HFA), or in the frequent area (BiDiFilter).
    pub hot_blocks: u32,
    /// Blocks that this queue may hold at present.
    pub hot_target: u32,
    /// Probability that this cache passes a block upward (PROMOTE), of the first one above it.
    pub probability: f64,
}

/// A scheme at work over the caches of a topology.
///
/// Contract, checked by the tests of this crate: no cache holds more than its capacity; a block is
/// held by one cache at most on the way of its client, where the scheme is exclusive; every block
/// that starts or stops being held is in `moves`; the same calls give the same answers everywhere.
pub trait Scheme: Send {
    /// Makes entries below `entries` valid.
    fn grow(&mut self, entries: u32);

    /// Serves a reference of a client: the node that had the block, `None` for the disk. A write is
    /// a reference like a read whose data comes from the client. Appends to `moves`.
    fn reference(
        &mut self,
        client: usize,
        reference: Reference,
        moves: &mut Vec<Move>,
    ) -> Option<usize>;

    /// References to these blocks come next: reads what is known of them, so that the processor
    /// waits for all of it at once. Changes nothing.
    fn warm(&self, entries: &[Entry]) {
        let _ = entries;
    }

    /// Whether a node holds a block.
    fn holds(&self, node: usize, entry: Entry) -> bool;

    /// Number of blocks that a node holds.
    fn len(&self, node: usize) -> u32;

    /// The parts of a node, where it has such.
    fn gauges(&self, node: usize) -> Option<Gauges> {
        let _ = node;
        None
    }

    /// Bytes that the scheme keeps for a node's cache beyond a queue's two links a block, as a
    /// server would: what travels with blocks, tables, ghosts, sketches.
    fn overhead_bytes(&self, node: usize) -> u64;

    /// The moves that were counted, for a second pass (oracle); none where they are not kept.
    fn take_log(&mut self) -> Option<MoveLog> {
        None
    }

    /// The inner state of a node in the terms of the specification: queues from the next victim to
    /// the newest, tables, counts.
    fn describe(&self, node: usize) -> Vec<(&'static str, String)>;

    /// Recounts everything and checks the invariants in the head of the scheme's file.
    ///
    /// # Errors
    /// Says which invariant does not hold.
    fn validate(&self) -> Result<(), String>;
}
