//! Size, policy and placement of a cache change while the volume is served: what is counted, what
//! stays, and that nothing is lost. `shadow.rs` does it under load.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::common::{
    BLOCK, READ, Random, TestStore, ZERO, ask, begin, begin_as, config, flush, open, open_on, read,
    seed, write,
};
use undercroft_level::Level;
use undercroft_level::placement::Placement;
use undercroft_nbd::Command;
use undercroft_policy::{WriteMode, policies};
use undercroft_server::{Answer, Caller, Volume, VolumeConfig, Write};
use undercroft_store::{OpenOptions, StoreSpec};

async fn resize(volume: &Arc<Volume>, blocks: u32) {
    let next = VolumeConfig { cache_blocks: blocks, ..VolumeConfig::clone(&volume.now()) };
    volume.change(&next).await.unwrap();
    volume.validate().unwrap();
    assert_eq!(volume.stats().capacity_blocks, u64::from(blocks));
}

/// Waits until the memory that the cache has given up is the system's.
async fn given_back(volume: &Arc<Volume>) {
    for _ in 0..2000 {
        if volume.surplus_frames() == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("{} frames are still there", volume.surplus_frames());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_resized_cache_counts_what_a_resized_level_counts() {
    let mut random = Random::new(seed());
    for info in policies().iter().filter(|info| info.name != "opt" && !info.is_content_aware()) {
        for kind in [Write::Through, Write::Back] {
            let config = VolumeConfig { write: kind, ..config(20, info.name) };
            let what = format!("{} {kind:?}", info.name);
            let store = TestStore::new(96 * 4096, 512, random.next_u64());
            let access = Placement::Access;
            let mode = WriteMode::Allocate;
            let mut level = Level::new(&config.policy, 20, &access, mode, 0).unwrap();
            let volume = open(config, &store);
            let (mut model, mut seen) = (vec![0_u8; 96], [false; 96]);
            for step in 0..400 {
                if step % 50 == 49 {
                    let capacity = 1 + random.below(60) as u32;
                    level.resize(capacity);
                    resize(&volume, capacity).await;
                }
                let span = if step % 3 == 0 { 96 } else { 24 };
                let (block, is_write) = (random.below(span), random.one_in(4));
                let is_cold = !std::mem::replace(&mut seen[block as usize], true);
                level.reference(block, is_write, || is_cold);
                if is_write {
                    model[block as usize] = step as u8;
                    write(&volume, block * BLOCK, vec![step as u8; 4096]).await.unwrap();
                } else {
                    let data = read(&volume, block * BLOCK, BLOCK).await.unwrap();
                    let byte = model[block as usize];
                    assert!(data.iter().all(|&b| b == byte), "{what}: step {step}");
                }
                let (stats, counts) = (volume.stats(), level.cache().counts());
                let ours = [stats.reads, stats.read_hits, stats.writes, stats.write_hits];
                let theirs = [counts.reads, counts.read_hits, counts.writes, counts.write_hits];
                assert_eq!(ours, theirs, "{what}: step {step}");
                let ours = [stats.cold_reads, stats.evictions, stats.resident];
                let theirs = [counts.cold_reads, counts.evictions, level.policy().len().into()];
                assert_eq!(ours, theirs, "{what}: step {step}");
            }
            assert_eq!(volume.stats().served_around, 0, "{what}");
            flush(&volume).await.unwrap();
            given_back(&volume).await;
            for (chunk, &byte) in store.live().chunks(4096).zip(&model) {
                assert!(chunk.iter().all(|&b| b == byte), "{what}: the store after a flush");
            }
        }
    }
}

/// A long range is gone through in steps, and the cache grows between two of them.
#[tokio::test]
async fn a_cache_that_grows_amid_a_zeroed_range_keeps_none_of_its_blocks() {
    const ALL: u64 = 3000;
    for way in [Write::Through, Write::Back] {
        for pause in 0..16 {
            let store = TestStore::new((ALL * BLOCK) as usize, 512, 1);
            let volume = open(VolumeConfig { write: way, ..config(2048, "lru") }, &store);
            for block in (0..2048).rev() {
                write(&volume, block * BLOCK, vec![1; 4096]).await.unwrap();
            }
            let zeroed = begin(&volume, ZERO, 0, ALL * BLOCK);
            for _ in 0..pause {
                tokio::task::yield_now().await;
            }
            resize(&volume, 4000).await;
            zeroed.await.unwrap().unwrap();
            let data = read(&volume, 0, ALL * BLOCK).await.unwrap();
            assert!(data.iter().all(|&byte| byte == 0), "{way:?}: after {pause}");
            flush(&volume).await.unwrap();
            assert!(store.live().iter().all(|&byte| byte == 0), "{way:?}: store after {pause}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_policy_or_placement_costs_no_cold_cache() {
    for shards in [1, 2] {
        let store = TestStore::new(64 * 4096, 512, 1);
        let volume = open(VolumeConfig { shards, ..config(100, "lru") }, &store);
        for block in 0..40 {
            write(&volume, block * BLOCK, vec![block as u8 + 1; 4096]).await.unwrap();
        }
        for (policy, placement) in
            [("mq", "access"), ("arc", "eviction"), ("s3-fifo", "auto"), ("lru", "access")]
        {
            let mut next = VolumeConfig::clone(&volume.now());
            next.policy = policy.parse().unwrap();
            next.placement = placement.parse().unwrap();
            volume.change(&next).await.unwrap();
            volume.validate().unwrap();
            let before = volume.stats();
            assert_eq!(before.resident, 40, "{policy} {placement}");
            for block in 0..40 {
                let data = read(&volume, block * BLOCK, BLOCK).await.unwrap();
                assert_eq!(data, vec![block as u8 + 1; 4096]);
            }
            let after = volume.stats();
            assert_eq!(after.read_hits - before.read_hits, 40, "{policy} {placement}");
            assert_eq!(after.store_reads, before.store_reads);
            assert_eq!(volume.now().policy.to_string(), policy);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_placement_is_in_force_at_once() {
    let store = TestStore::new(64 * 4096, 512, 1);
    let volume = open(config(16, "lru"), &store);
    let place = |placement: &str| {
        let mut next = VolumeConfig::clone(&volume.now());
        next.placement = placement.parse().unwrap();
        next
    };
    // A client that tells what it evicts leaves no room to what it has.
    let caller = Caller { client: 0, tells: true };
    let read_as = async |block: u64| {
        begin_as(&volume, caller, READ, block * BLOCK, BLOCK).await.unwrap().unwrap();
    };
    for (round, placement) in ["eviction,on-hit=move", "access", "eviction"].into_iter().enumerate()
    {
        volume.change(&place(placement)).await.unwrap();
        let (before, first) = (volume.stats().resident, round as u64 * 4);
        for block in first..first + 4 {
            read_as(block).await;
        }
        let came = if placement == "access" { 4 } else { 0 };
        assert_eq!(volume.stats().resident, before + came, "{placement}");
        volume.validate().unwrap();
    }
    given_back(&volume).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dirty_blocks_outlive_a_smaller_cache_and_a_store_that_fails() {
    let store = TestStore::new(128 * 4096, 512, 1);
    let mut config = VolumeConfig { write: Write::Back, ..config(64, "lru") };
    (config.dirty_age, config.dirty_share) = (Duration::from_secs(600), 1.0);
    let volume = open(config, &store);
    for block in 0..64 {
        write(&volume, block * BLOCK, vec![block as u8 + 1; 4096]).await.unwrap();
    }
    store.fail_writes.store(true, Ordering::SeqCst);
    resize(&volume, 4).await;
    let is_there = async || {
        for block in 0..64 {
            let data = read(&volume, block * BLOCK, BLOCK).await.unwrap();
            assert_eq!(data, vec![block as u8 + 1; 4096], "block {block}");
        }
    };
    is_there().await;
    assert!(volume.stats().dirty >= 60, "{}", volume.stats().dirty);
    assert!(flush(&volume).await.is_err(), "the store does not take them");
    is_there().await;
    store.fail_writes.store(false, Ordering::SeqCst);
    // What the store has refused before may become known during a FLUSH.
    let flushed = async { while flush(&volume).await.is_err() {} };
    tokio::time::timeout(Duration::from_secs(60), flushed).await.unwrap();
    assert_eq!(volume.stats().dirty, 0);
    given_back(&volume).await;
    is_there().await;
    assert!((0..64).all(|block| store.live()[block * 4096] == block as u8 + 1));
    // And larger again, dirty at once.
    resize(&volume, 100).await;
    for block in 0..100 {
        write(&volume, block * BLOCK, vec![7; 4096]).await.unwrap();
    }
    assert_eq!((volume.stats().resident, volume.stats().dirty), (100, 100));
    volume.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_that_are_being_sent_keep_their_frames() {
    let store = TestStore::new(64 * 4096, 512, 1);
    let volume = open(VolumeConfig { spare_frames: 4, ..config(32, "lru") }, &store);
    for block in 0..32 {
        write(&volume, block * BLOCK, vec![block as u8 + 1; 4096]).await.unwrap();
    }
    let answer = begin(&volume, READ, 0, 32 * BLOCK);
    let Ok(Answer::Data(pieces)) = answer.await.unwrap() else { panic!("no data") };
    resize(&volume, 2).await;
    for block in 0..32 {
        write(&volume, block * BLOCK, vec![99; 4096]).await.unwrap();
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(volume.surplus_frames() > 0, "they are still being sent");
    let sent = pieces.concat();
    drop(pieces);
    assert!(
        (0..32).all(|block| sent[block * 4096..][..4096].iter().all(|&b| b == block as u8 + 1))
    );
    given_back(&volume).await;
    assert_eq!(read(&volume, 31 * BLOCK, BLOCK).await.unwrap(), vec![99; 4096]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_change_is_refused_and_nothing_changes() {
    let store = TestStore::new(64 * 4096, 512, 1);
    let volume = open(VolumeConfig { shards: 2, ..config(16, "lru") }, &store);
    type Change = fn(&mut VolumeConfig);
    let changes: [(Change, &str); 4] = [
        (|next| next.cache_blocks = 0, "cache: needs a restart"),
        (|next| next.cache_blocks = 1, "shards"),
        (|next| next.cache_blocks = u32::MAX / 2, "cannot map"),
        (|next| next.policy = "lru-ca".parse().unwrap(), "policy: needs a restart"),
    ];
    for (change, why) in changes {
        let mut next = VolumeConfig::clone(&volume.now());
        change(&mut next);
        let refused = volume.change(&next).await.unwrap_err();
        assert!(refused.contains(why), "{refused}");
        assert_eq!(volume.stats().capacity_blocks, 16);
        volume.validate().unwrap();
    }
    let now = volume.now();
    assert_eq!((now.cache_blocks, now.policy.to_string()), (16, "lru".to_owned()));
    assert_eq!(volume.surplus_frames(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_change_loses_nothing_above_a_store_that_fails_or_stalls_for_ever() {
    let blocks = 4096_u64;
    for is_stalled in [false, true] {
        let store = TestStore::new(blocks as usize * 4096, 512, 1);
        let mut config = VolumeConfig { write: Write::Back, ..config(4096, "lru") };
        (config.dirty_age, config.dirty_share) = (Duration::from_secs(600), 1.0);
        config.close_patience = Duration::from_secs(3);
        let volume = open(config, &store);
        for block in 0..blocks {
            write(&volume, block * BLOCK, vec![block as u8; 4096]).await.unwrap();
        }
        let fault = if is_stalled { &store.hold_writes } else { &store.fail_writes };
        fault.store(true, Ordering::SeqCst);
        let next = VolumeConfig { cache_blocks: 16, ..VolumeConfig::clone(&volume.now()) };
        let changes = Arc::clone(&volume);
        let change = tokio::spawn(async move { changes.change(&next).await });
        tokio::time::sleep(Duration::from_secs(3600)).await;
        // What the store refuses waits beside the cache; of what it does not answer only so much.
        assert_eq!(change.is_finished(), !is_stalled);
        assert_eq!(volume.stats().capacity_blocks > 16, is_stalled);
        // The dirty blocks are in memory; the size that is left over is known when a change ends.
        assert_eq!(volume.surplus_frames() > 0, !is_stalled);
        volume.validate().unwrap();
        for block in (0..blocks).rev() {
            let data = read(&volume, block * BLOCK, BLOCK).await.unwrap();
            assert_eq!(data[..], [block as u8; 4096], "block {block}");
        }
        assert_eq!(volume.stats().dirty, blocks);
        if is_stalled {
            store.hold_writes.store(false, Ordering::SeqCst);
            store.release();
            change.await.unwrap().unwrap();
            flush(&volume).await.unwrap();
            volume.close().await.unwrap();
            let live = store.live();
            assert!((0..blocks as usize).all(|block| live[block * 4096] == block as u8));
        } else {
            // The end does not wait for ever, and says what the store did not take.
            let lost = volume.close().await.unwrap_err();
            assert_eq!(lost.count(), blocks);
        }
    }
}

/// Prints how long clients of a shard wait while the policy of a million blocks changes. With
/// `cargo test --release -p undercroft-server --test volumes -- --ignored --nocapture million`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "measures"]
async fn a_million_blocks_get_another_policy() {
    let blocks = 1_u64 << 20;
    for shards in [1, 8] {
        let empty = OpenOptions { size: Some(blocks * BLOCK), ..OpenOptions::default() };
        let store = "mem:".parse::<StoreSpec>().unwrap().open(empty).await.unwrap();
        let config = VolumeConfig { shards, ..config(blocks as u32, "lru") };
        let volume = open_on(config, store);
        for first in (0..blocks).step_by(256) {
            read(&volume, first * BLOCK, 256 * BLOCK).await.unwrap();
        }
        for policy in ["mq", "arc", "s3-fifo", "lirs", "lru"] {
            let mut next = VolumeConfig::clone(&volume.now());
            next.policy = policy.parse().unwrap();
            let changes = Arc::clone(&volume);
            let change = tokio::spawn(async move { changes.change(&next).await });
            let (mut longest, mut random) = (Duration::ZERO, Random::new(1));
            while !change.is_finished() {
                let began = Instant::now();
                read(&volume, random.below(blocks) * BLOCK, BLOCK).await.unwrap();
                longest = longest.max(began.elapsed());
            }
            change.await.unwrap().unwrap();
            println!("{shards} shards, to {policy}: a read waited at most {longest:?}");
        }
        assert_eq!(volume.stats().resident, blocks);
    }
}

/// A request that asks what is in force while it holds a shard, and a change that waits for the
/// shard: neither waits for the other.
#[test]
fn changes_and_requests_do_not_wait_for_each_other() {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(2).enable_all().build().unwrap();
    let store = TestStore::new(256 * 4096, 512, 1);
    let opened = runtime.enter();
    let volume = open(VolumeConfig { shards: 4, ..config(64, "lru") }, &store);
    drop(opened);
    let client = Arc::clone(&volume);
    std::thread::spawn(move || {
        while Arc::strong_count(&client) > 1 {
            let caches = (0..8).map(|i| ask(Command::Cache, i * 16 * BLOCK, 16 * BLOCK, false).0);
            client.serve(&mut caches.collect(), Caller::default());
        }
    });
    let (ended, end) = std::sync::mpsc::channel();
    let handle = runtime.handle().clone();
    std::thread::spawn(move || {
        handle.block_on(async {
            for i in 0..20_000 {
                let now = VolumeConfig::clone(&volume.now());
                volume.change(&VolumeConfig { cache_blocks: 60 + i % 2, ..now }).await.unwrap();
            }
        });
        ended.send(()).unwrap();
    });
    let has_ended = end.recv_timeout(Duration::from_secs(60));
    // Threads that wait for ever must not keep the test from its end.
    runtime.shutdown_background();
    has_ended.expect("changes end while a client asks");
}
