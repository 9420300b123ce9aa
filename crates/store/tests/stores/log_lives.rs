//! Lives of a store with a write log, each ended in the middle, with its power or without: nothing
//! is lost, and the store alone is as a disk would be that lost its power at a flush.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::sleep;
use undercroft_store::{Answer, Buffer, Extent, Facts, Store, Zeroing};

use crate::log::before;
use crate::suite::{Random, read, seed};

const SECTOR: u64 = 512;

/// Bytes that may be lost with the power until a flush, and a moment after which nothing happens.
pub(crate) struct Disk(Arc<Mutex<Bits>>);

struct Bits {
    left: Left,
    random: Random,
    is_over: bool,
}

/// What is there.
#[derive(Clone)]
pub(crate) struct Left {
    now: Vec<u8>,
    durable: Vec<u8>,
    /// Writes that no flush has covered: first byte, and data.
    pending: Vec<(u64, Vec<u8>)>,
}

impl Left {
    /// All is durable.
    pub(crate) fn new(content: Vec<u8>) -> Left {
        Left { durable: content.clone(), now: content, pending: Vec::new() }
    }
}

impl Disk {
    pub(crate) fn new(left: Left, seed: u64) -> Arc<Disk> {
        let random = Random::new(seed);
        Arc::new(Disk(Arc::new(Mutex::new(Bits { left, random, is_over: false }))))
    }

    /// Nothing happens any more. What is there: all, or, without power, what was flushed and any
    /// sectors of the rest.
    pub(crate) fn end(&self, keeps_power: bool) -> Left {
        let mut bits = self.0.lock().unwrap();
        bits.is_over = true;
        let mut left = bits.left.clone();
        if keeps_power {
            return left;
        }
        for (first, data) in left.pending {
            let is_there = bits.random.one_in(2);
            for (index, sector) in data.chunks(SECTOR as usize).enumerate() {
                if is_there && !bits.random.one_in(8) {
                    let at = first as usize + index * SECTOR as usize;
                    left.durable[at..at + sector.len()].copy_from_slice(sector);
                }
            }
        }
        Left::new(left.durable)
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
        let size = self.0.lock().unwrap().left.now.len() as u64;
        let name = "disk".to_owned();
        Facts { size, alignment: SECTOR as u32, read_only: false, zeroes_fast: true, name }
    }

    fn read(&self, offset: u64, mut into: Vec<Buffer>) -> Answer<(Vec<Buffer>, io::Result<()>)> {
        self.ask(move |bits| {
            let mut at = offset as usize;
            for buffer in &mut into {
                let buffer = (**buffer).as_mut();
                buffer.copy_from_slice(&bits.left.now[at..at + buffer.len()]);
                at += buffer.len();
            }
            (into, Ok(()))
        })
    }

    fn write(&self, offset: u64, data: Vec<Bytes>, durable: bool) -> Answer<io::Result<()>> {
        assert!(!durable, "a flush is asked for apart");
        let data = data.concat();
        self.ask(move |bits| {
            bits.left.now[offset as usize..][..data.len()].copy_from_slice(&data);
            bits.left.pending.push((offset, data));
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
        let covered = self.0.lock().unwrap().left.pending.len();
        self.ask(move |bits| {
            // Another flush may have covered some meanwhile.
            let Left { durable, pending, .. } = &mut bits.left;
            for (first, data) in pending.drain(..covered.min(pending.len())) {
                durable[first as usize..][..data.len()].copy_from_slice(&data);
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

/// Lives of a store and its log, each ended in the middle. Returns how many logs had something
/// after restarts, and how many lives a loss of power ended.
async fn lives(seed: u64) -> (u64, u64) {
    const SECTORS: u64 = 96;
    // Small, so that it is written over again and again.
    const LOG: usize = 96 << 10;
    let mut random = Random::new(seed);
    let (mut content, mut log) =
        (Left::new(vec![0; (SECTORS * SECTOR) as usize]), Left::new(vec![0; LOG]));
    let (mut known, mut found, mut cuts) = (Known::new(SECTORS), 0, 0);
    // After a loss of power, and while it gets changes again that it may have had, the store alone
    // may be anything until it has what the log has.
    let (mut had_power, mut is_sound_alone) = (true, true);
    for life in 1..=12 {
        let disk = Disk::new(content, random.next_u64());
        let medium = Disk::new(log, random.next_u64());
        let [inner, before_it]: [Arc<dyn Store>; 2] =
            [Arc::<Disk>::clone(&disk), Arc::<Disk>::clone(&medium)];
        let store = before(inner, before_it, seed << 8 | life).await.unwrap();
        found += u64::from(store.backlog().unwrap().age.is_some());
        is_sound_alone &= store.backlog().unwrap().age.is_none();
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
            let now = disk.0.lock().unwrap().left.now.clone();
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
            cuts += 1;
        }
        (content, log) = (disk.end(had_power), medium.end(had_power));
        drop(store);
    }
    (found, cuts)
}

#[tokio::test(start_paused = true)]
async fn nothing_is_lost_and_the_store_alone_is_as_after_a_loss_of_power() {
    let first = seed();
    let mut found = 0;
    for seed in first..first + 60 {
        found += lives(seed).await.0;
    }
    assert!(found > 100, "{found} logs had something after a restart");
}

/// `make check-slow`.
#[tokio::test(start_paused = true)]
#[ignore = "takes a minute"]
async fn ten_thousand_cuts_lose_nothing() {
    let (first, mut all) = (seed(), (0, 0));
    for seed in first.. {
        let (found, cuts) = lives(seed).await;
        all = (all.0 + found, all.1 + cuts);
        if all.1 >= 10_000 {
            println!("seeds {first} to {seed}: {} cuts, {} logs had something", all.1, all.0);
            assert!(all.0 > 1000, "{} logs", all.0);
            break;
        }
    }
}
