//! The combinations of a sweep. A scheme that moves blocks by hints decides the order of blocks
//! itself, so it is combined only with the policies that its levels accept.

use std::fmt;

use undercroft_cache::WriteMode;
use undercroft_cache::movement::{Build, SchemeSpec, Topology};
use undercroft_cache::placement::Placement;
use undercroft_cache::policy::Spec;

use crate::{CostSpec, DemotionCost, Error, LevelSpec, Ratio, Size};

/// The combinations to simulate.
#[derive(Clone)]
pub struct Plan {
    /// A level above the one that varies.
    pub upper: Option<LevelSpec>,
    /// All levels vary, in proportion; the sizes are those of the first. Not with `upper`.
    pub ratio: Option<Ratio>,
    /// Sizes of the level that varies.
    pub sizes: Vec<Size>,
    /// Policies of the level that varies; under a ratio, of all levels.
    pub policies: Vec<Spec>,
    /// Placements of the level that varies.
    pub placements: Vec<Rule>,
    /// Times and costs.
    pub times: Times,
    /// What writes do.
    pub write_mode: WriteMode,
}

/// What decides where blocks are kept.
#[derive(Clone, Debug, PartialEq)]
pub enum Rule {
    /// A placement below the first level.
    Placement(Placement),
    /// A scheme that moves blocks between the levels by hints.
    Scheme(SchemeSpec),
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Placement(placement) => placement.fmt(f),
            Self::Scheme(scheme) => scheme.fmt(f),
        }
    }
}

/// What requests and demotions cost, and the seed of schemes.
#[derive(Clone, Debug, PartialEq)]
pub struct Times {
    /// Times of the levels and the disk; `None`: the default ones.
    pub costs: Option<CostSpec>,
    /// What a demotion adds under a scheme.
    pub demotions: DemotionCost,
    /// Seed of the random numbers of a scheme.
    pub seed: u64,
}

impl Default for Times {
    fn default() -> Self {
        Self { costs: None, demotions: DemotionCost::default(), seed: 42 }
    }
}

impl Plan {
    /// The policies and placements that go together, in order.
    ///
    /// # Errors
    /// A scheme accepts none of the policies; the message gives the reason.
    pub fn pairs(&self) -> Result<Vec<(&Spec, &Rule)>, Error> {
        for rule in &self.placements {
            let refused = self.policies.iter().map(|policy| self.fits(policy, rule));
            let refused: Vec<Error> = refused.filter_map(Result::err).collect();
            if refused.len() == self.policies.len() {
                return refused.into_iter().next().map_or(Ok(Vec::new()), Err);
            }
        }
        let of = |policy| self.placements.iter().map(move |rule| (policy, rule));
        let all = self.policies.iter().flat_map(of);
        Ok(all.filter(|(policy, rule)| self.fits(policy, rule).is_ok()).collect())
    }

    /// Checks that a scheme accepts levels of a policy.
    fn fits(&self, policy: &Spec, rule: &Rule) -> Result<(), Error> {
        let Rule::Scheme(scheme) = rule else { return Ok(()) };
        // The check does not depend on sizes.
        let smallest = LevelSpec { size: Size::Blocks(1), policy: policy.clone() };
        let levels = self.levels(smallest);
        if let Some(other) = levels.iter().find(|level| level.policy != *policy) {
            return Err(Error::Request(format!(
                "placement {scheme} over levels of {} and of {policy}: it decides for all levels \
                 together; write the same for each",
                other.policy
            )));
        }
        let topology = line(&vec![1; levels.len()])?;
        scheme.build(Build { policy: &policy.to_string(), ..Build::new(&topology) })?;
        Ok(())
    }

    /// All levels, with `level` as the one that varies.
    pub(super) fn levels(&self, level: LevelSpec) -> Vec<LevelSpec> {
        match &self.ratio {
            Some(ratio) => ratio.levels(&level),
            None => self.upper.iter().cloned().chain([level]).collect(),
        }
    }
}

pub(super) fn line(capacities: &[u32]) -> Result<Topology, Error> {
    Topology::line(capacities).map_err(|e| Error::Request(e.to_string()))
}
