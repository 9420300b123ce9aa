//! A write log before a store: it conforms as any store does, loses nothing when the process or the
//! power ends, and leaves the store as a disk would be that lost its power at a flush.

use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::sleep;
use undercroft_store::{
    Answer, Buffer, Extent, Facts, FailRule, FailStore, FailWith, Failure, LogOptions, LogStore,
    MemoryStore, OpenOptions, RequestKind, Store, StoreSpec, Trigger, Zeroing,
};

use crate::suite::{Random, conforms, read, seed, write};

const LOG: u64 = 8 << 20;
const SECTOR: u64 = 512;

async fn before(inner: Arc<dyn Store>, log: Arc<dyn Store>, life: u64) -> io::Result<LogStore> {
    let (bytes, name) = (log.facts().size, "/log".to_owned());
    let options = LogOptions { bytes, life, unmarked: true, name, on_warning: None };
    LogStore::open(inner, log, options).await
}

fn memory(bytes: u64) -> Arc<dyn Store> {
    Arc::new(MemoryStore::new(bytes).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_a_store() {
    let (inner, log) = (memory(1 << 20), memory(LOG));
    let store = Arc::new(before(Arc::clone(&inner), Arc::clone(&log), 1).await.unwrap());
    conforms(Arc::clone(&store) as _, 400).await;
    let content = read(&*store, 0, 1 << 20).await.unwrap();
    store.close().await.unwrap();
    assert!(store.backlog().unwrap().age.is_none());
    assert!(read(&*inner, 0, 1 << 20).await.unwrap() == content);
    assert!(write(&*store, 0, &[1]).await.is_err(), "it is closed");
}

/// Bytes that may be lost with the power until a flush, and a moment after which nothing happens.
struct Disk(Arc<Mutex<Bits>>);

struct Bits {
    now: Vec<u8>,
    durable: Vec<u8>,
    /// Writes that no flush has covered: first byte, and data.
    pending: Vec<(u64, Vec<u8>)>,
    random: Random,
    is_over: bool,
}

impl Disk {
    fn new(content: Vec<u8>, seed: u64) -> Arc<Disk> {
        let (durable, pending) = (content.clone(), Vec::new());
        let random = Random::new(seed);
        Arc::new(Disk(Arc::new(Mutex::new(Bits {
            now: content,
            durable,
            pending,
            random,
            is_over: false,
        }))))
    }

    /// Nothing happens any more. What is there: all, or, without power, what was flushed and any
    /// sectors of the rest.
    fn end(&self, keeps_power: bool) -> Vec<u8> {
        let mut bits = self.0.lock().unwrap();
        bits.is_over = true;
        if keeps_power {
            return bits.now.clone();
        }
        let mut left = bits.durable.clone();
        for (first, data) in std::mem::take(&mut bits.pending) {
            let is_there = bits.random.one_in(2);
            for (index, sector) in data.chunks(SECTOR as usize).enumerate() {
                if is_there && !bits.random.one_in(8) {
                    let at = first as usize + index * SECTOR as usize;
                    left[at..at + sector.len()].copy_from_slice(sector);
                }
            }
        }
        left
    }

    /// Waits a while, does something, and waits again; for ever if it is over.
    fn ask<T: Send + 'static>(
        &self,
        what: impl FnOnce(&mut Bits) -> T + Send + 'static,
    ) -> Answer<T> {
        let bits = Arc::clone(&self.0);
        Box::pin(async move {
            let pauses = {
                let random = &mut bits.lock().unwrap().random;
                [random.below(4), random.below(4)].map(Duration::from_millis)
            };
            sleep(pauses[0]).await;
            let done = {
                let mut bits = bits.lock().unwrap();
                if bits.is_over { None } else { Some(what(&mut bits)) }
            };
            let Some(done) = done else { return std::future::pending().await };
            sleep(pauses[1]).await;
            done
        })
    }
}

impl Store for Disk {
    fn facts(&self) -> Facts {
        let size = self.0.lock().unwrap().now.len() as u64;
        let name = "disk".to_owned();
        Facts { size, alignment: SECTOR as u32, read_only: false, zeroes_fast: true, name }
    }

    fn read(&self, offset: u64, mut into: Vec<Buffer>) -> Answer<(Vec<Buffer>, io::Result<()>)> {
        self.ask(move |bits| {
            let mut at = offset as usize;
            for buffer in &mut into {
                let buffer = (**buffer).as_mut();
                buffer.copy_from_slice(&bits.now[at..at + buffer.len()]);
                at += buffer.len();
            }
            (into, Ok(()))
        })
    }

    fn write(&self, offset: u64, data: Vec<Bytes>, durable: bool) -> Answer<io::Result<()>> {
        assert!(!durable, "a flush is asked for apart");
        let data = data.concat();
        self.ask(move |bits| {
            bits.now[offset as usize..][..data.len()].copy_from_slice(&data);
            bits.pending.push((offset, data));
            Ok(())
        })
    }

    fn zero(&self, offset: u64, length: u64, _: Zeroing, durable: bool) -> Answer<io::Result<()>> {
        self.write(offset, vec![vec![0; length as usize].into()], durable)
    }

    fn trim(&self, _: u64, _: u64, _: bool) -> Answer<io::Result<()>> {
        unreachable!("the log makes zeroes of it")
    }

    fn flush(&self) -> Answer<io::Result<()>> {
        let covered = self.0.lock().unwrap().pending.len();
        self.ask(move |bits| {
            // Another flush may have covered some meanwhile.
            let covered = covered.min(bits.pending.len());
            for (first, data) in bits.pending.drain(..covered).collect::<Vec<_>>() {
                bits.durable[first as usize..][..data.len()].copy_from_slice(&data);
            }
            Ok(())
        })
    }

    fn extents(&self, _: u64, length: u64) -> Answer<io::Result<Vec<Extent>>> {
        Box::pin(async move { Ok(vec![Extent { length, hole: false, zero: false }]) })
    }

    fn reload(&self) -> Answer<io::Result<u64>> {
        let size = self.facts().size;
        Box::pin(async move { Ok(size) })
    }
}

/// What a client knows of its writes: each fills sectors with a number of its own.
struct Known {
    /// The numbers in each sector at the end of each flush, and those written to it since.
    epochs: Vec<Vec<(u64, Vec<u64>)>>,
    last: u64,
}

impl Known {
    fn new(sectors: u64) -> Known {
        Known { epochs: vec![vec![(0, Vec::new()); sectors as usize]], last: 0 }
    }

    fn now(&self) -> Vec<u64> {
        let newest = self.epochs.last().unwrap().iter();
        newest.map(|(before, since)| *since.last().unwrap_or(before)).collect()
    }

    fn written(&mut self, first: u64, sectors: u64, number: u64) {
        let newest = self.epochs.last_mut().unwrap();
        newest[first as usize..][..sectors as usize].iter_mut().for_each(|it| it.1.push(number));
    }

    fn flushed(&mut self) {
        let now = self.now().into_iter().map(|number| (number, Vec::new()));
        self.epochs.push(now.collect());
    }

    /// The flushes, by number, after which a disk with these sectors may have lost its power.
    fn may_be_after(&self, sectors: &[u64]) -> Vec<usize> {
        let is_one = |(found, (before, since)): (&u64, &(u64, Vec<u64>))| {
            found == before || since.contains(found)
        };
        let all = self.epochs.iter().enumerate();
        all.filter(|(_, epoch)| sectors.iter().zip(*epoch).all(is_one)).map(|it| it.0).collect()
    }

    /// Goes on from what was found after a loss of power.
    fn restart(&mut self, sectors: Vec<u64>) {
        self.epochs = vec![sectors.into_iter().map(|number| (number, Vec::new())).collect()];
    }
}

fn numbers(content: &[u8]) -> Vec<u64> {
    let of = |sector: &[u8]| {
        let number = u64::from_le_bytes(sector[..8].try_into().unwrap());
        assert!(sector.chunks(8).all(|it| it == number.to_le_bytes()), "a sector is torn");
        number
    };
    content.chunks(SECTOR as usize).map(of).collect()
}

/// Lives of a store and its log, each ended in the middle. Returns how many batches were found
/// after restarts.
async fn lives(seed: u64) -> u64 {
    const SECTORS: u64 = 96;
    // Small, so that it is written over again and again.
    const LOG: usize = 96 << 10;
    let mut random = Random::new(seed);
    let (mut content, mut log) = (vec![0; (SECTORS * SECTOR) as usize], vec![0; LOG]);
    let (mut known, mut found) = (Known::new(SECTORS), 0);
    // After a loss of power the store alone may be anything until it has what the log has.
    let (mut had_power, mut is_sound_alone) = (true, true);
    for life in 1..=12 {
        let disk = Disk::new(content, random.next_u64());
        let medium = Disk::new(log, random.next_u64());
        let [inner, before_it]: [Arc<dyn Store>; 2] =
            [Arc::<Disk>::clone(&disk), Arc::<Disk>::clone(&medium)];
        let store = before(inner, before_it, seed << 8 | life).await.unwrap();
        found += u64::from(store.backlog().unwrap().age.is_some());
        let all = read(&store, 0, SECTORS * SECTOR).await.unwrap();
        let sectors = numbers(&all);
        // What was found, and what was answered before a flush, must be there.
        let last = known.epochs.len() - 1;
        assert!(
            known.may_be_after(&sectors).contains(&last),
            "seed {seed}, life {life}: {sectors:?}"
        );
        if !had_power {
            known.restart(sectors);
        }
        let steps = if random.one_in(3) { 4 } else { 60 };
        for _ in 0..random.below(steps) {
            let first = random.below(SECTORS);
            let most = if random.one_in(2) { 8 } else { 24 };
            let count = 1 + random.below((SECTORS - first).min(most));
            let (offset, length) = (first * SECTOR, count * SECTOR);
            match random.below(10) {
                0..=4 => {
                    known.last += 1;
                    let number = known.last;
                    known.written(first, count, number);
                    let data = number.to_le_bytes().repeat(length as usize / 8);
                    let durable = random.one_in(8);
                    store.write(offset, vec![data.into()], durable).await.unwrap();
                    if durable {
                        known.flushed();
                    }
                }
                5 => {
                    known.written(first, count, 0);
                    let how = Zeroing { keep_allocated: random.one_in(2), only_if_fast: false };
                    store.zero(offset, length, how, false).await.unwrap();
                }
                6 | 7 => {
                    store.flush().await.unwrap();
                    known.flushed();
                }
                8 => {
                    let seen = numbers(&read(&store, offset, length).await.unwrap());
                    let wanted = &known.now()[first as usize..][..count as usize];
                    assert_eq!(seen, wanted, "seed {seed}, life {life}");
                }
                _ => sleep(Duration::from_millis(random.below(1500))).await,
            }
            // The store alone, at any time.
            is_sound_alone |= store.backlog().unwrap().age.is_none();
            let now = disk.0.lock().unwrap().now.clone();
            if !is_sound_alone {
                continue;
            }
            let alone = numbers(&now);
            assert!(!known.may_be_after(&alone).is_empty(), "seed {seed}, life {life}: {alone:?}");
        }
        had_power = random.one_in(2);
        if had_power {
            // Nothing that was answered is lost.
            known.flushed();
        } else {
            is_sound_alone = false;
        }
        (content, log) = (disk.end(had_power), medium.end(had_power));
        drop(store);
    }
    found
}

#[tokio::test(start_paused = true)]
async fn nothing_is_lost_and_the_store_alone_is_as_after_a_loss_of_power() {
    let first = seed();
    let mut found = 0;
    for seed in first..first + 60 {
        found += lives(seed).await;
    }
    assert!(found > 100, "{found} logs had something after a restart");
}

/// The ring is full and the store stalls: changes wait, and go on.
#[tokio::test(start_paused = true)]
async fn a_full_log_waits_for_its_store() {
    let stalls = FailRule {
        kind: Some(RequestKind::Write),
        trigger: Trigger::From(1),
        failure: Failure::Stall(None),
    };
    let inner = Arc::new(FailStore::new(memory(64 << 20), Some(stalls)));
    let handle = inner.handle();
    let store = Arc::new(before(inner, memory(LOG), 1).await.unwrap());
    let writing = {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            for block in 0..24 {
                write(&*store, block << 20, &vec![block as u8 + 1; 1 << 20]).await.unwrap();
            }
        })
    };
    sleep(Duration::from_secs(60)).await;
    assert!(!writing.is_finished() && store.backlog().unwrap().bytes > LOG * 3 / 4);
    assert_eq!(read(&*store, 5 << 20, 1).await.unwrap(), [6], "reads go on");
    handle.set(None);
    handle.release();
    writing.await.unwrap();
    store.close().await.unwrap();
    assert_eq!(read(&*store, 23 << 20, 1).await.unwrap(), [24]);
}

