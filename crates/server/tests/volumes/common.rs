//! What the tests of the server share: a store that can be told to misbehave, random numbers with
//! a seed, and short ways to ask a volume.
// Each test file uses its own part.
#![allow(unreachable_pub)]

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};
use undercroft_frames::Memory;
use undercroft_hints::{BlockRun, EvictFlags, Hint};
use undercroft_nbd::{Command, Reply};
use undercroft_policy::Spec;
use undercroft_server::{
    Answer, Caller, EvictionSink, Failed, Outcome, ReceivedHints, TellStats, Volume, VolumeConfig,
    Write,
};
use undercroft_store::{
    Answer as StoreAnswer, Buffer, Extent, Facts, ManyWrite, ManyWritten, Store, Version, Zeroing,
};

pub use undercroft_random::SplitMix64 as Random;
pub use undercroft_random::testing::seed;

/// What the store was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    Read(u64, u64),
    Write(u64, u64, bool),
    Zero(u64, u64),
    Trim(u64, u64),
    Flush,
}

/// A store in memory with two images: what is there, and what would be after a power cut.
pub struct TestStore {
    pub inner: Mutex<Images>,
    pub alignment: u32,
    /// One of so many requests fails, 0: none.
    pub fail_one_in: AtomicU64,
    /// Everything of this kind fails.
    pub fail_reads: AtomicBool,
    /// Reads with this byte fail, as with a bad sector; none at first.
    pub bad_byte: AtomicU64,
    pub fail_writes: AtomicBool,
    /// Reads say that they worked and give back fewer buffers, filled in part.
    pub keep_buffers: AtomicBool,
    /// Requests wait at random.
    pub jitter: AtomicBool,
    /// Writes are taken many at a time; to be set before a volume is opened.
    pub takes_many: AtomicBool,
    pub random: Mutex<Random>,
    /// While set, requests of this kind stop before they take effect.
    pub hold_reads: AtomicBool,
    pub hold_writes: AtomicBool,
    pub released: Notify,
    /// Milliseconds that a flush takes.
    pub flush_ms: AtomicU64,
    /// When it was changed last, in nanoseconds since 1970; 0: it has no version.
    pub changed_ns: AtomicU64,
    /// It was given up.
    pub is_closed: AtomicBool,
    kept: Mutex<Vec<Buffer>>,
}

#[derive(Clone, Default)]
pub struct Images {
    pub live: Vec<u8>,
    pub durable: Vec<u8>,
    /// Answered, in order: number, place, bytes. They become durable with a flush.
    pub volatile: VecDeque<(u64, u64, Vec<u8>)>,
    /// Number of the next write.
    pub next: u64,
    /// For each 512 bytes the last write that is durable.
    pub newest: Vec<u64>,
    pub log: Vec<Request>,
}

impl Images {
    fn put(&mut self, offset: u64, bytes: &[u8], durable: bool) {
        let range = offset as usize..offset as usize + bytes.len();
        self.live[range].copy_from_slice(bytes);
        self.next += 1;
        if durable {
            self.keep(self.next, offset, bytes);
        } else {
            self.volatile.push_back((self.next, offset, bytes.to_vec()));
        }
    }

    /// What is there after a power cut: each write that no flush covered may be lost, or done in
    /// part.
    pub fn after_a_cut(&self, random: &mut Random) -> Self {
        let mut left = self.clone();
        for (number, offset, bytes) in std::mem::take(&mut left.volatile) {
            let kept = match random.below(4) {
                0 => 0,
                1 => random.below(bytes.len() as u64 / 512 + 1) as usize * 512,
                _ => bytes.len(),
            };
            left.keep(number, offset, &bytes[..kept.min(bytes.len())]);
        }
        left.live = left.durable.clone();
        left
    }

    /// Makes a write durable, except where a later one is.
    fn keep(&mut self, number: u64, offset: u64, bytes: &[u8]) {
        self.newest.resize(self.durable.len() / 512 + 1, 0);
        for (at, &byte) in (offset as usize..).zip(bytes) {
            let newest = &mut self.newest[at / 512];
            if *newest <= number {
                *newest = number;
                self.durable[at] = byte;
            }
        }
    }
}

