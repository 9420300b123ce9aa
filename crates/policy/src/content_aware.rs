//! Content awareness: of the next victims of a policy, the first that the neighbouring cache holds
//! is evicted. That copy is only a round trip away, while a last copy costs a disk read.
//!
//! This file has the parameters of such policies and their knowledge of the neighbour. Each policy
//! searches its own order of eviction: `Queues` and `LruOrder` continue where the last search
//! ended.
//!
//! Not here: the sources of the knowledge (`crates/level/src/content`).

use crate::Entry;
use crate::registry::{Argument, Arguments, Kind, Parameter, Spec, SpecError};

/// The parameter that makes a policy content-aware.
pub(crate) const CA: Parameter = Parameter {
    name: "ca",
    kind: Kind::Word(&["no", "yes"]),
    default: "no",
    help: "content-aware: evicts first what the neighbouring cache holds too",
};

/// The parameter for the size of the search window.
pub(crate) const ALPHA: Parameter = Parameter {
    name: "alpha",
    kind: Kind::Real(0.0, 1.0),
    default: "0.5",
    help: "content-aware: victims among which one that the neighbour holds is looked for, share of \
           the capacity",
};

/// The parameter for the source of the knowledge.
pub(crate) const KNOWS: Parameter = Parameter {
    name: "knows",
    kind: Kind::Word(&["exact", "bloom", "emulation"]),
    default: "exact",
    help: "content-aware: how it is known what the neighbour holds",
};

/// The parameter for the size of a Bloom summary.
pub(crate) const FILTER_BITS: Parameter = Parameter {
    name: "filter-bits",
    kind: Kind::Integer(1, 64),
    default: "8",
    help: "bits of the neighbour's Bloom summary, times the neighbour's capacity",
};

/// The parameter for the number of hash functions of a Bloom summary.
pub(crate) const HASHES: Parameter = Parameter {
    name: "hashes",
    kind: Kind::Integer(1, 16),
    default: "4",
    help: "hash functions of the summary, no more than filter-bits",
};

/// The parameter for the frequency of exchanges.
pub(crate) const PUBLISH: Parameter = Parameter {
    name: "publish",
    kind: Kind::Real(0.0001, 1.0),
    default: "0.01",
    help: "blocks that came or went before the next summary, share of the neighbour's capacity",
};

/// The interface by which a content-aware policy learns what the neighbour holds.
pub trait ContentAware {
    /// Notes whether the neighbouring cache holds `entry`. Called also for entries that are unknown
    /// here, since they may be about to come.
    fn neighbour_holds(&mut self, entry: Entry, holds: bool);

    /// Whether the neighbouring cache holds `entry`, by the last note. An evicted entry keeps its
    /// note until the next one.
    fn neighbour_has(&self, entry: Entry) -> bool;
}

/// What the neighbouring cache holds, as far as known, and how many victims are examined.
#[derive(Clone, Debug)]
pub(crate) struct Neighbour {
    alpha: f64,
    window: u32,
    holds: Vec<bool>,
}

impl Neighbour {
    /// For a cache of `capacity` entries. The share `alpha` of its next victims is examined, at
    /// least one.
    pub(crate) fn new(alpha: f64, capacity: u32) -> Self {
        let mut neighbour = Self { alpha, window: 1, holds: Vec::new() };
        neighbour.resize(capacity);
        neighbour
    }

    /// For a policy with the parameter `ca`; `None` if that is `no`.
    pub(crate) fn of(arguments: &Arguments, capacity: u32) -> Option<Self> {
        let is_aware = arguments.word("ca") == "yes";
        is_aware.then(|| Self::new(arguments.real("alpha"), capacity))
    }

    /// Makes handles below `entries` valid.
    pub(crate) fn grow(&mut self, entries: u32) {
        self.holds.resize(self.holds.len().max(entries as usize), false);
    }

    /// Adopts another capacity of the cache.
    pub(crate) fn resize(&mut self, capacity: u32) {
        self.window = ((self.alpha * f64::from(capacity)).ceil() as u32).max(1);
    }

    /// Number of next victims that are examined.
    pub(crate) fn window(&self) -> u32 {
        self.window
    }

    /// Whether the neighbour holds an entry.
    #[inline(always)]
    pub(crate) fn has(&self, entry: Entry) -> bool {
        self.holds[entry as usize]
    }

    /// Notes whether the neighbour holds an entry. True if it did not, and does now.
    pub(crate) fn set(&mut self, entry: Entry, holds: bool) -> bool {
        !std::mem::replace(&mut self.holds[entry as usize], holds) && holds
    }

    /// The first entry within the window that the neighbour holds; `victims` are in order of
    /// eviction.
    pub(crate) fn first_held(&self, victims: impl Iterator<Item = Entry>) -> Option<Entry> {
        victims.take(self.window as usize).find(|&entry| self.has(entry))
    }
}

/// The source of a content-aware cache's knowledge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Knows {
    /// The neighbour reports at once what it takes in and gives up.
    Exact,
    /// The neighbour publishes a Bloom filter from time to time.
    Bloom,
    /// The neighbour is emulated with its policy and size, which are configured.
    Emulation,
}

/// How a content-aware policy learns what its neighbour holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Awareness {
    /// Size of the search window as a share of the capacity.
    pub alpha: f64,
    /// The source of the knowledge.
    pub knows: Knows,
    /// Bits of a Bloom summary for each block of the neighbour's capacity.
    pub filter_bits: u32,
    /// Hash functions of a Bloom summary.
    pub hashes: u32,
    /// Blocks that come or go between two exchanges, as a share of the neighbour's capacity.
    pub publish: f64,
}

/// The defaults of the parameters of a policy.
impl Default for Awareness {
    fn default() -> Self {
        Self { alpha: 0.5, knows: Knows::Exact, filter_bits: 8, hashes: 4, publish: 0.01 }
    }
}

impl Awareness {
    /// Checks the size of the summary.
    ///
    /// # Errors
    /// It has more hash functions than bits per block.
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

    /// The awareness of the policy of a spec; `None` if the policy is not content-aware.
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
