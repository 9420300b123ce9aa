//! Four sessions with random overlapping operations of all kinds against a model, in each write
//! mode, with several policies, block sizes, alignments and shards; and the same on a store that
//! fails now and then. The volume is restarted warm twice, so that many blocks are resident whose
//! data has not been read again.
//!
//! Requests are submitted one at a time, so their order of arrival is known, but many are under
//! way together. Each block's operations take effect in that order; so every read must return
//! what the model held when the read arrived. A failed change leaves the old or the new bytes.
//!
//! Below clients that cooperate, the sessions also say what they evicted, true or not, and send
//! down what they once read, however old that is by now, whether or not they have changed the block
//! themselves since, and while they do: none of that may ever be seen. They also hand over what
//! they will write later, as a program does whose kernel delays its writes, and then write that,
//! or something else, or nothing. In some runs all sessions are one client, as connections without
//! an id are.
//!
//! What the volume in its turn says to a server below is looked at as well: a block that leaves
//! with its data must leave with what the store has at that moment.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use crate::common::{
    READ, Random, TestStore, Watcher, ZERO, ask, config, flush, open, read, say, seed,
};
use tokio::sync::oneshot;
use undercroft_hints::{BlockRun, EvictFlags, Hint};
use undercroft_nbd::Command;
use undercroft_server::{Answer, Caller, Outcome, SavedContent, Volume, VolumeConfig, Write};

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
    /// Whether what clients evict is taken to be known.
    tells: bool,
    /// Whether all sessions are one client.
    is_one_client: bool,
    /// Held while a request is submitted: gives the order of arrival.
    order: Mutex<u64>,
    log: Mutex<Vec<(u64, Entry)>>,
}

impl World {
    fn block(&self) -> u64 {
        self.volume.config().block_bytes.into()
    }

    fn receive_hints(&self, caller: Caller, hints: Vec<Hint>) {
        let _order = self.order.lock().unwrap();
        say(&self.volume, caller, hints);
    }
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
        45..=84 => written(random, stamp, length),
        85..=89 => (Kind::Zero, ZERO),
        90..=92 => (Kind::Trim, Command::Trim),
        93..=95 => (Kind::Other, Command::Cache),
        96 => (Kind::Other, Command::BlockStatus { one_extent: false }),
        _ => (Kind::Other, Command::Flush),
    }
}

/// A write whose data arrive in two pieces.
fn written(random: &mut Random, stamp: u64, length: u64) -> (Kind, Command) {
    let bytes = bytes::Bytes::from(stamped(stamp, length));
    let cut = random.below(length + 1) as usize;
    let data = vec![bytes.slice(..cut), bytes.slice(cut..)];
    (Kind::Write(stamp), Command::Write { data })
}

/// Most contents that a client remembers to lie with.
const ONCE_MAX: usize = 64;

/// What a client with a cache has of the volume.
#[derive(Default)]
struct Held {
    /// Whole blocks that it read, and asked for in no other way since.
    blocks: HashMap<u64, Vec<u8>>,
    /// The number of its last request for each block.
    asked: HashMap<u64, u64>,
    /// Some of all that it ever read: what a client that lies sends.
    once: Vec<(u64, Vec<u8>)>,
    /// Writes to come, whose data it handed over: offset, length and stamp.
    to_come: Vec<(u64, u64, u64)>,
}

impl Held {
    /// The client is about to ask for a range, or to change it. Until that is answered it has
    /// none of it to send down.
    fn ask(&mut self, number: u64, offset: u64, length: u64, block: u64) {
        for one in offset / block..=(offset + length - 1) / block {
            self.blocks.remove(&one);
            self.asked.insert(one, number);
        }
    }

    /// A read of the client ended.
    fn read(&mut self, number: u64, offset: u64, data: &[u8], size: u64, block: u64) {
        let end = offset + data.len() as u64;
        for one in offset.div_ceil(block)..end.div_ceil(block) {
            let (from, to) = (one * block, (one * block + block).min(size));
            if to <= end && self.asked.get(&one) == Some(&number) {
                let bytes = &data[(from - offset) as usize..(to - offset) as usize];
                self.blocks.insert(one, bytes.to_vec());
                if self.once.len() == ONCE_MAX {
                    self.once.swap_remove(number as usize % ONCE_MAX);
                }
                self.once.push((one, bytes.to_vec()));
            }
        }
    }

