//! Splitting and sampling against models that are too plain to be wrong.
//!
//! Here too is what the neighbours' tests share: a reader over a vector, and random records.

use std::collections::HashMap;

use super::*;
use crate::record::Unit;
use undercroft_random::SplitMix64;

/// A trace in memory.
pub(crate) struct MemoryReader {
    meta: Meta,
    records: Vec<Record>,
    batch: usize,
    next: usize,
}

impl MemoryReader {
    pub(crate) fn boxed(unit: Unit, records: &[Record]) -> Box<dyn Reader> {
        let meta = Meta {
            format: "memory",
            unit,
            block_bytes: None,
            has_ops: true,
            has_time: false,
            has_buffers: true,
            has_evictions: records.iter().any(|record| record.op == Op::Evict),
        };
        Box::new(Self { meta, records: records.to_vec(), batch: 700, next: 0 })
    }
}

impl Reader for MemoryReader {
    fn meta(&self) -> &Meta {
        &self.meta
    }

    fn read(&mut self, records: &mut Vec<Record>) -> Result<(), Error> {
        let end = self.records.len().min(self.next + self.batch);
        records.extend_from_slice(&self.records[self.next..end]);
        self.next = end;
        Ok(())
    }

    fn spaces(&self) -> &[String] {
        &[]
    }
}

/// The seed of a random test.
pub(crate) fn seed() -> u64 {
    undercroft_random::testing::seed_or(1)
}

pub(crate) fn record(space: u32, address: u64, length: u64, op: Op) -> Record {
    Record { time_ns: 0, op, space, address, length, buffer: None, client: 0 }
}

/// Records over a few spaces, with reuse, runs, both ends of the address range and odd lengths.
pub(crate) fn random_records(random: &mut SplitMix64, count: usize) -> Vec<Record> {
    let range = [10, 1000, 1 << 20, 1 << 40][random.below(4) as usize];
    let longest = [1, 9, 100][random.below(3) as usize];
    let make = |_| {
        let op = if random.chance(0.3) { Op::Write } else { Op::Read };
        let address = match random.below(50) {
            0 => (1 << 50) - 1 - random.below(range),
            _ => random.below(range),
        };
        // A few requests are larger than a chunk.
        let huge = random.below(4 * count as u64) == 0;
        let length = if huge { 100_000 } else { random.between(1, longest) };
        let mut made = record(random.below(3) as u32, address, length, op);
        made.buffer = random.chance(0.5).then(|| random.below(1 << 30));
        made
    };
    (0..count).map(make).collect()
}

/// Everything a stream says, over all its chunks.
struct Whole {
    blocks: Vec<(u32, u64, bool)>,
    record_ends: Vec<u64>,
    origins: Vec<Origin>,
    stream: BlockStream,
}

fn whole(reader: Box<dyn Reader>, options: &BlockOptions) -> Whole {
    let mut stream = BlockStream::new(reader, options).unwrap();
    let (mut refs, mut all) = (Vec::new(), Vec::new());
    let (mut record_ends, mut origins) = (Vec::new(), Vec::new());
    while stream.next_chunk(&mut refs).unwrap() {
        assert!(refs.len() <= CHUNK_REFERENCES);
        let before = all.len() as u64;
        record_ends.extend(stream.record_ends().iter().map(|&end| before + u64::from(end)));
        origins.extend_from_slice(stream.origins());
        all.extend_from_slice(&refs);
    }
    assert!(!stream.next_chunk(&mut refs).unwrap() && refs.is_empty(), "the end stays the end");
    let names = stream.names();
    let named = |r: &Ref| {
        let (space, block) = names.block(r.block()).unwrap();
        (space, block, r.is_write())
    };
    Whole { blocks: all.iter().map(named).collect(), record_ends, origins, stream }
}

/// Byte by byte of the idea: block b is touched if the intervals overlap.
fn naive(records: &[Record], unit_bytes: Option<u64>, block_bytes: u64) -> Vec<(u32, u64, bool)> {
    let mut blocks = Vec::new();
    for r in records {
        let (unit, size) = unit_bytes.map_or((1, 1), |unit| (unit, block_bytes));
        let (start, end) = (r.address * unit, (r.address + r.length) * unit);
        let mut block = start / size;
        while block * size < end {
            blocks.push((r.space, block, r.op == Op::Write));
            block += 1;
        }
    }
    blocks
}

