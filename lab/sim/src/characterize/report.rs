//! The characterisation of a trace as scripts read it. The field names are fixed
//! (`docs/user/characterize.md`).

use std::path::Path;

use serde::Serialize;
use undercroft_trace::Meta;

use super::bins::{Hill, Histogram};
use super::frequency::{Concentration, FrequencyRow};
use super::idle::IdleDistances;
use super::requests::{RequestCounter, Requests};
use super::split::Cells;
use super::working_set::Window;
use crate::Error;

/// What a trace asks for.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Characterization {
    /// How the blocks were sampled; `None` if all figures are exact.
    pub sampling: Option<Sampling>,
    /// The requests as the trace has them; always exact.
    pub requests: RequestReport,
    /// The cache above; `None` if the trace itself is described.
    pub upper: Option<UpperReport>,
    /// The requests as blocks, below the cache above if there is one. All that follows is of these.
    pub blocks: BlockReport,
    /// The working set over time.
    pub working_set: WorkingSetReport,
    /// Stack distances: 1 + the number of distinct other blocks between two references.
    pub stack_distance: DistanceReport,
    /// Temporal distances: the difference of the positions of two references.
    pub temporal_distance: DistanceReport,
    /// How often blocks are referenced.
    pub frequency: Vec<FrequencyRow>,
    /// How few blocks get most of the references.
    pub concentration: Vec<Concentration>,
    /// Hits by distance, of each cache that was asked for.
    pub splits: Vec<SplitReport>,
    /// Idle distances; `None` if no evictions are known.
    pub idle_distance: Option<IdleReport>,
}

/// Which trace is described.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TraceFacts {
    /// Its file.
    pub path: String,
    /// Its format.
    pub format: &'static str,
    /// Whether it tells reads from writes.
    pub has_ops: bool,
    /// Whether it has times.
    pub has_time: bool,
    /// Devices or files with requests.
    pub spaces: usize,
}

impl TraceFacts {
    /// Of a trace whose requests were counted.
    ///
    /// # Errors
    /// It holds no requests.
    pub fn new(path: &Path, meta: &Meta, counts: &RequestCounter) -> Result<Self, Error> {
        let (path, counts) = (path.display().to_string(), counts.counts());
        if counts.reads + counts.writes == 0 {
            let what = format!("{path}: the trace holds no requests");
            return Err(undercroft_trace::Error::Format(what).into());
        }
        let (format, has_ops, has_time) = (meta.format, meta.has_ops, meta.has_time);
        Ok(Self { path, format, has_ops, has_time, spaces: counts.spaces() })
    }
}

/// A sample of the blocks, and its error.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Sampling {
    /// Share of the blocks.
    pub rate: f64,
    /// Blocks in the sample.
    pub sampled_blocks: u64,
    /// References in the sample.
    pub sampled_requests: u64,
    /// Estimated error of any share of the references, two standard errors: 0.01 is one point.
    pub share_error: f64,
}

/// Requests as the trace has them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RequestReport {
    /// Reads and writes.
    pub requests: u64,
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Evictions that clients told.
    pub evictions: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Requests by size in powers of two.
    pub sizes: Vec<SizeRow>,
    /// Share of the requests that begin where the one before in their space ended.
    pub sequential_share: f64,
    /// From the first request to the last, in seconds; `None` without times.
    pub duration_s: Option<f64>,
    /// Requests a second.
    pub requests_per_s: Option<f64>,
    /// Bytes a second.
    pub bytes_per_s: Option<f64>,
}

/// Requests of a size.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SizeRow {
    /// Largest size in bytes, a power of two times the unit of the trace.
    pub up_to_bytes: u64,
    /// Requests above half of it.
    pub requests: u64,
}

/// The cache above.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct UpperReport {
    /// Replacement policy.
    pub policy: String,
    /// Size.
    pub capacity_blocks: u32,
    /// Blocks read.
    pub reads: u64,
    /// Of those, found there.
    pub read_hits: u64,
}

/// Requests as blocks.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct BlockReport {
    /// Block requests.
    pub requests: u64,
    /// Block reads.
    pub reads: u64,
    /// Block writes.
    pub writes: u64,
    /// Distinct blocks.
    pub unique_blocks: u64,
    /// First requests of a block: misses at every size.
    pub cold_requests: u64,
    /// Their share of the block requests.
    pub cold_share: f64,
}

/// The working set over time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WorkingSetReport {
    /// Block requests of a full window.
    pub window_requests: u64,
    /// The windows; only the last may be shorter.
    pub windows: Vec<Window>,
}

