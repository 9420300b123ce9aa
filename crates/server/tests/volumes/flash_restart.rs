//! A level on flash that is warm after a restart: whatever ends a server, and whenever, the next
//! one reads from flash only what the store has.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::sync::oneshot;
use tokio::task::JoinSet;
use undercroft_nbd::Command;
use undercroft_server::{FlashMedium, FlashPart, FlashPlace, Outcome, Volume, VolumeConfig, Write};
use undercroft_store::{Store as _, Version};

use crate::common::{
    BLOCK, READ, Random, Shared, TestStore, ZERO, begin, config, flush, open, read, seed, settle,
    write, write_of,
};

const BLOCKS: u64 = 3000;
/// Of the part, for about 250 slots.
const PART: u64 = 260 * BLOCK;

/// A server's life: what it has, and what it found on flash.
struct Life {
    volume: Arc<Volume>,
    store: Arc<TestStore>,
    device: Arc<TestStore>,
    id: u64,
    found: Result<u64, String>,
}

/// Begins a life with what another one left. `id`: of the part before.
async fn begin_life(
    config: VolumeConfig,
    store: Arc<TestStore>,
    device: Arc<TestStore>,
    id: Option<u64>,
    random: &mut Random,
) -> Life {
    let medium = FlashMedium::new(Arc::new(Shared(Arc::clone(&device))));
    begin_life_on(medium, config, (store, device), id, random).await
}

async fn begin_life_on(
    medium: FlashMedium,
    config: VolumeConfig,
    stores: (Arc<TestStore>, Arc<TestStore>),
    id: Option<u64>,
    random: &mut Random,
) -> Life {
    let (life, part) = open_life(medium, config, stores, id, random).await;
    life.volume.flash.take(Some(part));
    life
}

/// Opens a volume, and looks what another life left on flash, which it does not have yet.
async fn open_life(
    medium: FlashMedium,
    mut config: VolumeConfig,
    (store, device): (Arc<TestStore>, Arc<TestStore>),
    id: Option<u64>,
    random: &mut Random,
) -> (Life, FlashPart) {
    let place = FlashPlace { range: 0..PART, block_bytes: BLOCK as u32, shards: config.shards, id };
    let version: Version = Shared(Arc::clone(&store)).version().await.unwrap();
    let (rule, new) = ("250blk,rule=access".parse().unwrap(), random.next_u64());
    let (part, id, found) = FlashPart::with_journals(medium, rule, &place, version, new).await;
    (config.flash_bytes, config.awaits_flash) = (PART, true);
    let volume = open(config, &store);
    (Life { volume, store, device, id, found }, part)
}

/// A life with nothing before it.
async fn first_life(config: VolumeConfig, random: &mut Random) -> Life {
    let (store, device) = new_stores(random);
    begin_life(config, store, device, None, random).await
}

/// A store and a device that nobody has used.
fn new_stores(random: &mut Random) -> (Arc<TestStore>, Arc<TestStore>) {
    let store = TestStore::new((BLOCKS * BLOCK) as usize, 512, random.next_u64());
    store.changed_ns.store(1, Ordering::SeqCst);
    (store, TestStore::new(PART as usize, 4096, random.next_u64()))
}

/// What is there when the process ends, or the power fails, at this moment.
fn cut(life: &Life, power: bool, random: &mut Random) -> (Arc<TestStore>, Arc<TestStore>) {
    // No request takes effect meanwhile.
    let (store, device) = (life.store.inner.lock().unwrap(), life.device.inner.lock().unwrap());
    let changed = life.store.changed_ns.load(Ordering::SeqCst);
    let (store, device) = match power {
        true => (store.after_a_cut(random), device.after_a_cut(random)),
        false => (store.clone(), device.clone()),
    };
    let (one, other) = (random.next_u64(), random.next_u64());
    (TestStore::of(store, 512, changed, one), TestStore::of(device, 4096, 0, other))
}

