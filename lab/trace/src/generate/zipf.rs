//! `zipf`: independent requests by a Zipf law. Locality in time comes from popularity alone.

use super::law::{Permutation, Zipf};
use super::{ALPHA, BATCH, BLOCKS, Generator, Made, REQUESTS, SCRAMBLE, SEED, Source};
use super::{Values, WRITES, one_block};
use crate::record::{Op, Record};
use undercroft_random::SplitMix64;

pub(super) const GENERATOR: Generator = Generator {
    name: "zipf",
    about: "independent requests by a Zipf law",
    parameters: &[BLOCKS, REQUESTS, ALPHA, WRITES, SCRAMBLE, SEED],
    make,
};

struct ZipfSource {
    law: Zipf,
    permutation: Option<Permutation>,
    random: SplitMix64,
    writes: f64,
    left: u64,
}

fn make(values: &Values) -> Made {
    let (blocks, seed) = (values.whole("blocks"), values.whole("seed"));
    let writes = values.real("writes");
    Made {
        block_bytes: None,
        has_ops: writes > 0.0,
        spaces: vec!["blocks".into()],
        source: Box::new(ZipfSource {
            law: Zipf::new(blocks, values.real("alpha")),
            permutation: values.flag("scramble").then(|| Permutation::new(blocks, seed)),
            random: SplitMix64::new(seed),
            writes,
            left: values.whole("requests"),
        }),
    }
}

impl Source for ZipfSource {
    fn fill(&mut self, records: &mut Vec<Record>) {
        let batch = self.left.min(BATCH);
        self.left -= batch;
        for _ in 0..batch {
            let rank = self.law.draw(&mut self.random);
            let block = self.permutation.as_ref().map_or(rank, |p| p.apply(rank));
            let write = self.writes > 0.0 && self.random.chance(self.writes);
            records.push(one_block(0, block, if write { Op::Write } else { Op::Read }));
        }
    }
}
