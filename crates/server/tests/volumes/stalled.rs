//! A store that does not answer in time: clients are told, and everything else stays as it was
//! until the store answers.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use tokio::time::timeout;
use undercroft_nbd::{Command, Failure};
use undercroft_server::{Answer, Outcome, Volume, VolumeConfig, Write};

use crate::common::{
    BLOCK, READ, Request, TestStore, ZERO, begin, config, open, read, settle, write, write_back,
    write_of,
};

fn volume(store: &Arc<TestStore>, write: Write) -> Arc<Volume> {
    let mut config = config(64, "lru");
    config.write = write;
    config.store_timeout = Some(Duration::from_millis(100));
    open(config, store)
}

fn is_told(outcome: Outcome) {
    is_told_after("0.1 s", outcome);
}

fn is_told_after(limit: &str, outcome: Outcome) {
    let failed = outcome.expect_err("the store has not answered");
    assert_eq!(failed.failure, Failure::Io);
    let text = format!("the store has not answered for {limit}");
    assert!(failed.message.contains(&text), "{failed}");
}

/// Waits until nothing is under way any more.
async fn quiet(volume: &Arc<Volume>, wanted: &[u8]) {
    for _ in 0..1000 {
        settle().await;
        if read(volume, 0, wanted.len() as u64).await.is_ok_and(|found| found == wanted) {
            return volume.validate().unwrap();
        }
    }
    panic!("{:?}", read(volume, 0, 16).await);
}

/// The first write stays at the store. Those that come after its client was told wait behind it,
/// and never meet it there: the last one is what everybody has in the end.
#[tokio::test(flavor = "multi_thread")]
async fn a_write_that_was_answered_early_is_overtaken_by_none() {
    let store = TestStore::new(1 << 20, 512, 1);
    let volume = volume(&store, Write::Through);
    store.hold_writes.store(true, SeqCst);
    let block = |byte: u8| write_of(vec![byte; BLOCK as usize]);
    is_told(begin(&volume, block(1), 0, BLOCK).await.unwrap());
    let second = begin(&volume, block(2), 0, BLOCK);
    let reader = begin(&volume, READ, 0, BLOCK);
    is_told(second.await.unwrap());
    is_told(reader.await.unwrap());
    settle().await;
    let writes = |store: &TestStore| {
        store.log().iter().filter(|request| matches!(request, Request::Write(..))).count()
    };
    assert_eq!(store.live()[0], 0, "nothing of them has happened");
    assert_eq!(volume.stats().store_timeouts, 3);
    assert!(writes(&store) <= 1, "one at a time: {:?}", store.log());
    let last = begin(&volume, block(3), 0, BLOCK);
    store.release();
    assert!(matches!(last.await.unwrap(), Ok(Answer::Done)));
    quiet(&volume, &[3; BLOCK as usize]).await;
    assert_eq!((store.live()[0], writes(&store)), (3, 3));
    volume.close().await.unwrap();
}

/// A flush and a read do not end, so nothing is written out that would free a frame: whoever needs
/// one is told, too.
#[tokio::test(flavor = "multi_thread")]
async fn those_that_need_a_frame_beside_a_flush_that_hangs_are_told() {
    let store = TestStore::new(16 << 20, 512, 1);
    store.takes_many.store(true, SeqCst);
    let volume = volume(&store, Write::Back);
    store.flush_ms.store(600_000, SeqCst);
    store.hold_reads.store(true, SeqCst);
    let reads = begin(&volume, READ, 4000 * BLOCK, BLOCK);
    let flushes = begin(&volume, Command::Flush, 0, 0);
    settle().await;
    let block = || write_of(vec![1; BLOCK as usize]);
    let writes: Vec<_> = (0..2000).map(|at| begin(&volume, block(), at * BLOCK, BLOCK)).collect();
    let mut told = 0;
    for write in writes {
        let outcome = timeout(Duration::from_secs(10), write).await;
        told += usize::from(outcome.expect("it waits for ever").unwrap().is_err());
    }
    assert!(told > 0, "all found a frame");
    is_told(reads.await.unwrap());
    is_told(flushes.await.unwrap());
}

