//! The messages to the servers, in the format of hints.

use std::sync::atomic::Ordering::Relaxed;

use bytes::BytesMut;
use undercroft_hints::{BlockRun, ClientStat, Hint, Tracking};

use super::Gone;
use crate::segment::Segment;
use crate::segment::layout::{PRECISION_PPM, RECALL_PPM};
use crate::table::Table;

/// Evictions whose times differ by more get separate records, each with its own age.
const SAME_TIME_US: u64 = 1000;

/// The tracker's counters for all volumes together. They count granules of 4 KiB, whatever the
/// server's block size is.
pub(super) fn stat_message(segment: &Segment) -> BytesMut {
    let status = segment.status();
    let word = |at: usize| segment.word(at).load(Relaxed);
    let stat = ClientStat {
        reads: status.reads + status.async_reads,
        writes: status.writes + status.async_writes,
        evictions: status.evictions,
        capacity_blocks: Table::new(segment).content().count() as u64,
        tracking: Some(Tracking {
            late_evictions: status.late,
            untold_evictions: status.dropped + status.unsent,
            precision_ppm: word(PRECISION_PPM),
            recall_ppm: word(RECALL_PPM),
        }),
        ..ClientStat::default()
    };
    let mut out = BytesMut::new();
    Hint::ClientStat(Box::new(stat)).put(&mut out);
    out
}

/// Most bytes that an eviction takes in a message.
pub(super) fn message_bytes(gone: &Gone) -> usize {
    // A record with one run, or for each block one with its content.
    let content = gone.content.as_ref().map_or(0, |content| content.len());
    32 * gone.run.count() as usize + content
}

/// A message about these evictions, in order.
pub(super) fn message(gone: &[Gone], now_us: u64, sequence: &mut u32) -> BytesMut {
    let mut out = BytesMut::new();
    let alike = |one: &Gone, two: &Gone| {
        let is_same_time = two.time_us.abs_diff(one.time_us) <= SAME_TIME_US;
        one.flags == two.flags && is_same_time && two.content.is_none()
    };
    let mut rest = gone;
    while let Some(first) = rest.first() {
        if let Some(content) = &first.content {
            let bytes = content.len() / first.run.count() as usize;
            for (n, block) in first.run.blocks().enumerate() {
                let data = content.slice(n * bytes..(n + 1) * bytes);
                Hint::Demote { block, rides: false, data }.put(&mut out);
            }
            rest = &rest[1..];
            continue;
        }
        let count = rest.iter().take_while(|other| alike(first, other)).count();
        let (together, after) = rest.split_at(count);
        let oldest = together.iter().map(|gone| gone.time_us).min().unwrap_or(now_us);
        // A hint may look older than it is, never younger.
        let age = now_us.saturating_sub(oldest).saturating_add(1);
        let age_us = u32::try_from(age).unwrap_or(u32::MAX);
        let runs = joined(together.iter().map(|gone| gone.run));
        Hint::Evict { age_us, sequence: *sequence, flags: first.flags, runs }.put(&mut out);
        *sequence = sequence.wrapping_add(1);
        rest = after;
    }
    out
}

/// Joins adjacent runs.
fn joined(runs: impl Iterator<Item = BlockRun>) -> Vec<BlockRun> {
    let mut list = Vec::<BlockRun>::new();
    for run in runs {
        let together = list.last().filter(|last| last.blocks().end == run.first());
        match together.and_then(|last| BlockRun::new(last.first(), last.count() + run.count())) {
            Some(longer) => {
                list.pop();
                list.push(longer);
            }
            None => list.push(run),
        }
    }
    list
}