    /// Hands over the whole blocks of a write that the client has still to make.
    fn evict_unwritten(
        &mut self,
        random: &mut Random,
        write: (u64, u64),
        world: &World,
    ) -> Vec<Hint> {
        let (block, (offset, length)) = (world.block(), write);
        // No other stamp has this bit. A store that fails may have written half a word: the upper
        // half is always zero.
        let stamp = random.below(1 << 31) | 1 << 31;
        self.to_come.push((offset, length, stamp));
        let end = offset + length;
        let first = offset.div_ceil(block);
        let whole = (first..).take_while(|one| (one * block + block).min(world.size) <= end);
        let whole = whole.take_while(|one| one * block < world.size);
        let hint = |one| {
            let data = stamped(stamp, block.min(world.size - one * block));
            Hint::Demote { block: one, rides: false, data: data.into() }
        };
        whole.map(hint).collect()
    }

    /// Something that the client says, mostly true.
    fn hint(&mut self, random: &mut Random, blocks: u64) -> Hint {
        let any = random.below(blocks + 3);
        let run = |first, count| vec![BlockRun::new(first, count).unwrap()];
        let age_us = random.below(3000) as u32;
        let flags = EvictFlags { late: random.one_in(9), ..EvictFlags::default() };
        let held = self.blocks.keys().next().copied();
        if !self.once.is_empty() && random.one_in(3) {
            let (block, old) = &self.once[random.below(self.once.len() as u64) as usize];
            let mut data = old.clone();
            if random.one_in(8) {
                let at = random.below(data.len() as u64) as usize;
                data[at] ^= 1;
            }
            return Hint::Demote { block: *block, rides: false, data: data.into() };
        }
        match (random.below(10), held) {
            (0..=4, Some(block)) => {
                let data = self.blocks.remove(&block).unwrap().into();
                Hint::Demote { block, rides: false, data }
            }
            (5..=6, Some(block)) => {
                self.blocks.remove(&block);
                Hint::Evict { age_us: 0, sequence: 0, flags, runs: run(block, 1) }
            }
            (7, _) => Hint::Promote(run(any, 2)),
            (8, _) => Hint::Hold(run(any, 2)),
            _ => Hint::Evict { age_us, sequence: 0, flags, runs: run(any, 3) },
        }
    }
}

async fn session(world: Arc<World>, client: u8, seed: u64, requests: u32, depth: usize) {
    let mut random = Random::new(seed);
    let block = world.block();
    let client = if world.is_one_client { 0 } else { client };
    let caller = Caller { client, tells: world.tells };
    let mut held = Held::default();
    let mut waiting: Vec<(u64, Kind, u64, u64, oneshot::Receiver<Outcome>)> = Vec::new();
    for _ in 0..requests {
        if random.one_in(2) {
            world.receive_hints(caller, vec![held.hint(&mut random, world.size.div_ceil(block))]);
        }
        if random.one_in(8) {
            let write = range(&mut random, &world, block);
            let hints = held.evict_unwritten(&mut random, write, &world);
            world.receive_hints(caller, hints);
        }
        let to_come = if random.one_in(3) { held.to_come.pop() } else { None };
        // Some of these writes bring other data than those handed over.
        let to_come = to_come.map(|(offset, length, stamp)| {
            (offset, length, if random.one_in(4) { stamp ^ 1 } else { stamp })
        });
        let (offset, length) = match to_come {
            Some((offset, length, _)) => (offset, length),
            None => range(&mut random, &world, block),
        };
        let durable = random.one_in(8);
        let entry = {
            let mut order = world.order.lock().unwrap();
            *order += 1;
            let (kind, command) = match to_come {
                Some((.., stamp)) => written(&mut random, stamp, length),
                None => draw(&mut random, *order, length),
            };
            if kind != Kind::Other {
                held.ask(*order, offset, length, block);
            }
            let (ask, answer) = ask(command, offset, length, durable);
            world.volume.serve(&mut vec![ask], caller);
            (*order, kind, offset, length, answer)
        };
        waiting.push(entry);
        if waiting.len() >= depth {
            let at = random.below(waiting.len() as u64) as usize;
            finish(&world, waiting.swap_remove(at), &mut held).await;
        }
    }
    for one in waiting {
        finish(&world, one, &mut held).await;
    }
}

