//! What an advice may say: the findings and assumptions of traces and of running servers, one
//! vocabulary for both. `sentences.rs` says each in words.
//!
//! Not here: how they are found. In the figures of a server `advise.rs` finds them, between its
//! volumes `between.rs`, and in the figures of a trace `undercroft_sim::advise`.

use serde::Serialize;

use crate::estimate::Estimate;
use crate::figures::{Adapts, CellFigure};

/// What figures say.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Advice {
    /// The findings, the answer first.
    pub findings: Vec<Finding>,
    /// What the figures rest on, and cannot know.
    pub assumptions: Vec<Assumption>,
}

/// A configuration, with its figures.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Choice {
    /// Policy with its parameters.
    pub policy: String,
    /// When blocks are placed.
    pub placement: String,
    /// Size in blocks.
    pub capacity_blocks: u32,
    /// Read hits / reads that arrive.
    pub read_hit_ratio: f64,
    /// Blocks read from the disk, reloads included.
    pub disk_reads: u64,
}

/// What a cache and the disks below it cost.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Cost {
    /// Of the memory.
    pub memory: f64,
    /// Disks that the reads keep busy; a fraction, because disks may have other work.
    pub disks: f64,
    /// Of both.
    pub total: f64,
}

/// Something that figures show. Differences are in read hits / reads that arrive, unless said
/// otherwise. Scripts get those of traces; of those of servers they get the sentences.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Finding {
    /// Of a server: nothing is advised for a volume.
    Off {
        /// Why, as a clause.
        why: String,
    },
    /// Of a server: nothing can be advised for a volume yet.
    NotYet {
        /// Why, as a clause.
        why: String,
    },
    /// Of a server: the workload has changed, and the figures are of the time since then.
    Changed {
        /// What was seen since, as a clause.
        why: String,
    },
    /// The trace is said to be from below the client's cache, and does not look so: every other
    /// figure changes if it was taken above.
    Unfiltered {
        /// LRU at the smallest size, which serves more than a trace from below a cache has.
        lru: Choice,
    },
    /// No policy serves one read in a hundred at any size.
    NothingToGain {
        /// The best that was found.
        best: Choice,
    },
    /// The cheapest configuration at the given prices.
    Cheapest {
        /// The configuration; `None`: no cache is cheaper.
        choice: Option<Choice>,
        /// Its cost.
        cost: Cost,
        /// The cost without a cache.
        without: Cost,
        /// Error of the difference between the two.
        error: f64,
    },
    /// The knee of the curve of the best policies: the size at which it lies highest above the
    /// straight line from no cache to the first size from which nothing is gained.
    Knee {
        /// The configuration.
        choice: Choice,
        /// Hit ratio per GiB up to it.
        per_gib_before: f64,
        /// Hit ratio per GiB from it to `enough_blocks`.
        per_gib_after: f64,
        /// The first size from which nothing is gained.
        enough_blocks: u32,
    },
    /// What no cache can exceed.
    Bound {
        /// 1 - cold reads / reads that arrive.
        read_hit_ratio: f64,
        /// OPT at the size that is advised, or at the largest.
        opt: Choice,
    },
    /// LRU serves less than one read in a hundred up to this size.
    LruWasted {
        /// LRU at the largest size of the study with so little.
        lru: Choice,
        /// The exact end of the range, in blocks.
        up_to_blocks: u32,
        /// The best policy there, if it gains.
        best: Option<Choice>,
    },
    /// A policy serves more than the one that it is compared with: in a trace where its gain is
    /// largest, in a server at today's size.
    PolicyGains {
        /// The policy.
        choice: Choice,
        /// What it is compared with, at the same size: LRU for a trace, today's policy in a server.
        #[serde(rename = "lru")]
        base: Choice,
        /// The gain.
        difference: Estimate,
        /// Blocks that are not read from the disk any more / reads that arrive.
        #[serde(skip)]
        saved: Estimate,
        /// Of a trace: policies that do not differ from it.
        equals: Vec<String>,
        /// Of a trace: the size with which LRU serves as much, in blocks; `None`: none of the
        /// sizes studied.
        lru_blocks: Option<u32>,
        /// Of a trace: the sizes at which some policy gains over LRU, in blocks.
        sizes: Vec<u32>,
    },
    /// No policy serves more than the one that they are compared with, as far as is known: in a
    /// trace at any size, in a server at today's.
    NoPolicyGains {
        /// The largest difference.
        choice: Choice,
        /// What it is compared with, at the same size: LRU for a trace, today's policy in a server.
        #[serde(rename = "lru")]
        base: Choice,
        /// The difference.
        difference: Estimate,
    },
    /// What another placement changes. In a trace: one that acts on evictions, beside the best
    /// policy at the access.
    Placement {
        /// The best policy with this placement; in a server today's.
        choice: Choice,
        /// What it is compared with: the best policy that places at the access; in a server
        /// today's configuration.
        #[serde(rename = "access")]
        base: Choice,
        /// The difference in hit ratio.
        hits: Estimate,
        /// The difference in blocks read from the disk / reads that arrive.
        disk: Estimate,
    },
    /// Of a server: what its placement, which adapts, does at present.
    Adapting {
        /// What it does.
        now: Adapts,
        /// The other of the two placements that it chooses between, if it can be compared.
        other: Option<CellFigure>,
    },
    /// Of a server: what larger sizes would add.
    MoreMemory {
        /// Blocks of the cache today.
        today_blocks: u32,
        /// Twice the size and more, rising, with today's policy and placement.
        larger: Vec<CellFigure>,
    },
    /// Of a server: what half the size would lose.
    LessMemory {
        /// Half the size, with today's policy and placement.
        half: CellFigure,
        /// The best other policy there.
        best: Option<CellFigure>,
    },
    /// Of a server: memory that is worth moving from one volume to another. Disk reads are a
    /// second's.
    Move {
        /// The name of the volume that it leaves.
        from: String,
        /// The name of the volume that gets it.
        to: String,
        /// How much of the memory it is, in words.
        part: &'static str,
        /// How much it is.
        bytes: u64,
        /// Disk reads more where it leaves.
        loss: Estimate,
        /// Disk reads less where it comes to.
        gain: Estimate,
    },
    /// Of a server: no memory is worth moving.
    NoMove,
    /// What flash below memory adds; in a server, below today's memory.
    Flash(FlashGain),
    /// From this size on nothing is gained.
    Enough {
        /// The best policy there; the simplest of several.
        choice: Choice,
    },
}