/// A store that fails gets its changes when it works again; a flush does not need it.
#[tokio::test(start_paused = true)]
async fn a_store_that_fails_is_tried_again() {
    let fails = FailRule {
        kind: Some(RequestKind::Write),
        trigger: Trigger::From(1),
        failure: Failure::Error(FailWith::default()),
    };
    let disk = memory(1 << 20);
    let inner = Arc::new(FailStore::new(Arc::clone(&disk), Some(fails)));
    let handle = inner.handle();
    let store = before(inner, memory(LOG), 1).await.unwrap();
    write(&store, 4096, &[7; 4096]).await.unwrap();
    store.flush().await.unwrap();
    sleep(Duration::from_secs(300)).await;
    assert!(store.backlog().unwrap().age.is_some_and(|age| age > Duration::from_secs(200)));
    handle.set(None);
    sleep(Duration::from_secs(30)).await;
    assert!(store.backlog().unwrap().age.is_none());
    assert_eq!(read(&*disk, 4096, 1).await.unwrap(), [7]);
}

/// A log that fails takes no change any more; the store gets what the log has.
#[tokio::test(start_paused = true)]
async fn a_log_that_fails_is_emptied() {
    for failure in [Failure::Error(FailWith::default()), Failure::Stall(None)] {
        // The first write is the head's.
        let rule = FailRule { kind: Some(RequestKind::Write), trigger: Trigger::From(3), failure };
        let disk = memory(1 << 20);
        let medium = Arc::new(FailStore::new(memory(LOG), Some(rule)));
        let store = before(Arc::clone(&disk), medium, 1).await.unwrap();
        write(&store, 0, &[1; 4096]).await.unwrap();
        assert!(write(&store, 4096, &[2; 4096]).await.is_err());
        assert!(write(&store, 8192, &[3; 4096]).await.is_err() && store.flush().await.is_err());
        assert!(store.stopped().is_some_and(|why| why.contains("log /log failed")));
        sleep(Duration::from_secs(60)).await;
        assert_eq!(read(&*disk, 0, 1).await.unwrap(), [1]);
        assert_eq!(read(&store, 0, 1).await.unwrap(), [1]);
    }
}

