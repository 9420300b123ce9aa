//! What a second-level cache would be worth for a trace, and what to take: sizes from the working
//! set, the figures of every policy and placement at these sizes, and the findings that the figures
//! carry (`docs/user/decision.md`).
//!
//! `study.rs` simulates; `findings.rs` and `price.rs` are pure functions of its figures. What a
//! finding is, and the sentence that says it, is in `undercroft-adviser`.

mod findings;
mod price;
mod study;

use serde::Serialize;
use undercroft_policy::Spec;

use crate::{Evictions, LevelConfig};

pub use findings::advise;
pub use price::Prices;
pub use study::study;

/// Equal parts of a trace, whose differences give the error of a figure.
const PARTS: usize = 8;

/// What to find out.
#[derive(Clone, Debug)]
pub struct Question {
    /// The client's cache, simulated above; `None`: the trace was taken below it.
    pub upper: Option<LevelConfig>,
    /// Where the client's evictions are known from; `None`: they are not known, and blocks can be
    /// placed at their access only.
    pub evictions: Option<Evictions>,
    /// Bytes of a block.
    pub block_bytes: u32,
    /// Sizes in blocks, ascending; empty: chosen from the working set.
    pub sizes: Vec<u32>,
    /// Policies to compare; LRU and OPT are always simulated.
    pub policies: Vec<Spec>,
    /// Most block requests simulated; of more, a sample of the blocks is.
    pub exact_requests: u64,
}

/// The figures of a trace.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Study {
    /// Bytes of a block.
    pub block_bytes: u32,
    /// Block reads that arrive at the cache.
    pub reads: u64,
    /// Block writes that arrive.
    pub writes: u64,
    /// Reads of blocks that were never requested before: no cache serves them.
    pub cold_reads: u64,
    /// Distinct blocks.
    pub unique_blocks: u64,
    /// The client's cache, if it was simulated.
    pub upper: Option<Upper>,
    /// The sample of the blocks; `None` if every figure is exact.
    pub sampling: Option<Sample>,
    /// The exact LRU curve, at the sizes of the figures and some between.
    pub lru: Vec<CurvePoint>,
    /// One simulation each, in the order of policies, placements and sizes.
    pub figures: Vec<Figure>,
    /// Levels on flash below memory of one size; none if the trace is too long for them.
    pub flash: Vec<FlashFigure>,
}

/// The client's cache.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Upper {
    /// Its policy.
    pub policy: String,
    /// Its size in blocks.
    pub capacity_blocks: u32,
    /// Blocks read there.
    pub reads: u64,
    /// Of those, served there.
    pub read_hits: u64,
}

/// A sample of the blocks.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Sample {
    /// Share of the blocks.
    pub rate: f64,
    /// Largest difference of a sampled LRU hit ratio from the exact one, at the sizes of the
    /// figures: taken as what the sample adds to the error of every figure.
    pub error: f64,
}

/// A point of the exact LRU curve.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CurvePoint {
    /// Size in blocks.
    pub capacity_blocks: u32,
    /// Read hits / reads that arrive.
    pub read_hit_ratio: f64,
}

/// The result of a simulation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// Policy with its parameters.
    pub policy: String,
    /// When blocks are placed.
    pub placement: String,
    /// Size in blocks.
    pub capacity_blocks: u32,
    /// Read hits / reads that arrive.
    pub read_hit_ratio: f64,
    /// Blocks read from the disk, reloads included; scaled up if sampled.
    pub disk_reads: u64,
    /// Of those, read for placement.
    pub reloads: u64,
    /// Counts of equal parts of the trace, in order.
    #[serde(skip)]
    pub parts: Vec<Part>,
}

/// The result of a simulation with flash below memory.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FlashFigure {
    /// Policy of the memory.
    pub policy: String,
    /// Size of the memory in blocks.
    pub memory_blocks: u32,
    /// Size of the flash in blocks.
    pub flash_blocks: u32,
    /// Read hits of both / reads that arrive.
    pub read_hit_ratio: f64,
    /// Reads that found their block on flash.
    pub flash_hits: u64,
    /// Blocks written to flash.
    pub flash_written: u64,
    /// Counts of equal parts of the trace, in order.
    #[serde(skip)]
    pub parts: Vec<Part>,
}

impl Figure {
    /// Whether blocks are placed at their access.
    pub fn is_access(&self) -> bool {
        self.placement == "access"
    }

    /// Whether it knows the future.
    pub fn is_opt(&self) -> bool {
        self.policy == "opt"
    }
}

/// The counts of a part of a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Part {
    /// Block reads that arrive.
    pub reads: u64,
    /// Of those, served.
    pub read_hits: u64,
    /// Blocks read for placement.
    pub reloads: u64,
}
