//! What the adviser knows at a moment.

use serde::Serialize;

use crate::estimate::Estimate;

/// How far the figures can be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Not enough has been seen.
    Learning,
    /// The figures are of the last turnovers of the cache.
    Ready,
    /// The workload has just changed: the figures are of the time since then.
    Changed,
}

/// The figures of the last epochs.
#[derive(Clone, Debug)]
pub struct Figures {
    /// How far they can be trusted.
    pub state: State,
    /// What is missing, unless they are ready.
    pub why: Option<String>,
    /// The cells, by policy, placement and size. While learning, there may be none.
    pub cells: Vec<CellFigure>,
    /// Number of complete epochs since the start.
    pub epochs: u64,
    /// Complete epochs that the figures are of.
    pub kept: usize,
    /// Reads of all blocks in these epochs.
    pub reads: u64,
    /// References to blocks of the sample in these epochs.
    pub references: u64,
    /// The share of the blocks that are in the sample.
    pub rate: f64,
    /// The share of the reads that was left out of these epochs, since there was no time for them.
    pub skipped_share: f64,
    /// Most memory that the adviser takes, in bytes.
    pub bytes: u64,
    /// Whether placement at eviction is compared, but no client has told an eviction.
    pub misses_hints: bool,
    /// What the placement does at present, if it adapts.
    pub adapts: Option<Adapts>,
    /// Flash below the memory of today's configuration, by size.
    pub flash: Vec<FlashFigure>,
}

/// The figures of flash of a size below today's memory.
#[derive(Clone, Debug, PartialEq)]
pub struct FlashFigure {
    /// Size of the flash in blocks.
    pub blocks: u32,
    /// Read hits of both / reads, beyond those of today's configuration.
    pub gain: Estimate,
    /// Blocks written to flash for a read that it serves.
    pub written_per_hit: f64,
    /// Whether enough was seen for it to be filled. If not, it may gain more later.
    pub is_filled: bool,
}

/// What a placement that adapts does at present. Its cells are those of the two placements that it
/// chooses between.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Adapts {
    /// Its name.
    pub name: &'static str,
    /// The part of the cache, from 0 to 1, that places blocks at their eviction; the rest places
    /// them at their access.
    pub by_eviction: f64,
}

impl Figures {
    /// The cell of today's policy, placement and size.
    pub fn today(&self) -> Option<&CellFigure> {
        self.cells.iter().find(|cell| cell.is_today)
    }
}

/// The figures of one policy, placement and size.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CellFigure {
    /// Policy with its parameters.
    pub policy: String,
    /// When blocks are placed.
    pub placement: String,
    /// Size in blocks.
    pub blocks: u32,
    /// Whether it is the configuration of today.
    pub is_today: bool,
    /// Read hits / reads.
    pub hits: Estimate,
    /// Read hits / reads, beyond those of today's configuration.
    pub gain: Estimate,
    /// Blocks read from the disk / reads: misses and reloads.
    pub disk: Estimate,
    /// Blocks read from the disk / reads, less than with today's configuration.
    pub saved: Estimate,
    /// Whether the miniature has been filled. If not, a larger cache shows no more yet.
    pub is_full: bool,
}
