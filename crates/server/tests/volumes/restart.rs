//! Warm restarts: the policy goes on where it stopped, and blocks whose data has not been read
//! again serve every request as they should. Requests of all kinds at random are in `shadow.rs`.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::common::{
    self, BLOCK, READ, Random, Request, TestStore, ZERO, begin, config, filled, flush, open, read,
    seed, settle, write, write_back,
};
use undercroft_level::KnownBlocks;
use undercroft_nbd::Command;
use undercroft_nbd::CommandKind as Operation;
use undercroft_policy::policies;
use undercroft_server::{Restored, SavedContent, Source, Stats, Volume, VolumeConfig, Write};

fn store_of(blocks: u64) -> Arc<TestStore> {
    filled(blocks, |block| block as u8)
}

/// The blocks that were read from the store since the log had `from` entries.
fn fetched(store: &TestStore, from: usize) -> Vec<u64> {
    let blocks = |request| match request {
        Request::Read(offset, length) => offset / BLOCK..(offset + length) / BLOCK,
        _ => 0..0,
    };
    store.log().into_iter().skip(from).flat_map(blocks).collect()
}

/// What a volume knows, through the bytes of a file.
fn saved(volume: &Volume) -> SavedContent {
    SavedContent::from_bytes(&SavedContent::of(volume).unwrap().to_bytes()).unwrap()
}

/// A volume on the same store that goes on where this one is; its data is not there yet.
fn restarted(volume: &Volume, store: &Arc<TestStore>) -> (Arc<Volume>, Restored) {
    let again = open(volume.config().clone(), store);
    let restored = again.restore(&saved(volume)).unwrap();
    assert_eq!(restored.starts_anew(), None);
    again.validate().unwrap();
    (again, restored)
}

fn residents(volume: &Volume) -> Vec<u64> {
    let shards = SavedContent::of(volume).unwrap().shards;
    shards.iter().flat_map(|shard| KnownBlocks::residents_of(shard).unwrap()).collect()
}

/// A volume of 4 blocks with blocks 1 to 4 resident, restarted.
async fn unloaded(config: VolumeConfig, store: &Arc<TestStore>) -> (Arc<Volume>, Restored) {
    let volume = open(config, store);
    for block in 1..=4 {
        read(&volume, block * BLOCK, BLOCK).await.unwrap();
    }
    let (again, restored) = restarted(&volume, store);
    assert_eq!((again.stats().resident, again.stats().unloaded), (4, 4));
    (again, restored)
}

fn with(write: Write) -> VolumeConfig {
    VolumeConfig { write, ..write_back(4) }
}

#[tokio::test]
async fn a_read_of_an_unloaded_block_is_a_hit_that_waits() {
    let store = store_of(16);
    let (volume, restored) = unloaded(config(4, "lru"), &store).await;
    let log = store.log().len();
    assert_eq!(read(&volume, 2 * BLOCK, BLOCK).await.unwrap(), [2; 4096]);
    assert_eq!(read(&volume, 2 * BLOCK, BLOCK).await.unwrap(), [2; 4096]);
    assert_eq!(fetched(&store, log), [2], "at once, and once");
    let stats = volume.stats();
    assert_eq!((stats.reads, stats.read_hits, stats.joined_reads), (2, 2, 1));
    assert_eq!((stats.cold_reads, stats.unloaded, stats.store_reads), (0, 3, 1));
    let latencies = volume.latencies();
    let count = |source| latencies.of(Operation::Read, source).count();
    assert_eq!([Source::Hit, Source::Joined, Source::Miss].map(count), [1, 1, 0]);
    // The rest follows, the last victim first, and nothing twice.
    assert_eq!(restored.blocks(), [4, 3, 2, 1]);
    assert_eq!(restored.warm_up(&volume).await, 3);
    settle().await;
    assert_eq!(fetched(&store, log), [2, 1, 3, 4]);
    assert_eq!((volume.stats().unloaded, volume.stats().prefetched), (0, 3));
    assert_eq!(residents(&volume), [1, 3, 4, 2]);
    volume.validate().unwrap();
}

