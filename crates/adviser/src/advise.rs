//! What the figures of a volume show: findings. A difference within its error is none.
//!
//! Not here: what is said of a finding (`sentences.rs`), and memory that other volumes could use
//! (`between.rs`).

use crate::estimate::{SMALL_IN_SERVERS, SMALL_IN_TRACES, Verdict};
use crate::figures::{CellFigure, Figures, State};
use crate::finding::{Advice, Assumption, Choice, Finding, FlashGain};

/// What the figures of a volume show, the most useful first.
pub fn advise(figures: &Figures) -> Advice {
    let mut advice = Advice::default();
    advice.findings.extend(figures.why.clone().map(|why| match figures.state {
        State::Changed => Finding::Changed { why },
        _ => Finding::NotYet { why },
    }));
    if figures.state == State::Learning {
        return advice;
    }
    let Some(today) = figures.today().filter(|_| figures.references > 0) else {
        let why = "of the blocks in the sample none was read lately".to_owned();
        advice.findings.push(Finding::NotYet { why });
        return advice;
    };
    let cells = Cells { figures, today };
    let memory = [cells.policy(), cells.placement(), cells.more_memory(), cells.less_memory()];
    advice.findings.extend(memory.into_iter().flatten().chain(cells.flash()));
    advice.assumptions = cells.assumptions();
    advice
}

/// The cells of a volume, and that of today.
struct Cells<'a> {
    figures: &'a Figures,
    today: &'a CellFigure,
}

impl<'a> Cells<'a> {
    /// The best cell among those that `is_one` chooses, without that of today.
    fn best(&self, is_one: impl Fn(&CellFigure) -> bool) -> Option<&'a CellFigure> {
        let cells = self.figures.cells.iter().filter(|cell| !cell.is_today && is_one(cell));
        cells.max_by(|one, other| one.gain.value.total_cmp(&other.gain.value))
    }

    /// The cell of another size, with today's policy and placement.
    fn of_size(&self, blocks: u32) -> Option<&'a CellFigure> {
        let today = (&self.today.policy, &self.today.placement);
        let is_it =
            |cell: &&CellFigure| cell.blocks == blocks && (&cell.policy, &cell.placement) == today;
        self.figures.cells.iter().find(is_it)
    }

    fn choice(&self, cell: &CellFigure) -> Choice {
        Choice {
            policy: cell.policy.clone(),
            placement: cell.placement.clone(),
            capacity_blocks: cell.blocks,
            read_hit_ratio: cell.hits.value,
            disk_reads: (cell.disk.value * self.figures.reads as f64).max(0.0) as u64,
        }
    }

    fn policy(&self) -> Option<Finding> {
        let today = self.today;
        let is_policy =
            |cell: &CellFigure| (cell.blocks, &cell.placement) == (today.blocks, &today.placement);
        let of = |verdict| {
            self.best(|cell| is_policy(cell) && cell.gain.verdict(SMALL_IN_SERVERS) == verdict)
        };
        let base = self.choice(today);
        if let Some(best) = of(Verdict::Gain) {
            return Some(Finding::PolicyGains {
                choice: self.choice(best),
                base,
                difference: best.gain,
                saved: best.saved,
                equals: Vec::new(),
                lru_blocks: None,
                sizes: Vec::new(),
            });
        }
        let best = of(Verdict::Unknown).or_else(|| self.best(is_policy))?;
        Some(Finding::NoPolicyGains { choice: self.choice(best), base, difference: best.gain })
    }

    fn placement(&self) -> Option<Finding> {
        let today = self.today;
        let other = self.best(|cell| {
            (cell.blocks, &cell.policy) == (today.blocks, &today.policy)
                && cell.placement != today.placement
        });
        if let Some(now) = self.figures.adapts {
            return Some(Finding::Adapting { now, other: other.cloned() });
        }
        other.map(|other| Finding::Placement {
            choice: self.choice(other),
            base: self.choice(today),
            hits: other.gain,
            disk: other.saved.times(-1.0),
        })
    }

    fn more_memory(&self) -> Option<Finding> {
        let today_blocks = self.today.blocks;
        let sizes = [2, 4].map(|factor| today_blocks.saturating_mul(factor));
        let larger: Vec<_> = sizes.iter().filter_map(|&size| self.of_size(size)).cloned().collect();
        (!larger.is_empty()).then_some(Finding::MoreMemory { today_blocks, larger })
    }

    fn less_memory(&self) -> Option<Finding> {
        let half = self.of_size(self.today.blocks / 2)?;
        let place = (half.blocks, &self.today.placement);
        let best = self.best(|cell| (cell.blocks, &cell.placement) == place);
        Some(Finding::LessMemory { half: half.clone(), best: best.cloned() })
    }

    /// The smallest flash that gains nearly as much as any: what would not matter for a trace,
    /// which is known better, does not matter here.
    fn flash(&self) -> Option<Finding> {
        let (today, all) = (self.today, &self.figures.flash);
        let most = all.iter().map(|flash| flash.gain.value).fold(0.0, f64::max);
        let best = all.iter().find(|flash| flash.gain.value >= most - SMALL_IN_TRACES)?;
        let read_hit_ratio = (today.hits.value + best.gain.value).min(1.0);
        let serves = |cell: &&CellFigure| {
            (cell.policy.as_str(), &cell.placement) == ("lru", &today.placement)
                && cell.hits.value >= read_hit_ratio
        };
        let lru = self.figures.cells.iter().filter(serves).map(|cell| cell.blocks).min();
        // Without misses there is nothing to wait for.
        let can_gain = 1.0 - today.hits.value > SMALL_IN_SERVERS;
        Some(Finding::Flash(FlashGain {
            memory: self.choice(today),
            flash_blocks: best.blocks,
            read_hit_ratio,
            difference: best.gain,
            written_per_hit: best.written_per_hit,
            lru_blocks: lru,
            is_filled: !can_gain || all.iter().all(|flash| flash.is_filled),
        }))
    }

    fn assumptions(&self) -> Vec<Assumption> {
        let Figures { rate, skipped_share: share, misses_hints, reads, .. } = *self.figures;
        let is_unasked = self.today.placement == "access" && self.figures.adapts.is_none();
        let is_larger = |cell: &CellFigure| cell.blocks > self.today.blocks;
        let mut all = vec![Assumption::Lately { reads, rate }];
        all.extend((share > 0.005).then_some(Assumption::Skipped { share }));
        all.extend(match misses_hints {
            true => Some(Assumption::EvictionsUntold),
            false => is_unasked.then_some(Assumption::EvictionsUnasked),
        });
        let is_filling = self.figures.cells.iter().any(|cell| is_larger(cell) && !cell.is_full);
        all.extend(is_filling.then_some(Assumption::NotFilled));
        all
    }
}
