//! What memory and disks cost together, where prices are given.

use serde::Serialize;
use undercroft_adviser::Cost;

use super::{Figure, Study};

/// Prices, in any currency, for the same period.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Prices {
    /// Of a GiB of memory.
    pub memory_gib: f64,
    /// Of a disk.
    pub disk: f64,
    /// Blocks that a disk reads in a second.
    pub disk_reads_per_s: f64,
    /// Duration of the trace in seconds, above 0.
    pub duration_s: f64,
}

impl Prices {
    /// The cost of `capacity_blocks` of memory and so many reads from the disk.
    pub fn cost(&self, block_bytes: u32, capacity_blocks: u32, disk_reads: u64) -> Cost {
        let gib = f64::from(capacity_blocks) * f64::from(block_bytes) / (1_u64 << 30) as f64;
        let disks = disk_reads as f64 / self.duration_s / self.disk_reads_per_s;
        let memory = gib * self.memory_gib;
        Cost { memory, disks, total: memory + disks * self.disk }
    }

    /// The cost of a figure.
    pub fn of(&self, study: &Study, figure: &Figure) -> Cost {
        self.cost(study.block_bytes, figure.capacity_blocks, figure.disk_reads)
    }

    /// What a share of the reads that arrive costs in disks.
    pub fn share(&self, study: &Study, share: f64) -> f64 {
        share * study.reads as f64 / self.duration_s / self.disk_reads_per_s * self.disk
    }
}