#[tokio::test]
async fn demand_goes_before_the_warm_up() {
    let store = store_of(16);
    let (volume, restored) = unloaded(config(4, "lru"), &store).await;
    store.hold_reads.store(true, Ordering::SeqCst);
    let log = store.log().len();
    let first = begin(&volume, READ, 3 * BLOCK, BLOCK);
    let warming = tokio::spawn({
        let volume = Arc::clone(&volume);
        async move { restored.warm_up(&volume).await }
    });
    settle().await;
    assert_eq!(fetched(&store, log), [3]);
    store.release();
    first.await.unwrap().unwrap();
    assert_eq!(warming.await.unwrap(), 3);
}

#[tokio::test]
async fn a_prefetch_loads_what_is_unloaded() {
    let store = store_of(16);
    let (volume, _) = unloaded(config(4, "lru"), &store).await;
    begin(&volume, Command::Cache, BLOCK, 2 * BLOCK).await.unwrap().unwrap();
    settle().await;
    assert_eq!((volume.stats().unloaded, volume.stats().prefetched), (2, 2));
    assert_eq!(volume.residency(0, 6 * BLOCK).len(), 3, "1 and 2 are in memory");
    volume.validate().unwrap();
}

#[tokio::test]
async fn writes_find_unloaded_blocks_in_every_mode() {
    for mode in [Write::Through, Write::Back, Write::Around] {
        let store = store_of(16);
        let (volume, _) = unloaded(with(mode), &store).await;
        // A whole block, a part, and a part over the border of two.
        write(&volume, BLOCK, vec![0xa1; 4096]).await.unwrap();
        write(&volume, 2 * BLOCK + 100, vec![0xa2; 200]).await.unwrap();
        write(&volume, 4 * BLOCK - 10, vec![0xa3; 20]).await.unwrap();
        let stats = volume.stats();
        let kept = if mode == Write::Around { 0 } else { 4 };
        assert_eq!((stats.writes, stats.write_hits), (4, 4), "{mode:?}");
        assert_eq!((stats.resident, stats.unloaded), (kept, 0), "{mode:?}");
        let mut expected: Vec<u8> = (0..16 * BLOCK).map(|at| (at / BLOCK) as u8).collect();
        expected[4096..8192].fill(0xa1);
        expected[8292..8492].fill(0xa2);
        expected[16374..16394].fill(0xa3);
        volume.validate().unwrap();
        assert!(read(&volume, 0, 6 * BLOCK).await.unwrap() == expected[..6 * 4096], "{mode:?}");
        flush(&volume).await.unwrap();
        assert!(store.live() == expected, "{mode:?}");
    }
}

#[tokio::test]
async fn writes_that_allocate_nothing_update_unloaded_blocks() {
    let store = store_of(16);
    let mut config = with(Write::Through);
    config.write_allocate = false;
    let (volume, _) = unloaded(config, &store).await;
    write(&volume, BLOCK + 100, vec![0xa1; 100]).await.unwrap();
    write(&volume, 9 * BLOCK, vec![0xa1; 4096]).await.unwrap();
    assert_eq!((volume.stats().resident, volume.stats().unloaded), (4, 3));
    let log = store.log().len();
    assert_eq!(read(&volume, BLOCK + 50, 100).await.unwrap()[49..51], [1, 0xa1]);
    assert!(fetched(&store, log).is_empty());
}

#[tokio::test]
async fn unloaded_blocks_are_evicted_trimmed_and_zeroed_like_others() {
    let store = store_of(16);
    let (volume, restored) = unloaded(config(4, "lru"), &store).await;
    let log = store.log().len();
    read(&volume, 9 * BLOCK, BLOCK).await.unwrap();
    assert_eq!((volume.stats().evictions, volume.stats().unloaded), (1, 3));
    begin(&volume, Command::Trim, 2 * BLOCK, BLOCK).await.unwrap().unwrap();
    assert_eq!((volume.stats().resident, volume.stats().unloaded), (3, 2));
    begin(&volume, ZERO, 3 * BLOCK, BLOCK).await.unwrap().unwrap();
    assert_eq!((volume.stats().resident, volume.stats().unloaded), (3, 1));
    volume.validate().unwrap();
    assert_eq!(restored.warm_up(&volume).await, 1);
    settle().await;
    assert_eq!(fetched(&store, log), [9, 4]);
    assert_eq!(read(&volume, 2 * BLOCK, 3 * BLOCK).await.unwrap()[8192..], [4; 4096]);
    assert_eq!(read(&volume, 2 * BLOCK, 2 * BLOCK).await.unwrap(), [0; 8192]);
    volume.validate().unwrap();
}