#[test]
fn splitting_equals_the_naive_model() {
    let mut random = SplitMix64::new(seed());
    for _ in 0..60 {
        let records = random_records(&mut random, 150);
        let block_bytes = [512, 4096, 520, 8192, 1 << 20][random.below(5) as usize];
        let (unit, unit_bytes) = match random.below(3) {
            0 => (Unit::Bytes, None),
            1 => (Unit::Blocks, None),
            _ => (Unit::Blocks, Some(512)),
        };
        let options = BlockOptions { block_bytes, unit_bytes, origins: true, ..Default::default() };
        let found = whole(MemoryReader::boxed(unit, &records), &options);
        let step = if unit == Unit::Bytes { Some(1) } else { unit_bytes.map(u64::from) };
        let expected = naive(&records, step, u64::from(block_bytes));
        assert_eq!(found.blocks, expected);

        let counts = found.stream.seen();
        let writes = expected.iter().filter(|block| block.2).count() as u64;
        assert_eq!(counts, found.stream.kept());
        assert_eq!((counts.writes, counts.references()), (writes, expected.len() as u64));
        assert_eq!(counts.records, records.len() as u64);
        let mut distinct: Vec<_> =
            expected.iter().map(|&(space, block, _)| (space, block)).collect();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(found.stream.unique() as usize, distinct.len());
        let mut end = 0;
        for (record, &found) in records.iter().zip(&found.record_ends) {
            end += naive(&[*record], step, u64::from(block_bytes)).len() as u64;
            assert_eq!(found, end);
        }
        assert_eq!(found.record_ends.len(), records.len());
        assert_eq!(found.origins.len(), expected.len());
    }
}

#[test]
fn a_huge_request_goes_over_several_chunks() {
    let records = [record(0, 5000, 300_000 * 4096, Op::Write), record(0, 4096, 1, Op::Read)];
    let found = whole(MemoryReader::boxed(Unit::Bytes, &records), &BlockOptions::default());
    assert_eq!(found.record_ends, [300_001, 300_002]);
    assert_eq!(found.blocks[300_000], (0, 300_001, true));
    assert_eq!(found.blocks[300_001], (0, 1, false));
}

#[test]
fn evictions_are_no_requests() {
    let evict =
        |address, length| Record { client: 5, time_ns: 7, ..record(0, address, length, Op::Evict) };
    let records = [
        record(0, 8192, 8192, Op::Read),
        evict(8192, 4096),
        // The first block is not known yet.
        evict(4096, 8192),
        record(0, 4096, 4096, Op::Write),
        record(0, 0, 4096, Op::Read),
        evict(4096, 4096),
    ];
    let gone = |after, block| Gone { after, block, client: 5, time_ns: 7 };
    for (evictions, expected) in [(true, vec![gone(2, 0), gone(2, 0), gone(4, 2)]), (false, vec![])]
    {
        let options = BlockOptions { evictions, ..Default::default() };
        let reader = MemoryReader::boxed(Unit::Bytes, &records);
        let mut stream = BlockStream::new(reader, &options).unwrap();
        let mut refs = Vec::new();
        assert!(stream.next_chunk(&mut refs).unwrap());
        assert_eq!(stream.evictions(), expected);
        assert_eq!((refs.len(), stream.record_ends()), (4, &[2, 3, 4][..]));
        assert_eq!((stream.seen().records, stream.unique()), (3, 4));
        assert_eq!(stream.left_out().total(), if evictions { 0 } else { 3 });
        assert!(!stream.next_chunk(&mut refs).unwrap());
    }
}

#[test]
fn many_evictions_end_a_chunk() {
    let mut records = vec![record(0, 0, 4096, Op::Read)];
    records.extend((0..CHUNK_REFERENCES + 9).map(|_| record(0, 0, 4096, Op::Evict)));
    let options = BlockOptions { evictions: true, ..Default::default() };
    let mut stream =
        BlockStream::new(MemoryReader::boxed(Unit::Bytes, &records), &options).unwrap();
    let mut refs = Vec::new();
    let mut sizes = Vec::new();
    while stream.next_chunk(&mut refs).unwrap() {
        sizes.push((refs.len(), stream.evictions().len()));
    }
    assert_eq!(sizes, [(1, CHUNK_REFERENCES), (0, 9)]);
}

#[test]
fn origins_follow_the_buffer() {
    let mut request = record(2, 4000, 8192, Op::Read);
    request.buffer = Some(100_000);
    request.time_ns = 9;
    let options = BlockOptions { origins: true, ..Default::default() };
    let found = whole(MemoryReader::boxed(Unit::Bytes, &[request]), &options);
    let expected = [100_000, 100_096, 104_192];
    for (i, (origin, at)) in found.origins.iter().zip(expected).enumerate() {
        let position = i as u64;
        let wanted = Origin { space: 2, time_ns: 9, buffer: Some(at), client: 0, position };
        assert_eq!(*origin, wanted);
    }
    assert_eq!(found.origins.len(), expected.len());
    // Whole blocks of a block trace, over the end of a chunk.
    let mut request = record(0, 7, CHUNK_REFERENCES as u64 + 2, Op::Read);
    request.buffer = Some(0);
    let found = whole(MemoryReader::boxed(Unit::Blocks, &[request]), &options);
    for (i, origin) in found.origins.iter().enumerate() {
        assert_eq!((origin.buffer, origin.position), (Some(i as u64 * 4096), i as u64));
    }
}