/// Reads every block: it must be what the store has. Returns how many reads hit on flash.
async fn check(life: &Life, what: &str) -> u64 {
    let before = life.volume.stats().flash.unwrap().hits;
    let image = life.store.live();
    for block in 0..BLOCKS {
        let data = read(&life.volume, block * BLOCK, BLOCK).await.unwrap();
        let start = (block * BLOCK) as usize;
        assert!(data == image[start..start + BLOCK as usize], "{what}: block {block} is another");
    }
    life.volume.validate().unwrap();
    life.volume.stats().flash.unwrap().hits - before
}

/// Makes so many requests, some at a time. Returns those that have not ended.
async fn work(life: &Life, count: u32, random: &mut Random) -> Vec<oneshot::Receiver<Outcome>> {
    let mut open = Vec::new();
    for step in 0..count {
        let block = if random.one_in(2) { random.below(300) } else { random.below(BLOCKS) };
        let bytes = (random.next_u64() | 1).to_le_bytes().repeat(BLOCK as usize / 8);
        let (command, length) = match random.below(24) {
            0..=6 => (write_of(bytes), BLOCK),
            7 => (Command::Flush, 0),
            8 if step == 0 => (ZERO, (1 + random.below(BLOCKS - block)) * BLOCK),
            9 => (Command::Trim, BLOCK),
            _ => (READ, BLOCK),
        };
        let offset = if length == 0 { 0 } else { block * BLOCK };
        open.push(begin(&life.volume, command, offset, length));
        if open.len() > 8 {
            open.swap_remove(random.below(8) as usize).await.unwrap().unwrap();
        }
    }
    open
}

/// Lives that follow each other, each ended at any moment, by a kill or a power cut.
async fn lives(way: Write, shards: u32, mut random: Random) {
    let (mut store, mut device) = new_stores(&mut random);
    let (mut id, mut warm) = (None, 0);
    for round in 0..8 {
        let what = format!("{way:?}, {shards} shards, life {round}");
        for one in [&store, &device] {
            one.jitter.store(true, Ordering::SeqCst);
        }
        let mut config = config(16, "lru");
        (config.write, config.shards) = (way, shards);
        let medium = FlashMedium::new(Arc::new(Shared(Arc::clone(&device))));
        let (life, part) = open_life(medium, config, (store, device), id, &mut random).await;
        if id.is_some() {
            warm += life.found.clone().unwrap_or_else(|why| panic!("{what}: {why}"));
            assert_eq!(Some(life.id), id);
        }
        // What lies on flash may be known late, when blocks are dirty and changes wait.
        let late = Duration::from_millis(if random.one_in(2) { random.below(100) } else { 0 });
        let taking = {
            let volume = Arc::clone(&life.volume);
            tokio::spawn(async move {
                tokio::time::sleep(late).await;
                volume.flash.take(Some(part));
            })
        };
        if late.is_zero() {
            taking.await.unwrap();
            check(&life, &what).await;
        } else {
            let (taken, open) = tokio::join!(taking, work(&life, 60, &mut random));
            taken.unwrap();
            for request in open {
                request.await.unwrap().unwrap();
            }
            flush(&life.volume).await.unwrap();
            check(&life, &format!("{what}, late")).await;
        }
        // Every other life lasts until copies are in the journal, however busy the machine is.
        let (wanted, ms) = match round % 2 {
            0 => (20 + random.below(180), 20_000),
            _ => (u64::MAX, random.below(3000)),
        };
        let until = Instant::now() + Duration::from_millis(ms);
        let durable = || life.volume.stats().flash.unwrap().durable;
        while Instant::now() < until && durable() < wanted {
            drop(work(&life, 20, &mut random).await);
        }
        (store, device) = cut(&life, random.one_in(2), &mut random);
        id = Some(life.id);
    }
    assert!(warm > 20, "{way:?}, {shards} shards: {warm} blocks were found");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_old_is_read_after_a_restart() {
    let mut random = Random::new(seed());
    let mut all = JoinSet::new();
    for (way, shards) in
        [(Write::Through, 1), (Write::Back, 1), (Write::Through, 2), (Write::Back, 2)]
    {
        all.spawn(lives(way, shards, Random::new(random.next_u64())));
    }
    all.join_all().await;
}

/// After an end in order nearly all of it is found; not if somebody else has changed the store.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_end_in_order_keeps_what_lies_there_and_a_foreign_change_nothing() {
    let mut random = Random::new(seed());
    let life = first_life(config(16, "lru"), &mut random).await;
    assert_eq!(life.found, Err("nobody used it before".to_owned()));
    for block in 0..200 {
        write(&life.volume, block * BLOCK, vec![block as u8; BLOCK as usize]).await.unwrap();
        read(&life.volume, block * BLOCK, BLOCK).await.unwrap();
    }
    settle().await;
    life.volume.close().await.unwrap();
    let (store, device) = cut(&life, true, &mut random);
    let changed = store.changed_ns.load(Ordering::SeqCst);
    let next = begin_life(config(16, "lru"), store, device, Some(life.id), &mut random).await;
    assert!(next.found.clone().unwrap() >= 190, "{:?}", next.found);
    assert!(check(&next, "after an end").await >= 190);
    next.volume.close().await.unwrap();
    // A time before as well as one after: a copy of the store was put back, or it was written to.
    for other in [changed - 1, changed + 1] {
        let (store, device) = cut(&next, false, &mut random);
        store.changed_ns.store(other, Ordering::SeqCst);
        let last = begin_life(config(16, "lru"), store, device, Some(next.id), &mut random).await;
        assert_eq!(last.found, Err("the store was changed since".to_owned()));
        assert_ne!(last.id, next.id);
        assert_eq!(check(&last, "after a foreign change").await, 0);
    }
}

