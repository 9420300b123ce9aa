//! Single behaviours of a volume, one small test each.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::common::{
    BLOCK, READ, Request, TestStore, ZERO, ask, begin, begin_as, config, flush, open, read, settle,
    write, write_back, write_of,
};
use undercroft_nbd::CommandKind as Operation;
use undercroft_nbd::{Command, Failure};
use undercroft_server::{Answer, Caller, Source, Volume, VolumeConfig, Write};

/// A store of so many blocks, and a volume on it.
fn opened(blocks: u64, config: VolumeConfig) -> (Arc<TestStore>, Arc<Volume>) {
    let store = TestStore::new((blocks * BLOCK) as usize, 512, 1);
    let volume = open(config, &store);
    (store, volume)
}

fn reads(store: &TestStore) -> Vec<(u64, u64)> {
    let read = |request| match request {
        Request::Read(offset, length) => Some((offset, length)),
        _ => None,
    };
    store.log().into_iter().filter_map(read).collect()
}

fn writes(store: &TestStore) -> Vec<(u64, u64)> {
    let write = |request| match request {
        Request::Write(offset, length, _) => Some((offset, length)),
        _ => None,
    };
    store.log().into_iter().filter_map(write).collect()
}

#[tokio::test]
async fn a_miss_that_several_wait_for_is_read_once() {
    let (store, volume) = opened(8, config(4, "lru"));
    store.hold_reads.store(true, Ordering::SeqCst);
    let answers: Vec<_> = (0..5).map(|_| begin(&volume, READ, 0, BLOCK)).collect();
    settle().await;
    store.release();
    for answer in answers {
        assert!(answer.await.unwrap().is_ok());
    }
    assert_eq!(reads(&store), [(0, BLOCK)]);
    let stats = volume.stats();
    assert_eq!((stats.reads, stats.read_hits, stats.joined_reads), (5, 4, 4));
    assert_eq!(volume.latencies().of(Operation::Read, Source::Joined).count(), 4);
    assert_eq!(volume.latencies().of(Operation::Read, Source::Miss).count(), 1);
}

#[tokio::test]
async fn neighbouring_misses_of_a_request_are_one_store_read() {
    let (store, volume) = opened(16, config(16, "lru"));
    read(&volume, 4 * BLOCK, BLOCK).await.unwrap();
    read(&volume, 100, 9 * BLOCK).await.unwrap();
    assert_eq!(
        reads(&store),
        [(4 * BLOCK, BLOCK), (0, 4 * BLOCK), (5 * BLOCK, 5 * BLOCK)],
        "the hit in the middle is not read again"
    );
}

#[tokio::test]
async fn a_frame_that_is_being_sent_is_not_overwritten() {
    for mode in [Write::Through, Write::Back] {
        let mut config = write_back(4);
        (config.write, config.spare_frames) = (mode, 1);
        let (_, volume) = opened(8, config);
        write(&volume, 0, vec![1; BLOCK as usize]).await.unwrap();
        let Ok(Answer::Data(sent)) = begin(&volume, READ, 0, BLOCK).await.unwrap() else {
            panic!("no data");
        };
        // The second write can be made in place, the third not: its frame is being sent again.
        write(&volume, 0, vec![2; BLOCK as usize]).await.unwrap();
        let Ok(Answer::Data(again)) = begin(&volume, READ, 100, 50).await.unwrap() else {
            panic!("no data");
        };
        write(&volume, 10, vec![3; 200]).await.unwrap();
        assert!(sent.concat().iter().all(|&b| b == 1));
        assert!(again.concat().iter().all(|&b| b == 2));
        assert_eq!(again.concat().len(), 50);
        let now = read(&volume, 0, BLOCK).await.unwrap();
        assert!(now[10..210].iter().all(|&b| b == 3) && now[210] == 2 && now[9] == 2);
        volume.validate().unwrap();
    }
}

