//! What a scheme says of itself, and what it is made from: the types by which its file and the list
//! of schemes in `registry.rs` know each other.

use std::sync::Arc;

use super::Scheme;
use super::hfa::MoveLog;
use super::level::{LevelConfig, SchemeLevel};
use super::topology::Topology;
use crate::policy::{Arguments, Parameter, SpecError};

/// What a scheme is called, where it comes from, what can be set, and how it is made.
pub struct SchemeInfo {
    /// Name on the command line.
    pub name: &'static str,
    /// What it does, in a few words.
    pub summary: &'static str,
    /// Publication.
    pub source: &'static str,
    /// What can be set.
    pub parameters: &'static [Parameter],
    /// Replacement policies that may be written at its levels: the scheme itself decides the order.
    pub policies: &'static [&'static str],
    /// Whether it takes two passes: the first makes the log of moves that the second needs.
    pub two_passes: bool,
    pub(super) build: fn(&Arguments, Build<'_>) -> Built,
    /// Makes one level of it, of a scheme whose levels can be processes of their own.
    pub(super) level: Option<BuildLevel>,
}

/// Start of the random numbers where nobody says another.
pub const DEFAULT_SEED: u64 = 42;

/// How one level of a scheme is made.
pub(super) type BuildLevel = fn(&Arguments, LevelConfig<'_>) -> Box<dyn SchemeLevel>;

/// A scheme, or why there is none.
pub(super) type Built = Result<Box<dyn Scheme>, SpecError>;

/// What a scheme is made for.
#[derive(Clone)]
pub struct Build<'a> {
    /// The caches and the clients.
    pub topology: &'a Topology,
    /// Bytes of a block: tables may be a share of the bytes of a cache.
    pub block_bytes: u32,
    /// Replacement policy written at the levels; see [`SchemeInfo::policies`].
    pub policy: &'a str,
    /// Start of the random numbers.
    pub seed: u64,
    /// Numbers to be drawn before random ones: worked examples state theirs.
    pub draws: &'a [f64],
    /// What the first pass counted, for a scheme of two passes.
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

    /// For caches of LRU and blocks of 4096 bytes, with the [`DEFAULT_SEED`].
    pub fn new(topology: &'a Topology) -> Self {
        let seed = DEFAULT_SEED;
        Self { topology, block_bytes: 4096, policy: "lru", seed, draws: &[], log: None }
    }
}