/// Changes that wait for room when the store is closed are made, or refused.
#[tokio::test(start_paused = true)]
async fn what_waits_at_the_end_is_in_the_store_if_it_was_answered() {
    let stalls = FailRule {
        kind: Some(RequestKind::Write),
        trigger: Trigger::From(1),
        failure: Failure::Stall(None),
    };
    let disk = memory(64 << 20);
    let inner = Arc::new(FailStore::new(Arc::clone(&disk), Some(stalls)));
    let handle = inner.handle();
    let store = Arc::new(before(inner, memory(LOG), 1).await.unwrap());
    let writes = (0..24_u64).map(|block| {
        let store = Arc::clone(&store);
        tokio::spawn(async move { write(&*store, block << 20, &vec![9; 1 << 20]).await })
    });
    let writes: Vec<_> = writes.collect();
    sleep(Duration::from_secs(5)).await;
    assert!(writes.iter().any(|write| !write.is_finished()), "none waits");
    let closing = {
        let store = Arc::clone(&store);
        tokio::spawn(async move { store.close().await })
    };
    sleep(Duration::from_secs(5)).await;
    handle.set(None);
    handle.release();
    closing.await.unwrap().unwrap();
    for (block, write) in writes.into_iter().enumerate() {
        let is_there = read(&*disk, (block as u64) << 20, 1).await.unwrap() == [9];
        assert!(write.await.unwrap().is_err() || is_there, "block {block} was answered");
    }
}

