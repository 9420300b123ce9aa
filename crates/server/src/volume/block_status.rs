//! BLOCK_STATUS: the store's allocation extents, overlaid with the dirty blocks of the cache.
//! Zeroed ranges need no overlay, because the store is told of them at once in every write mode.

use std::sync::Arc;

use undercroft_nbd::{Extent, Failure};
use undercroft_store::Extent as StoreExtent;

use crate::answer::Failed;
use crate::volume::Volume;
use crate::volume::store_state::StoreRequest;

const HOLE: u32 = 1;
const ZERO: u32 = 2;

/// Most extents in one answer, and most dirty blocks examined for it. An answer may cover less than
/// was asked for.
const EXTENTS_MAX: usize = 2048;

impl Volume {
    /// The extents of `base:allocation` from `offset` on: at least one, and at most up to the end
    /// of the range.
    pub(crate) async fn block_status(
        self: Arc<Self>,
        offset: u64,
        length: u64,
        one_extent: bool,
    ) -> Result<Vec<Extent>, Failed> {
        if length == 0 {
            return Err(Failed::new(Failure::Invalid, "the status of no bytes was asked for"));
        }
        let unit = self.geometry.alignment;
        // Dirty blocks are collected before the store is asked, so that a block that is written out
        // meanwhile is in at least one of the two answers.
        let (dirty, length) = self.shards.dirty_ranges(offset, length, EXTENTS_MAX);
        let from = offset / unit * unit;
        let to = (offset + length).next_multiple_of(unit).min(self.geometry.size());
        let store = Arc::clone(&self.store);
        let asked = async move { store.extents(from, to - from).await };
        let extents = self.store_health.ask(StoreRequest::Status, asked).await?;
        let mut status = overlay(&extents, &dirty, from, to);
        clip(&mut status, offset - from, length);
        if status.is_empty() {
            return Err(Failed::new(Failure::Io, "the store knows nothing of this range"));
        }
        status.truncate(if one_extent { 1 } else { EXTENTS_MAX });
        Ok(status)
    }
}

/// The store's extents from byte `from` on, with dirty parts as data; equal neighbours are joined.
fn overlay(extents: &[StoreExtent], dirty: &[(u64, u64)], from: u64, to: u64) -> Vec<Extent> {
    let mut status: Vec<Extent> = Vec::new();
    let mut push = |length: u64, word: u32| match status.last_mut() {
        _ if length == 0 => {}
        Some(last) if last.status == word => last.length += length,
        _ => status.push(Extent { length, status: word }),
    };
    let (mut at, mut dirty) = (from, dirty.iter().peekable());
    for extent in extents {
        let word = if extent.hole { HOLE } else { 0 } | if extent.zero { ZERO } else { 0 };
        let end = at.saturating_add(extent.length).min(to);
        while at < end {
            while dirty.next_if(|&&(_, dirty_end)| dirty_end <= at).is_some() {}
            match dirty.peek() {
                Some(&&(start, dirty_end)) if start <= at => {
                    push(dirty_end.min(end) - at, 0);
                    at = dirty_end.min(end);
                }
                Some(&&(start, _)) if start < end => {
                    push(start - at, word);
                    at = start;
                }
                _ => {
                    push(end - at, word);
                    at = end;
                }
            }
        }
    }
    status
}

/// Removes `skip` bytes from the front, and keeps at most `length`.
fn clip(status: &mut Vec<Extent>, mut skip: u64, mut length: u64) {
    for extent in status.iter_mut() {
        let cut = extent.length.min(skip);
        skip -= cut;
        extent.length = (extent.length - cut).min(length);
        length -= extent.length;
    }
    status.retain(|extent| extent.length > 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dirty_blocks_are_data() {
        let hole = StoreExtent { length: 100, hole: true, zero: true };
        let data = StoreExtent { length: 50, hole: false, zero: false };
        let status = |length, status| Extent { length, status };
        let plain = overlay(&[hole, data], &[], 0, 150);
        assert_eq!(plain, [status(100, 3), status(50, 0)]);
        let over = overlay(&[hole, data], &[(10, 20), (20, 30), (90, 110)], 0, 150);
        assert_eq!(over, [status(10, 3), status(20, 0), status(60, 3), status(60, 0)]);
        // The store tells about more than was asked for.
        let over = overlay(&[hole, data], &[(0, 10)], 1000, 1020);
        assert_eq!(over, [status(20, 3)]);
        let mut clipped = plain;
        clip(&mut clipped, 99, 10);
        assert_eq!(clipped, [status(1, 3), status(9, 0)]);
    }
}