/// The references of a sample are those of the whole trace that stand at their positions.
#[test]
fn positions_in_a_sample_are_those_in_the_trace() {
    let mut random = SplitMix64::new(seed());
    let long = CHUNK_REFERENCES as u64;
    let mut one = |i: u64| {
        let length = if i == 7 { 2 * long } else { 1 + random.below(3) };
        record(0, random.below(1000), length, Op::Read)
    };
    let records: Vec<_> = (0..2000).map(&mut one).collect();
    let read = |sample_rate: f64| {
        let options = BlockOptions { origins: true, sample_rate, ..Default::default() };
        let mut stream =
            BlockStream::new(MemoryReader::boxed(Unit::Blocks, &records), &options).unwrap();
        let (mut refs, mut all) = (Vec::new(), Vec::new());
        while stream.next_chunk(&mut refs).unwrap() {
            let blocks = refs.iter().map(|r| stream.names().block(r.block()).unwrap());
            all.extend(stream.origins().iter().map(|origin| origin.position).zip(blocks));
        }
        all
    };
    let (whole, sample) = (read(1.0), read(0.1));
    assert!(whole.iter().enumerate().all(|(i, at)| at.0 == i as u64));
    assert!(sample.len() > 1000 && sample.len() < whole.len() / 5);
    assert!(sample.iter().all(|&(position, block)| whole[position as usize].1 == block));
}

#[test]
fn a_sample_is_a_function_of_the_block_alone() {
    let mut random = SplitMix64::new(seed());
    let mut fate: HashMap<(u32, u64), bool> = HashMap::new();
    for _ in 0..10 {
        let records = random_records(&mut random, 400);
        let all = whole(MemoryReader::boxed(Unit::Blocks, &records), &BlockOptions::default());
        let options = BlockOptions { sample_rate: 0.25, ..Default::default() };
        let sample = whole(MemoryReader::boxed(Unit::Blocks, &records), &options);
        assert_eq!(sample.stream.seen(), all.stream.seen());
        assert_eq!(sample.stream.kept().references(), sample.blocks.len() as u64);
        assert_eq!(sample.record_ends.len(), records.len());
        let kept: std::collections::HashSet<_> =
            sample.blocks.iter().map(|&(space, block, _)| (space, block)).collect();
        let mut expected = all.blocks.clone();
        expected.retain(|&(space, block, _)| kept.contains(&(space, block)));
        assert_eq!(sample.blocks, expected, "all references to a kept block, in order");
        for &(space, block, _) in &all.blocks {
            let is_kept = kept.contains(&(space, block));
            assert_eq!(*fate.entry((space, block)).or_insert(is_kept), is_kept);
        }
    }
}

#[test]
fn a_sample_has_its_size() {
    let records = [record(0, 0, 400_000, Op::Read), record(1, 0, 400_000, Op::Read)];
    for rate in [0.5, 0.1, 0.01] {
        let options = BlockOptions { sample_rate: rate, ..Default::default() };
        let sample = whole(MemoryReader::boxed(Unit::Blocks, &records), &options);
        let share = f64::from(sample.stream.unique()) / 800_000.0;
        assert!((share / rate - 1.0).abs() < 0.05, "{share} instead of {rate}");
    }
}

#[test]
fn wrong_options_and_impossible_records_are_refused() {
    let refused = |unit, options| {
        let Err(error) = BlockStream::new(MemoryReader::boxed(unit, &[]), &options) else {
            panic!("accepted {options:?}");
        };
        error.to_string()
    };
    let default = BlockOptions::default();
    let options = BlockOptions { block_bytes: 511, ..default };
    assert_eq!(refused(Unit::Bytes, options), "block size 511 bytes: expected at least 512");
    let options = BlockOptions { unit_bytes: Some(512), ..default };
    assert!(refused(Unit::Bytes, options).contains("in bytes already"));
    let options = BlockOptions { unit_bytes: Some(0), ..default };
    assert!(refused(Unit::Blocks, options).contains("at least 1"));
    for sample_rate in [0.0, -1.0, 1.01, f64::NAN] {
        let options = BlockOptions { sample_rate, ..default };
        assert!(refused(Unit::Blocks, options).contains("sample rate"));
    }
    let impossible = [(0, 0), (u64::MAX, 2), (0, 1 << 60), (u64::MAX - 5, 1 << 10)];
    for (address, length) in impossible {
        let records = [record(0, 1, 1, Op::Read), record(0, address, length, Op::Read)];
        let reader = MemoryReader::boxed(Unit::Bytes, &records);
        let error = BlockStream::new(reader, &BlockOptions::default())
            .unwrap()
            .next_chunk(&mut Vec::new())
            .unwrap_err();
        assert!(error.to_string().starts_with("record 2: address "), "{error}");
    }
}