/// A change that waits when the store is dropped is refused.
#[tokio::test(start_paused = true)]
async fn what_waits_when_the_store_is_dropped_is_refused() {
    let stalls = FailRule { kind: None, trigger: Trigger::From(1), failure: Failure::Stall(None) };
    let inner = Arc::new(FailStore::new(memory(64 << 20), Some(stalls)));
    let store = before(inner, memory(LOG), 1).await.unwrap();
    let writes: Vec<_> = (0..24_u64)
        .map(|block| store.write(block << 20, vec![vec![9; 1 << 20].into()], false))
        .collect();
    sleep(Duration::from_secs(5)).await;
    drop(store);
    let answers = futures_util::future::join_all(writes).await;
    assert!(answers.iter().any(Result::is_err) && answers.iter().any(Result::is_ok));
}

/// A write of the log that was given up takes no effect after the log was given up.
#[tokio::test(start_paused = true)]
async fn a_late_append_is_not_believed() {
    for is_late in [false, true] {
        let failure = if is_late {
            Failure::Stall(Some(Duration::from_secs(40)))
        } else {
            // All of it is there all the same.
            Failure::Short(FailWith::default())
        };
        let rule = FailRule { kind: Some(RequestKind::Write), trigger: Trigger::Nth(3), failure };
        let (disk, log) = (memory(1 << 20), memory(LOG));
        let medium = Arc::new(FailStore::new(Arc::clone(&log), Some(rule)));
        let store = before(Arc::clone(&disk), medium, 1).await.unwrap();
        write(&store, 0, &[1; 4096]).await.unwrap();
        assert!(write(&store, 4096, &[2; 4096]).await.is_err());
        sleep(Duration::from_secs(120)).await;
        store.close().await.unwrap();
        assert_eq!(read(&*disk, 0, 1).await.unwrap(), [1]);
        write(&*disk, 4096, &[3; 4096]).await.unwrap();
        let store = before(Arc::clone(&disk), log, 2).await.unwrap();
        assert_eq!(read(&store, 4096, 1).await.unwrap(), [3], "late: {is_late}");
    }
}

