//! Contents that clients hand over: taken only if they are what the volume holds, whoever sends
//! them. Each test is one way to have a server take old or forged data, which others would read,
//! and which the next small write would make durable.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use undercroft_hints::{BlockRun, Hint};
use undercroft_nbd::Command;
use undercroft_server::{Answer, Caller, Outcome, Volume, VolumeConfig, Write};

use crate::common::{
    BLOCK, READ, TestStore, ZERO, begin_as as begin, config, demote, evict, filled, flush, open,
    say, settle, write_of,
};

const BLOCKS: u64 = 64;

/// All connections without an id.
pub(crate) const NAMELESS: Caller = Caller { client: 0, tells: true };
pub(crate) const OTHER: Caller = Caller { client: 5, tells: true };

const PLACEMENTS: [&str; 4] =
    ["gl", "eviction,on-hit=move", "eviction,on-hit=keep,staging=8", "eviction,on-hit=adaptive"];

/// What fills each block at first.
pub(crate) fn first(block: u64) -> u8 {
    block as u8 + 1
}

pub(crate) fn store() -> Arc<TestStore> {
    filled(BLOCKS, first)
}

/// A volume with each placement and in each write mode.
pub(crate) fn volumes() -> Vec<(String, Arc<TestStore>, Arc<Volume>)> {
    let modes = [
        (Write::Through, true),
        (Write::Through, false),
        (Write::Around, true),
        (Write::Back, true),
    ];
    let all = PLACEMENTS.iter().flat_map(|placement| modes.map(|mode| (placement, mode)));
    let volume = |(placement, (write, allocate)): (&&str, _)| {
        let (store, mut config) = (store(), of(placement));
        (config.write, config.write_allocate) = (write, allocate);
        let volume = open(config, &store);
        (format!("{placement} {write:?} {allocate}"), store, volume)
    };
    all.map(volume).collect()
}

pub(crate) fn of(placement: &str) -> VolumeConfig {
    VolumeConfig { placement: placement.parse().unwrap(), ..config(8, "lru") }
}

pub(crate) async fn read_as(volume: &Arc<Volume>, caller: Caller, block: u64) -> Vec<u8> {
    let answer = begin(volume, caller, READ, block * BLOCK, BLOCK).await.unwrap();
    let Ok(Answer::Data(pieces)) = answer else { panic!("a read failed") };
    settle().await;
    pieces.concat()
}

/// Writes bytes at a place within a block.
pub(crate) async fn write_as(
    volume: &Arc<Volume>,
    caller: Caller,
    block: u64,
    at: u64,
    bytes: Vec<u8>,
) -> Outcome {
    let length = bytes.len() as u64;
    let answer = begin(volume, caller, write_of(bytes), block * BLOCK + at, length);
    let outcome = answer.await.unwrap();
    settle().await;
    outcome
}

pub(crate) fn whole(byte: u8) -> Vec<u8> {
    vec![byte; BLOCK as usize]
}

/// Hands a block over: whether it was taken.
pub(crate) fn taken(volume: &Arc<Volume>, caller: Caller, block: u64, data: Vec<u8>) -> bool {
    let counts = || volume.stats().cooperation.map(|c| (c.demotions_accepted, c.demotions_refused));
    let before = counts().unwrap();
    say(volume, caller, vec![Hint::Demote { block, rides: false, data: data.into() }]);
    volume.validate().unwrap();
    let after = counts().unwrap();
    assert_eq!(after.0 + after.1, before.0 + before.1 + 1);
    after.0 > before.0
}

/// What everybody sees of a block, and what is durable in the end.
pub(crate) async fn check(
    volume: &Arc<Volume>,
    store: &TestStore,
    block: u64,
    bytes: &[u8],
    what: &str,
) {
    for caller in [NAMELESS, OTHER] {
        assert_eq!(read_as(volume, caller, block).await, bytes, "{what}: read");
    }
    flush(volume).await.unwrap();
    let at = (block * BLOCK) as usize;
    assert_eq!(store.live()[at..at + BLOCK as usize], *bytes, "{what}: durable");
    volume.validate().unwrap();
}

/// The fault that this is all about: two connections without an id are one client.
#[tokio::test]
async fn old_data_of_what_a_neighbour_without_id_wrote_is_not_taken() {
    for (what, store, volume) in volumes() {
        assert_eq!(read_as(&volume, NAMELESS, 1).await, whole(first(1)));
        write_as(&volume, NAMELESS, 1, 0, whole(0xaa)).await.unwrap();
        assert!(!taken(&volume, NAMELESS, 1, whole(first(1))), "{what}");
        settle().await;
        write_as(&volume, NAMELESS, 1, 512, vec![0xbb; 512]).await.unwrap();
        let mut now = whole(0xaa);
        now[512..1024].fill(0xbb);
        check(&volume, &store, 1, &now, &what).await;
    }
}

