//! Driven by one client at depth 1, a volume counts exactly what the simulator's level counts: for
//! every policy, in every write mode, with requests of one and of many blocks, and with requests
//! larger than the cache. The data is checked along the way.

use crate::common::{Random, TestStore, config, flush, open, read, seed, write};
use undercroft_level::{DenseLevel, Streams};
use undercroft_policy::{Context, Reference, Spec, WriteMode, policies};
use undercroft_server::{VolumeConfig, Write};

const BLOCKS: u64 = 96;

/// The next request: first block and count.
fn draw(random: &mut Random, zipf: bool, most: u64) -> (u64, u64) {
    // The harmonic law by rejection: block k with weight 1 / (k + 1).
    let first = loop {
        let block = random.below(BLOCKS);
        if !zipf || random.below(block + 1) == 0 {
            break block;
        }
    };
    let count = match random.below(20) {
        0 => 1 + random.below(BLOCKS),
        1..=4 => 1 + random.below(6),
        _ => 1,
    };
    (first, count.min(BLOCKS - first).min(most))
}

async fn agree(config: VolumeConfig, mode: WriteMode, random: &mut Random) {
    // A request holds the frames that it hits and drives out again itself: until it is answered
    // they are missing, so that it must not have more blocks than there are spare frames.
    let (steps, most) = (250, u64::from(config.spare_frames));
    let block_bytes = u64::from(config.block_bytes);
    let what = format!("{} {:?} {mode:?} of {}", config.policy, config.write, config.cache_blocks);
    let store = TestStore::new((BLOCKS * block_bytes) as usize, 512, random.next_u64());
    let policy = config.policy.build(&Context::new(config.cache_blocks)).unwrap();
    let mut level = DenseLevel::new(policy, mode);
    let mut streams = Streams::beyond(config.stream_cutoff_bytes, config.block_bytes);
    let volume = open(config, &store);
    // The level's blocks are numbered by first touch.
    let mut entries = vec![u32::MAX; BLOCKS as usize];
    let mut known = 0;
    let mut model = vec![0_u8; BLOCKS as usize];
    for step in 0..steps {
        let (first, count) = draw(random, step % 2 == 0, most);
        let is_write = random.one_in(3);
        for block in first..first + count {
            let entry = &mut entries[block as usize];
            if *entry == u32::MAX {
                *entry = known;
                level.bind(known, [block].into_iter());
                known += 1;
            }
            let reference = Reference::new(*entry, is_write);
            match streams.as_mut().is_some_and(|streams| streams.note(block)) {
                true => level.pass(known, reference),
                false => level.reference(known, reference),
            };
        }
        let (offset, length) = (first * block_bytes, count * block_bytes);
        let touched = first as usize..(first + count) as usize;
        if is_write {
            let byte = step as u8 | 1;
            model[touched].fill(byte);
            write(&volume, offset, vec![byte; length as usize]).await.unwrap();
        } else {
            let data = read(&volume, offset, length).await.unwrap();
            for (chunk, &byte) in data.chunks(block_bytes as usize).zip(&model[touched]) {
                assert!(chunk.iter().all(|&b| b == byte), "{what}: step {step}");
            }
        }
        let (stats, counts) = (volume.stats(), level.counts());
        let ours = (stats.reads, stats.read_hits, stats.writes, stats.write_hits);
        let theirs = (counts.reads, counts.read_hits, counts.writes, counts.write_hits);
        assert_eq!(ours, theirs, "{what}: reads and writes at step {step}");
        let ours = (stats.cold_reads, stats.evictions, stats.streamed, stats.resident);
        let theirs =
            (counts.cold_reads, counts.evictions, counts.streamed, level.policy().len().into());
        assert_eq!(ours, theirs, "{what}: cold, evictions, streamed, resident at step {step}");
    }
    assert_eq!(volume.stats().served_around, 0, "{what}");
    assert_eq!(volume.stats().streamed > 0, streams.is_some(), "{what}");
    flush(&volume).await.unwrap();
    volume.validate().unwrap();
    let live = store.live();
    for (chunk, &byte) in live.chunks(block_bytes as usize).zip(&model) {
        assert!(chunk.iter().all(|&b| b == byte), "{what}: the store after a flush");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_policy_counts_what_the_simulator_counts() {
    let mut random = Random::new(seed());
    for info in policies().iter().filter(|info| info.name != "opt" && !info.is_content_aware()) {
        for capacity in [1, 10, 40] {
            for (write, allocate, mode) in [
                (Write::Through, true, WriteMode::Allocate),
                (Write::Through, false, WriteMode::NoAllocate),
                (Write::Around, true, WriteMode::Invalidate),
                (Write::Back, true, WriteMode::Allocate),
            ] {
                let mut config = config(capacity, info.name);
                config.write = write;
                config.write_allocate = allocate;
                agree(config, mode, &mut random).await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_pass_every_policy_as_in_the_simulator() {
    let mut random = Random::new(seed());
    for info in policies().iter().filter(|info| info.name != "opt" && !info.is_content_aware()) {
        for (write, mode) in
            [(Write::Through, WriteMode::Allocate), (Write::Back, WriteMode::Allocate)]
        {
            for blocks in [1, 5] {
                let mut config = config(20, info.name);
                config.write = write;
                config.stream_cutoff_bytes = blocks * u64::from(config.block_bytes);
                agree(config, mode, &mut random).await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn few_spare_frames_and_large_blocks_change_nothing() {
    let mut random = Random::new(seed());
    for write in [Write::Through, Write::Back] {
        for block_bytes in [4096, 16384, 65536] {
            let mut config = config(12, "mq");
            config.write = write;
            config.block_bytes = block_bytes;
            config.spare_frames = 2;
            agree(config, WriteMode::Allocate, &mut random).await;
        }
    }
}

#[test]
fn the_memory_of_a_volume_is_what_its_frames_need() {
    let mut config = VolumeConfig::new("v", 1000, Spec::parse("lru").unwrap());
    config.spare_frames = 10;
    config.shards = 3;
    assert_eq!(config.memory_bytes(), (1000 + 12) * 4096);
    config.cache_blocks = 0;
    assert_eq!(config.memory_bytes(), 0);
}
