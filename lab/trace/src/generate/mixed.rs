//! `mixed`: a Zipf law whose hot blocks change slowly, with scans and a loop in between. Each
//! request is drawn for itself: from the law, as the next block of the running scan, or as the
//! next of the loop.
//!
//! Drift is like news: a block enters as the hottest of all and cools one rank at a time; the
//! coldest leaves the bottom to become the next hottest.

use super::law::{Permutation, Zipf};
use super::{ALPHA, BATCH, BLOCKS, Generator, Kind, Made, Parameter, REQUESTS, SCRAMBLE, SEED};
use super::{Source, Values, WRITES, one_block};
use crate::record::{Op, Record};
use undercroft_random::SplitMix64;

pub(super) const GENERATOR: Generator = Generator {
    name: "mixed",
    about: "a Zipf law that drifts, with scans over the same blocks and a loop beside them",
    parameters: &[
        BLOCKS,
        REQUESTS,
        ALPHA,
        WRITES,
        Parameter {
            key: "drift",
            about: "blocks that become the hottest in every million requests",
            kind: Kind::Whole { min: 0, max: 1_000_000, default: 1000 },
        },
        Parameter {
            key: "scans",
            about: "share of the requests that belong to scans",
            kind: Kind::Real { min: 0.0, max: 0.5, default: 0.1 },
        },
        Parameter {
            key: "scan-blocks",
            about: "length of a scan in blocks; it begins anywhere",
            kind: Kind::Whole { min: 1, max: (1 << 31) - 1, default: 1000 },
        },
        Parameter {
            key: "loops",
            about: "share of the requests that belong to the loop",
            kind: Kind::Real { min: 0.0, max: 0.5, default: 0.1 },
        },
        Parameter {
            key: "loop-blocks",
            about: "length of the loop in blocks, numbered after all others",
            kind: Kind::Whole { min: 1, max: (1 << 31) - 1, default: 10_000 },
        },
        SCRAMBLE,
        SEED,
    ],
    make,
};

struct Mixed {
    law: Zipf,
    permutation: Option<Permutation>,
    random: SplitMix64,
    blocks: u64,
    writes: f64,
    drift: u64,
    /// Draws below the first bound are the scan's, from there to the second the loop's.
    scans_below: f64,
    loops_below: f64,
    scan_blocks: u64,
    scan_next: u64,
    scan_left: u64,
    loop_blocks: u64,
    loop_next: u64,
    made: u64,
    requests: u64,
}

fn make(values: &Values) -> Made {
    let (blocks, seed) = (values.whole("blocks"), values.whole("seed"));
    let (writes, scans) = (values.real("writes"), values.real("scans"));
    Made {
        block_bytes: None,
        has_ops: writes > 0.0,
        spaces: vec!["blocks".into()],
        source: Box::new(Mixed {
            law: Zipf::new(blocks, values.real("alpha")),
            permutation: values.flag("scramble").then(|| Permutation::new(blocks, seed)),
            random: SplitMix64::new(seed),
            blocks,
            writes,
            drift: values.whole("drift"),
            scans_below: scans,
            loops_below: scans + values.real("loops"),
            scan_blocks: values.whole("scan-blocks"),
            scan_next: 0,
            scan_left: 0,
            loop_blocks: values.whole("loop-blocks"),
            loop_next: 0,
            made: 0,
            requests: values.whole("requests"),
        }),
    }
}

impl Mixed {
    fn next_record(&mut self) -> Record {
        let kind = self.random.next_f64();
        if kind < self.scans_below {
            one_block(0, self.next_of_scan(), Op::Read)
        } else if kind < self.loops_below {
            let block = self.blocks + self.loop_next;
            self.loop_next = (self.loop_next + 1) % self.loop_blocks;
            one_block(0, block, Op::Read)
        } else {
            let entered = (u128::from(self.made) * u128::from(self.drift) / 1_000_000) as u64;
            let rank = self.law.draw(&mut self.random);
            let age = (rank + self.blocks - entered % self.blocks) % self.blocks;
            let block = self.permutation.as_ref().map_or(age, |p| p.apply(age));
            let write = self.random.chance(self.writes);
            one_block(0, block, if write { Op::Write } else { Op::Read })
        }
    }

    fn next_of_scan(&mut self) -> u64 {
        if self.scan_left == 0 {
            self.scan_next = self.random.below(self.blocks);
            self.scan_left = self.scan_blocks;
        }
        self.scan_left -= 1;
        let block = self.scan_next;
        self.scan_next = (block + 1) % self.blocks;
        block
    }
}

impl Source for Mixed {
    fn fill(&mut self, records: &mut Vec<Record>) {
        let batch = (self.requests - self.made).min(BATCH);
        for _ in 0..batch {
            let record = self.next_record();
            records.push(record);
            self.made += 1;
        }
    }
}