impl TestStore {
    pub fn new(size: usize, alignment: u32, seed: u64) -> Arc<Self> {
        let images = Images { live: vec![0; size], durable: vec![0; size], ..Images::default() };
        Arc::new(Self {
            inner: Mutex::new(images),
            alignment,
            fail_one_in: AtomicU64::new(0),
            fail_reads: AtomicBool::new(false),
            bad_byte: AtomicU64::new(u64::MAX),
            fail_writes: AtomicBool::new(false),
            keep_buffers: AtomicBool::new(false),
            jitter: AtomicBool::new(false),
            takes_many: AtomicBool::new(false),
            random: Mutex::new(Random::new(seed)),
            hold_reads: AtomicBool::new(false),
            hold_writes: AtomicBool::new(false),
            released: Notify::new(),
            flush_ms: AtomicU64::new(0),
            changed_ns: AtomicU64::new(0),
            is_closed: AtomicBool::new(false),
            kept: Mutex::new(Vec::new()),
        })
    }

    pub fn log(&self) -> Vec<Request> {
        self.inner.lock().unwrap().log.clone()
    }

    pub fn live(&self) -> Vec<u8> {
        self.inner.lock().unwrap().live.clone()
    }

    pub fn release(&self) {
        self.hold_reads.store(false, Ordering::SeqCst);
        self.hold_writes.store(false, Ordering::SeqCst);
        self.released.notify_waiters();
    }

    fn fails(&self) -> bool {
        let n = self.fail_one_in.load(Ordering::SeqCst);
        n > 0 && self.random.lock().unwrap().one_in(n)
    }

    /// A store with a version: it was changed last at that time.
    pub fn of(images: Images, alignment: u32, changed_ns: u64, seed: u64) -> Arc<Self> {
        let store = Self::new(images.live.len(), alignment, seed);
        *store.inner.lock().unwrap() = images;
        store.changed_ns.store(changed_ns, Ordering::SeqCst);
        store
    }

    /// Takes effect now.
    pub fn put(&self, offset: u64, bytes: &[u8], durable: bool) {
        let mut images = self.inner.lock().unwrap();
        if self.changed_ns.load(Ordering::SeqCst) > 0 {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
            self.changed_ns.store(now.as_nanos() as u64, Ordering::SeqCst);
        }
        images.put(offset, bytes, durable);
    }

    fn check(&self, offset: u64, length: u64) {
        let unit = u64::from(self.alignment);
        assert!(length > 0 && offset % unit == 0 && length % unit == 0, "{offset}+{length}");
        assert!(offset + length <= self.inner.lock().unwrap().live.len() as u64);
    }

    async fn pause(&self, held: &AtomicBool) {
        loop {
            let mut released = std::pin::pin!(self.released.notified());
            released.as_mut().enable();
            if !held.load(Ordering::SeqCst) {
                break;
            }
            released.await;
        }
        if self.jitter.load(Ordering::SeqCst) {
            let draw = self.random.lock().unwrap().below(16);
            match draw {
                0 => tokio::time::sleep(Duration::from_micros(300)).await,
                1..=7 => tokio::task::yield_now().await,
                _ => {}
            }
        }
    }
}

fn failure(what: &str) -> io::Error {
    io::Error::other(format!("test store: {what} failed"))
}

/// Shares a store with the volume, since `Store` hands out futures of their own.
pub struct Shared(pub Arc<TestStore>);

impl Store for Shared {
    fn facts(&self) -> Facts {
        Facts {
            size: self.0.inner.lock().unwrap().live.len() as u64,
            alignment: self.0.alignment,
            read_only: false,
            zeroes_fast: true,
            name: "test:".into(),
        }
    }