/// A commit that has waited for the last one is not made: it would admit what somebody else changes
/// in the seconds after an end in order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_commit_follows_the_last_one() {
    let mut random = Random::new(seed());
    let life = first_life(config(16, "lru"), &mut random).await;
    put_on_flash(&life).await;
    // After the stamp that there is, so that another one is wanted.
    write(&life.volume, (BLOCKS - 1) * BLOCK, vec![1; BLOCK as usize]).await.unwrap();
    // The last commit takes longer than the pause between two.
    life.device.flush_ms.store(1000, Ordering::SeqCst);
    life.volume.close().await.unwrap();
    tokio::time::sleep(Duration::from_millis(500)).await;
    let (store, device) = cut(&life, false, &mut random);
    store.put(0, &[9; BLOCK as usize], true);
    let next = begin_life(config(16, "lru"), store, device, Some(life.id), &mut random).await;
    assert_eq!(next.found, Err("the store was changed since".to_owned()));
}

/// A device that takes no more pages holds no client up for long, and is not believed later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_journal_that_cannot_be_written_is_done_without() {
    for hangs in [false, true] {
        let mut random = Random::new(seed());
        let life = first_life(config(16, "lru"), &mut random).await;
        for block in 0..100 {
            write(&life.volume, block * BLOCK, vec![1; BLOCK as usize]).await.unwrap();
        }
        flush(&life.volume).await.unwrap();
        for block in 0..100 {
            read(&life.volume, block * BLOCK, BLOCK).await.unwrap();
        }
        tokio::time::sleep(Duration::from_millis(1500)).await;
        let stops = if hangs { &life.device.hold_writes } else { &life.device.fail_writes };
        stops.store(true, Ordering::SeqCst);
        let began = Instant::now();
        for block in 0..100 {
            write(&life.volume, block * BLOCK, vec![2; BLOCK as usize]).await.unwrap();
        }
        let longest = if hangs { 16 } else { 5 };
        assert!(began.elapsed().as_secs() < longest, "{:?}", began.elapsed());
        assert_eq!(check(&life, "without").await, 0, "it is used no more");
        let (store, device) = cut(&life, false, &mut random);
        let next = begin_life(config(16, "lru"), store, device, Some(life.id), &mut random).await;
        assert_eq!(next.found, Err("the store was changed since".to_owned()));
        check(&next, "after it").await;
        life.device.release();
    }
}