/// A histogram of distances.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DistanceReport {
    /// The bin of the median; `None` if nothing is referenced twice.
    pub median: Option<u64>,
    /// The hill; `None` if nothing is referenced twice.
    pub hill: Option<Hill>,
    /// The bins from the first to the last that is not empty.
    pub bins: Vec<BinRow>,
}

/// A bin.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct BinRow {
    /// Largest distance, a power of two; the bin begins above half of it.
    pub up_to: u64,
    /// References.
    pub requests: u64,
    /// Their share of all references, first ones included.
    pub share: f64,
    /// Share of the references up to this distance.
    pub cumulative_share: f64,
}

/// Hits by distance of one cache.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SplitReport {
    /// Replacement policy.
    pub policy: String,
    /// Size.
    pub capacity_blocks: u32,
    /// By temporal distance, as in the literature.
    pub by_temporal: Cells,
    /// By stack distance.
    pub by_stack: Cells,
}

/// Idle distances at a cache below.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct IdleReport {
    /// Where the evictions are known from: `upper`, `told` or `buffers`.
    pub source: &'static str,
    /// Evictions known.
    pub evictions: u64,
    /// References whose block was known to be evicted since the one before.
    pub requests: u64,
    /// Further references to known blocks.
    pub left_out: u64,
    /// Mean distance since the last reference.
    pub mean_access_based: f64,
    /// Mean distance since the eviction.
    pub mean_eviction_based: f64,
    /// Distances since the last reference; shares are of `requests`.
    pub access_based: DistanceReport,
    /// Distances since the eviction; shares are of `requests`.
    pub eviction_based: DistanceReport,
}

impl RequestReport {
    /// From the counts, where one step of a length means so many bytes.
    pub(super) fn new(counts: &Requests, unit_bytes: u64, has_time: bool) -> Self {
        let requests = counts.reads + counts.writes;
        let bytes = |length: u64| length.saturating_mul(unit_bytes);
        let times = counts.times.filter(|_| has_time);
        let duration_s = times.map(|(first, last)| (last - first) as f64 / 1e9);
        let rate = |of: u64| duration_s.filter(|&s| s > 0.0).map(|s| of as f64 / s);
        let (read_bytes, write_bytes) = (bytes(counts.read_length), bytes(counts.write_length));
        let sizes = counts.lengths.bins().filter(|&(_, requests)| requests > 0);
        Self {
            requests,
            reads: counts.reads,
            writes: counts.writes,
            evictions: counts.evictions,
            read_bytes,
            write_bytes,
            sizes: sizes
                .map(|(up_to, requests)| SizeRow { up_to_bytes: bytes(up_to), requests })
                .collect(),
            sequential_share: counts.sequential as f64 / requests.max(1) as f64,
            duration_s,
            requests_per_s: rate(requests),
            bytes_per_s: rate(read_bytes.saturating_add(write_bytes)),
        }
    }
}

impl DistanceReport {
    /// Shares are of so many references, and each counts as `scale` references of the trace.
    pub(super) fn new(histogram: &Histogram, references: u64, scale: f64) -> Self {
        let mut sum = 0;
        let share = |count: u64| count as f64 / references.max(1) as f64;
        let row = |(up_to, count): (u64, u64)| {
            sum += count;
            BinRow {
                up_to,
                requests: scaled(count, scale),
                share: share(count),
                cumulative_share: share(sum),
            }
        };
        let bins = histogram.bins().map(row).collect();
        Self { median: histogram.median(), hill: histogram.hill(), bins }
    }
}

impl IdleReport {
    pub(super) fn new(idle: &IdleDistances, source: &'static str) -> Self {
        let requests = idle.access_based.total();
        let mean = |sum: u64| sum as f64 / requests.max(1) as f64;
        Self {
            source,
            evictions: idle.evictions,
            requests,
            left_out: idle.left_out,
            mean_access_based: mean(idle.sums.0),
            mean_eviction_based: mean(idle.sums.1),
            access_based: DistanceReport::new(&idle.access_based, requests, 1.0),
            eviction_based: DistanceReport::new(&idle.eviction_based, requests, 1.0),
        }
    }
}

/// What a count of a sample means for the whole; exact for a scale of 1.
pub(super) fn scaled(count: u64, scale: f64) -> u64 {
    if scale == 1.0 { count } else { (count as f64 * scale).round() as u64 }
}
