//! Contents that a client hands over before it writes them, as a program does whose kernel delays
//! its writes. They are refused, because the volume does not hold them yet. The block is placed
//! when a WRITE brings exactly these data, and in no other case. Each refusal has one reason.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use undercroft_hints::{BlockRun, Hint};
use undercroft_nbd::Command;
use undercroft_server::{CooperationStats, ReceivedHints, Volume, Write};

use crate::common::{
    BLOCK, READ, TestStore, ZERO, begin_as as begin, demote, evict, flush, open, say, settle,
    write_of,
};
use crate::handed_over::{
    NAMELESS, OTHER, check, first, of, read_as, store, taken, volumes, whole, write_as,
};

const MOVE: &str = "eviction,on-hit=move";

fn counted(volume: &Volume) -> CooperationStats {
    volume.stats().cooperation.unwrap()
}

/// Hands over, in the name of a client without id, what the block does not hold now.
fn refused(volume: &Arc<Volume>, block: u64, byte: u8) {
    assert!(!taken(volume, NAMELESS, block, whole(byte)));
}

/// A client reads a block of `volume` and hands over what it will write.
async fn evict_unwritten(volume: &Arc<Volume>, block: u64, byte: u8) {
    read_as(volume, NAMELESS, block).await;
    refused(volume, block, byte);
    settle().await;
}

/// Reads a block for another client: what it is, and whether the store was not asked.
async fn is_here(volume: &Arc<Volume>, block: u64) -> (u8, bool) {
    let before = volume.stats().store_reads;
    let data = read_as(volume, OTHER, block).await;
    (data[0], volume.stats().store_reads == before)
}

#[tokio::test]
async fn each_refusal_has_one_reason() {
    let store = store();
    let volume = open(of("gl"), &store);
    let reasons = || {
        let c = counted(&volume);
        let by_reason = [
            c.demotions_refused_unknown,
            c.demotions_refused_changed,
            c.demotions_refused_busy,
            c.demotions_refused_malformed,
            c.demotions_refused_forbidden,
        ];
        assert_eq!(by_reason.iter().sum::<u64>(), c.demotions_refused);
        by_reason
    };
    refused(&volume, 1, first(1));
    assert_eq!(reasons(), [1, 0, 0, 0, 0], "never delivered");
    read_as(&volume, NAMELESS, 1).await;
    refused(&volume, 1, 0xee);
    assert_eq!(reasons(), [1, 1, 0, 0, 0]);
    write_as(&volume, NAMELESS, 2, 0, vec![0xee; 512]).await.unwrap();
    refused(&volume, 2, first(2));
    assert_eq!(reasons(), [2, 1, 0, 0, 0], "written in part");
    let mut busy = 0;
    for (command, is_read) in
        [(write_of(whole(0xaa)), false), (ZERO, false), (Command::Trim, false), (READ, true)]
    {
        let held = if is_read { &store.hold_reads } else { &store.hold_writes };
        held.store(true, Ordering::SeqCst);
        let under_way = begin(&volume, OTHER, command, 3 * BLOCK, BLOCK);
        settle().await;
        refused(&volume, 3, 0xaa);
        busy += 1;
        assert_eq!(reasons(), [2, 1, busy, 0, 0]);
        store.release();
        under_way.await.unwrap().unwrap();
        settle().await;
    }
    // A reload.
    read_as(&volume, NAMELESS, 4).await;
    store.hold_reads.store(true, Ordering::SeqCst);
    say(&volume, NAMELESS, vec![evict(4)]);
    settle().await;
    refused(&volume, 4, first(4));
    assert_eq!(reasons(), [2, 1, busy + 1, 0, 0]);
    store.release();
    settle().await;
    for length in [0, 512, 4095, 4097] {
        assert!(!taken(&volume, NAMELESS, 5, vec![first(5); length]));
    }
    assert_eq!(reasons(), [2, 1, busy + 1, 4, 0]);
    read_as(&volume, NAMELESS, 6).await;
    let hints = vec![demote(6, first(6))];
    let arrived = Instant::now();
    volume.receive_hints(NAMELESS, ReceivedHints { hints, bytes: 0, arrived, may_demote: false });
    assert_eq!(reasons(), [2, 1, busy + 1, 4, 1]);
    settle().await;
    volume.validate().unwrap();
}

