//! The description of a scheme: the types that a scheme's file and the list of schemes in
//! `registry.rs` share.

use std::sync::Arc;

use super::Scheme;
use super::hfa::MoveLog;
use super::topology::Topology;
use undercroft_policy::{Arguments, Parameter, SpecError};

/// The name, source, options and constructor of a scheme.
pub struct SchemeInfo {
    /// Name on the command line.
    pub name: &'static str,
    /// What it does, in a few words.
    pub summary: &'static str,
    /// Publication.
    pub source: &'static str,
    /// The options.
    pub parameters: &'static [Parameter],
    /// Replacement policies that its levels accept. The scheme itself decides the order of blocks.
    pub policies: &'static [&'static str],
    /// Whether it needs two passes: the first logs the moves that the second uses.
    pub two_passes: bool,
    pub(super) build: fn(&Arguments, Build<'_>) -> Built,
}

/// The default seed of the random numbers.
pub const DEFAULT_SEED: u64 = 42;

/// A scheme, or the reason why it could not be made.
pub(super) type Built = Result<Box<dyn Scheme>, SpecError>;

/// The arguments from which a scheme is made.
#[derive(Clone)]
pub struct Build<'a> {
    /// The caches and the clients.
    pub topology: &'a Topology,
    /// Bytes of a block; some tables take a share of a cache's bytes.
    pub block_bytes: u32,
    /// Replacement policy of the levels; see [`SchemeInfo::policies`].
    pub policy: &'a str,
    /// Seed of the random numbers.
    pub seed: u64,
    /// Numbers to use before random ones; worked examples state them.
    pub draws: &'a [f64],
    /// The moves that the first pass logged, for a scheme of two passes.
    pub log: Option<Arc<MoveLog>>,
}

impl<'a> Build<'a> {
    /// Capacities of the upper and the lower level, for a scheme of two levels.
    pub(super) fn pair(&self, scheme: &str) -> Result<[u32; 2], SpecError> {
        let topology = self.topology;
        if topology.nodes() == 2 && topology.is_line() {
            return Ok([topology.capacity(0), topology.capacity(1)]);
        }
        let what = "is for two levels, one below the other: take another one";
        Err(SpecError(format!("placement {scheme} {what}")))
    }

    /// For LRU caches and blocks of 4096 bytes, with the [`DEFAULT_SEED`].
    pub fn new(topology: &'a Topology) -> Self {
        let seed = DEFAULT_SEED;
        Self { topology, block_bytes: 4096, policy: "lru", seed, draws: &[], log: None }
    }
}
