//! The combinations of a sweep. A scheme that moves blocks by hints decides the order of blocks
//! itself, so it is combined only with the policies that its levels accept.

use undercroft_policy::{Spec, policies};
use undercroft_schemes::{Build, Topology};

use crate::{Config, Error, FlashLevel, LevelSpec, Ratio, Rule, Size};

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
    /// Flash levels below the lowest level, one in each run; none: there is no flash.
    pub flash: Vec<FlashLevel>,
    /// All else. Its levels, rule, flash, warm-up and size of blocks are those of each run, and
    /// recorded evictions come with each trace ([`Prepared`](crate::Prepared)): any stand for them
    /// here.
    pub config: Config,
}

/// The policies of a list such as `lru,mq,m=8,2q`, each once; `all` stands for all that need
/// neither the future nor a neighbour.
///
/// # Errors
/// A policy is unknown, or a parameter is wrong.
pub fn parse_policies(text: &str) -> Result<Vec<Spec>, Error> {
    let mut specs: Vec<Spec> = Vec::new();
    let mut add = |name: &str| {
        let spec = Spec::parse(name)?;
        if !specs.contains(&spec) {
            specs.push(spec);
        }
        Ok::<(), Error>(())
    };
    for item in Rule::split_list(text) {
        if item == "all" {
            let all = policies().iter().filter(|info| info.name != "opt");
            let mut all = all.filter(|info| !info.is_content_aware());
            all.try_for_each(|info| add(info.name))?;
        } else {
            add(&item)?;
        }
    }
    Ok(specs)
}

impl Plan {
    /// Sizes of the level that varies where none are given, of the distinct blocks of each trace.
    pub const SIZES: &str = "1%,2%,5%,10%,20%,50%,100%";

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
        if !self.config.lowest.is_plain() || !self.flash.is_empty() {
            return Err(Error::Request(format!(
                "--stream-cutoff, --write-back, --flash: not counted under placement {scheme}; use \
                 access"
            )));
        }
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
        let topology = Topology::line(&vec![1; levels.len()]);
        let topology = topology.map_err(|e| Error::Request(e.to_string()))?;
        scheme.build(Build { policy: &policy.to_string(), ..Build::new(&topology) })?;
        Ok(())
    }

    /// The flash level of each run of the same levels.
    pub(super) fn flash(&self) -> Vec<Option<FlashLevel>> {
        let given = self.flash.iter().cloned().map(Some);
        given.chain(self.flash.is_empty().then_some(None)).collect()
    }

    /// All levels, with `level` as the one that varies.
    pub(super) fn levels(&self, level: LevelSpec) -> Vec<LevelSpec> {
        match &self.ratio {
            Some(ratio) => ratio.levels(&level),
            None => self.upper.iter().cloned().chain([level]).collect(),
        }
    }
}
