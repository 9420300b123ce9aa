//! The longer sentences on what was found in a running server.

use super::words::{Words, amount, points, sentence};
use crate::estimate::{Estimate, Verdict};
use crate::figures::{Adapts, CellFigure};

impl Words {
    /// What a placement that adapts does, and what the other choice would do.
    pub(super) fn adapting(&self, now: &Adapts, other: Option<&CellFigure>) -> String {
        let Adapts { name, by_eviction } = *now;
        let (does, instead) = match by_eviction {
            0.0 => ("their access".to_owned(), "eviction"),
            1.0 => ("their eviction".to_owned(), "access"),
            share => {
                let other = if share < 0.5 { "eviction" } else { "access" };
                (format!("their eviction in {:.0} % of the cache", 100.0 * share), other)
            }
        };
        let effect = match other {
            Some(CellFigure { gain, saved, .. }) => {
                format!("at their {instead} it would {}", self.effect(gain, saved))
            }
            None => "without evictions that clients tell, nothing can be compared".to_owned(),
        };
        format!(
            "Placement {name} places blocks at {does} now; {effect}. It goes by its own evidence, \
             which is newer, and not by these figures."
        )
    }

    /// What another placement would change, as a clause.
    pub(super) fn effect(&self, gain: &Estimate, saved: &Estimate) -> String {
        let points = points(gain);
        let effect = match self.verdict(gain) {
            Verdict::Gain => format!("add {points} of read hits"),
            Verdict::Loss => format!("lose {} of read hits", self::points(&gain.times(-1.0))),
            Verdict::Unknown => format!("do to the read hits what is not known ({points})"),
            Verdict::None => format!("not change the read hits ({points})"),
        };
        let saved = saved.times(self.measured.reads_per_s);
        let cost = saved.times(-1.0);
        let disk = if saved.is_above_zero() {
            format!("save {} disk reads a second", amount(&saved))
        } else if cost.is_above_zero() {
            format!("cost {} disk reads a second more", amount(&cost))
        } else {
            "not change the reads from the disk".to_owned()
        };
        format!("{effect}, and {disk}")
    }

    pub(super) fn more_memory(&self, today_blocks: u32, larger: &[CellFigure]) -> String {
        let part = |cell: &CellFigure| {
            let (more, gain) = (self.exact(cell.blocks - today_blocks), points(&cell.gain));
            match self.verdict(&cell.gain) {
                Verdict::Gain => {
                    let worth = self.worth(&cell.gain, &cell.saved);
                    let size = self.exact(cell.blocks);
                    format!(
                        "another {more} would add {gain} of read hits{worth} (set cache={size})"
                    )
                }
                Verdict::Unknown => format!("what another {more} would add is not known ({gain})"),
                Verdict::Loss | Verdict::None => {
                    format!("another {more} would add nothing ({gain})")
                }
            }
        };
        sentence(&larger.iter().map(part).collect::<Vec<_>>().join("; "))
    }

    pub(super) fn less_memory(&self, half: &CellFigure, best: Option<&CellFigure>) -> String {
        let loss = half.gain.times(-1.0);
        let (with, lost) = (self.exact(half.blocks), points(&loss));
        match self.verdict(&loss) {
            Verdict::Unknown => format!("What it would lose with {with} is not known ({lost})."),
            Verdict::Loss | Verdict::None => format!("With {with} it would lose nothing ({lost})."),
            Verdict::Gain => {
                let better =
                    best.map_or(String::new(), |CellFigure { policy, gain, .. }| {
                        match self.verdict(gain) {
                            Verdict::Gain => {
                                format!("; with {policy} it would gain {} even there", points(gain))
                            }
                            Verdict::None => {
                                let loss = points(&gain.times(-1.0));
                                format!("; {policy} would lose nothing there ({loss})")
                            }
                            Verdict::Loss | Verdict::Unknown => String::new(),
                        }
                    });
                format!("With {with} it would lose {lost} of read hits{better}.")
            }
        }
    }

    /// What a gain means for the disk and for those who wait.
    pub(super) fn worth(&self, gain: &Estimate, saved: &Estimate) -> String {
        let reads = saved.times(self.measured.reads_per_s);
        if !reads.is_above_zero() {
            return String::new();
        }
        let disk = format!(", and save {} disk reads a second", amount(&reads));
        match self.measured.miss_costs_s {
            Some(cost) if cost > 0.0 => {
                let shorter = amount(&gain.times(cost * 1e6));
                format!("{disk}; a read would take {shorter} us less on average")
            }
            _ => disk,
        }
    }
}