#[tokio::test]
async fn a_block_is_placed_when_its_write_comes() {
    for (what, store, volume) in volumes() {
        evict_unwritten(&volume, 1, 0xaa).await;
        let (before, was_here) = (volume.stats(), volume.stats().resident);
        assert_eq!(before.cooperation.unwrap().reloads, 0, "{what}");
        let waits = u64::from(was_here == 0 || what.contains("Around"));
        let counts =
            |c: CooperationStats| (c.demotions_awaited, c.demotions_awaiting, c.demotions_written);
        assert_eq!(counts(counted(&volume)), (waits, waits, 0), "{what}");
        write_as(&volume, NAMELESS, 1, 0, whole(0xaa)).await.unwrap();
        assert_eq!(counts(counted(&volume)), (waits, 0, waits), "{what}");
        let after = volume.stats();
        assert_eq!((after.resident, after.store_reads), (1, before.store_reads), "{what}");
        let c = after.cooperation.unwrap();
        assert_eq!(c.known_evictions, c.already_resident + c.demotions_in + c.staged, "{what}");
        assert_eq!(is_here(&volume, 1).await, (0xaa, true), "{what}");
        check(&volume, &store, 1, &whole(0xaa), &what).await;
        // That was once: the next WRITE of these data has no such effect.
        write_as(&volume, NAMELESS, 1, 0, whole(0xaa)).await.unwrap();
        assert_eq!(counts(counted(&volume)), (waits, 0, waits), "{what}");
    }
}

/// Without any delivery before: the program has appended a page.
#[tokio::test]
async fn a_new_block_is_placed_when_its_write_comes() {
    for (what, store, volume) in volumes() {
        refused(&volume, 1, 0xaa);
        write_as(&volume, NAMELESS, 1, 0, whole(0xaa)).await.unwrap();
        assert_eq!(counted(&volume).demotions_written, 1, "{what}");
        assert_eq!(is_here(&volume, 1).await, (0xaa, true), "{what}");
        check(&volume, &store, 1, &whole(0xaa), &what).await;
    }
}

#[tokio::test]
async fn a_write_of_other_data_places_nothing() {
    for write in [Write::Through, Write::Around, Write::Back] {
        let (store, mut config) = (store(), of(MOVE));
        config.write = write;
        let volume = open(config, &store);
        evict_unwritten(&volume, 1, 0xaa).await;
        write_as(&volume, NAMELESS, 1, 0, whole(0xbb)).await.unwrap();
        assert_eq!((volume.stats().resident, counted(&volume).demotions_awaiting), (0, 0));
        write_as(&volume, NAMELESS, 1, 0, whole(0xaa)).await.unwrap();
        assert_eq!(volume.stats().resident, 0, "{write:?}: too late");
        flush(&volume).await.unwrap();
        assert_eq!(is_here(&volume, 1).await, (0xaa, false));
        // A part of the data is not all of it.
        evict_unwritten(&volume, 2, 0xaa).await;
        write_as(&volume, NAMELESS, 2, 0, vec![0xaa; 2048]).await.unwrap();
        write_as(&volume, NAMELESS, 2, 2048, vec![0xaa; 2048]).await.unwrap();
        assert_eq!(volume.stats().resident, 0, "{write:?}: in parts");
        check(&volume, &store, 2, &whole(0xaa), "in parts").await;
        // The last contents that were handed over count.
        read_as(&volume, NAMELESS, 3).await;
        refused(&volume, 3, 0xaa);
        refused(&volume, 3, 0xcc);
        write_as(&volume, NAMELESS, 3, 0, whole(0xaa)).await.unwrap();
        assert_eq!(volume.stats().resident, 0, "{write:?}: replaced");
        check(&volume, &store, 3, &whole(0xaa), "replaced").await;
    }
}

