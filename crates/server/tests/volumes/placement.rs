//! Below a client with a cache: driven in order, a volume counts exactly what the simulator's
//! hierarchy counts at its second level, under eviction-based and global placement, with reloads
//! and with demotions; and what happens when hints, reloads and other requests meet.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::common::{
    BLOCK, READ, Random, TestStore, Watcher, begin_as, config, demote, evict, filled, flush, open,
    read, say, seed, settle, write_of,
};
use crate::cost::processor_time;
use undercroft_hints::{BlockRun, EvictFlags, Hint};
use undercroft_level::placement::DataSource;
use undercroft_level::{Estimator, HashedCache, Level, PlacementCounts, PlacementStep};
use undercroft_nbd::Command;
use undercroft_policy::{Context, Reference, Spec, WriteMode, policies};
use undercroft_server::{
    Answer, Caller, CooperationStats, ReceivedHints, Volume, VolumeConfig, Write,
};
use undercroft_sim::tree::Tree;

/// The client that all of this is about.
const CLIENT: Caller = Caller { client: 3, tells: true };

fn receive_hints(volume: &Arc<Volume>, hints: Vec<Hint>) {
    say(volume, CLIENT, hints);
}

async fn serve(volume: &Arc<Volume>, caller: Caller, command: Command, block: u64) -> Vec<u8> {
    match begin_as(volume, caller, command, block * BLOCK, BLOCK).await.unwrap().unwrap() {
        Answer::Data(pieces) => pieces.concat(),
        _ => Vec::new(),
    }
}

async fn read_as(volume: &Arc<Volume>, caller: Caller, block: u64) -> u8 {
    let data = serve(volume, caller, READ, block).await;
    assert!(data.iter().all(|&byte| byte == data[0]) && data.len() as u64 == BLOCK);
    data[0]
}

async fn write_as(volume: &Arc<Volume>, caller: Caller, block: u64, byte: u8) {
    serve(volume, caller, write_of(vec![byte; BLOCK as usize]), block).await;
}

fn cooperation(volume: &Volume) -> CooperationStats {
    volume.stats().cooperation.expect("the volume cooperates")
}

/// A volume of 64 blocks, each full of its number.
fn numbered(placement: &str, cache: u32) -> (Arc<TestStore>, VolumeConfig) {
    let placement = placement.parse().unwrap();
    let config = VolumeConfig { placement, ..config(cache, "lru") };
    (filled(64, |block| block as u8), config)
}

/// Until the store has been idle for long enough that all reloads are done.
async fn idle(volume: &Arc<Volume>) {
    for _ in 0..1000 {
        settle().await;
        if cooperation(volume).reloads_waiting == 0 {
            return;
        }
    }
    panic!("reloads are not done");
}

/// What the server's numbers are in the simulator.
fn counted(stats: &CooperationStats) -> PlacementCounts {
    PlacementCounts {
        known_evictions: stats.known_evictions,
        foreseen: stats.foreseen_evictions,
        already_here: stats.already_resident,
        reloads: stats.reloads,
        demotions_in: stats.demotions_in,
        staged: stats.staged,
        staged_hits: stats.staged_hits,
        skipped: stats.skipped,
    }
}

const BLOCKS: u64 = 96;

