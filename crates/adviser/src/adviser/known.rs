//! What the adviser knows at a moment: the figures of all cells, worked out from their counts.

use std::ops::Range;

use super::Adviser;
use crate::GROUPS;
use crate::below::BelowMemory;
use crate::cell::{Cell, Setting};
use crate::control::{Known, OfSize, Sampled};
use crate::estimate::Estimate;
use crate::figures::{Adapts, CellFigure, Figures, FlashFigure, State};
use crate::window::{IN_TURNOVER, Window};

impl Adviser {
    /// What is known now.
    pub fn figures(&self) -> Figures {
        let kept = self.reads.epochs();
        let reads = self.reads.sum(0, kept);
        let since = |epoch: u64| self.epochs - epoch < u64::from(IN_TURNOVER);
        let (state, why) = match (self.is_filling, self.changed) {
            (true, _) => (State::Learning, Some(self.filled())),
            (false, Some(epoch)) if since(epoch) => {
                let why = format!(
                    "the workload has changed; seen of it: {kept} of {IN_TURNOVER} quarters of a \
                     turnover of the cache"
                );
                (State::Changed, Some(why))
            }
            (false, _) if (kept as u32) < IN_TURNOVER => {
                let why = format!("seen: {kept} of {IN_TURNOVER} quarters of a turnover");
                (State::Learning, Some(why))
            }
            (false, _) => (State::Ready, None),
        };
        let skipped = self.skipped.sum(0, kept) + self.skipped.now;
        let all = (reads + self.reads.now + skipped).max(1);
        let skipped_share = skipped as f64 / all as f64;
        let today = &self.cells[self.at_today];
        // A policy that has just begun has too few epochs, or none with reads.
        let least = kept.min(IN_TURNOVER as usize).max(1);
        let cells = self.cells.iter().filter(|cell| {
            let epochs = cell.misses.epochs();
            epochs >= least && self.reads.sum(0, epochs) > 0
        });
        let misses_hints = self.heard.as_ref().is_some_and(|heard| !heard.has_evictions());
        let cells = cells
            .filter(|cell| !misses_hints || cell.setting.placement == self.placement)
            .map(|cell| self.figure(cell, today))
            .collect();
        Figures {
            state,
            why,
            cells,
            flash: self.flash(today),
            epochs: self.epochs,
            kept,
            reads,
            references: self.references.sum(0, kept),
            rate: self.sample().rate(),
            skipped_share,
            bytes: self.bytes,
            misses_hints,
            adapts: self.adapting.map(|now| Adapts {
                name: self.today.placement.name(),
                by_eviction: now.by_eviction,
            }),
        }
    }

    fn figure(&self, cell: &Cell, today: &Cell) -> CellFigure {
        let epochs = cell.misses.epochs();
        let (own, its) = (self.of_size(cell), self.of_size(today));
        let of =
            |windows: &[&Window], size| self.sampled(windows, size, epochs, cell.setting.depth);
        let misses = of(&[&cell.misses], own);
        let disk = of(&[&cell.misses, &cell.reloads], own);
        let today_misses = of(&[&today.misses], its);
        let gain = today_misses.minus(&misses);
        let saved = of(&[&today.misses, &today.reloads], its).minus(&disk);
        let estimate = self.corrected(today_misses, epochs);
        let (misses, gain) = (estimate(&misses), estimate(&gain));
        // Only what misses today can be gained.
        let most = estimate(&today_misses).value.clamp(0.0, 1.0);
        let Setting { policy, placement, blocks, .. } = cell.setting;
        CellFigure {
            policy: self.policies[policy].to_string(),
            placement: placement.to_string(),
            blocks,
            is_today: std::ptr::eq(cell, today),
            hits: Estimate { value: (1.0 - misses.value).clamp(0.0, 1.0), ..misses },
            gain: Estimate { value: gain.value.clamp(most - 1.0, most), ..gain },
            disk: estimate(&disk),
            saved: estimate(&saved),
            is_full: cell.is_full(),
        }
    }

    /// The miss ratio of a cell, or of one with flash, in some epochs.
    pub(super) fn misses(&self, misses: &Window, its: &Setting, epochs: Range<usize>) -> Estimate {
        let groups = misses.by_group(epochs.clone(), its.depth);
        let reads = self.reads.sum(epochs.start, epochs.end);
        Sampled::new(&groups, reads, its.rate, OfSize::default()).estimate()
    }