#[tokio::test]
async fn forged_data_is_not_taken_and_true_data_is_whoever_sends_it() {
    for (what, store, volume) in volumes() {
        assert!(!taken(&volume, NAMELESS, 2, whole(first(2))), "{what}: never delivered");
        settle().await;
        read_as(&volume, NAMELESS, 3).await;
        let mut forged = whole(first(3));
        forged[4095] ^= 1;
        let short = forged[..512].to_vec();
        for data in [forged, short, Vec::new(), [whole(first(3)), whole(0)].concat()] {
            assert!(!taken(&volume, NAMELESS, 3, data), "{what}");
            settle().await;
        }
        check(&volume, &store, 3, &whole(first(3)), &what).await;
        assert!(taken(&volume, NAMELESS, 3, whole(first(3))), "{what}");
        read_as(&volume, NAMELESS, 4).await;
        assert!(taken(&volume, OTHER, 4, whole(first(4))), "{what}: from anybody");
        check(&volume, &store, 4, &whole(first(4)), &what).await;
    }
}

#[tokio::test]
async fn what_was_written_as_a_whole_is_known_in_every_mode() {
    for (what, store, volume) in volumes() {
        write_as(&volume, NAMELESS, 1, 0, whole(0xaa)).await.unwrap();
        assert!(!taken(&volume, NAMELESS, 1, whole(first(1))), "{what}");
        settle().await;
        write_as(&volume, NAMELESS, 1, 0, whole(0xbb)).await.unwrap();
        assert!(taken(&volume, NAMELESS, 1, whole(0xbb)), "{what}");
        check(&volume, &store, 1, &whole(0xbb), &what).await;
    }
}

#[tokio::test]
async fn a_partial_write_strikes_what_was_known() {
    for (what, store, volume) in volumes() {
        for (block, at, length) in [(1, 0, 512), (2, 512, 100), (3, 4000, 96)] {
            read_as(&volume, NAMELESS, block).await;
            write_as(&volume, OTHER, block, at, vec![0xcc; length]).await.unwrap();
            assert!(!taken(&volume, NAMELESS, block, whole(first(block))), "{what}");
            settle().await;
            let mut now = whole(first(block));
            now[at as usize..at as usize + length].fill(0xcc);
            check(&volume, &store, block, &now, &what).await;
        }
    }
}

/// Of a block that is here, a partial write leaves all of it known.
#[tokio::test]
async fn a_partial_write_of_a_resident_block_makes_the_new_content_known() {
    for write in [Write::Through, Write::Back] {
        let (store, mut config) = (store(), of("eviction,on-hit=keep"));
        config.write = write;
        let volume = open(config, &store);
        read_as(&volume, NAMELESS, 1).await;
        assert!(taken(&volume, NAMELESS, 1, whole(first(1))));
        write_as(&volume, NAMELESS, 1, 8, vec![0xcc; 8]).await.unwrap();
        let mut now = whole(first(1));
        now[8..16].fill(0xcc);
        assert!(!taken(&volume, NAMELESS, 1, whole(first(1))));
        assert!(taken(&volume, NAMELESS, 1, now.clone()));
        check(&volume, &store, 1, &now, "resident").await;
    }
}

#[tokio::test]
async fn nothing_is_taken_while_the_block_changes() {
    for placement in PLACEMENTS {
        for (command, after) in [(write_of(whole(0xaa)), 0xaa), (ZERO, 0), (Command::Trim, 0)] {
            let what = format!("{placement} {command:.20?}");
            let store = store();
            let volume = open(of(placement), &store);
            read_as(&volume, NAMELESS, 1).await;
            store.hold_writes.store(true, Ordering::SeqCst);
            let changed = begin(&volume, OTHER, command, BLOCK, BLOCK);
            settle().await;
            for byte in [first(1), after] {
                assert!(!taken(&volume, NAMELESS, 1, whole(byte)), "{what}: under way");
            }
            store.release();
            changed.await.unwrap().unwrap();
            settle().await;
            assert!(!taken(&volume, NAMELESS, 1, whole(first(1))), "{what}: after it");
            settle().await;
            check(&volume, &store, 1, &whole(after), &what).await;
        }
    }
}