#[tokio::test]
async fn a_block_that_cannot_be_read_stays_unloaded() {
    let store = store_of(16);
    let (volume, restored) = unloaded(config(4, "lru"), &store).await;
    store.fail_reads.store(true, Ordering::SeqCst);
    assert!(read(&volume, 2 * BLOCK, BLOCK).await.is_err());
    restored.warm_up(&volume).await;
    settle().await;
    let stats = volume.stats();
    assert_eq!((stats.resident, stats.unloaded, stats.read_failures), (4, 4, 5));
    volume.validate().unwrap();
    store.fail_reads.store(false, Ordering::SeqCst);
    assert_eq!(read(&volume, 2 * BLOCK, BLOCK).await.unwrap(), [2; 4096]);
    // A failed write says nothing of what the store holds, but it can be asked.
    store.fail_writes.store(true, Ordering::SeqCst);
    assert!(write(&volume, 3 * BLOCK, vec![9; 4096]).await.is_err());
    let half = [[9; 2048], [3; 2048]].concat();
    assert_eq!(read(&volume, 3 * BLOCK, BLOCK).await.unwrap(), half);
    volume.validate().unwrap();
}

#[tokio::test]
async fn a_volume_that_shrank_or_grew_keeps_what_is_left() {
    for policy in
        policies().iter().filter(|policy| policy.name != "opt" && !policy.is_content_aware())
    {
        let store = store_of(40);
        let volume = open(config(8, policy.name), &store);
        let mut random = Random::new(7);
        for _ in 0..200 {
            read(&volume, random.below(40) * BLOCK, BLOCK).await.unwrap();
        }
        let (saved, before) = (saved(&volume), residents(&volume));
        // The last block is not whole.
        for bytes in [9 * BLOCK + 512, 60 * BLOCK] {
            let store = TestStore::new(bytes as usize, 512, 1);
            let volume = open(config(8, policy.name), &store);
            let restored = volume.restore(&saved).unwrap();
            assert_eq!(restored.starts_anew(), None, "{}", policy.name);
            let mut expected = before.clone();
            expected.retain(|block| block * BLOCK < bytes);
            let mut left = residents(&volume);
            for blocks in [&mut expected, &mut left] {
                blocks.sort_unstable();
            }
            assert_eq!(left, expected, "{}", policy.name);
            volume.validate().unwrap();
            restored.warm_up(&volume).await;
            settle().await;
            assert_eq!((volume.stats().unloaded, volume.stats().read_failures), (0, 0));
            read(&volume, 0, bytes.min(64 << 10)).await.unwrap();
            volume.validate().unwrap();
        }
    }
}

/// With another policy, size or number of shards the blocks are placed, if there is room.
#[tokio::test]
async fn what_does_not_fit_is_placed_in_order() {
    let store = store_of(32);
    let volume = open(config(8, "lru"), &store);
    for block in [3, 9, 1, 30, 3_u64] {
        read(&volume, block * BLOCK, BLOCK).await.unwrap();
    }
    let saved = saved(&volume);
    let mut sharded = config(8, "lru");
    sharded.shards = 2;
    for (config, why, kept) in [
        (config(3, "lru"), "a cache of 8 blocks", &[1, 30, 3][..]),
        (config(8, "fifo"), "the policy was lru", &[9, 1, 30, 3]),
        (sharded, "there were 1 shards", &[9, 1, 30, 3]),
    ] {
        let volume = open(config, &store);
        let restored = volume.restore(&saved).unwrap();
        assert!(restored.starts_anew().unwrap().contains(why), "{restored:?}");
        assert_eq!(restored.blocks(), kept);
        assert_eq!(restored.warm_up(&volume).await, kept.len() as u64);
        settle().await;
        let mut found = residents(&volume);
        let mut kept = kept.to_vec();
        if volume.config().shards > 1 {
            for blocks in [&mut found, &mut kept] {
                blocks.sort_unstable();
            }
        }
        assert_eq!(found, kept);
        assert_eq!(volume.stats().unloaded, 0);
        volume.validate().unwrap();
    }
    // Whoever has begun to use the volume keeps what it has.
    let volume = open(config(3, "lru"), &store);
    read(&volume, 0, 1).await.unwrap();
    let restored = volume.restore(&saved).unwrap();
    assert!(restored.starts_anew().is_some());
    assert_eq!(restored.warm_up(&volume).await, 2);
    settle().await;
    assert_eq!(residents(&volume), [0, 1, 30]);
    let mut other = saved.clone();
    other.block_bytes = 8192;
    assert!(volume.restore(&other).is_err());
    other = saved.clone();
    other.shards[0].clear();
    assert!(volume.restore(&other).is_err(), "not even a list");
    // The policy's own part is damaged: the list is there still.
    other = saved.clone();
    other.shards[0].pop();
    let volume = open(config(8, "lru"), &store);
    let restored = volume.restore(&other).unwrap();
    assert_eq!((restored.blocks(), restored.starts_anew().is_some()), (&[9, 1, 30, 3][..], true));
}