    fn read(
        &self,
        offset: u64,
        mut into: Vec<Buffer>,
    ) -> StoreAnswer<(Vec<Buffer>, io::Result<()>)> {
        let store = Arc::clone(&self.0);
        Box::pin(async move {
            let length: usize = into.iter_mut().map(|buffer| (**buffer).as_mut().len()).sum();
            store.check(offset, length as u64);
            store.inner.lock().unwrap().log.push(Request::Read(offset, length as u64));
            store.pause(&store.hold_reads).await;
            let bad = store.bad_byte.load(Ordering::SeqCst);
            let is_bad = (offset..offset + length as u64).contains(&bad);
            let fails = store.fails() || store.fail_reads.load(Ordering::SeqCst) || is_bad;
            let mut at = offset as usize;
            for buffer in &mut into {
                let bytes = (**buffer).as_mut();
                let images = store.inner.lock().unwrap();
                let count = if fails { bytes.len() / 2 } else { bytes.len() };
                bytes[..count].copy_from_slice(&images.live[at..at + count]);
                at += bytes.len();
            }
            if store.keep_buffers.load(Ordering::SeqCst) {
                store.kept.lock().unwrap().append(&mut into);
            }
            (into, if fails { Err(failure("read")) } else { Ok(()) })
        })
    }

    fn write(&self, offset: u64, data: Vec<Bytes>, durable: bool) -> StoreAnswer<io::Result<()>> {
        let store = Arc::clone(&self.0);
        Box::pin(async move {
            let bytes = data.concat();
            store.check(offset, bytes.len() as u64);
            let request = Request::Write(offset, bytes.len() as u64, durable);
            store.inner.lock().unwrap().log.push(request);
            store.pause(&store.hold_writes).await;
            if store.fails() || store.fail_writes.load(Ordering::SeqCst) {
                let half = bytes.len() / 2;
                store.put(offset, &bytes[..half], false);
                return Err(failure("write"));
            }
            store.put(offset, &bytes, durable);
            Ok(())
        })
    }

    fn takes_many(&self) -> bool {
        self.0.takes_many.load(Ordering::SeqCst)
    }

    fn write_many(&self, writes: Vec<ManyWrite>, _here: bool, written: ManyWritten) {
        let each: Vec<_> =
            writes.into_iter().map(|one| self.write(one.offset, one.data, false)).collect();
        tokio::spawn(async move {
            let mut results = Vec::new();
            for one in each {
                results.push(one.await);
            }
            written(results);
        });
    }

    fn zero(&self, offset: u64, length: u64, _: Zeroing, d: bool) -> StoreAnswer<io::Result<()>> {
        let store = Arc::clone(&self.0);
        Box::pin(async move {
            store.check(offset, length);
            store.inner.lock().unwrap().log.push(Request::Zero(offset, length));
            store.pause(&store.hold_writes).await;
            if store.fails() || store.fail_writes.load(Ordering::SeqCst) {
                return Err(failure("zero"));
            }
            store.put(offset, &vec![0; length as usize], d);
            Ok(())
        })
    }

    fn trim(&self, offset: u64, length: u64, durable: bool) -> StoreAnswer<io::Result<()>> {
        let store = Arc::clone(&self.0);
        Box::pin(async move {
            store.check(offset, length);
            store.inner.lock().unwrap().log.push(Request::Trim(offset, length));
            store.pause(&store.hold_writes).await;
            if store.fails() {
                return Err(failure("trim"));
            }
            store.put(offset, &vec![0; length as usize], durable);
            Ok(())
        })
    }

    fn flush(&self) -> StoreAnswer<io::Result<()>> {
        let store = Arc::clone(&self.0);
        let last = {
            let mut images = store.inner.lock().unwrap();
            images.log.push(Request::Flush);
            images.next
        };
        Box::pin(async move {
            store.pause(&AtomicBool::new(false)).await;
            let takes = Duration::from_millis(store.flush_ms.load(Ordering::SeqCst));
            if !takes.is_zero() {
                tokio::time::sleep(takes).await;
            }
            if store.fails() {
                return Err(failure("flush"));
            }
            let mut images = store.inner.lock().unwrap();
            // Only what was answered when the flush was asked for.
            while images.volatile.front().is_some_and(|&(number, ..)| number <= last) {
                if let Some((number, offset, bytes)) = images.volatile.pop_front() {
                    images.keep(number, offset, &bytes);
                }
            }
            Ok(())
        })
    }