/// Plays random references through a hierarchy of the simulator's, and what its first level lets
/// through and evicts through a volume.
async fn agree(mut config: VolumeConfig, upper: &str, demotes: bool, random: &mut Random) {
    let what = format!("{upper} above {} {} {:?}", config.policy, config.placement, config.write);
    config.reload_at_once = true;
    let mode =
        if config.write == Write::Around { WriteMode::Invalidate } else { WriteMode::Allocate };
    let writes_back = config.write == Write::Back;
    let store = TestStore::new((BLOCKS * BLOCK) as usize, 512, random.next_u64());
    let policy = || Spec::parse(upper).unwrap().build(&Context::new(12)).unwrap();
    let rule = config.placement;
    let lower = Level::new(&config.policy, config.cache_blocks, &rule, mode, 0);
    let mut simulated = Tree::line(Some((policy(), mode)), vec![lower.unwrap()]).unwrap();
    let mut client = HashedCache::new(policy(), 1);
    let volume = open(config, &store);
    let mut model = vec![0_u8; BLOCKS as usize];
    // Numbered by first touch, as the simulator's are.
    let mut names: Vec<u64> = Vec::new();
    for step in 0..600_u32 {
        let block = if random.one_in(2) { random.below(BLOCKS) } else { random.below(30) };
        let block = match names.iter().position(|&name| name == block) {
            Some(number) => number as u64,
            None => {
                names.push(block);
                names.len() as u64 - 1
            }
        };
        let is_write = random.one_in(4);
        simulated.refer(Reference::new(block as u32, is_write));
        let hit = client.reference(block, is_write, mode, || false).hit;
        let gone: Vec<u64> = client.evicted().iter().map(|evicted| evicted.block).collect();
        if is_write {
            model[block as usize] = step as u8 | 1;
            write_as(&volume, CLIENT, block, step as u8 | 1).await;
        } else if !hit {
            let byte = read_as(&volume, CLIENT, block).await;
            assert_eq!(byte, model[block as usize], "{what}: step {step}");
        }
        let say =
            |block: u64| if demotes { demote(block, model[block as usize]) } else { evict(block) };
        // A client takes time; a hint that is as old as the read before it would be stale.
        std::thread::sleep(Duration::from_micros(2));
        receive_hints(&volume, gone.into_iter().map(say).collect());
        let (stats, level) = (volume.stats(), &simulated.lower()[0]);
        let counts = level.cache().counts();
        let ours = (stats.reads, stats.read_hits, stats.writes, stats.write_hits);
        let theirs = (counts.reads, counts.read_hits, counts.writes, counts.write_hits);
        assert_eq!(ours, theirs, "{what}: reads and writes at step {step}");
        let ours = (stats.cold_reads, stats.evictions, stats.resident);
        let theirs = (counts.cold_reads, counts.evictions, level.policy().len().into());
        assert_eq!(ours, theirs, "{what}: cold, evictions, resident at step {step}");
        let cooperation = cooperation(&volume);
        let (mut placed, theirs) = (counted(&cooperation), level.placement().unwrap().counts());
        assert_eq!(cooperation.stale_hints, 0, "{what}: hints at step {step}");
        // Data that comes while the block is being written out is dropped, and read back instead.
        let reread = theirs.demotions_in.saturating_sub(placed.demotions_in);
        let may_drop = if writes_back { cooperation.demotions_refused } else { 0 };
        assert!(reread <= may_drop, "{what}: {reread} demotions refused at step {step}");
        placed.demotions_in += reread;
        placed.reloads = placed.reloads.saturating_sub(reread);
        assert_eq!(placed, theirs, "{what}: step {step}");
    }
    assert_eq!(volume.stats().served_around, 0, "{what}");
    flush(&volume).await.unwrap();
    volume.validate().unwrap();
    for (chunk, &byte) in store.live().chunks(BLOCK as usize).zip(&model) {
        assert!(chunk.iter().all(|&b| b == byte), "{what}: the store after a flush");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_placement_counts_what_the_simulator_counts() {
    let mut random = Random::new(seed());
    for info in policies().iter().filter(|info| info.name != "opt" && !info.is_content_aware()) {
        for (placement, demotes) in [
            ("eviction,on-hit=move", false),
            ("eviction,on-hit=keep,threshold=2", false),
            ("eviction,on-hit=move,threshold=1x,staging=6", false),
            ("eviction,on-hit=adaptive,staging=auto", false),
            ("eviction,on-hit=move,down=demote", true),
            ("gl", true),
        ] {
            for write in [Write::Through, Write::Back, Write::Around] {
                let mut config = config(16, info.name);
                config.placement = placement.parse().unwrap();
                config.write = write;
                agree(config, "lru", demotes, &mut random).await;
            }
        }
    }
}

/// Clients that say nothing, emulated: as the simulator does it with `--evictions estimate`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn emulated_clients_are_served_as_simulated() {
    const CLIENT_BLOCKS: u32 = 400;
    const REQUESTS: u32 = 260_000;
    let mut random = Random::new(seed());
    let mut config = config(300, "mq");
    config.placement = "eviction,on-hit=move".parse().unwrap();
    (config.estimate, config.reload_at_once) = (true, true);
    let store = TestStore::new((4000 * BLOCK) as usize, 512, random.next_u64());
    let rule = config.placement;
    let lower = Level::new(&config.policy, 300, &rule, WriteMode::Allocate, 0);
    let mut level = lower.unwrap();
    let mut estimator = Estimator::new(1 << 16, 0);
    let policy = Spec::parse("lru").unwrap().build(&Context::new(CLIENT_BLOCKS)).unwrap();
    let mut client = HashedCache::new(policy, 1);
    let volume = open(config, &store);
    let (mut by_access, mut inferred) = (0_u64, Vec::new());
    for step in 0..REQUESTS {
        let block = random.below(4000);
        if client.access(block).hit {
            continue;
        }
        let stranger = Caller { client: 0, tells: false };
        serve(&volume, stranger, READ, block).await;
        let is_confident = estimator.is_confident();
        by_access += u64::from(!is_confident);
        if is_confident {
            level.reference(block, false, || false);
        } else {
            level.reference_by_access(block, false, false);
        }
        inferred.clear();
        estimator.observe(block, false, &mut inferred);
        for &gone in inferred.iter().filter(|_| is_confident) {
            if level.client_evicted(gone) == PlacementStep::Fetch {
                level.arrived(gone, DataSource::Reload);
            }
        }
        if step % 1000 == 999 {
            let (stats, counts) = (volume.stats(), level.cache().counts());
            let ours = (stats.reads, stats.read_hits, stats.evictions);
            assert_eq!(ours, (counts.reads, counts.read_hits, counts.evictions), "step {step}");
        }
    }
    let counted = cooperation(&volume);
    assert_eq!(counted.estimate_fallbacks, by_access);
    assert_eq!(counted.reloads, level.placement().unwrap().counts().reloads);
    assert!(counted.reloads > 1000 && by_access > 1000, "{counted:?}: both sides were seen");
    volume.validate().unwrap();
}

#[tokio::test]
async fn a_miss_takes_no_room_and_a_hit_gives_it_up() {
    let (store, mut config) = numbered("eviction,on-hit=move", 4);
    config.reload_at_once = true;
    let volume = open(config, &store);
    assert_eq!(read_as(&volume, CLIENT, 7).await, 7);
    assert_eq!(volume.stats().resident, 0);
    receive_hints(&volume, vec![evict(7)]);
    settle().await;
    assert_eq!((volume.stats().resident, volume.stats().store_reads), (1, 2));
    assert_eq!(read_as(&volume, CLIENT, 7).await, 7);
    let stats = volume.stats();
    assert_eq!((stats.read_hits, stats.resident, stats.store_reads), (1, 0, 2));
    // Who tells nothing is served as everywhere.
    let plain = Caller { client: 0, tells: false };
    assert_eq!(read_as(&volume, plain, 9).await, 9);
    assert_eq!(read_as(&volume, plain, 9).await, 9);
    assert_eq!((volume.stats().resident, volume.stats().read_hits), (1, 2));
    volume.validate().unwrap();
}

#[tokio::test]
async fn reloads_wait_for_an_idle_store() {
    let (store, config) = numbered("eviction,on-hit=move", 32);
    let volume = open(config, &store);
    for block in [1, 2] {
        read_as(&volume, CLIENT, block).await;
    }
    store.hold_reads.store(true, Ordering::SeqCst);
    let waits = begin_as(&volume, CLIENT, READ, 9 * BLOCK, BLOCK);
    receive_hints(&volume, vec![evict(1), evict(2), evict(1)]);
    settle().await;
    let counted = cooperation(&volume);
    assert_eq!((counted.reloads_waiting, counted.reloads_duplicate, counted.reloads), (2, 1, 0));
    assert_eq!(store.log().len(), 3, "nothing is read back while somebody waits for the store");
    store.hold_reads.store(false, Ordering::SeqCst);
    store.release();
    waits.await.unwrap().unwrap();
    idle(&volume).await;
    assert_eq!((cooperation(&volume).reloads, volume.stats().resident), (2, 2));
    volume.validate().unwrap();
}

/// A store that stalls while it reads a block back, and meanwhile the block is changed: what was
/// read is never seen.
#[tokio::test]
async fn a_reload_never_brings_back_what_was_written_since() {
    for change in 0..4 {
        let (store, config) = numbered("eviction,on-hit=move", 4);
        let volume = open(config, &store);
        read_as(&volume, CLIENT, 5).await;
        store.hold_reads.store(true, Ordering::SeqCst);
        receive_hints(&volume, vec![evict(5)]);
        settle().await;
        assert_eq!(cooperation(&volume).reloads_waiting, 1);
        let after = match change {
            0 => {
                write_as(&volume, CLIENT, 5, 0xaa).await;
                0xaa
            }
            1 => {
                serve(&volume, CLIENT, Command::Trim, 5).await;
                0
            }
            2 => {
                let zero = Command::WriteZeroes { keep_allocated: true, fast: false };
                serve(&volume, CLIENT, zero, 5).await;
                0
            }
            // A part of it, which has to be read first, from a store that stalls.
            _ => {
                let bytes = write_of(vec![0xbb; 10]);
                let answer = begin_as(&volume, CLIENT, bytes, 5 * BLOCK, 10);
                settle().await;
                store.hold_reads.store(false, Ordering::SeqCst);
                store.release();
                answer.await.unwrap().unwrap();
                0xbb
            }
        };
        store.hold_reads.store(false, Ordering::SeqCst);
        store.release();
        idle(&volume).await;
        let counted = cooperation(&volume);
        let dropped = counted.reloads_written + counted.reloads_discarded;
        assert_eq!((dropped, counted.reloads, volume.stats().resident), (1, 0, 0), "{change}");
        let found = read(&volume, 5 * BLOCK, BLOCK).await.unwrap();
        assert_eq!(found[0], after, "{change}");
        volume.validate().unwrap();
    }
}

#[tokio::test]
async fn a_queued_reload_goes_when_it_is_of_no_use() {
    let (store, config) = numbered("eviction,on-hit=move", 32);
    let volume = open(config, &store);
    for block in 0..9 {
        read_as(&volume, CLIENT, block).await;
    }
    store.hold_reads.store(true, Ordering::SeqCst);
    let waits = begin_as(&volume, CLIENT, READ, 40 * BLOCK, BLOCK);
    // The queue holds an eighth of the cache: the first one falls out.
    receive_hints(&volume, (0..5).map(evict).collect());
    settle().await;
    assert_eq!(cooperation(&volume).reloads_overflowed, 1);
    write_as(&volume, CLIENT, 2, 0xcc).await;
    serve(&volume, CLIENT, Command::Trim, 3).await;
    let answer = begin_as(&volume, CLIENT, READ, BLOCK, BLOCK);
    let counted = cooperation(&volume);
    let gone = (counted.reloads_written, counted.reloads_discarded, counted.reloads_demanded);
    assert_eq!((gone, counted.reloads_waiting), ((1, 1, 1), 1));
    store.hold_reads.store(false, Ordering::SeqCst);
    store.release();
    waits.await.unwrap().unwrap();
    answer.await.unwrap().unwrap();
    idle(&volume).await;
    assert_eq!((cooperation(&volume).reloads, volume.stats().resident), (1, 1));
}

/// A read of a block that is being read back waits for that and asks for nothing.
#[tokio::test]
async fn a_read_takes_a_reload_over() {
    let (store, config) = numbered("eviction,on-hit=move", 4);
    let volume = open(config, &store);
    read_as(&volume, CLIENT, 5).await;
    store.hold_reads.store(true, Ordering::SeqCst);
    receive_hints(&volume, vec![evict(5)]);
    settle().await;
    let answer = begin_as(&volume, CLIENT, READ, 5 * BLOCK, BLOCK);
    settle().await;
    volume.validate().unwrap();
    assert_eq!(store.log().len(), 2);
    store.hold_reads.store(false, Ordering::SeqCst);
    store.release();
    assert!(answer.await.unwrap().is_ok());
    idle(&volume).await;
    let (stats, counted) = (volume.stats(), cooperation(&volume));
    assert_eq!((stats.reads, stats.read_hits, stats.store_reads, stats.resident), (2, 0, 2, 0));
    assert_eq!((counted.reloads_joined, counted.reloads), (1, 0));
    volume.validate().unwrap();
}

#[tokio::test]
async fn a_failed_reload_spoils_nothing() {
    let (store, config) = numbered("eviction,on-hit=move", 4);
    let volume = open(config, &store);
    read_as(&volume, CLIENT, 5).await;
    store.fail_reads.store(true, Ordering::SeqCst);
    receive_hints(&volume, vec![evict(5)]);
    idle(&volume).await;
    store.fail_reads.store(false, Ordering::SeqCst);
    assert_eq!((cooperation(&volume).reloads_failed, volume.stats().resident), (1, 0));
    assert_eq!(read_as(&volume, CLIENT, 5).await, 5);
    volume.validate().unwrap();
}

/// Another server may change the data as soon as the volume is closed.
#[tokio::test]
async fn a_reload_that_ends_after_the_volume_hands_nothing_down() {
    let (store, mut config) = numbered("eviction,on-hit=keep", 1);
    let watcher = Watcher::of(&store, BLOCK);
    config.eviction_sink = Some(Arc::clone(&watcher) as _);
    let volume = open(config, &store);
    for block in [5, 6] {
        read_as(&volume, CLIENT, block).await;
    }
    receive_hints(&volume, vec![evict(6)]);
    idle(&volume).await;
    store.hold_reads.store(true, Ordering::SeqCst);
    receive_hints(&volume, vec![evict(5)]);
    settle().await;
    assert_eq!((cooperation(&volume).reloads_waiting, volume.stats().resident), (1, 1));
    volume.close().await.unwrap();
    store.inner.lock().unwrap().live.fill(99);
    store.release();
    idle(&volume).await;
    assert_eq!(*watcher.wrong.lock().unwrap(), [0; 0]);
}

#[tokio::test]
async fn data_is_taken_from_clients_only_where_it_must_be_right() {
    let (store, config) = numbered("gl", 8);
    let volume = open(config, &store);
    let other = Caller { client: 5, tells: true };
    // Delivered and unchanged: taken, and served without the store.
    read_as(&volume, CLIENT, 1).await;
    settle().await;
    receive_hints(&volume, vec![demote(1, 1)]);
    assert_eq!(cooperation(&volume).demotions_accepted, 1);
    assert_eq!(read_as(&volume, other, 1).await, 1);
    assert_eq!(volume.stats().store_reads, 1);
    // Never delivered; changed by another client; trimmed; not what was delivered; short.
    read_as(&volume, CLIENT, 2).await;
    write_as(&volume, other, 2, 0x22).await;
    read_as(&volume, CLIENT, 3).await;
    serve(&volume, other, Command::Trim, 3).await;
    read_as(&volume, other, 4).await;
    read_as(&volume, CLIENT, 6).await;
    settle().await;
    let short = Hint::Demote { block: 6, rides: false, data: vec![0xee; 512].into() };
    let mut hints = vec![demote(0, 0), demote(2, 2), demote(3, 3), demote(4, 0xee)];
    hints.push(short);
    receive_hints(&volume, hints);
    idle(&volume).await;
    let counted = cooperation(&volume);
    assert_eq!((counted.demotions_accepted, counted.demotions_refused), (1, 5));
    for (block, byte) in [(0, 0), (2, 0x22), (3, 0), (4, 4), (6, 6)] {
        assert_eq!(read_as(&volume, CLIENT, block).await, byte, "block {block}");
    }
    // A write that came before the data is newer, also the client's own.
    read_as(&volume, CLIENT, 8).await;
    settle().await;
    let arrived = Instant::now();
    settle().await;
    write_as(&volume, CLIENT, 8, 0x88).await;
    volume.receive_hints(
        CLIENT,
        ReceivedHints { hints: vec![demote(8, 8)], bytes: 0, arrived, may_demote: true },
    );
    idle(&volume).await;
    assert_eq!(read_as(&volume, CLIENT, 8).await, 0x88);
    volume.validate().unwrap();
}

#[tokio::test]
async fn a_demotion_during_a_write_is_refused() {
    let (store, config) = numbered("gl", 8);
    let volume = open(config, &store);
    read_as(&volume, CLIENT, 1).await;
    store.hold_writes.store(true, Ordering::SeqCst);
    let answer = begin_as(&volume, CLIENT, write_of(vec![0x11; BLOCK as usize]), BLOCK, BLOCK);
    settle().await;
    receive_hints(&volume, vec![demote(1, 1)]);
    assert_eq!(cooperation(&volume).demotions_refused, 1);
    store.hold_writes.store(false, Ordering::SeqCst);
    store.release();
    answer.await.unwrap().unwrap();
    idle(&volume).await;
    assert_eq!(read_as(&volume, CLIENT, 1).await, 0x11);
    volume.validate().unwrap();
}

#[tokio::test]
async fn old_and_shared_blocks_are_not_placed() {
    let (store, mut config) = numbered("eviction,on-hit=move", 8);
    config.reload_at_once = true;
    let volume = open(config, &store);
    // Evicted, and read again before the hint came.
    read_as(&volume, CLIENT, 1).await;
    settle().await;
    let age = Hint::Evict {
        age_us: 1_000_000,
        sequence: 1,
        flags: EvictFlags::default(),
        runs: vec![BlockRun::new(1, 1).unwrap()],
    };
    receive_hints(&volume, vec![age]);
    let late = EvictFlags { late: true, ..EvictFlags::default() };
    let runs = vec![BlockRun::new(2, 1).unwrap()];
    receive_hints(&volume, vec![Hint::Evict { age_us: 0, sequence: 2, flags: late, runs }]);
    let counted = cooperation(&volume);
    assert_eq!((counted.stale_hints, counted.late_hints, counted.hints), (1, 1, 2));
    assert_eq!(volume.stats().resident, 0);
    // Beyond the end, and a run that is far too long: bounded work, and said.
    let runs = vec![BlockRun::new(60, BlockRun::COUNT_MAX).unwrap(); 3];
    let flags = EvictFlags::default();
    receive_hints(&volume, vec![Hint::Evict { age_us: 0, sequence: 3, flags, runs }]);
    assert_eq!(cooperation(&volume).hints, 2 + 3 * 4);
    let beyond = 3 * (u64::from(BlockRun::COUNT_MAX) - 4);
    assert_eq!(cooperation(&volume).ignored_hints, beyond);
    // As many as fit a message: billions of blocks, none of which there is.
    let runs = vec![BlockRun::new(64, BlockRun::COUNT_MAX).unwrap(); 130_000];
    let before = processor_time();
    receive_hints(&volume, vec![Hint::Evict { age_us: 0, sequence: 4, flags, runs }]);
    let computed = processor_time() - before;
    assert!(computed < Duration::from_secs(1), "{computed:?}");
    let more = 130_000 * u64::from(BlockRun::COUNT_MAX);
    assert_eq!(cooperation(&volume).ignored_hints, beyond + more);
    settle().await;
    volume.validate().unwrap();
}