/// A write that came before a range ends after it was registered: it is no proof of anything.
#[tokio::test]
async fn a_write_that_a_range_waits_for_proves_nothing() {
    for (command, after) in [(ZERO, 0), (Command::Trim, 0)] {
        for placement in PLACEMENTS {
            let store = store();
            let volume = open(of(placement), &store);
            store.hold_writes.store(true, Ordering::SeqCst);
            let written = begin(&volume, NAMELESS, write_of(whole(0xaa)), BLOCK, BLOCK);
            settle().await;
            let changed = begin(&volume, OTHER, command.clone(), 0, 4 * BLOCK);
            store.release();
            written.await.unwrap().unwrap();
            changed.await.unwrap().unwrap();
            settle().await;
            assert!(!taken(&volume, NAMELESS, 1, whole(0xaa)), "{placement}");
            settle().await;
            check(&volume, &store, 1, &whole(after), placement).await;
        }
    }
}

#[tokio::test]
async fn nothing_is_taken_while_the_block_is_read() {
    for placement in ["gl", "eviction,on-hit=move"] {
        let store = store();
        let volume = open(of(placement), &store);
        read_as(&volume, NAMELESS, 1).await;
        store.hold_reads.store(true, Ordering::SeqCst);
        // The second time a reload.
        let reading = begin(&volume, OTHER, READ, BLOCK, BLOCK);
        settle().await;
        assert!(!taken(&volume, NAMELESS, 1, whole(first(1))), "{placement}: a fetch");
        store.release();
        reading.await.unwrap().unwrap();
        settle().await;
        read_as(&volume, NAMELESS, 2).await;
        store.hold_reads.store(true, Ordering::SeqCst);
        say(&volume, NAMELESS, vec![evict(2)]);
        settle().await;
        assert!(!taken(&volume, NAMELESS, 2, whole(first(2))), "{placement}: a reload");
        store.release();
        settle().await;
        check(&volume, &store, 2, &whole(first(2)), placement).await;
    }
}

#[tokio::test]
async fn a_failed_write_strikes_what_was_known() {
    for (what, store, volume) in volumes() {
        read_as(&volume, NAMELESS, 1).await;
        store.fail_writes.store(true, Ordering::SeqCst);
        let outcome = write_as(&volume, NAMELESS, 1, 0, whole(0xaa)).await;
        store.fail_writes.store(false, Ordering::SeqCst);
        if outcome.is_err() {
            for byte in [first(1), 0xaa] {
                assert!(!taken(&volume, NAMELESS, 1, whole(byte)), "{what}");
                settle().await;
            }
        }
        settle().await;
        flush(&volume).await.unwrap();
        let at = BLOCK as usize;
        let live = store.live()[at..2 * at].to_vec();
        check(&volume, &store, 1, &live, &what).await;
    }
}

#[tokio::test]
async fn a_failed_write_out_strikes_what_was_known_until_the_store_has_the_block() {
    let (store, mut config) = (store(), of("eviction,on-hit=keep"));
    (config.write, config.dirty_age) = (Write::Back, std::time::Duration::from_secs(3600));
    let volume = open(config, &store);
    read_as(&volume, NAMELESS, 1).await;
    assert!(taken(&volume, NAMELESS, 1, whole(first(1))));
    write_as(&volume, NAMELESS, 1, 0, whole(0xaa)).await.unwrap();
    assert_eq!(volume.stats().dirty, 1);
    assert!(taken(&volume, NAMELESS, 1, whole(0xaa)), "it is what the volume holds");
    store.fail_writes.store(true, Ordering::SeqCst);
    flush(&volume).await.unwrap_err();
    settle().await;
    for byte in [first(1), 0xaa] {
        assert!(!taken(&volume, NAMELESS, 1, whole(byte)));
    }
    store.fail_writes.store(false, Ordering::SeqCst);
    check(&volume, &store, 1, &whole(0xaa), "write-out").await;
    assert!(taken(&volume, NAMELESS, 1, whole(0xaa)), "the store has it");
}

#[tokio::test]
async fn what_a_store_may_have_lost_is_not_known() {
    for (what, store, volume) in volumes() {
        read_as(&volume, NAMELESS, 1).await;
        write_as(&volume, NAMELESS, 2, 0, whole(0xaa)).await.unwrap();
        flush(&volume).await.unwrap();
        volume.forget_digests();
        // The server below has lost what was written.
        let at = 2 * BLOCK as usize;
        store.inner.lock().unwrap().live[at..at + BLOCK as usize].fill(first(2));
        assert!(!taken(&volume, NAMELESS, 1, whole(first(1))), "{what}");
        assert!(!taken(&volume, NAMELESS, 2, whole(0xaa)), "{what}");
        settle().await;
        volume.validate().unwrap();
    }
}

