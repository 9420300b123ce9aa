//! Which blocks entered a shard and left it, for clients that go by what the cache holds.
//!
//! Not here: what they are told (`volume/feed.rs`).

use undercroft_level::Frame;

use crate::shard::event::Event;

/// The blocks that entered and left a shard since the last question.
#[derive(Debug, Default)]
pub(crate) struct ContentLog {
    pub(crate) log: Vec<Change>,
    /// Most changes that are kept.
    pub(crate) most: usize,
    /// Whether changes are missing.
    pub(crate) is_lost: bool,
    /// While there is a summary: a bit for each slot whose block is in it, or will be when the log
    /// is taken.
    pub(crate) summarized: Option<Vec<u64>>,
}

/// A block that entered or left: its number shifted left by two; the lowest bit is set if it
/// entered, the next one if it left and was in the summary.
pub(crate) type Change = u64;

impl ContentLog {
    #[inline(always)]
    pub(super) fn watch(&mut self, event: &Event<'_>) {
        match *event {
            Event::Entered { block, slot } => self.note(block, slot, true),
            Event::Left { block, slot, .. } => self.note(block, slot, false),
            // Who goes through the blocks by their handles must begin anew.
            Event::Replaced => self.is_lost = true,
            Event::Activated { .. }
            | Event::Placed { .. }
            | Event::Gone { .. }
            | Event::Returned { .. }
            | Event::Writes { .. }
            | Event::Changes { .. }
            | Event::Changed { .. }
            | Event::Reads { .. }
            | Event::WritesOut { .. }
            | Event::Written { .. }
            | Event::Unknown { .. }
            | Event::Idle { .. }
            | Event::Filled { .. }
            | Event::RangeBegins { .. }
            | Event::Replaces { .. }
            | Event::RangeEnds { .. }
            | Event::ContentsUnknown
            | Event::Slots(_) => {}
        }
    }

    /// Records that a block entered a slot or left it.
    fn note(&mut self, block: u64, slot: Frame, came: bool) {
        if self.log.len() == self.most {
            self.is_lost = true;
            self.log.clear();
        }
        let was_in = self.set_summarized(slot, came);
        self.log.push(block << 2 | u64::from(was_in) << 1 | u64::from(came));
    }

    /// Notes whether the block in a slot is in the summary. Returns whether it was before.
    pub(crate) fn set_summarized(&mut self, slot: Frame, is_in: bool) -> bool {
        let Some(bits) = &mut self.summarized else { return false };
        let (word, bit) = (slot as usize / 64, 1 << (slot % 64));
        if word >= bits.len() {
            bits.resize(word + 1, 0);
        }
        let was_in = bits[word] & bit != 0;
        bits[word] = if is_in { bits[word] | bit } else { bits[word] & !bit };
        was_in
    }
}
