//! The search for the policy and size that predict the replies of a cache best.

use std::collections::{HashSet, VecDeque};

use super::emulation::Copy;
use super::source::News;
use undercroft_policy::{Spec, WriteMode};

/// Policies that the cache below may have. A cache with another policy is taken for the most
/// similar one.
pub(super) const POLICIES: [&str; 5] = ["lru", "fifo", "clock", "2q", "mq"];

/// An emulation is judged by this many of the last replies.
const JUDGED: usize = 4096;

/// A policy is certain if it predicts this much more than the best of the other policies.
const CERTAIN: f64 = 0.02;

/// The search stops when it has a size within this share.
const EXACT: f64 = 0.005;

/// The smallest size looked at, in blocks.
const BLOCKS_MIN: u32 = 4;

/// A request and its result.
#[derive(Clone, Copy)]
pub(super) struct Request {
    pub(super) block: u64,
    pub(super) is_write: bool,
    /// Whether it was a hit, if known.
    pub(super) hit: Option<bool>,
}

/// What a cache below seems to be.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// Its policy.
    pub policy: &'static str,
    /// Its size in blocks.
    pub blocks: u32,
    /// Share of the last replies that such a cache would have given too.
    pub agreement: f64,
    /// Whether no other policy comes close.
    pub is_certain: bool,
    /// Whether all larger sizes would have given the same replies: then `blocks` is a lower bound.
    pub is_least: bool,
}

/// An emulation that is being judged.
struct Trial {
    policy: usize,
    blocks: u32,
    copy: Copy,
    at: usize,
    right: u32,
    news: News,
}

/// The search for the best emulation of a history: first all powers of two, then, for each policy,
/// a golden section search between the neighbours of its best power.
pub(super) struct Search {
    history: Vec<Request>,
    /// Requests before this one are not judged.
    judged_from: usize,
    judged: u32,
    mode: WriteMode,
    trial: Option<Trial>,
    /// Powers of two that are still to be tried.
    coarse: Vec<(usize, u32)>,
    /// Agreements, by policy and size.
    scores: Vec<(usize, u32, u32)>,
    /// Ranges of sizes to narrow, after the powers of two.
    sections: Vec<Section>,
    is_fine: bool,
    largest: u32,
}

/// A range of sizes that contains the best of a policy.
struct Section {
    policy: usize,
    from: u32,
    to: u32,
}

impl Search {
    /// `None` if too few replies were known hits or misses, or none was a hit.
    pub(super) fn new(history: &VecDeque<Request>, mode: WriteMode) -> Option<Self> {
        let history: Vec<Request> = history.iter().copied().collect();
        let is_judged = |r: &Request| !r.is_write && r.hit.is_some();
        let mut left = JUDGED;
        let from = history.iter().rposition(|request| {
            left -= usize::from(is_judged(request));
            left == 0
        });
        // The first requests only warm up the emulations.
        let judged_from = from.unwrap_or(0).max(history.len() / 4);
        let judged = history[judged_from..].iter().filter(|r| is_judged(r)).count() as u32;
        let fast = history[judged_from..].iter().filter(|r| r.hit == Some(true)).count();
        if judged < JUDGED as u32 / 8 || fast == 0 {
            return None;
        }
        let distinct: HashSet<u64> = history.iter().map(|request| request.block).collect();
        let largest = (distinct.len() as u32).next_power_of_two().max(BLOCKS_MIN);
        let sizes = std::iter::successors(Some(BLOCKS_MIN), |&blocks| Some(blocks * 2));
        let sizes: Vec<u32> = sizes.take_while(|&blocks| blocks <= largest).collect();
        let all = (0..POLICIES.len()).flat_map(|p| sizes.iter().map(move |&blocks| (p, blocks)));
        let coarse = all.collect();
        Some(Self {
            history,
            judged_from,
            judged,
            mode,
            trial: None,
            coarse,
            scores: Vec::new(),
            sections: Vec::new(),
            is_fine: false,
            largest,
        })
    }