#[tokio::test]
async fn clients_that_keep_their_replies_stall_nobody() {
    for mode in [Write::Through, Write::Back] {
        let mut config = write_back(8);
        (config.write, config.spare_frames) = (mode, 2);
        let (_, volume) = opened(64, config);
        // All ten frames and more are held.
        let mut held = Vec::new();
        for block in 0..16 {
            held.push(begin(&volume, READ, block * BLOCK, BLOCK).await.unwrap().unwrap());
        }
        assert!(volume.stats().served_around > 0);
        for block in 20..40_u64 {
            write(&volume, block * BLOCK + 8, vec![block as u8; 64]).await.unwrap();
            let found = read(&volume, block * BLOCK, 80).await.unwrap();
            assert!(found[8..72].iter().all(|&b| b == block as u8) && found[0] == 0);
        }
        drop(held);
        volume.validate().unwrap();
        for block in 20..28_u64 {
            read(&volume, block * BLOCK, BLOCK).await.unwrap();
        }
        assert_eq!(volume.stats().resident, 8, "with the frames back, blocks are cached again");
    }
}

#[tokio::test]
async fn a_failed_read_is_not_cached_and_reaches_those_who_waited() {
    let (store, volume) = opened(8, config(4, "lru"));
    store.hold_reads.store(true, Ordering::SeqCst);
    store.fail_reads.store(true, Ordering::SeqCst);
    let failing = [begin(&volume, READ, 0, BLOCK), begin(&volume, READ, 0, BLOCK)];
    settle().await;
    store.release();
    for answer in failing {
        let failed = answer.await.unwrap().unwrap_err();
        assert_eq!(failed.failure, Failure::Io);
        assert!(failed.message.contains("read failed"), "{failed}");
    }
    assert_eq!(volume.stats().resident, 0);
    store.fail_reads.store(false, Ordering::SeqCst);
    assert!(read(&volume, 0, BLOCK).await.is_ok());
    assert_eq!(volume.stats().read_failures, 1);
    volume.validate().unwrap();
}

/// A long read meets a bad sector; others wait for good blocks of it.
#[tokio::test]
async fn a_bad_block_fails_no_read_of_its_neighbours() {
    let (store, volume) = opened(16, config(16, "lru"));
    store.bad_byte.store(7 * BLOCK, Ordering::SeqCst);
    store.hold_reads.store(true, Ordering::SeqCst);
    let long = begin(&volume, READ, 0, 16 * BLOCK);
    let twice = |block, count| [(); 2].map(|()| begin(&volume, READ, block * BLOCK, count * BLOCK));
    let (good, bad, two) = (twice(3, 1), twice(7, 1), twice(9, 2));
    settle().await;
    store.release();
    assert_eq!(long.await.unwrap().unwrap_err().failure, Failure::Io);
    for answer in bad {
        assert_eq!(answer.await.unwrap().unwrap_err().failure, Failure::Io);
    }
    for answer in good.into_iter().chain(two) {
        answer.await.unwrap().unwrap();
    }
    // Once together, and then once each.
    assert_eq!(reads(&store).len(), 5);
    volume.validate().unwrap();
}

#[tokio::test]
async fn a_store_that_keeps_the_buffers_of_a_read_is_an_error() {
    let (store, volume) = opened(8, config(4, "lru"));
    store.keep_buffers.store(true, Ordering::SeqCst);
    assert!(read(&volume, 0, 2 * BLOCK).await.unwrap_err().contains("kept the memory"));
    store.keep_buffers.store(false, Ordering::SeqCst);
    assert_eq!(read(&volume, 0, 2 * BLOCK).await.unwrap(), vec![0; 2 * BLOCK as usize]);
    volume.validate().unwrap();
}

#[tokio::test]
async fn a_failed_write_through_drops_the_copy() {
    let (store, volume) = opened(8, config(4, "lru"));
    write(&volume, 0, vec![1; BLOCK as usize]).await.unwrap();
    store.fail_writes.store(true, Ordering::SeqCst);
    assert!(write(&volume, 0, vec![2; BLOCK as usize]).await.is_err());
    store.fail_writes.store(false, Ordering::SeqCst);
    let found = read(&volume, 0, BLOCK).await.unwrap();
    assert_eq!(found, store.live()[..BLOCK as usize], "cache and store agree");
    assert_eq!(found[0], 2, "half of the write had been made");
    assert_eq!(found[BLOCK as usize - 1], 1);
}

