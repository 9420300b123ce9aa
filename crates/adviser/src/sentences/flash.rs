//! What is said of flash below memory.

use undercroft_text::percent;

use crate::estimate::Verdict;
use crate::finding::FlashGain;

use super::Words;
use super::words::points;

/// Blocks written to flash for a read that it serves, beyond which it works more than it spares.
const DEAR: f64 = 2.0;

impl Words {
    /// What flash adds, or that it is not worth it.
    pub(super) fn flash(&self, gain: &FlashGain) -> String {
        let FlashGain { difference, written_per_hit, is_filled, .. } = gain;
        let (size, memory) = (self.size(gain.flash_blocks), self.name(&gain.memory));
        let (more, verdict) = (self.compared(difference), self.verdict(difference));
        let is_dear = *written_per_hit > DEAR;
        let is_worth_it = verdict == Verdict::Gain && !is_dear;
        let is_vague = self.is_server && verdict == Verdict::Unknown && !is_dear;
        let is_known = *is_filled && !is_vague;
        if !is_worth_it && !is_known {
            return format!(
                "Whether flash would be worth it is not known yet: {size} of it below {memory} \
                 would have added {} of read hits so far, for {written_per_hit:.1} blocks written \
                 for each read that it served.",
                points(difference)
            );
        }
        if !is_worth_it {
            return format!(
                "Flash is not worth it: {size} of it below {memory} would serve {more} of the \
                 reads, for {written_per_hit:.1} blocks written for each that it serves."
            );
        }
        let needs = gain.lru_blocks.map_or(String::new(), |blocks| {
            format!(" LRU in memory alone needs {} to serve as much.", self.size(blocks))
        });
        let later = if *is_filled { "" } else { " It is being filled, and may add more later." };
        format!(
            "{size} of flash below {memory} would serve {} of the reads together, {more} than the \
             memory alone, for {written_per_hit:.2} blocks written for each that flash \
             serves.{needs}{later} It pays only above a disk that is slower than flash.",
            percent(gain.read_hit_ratio)
        )
    }
}