/// The digest that was remembered is not that of the block.
#[tokio::test]
async fn what_was_awaited_is_not_taken_for_what_was_written() {
    for write in [Write::Through, Write::Around, Write::Back] {
        let mut config = of(MOVE);
        config.write = write;
        let volume = open(config, &store());
        evict_unwritten(&volume, 3, 0xaa).await;
        write_as(&volume, NAMELESS, 3, 0, whole(0xbb)).await.unwrap();
        settle().await;
        assert_eq!(counted(&volume).demotions_written, 0, "{write:?}");
        refused(&volume, 3, 0xaa);
        settle().await;
        assert_eq!(is_here(&volume, 3).await.0, 0xbb, "{write:?}");
        volume.validate().unwrap();
    }
}

#[tokio::test]
async fn who_has_the_block_again_has_not_evicted_it() {
    for caller in [NAMELESS, OTHER] {
        let store = store();
        let volume = open(of(MOVE), &store);
        evict_unwritten(&volume, 1, 0xaa).await;
        read_as(&volume, caller, 1).await;
        assert_eq!(counted(&volume).demotions_awaiting, 0);
        write_as(&volume, NAMELESS, 1, 0, whole(0xaa)).await.unwrap();
        assert_eq!(volume.stats().resident, 0, "read");
        evict_unwritten(&volume, 2, 0xaa).await;
        say(&volume, caller, vec![Hint::Hold(vec![BlockRun::new(2, 1).unwrap()])]);
        write_as(&volume, NAMELESS, 2, 0, whole(0xaa)).await.unwrap();
        assert_eq!(volume.stats().resident, 0, "held");
        for block in 1..=2 {
            check(&volume, &store, block, &whole(0xaa), "again").await;
        }
    }
}

#[tokio::test]
async fn a_range_in_between_places_nothing() {
    for (command, length) in [(ZERO, 1), (Command::Trim, 1), (ZERO, 4), (Command::Trim, 4)] {
        for is_under_way in [false, true] {
            let store = store();
            let volume = open(of(MOVE), &store);
            read_as(&volume, NAMELESS, 1).await;
            if !is_under_way {
                refused(&volume, 1, 0xaa);
            }
            store.hold_writes.store(true, Ordering::SeqCst);
            let ranged = begin(&volume, OTHER, command.clone(), BLOCK, length * BLOCK);
            let written = begin(&volume, NAMELESS, write_of(whole(0xaa)), BLOCK, BLOCK);
            settle().await;
            if is_under_way {
                refused(&volume, 1, 0xaa);
            }
            assert_eq!(counted(&volume).demotions_awaiting, 0);
            store.release();
            ranged.await.unwrap().unwrap();
            written.await.unwrap().unwrap();
            settle().await;
            assert_eq!(counted(&volume).demotions_written, 0);
            check(&volume, &store, 1, &whole(0xaa), "written after the range").await;
            // A range that comes after the WRITE, and before the end of it.
            evict_unwritten(&volume, 2, 0xaa).await;
            store.hold_writes.store(true, Ordering::SeqCst);
            let written = begin(&volume, NAMELESS, write_of(whole(0xaa)), 2 * BLOCK, BLOCK);
            settle().await;
            let ranged = begin(&volume, OTHER, command.clone(), 2 * BLOCK, length * BLOCK);
            settle().await;
            store.release();
            written.await.unwrap().unwrap();
            ranged.await.unwrap().unwrap();
            settle().await;
            assert_eq!(counted(&volume).demotions_written, 0);
            check(&volume, &store, 2, &whole(0), "written before the range").await;
        }
    }
}