/// What flash below memory adds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FlashGain {
    /// The memory alone, with the best policy of its size.
    pub memory: Choice,
    /// Size of the flash in blocks: the smallest that serves nearly as much as any studied.
    pub flash_blocks: u32,
    /// Read hits of both / reads that arrive.
    pub read_hit_ratio: f64,
    /// What flash adds.
    pub difference: Estimate,
    /// Blocks written to flash for a read that it serves.
    pub written_per_hit: f64,
    /// The size of a memory with which LRU serves as much, in blocks; `None`: none of the sizes
    /// studied.
    pub lru_blocks: Option<u32>,
    /// Whether a server saw enough for flash to be filled; of a trace it is all that there is.
    #[serde(skip)]
    pub is_filled: bool,
}

/// What figures rest on.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Assumption {
    /// The client has the simulated cache.
    Client {
        /// Its policy.
        policy: String,
        /// Its size in blocks.
        capacity_blocks: u32,
    },
    /// The trace was taken below the client's cache.
    BelowClient,
    /// Evictions are known.
    EvictionsKnown,
    /// Nothing in a trace tells what the client evicts.
    EvictionsUnknown,
    /// No client of a server has told an eviction.
    EvictionsUntold,
    /// The clients of a server are not asked for their evictions.
    EvictionsUnasked,
    /// The cache was empty at the beginning, and writes go through.
    ColdAndThrough {
        /// Share of the reads that arrive that are the first of their blocks.
        cold: f64,
    },
    /// The figures of a trace are estimates.
    Sampled {
        /// Share of the blocks that was simulated.
        rate: f64,
        /// How far a sampled LRU hit ratio is from the exact one at most.
        error: f64,
    },
    /// The figures of a server are of the last requests, and estimates.
    Lately {
        /// Block reads that they are of.
        reads: u64,
        /// Share of the blocks that was simulated.
        rate: f64,
    },
    /// The server's adviser had no time for some of the requests.
    Skipped {
        /// Share of the reads.
        share: f64,
    },
    /// Simulated caches larger than the server's are not filled yet.
    NotFilled,
    /// Streams pass the server's cache, and not the simulated ones.
    StreamsPass,
    /// The server's cache reads ahead, the simulated ones do not.
    ReadsAhead,
    /// The server guesses what clients evict, the simulated caches do not.
    GuessesEvictions,
}