/// Memory lent to a read stays lent, and what the store puts there later harms nobody.
#[tokio::test(flavor = "multi_thread")]
async fn a_read_that_was_answered_early_fills_the_cache_later() {
    let store = TestStore::new(1 << 20, 512, 1);
    let volume = volume(&store, Write::Through);
    store.inner.lock().unwrap().live[..8192].fill(7);
    store.hold_reads.store(true, SeqCst);
    is_told(begin(&volume, READ, 0, 8192).await.unwrap());
    is_told(begin(&volume, READ, 100, 10).await.unwrap());
    volume.validate().unwrap();
    store.release();
    quiet(&volume, &[7; 8192]).await;
    let reads = store.log().iter().filter(|r| matches!(r, Request::Read(..))).count();
    assert_eq!(reads, 1, "{:?}", store.log());
    volume.close().await.unwrap();
}

/// Whatever waits for a write-out or behind a range is answered too.
#[tokio::test(flavor = "multi_thread")]
async fn flushes_ranges_and_what_waits_behind_them_are_answered() {
    let store = TestStore::new(1 << 20, 512, 1);
    let volume = volume(&store, Write::Back);
    store.hold_writes.store(true, SeqCst);
    let dirty = begin(&volume, write_of(vec![1; 4096]), 0, BLOCK);
    assert!(dirty.await.unwrap().is_ok());
    let flush = begin(&volume, Command::Flush, 0, 0);
    settle().await;
    let range = begin(&volume, ZERO, 0, 8192);
    let behind = begin(&volume, READ, BLOCK, BLOCK);
    for told in [flush, range, behind] {
        is_told(told.await.unwrap());
    }
    // Hits are hits all the same.
    let other = begin(&volume, write_of(vec![2; 4096]), 40 * BLOCK, BLOCK);
    assert!(other.await.unwrap().is_ok());
    store.release();
    quiet(&volume, &[0; 8192]).await;
    volume.close().await.unwrap();
}

/// A WRITE_ZEROES that begins and ends within blocks is one request, also when it is late.
#[tokio::test(flavor = "multi_thread")]
async fn zeroes_are_late_once() {
    let store = TestStore::new(1 << 20, 512, 1);
    let volume = volume(&store, Write::Through);
    store.hold_writes.store(true, SeqCst);
    is_told(begin(&volume, ZERO, 512, 2 * BLOCK).await.unwrap());
    // Whatever else is late is found by then.
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(volume.stats().store_timeouts, 1);
    store.release();
    quiet(&volume, &[0; 2 * BLOCK as usize]).await;
    volume.close().await.unwrap();
}

/// A range waits for a write that needs a frame. When one is free, and all that is dirty is in the
/// cache again, the write goes on; no request at the store ends that would wake the range.
#[tokio::test(start_paused = true)]
async fn a_range_is_woken_by_a_write_that_found_a_frame() {
    let store = TestStore::new(1 << 20, 512, 1);
    store.takes_many.store(true, SeqCst);
    // Five frames.
    let volume = open(VolumeConfig { spare_frames: 1, ..write_back(4) }, &store);
    let block = || vec![1; BLOCK as usize];
    let sent = begin(&volume, READ, 0, BLOCK).await.unwrap();
    // Beside a read and a flush nothing is written out.
    store.flush_ms.store(600_000, SeqCst);
    let _flush = begin(&volume, Command::Flush, 0, 0);
    settle().await;
    write(&volume, BLOCK, block()).await.unwrap();
    store.hold_reads.store(true, SeqCst);
    let _read = begin(&volume, READ, 10 * BLOCK, BLOCK);
    for other in [2, 3] {
        write(&volume, other * BLOCK, block()).await.unwrap();
    }
    // Drives out block 1, which is dirty, and has no frame: that of block 0 is being sent.
    let starved = begin(&volume, write_of(block()), 4 * BLOCK, BLOCK);
    let range = begin(&volume, Command::Trim, 4 * BLOCK, BLOCK);
    settle().await;
    assert_eq!((volume.stats().starved, volume.stats().dirty), (1, 3));
    drop(sent);
    // Block 1 comes back for block 10, which is clean.
    write(&volume, BLOCK, block()).await.unwrap();
    let trimmed = timeout(Duration::from_secs(10), range).await.expect("nobody wakes it");
    assert!(trimmed.unwrap().is_ok() && starved.await.unwrap().is_ok());
    volume.validate().unwrap();
}