#[tokio::test]
async fn contents_may_come_while_their_write_is_under_way() {
    for (what, store, volume) in volumes().into_iter().filter(|(what, ..)| what.contains("move")) {
        for (block, last) in [(1, None), (2, Some(0xbb)), (3, Some(0xaa))] {
            let reads = volume.stats().store_reads;
            store.hold_writes.store(true, Ordering::SeqCst);
            let one = begin(&volume, NAMELESS, write_of(whole(0xaa)), block * BLOCK, BLOCK);
            settle().await;
            let two = last
                .map(|byte| begin(&volume, NAMELESS, write_of(whole(byte)), block * BLOCK, BLOCK));
            settle().await;
            let is_placed = last != Some(0xbb);
            if what.contains("Back") {
                // The data are in memory already, and the last of them count.
                assert_eq!(taken(&volume, NAMELESS, block, whole(0xaa)), is_placed, "{what}");
            } else {
                let busy = counted(&volume).demotions_refused_busy;
                refused(&volume, block, 0xaa);
                assert_eq!(counted(&volume).demotions_refused_busy, busy + 1, "{what}");
            }
            store.release();
            one.await.unwrap().unwrap();
            if let Some(two) = two {
                two.await.unwrap().unwrap();
            }
            flush(&volume).await.unwrap();
            let now = last.unwrap_or(0xaa);
            assert_eq!(volume.stats().store_reads, reads, "{what}");
            assert_eq!(is_here(&volume, block).await, (now, is_placed), "{what} {last:?}");
            check(&volume, &store, block, &whole(now), &what).await;
        }
    }
}

/// Volumes whose writes are answered when the store has them.
fn volumes_that_write_at_once() -> impl Iterator<Item = (String, Arc<TestStore>, Arc<Volume>)> {
    let at_once = |what: &str| what.contains("move") && !what.contains("Back");
    volumes().into_iter().filter(move |(what, ..)| at_once(what))
}

/// With write-back a write is answered before the store has it, whether its block stays or not.
#[tokio::test]
async fn a_write_back_of_a_block_that_does_not_stay_does_not_wait() {
    let (store, mut config) = (store(), of(MOVE));
    config.write = Write::Back;
    let volume = open(config, &store);
    store.hold_writes.store(true, Ordering::SeqCst);
    write_as(&volume, NAMELESS, 1, 0, whole(0xaa)).await.unwrap();
    write_as(&volume, NAMELESS, 2, 0, whole(0xbb)).await.unwrap();
    assert_eq!(volume.stats().resident, 0);
    for (block, byte) in [(1, 0xaa), (2, 0xbb)] {
        assert_eq!(is_here(&volume, block).await, (byte, true), "read while it is written out");
        assert_ne!(store.inner.lock().unwrap().live[(block * BLOCK) as usize], byte);
    }
    // Another write of the block, and one of a part of it, while it is written out.
    write_as(&volume, NAMELESS, 2, 0, whole(0xcc)).await.unwrap();
    write_as(&volume, NAMELESS, 2, 512, vec![0xdd; 512]).await.unwrap();
    let flushed = begin(&volume, OTHER, Command::Flush, 0, 0);
    settle().await;
    volume.validate().unwrap();
    store.release();
    flushed.await.unwrap().unwrap();
    let mut both = whole(0xcc);
    both[512..1024].fill(0xdd);
    check(&volume, &store, 2, &both, "the last of each byte").await;
    // A store that refuses the write: who flushes is told, and the data stay.
    store.fail_writes.store(true, Ordering::SeqCst);
    write_as(&volume, NAMELESS, 3, 0, whole(0xee)).await.unwrap();
    begin(&volume, OTHER, Command::Flush, 0, 0).await.unwrap().unwrap_err();
    assert_eq!(is_here(&volume, 3).await, (0xee, true));
    store.fail_writes.store(false, Ordering::SeqCst);
    begin(&volume, OTHER, Command::Flush, 0, 0).await.unwrap().unwrap();
    check(&volume, &store, 3, &whole(0xee), "accepted in the end").await;
    // A write that must be durable waits, and a flood leaves frames for others.
    store.hold_writes.store(true, Ordering::SeqCst);
    for block in 0..64 {
        drop(begin(&volume, NAMELESS, write_of(whole(block as u8)), block * BLOCK, BLOCK));
    }
    settle().await;
    volume.validate().unwrap();
    store.release();
    settle().await;
    begin(&volume, OTHER, Command::Flush, 0, 0).await.unwrap().unwrap();
    for block in 0..64 {
        check(&volume, &store, block, &whole(block as u8), "after a flood").await;
    }
}