/// A log is opened before its store with the units that it was written with.
#[tokio::test(start_paused = true)]
async fn a_store_with_larger_units_is_refused_until_the_log_is_empty() {
    let log = memory(LOG);
    let store = before(memory(1 << 20), Arc::clone(&log), 1).await.unwrap();
    write(&store, 100, &[1; 100]).await.unwrap();
    drop(store);
    let larger = before(Disk::new(vec![0; 1 << 20], 1), Arc::clone(&log), 2).await;
    assert!(larger.err().unwrap().to_string().contains("parts of 512 bytes"));
    let store = before(memory(1 << 20), log, 3).await.unwrap();
    assert_eq!(read(&store, 100, 1).await.unwrap(), [1]);
}

/// A medium that holds something else stays as it is, and a damaged log is not begun anew.
#[tokio::test]
async fn nothing_else_is_taken_for_a_log() {
    for (found, why) in [(&b"undercroft wrlog"[..], "damaged"), (b"other", "something else")] {
        for page in [0, 4096] {
            let medium = memory(LOG);
            write(&*medium, page, found).await.unwrap();
            let error = before(memory(1 << 20), Arc::clone(&medium), 1).await.err().unwrap();
            assert!(error.to_string().contains(why), "{error}");
            assert_eq!(read(&*medium, page, found.len() as u64).await.unwrap(), found);
        }
    }
    let (medium, options) = (memory(LOG), |bytes| LogOptions {
        bytes,
        life: 1,
        unmarked: true,
        name: "/log".to_owned(),
        on_warning: None,
    });
    let larger = LogStore::open(memory(1 << 20), Arc::clone(&medium), options(2 * LOG)).await;
    assert!(larger.err().unwrap().to_string().contains("has only"));
    before(memory(2 << 20), Arc::clone(&medium), 1).await.unwrap().close().await.unwrap();
    let smaller = before(memory(1 << 20), medium, 2).await;
    assert!(smaller.err().unwrap().to_string().contains("a larger store"));
}

