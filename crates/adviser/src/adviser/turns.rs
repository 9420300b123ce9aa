//! What changes in the cells while the adviser runs: policies that take turns, and the size of the
//! cache.

use super::{Adviser, Today};
use crate::cell::{Cell, SETTLING, Setting};
use crate::plan::{COUNTS_BYTES, Plan, placements};
use crate::window::{EPOCHS, Totals};

/// Epochs between two exchanges of policies: the new one's must be worth comparing.
const TURN: u64 = SETTLING as u64 + 2 * EPOCHS as u64;

impl Adviser {
    /// Continues with another size of the cache, in blocks, and with the same sample: the
    /// miniatures keep their blocks, so that they need not be filled again. What was counted is
    /// forgotten. Returns `false`, and changes nothing, if the sample would be too large or much
    /// too small for `budget` bytes; make a new adviser then.
    pub fn resize(&mut self, blocks: u32, budget: u64) -> bool {
        let today = Today { blocks: blocks.max(1), ..self.today.clone() };
        let rates = self.samples.map(|sample| sample.rate());
        let placements = placements(&today.placement);
        let plan = Plan { today: &today, policies: &self.policies, placements: &placements };
        let (cells_bytes, reserved) = (plan.bytes(rates), self.bytes - self.cells_bytes);
        let fits = (budget / 2..=budget).contains(&(cells_bytes + reserved));
        if !fits && rates[0] < 1.0 || cells_bytes + reserved > budget {
            return false;
        }
        let sizes: Vec<_> = (0..self.policies.len()).map(|at| plan.settings(at, rates)).collect();
        let next = |cell: &Cell| {
            let Setting { policy, placement, size, .. } = cell.setting;
            sizes[policy].iter().find(|next| (next.placement, next.size) == (placement, size))
        };
        if !self.cells.iter().all(|cell| next(cell).is_some()) {
            return false;
        }
        for cell in &mut self.cells {
            if let Some(next) = next(cell) {
                cell.resize(next, &self.policies[next.policy]);
            }
        }
        (self.bytes, self.cells_bytes) = (cells_bytes + reserved, cells_bytes);
        self.today = today;
        self.find_today();
        for counted in [&mut self.reads, &mut self.skipped, &mut self.references] {
            *counted = Totals::default();
        }
        self.missed = Totals::default();
        self.is_filling = !self.cells[self.at_today].is_full();
        self.changed = None;
        true
    }

    /// The cells of all policies with today's placement and size.
    fn of_todays_size(&self) -> impl Iterator<Item = &Cell> {
        self.cells.iter().filter(|cell| {
            (cell.setting.placement, cell.setting.blocks) == (self.placement, self.today.blocks)
        })
    }

    /// Replaces the least promising policy by the next one, if it is time.
    pub(super) fn take_turns(&mut self) {
        let is_counted = |cell: &Cell| cell.misses.epochs() == EPOCHS;
        let is_time = self.epochs >= self.turned + TURN && self.of_todays_size().all(is_counted);
        if self.policies.len() <= self.turns || !is_time {
            return;
        }
        let mut rows: Vec<_> = self
            .of_todays_size()
            .map(|cell| (cell.setting.policy, self.miss_ratio_of(cell)))
            .collect();
        rows.sort_by(|one, other| one.1.total_cmp(&other.1));
        let is_kept = |policy: usize| policy == 0 || self.policies[policy].info().name == "lru";
        // The best is the first.
        let last = rows.iter().skip(1).rev().find(|(policy, _)| !is_kept(*policy));
        let Some(&(last, _)) = last else { return };
        self.turned = self.epochs;
        let present = |policy: usize| rows.iter().any(|row| row.0 == policy);
        let others = self.cells.iter().filter(|cell| cell.setting.policy != last);
        let others = others.map(|cell| self.bytes_of(cell, cell.setting.policy)).sum::<u64>();
        let fits = |next: usize| {
            let its = self.cells.iter().filter(|cell| cell.setting.policy == last);
            others + its.map(|cell| self.bytes_of(cell, next)).sum::<u64>() <= self.cells_bytes
        };
        let count = self.policies.len();
        let mut waiting = (self.next..self.next + count).map(|next| next % count);
        let Some(next) = waiting.find(|&next| !present(next) && fits(next)) else { return };
        self.next = (next + 1) % count;
        let (spec, seed) = (self.policies[next].clone(), self.seed);
        self.cells.retain_mut(|cell| {
            // A size in which the policy cannot be had goes until the adviser begins anew.
            cell.setting.policy != last || cell.replace(next, &spec, seed).is_ok()
        });
        self.find_today();
    }

    /// Most bytes that a cell takes with a policy.
    fn bytes_of(&self, cell: &Cell, policy: usize) -> u64 {
        COUNTS_BYTES + cell.setting.bytes(&self.policies[policy])
    }
}