/// A client writes a block and evicts it, as a database does: the block becomes resident before it
/// is written out, so that later changes join the first one.
#[tokio::test]
async fn a_written_block_waits_until_its_eviction_is_known() {
    let (store, mut config) = (store(), of(MOVE));
    config.write = Write::Back;
    let volume = open(config, &store);
    for byte in [0xaa, 0xbb] {
        read_as(&volume, NAMELESS, 1).await;
        write_as(&volume, NAMELESS, 1, 0, whole(byte)).await.unwrap();
        assert_eq!((volume.stats().resident, volume.stats().dirty), (0, 1));
        assert!(!taken(&volume, NAMELESS, 1, whole(0xee)), "other data");
        assert!(taken(&volume, NAMELESS, 1, whole(byte)));
        settle().await;
        assert_eq!((volume.stats().resident, volume.stats().dirty), (1, 1));
        volume.validate().unwrap();
    }
    assert_eq!(volume.stats().store_writes, 0);
    assert_eq!(is_here(&volume, 1).await, (0xbb, true));
    begin(&volume, OTHER, Command::Flush, 0, 0).await.unwrap().unwrap();
    assert_eq!((volume.stats().store_writes, volume.stats().dirty), (1, 0));
    check(&volume, &store, 1, &whole(0xbb), "both changes").await;
}

/// Blocks of which nobody says more are written out, the oldest first, without a flush.
#[tokio::test]
async fn few_written_blocks_wait_without_a_slot() {
    let (store, mut config) = (store(), of(MOVE));
    config.write = Write::Back;
    // Half of these may hold such blocks, half of those while they wait.
    config.spare_frames = 32;
    config.dirty_share = 1.0;
    let volume = open(config, &store);
    for block in 0..16 {
        write_as(&volume, NAMELESS, block, 0, whole(0xcc)).await.unwrap();
        volume.validate().unwrap();
    }
    let held = |block: u64| store.inner.lock().unwrap().live[(block * BLOCK) as usize] == 0xcc;
    assert_eq!((volume.stats().dirty, volume.stats().store_writes), (8, 8));
    assert!((0..8).all(held) && !(8..16).any(held));
    // One that is changed again, read, or trimmed while it waits.
    write_as(&volume, NAMELESS, 15, 512, vec![0xdd; 512]).await.unwrap();
    assert_eq!(read_as(&volume, NAMELESS, 14).await, whole(0xcc));
    begin(&volume, NAMELESS, ZERO, 13 * BLOCK, BLOCK).await.unwrap().unwrap();
    assert_eq!(read_as(&volume, NAMELESS, 13).await, whole(0));
    volume.validate().unwrap();
    begin(&volume, OTHER, Command::Flush, 0, 0).await.unwrap().unwrap();
    let mut both = whole(0xcc);
    both[512..1024].fill(0xdd);
    check(&volume, &store, 15, &both, "changed while it waited").await;
    check(&volume, &store, 13, &whole(0), "zeroed while it waited").await;
    check(&volume, &store, 14, &whole(0xcc), "read while it waited").await;
}