    fn extents(&self, offset: u64, length: u64) -> StoreAnswer<io::Result<Vec<Extent>>> {
        let store = Arc::clone(&self.0);
        Box::pin(async move {
            // A unit that is all zero is a hole.
            let images = store.inner.lock().unwrap();
            let unit = 4096;
            let mut extents: Vec<Extent> = Vec::new();
            let mut at = offset;
            while at < offset + length {
                let end = (at / unit * unit + unit).min(offset + length);
                let hole = images.live[at as usize..end as usize].iter().all(|&b| b == 0);
                match extents.last_mut() {
                    Some(last) if last.hole == hole => last.length += end - at,
                    _ => extents.push(Extent { length: end - at, hole, zero: hole }),
                }
                at = end;
            }
            Ok(extents)
        })
    }

    fn version(&self) -> StoreAnswer<Option<Version>> {
        let changed_ns = self.0.changed_ns.load(Ordering::SeqCst);
        let version = (changed_ns > 0).then_some(Version { identity: 1, changed_ns });
        Box::pin(async move { version })
    }

    fn reload(&self) -> StoreAnswer<io::Result<u64>> {
        let size = self.0.inner.lock().unwrap().live.len() as u64;
        Box::pin(async move { Ok(size) })
    }

    fn close(&self) -> StoreAnswer<io::Result<()>> {
        self.0.is_closed.store(true, Ordering::SeqCst);
        Box::pin(async { Ok(()) })
    }
}

/// Is told what leaves a volume, and compares it with the store.
pub struct Watcher {
    store: Arc<TestStore>,
    block_bytes: u64,
    pub told: AtomicU64,
    pub handed_over: AtomicU64,
    /// Blocks that left with data other than the store's at that moment.
    pub wrong: Mutex<Vec<u64>>,
}

impl Watcher {
    pub fn of(store: &Arc<TestStore>, block_bytes: u64) -> Arc<Self> {
        let (told, handed_over, wrong) = Default::default();
        Arc::new(Self { store: Arc::clone(store), block_bytes, told, handed_over, wrong })
    }
}

impl std::fmt::Debug for Watcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Watcher({:?}, {:?})", self.told, self.handed_over)
    }
}

impl EvictionSink for Watcher {
    fn wants_data(&self) -> bool {
        true
    }

    fn on_evicted(&self, block: u64, data: Option<Bytes>) {
        self.told.fetch_add(1, Ordering::SeqCst);
        let Some(data) = data else { return };
        self.handed_over.fetch_add(1, Ordering::SeqCst);
        let start = (block * self.block_bytes) as usize;
        if self.store.inner.lock().unwrap().live[start..start + data.len()] != data {
            self.wrong.lock().unwrap().push(block);
        }
    }

    fn on_evicted_dirty(&self, _: u64) {
        self.told.fetch_add(1, Ordering::SeqCst);
    }

    fn on_readmitted(&self, _: u64) {}

    fn piggyback(&self, blocks: &[u64]) {
        assert!(!blocks.is_empty());
    }

    fn settled(&self) {}

    fn told(&self) -> TellStats {
        TellStats { evictions: self.told.load(Ordering::SeqCst), ..TellStats::default() }
    }
}

/// Bytes of a block.
pub const BLOCK: u64 = 4096;

/// A configuration of a small volume.
pub fn config(cache_blocks: u32, policy: &str) -> VolumeConfig {
    VolumeConfig::new("test", cache_blocks, Spec::parse(policy).unwrap())
}

/// A configuration that writes back. The flusher keeps out of the way unless a test is about it.
pub fn write_back(cache_blocks: u32) -> VolumeConfig {
    let dirty_age = Duration::from_secs(3600);
    VolumeConfig { write: Write::Back, dirty_age, dirty_share: 1.0, ..config(cache_blocks, "lru") }
}

/// A store of blocks that are each full of one byte.
pub fn filled(blocks: u64, byte: impl Fn(u64) -> u8) -> Arc<TestStore> {
    let store = TestStore::new((blocks * BLOCK) as usize, 512, 1);
    for (block, bytes) in (0..).zip(store.inner.lock().unwrap().live.chunks_mut(BLOCK as usize)) {
        bytes.fill(byte(block));
    }
    store
}