    /// The miss ratio of a cell in all epochs that it has.
    pub(super) fn miss_ratio_of(&self, cell: &Cell) -> f64 {
        self.misses(&cell.misses, &cell.setting, 0..cell.misses.epochs()).value
    }

    /// What turns ratios of the last epochs to figures: it corrects them by what the cache itself
    /// counted, if that is known. `today`: what today's miniature says of the same.
    fn corrected(&self, today: Sampled, epochs: usize) -> impl Fn(&Sampled) -> Estimate {
        let (missed, reads) = (self.missed.sum(0, epochs), self.reads.sum(0, epochs));
        let known = (missed.is_finite() && reads > 0)
            .then(|| Known { sampled: today, truth: missed / reads as f64 });
        move |sampled| match &known {
            Some(known) => sampled.corrected(known).estimate(),
            None => sampled.estimate(),
        }
    }

    /// The figures of flash below today's memory.
    fn flash(&self, today: &Cell) -> Vec<FlashFigure> {
        let Setting { blocks, rate, depth, .. } = today.setting;
        let epochs = today.misses.epochs();
        if self.reads.sum(0, epochs) == 0 {
            return Vec::new();
        }
        let sampled = |window: &Window, size| self.sampled(&[window], size, epochs, depth);
        let misses = sampled(&today.misses, self.of_size(today));
        let estimate = self.corrected(misses, epochs);
        let most = estimate(&misses).value.clamp(0.0, 1.0);
        let count = |window: &Window| window.by_group(0..epochs, depth).iter().sum::<i64>();
        let of = |flash: &BelowMemory| {
            let blocks = blocks.saturating_mul(flash.times);
            let ratio = |its: &BelowMemory| self.misses(&its.misses, &today.setting, 0..epochs);
            let points = today.flash.iter().map(|its| (its.times, ratio(its).value));
            let slope = slope((flash.times, ratio(flash).value), points);
            let both = sampled(&flash.misses, OfSize { slope, blocks, rate });
            let gain = estimate(&misses.minus(&both));
            let hits = (count(&today.misses) - count(&flash.misses)).max(1);
            FlashFigure {
                blocks,
                gain: Estimate { value: gain.value.clamp(0.0, most), ..gain },
                written_per_hit: flash.written.sum(0, epochs) as f64 / hits as f64,
                is_filled: flash.is_filled(),
            }
        };
        today.flash.iter().map(of).collect()
    }

    /// What windows of a cell counted in the last epochs about the blocks of the sample `depth`.
    fn sampled(&self, windows: &[&Window], size: OfSize, epochs: usize, depth: u8) -> Sampled {
        let mut groups = [0; GROUPS];
        for window in windows {
            let sum = window.by_group(0..epochs, depth);
            groups.iter_mut().zip(sum).for_each(|(group, count)| *group += count);
        }
        let rate = self.samples[usize::from(depth)].rate();
        Sampled::new(&groups, self.reads.sum(0, epochs), rate, size)
    }

    /// How the miss ratio of a cell depends on its size.
    fn of_size(&self, cell: &Cell) -> OfSize {
        let Setting { policy, placement, blocks, rate, .. } = cell.setting;
        let others = self
            .cells
            .iter()
            .filter(|other| (other.setting.policy, other.setting.placement) == (policy, placement));
        let points = others.map(|other| (other.setting.blocks, self.miss_ratio_of(other)));
        let slope = slope((blocks, self.miss_ratio_of(cell)), points);
        OfSize { slope, blocks, rate }
    }

    /// How full today's miniature is, in words.
    fn filled(&self) -> String {
        let today = &self.cells[self.at_today];
        let share = 100 * u64::from(today.len()) / u64::from(today.setting.miniature);
        format!("the simulated cache of today's size is filled to {share} %")
    }
}

/// How fast a miss ratio falls at a size: sizes are doublings, and the next ones show the curve.
fn slope((size, ratio): (u32, f64), points: impl Iterator<Item = (u32, f64)>) -> f64 {
    let slope = |(other, its): (u32, f64)| {
        let times = f64::from(other) / f64::from(size);
        let is_next = (0.4..0.6).contains(&times) || (1.9..2.1).contains(&times);
        is_next.then(|| (ratio - its).abs() / times.ln().abs())
    };
    points.filter_map(slope).fold(0.0, f64::max)
}
