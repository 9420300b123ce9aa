//! What a shard leaves to be done when its lock is released: answers, store requests, and what
//! others must be told. Store requests for neighbouring blocks are joined.
//!
//! Not here: how the store is asked, and what its answers do (`operations/`).

use std::sync::Arc;

use bytes::Bytes;

use crate::answer::Failed;
use crate::flash::FlashPart;
use crate::job::{Completions, Job};
use crate::shard::content::{Content, Memory};
use crate::shard::flash_level::FlashWrite;

/// The blocks that a request evicts; empty without a server below that is told.
pub(crate) type Piggybacked = Vec<u64>;

/// What must be done after the lock is released.
#[derive(Default)]
pub(crate) struct Effects {
    pub(crate) finished: Completions,
    pub(crate) store: StoreRequests,
    /// Whether a reload was queued.
    pub(crate) reload: bool,
    /// The blocks evicted since the last request that a client waits for.
    pub(crate) piggybacked: Piggybacked,
    /// Whether a block was evicted.
    pub(crate) has_left: bool,
    /// Whether write-outs are due.
    pub(crate) writes_out: bool,
}

/// Requests to the store, in the order in which operations asked for them.
#[derive(Default)]
pub(crate) struct StoreRequests {
    pub(crate) fetches: Vec<Fetch>,
    pub(crate) writes: Vec<ClientWrite>,
    pub(crate) write_outs: Vec<WriteOut>,
    /// Blocks to be written to flash.
    pub(crate) flash_writes: Vec<FlashWrite>,
}

/// Neighbouring blocks that are read for a job.
pub(crate) struct Fetch {
    pub(crate) first: u64,
    /// The part of flash and the first byte of the one block there, if it is read from there.
    pub(crate) from: Option<(Arc<FlashPart>, u64)>,
    pub(crate) job: Arc<Job>,
    /// A piece for each block; none yet for the one block of a fetch that has no memory
    /// ([`Shard::assign`](crate::shard::Shard::assign)).
    pub(crate) memory: Vec<Memory>,
    /// The blocks that the underlying requests evicted.
    pub(crate) piggybacked: Piggybacked,
    /// Whether it may be joined with neighbours.
    pub(crate) joins: bool,
}

/// A write of neighbouring blocks that a client waits for.
pub(crate) struct ClientWrite {
    pub(crate) first: u64,
    /// Number of blocks.
    pub(crate) count: u64,
    pub(crate) job: Arc<Job>,
    /// The data, if they are not just the job's.
    pub(crate) bytes: Option<Bytes>,
    /// First and last (exclusive) byte of the volume.
    pub(crate) offset: u64,
    pub(crate) end: u64,
    pub(crate) piggybacked: Piggybacked,
}

/// A write of neighbouring dirty blocks.
pub(crate) struct WriteOut {
    pub(crate) first: u64,
    /// The data of each block.
    pub(crate) data: Vec<Bytes>,
    /// Whether it may be joined with its neighbours.
    pub(crate) joins: bool,
}

/// How a store request ended, for one of its blocks.
pub(crate) struct Ended {
    /// What a fetch brought.
    pub(crate) result: Result<Content, Failed>,
    /// Whether the request was for this block alone.
    pub(crate) is_alone: bool,
    /// Whether the store may have lost meanwhile what it had answered; only if it answered well.
    pub(crate) is_lost: bool,
}

impl StoreRequests {
    pub(crate) fn is_empty(&self) -> bool {
        let Self { fetches, writes, write_outs, flash_writes } = self;
        let (reads, asked) = (fetches.is_empty(), writes.is_empty() && write_outs.is_empty());
        reads && asked && flash_writes.is_empty()
    }

    /// Joins neighbours; write-outs up to `write_out_blocks` blocks.
    pub(crate) fn join(&mut self, write_out_blocks: usize) {
        // A request that joins the one before it is dropped.
        self.fetches.dedup_by(|next, one| {
            let joins = one.first + one.memory.len() as u64 == next.first
                && one.from.is_none()
                && next.from.is_none()
                && (one.joins && next.joins)
                && Arc::ptr_eq(&one.job, &next.job);
            if joins {
                one.memory.append(&mut next.memory);
                one.piggybacked.append(&mut next.piggybacked);
            }
            joins
        });
        self.writes.dedup_by(|next, one| {
            let joins = (one.first + one.count, one.end) == (next.first, next.offset)
                && (&one.bytes, &next.bytes) == (&None, &None)
                && Arc::ptr_eq(&one.job, &next.job);
            if joins {
                one.count += next.count;
                one.end = next.end;
                one.piggybacked.append(&mut next.piggybacked);
            }
            joins
        });
        self.write_outs.sort_by_key(|one| one.first);
        self.write_outs.dedup_by(|next, one| {
            let joins = one.first + one.data.len() as u64 == next.first
                && (one.joins && next.joins)
                && one.data.len() < write_out_blocks;
            if joins {
                one.data.append(&mut next.data);
            }
            joins
        });
    }
}

impl ClientWrite {
    pub(crate) fn data(&self) -> Vec<Bytes> {
        let all = || self.job.data(self.offset, self.end);
        self.bytes.clone().map_or_else(all, |bytes| vec![bytes])
    }
}
