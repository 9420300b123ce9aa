//! Power cuts: at any moment, everything that was answered before an answered FLUSH was asked for
//! is in what the store would come back with, and so is every write with FUA that was answered.
//!
//! Each block has one writer at a time and versions that only grow. The store keeps what it must
//! keep and nothing more, so what survives is as old as the rules allow.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::common::{self, BLOCK, Random, TestStore, ask, config, open, seed, write_of};
use undercroft_server::{Caller, Volume, Write};

const WRITERS: u64 = 3;
const BLOCKS: u64 = 60;

/// A writer stops after so many writes and, so that a busy machine does as much, power cuts.
const WRITES: u64 = 400;
const CUTS: u64 = 4;

/// What is known of each block.
struct Ledger {
    /// The newest version that was answered.
    answered: Vec<AtomicU64>,
    /// The newest version that must survive.
    promised: Vec<AtomicU64>,
    /// The newest version that was asked for.
    asked: Vec<AtomicU64>,
    /// How often the power was cut so far.
    cuts: AtomicU64,
}

fn version_in(image: &[u8], block: u64) -> Result<u64, String> {
    let bytes = &image[(block * BLOCK) as usize..((block + 1) * BLOCK) as usize];
    let first = u64::from_le_bytes(bytes[..8].try_into().unwrap());
    if bytes.chunks(8).any(|word| word != first.to_le_bytes()) {
        return Err(format!("block {block} is torn"));
    }
    Ok(first)
}

async fn writer(volume: Arc<Volume>, ledger: Arc<Ledger>, index: u64, seed: u64) {
    let mut random = Random::new(seed);
    let mut writes = 0;
    while writes < WRITES || ledger.cuts.load(Ordering::SeqCst) < CUTS {
        writes += 1;
        // Blocks of this writer only, so that versions of a block come in order.
        let block = random.below(BLOCKS / WRITERS) * WRITERS + index;
        let slot = block as usize;
        let version = ledger.asked[slot].fetch_add(1, Ordering::SeqCst) + 1;
        let durable = random.one_in(6);
        let bytes = version.to_le_bytes().repeat(BLOCK as usize / 8);
        let (ask, answer) = ask(write_of(bytes), block * BLOCK, BLOCK, durable);
        volume.serve(&mut vec![ask], Caller::default());
        answer.await.unwrap().unwrap();
        ledger.answered[slot].store(version, Ordering::SeqCst);
        if durable {
            ledger.promised[slot].fetch_max(version, Ordering::SeqCst);
        }
    }
}

async fn flusher(volume: Arc<Volume>, ledger: Arc<Ledger>, stop: Arc<AtomicBool>, seed: u64) {
    let mut random = Random::new(seed);
    while !stop.load(Ordering::SeqCst) {
        let before: Vec<u64> = ledger.answered.iter().map(|v| v.load(Ordering::SeqCst)).collect();
        common::flush(&volume).await.unwrap();
        for (promised, version) in ledger.promised.iter().zip(before) {
            promised.fetch_max(version, Ordering::SeqCst);
        }
        tokio::time::sleep(Duration::from_micros(random.below(1500))).await;
    }
}

/// The image after a power cut now, against what was promised before.
fn cut(store: &TestStore, ledger: &Ledger, what: &str) {
    let promised: Vec<u64> = ledger.promised.iter().map(|v| v.load(Ordering::SeqCst)).collect();
    let image = store.inner.lock().unwrap().durable.clone();
    for block in 0..BLOCKS {
        let found = version_in(&image, block).unwrap_or_else(|e| panic!("{what}: {e}"));
        let (least, most) =
            (promised[block as usize], ledger.asked[block as usize].load(Ordering::SeqCst));
        assert!(found >= least, "{what}: block {block} has version {found}, promised {least}");
        assert!(found <= most, "{what}: block {block} has version {found} of {most}");
    }
}

async fn run(write: Write, cache: u32, shards: u32, age: Duration, seed: u64) {
    let what = format!("{write:?}, {cache} blocks, {shards} shards");
    let store = TestStore::new((BLOCKS * BLOCK) as usize, 512, seed);
    store.jitter.store(true, Ordering::SeqCst);
    store.takes_many.store(seed % 2 == 0, Ordering::SeqCst);
    let mut config = config(cache, "mq");
    (config.write, config.shards, config.dirty_age) = (write, shards, age);
    config.spare_frames = 8;
    let volume = open(config, &store);
    let versions = || (0..BLOCKS).map(|_| AtomicU64::new(0)).collect::<Vec<_>>();
    let (answered, promised, asked) = (versions(), versions(), versions());
    let ledger = Arc::new(Ledger { answered, promised, asked, cuts: AtomicU64::new(0) });
    let stop = Arc::new(AtomicBool::new(false));
    let flushing = tokio::spawn(flusher(volume.clone(), ledger.clone(), stop.clone(), seed));
    let writing: Vec<_> = (0..WRITERS)
        .map(|i| tokio::spawn(writer(volume.clone(), ledger.clone(), i, seed + i)))
        .collect();
    while !writing.iter().all(|w| w.is_finished()) {
        cut(&store, &ledger, &what);
        ledger.cuts.fetch_add(1, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_micros(200)).await;
    }
    for one in writing {
        one.await.unwrap();
    }
    stop.store(true, Ordering::SeqCst);
    flushing.await.unwrap();
    volume.close().await.unwrap();
    let image = store.inner.lock().unwrap().durable.clone();
    for block in 0..BLOCKS {
        let last = ledger.answered[block as usize].load(Ordering::SeqCst);
        assert_eq!(version_in(&image, block), Ok(last), "{what}: block {block} after closing");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_was_promised_survives() {
    let mut random = Random::new(seed());
    let (soon, late) = (Duration::from_millis(10), Duration::from_secs(600));
    for (write, cache, shards, age) in [
        (Write::Back, 80, 1, late),
        (Write::Back, 20, 1, soon),
        (Write::Back, 6, 2, late),
        (Write::Through, 20, 1, soon),
        (Write::Around, 20, 1, soon),
    ] {
        run(write, cache, shards, age, random.next_u64()).await;
    }
}

/// Nothing is durable before its time either: the store of these tests would show a cache that
/// relies on luck.
#[tokio::test]
async fn the_store_forgets_what_was_not_flushed() {
    let store = TestStore::new((BLOCKS * BLOCK) as usize, 512, 1);
    let volume = open(config(8, "lru"), &store);
    common::write(&volume, 0, vec![7; BLOCK as usize]).await.unwrap();
    assert_eq!(store.inner.lock().unwrap().durable[0], 0);
    common::flush(&volume).await.unwrap();
    assert_eq!(store.inner.lock().unwrap().durable[0], 7);
}
