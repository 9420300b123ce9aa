//! What every store must do, checked against a plain vector: random requests from a seed, limits,
//! requests at the same time, and memory given back after errors.

use std::io::{self, ErrorKind};
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use tempfile::TempDir;
use undercroft_store::{Buffer, MemoryStore, Store, Zeroing};

pub(crate) use undercroft_random::SplitMix64 as Random;

/// The seed of a random test.
pub(crate) fn seed() -> u64 {
    undercroft_random::testing::seed_or(1)
}

/// A folder beside the build's results, so on a disk and not in memory.
pub(crate) fn folder() -> TempDir {
    TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

pub(crate) fn memory(bytes: u64) -> Arc<dyn Store> {
    Arc::new(MemoryStore::new(bytes).unwrap())
}

/// Reads a range into one buffer.
pub(crate) async fn read(store: &dyn Store, offset: u64, length: u64) -> io::Result<Vec<u8>> {
    read_into(store, offset, &[length as usize]).await
}

/// Reads into buffers of the given sizes and joins them; they must come back, as many and as
/// large.
pub(crate) async fn read_into(
    store: &dyn Store,
    offset: u64,
    sizes: &[usize],
) -> io::Result<Vec<u8>> {
    let buffers = sizes.iter().map(|size| Box::new(vec![0xee_u8; *size]) as Buffer).collect();
    let (mut buffers, result) = store.read(offset, buffers).await;
    let back: Vec<usize> = buffers.iter_mut().map(|buffer| (**buffer).as_mut().len()).collect();
    assert_eq!(back, sizes, "buffers did not come back as they were given");
    result?;
    Ok(buffers.iter_mut().flat_map(|buffer| (**buffer).as_mut().to_vec()).collect())
}

pub(crate) async fn write(store: &dyn Store, offset: u64, data: &[u8]) -> io::Result<()> {
    store.write(offset, vec![Bytes::copy_from_slice(data)], false).await
}

/// The whole suite for a store that may be written and holds zeroes, or not, at first.
pub(crate) async fn conforms(store: Arc<dyn Store>, steps: usize) {
    limits(&*store).await;
    let size = store.facts().size;
    let mut model = read(&*store, 0, size).await.unwrap();
    random_requests(&*store, 0..size, &mut model, &mut Random::new(seed()), steps).await;
    at_the_same_time(&store, steps / 2).await;
    store.flush().await.unwrap();
    assert_eq!(store.reload().await.unwrap(), size);
}

/// Random requests in a range, each checked against the model of that range.
pub(crate) async fn random_requests(
    store: &dyn Store,
    range: Range<u64>,
    model: &mut [u8],
    random: &mut Random,
    steps: usize,
) {
    for step in 0..steps {
        let unit = u64::from(store.facts().alignment);
        let (offset, length) = place(random, range.end - range.start, unit);
        let at = range.start + offset;
        let here = offset as usize..(offset + length) as usize;
        let durable = random.below(8) == 0;
        match random.below(16) {
            0..=4 => {
                let sizes = split(random, length);
                let got = read_into(store, at, &sizes).await.unwrap();
                assert!(got == model[here], "step {step}: read of {length} at {at} differs");
            }
            5..=10 => {
                let data = random.bytes(length as usize);
                model[here].copy_from_slice(&data);
                let pieces = split(random, length);
                store.write(at, cut(&data, &pieces), durable).await.unwrap();
            }
            11..=12 => {
                let keep_allocated = random.below(2) == 0;
                let how = Zeroing { keep_allocated, only_if_fast: random.below(4) == 0 };
                match store.zero(at, length, how, durable).await {
                    Ok(()) => model[here].fill(0),
                    Err(error) => {
                        assert!(how.only_if_fast, "step {step}: {error}");
                        assert_eq!(error.kind(), ErrorKind::Unsupported, "step {step}: {error}");
                    }
                }
            }
            13 => {
                store.trim(at, length, durable).await.unwrap();
                let now = read(store, at, length).await.unwrap();
                for (old, new) in model[here.clone()].iter().zip(&now) {
                    assert!(new == old || *new == 0, "step {step}: trim made up data");
                }
                model[here].copy_from_slice(&now);
            }
            14 => store.flush().await.unwrap(),
            _ => extents_agree(store, at, &model[here]).await,
        }
    }
    let all = read(store, range.start, range.end - range.start).await.unwrap();
    assert!(all == model, "the store differs from the model at the end");
}

/// Extents lie in order within the range, and what is told to be zero is zero.
async fn extents_agree(store: &dyn Store, offset: u64, model: &[u8]) {
    let extents = store.extents(offset, model.len() as u64).await.unwrap();
    let mut at = 0;
    for extent in &extents {
        assert!(extent.length > 0, "an empty extent: {extents:?}");
        let end = at + extent.length as usize;
        assert!(end <= model.len(), "extents beyond the range: {extents:?}");
        if extent.zero {
            assert!(model[at..end].iter().all(|byte| *byte == 0), "no zeroes: {extents:?}");
        }
        at = end;
    }
    assert!(at > 0 || model.is_empty(), "no extent");
}

/// Tasks that keep to ranges of their own do not disturb one another.
async fn at_the_same_time(store: &Arc<dyn Store>, steps: usize) {
    const TASKS: u64 = 6;
    let facts = store.facts();
    // Off by one unit, so that the ranges share chunks, blocks, objects, stripes.
    let unit = u64::from(facts.alignment);
    let bound = |task: u64| (facts.size * task / TASKS / unit * unit + unit).min(facts.size);
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..TASKS {
        let store = Arc::clone(store);
        let range = bound(task)..bound(task + 1);
        tasks.spawn(async move {
            let mut model = read(&*store, range.start, range.end - range.start).await.unwrap();
            let mut random = Random::new(seed() ^ (task + 1));
            random_requests(&*store, range, &mut model, &mut random, steps).await;
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
}

/// What lies outside the store, or off its alignment, is refused and changes nothing.
async fn limits(store: &dyn Store) {
    let facts = store.facts();
    let unit = u64::from(facts.alignment);
    let mut bad = vec![(facts.size, unit), (facts.size - unit, 2 * unit)];
    bad.extend([(u64::MAX - unit + 1, unit), (1 << 63, unit)]);
    if unit > 1 {
        bad.extend([(1, unit), (0, unit - 1), (unit / 2, unit)]);
    }
    for (offset, length) in bad {
        let sizes = [length as usize / 2, length as usize - length as usize / 2];
        let data = vec![Bytes::from(vec![1; length as usize])];
        let results = [
            read_into(store, offset, &sizes).await.map(drop),
            store.write(offset, data, false).await,
            store.zero(offset, length, Zeroing::default(), false).await,
            store.trim(offset, length, false).await,
            store.extents(offset, length).await.map(drop),
        ];
        for (which, result) in results.into_iter().enumerate() {
            let error = result.expect_err("was not refused");
            let kind = error.kind();
            assert_eq!(kind, ErrorKind::InvalidInput, "{which}: {offset}+{length}: {error}");
        }
    }
    assert!(store.zero(0, u64::MAX, Zeroing::default(), false).await.is_err());
    for (offset, length) in [(0, 0), (facts.size, 0)] {
        assert!(read(store, offset, length).await.unwrap().is_empty());
        store.write(offset, Vec::new(), true).await.unwrap();
        store.zero(offset, length, Zeroing::default(), false).await.unwrap();
        store.trim(offset, length, false).await.unwrap();
    }
}

/// A read-only store refuses every change as such, and reads.
pub(crate) async fn refuses_changes(store: &dyn Store) {
    let facts = store.facts();
    assert!(facts.read_only);
    let unit = u64::from(facts.alignment);
    let before = read(store, 0, facts.size).await.unwrap();
    let results = [
        write(store, 0, &vec![1; unit as usize]).await,
        store.zero(0, unit, Zeroing::default(), false).await,
        store.trim(0, unit, false).await,
    ];
    for result in results {
        assert_eq!(result.unwrap_err().kind(), ErrorKind::ReadOnlyFilesystem);
    }
    store.flush().await.unwrap();
    assert!(read(store, 0, facts.size).await.unwrap() == before);
}

/// A range within `size`: mostly small, at times large, at times at the very end.
fn place(random: &mut Random, size: u64, unit: u64) -> (u64, u64) {
    let units = size / unit;
    let most = match random.below(8) {
        0 => units,
        1..=3 => (4096 / unit).max(1),
        _ => (200_000 / unit).max(1),
    };
    let length = random.below(most.min(units)) + 1;
    let start =
        if random.below(16) == 0 { units - length } else { random.below(units - length + 1) };
    (start * unit, length * unit)
}

/// Sizes that make up a length; with no regard to alignment, which concerns the whole request.
fn split(random: &mut Random, length: u64) -> Vec<usize> {
    let mut rest = length as usize;
    let mut out = Vec::new();
    for _ in 0..random.below(4) {
        let size = random.below(rest as u64 + 1) as usize;
        out.push(size);
        rest -= size;
    }
    out.push(rest);
    out
}

fn cut(data: &[u8], sizes: &[usize]) -> Vec<Bytes> {
    let mut rest = Bytes::copy_from_slice(data);
    sizes.iter().map(|size| rest.split_to(*size)).collect()
}
