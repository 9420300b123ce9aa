//! The options of HFA's variants, and how they are listed.

use super::super::chances::{CHANCE, START};
use super::super::hint_k::STEPS;
use super::super::info::SchemeInfo;
use super::super::stack::stack;
use super::{Base, DHfa, HHfa, PHfa};
use crate::policy::{Arguments, Kind, Parameter};

const SOURCE: &str = "Meng, Chen, Zhang, Cheng, Li & Liu, JCST 2017";

const K: Parameter = Parameter {
    name: "k",
    kind: Kind::Integer(0, 64),
    default: "6",
    help: "slots for which a move counts; 0: no hot queue at all, so the scheme underneath",
};
const PERIOD: Parameter = Parameter {
    name: "period",
    kind: Kind::IntegerOr(1, 1 << 32, "auto"),
    default: "auto",
    help: "references in a slot, and between two changes of the partition (T); auto: the paper's \
           1000, but no more than a tenth of the blocks that the caches of a client may hold",
};
const DECAY: Parameter = Parameter {
    name: "decay",
    kind: Kind::Real(0.0, 1.0),
    default: "0.5",
    help: "worth of a slot's moves by that of the slot after it (delta)",
};
const LEAST: Parameter = Parameter {
    name: "fmin",
    kind: Kind::Real(0.0, 1e9),
    default: "1",
    help: "a block of which more moves than this are remembered comes into the hot queue (F_min)",
};
const TABLE: Parameter = Parameter {
    name: "tout",
    kind: Kind::Real(0.0, 100.0),
    default: "0.1",
    help: "size of the table of moves in percent of the cache's bytes, 24 bytes an entry",
};
const ENTRIES: Parameter = Parameter {
    name: "entries",
    kind: Kind::IntegerOr(0, 1 << 30, "share"),
    default: "share",
    help: "size of the table of moves in entries instead",
};
const HOT: Parameter = Parameter {
    name: "hot",
    kind: Kind::Real(0.0, 1.0),
    default: "0.5",
    help: "share of a cache that the hot queue may take at the start",
};
const PARTITION: Parameter = Parameter {
    name: "partition",
    kind: Kind::Word(&["dynamic", "fixed"]),
    default: "dynamic",
    help: "whether that share changes every period",
};
const EXPIRY: Parameter = Parameter {
    name: "hotness",
    kind: Kind::Word(&["expires", "stays"]),
    default: "expires",
    help: "whether hotness stands for k slots at most, or until it is found anew",
};
const RISE: Parameter = Parameter {
    name: "rise",
    kind: Kind::Word(&["hit", "hint"]),
    default: "hit",
    help: "whether a hit takes a block into the hot queue, or hints alone",
};

pub(in super::super) const D_HFA: SchemeInfo = SchemeInfo {
    name: "d-hfa",
    summary: "demote, with a hot queue for blocks that moved or were hit often",
    source: SOURCE,
    policies: &["lru"],
    two_passes: false,
    parameters: &[K, PERIOD, DECAY, LEAST, TABLE, ENTRIES, HOT, PARTITION, EXPIRY, RISE],
    build: |arguments, build| stack(&build, |_, config| DHfa::new(Base::Demote, arguments, config)),
};

pub(in super::super) const P_HFA: SchemeInfo = SchemeInfo {
    name: "p-hfa",
    summary: "promote, with a hot queue for blocks that moved or were hit often",
    source: SOURCE,
    policies: &["lru"],
    two_passes: false,
    parameters: &[
        K, PERIOD, DECAY, LEAST, TABLE, ENTRIES, HOT, PARTITION, EXPIRY, RISE, CHANCE, START,
    ],
    build: |arguments, build| {
        stack(&build, |_, config| PHfa::new(Base::Promote, arguments, config))
    },
};

pub(in super::super) const H_HFA: SchemeInfo = SchemeInfo {
    name: "h-hfa",
    summary: "hint-k, with a hot queue for blocks that moved or were hit often",
    source: SOURCE,
    policies: &["lru"],
    two_passes: false,
    parameters: &[K, PERIOD, DECAY, LEAST, TABLE, ENTRIES, HOT, PARTITION, EXPIRY, RISE, STEPS],
    build: |arguments, build| stack(&build, |_, config| HHfa::new(Base::HintK, arguments, config)),
};

pub(in super::super) const ORACLE: SchemeInfo = SchemeInfo {
    name: "oracle-hfa",
    summary: "d-hfa told the moves to come, by a first pass (an approximation, no bound)",
    source: SOURCE,
    policies: &["lru"],
    two_passes: true,
    parameters: D_HFA.parameters,
    build: |arguments, build| {
        stack(&build, |node, config| {
            let d_hfa = DHfa::new(Base::Demote, arguments, config);
            d_hfa.with_log(build.log.as_deref(), node)
        })
    },
};

/// The options by value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    pub(super) k: u64,
    pub(super) period: u64,
    pub(super) decay: f64,
    pub(super) least: f64,
    pub(super) table_share: f64,
    pub(super) entries: Option<u32>,
    pub(super) is_dynamic: bool,
    pub(super) expires: bool,
    pub(super) steps: u64,
    pub(super) rises_by_hits: bool,
    hot_share: f64,
    /// References for which a move counts: kT of the paper; infinite if no move counts.
    span: f64,
}

/// Without the option `period` a slot has one reference for each `PERIOD_BLOCKS` blocks of the
/// caches on a client's way, at most `PERIOD_MAX`.
const PERIOD_MAX: u64 = 1000;
const PERIOD_BLOCKS: u64 = 10;

fn auto_period(way_blocks: u64) -> u64 {
    (way_blocks / PERIOD_BLOCKS).clamp(1, PERIOD_MAX)
}

impl Settings {
    /// `way_blocks`: blocks of all caches on a client's way.
    pub(super) fn new(base: Base, arguments: &Arguments, way_blocks: u64) -> Self {
        let k = arguments.integer("k");
        let period = arguments.integer_or_word("period");
        let period = period.unwrap_or_else(|| auto_period(way_blocks));
        let span = if k == 0 { f64::INFINITY } else { (k * period) as f64 };
        Self {
            k,
            period,
            decay: arguments.real("decay"),
            least: arguments.real("fmin"),
            table_share: arguments.real("tout") / 100.0,
            entries: arguments.integer_or_word("entries").map(|entries| entries as u32),
            is_dynamic: arguments.word("partition") == "dynamic",
            expires: k > 0 && arguments.word("hotness") == "expires",
            steps: if base == Base::HintK { arguments.integer("steps") } else { 1 },
            hot_share: arguments.real("hot"),
            rises_by_hits: arguments.word("rise") == "hit",
            span,
        }
    }

    /// The initial limit of Q1 in blocks.
    pub(super) fn first_q1_max(&self, capacity: u32) -> u32 {
        if self.k == 0 || capacity < 2 || self.hot_share == 0.0 {
            return 0;
        }
        ((f64::from(capacity) * self.hot_share) as u32).clamp(1, capacity - 1)
    }

    /// H of the paper, equation 3; 0 without a hot queue.
    #[inline(always)]
    pub(super) fn hotness(&self, frequency: f64, hits: u16, stay: u64) -> f64 {
        let moves = frequency / self.span;
        if self.k == 0 { moves } else { moves + f64::from(hits) / stay as f64 }
    }
}
