//! What is said of flash below memory.

use undercroft_text::percent;

use crate::estimate::Verdict;
use crate::finding::FlashGain;

use super::Words;

/// Blocks written to flash for a read that it serves, beyond which it works more than it spares.
const DEAR: f64 = 2.0;

impl Words {
    /// What flash adds, or that it is not worth it.
    pub(super) fn flash(&self, gain: &FlashGain) -> String {
        let FlashGain { difference, written_per_hit, .. } = gain;
        let (size, memory) = (self.size(gain.flash_blocks), self.name(&gain.memory));
        let more = self.compared(difference);
        if self.verdict(difference) != Verdict::Gain || *written_per_hit > DEAR {
            return format!(
                "Flash is not worth it: {size} of it below {memory} would serve {more} of the \
                 reads, for {written_per_hit:.1} blocks written for each that it serves."
            );
        }
        let needs = gain.lru_blocks.map_or(String::new(), |blocks| {
            format!(" LRU in memory alone needs {} to serve as much.", self.size(blocks))
        });
        format!(
            "{size} of flash below {memory} would serve {} of the reads together, {more} than the \
             memory alone, for {written_per_hit:.2} blocks written for each that flash \
             serves.{needs} It pays only above a disk that is slower than flash.",
            percent(gain.read_hit_ratio)
        )
    }
}