/// Opens a volume on a store.
pub fn open(config: VolumeConfig, store: &Arc<TestStore>) -> Arc<Volume> {
    open_on(config, Arc::new(Shared(Arc::clone(store))))
}

/// Opens a volume on any store.
pub fn open_on(config: VolumeConfig, store: Arc<dyn Store>) -> Arc<Volume> {
    let memory = Memory::new(config.memory_bytes() as usize).unwrap();
    Volume::open(config, store, &memory, Handle::current()).unwrap()
}

/// A request whose answer can be waited for.
pub fn ask(
    command: Command,
    offset: u64,
    length: u64,
    durable: bool,
) -> (undercroft_nbd::Request, oneshot::Receiver<Outcome>) {
    let (sender, receiver) = oneshot::channel();
    let reply = Reply::call(move |answer| drop(sender.send(outcome(answer))));
    (undercroft_nbd::Request { command, offset, length, durable, reply }, receiver)
}

fn outcome(answer: undercroft_nbd::Answer) -> Outcome {
    use undercroft_nbd::Answer as Told;
    match answer {
        Told::Done => Ok(Answer::Done),
        Told::Data(pieces) | Told::Start(pieces) => Ok(Answer::Data(pieces)),
        Told::Extents(mut contexts) => Ok(Answer::Extents(contexts.remove(0).1)),
        Told::Failed(failure, text) => Err(Failed::new(failure, &text)),
    }
}

/// Begins a request.
pub fn begin(
    volume: &Arc<Volume>,
    command: Command,
    offset: u64,
    length: u64,
) -> oneshot::Receiver<Outcome> {
    begin_as(volume, Caller::default(), command, offset, length)
}

/// Begins a request of a client.
pub fn begin_as(
    volume: &Arc<Volume>,
    caller: Caller,
    command: Command,
    offset: u64,
    length: u64,
) -> oneshot::Receiver<Outcome> {
    let (ask, answer) = ask(command, offset, length, false);
    volume.serve(&mut vec![ask], caller);
    answer
}

/// A client tells something.
pub fn say(volume: &Arc<Volume>, caller: Caller, hints: Vec<Hint>) {
    let received = ReceivedHints { hints, bytes: 0, arrived: Instant::now(), may_demote: true };
    volume.receive_hints(caller, received);
}

/// That a client has evicted a block.
pub fn evict(block: u64) -> Hint {
    let (age_us, sequence, flags) = (0, 0, EvictFlags::default());
    Hint::Evict { age_us, sequence, flags, runs: vec![BlockRun::new(block, 1).unwrap()] }
}

/// A block full of one byte that a client has evicted.
pub fn demote(block: u64, byte: u8) -> Hint {
    Hint::Demote { block, rides: false, data: vec![byte; BLOCK as usize].into() }
}

pub const READ: Command = Command::Read { one_chunk: false };
pub const ZERO: Command = Command::WriteZeroes { keep_allocated: false, fast: false };

pub fn write_of(bytes: impl Into<Bytes>) -> Command {
    Command::Write { data: vec![bytes.into()] }
}

pub async fn read(volume: &Arc<Volume>, offset: u64, length: u64) -> Result<Vec<u8>, String> {
    match begin(volume, READ, offset, length).await.expect("an answer") {
        Ok(Answer::Data(pieces)) => Ok(pieces.concat()),
        Ok(other) => panic!("a read was answered by {other:?}"),
        Err(failed) => Err(failed.to_string()),
    }
}

pub async fn write(volume: &Arc<Volume>, offset: u64, bytes: Vec<u8>) -> Result<(), String> {
    let length = bytes.len() as u64;
    let outcome = begin(volume, write_of(bytes), offset, length).await.expect("an answer");
    outcome.map(drop).map_err(|failed| failed.to_string())
}

pub async fn flush(volume: &Arc<Volume>) -> Result<(), String> {
    let outcome = begin(volume, Command::Flush, 0, 0).await.expect("an answer");
    outcome.map(drop).map_err(|failed| failed.to_string())
}

/// Lets everything that can go on do so.
pub async fn settle() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
    tokio::time::sleep(Duration::from_millis(2)).await;
}
