//! Reads beside bursts of writes with write-back, on stores that take their time: how long reads
//! wait, and what bursts and FLUSHes take. The clock stands while anybody works, so the times are
//! those of the store alone, whatever the machine does.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use undercroft_server::{Volume, VolumeConfig, Write};
use undercroft_store::{
    Answer, Buffer, Delay, DelayStore, Extent, Facts, ManyWrite, ManyWritten, MemoryStore, Store,
    Zeroing,
};

use crate::common::{BLOCK, Random, begin, config, flush, open_on, read, write_of};

const BLOCKS: u64 = 1 << 16;
const CACHE: u32 = 4096;
const WRITES: u64 = 6000;
const SERVICE: Duration = Duration::from_millis(5);

/// Time in which it is found out how many requests the store does at a time.
const RAMP: Duration = Duration::from_millis(100);

fn back() -> VolumeConfig {
    VolumeConfig { write: Write::Back, ..config(CACHE, "lru") }
}

fn volume(config: VolumeConfig, queue: Option<u32>, max: Duration) -> Arc<Volume> {
    let store = Arc::new(MemoryStore::new(BLOCKS * BLOCK).unwrap());
    let delay = Delay { min: SERVICE, max, queue, seed: 1 };
    open_on(config, Arc::new(DelayStore::new(store, delay).unwrap()))
}

/// Readers of blocks that nobody has read before, each with one request at a time.
struct Readers {
    tasks: JoinSet<Vec<Duration>>,
    ends: Arc<AtomicBool>,
}

impl Readers {
    fn new(volume: &Arc<Volume>, count: u64) -> Self {
        let ends = Arc::new(AtomicBool::new(false));
        let mut tasks = JoinSet::new();
        for number in 0..count {
            let (volume, ends) = (Arc::clone(volume), Arc::clone(&ends));
            tasks.spawn(async move {
                let (mut times, mut random) = (Vec::new(), Random::new(100 + number));
                while !ends.load(Ordering::SeqCst) {
                    let (began, block) = (Instant::now(), BLOCKS / 2 + random.below(BLOCKS / 2));
                    read(&volume, block * BLOCK, BLOCK).await.unwrap();
                    // A hit takes no time.
                    times.extend(Some(began.elapsed()).filter(|time| !time.is_zero()));
                }
                times
            });
        }
        Self { tasks, ends }
    }

    /// The times of their reads, sorted.
    async fn end(mut self) -> Vec<Duration> {
        self.ends.store(true, Ordering::SeqCst);
        let mut all = Vec::new();
        while let Some(times) = self.tasks.join_next().await {
            all.extend(times.unwrap());
        }
        all.sort_unstable();
        all
    }
}

fn most_of_99(times: &[Duration]) -> Duration {
    assert!(times.len() >= 30, "{} reads", times.len());
    times[times.len() * 99 / 100]
}

/// Random writes, 64 at a time, which are answered at once as long as there are frames.
async fn burst(volume: &Arc<Volume>, writes: u64) {
    let mut random = Random::new(7);
    for _ in 0..writes / 64 {
        let answers: Vec<_> = (0..64)
            .map(|_| random.below(BLOCKS / 2) * BLOCK)
            .map(|at| begin(volume, write_of(vec![1; BLOCK as usize]), at, BLOCK))
            .collect();
        for answer in answers {
            answer.await.unwrap().unwrap();
        }
    }
}

/// A burst with a FLUSH beside some readers, who had the store for themselves for a while: what
/// burst and FLUSH took, and 99 % of the reads before and beside them.
async fn beside(queue: u32, readers: u64) -> (Duration, Duration, Duration) {
    let volume = volume(back(), Some(queue), SERVICE);
    let mut idle = Duration::ZERO;
    if readers > 0 {
        let alone = Readers::new(&volume, readers);
        sleep(Duration::from_secs(3)).await;
        idle = most_of_99(&alone.end().await);
    }
    let others = Readers::new(&volume, readers);
    let began = Instant::now();
    burst(&volume, WRITES).await;
    flush(&volume).await.unwrap();
    let took = began.elapsed();
    let times = others.end().await;
    let felt = if readers > 0 { most_of_99(&times) } else { Duration::ZERO };
    volume.validate().unwrap();
    if readers == 0 {
        // The store always had enough to do.
        let needs = SERVICE * volume.stats().store_writes as u32 / queue;
        assert!(took <= needs.mul_f64(1.1) + RAMP, "queue {queue}: {took:?} for {needs:?}");
    }
    (took, idle, felt)
}