/// A file is not opened without its log while that has anything, nor is a log before another file.
#[tokio::test]
async fn a_file_and_its_log_know_one_another() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let open = async |text: String| {
        let spec = text.parse::<StoreSpec>().unwrap();
        assert_eq!(spec.to_string(), text);
        spec.open(OpenOptions { size: Some(1 << 20), ..OpenOptions::default() }).await
    };
    let with_log = |file: &str| format!("log({},size=8MiB):file:{}", path("log"), path(file));
    let plain = format!("file:{}", path("one"));
    let store = match open(with_log("one")).await {
        Ok(store) => store,
        Err(error) if error.kind() == ErrorKind::Unsupported => {
            return println!("skipped: files have no attributes here");
        }
        Err(error) => panic!("{error}"),
    };
    write(&*store, 0, &[5; 4096]).await.unwrap();
    store.flush().await.unwrap();
    drop(store);
    let refused = async |text: &str, why: &str| {
        // The tasks of the one before may be at work for a moment.
        for _ in 0..1000 {
            let error = open(text.to_owned()).await.err().unwrap().to_string();
            if !error.contains("in use") {
                assert!(error.contains(why), "{error}");
                return;
            }
            sleep(Duration::from_millis(10)).await;
        }
        panic!("{text} is in use");
    };
    refused(&plain, "a part of it is in its write log").await;
    refused(&with_log("other"), "it is another store").await;
    let both = format!("concat({plain};file:{})", path("other"));
    let before_both = format!("log({},size=8MiB):{both}", path("another"));
    let refused_both = async |text: &str, why: &str| {
        let opened = text.parse::<StoreSpec>().unwrap().open(OpenOptions::default()).await;
        let error = opened.err().unwrap().to_string();
        assert!(error.contains(why), "{error}");
    };
    refused_both(&both, "a part of it is in its write log").await;
    refused_both(&before_both, "a part of it is in its log parts have").await;
    let when_free = async |text: String| {
        loop {
            match open(text.clone()).await {
                Ok(store) => break store,
                Err(error) => assert!(error.to_string().contains("in use"), "{error}"),
            }
            sleep(Duration::from_millis(10)).await;
        }
    };
    let store = when_free(with_log("one")).await;
    assert_eq!(read(&*store, 0, 1).await.unwrap(), [5]);
    store.close().await.unwrap();
    drop(store);
    let store = when_free(plain.clone()).await;
    assert_eq!(read(&*store, 0, 1).await.unwrap(), [5]);
    drop(store);

    // An empty log that two stores had belongs to the one that had it last.
    drop(when_free(with_log("one")).await);
    let other = when_free(with_log("other")).await;
    write(&*other, 0, &[6; 4096]).await.unwrap();
    drop(other);
    refused(&with_log("one"), "the store has another log").await;
}

/// A log that fails while it has nothing leaves the file as one that needs none.
#[tokio::test]
async fn a_file_whose_empty_log_fails_is_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file").display().to_string();
    let options = OpenOptions { size: Some(1 << 20), has_log: true, ..OpenOptions::default() };
    let spec = format!("file:{path}").parse::<StoreSpec>().unwrap();
    let file = spec.open(options).await.unwrap();
    let rule = FailRule {
        kind: Some(RequestKind::Write),
        trigger: Trigger::From(2),
        failure: Failure::Error(FailWith::default()),
    };
    let medium = Arc::new(FailStore::new(memory(LOG), Some(rule)));
    let name = "/log".to_owned();
    let log = LogOptions { bytes: LOG, life: 1, unmarked: false, name, on_warning: None };
    let store = match LogStore::open(Arc::clone(&file), medium, log).await {
        Err(error) if error.kind() == ErrorKind::Unsupported => {
            return println!("skipped: files have no attributes here");
        }
        opened => opened.unwrap(),
    };
    assert!(file.mark().await.unwrap().is_some());
    assert!(write(&store, 0, &[1; 4096]).await.is_err());
    while file.mark().await.unwrap().is_some() {
        sleep(Duration::from_millis(10)).await;
    }
    store.close().await.unwrap();
}