async fn finish(
    world: &World,
    (number, kind, offset, length, answer): (u64, Kind, u64, u64, oneshot::Receiver<Outcome>),
    held: &mut Held,
) {
    let outcome = answer.await.expect("every request is answered");
    if let Ok(Answer::Data(pieces)) = &outcome {
        let block = world.volume.config().block_bytes.into();
        held.read(number, offset, &pieces.concat(), world.size, block);
    }
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
        tells: seed % 4 != 0,
        is_one_client: seed % 3 == 0,
        order: Mutex::new(first),
        log: Mutex::default(),
    });
    let sessions: Vec<_> = (0..4)
        .map(|i| (i as u8, seed ^ (i << 32)))
        .map(|(i, seed)| tokio::spawn(session(Arc::clone(&world), i, seed, 100, 12)))
        .collect();
    let changes = tokio::spawn(changes(Arc::clone(volume), seed, what.to_owned()));
    for session in sessions {
        let limit = std::time::Duration::from_secs(60);
        let ended = tokio::time::timeout(limit, session).await;
        ended.unwrap_or_else(|_| panic!("{what}: requests hang")).unwrap();
    }
    if changes.await.unwrap() {
        volume.change(volume.config()).await.unwrap_or_else(|e| panic!("{what}: back: {e}"));
    }
    volume.validate().unwrap_or_else(|e| panic!("{what}: {e}"));
    log.append(&mut world.log.lock().unwrap());
    *world.order.lock().unwrap()
}

/// Now and then changes the size, the policy and the placement of the cache; of some volumes never.
/// Returns whether it did.
async fn changes(volume: Arc<Volume>, seed: u64, what: String) -> bool {
    let mut random = Random::new(seed);
    let opened = volume.config();
    if random.one_in(2) || opened.cache_blocks == 0 {
        return false;
    }
    let is_plain = undercroft_policy::Awareness::of(&opened.policy).is_none();
    for _ in 0..12 {
        tokio::time::sleep(std::time::Duration::from_micros(random.below(4000))).await;
        let mut next = opened.clone();
        let most = u64::from(2 * opened.cache_blocks);
        next.cache_blocks = opened.shards + random.below(most) as u32;
        if is_plain && random.one_in(2) {
            let policies = ["lru", "mq", "arc", "sieve", "lirs"];
            next.policy = policies[random.below(5) as usize].parse().unwrap();
        }
        if is_plain && random.one_in(2) {
            let placements = ["access", "eviction,on-hit=move", "auto", "gl"];
            next.placement = placements[random.below(4) as usize].parse().unwrap();
        }
        // Of some pairs the one does not fit the other.
        let changed = volume.change(&next).await;
        let is_refused = |why: &String| why.contains("placement");
        assert!(changed.as_ref().err().is_none_or(is_refused), "{what}: {changed:?}");
        volume.validate().unwrap_or_else(|e| panic!("{what}: changed: {e}"));
    }
    true
}