#[tokio::test]
async fn blocks_of_another_shard_are_not_taken_on() {
    let store = store_of(600);
    let mut config = config(64, "lru");
    config.shards = 2;
    let volume = open(config.clone(), &store);
    for block in (0..600).step_by(10) {
        read(&volume, block * BLOCK, BLOCK).await.unwrap();
    }
    let (again, _) = restarted(&volume, &store);
    assert_eq!(residents(&again), residents(&volume));
    let mut swapped = saved(&volume);
    swapped.shards.swap(0, 1);
    let again = open(config, &store);
    let restored = again.restore(&swapped).unwrap();
    assert!(restored.starts_anew().unwrap().contains("another shard"));
}

/// One request of any kind that changes what the policy knows.
async fn request(volume: &Arc<Volume>, random: &mut Random, blocks: u64) {
    let first = random.below(blocks);
    let first = random.below(first + 1);
    let count = (1 + random.below(3)).min(blocks - first);
    let (offset, length) = (first * BLOCK, count * BLOCK);
    let command = match random.below(20) {
        0 => Command::Trim,
        1 => ZERO,
        2 | 3 => Command::Cache,
        4..=7 => common::write_of(vec![random.next_u64() as u8; length as usize]),
        _ => READ,
    };
    begin(volume, command, offset, length).await.unwrap().unwrap();
}

/// The counts of what the policy did, but for the cold reads, which a new life cannot know.
fn counted(stats: &Stats) -> [u64; 5] {
    [stats.reads, stats.read_hits, stats.writes, stats.write_hits, stats.evictions]
}

/// Two volumes get the same requests. One is restarted now and then, sometimes before it has all
/// its data again. Both must have counted the same in the end, and hold the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_leaves_no_trace_in_the_counts() {
    let seed = seed();
    for policy in
        policies().iter().filter(|policy| policy.name != "opt" && !policy.is_content_aware())
    {
        for (mode, shards) in
            [(Write::Through, 1), (Write::Back, 1), (Write::Around, 1), (Write::Through, 3)]
        {
            let mut config = config(24, policy.name);
            (config.write, config.shards) = (mode, shards);
            let what = format!("{} {mode:?}, {shards} shards", policy.name);
            let blocks = 60;
            let steady = open(config.clone(), &store_of(blocks));
            let store = store_of(blocks);
            let mut volume = open(config, &store);
            let mut sums = [0; 5];
            for life in 0..4_u64 {
                for step in 0..150 {
                    let draw = seed ^ life << 32 ^ step << 16;
                    request(&steady, &mut Random::new(draw), blocks).await;
                    request(&volume, &mut Random::new(draw), blocks).await;
                }
                // What was prefetched for nobody may still be on its way.
                settle().await;
                volume.validate().unwrap_or_else(|e| panic!("{what}: {e}"));
                sums = std::array::from_fn(|i| sums[i] + counted(&volume.stats())[i]);
                assert_eq!(sums, counted(&steady.stats()), "{what}, life {life}");
                let mut both = [residents(&volume), residents(&steady)];
                both.iter_mut().for_each(|blocks| blocks.sort_unstable());
                assert_eq!(both[0], both[1], "{what}, life {life}");
                flush(&volume).await.unwrap();
                let (again, restored) = restarted(&volume, &store);
                // Every other life begins with a warm-up.
                if life % 2 == 0 {
                    tokio::spawn({
                        let again = Arc::clone(&again);
                        async move { restored.warm_up(&again).await }
                    });
                }
                volume = again;
            }
        }
    }
}
