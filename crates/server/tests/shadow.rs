//! Four sessions with random overlapping operations of all kinds against a model, in each write
//! mode, with several policies, block sizes, alignments and shards; and the same on a store that
//! fails now and then. The volume is restarted warm twice, so that many blocks are resident whose
//! data has not been read again.
//!
//! Requests are submitted one at a time, so their order of arrival is known, but many are under
//! way together. Each block's operations take effect in that order; so every read must return
//! what the model held when the read arrived. A failed change leaves the old or the new bytes.

mod common;

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use common::{READ, Random, TestStore, ask, config, flush, open, read, seed};
use tokio::sync::oneshot;
use undercroft_nbd::Command;
use undercroft_server::{Answer, Outcome, Volume, VolumeConfig, Write};

/// The unit in which the model compares, in bytes.
const WORD: u64 = 8;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Read,
    Write(u64),
    Zero,
    Trim,
    Other,
}

/// One request, in the order of arrival.
struct Entry {
    kind: Kind,
    offset: u64,
    length: u64,
    outcome: Outcome,
}

/// What a word may hold: the last change that worked, and the failed ones after it.
type Word = Vec<u64>;

struct World {
    volume: Arc<Volume>,
    size: u64,
    /// Held while a request is submitted: gives the order of arrival.
    order: Mutex<u64>,
    log: Mutex<Vec<(u64, Entry)>>,
}

fn stamped(stamp: u64, length: u64) -> Vec<u8> {
    stamp.to_le_bytes().repeat((length / WORD) as usize)
}

/// A random range, mostly small and mostly near the start so that requests meet.
fn range(random: &mut Random, world: &World, block: u64) -> (u64, u64) {
    let words = world.size / WORD;
    let whole_blocks = random.one_in(2);
    let unit = if whole_blocks { block / WORD } else { 1 };
    let span = if random.one_in(2) { words } else { words / 4 };
    let first = random.below(span) / unit * unit;
    let most = match random.below(40) {
        0 => words,
        1..=9 => 8 * block / WORD,
        _ => 2 * block / WORD,
    };
    let count = (1 + random.below(most)).next_multiple_of(unit).min(words - first);
    (first * WORD, count * WORD)
}

fn draw(random: &mut Random, stamp: u64, length: u64) -> (Kind, Command) {
    match random.below(100) {
        0..=44 => (Kind::Read, READ),
        45..=84 => {
            let bytes = bytes::Bytes::from(stamped(stamp, length));
            let cut = random.below(length + 1) as usize;
            let data = vec![bytes.slice(..cut), bytes.slice(cut..)];
            (Kind::Write(stamp), Command::Write { data })
        }
        85..=89 => (Kind::Zero, Command::WriteZeroes { keep_allocated: false, fast: false }),
        90..=92 => (Kind::Trim, Command::Trim),
        93..=95 => (Kind::Other, Command::Cache),
        96 => (Kind::Other, Command::BlockStatus { one_extent: false }),
        _ => (Kind::Other, Command::Flush),
    }
}

async fn session(world: Arc<World>, seed: u64, requests: u32, depth: usize) {
    let mut random = Random(seed);
    let block = u64::from(world.volume.config().block_bytes);
    let mut waiting: Vec<(u64, Kind, u64, u64, oneshot::Receiver<Outcome>)> = Vec::new();
    for _ in 0..requests {
        let (offset, length) = range(&mut random, &world, block);
        let durable = random.one_in(8);
        let entry = {
            let mut order = world.order.lock().unwrap();
            *order += 1;
            let (kind, command) = draw(&mut random, *order, length);
            let (ask, answer) = ask(command, offset, length, durable);
            world.volume.serve(&mut vec![ask]);
            (*order, kind, offset, length, answer)
        };
        waiting.push(entry);
        if waiting.len() >= depth {
            let at = random.below(waiting.len() as u64) as usize;
            finish(&world, waiting.swap_remove(at)).await;
        }
    }
    for one in waiting {
        finish(&world, one).await;
    }
}