/// Three lives of a volume. Each begins with what the cache knew at the end of the one before, or
/// some time before that; the data is read again meanwhile, or not. Returns how many blocks were
/// placed with the data of a write that had been handed over before.
async fn run(mut config: VolumeConfig, alignment: u32, fail_one_in: u64, seed: u64) -> u64 {
    let block = u64::from(config.block_bytes);
    // The last block is not whole.
    let size = 40 * block + 1536;
    let what = format!(
        "{} {} {:?} of {} x {block}, alignment {alignment}, {} shards, failing 1 in {fail_one_in}",
        config.policy, config.placement, config.write, config.cache_blocks, config.shards
    );
    let mut random = Random::new(seed);
    let store = TestStore::new(size as usize, alignment, seed);
    store.jitter.store(true, Ordering::SeqCst);
    store.takes_many.store(seed % 2 == 0, Ordering::SeqCst);
    let watcher = Watcher::of(&store, block);
    config.eviction_sink = Some(Arc::clone(&watcher) as _);
    let mut volume = open(config.clone(), &store);
    let (mut log, mut number, mut saved, mut awaited) = (Vec::new(), 0, None, 0);
    for life in 0..3 {
        store.fail_one_in.store(fail_one_in, Ordering::SeqCst);
        if let Some(saved) = saved.take() {
            let restored = volume.restore(&saved).unwrap();
            assert_eq!(restored.starts_anew(), None, "{what}");
            volume.validate().unwrap_or_else(|e| panic!("{what}: restored: {e}"));
            if random.one_in(2) {
                let volume = Arc::clone(&volume);
                tokio::spawn(async move { restored.warm_up(&volume).await });
            }
        }
        number = sessions(&volume, number, &mut log, random.next_u64(), &what).await;
        awaited += volume.stats().cooperation.map_or(0, |counts| counts.demotions_written);
        if life == 2 {
            break;
        }
        if random.one_in(2) {
            saved = Some(SavedContent::of(&volume).unwrap());
            number = sessions(&volume, number, &mut log, random.next_u64(), &what).await;
        }
        // From here on the store works: the next try does, too.
        store.fail_one_in.store(0, Ordering::SeqCst);
        flush(&volume).await.unwrap();
        saved = saved.or_else(|| Some(SavedContent::of(&volume).unwrap()));
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
    let stats = volume.stats();
    assert_eq!(stats.dirty, 0, "{what}");
    let wrong = watcher.wrong.lock().unwrap();
    assert!(wrong.is_empty(), "{what}: blocks {wrong:?} left with what the store does not have");
    let told = stats.tells.unwrap().evictions;
    assert!(told > 0 || stats.evictions == 0, "{what}: {} left unsaid", stats.evictions);
    assert!(told >= watcher.handed_over.load(Ordering::SeqCst), "{what}: {watcher:?}");
    awaited
}

async fn all(fail_one_in: u64) {
    let mut random = Random::new(seed());
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
                    straight(config, random.next_u64()).await;
                } else {
                    run(config, alignment, fail_one_in, random.next_u64()).await;
                }
            }
        }
    }
}

/// As `all`, below clients that cooperate.
async fn all_cooperating(fail_one_in: u64) {
    let mut random = Random::new(seed());
    for write in [Write::Through, Write::Around, Write::Back] {
        let mut awaited = 0;
        for placement in [
            "eviction,on-hit=move",
            "eviction,on-hit=keep,staging=4",
            "eviction,on-hit=adaptive,threshold=2,staging=auto",
            "eviction,on-hit=move,threshold=1x,staging=8",
            "auto",
            "gl",
        ] {
            let aware = placement.contains("on-hit=keep").then_some(("mq,ca", 20, 4, 2));
            let policies =
                [("lru", 16, 8, 1), ("mq", 20, 2, 1), ("2q", 24, 8, 2), ("fbr", 12, 40, 1)];
            for (policy, cache, spares, shards) in policies.into_iter().chain(aware) {
                let mut config = config(cache, policy);
                config.placement = placement.parse().unwrap();
                (config.write, config.spare_frames, config.shards) = (write, spares, shards);
                config.reload_at_once = random.one_in(2);
                config.estimate = random.one_in(3);
                config.dirty_age = std::time::Duration::from_millis(20);
                awaited += run(config, 512, fail_one_in, random.next_u64()).await;
            }
        }
        println!("{write:?}: {awaited} blocks were placed with a write that was foreseen");
        assert!(awaited > 0, "{write:?}");
    }
}

/// Without a cache, requests under way together may take effect in any order: depth 1 here.
async fn straight(config: VolumeConfig, seed: u64) {
    let size = 64 * 1024;
    let store = TestStore::new(size as usize, 1, seed);
    let volume = open(config, &store);
    let (order, log) = (Mutex::new(0), Mutex::default());
    let world = Arc::new(World { volume, size, tells: false, is_one_client: true, order, log });
    session(Arc::clone(&world), 0, seed, 200, 1).await;
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

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_clients_say_never_changes_what_is_read() {
    all_cooperating(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_clients_say_spoils_nothing_on_a_failing_store() {
    all_cooperating(12).await;
}