/// Reads 200 blocks, and waits until most of them would be found after a restart.
async fn put_on_flash(life: &Life) {
    for block in 0..200 {
        read(&life.volume, block * BLOCK, BLOCK).await.unwrap();
    }
    let durable = || life.volume.stats().flash.unwrap().durable;
    for _ in 0..600 {
        flush(&life.volume).await.unwrap();
        if durable() >= 150 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{} blocks are durable", durable());
}

/// A drop that cannot end what lies on flash says so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drop_without_a_journal_is_an_error() {
    let mut random = Random::new(seed());
    let life = first_life(config(16, "lru"), &mut random).await;
    put_on_flash(&life).await;
    life.device.fail_writes.store(true, Ordering::SeqCst);
    let refused = life.volume.drop_cached().await.unwrap_err();
    assert!(refused.contains("cannot be ended for good"), "{refused}");
    // When the store has changed since, whoever comes next notices.
    write(&life.volume, 0, vec![1; BLOCK as usize]).await.unwrap();
    life.volume.drop_cached().await.unwrap();
    let (store, device) = cut(&life, false, &mut random);
    let next = begin_life(config(16, "lru"), store, device, Some(life.id), &mut random).await;
    assert_eq!(next.found, Err("the store was changed since".to_owned()));
}

/// A journal that fails before its first commit waits for the stamp of the server before, which
/// reaches far ahead if flash was slow.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_stamp_of_an_earlier_server_is_waited_for() {
    let mut random = Random::new(seed());
    let first = first_life(config(16, "lru"), &mut random).await;
    put_on_flash(&first).await;
    // The stamp of a commit reaches as far ahead as twice the time of the one before, and farther.
    first.device.flush_ms.store(3000, Ordering::SeqCst);
    let pages = || first.volume.stats().flash.unwrap().journal_pages;
    let slow = pages() + 4;
    while pages() < slow {
        write(&first.volume, (BLOCKS - 1) * BLOCK, vec![1; BLOCK as usize]).await.unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let (store, device) = cut(&first, false, &mut random);
    let id = Some(first.id);
    let second = begin_life(config(16, "lru"), store, device, id, &mut random).await;
    assert!(second.found.clone().unwrap() >= 140, "{:?}", second.found);
    // After some of these no commit is made.
    second.device.fail_reads.store(true, Ordering::SeqCst);
    for block in 0..200 {
        read(&second.volume, block * BLOCK, BLOCK).await.unwrap();
    }
    let began = Instant::now();
    for block in 0..200 {
        write(&second.volume, block * BLOCK, vec![2; BLOCK as usize]).await.unwrap();
    }
    println!("changes waited for {:?}", began.elapsed());
    let (store, device) = cut(&second, false, &mut random);
    let third = begin_life(config(16, "lru"), store, device, id, &mut random).await;
    check(&third, "after the stamp").await;
    assert_eq!(third.found, Err("the store was changed since".to_owned()));
}

/// The system's clock was wrong: what somebody else changes after it was set right is noticed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_is_set_back_lets_no_foreign_change_pass() {
    let mut random = Random::new(seed());
    let (store, device) = new_stores(&mut random);
    let ahead_s = Arc::new(AtomicU64::new(300));
    let clock = {
        let ahead_s = Arc::clone(&ahead_s);
        Arc::new(move || {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
            (now + Duration::from_secs(ahead_s.load(Ordering::SeqCst))).as_nanos() as u64
        })
    };
    let medium = FlashMedium::with_clock(Arc::new(Shared(Arc::clone(&device))), clock);
    let stores = (store, device);
    let life = begin_life_on(medium, config(16, "lru"), stores, None, &mut random).await;
    put_on_flash(&life).await;
    write(&life.volume, 0, vec![1; BLOCK as usize]).await.unwrap();
    ahead_s.store(0, Ordering::SeqCst);
    // A stamp is made within half a second, and over after two more.
    tokio::time::sleep(Duration::from_secs(4)).await;
    let (store, device) = cut(&life, false, &mut random);
    store.put(0, &[9; BLOCK as usize], true);
    let next = begin_life(config(16, "lru"), store, device, Some(life.id), &mut random).await;
    assert_eq!(next.found, Err("the store was changed since".to_owned()));
}