async fn finish(
    world: &World,
    (number, kind, offset, length, answer): (u64, Kind, u64, u64, oneshot::Receiver<Outcome>),
) {
    let outcome = answer.await.expect("every request is answered");
    world.log.lock().unwrap().push((number, Entry { kind, offset, length, outcome }));
}

/// Replays the log on the model; checks every read; the words at the end.
fn check(log: &[(u64, Entry)], size: u64, block: u64, what: &str) -> Vec<Word> {
    let mut words: Vec<Word> = vec![vec![0]; (size / WORD) as usize];
    for (number, Entry { kind, offset, length, outcome }) in log {
        let covered = (offset / WORD) as usize..((offset + length) / WORD) as usize;
        let value = match kind {
            Kind::Write(stamp) => *stamp,
            Kind::Zero | Kind::Trim => 0,
            Kind::Read => {
                if let Ok(Answer::Data(pieces)) = outcome {
                    let data = pieces.concat();
                    assert_eq!(data.len() as u64, *length);
                    for (at, found) in covered.zip(data.chunks(WORD as usize)) {
                        let found = u64::from_le_bytes(found.try_into().unwrap());
                        assert!(
                            words[at].contains(&found),
                            "{what}: read {number} at byte {}: {found}, not {:?}",
                            at as u64 * WORD,
                            words[at]
                        );
                    }
                }
                continue;
            }
            Kind::Other => continue,
        };
        for at in covered {
            // TRIM is for whole blocks; the last one is whole up to the end of the volume.
            let start = at as u64 * WORD / block * block;
            let whole = start >= *offset && (start + block).min(size) <= offset + length;
            if *kind == Kind::Trim && !whole {
                continue;
            }
            if outcome.is_ok() {
                words[at].clear();
            }
            words[at].push(value);
        }
    }
    words
}

/// Lets four sessions loose on a volume: the number of the last request.
async fn sessions(
    volume: &Arc<Volume>,
    first: u64,
    log: &mut Vec<(u64, Entry)>,
    seed: u64,
    what: &str,
) -> u64 {
    let world = Arc::new(World {
        volume: Arc::clone(volume),
        size: volume.size(),
        order: Mutex::new(first),
        log: Mutex::default(),
    });
    let sessions: Vec<_> = (0..4)
        .map(|i| tokio::spawn(session(Arc::clone(&world), seed ^ (i << 32), 100, 12)))
        .collect();
    for session in sessions {
        let limit = std::time::Duration::from_secs(60);
        let ended = tokio::time::timeout(limit, session).await;
        ended.unwrap_or_else(|_| panic!("{what}: requests hang")).unwrap();
    }
    volume.validate().unwrap_or_else(|e| panic!("{what}: {e}"));
    log.append(&mut world.log.lock().unwrap());
    *world.order.lock().unwrap()
}

