//! A trace reads the same from memory and from the spool, in both directions, by many threads.

use super::*;
use crate::blocks::tests::{MemoryReader, random_records, record, seed};
use crate::blocks::{BlockOptions, CHUNK_REFERENCES};
use crate::record::{Op, Record, Unit};
use undercroft_random::SplitMix64;

fn load(records: &[Record], memory_bytes: u64, sample_rate: f64) -> DenseTrace {
    let options = BlockOptions { sample_rate, ..Default::default() };
    let stream = BlockStream::new(MemoryReader::boxed(Unit::Blocks, records), &options).unwrap();
    let options = DenseOptions { memory_bytes, ..Default::default() };
    let mut told = 0;
    let trace = DenseTrace::load_with(stream, &options, |records| told = records).unwrap();
    assert_eq!(told, records.len() as u64);
    trace
}

fn forward(trace: &DenseTrace) -> Vec<Ref> {
    let mut all = Vec::new();
    trace
        .for_each_chunk(|start, refs| {
            assert_eq!(start, all.len() as u64);
            all.extend_from_slice(refs);
        })
        .unwrap();
    all
}

fn backward(trace: &DenseTrace) -> Vec<Ref> {
    let mut all = Vec::new();
    let mut chunks = trace.backward();
    while let Some((start, refs)) = chunks.next().unwrap() {
        all.extend(refs.iter().rev());
        assert_eq!(start, trace.len() - all.len() as u64);
    }
    all.reverse();
    all
}

#[test]
fn memory_and_spool_are_the_same_trace() {
    let mut random = SplitMix64::new(seed());
    for round in 0..8 {
        let mut records = random_records(&mut random, 299);
        records.insert(random.below(299) as usize, record(0, 3, 150_000, Op::Write));
        let rate = if round % 2 == 0 { 1.0 } else { 0.3 };
        let memory = load(&records, u64::MAX, rate);
        let expected = forward(&memory);
        assert!(!memory.is_spooled());
        assert_eq!(memory.len(), expected.len() as u64);
        assert_eq!(backward(&memory), expected);
        // Nothing in memory; the first chunk in memory and the others spooled.
        for limit in [0, CHUNK_REFERENCES as u64 * 4] {
            let spooled = load(&records, limit, rate);
            assert_eq!(spooled.is_spooled(), spooled.len() * 4 > limit || limit == 0);
            assert_eq!(forward(&spooled), expected);
            assert_eq!(backward(&spooled), expected);
            assert_eq!(spooled.seen(), memory.seen());
            assert_eq!(spooled.kept(), memory.kept());
            assert_eq!(spooled.unique(), memory.unique());
            for n in [0, 1, 2, 57, 150, 299, 300, 301] {
                let end = spooled.references_of(n).unwrap();
                assert_eq!(end, memory.references_of(n).unwrap());
                let before = &records[..records.len().min(n as usize)];
                assert_eq!(end, load(before, u64::MAX, rate).len(), "{n} records");
            }
        }
    }
}

#[test]
fn threads_read_at_once() {
    let records: Vec<Record> = (0..200_000).map(|n| record(0, n * 7 % 5003, 1, Op::Read)).collect();
    let trace = load(&records, 300_000, 1.0);
    let expected = forward(&trace);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert_eq!(forward(&trace), expected));
            scope.spawn(|| assert_eq!(backward(&trace), expected));
        }
    });
}

#[test]
fn an_empty_trace_is_one() {
    let trace = load(&[], 0, 1.0);
    assert!(trace.is_empty() && forward(&trace).is_empty());
    assert_eq!((trace.unique(), trace.references_of(5).unwrap()), (0, 0));
}

#[test]
fn a_spool_that_cannot_be_made_is_an_error_with_its_folder() {
    let reader = MemoryReader::boxed(Unit::Blocks, &[record(0, 1, 1, Op::Read)]);
    let stream = BlockStream::new(reader, &BlockOptions::default()).unwrap();
    let options = DenseOptions { memory_bytes: 0, spool_folder: "/nonexistent/folder".into() };
    let error = DenseTrace::load_with(stream, &options, |_| ()).unwrap_err();
    assert!(error.to_string().starts_with("/nonexistent/folder/"), "{error}");
}