/// Somebody changes the store and has the cache dropped, as the documents say: what lay on flash
/// does not come back with a restart, however soon that is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_dropped_stays_away() {
    let mut random = Random::new(seed());
    for (shards, ends, writes) in [(1, true, false), (2, false, true), (2, false, false)] {
        let what = format!("{shards} shards, ends: {ends}, writes: {writes}");
        let config = VolumeConfig { shards, ..config(16, "lru") };
        let life = first_life(config.clone(), &mut random).await;
        put_on_flash(&life).await;
        life.store.put(0, &vec![7; (BLOCKS * BLOCK) as usize], true);
        let dropping = life.volume.drop_cached();
        if writes {
            let other = write(&life.volume, 0, vec![8; BLOCK as usize]);
            let (dropped, written) = tokio::join!(dropping, other);
            assert!(dropped.is_ok() && written.is_ok(), "{what}");
        } else {
            dropping.await.unwrap();
        }
        if ends {
            life.volume.close().await.unwrap();
        }
        let (store, device) = cut(&life, false, &mut random);
        let next = begin_life(config, store, device, Some(life.id), &mut random).await;
        check(&next, &what).await;
    }
}

/// Before it is known what lies on flash, reads are answered, and nothing changes the store.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_changes_wait_until_it_is_known_what_lies_on_flash() {
    let mut random = Random::new(seed());
    let first = first_life(config(16, "lru"), &mut random).await;
    put_on_flash(&first).await;
    first.volume.close().await.unwrap();
    let (store, device) = cut(&first, false, &mut random);
    let medium = FlashMedium::new(Arc::new(Shared(Arc::clone(&device))));
    let (id, stores) = (Some(first.id), (store, device));
    let (life, part) = open_life(medium, config(16, "lru"), stores, id, &mut random).await;
    assert!(life.found.clone().unwrap() >= 150, "{:?}", life.found);
    let before = life.store.live();
    let mut changes = vec![
        begin(&life.volume, write_of(vec![1; BLOCK as usize]), 0, BLOCK),
        begin(&life.volume, ZERO, 10 * BLOCK, 30 * BLOCK),
        begin(&life.volume, Command::Trim, 50 * BLOCK, BLOCK),
    ];
    for block in 100..BLOCKS {
        let data = read(&life.volume, block * BLOCK, BLOCK).await.unwrap();
        assert!(data == before[(block * BLOCK) as usize..][..BLOCK as usize], "block {block}");
    }
    let dropping = tokio::spawn({
        let volume = Arc::clone(&life.volume);
        async move { volume.drop_cached().await }
    });
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(changes.iter_mut().all(|change| change.try_recv().is_err()) && !dropping.is_finished());
    assert!(life.store.live() == before);
    life.volume.flash.take(Some(part));
    for change in changes {
        change.await.unwrap().unwrap();
    }
    dropping.await.unwrap().unwrap();
    assert_eq!(check(&life, "after the drop").await, 0);
    // A volume that gets none after all goes on, too.
    let medium = FlashMedium::new(Arc::new(Shared(Arc::clone(&life.device))));
    let stores = cut(&life, false, &mut random);
    let (last, _) = open_life(medium, config(16, "lru"), stores, None, &mut random).await;
    let mut change = begin(&last.volume, write_of(vec![2; BLOCK as usize]), 0, BLOCK);
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(change.try_recv().is_err());
    last.volume.flash.take(None);
    change.await.unwrap().unwrap();
    last.volume.close().await.unwrap();
}

/// A client was told that its write failed, since that waited too long; it reaches the store when
/// it is known what lies on flash, and ends the copy.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_change_ends_its_copy() {
    let mut random = Random::new(seed());
    let first = first_life(config(16, "lru"), &mut random).await;
    put_on_flash(&first).await;
    first.volume.close().await.unwrap();
    let stores = cut(&first, false, &mut random);
    let medium = FlashMedium::new(Arc::new(Shared(Arc::clone(&stores.1))));
    let limited =
        VolumeConfig { store_timeout: Some(Duration::from_millis(100)), ..config(16, "lru") };
    let (life, part) = open_life(medium, limited, stores, Some(first.id), &mut random).await;
    let late = |block| begin(&life.volume, write_of(vec![7; BLOCK as usize]), block * BLOCK, BLOCK);
    for (block, answer) in (0..200).map(late).collect::<Vec<_>>().into_iter().enumerate() {
        assert!(answer.await.unwrap().is_err(), "block {block}");
    }
    life.volume.flash.take(Some(part));
    let deadline = Instant::now() + Duration::from_secs(20);
    while life.store.live()[..(200 * BLOCK) as usize].iter().any(|&byte| byte != 7) {
        assert!(Instant::now() < deadline, "the writes do not reach the store");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    check(&life, "after the writes").await;
}