/// Without a cache, changes of the same bytes wait for each other, also behind one whose client was
/// told: no earlier one is executed after a later one, however late it is. One that has only waited
/// until its client was told is not executed.
#[tokio::test(flavor = "multi_thread")]
async fn without_a_cache_a_late_write_undoes_none() {
    let store = TestStore::new(1 << 20, 512, 1);
    let mut config = config(0, "lru");
    config.store_timeout = Some(Duration::from_millis(500));
    let volume = open(config, &store);
    store.hold_writes.store(true, SeqCst);
    let block = |byte: u8| write_of(vec![byte; BLOCK as usize]);
    is_told_after("0.5 s", begin(&volume, block(1), 0, BLOCK).await.unwrap());
    is_told_after("0.5 s", begin(&volume, block(2), 0, BLOCK).await.unwrap());
    let half = begin(&volume, block(3), BLOCK / 2, BLOCK);
    let zeroes = begin(&volume, ZERO, BLOCK, BLOCK / 4);
    let elsewhere = begin(&volume, block(5), 2 * BLOCK, BLOCK);
    settle().await;
    let changes = || store.log().iter().filter(|one| !matches!(one, Request::Read(..))).count();
    assert_eq!(changes(), 2, "the first, and the one elsewhere: {:?}", store.log());
    store.release();
    for one in [half, zeroes, elsewhere] {
        assert!(matches!(one.await.unwrap(), Ok(Answer::Done)));
    }
    let live = store.live();
    let each = [0, 2048, 4096, 5120, 6144, 8192].map(|at| live[at]);
    assert_eq!((each, changes()), ([1, 3, 0, 3, 0, 5], 4));
    let stats = volume.stats();
    assert_eq!((stats.store_timeouts, stats.store_writes, stats.write_failures), (2, 4, 0));
    volume.close().await.unwrap();
}

/// What goes on without its client is bounded. Then the store is asked no more, and what is in
/// memory is served as before.
#[tokio::test(flavor = "multi_thread")]
async fn a_stalled_store_is_asked_no_more_than_so_much() {
    let store = TestStore::new(64 << 20, 512, 1);
    let volume = volume(&store, Write::Through);
    assert_eq!(read(&volume, 0, BLOCK).await.unwrap(), [0; BLOCK as usize]);
    store.hold_reads.store(true, SeqCst);
    let all: Vec<_> = (1..=1024).map(|n| begin(&volume, READ, n * BLOCK, BLOCK)).collect();
    for one in all {
        is_told(one.await.unwrap());
    }
    let asked = store.log().len();
    let refused = begin(&volume, READ, 2000 * BLOCK, BLOCK).await.unwrap().unwrap_err();
    assert!(refused.message.contains("is asked no more"), "{refused}");
    settle().await;
    assert_eq!(store.log().len(), asked);
    // The least recent blocks have left for those that are on their way.
    store.release();
    for _ in 0..1000 {
        settle().await;
        if begin(&volume, READ, 2000 * BLOCK, BLOCK).await.unwrap().is_ok() {
            return volume.close().await.unwrap();
        }
    }
    panic!("the store answers again, and is not asked");
}

/// The runtime may end while the store has not answered, as at the end of a process that has waited
/// long enough. What each lost request would lead to is not begun any more.
#[test]
fn a_runtime_may_end_with_requests_under_way() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let store = TestStore::new(1 << 20, 512, 1);
    store.takes_many.store(true, SeqCst);
    store.hold_writes.store(true, SeqCst);
    let left = runtime.block_on(async {
        let volume = volume(&store, Write::Through);
        // All but the first wait for the same block.
        for byte in 0..4 {
            drop(begin(&volume, write_of(vec![byte; 4096]), 0, 4096));
        }
        settle().await;
        volume
    });
    drop(runtime);
    assert_eq!(store.live()[0], 0, "nothing took effect");
    drop(left);
}