#[tokio::test]
async fn a_write_that_fails_places_nothing_and_may_be_repeated() {
    for (what, store, volume) in volumes_that_write_at_once() {
        evict_unwritten(&volume, 1, 0xaa).await;
        store.fail_writes.store(true, Ordering::SeqCst);
        write_as(&volume, NAMELESS, 1, 0, whole(0xaa)).await.unwrap_err();
        assert_eq!(volume.stats().resident, 0, "{what}");
        store.fail_writes.store(false, Ordering::SeqCst);
        write_as(&volume, NAMELESS, 1, 0, whole(0xaa)).await.unwrap();
        assert_eq!(is_here(&volume, 1).await, (0xaa, true), "{what}");
        check(&volume, &store, 1, &whole(0xaa), &what).await;
    }
}

#[tokio::test]
async fn a_write_that_the_store_may_have_lost_places_nothing() {
    for (what, store, volume) in volumes_that_write_at_once() {
        evict_unwritten(&volume, 1, 0xaa).await;
        store.hold_writes.store(true, Ordering::SeqCst);
        let written = begin(&volume, NAMELESS, write_of(whole(0xaa)), BLOCK, BLOCK);
        settle().await;
        volume.forget_digests();
        store.release();
        written.await.unwrap().unwrap();
        settle().await;
        assert_eq!(counted(&volume).demotions_written, 0, "{what}");
        check(&volume, &store, 1, &whole(0xaa), &what).await;
    }
}

/// Whoever floods the server with contents that nobody writes takes a fixed amount of memory.
#[tokio::test]
async fn a_flood_of_refused_contents_is_bounded() {
    const MOST: u64 = 4096;
    let store = TestStore::new(((MOST + 8) * BLOCK) as usize, 512, 1);
    let volume = open(of(MOVE), &store);
    for block in 0..MOST {
        say(&volume, NAMELESS, vec![demote(block, 0xaa)]);
    }
    assert_eq!(counted(&volume).demotions_awaiting, MOST);
    for round in 0..3 {
        for block in [MOST, MOST + 1] {
            say(&volume, NAMELESS, vec![demote(block, 0xaa)]);
            let c = counted(&volume);
            assert!(c.demotions_awaiting <= MOST, "round {round}: {}", c.demotions_awaiting);
        }
    }
    settle().await;
    volume.validate().unwrap();
    let counts = counted(&volume);
    assert_eq!((volume.stats().resident, counts.reloads_queued), (0, 0));
    assert_eq!(counts.demotions_awaited, MOST + 6);
    for (block, is_placed) in [(0, 0), (1, 0), (MOST - 1, 1), (MOST, 2), (MOST + 1, 3)] {
        write_as(&volume, NAMELESS, block, 0, whole(0xaa)).await.unwrap();
        assert_eq!(volume.stats().resident, is_placed, "block {block}");
    }
    volume.validate().unwrap();
}

#[tokio::test]
async fn each_shard_remembers_its_own_blocks() {
    for write in [Write::Through, Write::Around, Write::Back] {
        let store = TestStore::new((512 * BLOCK) as usize, 512, 1);
        let mut config = of(MOVE);
        (config.shards, config.cache_blocks, config.write) = (2, 64, write);
        let volume = open(config, &store);
        let blocks: Vec<u64> = (0..512).step_by(37).collect();
        for &block in &blocks {
            evict_unwritten(&volume, block, 0xaa).await;
        }
        let all = blocks.len() as u64;
        assert_eq!(counted(&volume).demotions_awaiting, all);
        // One WRITE of several blocks, on either side of a border between shards, with others.
        begin(&volume, NAMELESS, write_of(vec![0xaa; 512 * BLOCK as usize]), 0, 512 * BLOCK)
            .await
            .unwrap()
            .unwrap();
        settle().await;
        assert_eq!(counted(&volume).demotions_written, all, "{write:?}");
        assert_eq!(volume.stats().resident, all, "{write:?}");
        volume.validate().unwrap();
        for block in blocks {
            assert_eq!(is_here(&volume, block).await, (0xaa, true), "{write:?}");
        }
    }
}
