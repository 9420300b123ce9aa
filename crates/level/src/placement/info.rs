//! The descriptions of the placements, for lists and for error texts. `rules.rs` reads the options.

use undercroft_policy::{Kind, Parameter};

/// The name, source and options of a placement.
pub struct PlacementInfo {
    /// Name on the command line.
    pub name: &'static str,
    /// What it does, in a few words.
    pub summary: &'static str,
    /// Publication.
    pub source: &'static str,
    /// The options.
    pub parameters: &'static [Parameter],
}

/// Largest size of a staging area in blocks.
pub(super) const MAX_STAGING: u32 = 1 << 24;

const DOWN: &[&str] = &["reload", "demote", "auto"];

const ORDER: Parameter = Parameter {
    name: "order",
    kind: Kind::Word(&["read-first", "demote-first"]),
    default: "read-first",
    help: "whether a read is served before or after the block that it evicts above is placed",
};

/// Names of the schemes that move blocks between levels: placements of simulations (`lab/schemes`),
/// which a server does not have.
pub const SIMULATED: [&str; 9] = [
    "demote",
    "promote",
    "hint-k",
    "d-hfa",
    "p-hfa",
    "h-hfa",
    "oracle-hfa",
    "bidifilter",
    "tandem",
];

/// Every placement that a server can have, in the order in which tables list them.
pub fn placements() -> &'static [PlacementInfo] {
    &[
        PlacementInfo {
            name: "access",
            summary: "a missed block is placed at its access; each level works on its own",
            source: "the usual placement",
            parameters: &[],
        },
        PlacementInfo {
            name: "eviction",
            summary: "a block is placed when the client evicts it",
            source: "Chen, Zhou & Li, USENIX 2003",
            parameters: &[
                Parameter {
                    name: "on-hit",
                    kind: Kind::Word(&["move", "keep", "adaptive"]),
                    default: "adaptive",
                    help: "whether a read hit removes the copy, keeps it, or as is learned",
                },
                Parameter {
                    name: "threshold",
                    kind: Kind::IntegerOr(0, 255, "a factor, as 1x or 0.5x"),
                    default: "0",
                    help: "accesses that make a block worth a reload, or as a multiple of those of \
                           the block that has to go",
                },
                Parameter {
                    name: "down",
                    kind: Kind::Word(DOWN),
                    default: "reload",
                    help: "the server reads an evicted block, the client sends it, or by cost (simulated only)",
                },
                Parameter {
                    name: "staging",
                    kind: Kind::IntegerOr(0, MAX_STAGING as u64, "auto"),
                    default: "0",
                    help: "blocks written last that keep their data beside the cache",
                },
                ORDER,
            ],
        },
        PlacementInfo {
            name: "auto",
            summary: "at the access, or at eviction where that saves reads from the store",
            source: "ours",
            parameters: &[Parameter {
                name: "down",
                kind: Kind::Word(DOWN),
                default: "demote",
                help: "for simulations: how an evicted block comes down",
            }],
        },
        PlacementInfo {
            name: "gl",
            summary: "the levels together hold each block once; an evicted one moves one level down",
            source: "Zhou, Chen & Li, TPDS 2004, section 6",
            parameters: &[ORDER],
        },
    ]
}

/// The options of a placement, for an error text.
pub(super) fn options_of(name: &str) -> String {
    let info = placements().iter().find(|info| info.name == name);
    let parameters = info.map_or(&[][..], |info| info.parameters);
    parameters.iter().map(|parameter| parameter.name).collect::<Vec<_>>().join(", ")
}
