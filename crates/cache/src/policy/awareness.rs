//! The parameters of content-aware policies, in one place: those by which the policy chooses, and
//! those of the knowledge that whoever runs it is to give it.

use super::neighbour::Held;
use super::registry::{Argument, Arguments, Kind, Parameter, Spec, SpecError};
use crate::content::Shape;

/// Makes a policy that can be content-aware so.
pub(super) const CA: Parameter = Parameter {
    name: "ca",
    kind: Kind::Word(&["no", "yes"]),
    default: "no",
    help: "content-aware: evicts first what the neighbouring cache holds too",
};

/// How far the policy looks.
pub(super) const ALPHA: Parameter = Parameter {
    name: "alpha",
    kind: Kind::Real(0.0, 1.0),
    default: "0.5",
    help: "content-aware: victims among which one that the neighbour holds is looked for, share of \
           the capacity",
};

/// Where it is known from.
pub(super) const KNOWS: Parameter = Parameter {
    name: "knows",
    kind: Kind::Word(&["exact", "bloom", "emulation"]),
    default: "exact",
    help: "content-aware: how it is known what the neighbour holds",
};

/// Size of a Bloom summary.
pub(super) const FILTER_BITS: Parameter = Parameter {
    name: "filter-bits",
    kind: Kind::Integer(1, 64),
    default: "8",
    help: "bits of the neighbour's Bloom summary, times the neighbour's capacity",
};

/// Hash functions of a Bloom summary.
pub(super) const HASHES: Parameter = Parameter {
    name: "hashes",
    kind: Kind::Integer(1, 16),
    default: "4",
    help: "hash functions of the summary, no more than filter-bits",
};

/// How often knowledge is exchanged.
pub(super) const PUBLISH: Parameter = Parameter {
    name: "publish",
    kind: Kind::Real(0.0001, 1.0),
    default: "0.01",
    help: "blocks that came or went before the next summary, share of the neighbour's capacity",
};

/// What a content-aware policy looks at: `None` if `ca` is no.
pub(super) fn held(arguments: &Arguments, capacity: u32) -> Option<Held> {
    let is_aware = arguments.word("ca") == "yes";
    is_aware.then(|| Held::new(arguments.real("alpha"), capacity))
}

/// Where a content-aware cache knows from what its neighbour holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Knows {
    /// The neighbour says at once what comes and goes.
    Exact,
    /// The neighbour publishes a Bloom filter from time to time.
    Bloom,
    /// The neighbour is emulated by its policy and size, which are given.
    Emulation,
}

/// How a content-aware policy is to be told what its neighbour holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Awareness {
    /// Share of the capacity that is looked at.
    pub alpha: f64,
    /// Where the knowledge comes from.
    pub knows: Knows,
    /// Bits of a Bloom summary, times the neighbour's capacity.
    pub filter_bits: u32,
    /// Hash functions of a Bloom summary.
    pub hashes: u32,
    /// Blocks that came or went between two exchanges, share of the neighbour's capacity.
    pub publish: f64,
}

/// As the parameters of a policy are by default.
impl Default for Awareness {
    fn default() -> Self {
        Self { alpha: 0.5, knows: Knows::Exact, filter_bits: 8, hashes: 4, publish: 0.01 }
    }
}

impl Awareness {
    /// Share of the blocks which the Bloom summary of a full neighbour of `capacity` blocks holds
    /// wrongly, by the formula; `None` where there is no summary.
    pub fn false_positives(&self, capacity: u32) -> Option<f64> {
        let shape = Shape::new(self.filter_bits, self.hashes, capacity, 0);
        (self.knows == Knows::Bloom).then(|| shape.false_positives(capacity))
    }

    /// Whether a summary can be had as it is asked for.
    ///
    /// # Errors
    /// It has more hash functions than bits a block.
    pub fn check(&self) -> Result<(), SpecError> {
        let Self { knows, filter_bits, hashes, .. } = *self;
        if knows == Knows::Bloom && hashes > filter_bits {
            return Err(SpecError::new(&format!(
                "hashes={hashes} with filter-bits={filter_bits}: nearly every bit would be set; at \
                 most as many hash functions as bits a block"
            )));
        }
        Ok(())
    }

    /// Blocks that come to a neighbour of `capacity` blocks, or go, between two exchanges.
    pub fn period(&self, capacity: u32) -> u64 {
        ((self.publish * f64::from(capacity)).ceil() as u64).max(1)
    }

    /// How the policy of a spec is to be told; `None` if it does not ask.
    pub fn of(spec: &Spec) -> Option<Self> {
        let value = |name| spec.arguments().find(|(n, _)| *n == name).map(|(_, value)| value);
        let is_off = value("ca") == Some(Argument::Word("no"));
        let whole = |name| match value(name) {
            Some(Argument::Integer(value)) => Some(value as u32),
            _ => None,
        };
        let real = |name| match value(name) {
            Some(Argument::Real(value)) => Some(value),
            _ => None,
        };
        let knows = match value("knows")? {
            Argument::Word("bloom") => Knows::Bloom,
            Argument::Word("emulation") => Knows::Emulation,
            _ => Knows::Exact,
        };
        if is_off {
            return None;
        }
        Some(Self {
            alpha: real("alpha")?,
            knows,
            filter_bits: whole("filter-bits")?,
            hashes: whole("hashes")?,
            publish: real("publish")?,
        })
    }
}
