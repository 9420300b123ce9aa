//! `loop` and `scan`: blocks read in ascending order, again and again. The patterns that least
//! recently used is worst at.

use super::{BATCH, BLOCKS, Generator, Kind, Made, Parameter, REQUESTS, Source, Values, one_block};
use crate::record::{Op, Record};

pub(super) const LOOP: Generator = Generator {
    name: "loop",
    about: "reads over all blocks in order, as many as there are requests",
    parameters: &[BLOCKS, REQUESTS],
    make: |values| made(values, values.whole("requests")),
};

pub(super) const SCAN: Generator = Generator {
    name: "scan",
    about: "whole sequential reads over all blocks",
    parameters: &[
        BLOCKS,
        Parameter {
            key: "repeat",
            about: "passes over the blocks",
            kind: Kind::Whole { min: 0, max: 1 << 19, default: 1 },
        },
    ],
    make: |values| made(values, values.whole("blocks") * values.whole("repeat")),
};

struct Passes {
    blocks: u64,
    next: u64,
    left: u64,
}

fn made(values: &Values, requests: u64) -> Made {
    Made {
        block_bytes: None,
        has_ops: false,
        spaces: vec!["blocks".into()],
        source: Box::new(Passes { blocks: values.whole("blocks"), next: 0, left: requests }),
    }
}

impl Source for Passes {
    fn fill(&mut self, records: &mut Vec<Record>) {
        let batch = self.left.min(BATCH);
        self.left -= batch;
        for _ in 0..batch {
            records.push(one_block(0, self.next, Op::Read));
            self.next = (self.next + 1) % self.blocks;
        }
    }
}
