//! Sequential streams: what is recognised, against the rule written down plainly, and what passing
//! a level means, in both forms of a level. A failure prints the seed; `UNDERCROFT_SEED=n` runs
//! that one again.

use crate::support::seeds;
use undercroft_level::{DenseLevel, Level, Request, Streams};
use undercroft_policy::{Context, Reference, Spec, WriteMode, policies};
use undercroft_random::SplitMix64 as Random;

/// The rule written down plainly: runs as a list, the latest used last.
struct Naive {
    cutoff: u64,
    runs: Vec<(u64, u64)>,
}

impl Naive {
    fn note(&mut self, block: u64) -> bool {
        let length_at = |runs: &[(u64, u64)], at| runs.iter().find(|run| run.0 == at).map(|r| r.1);
        let length = length_at(&self.runs, block).unwrap_or(0) + 1;
        let longest = length.max(length_at(&self.runs, block + 1).unwrap_or(0));
        self.runs.retain(|run| run.0 != block && run.0 != block + 1);
        self.runs.push((block + 1, longest));
        if self.runs.len() > 128 {
            self.runs.remove(0);
        }
        longest > self.cutoff
    }
}

#[test]
fn streams_are_those_of_the_plain_rule() {
    for seed in seeds(20) {
        let mut random = Random::new(seed);
        let cutoff = random.below(6);
        let (mut streams, mut naive) = (Streams::new(cutoff), Naive { cutoff, runs: Vec::new() });
        let blocks = [20, 300, 100_000][random.below(3) as usize];
        for _ in 0..3000 {
            let (first, count) = (random.below(blocks), 1 + random.below(4));
            let recognised = streams.note_all(first..=first + count - 1);
            let expected = (first..first + count).filter(|&block| naive.note(block)).min();
            assert_eq!(recognised, expected.unwrap_or(first + count), "seed {seed}");
            let next = first + count;
            let goes_on = naive.runs.iter().any(|&(at, length)| at == next && length >= cutoff);
            assert_eq!(streams.goes_on(next), goes_on, "seed {seed}");
        }
    }
}

#[test]
fn interleaved_streams_are_recognised_and_random_blocks_are_not() {
    let mut streams = Streams::new(8);
    let mut random = Random::new(1);
    for step in 0..64 {
        for stream in 0..50_u64 {
            assert_eq!(streams.note((stream << 32) + step), step >= 8, "{stream} {step}");
        }
        for _ in 0..50 {
            assert!(!streams.note(1 << 60 | random.below(1 << 40) << 1));
        }
    }
    // So many others that the streams are forgotten: they begin anew.
    (0..200).for_each(|other| _ = streams.note(1 << 61 | other << 8));
    assert!(!streams.note(64));
}

#[test]
fn parts_of_a_block_are_no_progress() {
    let mut streams = Streams::new(2);
    let noted = [5, 5, 6, 6, 7, 7, 7].map(|block| streams.note(block));
    assert_eq!(noted, [false, false, false, false, true, true, true]);
    assert!(Streams::beyond(0, 4096).is_none());
    let mut one = Streams::beyond(100, 4096).unwrap();
    assert_eq!([1, 2].map(|block| one.note(block)), [false, true], "at least one block");
}

fn request(block: u64, is_write: bool, is_streamed: bool) -> Request {
    Request { block, is_write, is_whole: true, is_streamed, ..Request::default() }
}

#[test]
fn a_stream_neither_evicts_nor_changes_the_order() {
    let lru = Spec::parse("lru").unwrap();
    let mut level =
        Level::new(&lru, 3, &"access".parse().unwrap(), WriteMode::Allocate, 0).unwrap();
    (1..=3).for_each(|block| _ = level.request(&request(block, false, false), || true));
    for block in [1, 50, 2, 51] {
        let referred = level.request(&request(block, block == 2, true), || true);
        let is_resident = block < 50;
        assert_eq!((referred.hit, referred.now.is_some()), (is_resident, is_resident));
        assert!(level.evicted().is_empty());
    }
    let counts = *level.cache().counts();
    assert_eq!((counts.reads, counts.read_hits, counts.cold_reads), (6, 1, 5));
    assert_eq!((counts.writes, counts.write_hits), (1, 1));
    assert_eq!((counts.streamed, counts.evictions), (2, 0));
    // Block 1 was hit by the stream, and is still the oldest.
    level.request(&request(4, false, false), || true);
    assert_eq!(level.evicted()[0].block, 1);
}

#[test]
fn both_forms_of_a_level_count_the_same() {
    for seed in seeds(4) {
        let mut random = Random::new(seed);
        let all = policies().iter().filter(|info| info.name != "opt" && !info.is_content_aware());
        for info in all {
            for mode in [WriteMode::Allocate, WriteMode::NoAllocate, WriteMode::Invalidate] {
                let spec = Spec::parse(info.name).unwrap();
                let mut dense = DenseLevel::new(spec.build(&Context::new(9)).unwrap(), mode);
                let placement = "access".parse().unwrap();
                let mut level = Level::new(&spec, 9, &placement, mode, seed).unwrap();
                let mut known = 0;
                for _ in 0..400 {
                    let block = random.below(known + 2).min(known).min(40);
                    let (is_write, is_streamed) = (random.one_in(3), random.one_in(3));
                    let cold = block == known;
                    known = known.max(block + 1);
                    dense.bind(
                        block as u32,
                        cold.then_some(block).into_iter().collect::<Vec<_>>().into_iter(),
                    );
                    let reference = Reference::new(block as u32, is_write);
                    let hit = match is_streamed {
                        true => dense.pass(known as u32, reference),
                        false => dense.reference(known as u32, reference),
                    };
                    let referred = level.request(&request(block, is_write, is_streamed), || cold);
                    assert_eq!(hit, referred.hit, "{} {mode:?}, seed {seed}", info.name);
                    let mut counts = *level.cache().counts();
                    counts.known = dense.counts().known;
                    assert_eq!(&counts, dense.counts(), "{} {mode:?}, seed {seed}", info.name);
                    assert_eq!(level.policy().len(), dense.policy().len());
                }
            }
        }
    }
}