    /// Continues for a number of steps. Returns whether the search is over.
    pub(super) fn step(&mut self, steps: u32) -> bool {
        let mut left = steps;
        while left > 0 {
            if self.trial.is_none() && !self.begin_trial() {
                return true;
            }
            let Some(trial) = &mut self.trial else { return true };
            let end = self.history.len().min(trial.at.saturating_add(left as usize));
            left -= (end - trial.at) as u32;
            for at in trial.at..end {
                let Request { block, is_write, hit } = self.history[at];
                let foretold = trial.copy.request(block, is_write, &mut trial.news);
                trial.news.blocks.clear();
                let is_right = !is_write && hit == Some(foretold) && at >= self.judged_from;
                trial.right += u32::from(is_right);
            }
            trial.at = end;
            if end == self.history.len() {
                self.scores.push((trial.policy, trial.blocks, trial.right));
                self.trial = None;
            }
        }
        false
    }

    /// Begins the next emulation; false if none is left.
    fn begin_trial(&mut self) -> bool {
        if let Some((policy, blocks)) = self.coarse.pop() {
            return self.try_this(policy, blocks);
        }
        if !std::mem::replace(&mut self.is_fine, true) {
            self.sections = (0..POLICIES.len()).filter_map(|p| self.section(p)).collect();
        }
        while let Some(section) = self.sections.last() {
            match self.next_in(section) {
                Next::Try(blocks) => {
                    let policy = section.policy;
                    return self.try_this(policy, blocks);
                }
                Next::Narrow(from, to) => {
                    if let Some(section) = self.sections.last_mut() {
                        (section.from, section.to) = (from, to);
                    }
                }
                Next::Done => _ = self.sections.pop(),
            }
        }
        false
    }

    fn try_this(&mut self, policy: usize, blocks: u32) -> bool {
        let spec = Spec::parse(POLICIES[policy]).ok();
        let copy = spec.and_then(|spec| Copy::new(&spec, blocks, self.mode, None).ok());
        self.trial =
            copy.map(|copy| Trial { policy, blocks, copy, at: 0, right: 0, news: News::default() });
        self.trial.is_some()
    }

    /// The range between the neighbours of the best power of two of a policy.
    fn section(&self, policy: usize) -> Option<Section> {
        let best = self.best_of(policy)?.0;
        Some(Section {
            policy,
            from: (best / 2).max(1),
            to: best.saturating_mul(2).min(self.largest),
        })
    }

    /// The best size of a policy, the smallest among equals, and its score.
    fn best_of(&self, policy: usize) -> Option<(u32, u32)> {
        let of = self.scores.iter().filter(|(p, ..)| *p == policy);
        of.map(|&(_, blocks, right)| (blocks, right)).max_by(|a, b| (a.1, b.0).cmp(&(b.1, a.0)))
    }

    fn score(&self, policy: usize, blocks: u32) -> Option<u32> {
        let is_it = |&&(p, b, _): &&(usize, u32, u32)| (p, b) == (policy, blocks);
        self.scores.iter().find(is_it).map(|&(.., right)| right)
    }

    fn next_in(&self, section: &Section) -> Next {
        let &Section { policy, from, to } = section;
        if f64::from(to - from) <= (EXACT * f64::from(to)).max(2.0) {
            return Next::Done;
        }
        let golden = f64::from(to - from) * 0.381_966;
        let (low, high) = (from + golden as u32, to - golden as u32);
        match (self.score(policy, low), self.score(policy, high)) {
            (None, _) => Next::Try(low),
            (_, None) => Next::Try(high),
            (Some(a), Some(b)) if a >= b && high < to => Next::Narrow(from, high),
            (Some(_), Some(_)) if low > from => Next::Narrow(low, to),
            _ => Next::Done,
        }
    }

    pub(super) fn result(&self) -> Option<Candidate> {
        let best = |policy: usize| self.best_of(policy).map(|(b, right)| (right, policy, b));
        let mut all: Vec<_> = (0..POLICIES.len()).filter_map(best).collect();
        // Among equals, the policy that is first in the list.
        all.sort_by_key(|&(right, policy, _)| (std::cmp::Reverse(right), policy));
        let (right, policy, blocks) = *all.first()?;
        let share = |right: u32| f64::from(right) / f64::from(self.judged);
        let next = all.get(1).map_or(0.0, |&(right, ..)| share(right));
        Some(Candidate {
            policy: POLICIES[policy],
            blocks,
            agreement: share(right),
            is_certain: share(right) - next >= CERTAIN,
            is_least: self.score(policy, self.largest) == Some(right),
        })
    }
}

enum Next {
    Try(u32),
    Narrow(u32, u32),
    Done,
}