#[tokio::test]
async fn a_stalled_read_holds_up_nobody_else() {
    let (store, volume) = opened(8, config(4, "lru"));
    read(&volume, BLOCK, BLOCK).await.unwrap();
    store.hold_reads.store(true, Ordering::SeqCst);
    let stalled = begin(&volume, READ, 0, BLOCK);
    settle().await;
    read(&volume, BLOCK, BLOCK).await.unwrap();
    write(&volume, 2 * BLOCK, vec![5; BLOCK as usize]).await.unwrap();
    flush(&volume).await.unwrap();
    store.release();
    stalled.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_dirty_victim_is_written_and_readable_all_the_time() {
    let (store, volume) = opened(16, write_back(2));
    for block in 0..2_u64 {
        write(&volume, block * BLOCK, vec![block as u8 + 1; BLOCK as usize]).await.unwrap();
    }
    assert_eq!(writes(&store), []);
    store.hold_writes.store(true, Ordering::SeqCst);
    // Drives out block 0, whose write-out stalls.
    write(&volume, 2 * BLOCK, vec![3; BLOCK as usize]).await.unwrap();
    settle().await;
    assert_eq!(writes(&store), [(0, BLOCK)], "the policy's victim, and it alone");
    // It is not resident, but what is read is what was written.
    assert_eq!(read(&volume, 0, 8).await.unwrap(), [1; 8]);
    store.release();
    flush(&volume).await.unwrap();
    assert_eq!(store.live()[0], 1);
    assert_eq!(store.live()[2 * BLOCK as usize], 3);
    assert_eq!(reads(&store), []);
    volume.validate().unwrap();
}

#[tokio::test]
async fn a_write_during_a_write_out_is_not_lost() {
    let (store, volume) = opened(4, write_back(4));
    write(&volume, 0, vec![1; BLOCK as usize]).await.unwrap();
    store.hold_writes.store(true, Ordering::SeqCst);
    let first = begin(&volume, Command::Flush, 0, 0);
    settle().await;
    write(&volume, 0, vec![2; 8]).await.unwrap();
    store.release();
    first.await.unwrap().unwrap();
    assert_eq!(store.inner.lock().unwrap().durable[0], 1);
    assert_eq!(volume.stats().dirty, 1);
    flush(&volume).await.unwrap();
    assert_eq!(store.inner.lock().unwrap().durable[0], 2);
}

#[tokio::test]
async fn a_flush_writes_neighbours_together_and_tells_failures() {
    let (store, volume) = opened(64, write_back(64));
    for block in [9, 3, 8, 10, 4_u64] {
        write(&volume, block * BLOCK, vec![1; BLOCK as usize]).await.unwrap();
    }
    store.fail_writes.store(true, Ordering::SeqCst);
    assert!(flush(&volume).await.unwrap_err().contains("write failed"));
    assert_eq!(volume.stats().dirty, 5);
    store.fail_writes.store(false, Ordering::SeqCst);
    let before = writes(&store).len();
    flush(&volume).await.unwrap();
    let mut done = writes(&store).split_off(before);
    done.sort_unstable();
    assert_eq!(done, [(3 * BLOCK, 2 * BLOCK), (8 * BLOCK, 3 * BLOCK)]);
    assert_eq!(volume.stats().dirty, 0);
}

#[tokio::test]
async fn dirty_blocks_are_written_by_age_and_by_share() {
    let mut config = write_back(64);
    config.dirty_age = Duration::from_millis(20);
    let (store, volume) = opened(64, config);
    write(&volume, 0, vec![1; BLOCK as usize]).await.unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!((writes(&store).len(), volume.stats().dirty), (1, 0));

    let mut config = write_back(64);
    config.dirty_share = 0.25;
    let (store, volume) = opened(64, config);
    for block in 0..32_u64 {
        write(&volume, 2 * block * BLOCK, vec![1; BLOCK as usize]).await.unwrap();
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(volume.stats().dirty <= 16, "{}", volume.stats().dirty);
    assert_eq!(writes(&store)[0], (0, BLOCK), "the oldest first");
}

#[tokio::test]
async fn a_write_beyond_the_bounds_of_dirty_data_waits_for_the_store() {
    let mut config = write_back(64);
    config.dirty_max_share = 0.25;
    let (store, volume) = opened(64, config);
    store.hold_writes.store(true, Ordering::SeqCst);
    for block in 0..16_u64 {
        write(&volume, 2 * block * BLOCK, vec![1; BLOCK as usize]).await.unwrap();
    }
    let (new, old) = (40 * BLOCK, 0);
    let mut beyond: Vec<_> = [new, old]
        .map(|at| begin(&volume, write_of(vec![2; BLOCK as usize]), at, BLOCK))
        .into_iter()
        .collect();
    settle().await;
    assert!(beyond.iter_mut().all(|answer| answer.try_recv().is_err()), "they wait");
    assert_eq!(volume.stats().dirty, 16, "not more");
    store.release();
    for answer in beyond {
        assert!(answer.await.unwrap().is_ok());
    }
    assert_eq!((volume.stats().bounded_writes, volume.stats().dirty), (2, 15));
    write(&volume, new, vec![3; BLOCK as usize]).await.unwrap();
    assert_eq!((volume.stats().bounded_writes, volume.stats().dirty), (2, 16), "room again");
    flush(&volume).await.unwrap();
    assert_eq!(store.live()[new as usize], 3);
    assert_eq!(store.live()[0], 2);
    volume.validate().unwrap();
}

#[tokio::test]
async fn writes_wait_for_the_store_while_an_old_change_does() {
    let mut config = write_back(64);
    config.dirty_max_age = Some(Duration::from_millis(200));
    let (store, volume) = opened(64, config);
    write(&volume, 0, vec![1; BLOCK as usize]).await.unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    write(&volume, 2 * BLOCK, vec![1; BLOCK as usize]).await.unwrap();
    assert_eq!(writes(&store), [(2 * BLOCK, BLOCK)], "answered when the store had it");
    assert_eq!((volume.stats().bounded_writes, volume.stats().dirty), (1, 1));
    flush(&volume).await.unwrap();
    write(&volume, 4 * BLOCK, vec![1; BLOCK as usize]).await.unwrap();
    assert_eq!((volume.stats().bounded_writes, volume.stats().dirty), (1, 1), "at once again");
}

#[tokio::test]
async fn a_change_that_the_store_refuses_does_not_slow_the_others() {
    let mut config = write_back(64);
    config.dirty_age = Duration::from_millis(20);
    config.dirty_max_age = Some(Duration::from_millis(100));
    let (store, volume) = opened(64, config);
    store.fail_writes.store(true, Ordering::SeqCst);
    write(&volume, 0, vec![1; BLOCK as usize]).await.unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(volume.stats().write_failures > 0);
    write(&volume, 2 * BLOCK, vec![1; BLOCK as usize]).await.unwrap();
    assert_eq!(volume.stats().bounded_writes, 0);
}

#[tokio::test]
async fn a_bounded_write_without_a_slot_counts_too() {
    let mut config = write_back(16);
    config.placement = "eviction".parse().unwrap();
    config.dirty_max_share = 0.125;
    let (store, volume) = opened(64, config);
    // A client that tells its evictions: what it writes has no slot here until it evicts it.
    let caller = Caller { client: 3, tells: true };
    let write = async |offset, bytes: usize| {
        let answer = begin_as(&volume, caller, write_of(vec![1; bytes]), offset, bytes as u64);
        answer.await.unwrap().unwrap();
        (volume.stats().bounded_writes, volume.stats().dirty)
    };
    assert_eq!(write(0, BLOCK as usize).await, (0, 1));
    assert_eq!(write(2 * BLOCK, BLOCK as usize).await, (0, 2));
    assert_eq!(write(4 * BLOCK, BLOCK as usize).await, (1, 2));
    assert_eq!((writes(&store), volume.stats().resident), (vec![(4 * BLOCK, BLOCK)], 0));
    // A part of a block goes around in any case.
    assert_eq!(write(20 * BLOCK, 512).await, (1, 2));
    flush(&volume).await.unwrap();
    assert_eq!(write(0, BLOCK as usize).await, (1, 1), "room again");
}

#[tokio::test]
async fn streams_pass_the_cache_of_all_shards_and_leave_right_copies() {
    for write_mode in [Write::Through, Write::Back] {
        let mut config = config(512, "lru");
        (config.write, config.shards) = (write_mode, 4);
        config.stream_cutoff_bytes = 16 * BLOCK;
        config.read_ahead_bytes = 32 * BLOCK;
        let (store, volume) = opened(2048, config);
        for block in 0..8 {
            read(&volume, 250 * block * BLOCK, BLOCK).await.unwrap();
        }
        // A copy that reads all and writes it, over resident blocks too.
        for first in (0..2048).step_by(4) {
            read(&volume, first * BLOCK, 4 * BLOCK).await.unwrap();
        }
        let evictions = volume.stats().evictions;
        for first in (0..2048).step_by(4) {
            write(&volume, first * BLOCK, vec![7; 4 * BLOCK as usize]).await.unwrap();
        }
        let stats = volume.stats();
        assert!(stats.streamed > 4000 && stats.read_ahead <= 64, "{stats:?}");
        assert_eq!(evictions, stats.evictions, "the second pass brings nothing in");
        assert!(stats.resident <= 8 + 2 * 16 + 64, "{stats:?}");
        for block in 0..8 {
            let before = volume.stats().read_hits;
            let data = read(&volume, 250 * block * BLOCK, BLOCK).await.unwrap();
            assert!(data.iter().all(|&byte| byte == 7), "the copy that stayed is the new one");
            assert_eq!(volume.stats().read_hits, before + 1, "block {block} stayed");
        }
        flush(&volume).await.unwrap();
        assert!(store.live().iter().all(|&byte| byte == 7));
        volume.validate().unwrap();
    }
}

#[tokio::test]
async fn zeroes_take_no_frame_and_no_store_read() {
    let (store, volume) = opened(16, config(4, "lru"));
    write(&volume, 0, vec![9; 4 * BLOCK as usize]).await.unwrap();
    begin(&volume, ZERO, 100, 2 * BLOCK).await.unwrap().unwrap();
    let found = read(&volume, 0, 4 * BLOCK).await.unwrap();
    let zeroed = 100..100 + 2 * BLOCK as usize;
    assert!(found.iter().enumerate().all(|(at, &b)| (b == 0) == zeroed.contains(&at)));
    assert_eq!(found, store.live()[..4 * BLOCK as usize]);
    assert_eq!(reads(&store), []);
    assert_eq!(volume.stats().resident, 4);
    // Its ends are no requests.
    let counted = |operation| {
        let sources = [Source::Hit, Source::Joined, Source::Miss];
        sources.map(|source| volume.latencies().of(operation, source).count()).iter().sum::<u64>()
    };
    assert_eq!((counted(Operation::Write), counted(Operation::WriteZeroes)), (1, 1));
}

#[tokio::test]
async fn a_whole_volume_is_trimmed_or_zeroed_in_one_request() {
    let (store, volume) = opened(20_000, write_back(64));
    write(&volume, 5 * BLOCK, vec![9; BLOCK as usize]).await.unwrap();
    let how = Command::WriteZeroes { keep_allocated: true, fast: true };
    begin(&volume, how, 0, 20_000 * BLOCK).await.unwrap().unwrap();
    assert_eq!(volume.stats().dirty, 0, "what was dirty is zero now");
    assert_eq!(read(&volume, 5 * BLOCK, 8).await.unwrap(), [0; 8]);
    write(&volume, 7 * BLOCK, vec![9; BLOCK as usize]).await.unwrap();
    begin(&volume, Command::Trim, 0, 20_000 * BLOCK).await.unwrap().unwrap();
    assert_eq!(read(&volume, 7 * BLOCK, 8).await.unwrap(), [0; 8]);
    let log = store.log();
    assert!(log.contains(&Request::Zero(0, 20_000 * BLOCK)));
    assert!(log.contains(&Request::Trim(0, 20_000 * BLOCK)));
    volume.validate().unwrap();
}

#[tokio::test]
async fn cache_requests_prefetch_and_count_no_reads() {
    let (store, volume) = opened(32, config(16, "lru"));
    begin(&volume, Command::Cache, 0, 4 * BLOCK).await.unwrap().unwrap();
    settle().await;
    let stats = volume.stats();
    assert_eq!((stats.reads, stats.prefetched, stats.resident), (0, 4, 4));
    read(&volume, 0, 4 * BLOCK).await.unwrap();
    assert_eq!(volume.stats().read_hits, 4);
    assert_eq!(reads(&store), [(0, 4 * BLOCK)]);
    // A request for everything does not flush the cache.
    begin(&volume, Command::Cache, 0, 32 * BLOCK).await.unwrap().unwrap();
    settle().await;
    assert_eq!(volume.stats().prefetched, 4 + 4, "at most half of the cache is looked at");
}

#[tokio::test]
async fn block_status_knows_dirty_blocks() {
    let (_, volume) = opened(8, write_back(8));
    write(&volume, 2 * BLOCK, vec![1; BLOCK as usize]).await.unwrap();
    let status = |one_extent| Command::BlockStatus { one_extent };
    let answer = begin(&volume, status(false), 10, 4 * BLOCK).await.unwrap().unwrap();
    let Answer::Extents(extents) = answer else { panic!("{answer:?}") };
    let found: Vec<_> = extents.iter().map(|e| (e.length, e.status)).collect();
    assert_eq!(found, [(2 * BLOCK - 10, 3), (BLOCK, 0), (BLOCK + 10, 3)]);
    let answer = begin(&volume, status(true), 0, BLOCK).await.unwrap().unwrap();
    let Answer::Extents(extents) = answer else { panic!("{answer:?}") };
    assert_eq!((extents.len(), extents[0].length), (1, BLOCK));
}

#[tokio::test]
async fn requests_out_of_range_or_to_a_read_only_volume_are_refused() {
    let (store, volume) = opened(8, config(4, "lru"));
    let fails = async |volume: &Arc<Volume>, command, offset, length| {
        begin(volume, command, offset, length).await.unwrap().unwrap_err().failure
    };
    assert_eq!(fails(&volume, READ, 8 * BLOCK, 1).await, Failure::Invalid);
    assert_eq!(fails(&volume, READ, u64::MAX, 2).await, Failure::Invalid);
    assert_eq!(fails(&volume, write_of(vec![1]), 8 * BLOCK, 1).await, Failure::NoSpace);
    assert_eq!(fails(&volume, write_of(vec![1]), 0, 2).await, Failure::Invalid);
    let mut config = config(4, "lru");
    config.read_only = true;
    let volume = open(config, &store);
    assert_eq!(fails(&volume, write_of(vec![1]), 0, 1).await, Failure::NotPermitted);
    assert_eq!(fails(&volume, Command::Trim, 0, BLOCK).await, Failure::NotPermitted);
    assert!(read(&volume, 0, 1).await.is_ok());
}

#[tokio::test]
async fn a_volume_grows_over_an_uneven_end() {
    let store = TestStore::new(2 * BLOCK as usize + 512, 512, 1);
    let volume = open(write_back(8), &store);
    let end = 2 * BLOCK;
    write(&volume, end, vec![1; 512]).await.unwrap();
    {
        let mut images = store.inner.lock().unwrap();
        images.live.resize(8 * BLOCK as usize, 7);
        images.durable.resize(8 * BLOCK as usize, 7);
    }
    assert_eq!(volume.grow().await.unwrap(), 8 * BLOCK);
    let found = read(&volume, end, BLOCK).await.unwrap();
    assert!(found[..512].iter().all(|&b| b == 1) && found[512..].iter().all(|&b| b == 7));
    write(&volume, 7 * BLOCK, vec![2; BLOCK as usize]).await.unwrap();
    flush(&volume).await.unwrap();
    assert_eq!(store.live()[8 * BLOCK as usize - 1], 2);
}

#[tokio::test]
async fn closing_answers_what_is_under_way_and_refuses_the_rest() {
    let (store, volume) = opened(8, write_back(4));
    write(&volume, 0, vec![1; BLOCK as usize]).await.unwrap();
    store.hold_reads.store(true, Ordering::SeqCst);
    let stalled = begin(&volume, READ, BLOCK, BLOCK);
    let closing = tokio::spawn({
        let volume = Arc::clone(&volume);
        async move { volume.close().await }
    });
    settle().await;
    let refused = begin(&volume, READ, 0, BLOCK).await.unwrap().unwrap_err();
    assert_eq!(refused.failure, Failure::ShuttingDown);
    assert!(!closing.is_finished());
    store.release();
    stalled.await.unwrap().unwrap();
    closing.await.unwrap().unwrap();
    assert_eq!(store.inner.lock().unwrap().durable[0], 1);
}

#[tokio::test]
async fn requests_that_arrive_together_are_served_in_order() {
    let (_, volume) = opened(8, write_back(8));
    let (mut asks, answers): (Vec<_>, Vec<_>) = [
        ask(write_of(vec![1; 16]), 0, 16, false),
        ask(READ, 0, 16, false),
        ask(write_of(vec![2; 16]), 8, 16, false),
        ask(READ, 0, 32, false),
    ]
    .into_iter()
    .unzip();
    volume.serve(&mut asks, Caller::default());
    let mut found = Vec::new();
    for answer in answers {
        if let Answer::Data(pieces) = answer.await.unwrap().unwrap() {
            found.push(pieces.concat());
        }
    }
    assert_eq!(found[0], [1; 16]);
    assert_eq!(found[1], [[1; 8], [2; 8], [2; 8], [0; 8]].concat());
}