/// An end waits for flash longer than for the store, so that what is dirty is not lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_end_waits_until_it_is_known_what_lies_on_flash() {
    let mut random = Random::new(seed());
    for way in [Write::Through, Write::Back] {
        let stores = new_stores(&mut random);
        let medium = FlashMedium::new(Arc::new(Shared(Arc::clone(&stores.1))));
        let patience = Duration::from_millis(200);
        let brief = VolumeConfig { write: way, close_patience: patience, ..config(16, "lru") };
        let (life, part) = open_life(medium, brief, stores, None, &mut random).await;
        let written = begin(&life.volume, write_of(vec![5; BLOCK as usize]), 0, BLOCK);
        let ending = tokio::spawn({
            let volume = Arc::clone(&life.volume);
            async move { volume.close().await }
        });
        tokio::time::sleep(5 * patience).await;
        assert!(!ending.is_finished(), "{way:?}");
        life.volume.flash.take(Some(part));
        ending.await.unwrap().unwrap();
        written.await.unwrap().unwrap();
        assert!(life.store.live()[..BLOCK as usize] == [5; BLOCK as usize], "{way:?}");
    }
}

/// However long a commit takes, what waits for it goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_device_holds_no_write_up_for_ever() {
    let mut random = Random::new(seed());
    let life = first_life(config(16, "lru"), &mut random).await;
    life.device.flush_ms.store(1300, Ordering::SeqCst);
    let began = Instant::now();
    for block in 0..3 {
        write(&life.volume, block * BLOCK, vec![1; BLOCK as usize]).await.unwrap();
    }
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    // Even slower, and blocks come to flash all the time, which are synced there first.
    life.device.flush_ms.store(5800, Ordering::SeqCst);
    let (volume, began) = (Arc::clone(&life.volume), Instant::now());
    let reading = tokio::spawn(async move {
        for block in (3..BLOCKS).cycle() {
            read(&volume, block * BLOCK, BLOCK).await.unwrap();
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    // Until a stamp of before is over.
    tokio::time::sleep(Duration::from_secs(8)).await;
    write(&life.volume, 0, vec![2; BLOCK as usize]).await.unwrap();
    println!("a write ended after {:?}", began.elapsed());
    assert!(began.elapsed() < Duration::from_secs(45), "{:?}", began.elapsed());
    reading.abort();
    life.device.flush_ms.store(0, Ordering::SeqCst);
    life.volume.close().await.unwrap();
}

/// Slots that are taken over wait for each other, so that the journal writes little beside the
/// copies: two pages for at least 64 of them, and two at each pause.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_commit_ends_many_copies() {
    let mut random = Random::new(seed());
    let life = first_life(config(16, "lru"), &mut random).await;
    put_on_flash(&life).await;
    let counts = || life.volume.stats().flash.unwrap();
    let (before, began) = (counts(), Instant::now());
    for block in (0..BLOCKS).cycle() {
        read(&life.volume, block * BLOCK, BLOCK).await.unwrap();
        if began.elapsed() > Duration::from_secs(3) {
            break;
        }
    }
    let (after, pauses) = (counts(), began.elapsed().as_millis() as u64 / 500 + 1);
    let pages = after.journal_pages - before.journal_pages;
    let written = after.written - before.written;
    let what = format!("{pages} pages for {written} copies in {pauses} pauses");
    assert!(written > 1000, "{what}");
    assert!(pages <= 2 * pauses + written / 32, "{what}");
    println!("{what}");
    life.volume.close().await.unwrap();
}
