//! The heads of pages that are read asynchronously. The end of such a read cannot be seen, so the
//! heads are taken a while after its submission. A head that is taken too early is wrong; then the
//! server refuses the content.

use std::collections::VecDeque;

use crate::record::HeadDue;
use crate::table::Table;
use crate::tracker::Tracker;

/// How long after its submission a read is taken to have ended, in microseconds.
const ENDED_US: u64 = 300_000;

/// Most heads that wait.
const WAITING_MAX: usize = 1 << 16;

/// The heads that wait, in the order of their reads.
#[derive(Default)]
pub(super) struct Heads(VecDeque<HeadDue>);

impl Heads {
    pub(super) fn add(&mut self, due: HeadDue) {
        if self.0.len() < WAITING_MAX {
            self.0.push_back(due);
        }
    }

    /// Takes the heads of reads that have ended, of blocks that are still in their frames.
    pub(super) fn take(&mut self, tracker: &Tracker, now_us: u64) {
        while let Some(&HeadDue { place, block, time_us }) = self.0.front() {
            if time_us.saturating_add(ENDED_US) > now_us {
                return;
            }
            self.0.pop_front();
            let table = Table::new(tracker.segment());
            let held = table.held(place);
            let waits = held.is_some_and(|(held, head)| held == block && head.is_none());
            // Private memory of another process cannot be read here.
            if waits && tracker.space(place.address()) == Some(place.space()) {
                table.set_head(place, block, tracker.head_of(place));
            }
        }
    }
}