/// Three lives of a volume. Each begins with what the cache knew at the end of the one before, or
/// some time before that; the data is read again meanwhile, or not.
async fn run(config: VolumeConfig, alignment: u32, fail_one_in: u64, seed: u64) {
    let block = u64::from(config.block_bytes);
    // The last block is not whole.
    let size = 40 * block + 1536;
    let what = format!(
        "{} {:?} of {} x {block}, alignment {alignment}, {} shards, failing 1 in {fail_one_in}",
        config.policy, config.write, config.cache_blocks, config.shards
    );
    let mut random = Random(seed);
    let store = TestStore::new(size as usize, alignment, seed);
    store.jitter.store(true, Ordering::SeqCst);
    let mut volume = open(config.clone(), &store);
    let (mut log, mut number, mut saved) = (Vec::new(), 0, None);
    for life in 0..3 {
        store.fail_one_in.store(fail_one_in, Ordering::SeqCst);
        if let Some(saved) = saved.take() {
            let restored = volume.restore(&saved).unwrap();
            assert_eq!(restored.starts_anew(), None, "{what}");
            volume.validate().unwrap_or_else(|e| panic!("{what}: restored: {e}"));
            if random.one_in(2) {
                let volume = Arc::clone(&volume);
                tokio::spawn(async move { volume.warm_up(restored).await });
            }
        }
        number = sessions(&volume, number, &mut log, random.next(), &what).await;
        if life == 2 {
            break;
        }
        if random.one_in(2) {
            saved = Some(volume.content().unwrap());
            number = sessions(&volume, number, &mut log, random.next(), &what).await;
        }
        // From here on the store works: the next try does, too.
        store.fail_one_in.store(0, Ordering::SeqCst);
        flush(&volume).await.unwrap();
        saved = saved.or_else(|| Some(volume.content().unwrap()));
        volume.close().await.unwrap();
        volume = open(config.clone(), &store);
    }
    log.sort_by_key(|(number, _)| *number);
    let failures = log.iter().filter(|(_, entry)| entry.outcome.is_err()).count();
    assert!(fail_one_in > 0 || failures == 0, "{what}: {failures} failures");
    let words = check(&log, size, block, &what);
    store.fail_one_in.store(0, Ordering::SeqCst);
    let last = read(&volume, 0, size).await.unwrap();
    flush(&volume).await.unwrap();
    volume.close().await.unwrap();
    let live = store.live();
    for (at, word) in words.iter().enumerate() {
        let bytes = at * WORD as usize..(at + 1) * WORD as usize;
        let found = u64::from_le_bytes(last[bytes.clone()].try_into().unwrap());
        assert!(word.contains(&found), "{what}: at the end, byte {}", bytes.start);
        assert_eq!(last[bytes.clone()], live[bytes.clone()], "{what}: store and cache differ");
    }
    assert_eq!(volume.stats().dirty, 0, "{what}");
}

async fn all(fail_one_in: u64) {
    let mut random = Random(seed());
    for (write, allocate) in [
        (Write::Through, true),
        (Write::Through, false),
        (Write::Around, true),
        (Write::Back, true),
    ] {
        for policy in ["lru", "mq", "w-tinylfu", "arc", "lirs"] {
            for (cache, spares, block, alignment, shards) in [
                (16, 8, 4096, 1, 1),
                (30, 2, 8192, 512, 1),
                (5, 40, 4096, 512, 1),
                (24, 8, 16384, 512, 2),
                (0, 0, 4096, 1, 1),
            ] {
                if cache == 0 && (policy != "lru" || write != Write::Through) {
                    continue;
                }
                let mut config = config(cache, policy);
                (config.write, config.write_allocate) = (write, allocate);
                (config.block_bytes, config.shards) = (block, shards);
                config.spare_frames = spares;
                config.dirty_age = std::time::Duration::from_millis(20);
                if cache == 0 {
                    straight(config, random.next()).await;
                } else {
                    run(config, alignment, fail_one_in, random.next()).await;
                }
            }
        }
    }
}

/// Without a cache, requests under way together may take effect in any order: depth 1 here.
async fn straight(config: VolumeConfig, seed: u64) {
    let size = 64 * 1024;
    let store = TestStore::new(size as usize, 1, seed);
    let volume = open(config, &store);
    let (order, log) = (Mutex::new(0), Mutex::default());
    let world = Arc::new(World { volume, size, order, log });
    session(Arc::clone(&world), seed, 200, 1).await;
    let log = std::mem::take(&mut *world.log.lock().unwrap());
    // Everything is one "block": the store takes each byte.
    let words = check(&log, size, WORD, "no cache");
    let live = store.live();
    for (at, word) in words.iter().enumerate() {
        assert_eq!(live[at * 8..at * 8 + 8], word[0].to_le_bytes(), "no cache: byte {}", at * 8);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn reads_return_what_was_written() {
    all(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_failing_store_spoils_nothing_else() {
    all(12).await;
}