#[tokio::test(start_paused = true)]
async fn readers_do_not_feel_a_burst_and_it_goes_on_beside_them() {
    let mut wrong = Vec::new();
    for queue in [1, 4, 64] {
        let (alone, ..) = beside(queue, 0).await;
        println!("queue {queue}, no readers: {alone:?}");
        for readers in [1, 4, 16, 64] {
            let (took, idle, felt) = beside(queue, readers).await;
            let text = format!("queue {queue}, {readers} readers: {took:?}; {idle:?} {felt:?}");
            println!("{text}");
            if felt > 8 * idle || readers == 1 && took > alone.mul_f64(2.5) {
                wrong.push(text);
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Between the reads of somebody who reads now and then the store must not fill up.
#[tokio::test(start_paused = true)]
async fn a_read_that_comes_alone_waits_for_few() {
    for queue in [1, 4] {
        let volume = volume(back(), Some(queue), SERVICE);
        let writer = tokio::spawn({
            let volume = Arc::clone(&volume);
            async move {
                burst(&volume, WRITES / 2).await;
                flush(&volume).await.unwrap();
            }
        });
        let (mut times, mut random) = (Vec::new(), Random::new(5));
        while !writer.is_finished() {
            sleep(Duration::from_millis(300)).await;
            let block = BLOCKS / 2 + random.below(BLOCKS / 2);
            let began = Instant::now();
            read(&volume, block * BLOCK, BLOCK).await.unwrap();
            times.push(began.elapsed());
        }
        times.sort_unstable();
        assert!(times.len() >= 5, "{times:?}");
        assert!(times.last().is_some_and(|&time| time <= 8 * SERVICE), "queue {queue}: {times:?}");
    }
}

/// Requests of this store take 5 to 11 ms.
#[tokio::test(start_paused = true)]
async fn times_that_vary_change_nothing() {
    let volume = volume(back(), Some(4), Duration::from_millis(11));
    let readers = Readers::new(&volume, 2);
    let began = Instant::now();
    burst(&volume, WRITES).await;
    flush(&volume).await.unwrap();
    let least = Duration::from_millis(8) * WRITES as u32 / 4;
    assert!(began.elapsed() < least.mul_f64(2.5), "{:?} of {least:?}", began.elapsed());
    let times = readers.end().await;
    assert!(most_of_99(&times) < 8 * Duration::from_millis(11), "{:?}", most_of_99(&times));
}

/// What waits here is not late: the store answers all the time. One that has stopped is noticed.
#[tokio::test(start_paused = true)]
async fn a_flush_is_not_late_while_the_store_works() {
    let mut config = back();
    config.store_timeout = Some(Duration::from_secs(2));
    let volume = volume(config, Some(1), SERVICE);
    let readers = Readers::new(&volume, 3);
    let began = Instant::now();
    burst(&volume, 2048).await;
    flush(&volume).await.unwrap();
    assert!(began.elapsed() > Duration::from_secs(10), "{:?}", began.elapsed());
    assert_eq!(volume.stats().store_timeouts, 0);
    readers.end().await;
}

/// Beside many readers, changes are at the store when the operator wants them there.
#[tokio::test(start_paused = true)]
async fn the_age_of_changes_is_bounded_beside_readers() {
    let mut config = back();
    (config.dirty_age, config.dirty_max_age) =
        (Duration::from_secs(1), Some(Duration::from_secs(8)));
    let volume = volume(config, Some(1), SERVICE);
    let readers = Readers::new(&volume, 16);
    sleep(Duration::from_secs(1)).await;
    burst(&volume, 192).await;
    let (mut oldest, began) = (0, Instant::now());
    while volume.stats().dirty > 0 {
        oldest = oldest.max(volume.stats().dirty_age_s);
        assert!(began.elapsed() < Duration::from_secs(60), "they do not go out");
        sleep(Duration::from_millis(100)).await;
    }
    assert!((1..8).contains(&oldest), "{oldest} s");
    assert_eq!(volume.stats().bounded_writes, 0);
    readers.end().await;
}

/// A file in the page cache: writes are taken at once, and the disk feels them at the next flush,
/// for a millisecond each. A read needs the disk for eight.
struct Buffered {
    memory: MemoryStore,
    unsynced: AtomicU64,
    disk: Arc<tokio::sync::Mutex<()>>,
}

impl Store for Buffered {
    fn facts(&self) -> Facts {
        self.memory.facts()
    }

    fn read(&self, offset: u64, into: Vec<Buffer>) -> Answer<(Vec<Buffer>, io::Result<()>)> {
        let (disk, read) = (Arc::clone(&self.disk), self.memory.read(offset, into));
        Box::pin(async move {
            let _turn = disk.lock().await;
            sleep(Duration::from_millis(8)).await;
            read.await
        })
    }

    fn write(&self, offset: u64, data: Vec<Bytes>, durable: bool) -> Answer<io::Result<()>> {
        self.unsynced.fetch_add(1, Ordering::SeqCst);
        self.memory.write(offset, data, durable)
    }

    fn takes_many(&self) -> bool {
        true
    }

    fn write_many(&self, writes: Vec<ManyWrite>, here: bool, written: ManyWritten) {
        self.unsynced.fetch_add(writes.len() as u64, Ordering::SeqCst);
        self.memory.write_many(writes, here, written);
    }

    fn zero(&self, at: u64, length: u64, how: Zeroing, durable: bool) -> Answer<io::Result<()>> {
        self.memory.zero(at, length, how, durable)
    }

    fn trim(&self, offset: u64, length: u64, durable: bool) -> Answer<io::Result<()>> {
        self.memory.trim(offset, length, durable)
    }

    fn flush(&self) -> Answer<io::Result<()>> {
        let (disk, writes) = (Arc::clone(&self.disk), self.unsynced.swap(0, Ordering::SeqCst));
        Box::pin(async move {
            let _turn = disk.lock().await;
            sleep(Duration::from_millis(writes)).await;
            Ok(())
        })
    }

    fn extents(&self, offset: u64, length: u64) -> Answer<io::Result<Vec<Extent>>> {
        self.memory.extents(offset, length)
    }

    fn reload(&self) -> Answer<io::Result<u64>> {
        self.memory.reload()
    }
}

#[tokio::test(start_paused = true)]
async fn a_flush_of_a_file_is_felt_by_no_reader() {
    let mut took = Vec::new();
    for count in [0, 1, 8] {
        let memory = MemoryStore::new(BLOCKS * BLOCK).unwrap();
        let (unsynced, disk) = (AtomicU64::new(0), Arc::default());
        let store = Arc::new(Buffered { memory, unsynced, disk });
        let volume = open_on(back(), store);
        let readers = Readers::new(&volume, count);
        sleep(Duration::from_millis(100)).await;
        let began = Instant::now();
        burst(&volume, 2048).await;
        flush(&volume).await.unwrap();
        took.push(began.elapsed());
        let times = readers.end().await;
        if count > 0 {
            let (felt, idle) = (most_of_99(&times), Duration::from_millis(8 * count));
            println!("{count} readers: {:?}, {felt:?}", took.last());
            assert!(felt <= 8 * idle, "{count} readers: {felt:?}");
        }
    }
    let [alone, one, _] = took[..] else { unreachable!() };
    assert!(one <= alone.mul_f64(2.5), "{alone:?}, {one:?}");
}
