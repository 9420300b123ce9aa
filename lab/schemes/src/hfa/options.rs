//! The options of HFA's variants, and how they are listed.

use super::super::chances::{CHANCE, START};
use super::super::hint_k::{ARRIVAL, STEPS};
use super::super::info::{Build, Built, SchemeInfo};
use super::super::stack::stack;
use super::{Base, DHfa, HHfa, PHfa};
use undercroft_policy::{Arguments, Kind, Parameter};

const SOURCE: &str = "Meng, Wu, Guo, Li, Liang, Yao & Zheng, JCST 2017";

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
const QUEUES: Parameter = Parameter {
    name: "queues",
    kind: Kind::Word(&["hard", "soft"]),
    default: "soft",
    help: "whether the base queue keeps to its own size, or uses free room of the hot queue",
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

pub(in super::super) const D_HFA: SchemeInfo = variant(
    "d-hfa",
    "demote, with a hot queue for blocks that moved or were hit often",
    &[K, PERIOD, DECAY, LEAST, TABLE, ENTRIES, HOT, PARTITION, QUEUES, EXPIRY, RISE],
    |arguments, build| stack(&build, |_, config| DHfa::new(Base::Demote, arguments, config)),
);

pub(in super::super) const P_HFA: SchemeInfo = variant(
    "p-hfa",
    "promote, with a hot queue for blocks that moved or were hit often",
    &[K, PERIOD, DECAY, LEAST, TABLE, ENTRIES, HOT, PARTITION, QUEUES, EXPIRY, RISE, CHANCE, START],
    |arguments, build| stack(&build, |_, config| PHfa::new(Base::Promote, arguments, config)),
);

pub(in super::super) const H_HFA: SchemeInfo = variant(
    "h-hfa",
    "hint-k, with a hot queue for blocks that moved or were hit often",
    &[
        K, PERIOD, DECAY, LEAST, TABLE, ENTRIES, HOT, PARTITION, QUEUES, EXPIRY, RISE, STEPS,
        ARRIVAL,
    ],
    |arguments, build| stack(&build, |_, config| HHfa::new(Base::HintK, arguments, config)),
);

pub(in super::super) const ORACLE: SchemeInfo = SchemeInfo {
    two_passes: true,
    ..variant(
        "oracle-hfa",
        "d-hfa told the moves to come, by a first pass (an approximation, no bound)",
        D_HFA.parameters,
        |arguments, build| {
            stack(&build, |node, config| {
                let d_hfa = DHfa::new(Base::Demote, arguments, config);
                d_hfa.with_log(build.log.as_deref(), node)
            })
        },
    )
};

const fn variant(
    name: &'static str,
    summary: &'static str,
    parameters: &'static [Parameter],
    build: fn(&Arguments, Build<'_>) -> Built,
) -> SchemeInfo {
    let policies = &["lru"];
    SchemeInfo { name, summary, source: SOURCE, policies, two_passes: false, parameters, build }
}
