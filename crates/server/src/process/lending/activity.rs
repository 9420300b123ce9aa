//! What a volume did in the last while, and whether it is idle or could use more room: a state
//! machine that is told its counters once a period.

use std::collections::VecDeque;

/// A volume is idle with fewer references than its share has blocks, divided by this; it needs as
/// many misses to get more room.
const FEW: u64 = 100;

/// The counters of a volume, which only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counted {
    /// Blocks that clients read and wrote.
    pub(super) references: u64,
    /// Those that were not resident, without those that pass the cache as part of a stream.
    pub(super) misses: u64,
}

/// What was counted at the ends of the last periods.
#[derive(Debug, Default)]
pub(super) struct Activity {
    counted: VecDeque<Counted>,
    /// Periods that count.
    window: usize,
}

impl Activity {
    /// Takes the counters at the end of a period; the last `window` periods count.
    pub(super) fn note(&mut self, now: Counted, window: usize) {
        self.window = window.max(1);
        // A volume that was opened anew counts from 0.
        self.counted.retain(|before| before.references <= now.references);
        self.counted.push_back(now);
        while self.counted.len() > self.window + 1 {
            self.counted.pop_front();
        }
    }

    /// Whether the volume, with a share of so many blocks, had few references in the whole window.
    pub(super) fn is_idle(&self, share_blocks: u64) -> bool {
        self.counted.len() > self.window
            && self.since(|counted| counted.references) < few(share_blocks)
    }

    /// Whether it missed more than a few blocks in the window.
    pub(super) fn misses_much(&self, share_blocks: u64) -> bool {
        self.since(|counted| counted.misses) >= few(share_blocks)
    }

    /// How much a counter has grown in the window.
    fn since(&self, of: fn(&Counted) -> u64) -> u64 {
        let ends = self.counted.front().zip(self.counted.back());
        ends.map_or(0, |(first, last)| of(last).saturating_sub(of(first)))
    }
}

/// References or misses that are few for a share of so many blocks.
fn few(share_blocks: u64) -> u64 {
    (share_blocks / FEW).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_is_idle_after_the_whole_window_and_awake_at_once() {
        let mut activity = Activity::default();
        let mut now = Counted { references: 7_000, misses: 7_000 };
        let mut pass = |activity: &mut Activity, references, misses| {
            now.references += references;
            now.misses += misses;
            activity.note(now, 5);
        };
        // What was counted before is not of this window.
        pass(&mut activity, 0, 0);
        assert!(!activity.misses_much(1000));
        for period in 0..5 {
            assert!(!activity.is_idle(1000), "period {period}");
            pass(&mut activity, 1, 1);
        }
        assert!(activity.is_idle(1000));
        assert!(!activity.is_idle(100), "five are many for a small cache");
        pass(&mut activity, 10, 0);
        assert!(!activity.is_idle(1000), "ten are a hundredth");
        for period in 0..5 {
            assert!(!activity.is_idle(1000), "period {period}");
            pass(&mut activity, 0, 0);
        }
        assert!(activity.is_idle(1000));
        pass(&mut activity, 900, 10);
        assert!(
            !activity.is_idle(1000) && activity.misses_much(1000) && !activity.misses_much(2000)
        );
        // A shorter window forgets.
        activity.note(now, 1);
        assert!(activity.is_idle(1000) && !activity.misses_much(1000));
        // So does a volume that was opened anew, which counts from 0.
        activity.note(Counted::default(), 1);
        assert!(!activity.is_idle(1000) && !activity.misses_much(1000));
        activity.note(Counted { references: 50, misses: 20 }, 1);
        assert!(!activity.is_idle(1000) && activity.misses_much(1000));
    }
}