/// What was under way when the store was lost proves nothing either.
#[tokio::test]
async fn a_read_that_was_under_way_when_the_store_was_lost_proves_nothing() {
    let store = store();
    let volume = open(of("gl"), &store);
    store.hold_reads.store(true, Ordering::SeqCst);
    let reading = begin(&volume, NAMELESS, READ, BLOCK, BLOCK);
    settle().await;
    volume.forget_digests();
    store.release();
    reading.await.unwrap().unwrap();
    settle().await;
    assert!(!taken(&volume, NAMELESS, 1, whole(first(1))));
    settle().await;
    read_as(&volume, NAMELESS, 3).await;
    assert!(taken(&volume, NAMELESS, 3, whole(first(3))));
}

#[tokio::test]
async fn nobody_hands_over_what_nobody_may_write() {
    let (store, mut config) = (store(), of("gl"));
    config.read_only = true;
    let volume = open(config, &store);
    read_as(&volume, NAMELESS, 1).await;
    assert!(!taken(&volume, NAMELESS, 1, whole(first(1))));
}

/// Where the levels are exclusive a HOLD gives the copy up. Who was not given the block, and did
/// not write it, does not have it to keep.
#[tokio::test]
async fn a_hold_by_a_stranger_drops_nothing() {
    let store = store();
    let volume = open(of("gl"), &store);
    for block in 0..8 {
        read_as(&volume, NAMELESS, block).await;
        assert!(taken(&volume, NAMELESS, block, whole(first(block))));
    }
    for block in 0..3 {
        write_as(&volume, NAMELESS, block, 0, whole(0xaa)).await.unwrap();
    }
    let hold = |first, count| vec![Hint::Hold(vec![BlockRun::new(first, count).unwrap()])];
    say(&volume, OTHER, hold(0, 64));
    assert_eq!(volume.stats().resident, 8);
    say(&volume, NAMELESS, hold(0, 3));
    assert_eq!(volume.stats().resident, 5, "its own word counts");
    volume.validate().unwrap();
}

/// What is staged of a block is what was written last. A range may come between a write that is
/// under way and its end, and then it is not.
#[tokio::test]
async fn staged_data_does_not_outlive_a_range() {
    let (store, mut config) = (store(), of("eviction,on-hit=keep,staging=8"));
    config.write = Write::Through;
    let (volume, block) = (open(config, &store), 7);
    store.hold_writes.store(true, Ordering::SeqCst);
    let first = begin(&volume, NAMELESS, write_of(whole(1)), block * BLOCK, BLOCK);
    settle().await;
    let second = begin(&volume, NAMELESS, ZERO, block * BLOCK, BLOCK);
    settle().await;
    // Its other bytes would have to be read, and cannot be.
    let third = begin(&volume, NAMELESS, write_of(vec![3; 100]), block * BLOCK + 10, 100);
    settle().await;
    store.fail_reads.store(true, Ordering::SeqCst);
    store.release();
    assert!(first.await.unwrap().is_ok() && second.await.unwrap().is_ok());
    assert!(third.await.unwrap().is_err());
    store.fail_reads.store(false, Ordering::SeqCst);
    say(&volume, NAMELESS, vec![evict(block)]);
    settle().await;
    check(&volume, &store, block, &whole(0), "a block that was zeroed").await;
}

/// The page of a running server tells what hints are worth: how the blocks came that hits found.
#[tokio::test]
async fn hits_are_counted_by_how_their_blocks_came() {
    let (store, mut config) = (store(), of("eviction,on-hit=keep,staging=8"));
    config.write = Write::Through;
    config.reload_at_once = true;
    let volume = open(config, &store);
    for block in [1, 2] {
        read_as(&volume, NAMELESS, block).await;
    }
    write_as(&volume, NAMELESS, 3, 0, whole(3)).await.unwrap();
    settle().await;
    say(&volume, NAMELESS, vec![demote(1, first(1)), evict(2), evict(3)]);
    settle().await;
    let counts = || volume.stats().cooperation.unwrap();
    let hits = |c: undercroft_server::CooperationStats| {
        [c.demoted_hits, c.reloaded_hits, c.restaged_hits, c.staged_hits]
    };
    assert_eq!((hits(counts()), counts().staged), ([0; 4], 1));
    // Each once, and again what is kept: it stays what it was.
    for block in [1, 2, 3, 1] {
        read_as(&volume, OTHER, block).await;
    }
    assert_eq!(hits(counts()), [2, 1, 1, 0]);
    assert_eq!(volume.stats().read_hits, 4);
    volume.validate().unwrap();
}
