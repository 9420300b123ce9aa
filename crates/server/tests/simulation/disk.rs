//! The simulated disk: what the store has, what of it is durable, and how it fails.
//!
//! A [`Disk`] outlives the servers that use it. Each opens it as a [`Store`] of its own; when that
//! server is killed, its requests do not take effect any more. They fail, which nobody hears of:
//! what is left of that server comes to its end. A change is in the volatile list from its effect
//! on until a flush covers it; a power cut keeps any subset of the list, sector by sector, in
//! order.
//!
//! Not here: what can be wrong with it (`disk/habits.rs`), what makes it a service for objects
//! (`disk/service.rs`), the time of the last change (`disk/changed.rs`), and a write log before it
//! (`write_log.rs`).

mod changed;
mod habits;
mod service;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::future::{pending, ready};
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use object_store::path::Path;
use tokio::sync::Notify;
use tokio::time::Instant;
use undercroft_server::process::OpeningStore;
use undercroft_store::{
    Answer, Buffer, Extent, Facts, ManyWrite, ManyWritten, Store, Version, Zeroing,
};

use crate::history::{Value, values};
use crate::random::Random;
use crate::report::Log;
use crate::write_log::LogDisk;

use self::changed::Changed;
pub use self::changed::wall_ns;
pub use habits::{Faults, Habits};
pub use service::Service;

/// Most changes that no flush has covered: with more it makes the oldest durable by itself.
const VOLATILE_MAX: usize = 1024;

/// Bytes of a sector: what is written as a whole, or not.
pub const SECTOR: u64 = 512;

/// Bytes of the longest read of which a bit is changed.
const FLIPS_MAX: u64 = 4096;

/// A run that asks a disk for more than this goes round in circles.
const REQUESTS_MAX: u64 = 300_000;

#[derive(Clone)]
pub struct Disk {
    shared: Arc<Shared>,
    /// The write log that is before it.
    write_log: Option<Arc<LogDisk>>,
}

struct Shared {
    state: Mutex<State>,
    released: Notify,
    log: Log,
    name: String,
}

struct State {
    habits: Habits,
    faults: Faults,
    random: Random,
    current: Vec<u8>,
    durable: Vec<u8>,
    /// Changes that no flush has covered; the number of the first.
    volatile: VecDeque<Change>,
    first: u64,
    /// Which of the servers that opened it is alive.
    owner: u64,
    requests: u64,
    /// When each of those that it does at a time is done.
    busy: BinaryHeap<Reverse<Instant>>,
    /// What a service has instead.
    objects: BTreeMap<Path, Bytes>,
    /// PUTs that are not executed yet.
    on_the_way: u64,
    /// The process that opened it last: a service lets it open a volume more than once.
    life: u64,
    /// No PUT meets trouble any more.
    is_calm: bool,
    /// What its stores have warned of.
    warnings: Vec<String>,
    changed: Changed,
}

struct Change {
    offset: u64,
    data: Bytes,
    /// Written with FUA.
    kept: bool,
}

/// What comes back after the power was cut.
#[derive(Clone, Copy, Debug)]
pub enum Cut {
    /// Everything that was not flushed is gone.
    All,
    /// Each sector of each change may be.
    Some { lost_percent: u64 },
}

impl Disk {
    pub fn new(name: &str, image: Vec<u8>, habits: Habits, random: Random, log: Log) -> Disk {
        let service = habits.service.as_ref();
        let objects = service.map(|service| service::objects(&image, service.object));
        let state = State {
            objects: objects.unwrap_or_default(),
            on_the_way: 0,
            life: 0,
            is_calm: false,
            warnings: Vec::new(),
            habits,
            faults: Faults::default(),
            random,
            durable: image.clone(),
            current: image,
            volatile: VecDeque::new(),
            first: 0,
            owner: 0,
            requests: 0,
            busy: BinaryHeap::new(),
            changed: Changed::new(),
        };
        let (state, released, name) = (Mutex::new(state), Notify::new(), name.to_owned());
        Disk { shared: Arc::new(Shared { state, released, log, name }), write_log: None }
    }

    /// Puts a write log before a disk.
    pub fn behind(self, write_log: LogDisk) -> Disk {
        Disk { write_log: Some(Arc::new(write_log)), ..self }
    }

    /// Opens it for a server in this process: whoever had it before has it no more. A service may
    /// still be asked for by what is left in the same process.
    pub fn open(&self, life: u64) -> OpeningStore {
        let mut state = self.lock();
        state.owner += u64::from(state.habits.service.is_none() || state.life != life);
        state.life = life;
        let (owner, shared) = (state.owner, Arc::clone(&self.shared));
        let store: OpeningStore = match &state.habits.service {
            Some(service) => service::open(shared, owner, service.object),
            None => Box::pin(ready(Ok(Arc::new(DiskStore { shared, owner }) as _))),
        };
        match &self.write_log {
            Some(write_log) => write_log.open(store),
            None => store,
        }
    }

    pub fn is_service(&self) -> bool {
        self.lock().habits.service.is_some()
    }

    /// Nothing befalls a service any more.
    pub fn calm(&self) {
        self.lock().is_calm = true;
    }

    /// What a service's stores have warned of: that they make no changes any more.
    pub fn warnings(&self) -> Vec<String> {
        self.lock().warnings.clone()
    }

    /// The server that has it is no more. The system beneath goes on: nothing is lost.
    pub fn abandon(&self) {
        self.write_log.iter().for_each(|log| log.disk.abandon());
        self.lock().owner += 1;
        self.shared.released.notify_waiters();
    }

    /// The power fails: the sectors that went back in time, with values that they had.
    pub fn cut(&self, cut: Cut) -> Vec<(u64, Value)> {
        self.write_log.iter().for_each(|log| drop(log.disk.cut(cut)));
        let mut state = self.lock();
        state.owner += 1;
        let State { volatile, durable, random, .. } = &mut *state;
        let mut lost = Vec::new();
        for change in volatile.drain(..) {
            for (at, sector) in
                (change.offset..).step_by(SECTOR as usize).zip(change.data.chunks(SECTOR as usize))
            {
                let is_lost = match cut {
                    Cut::All => true,
                    Cut::Some { lost_percent } => random.percent(lost_percent),
                };
                if change.kept || !is_lost {
                    durable[at as usize..][..sector.len()].copy_from_slice(sector);
                    lost.retain(|(before, _)| *before != at / SECTOR);
                } else {
                    lost.push((at / SECTOR, values(sector, at / SECTOR)[0]));
                }
            }
        }
        let left = |&(at, value): &(u64, Value)| {
            values(&durable[(at * SECTOR) as usize..][..SECTOR as usize], at)[0] != value
        };
        lost.retain(left);
        state.current = state.durable.clone();
        // By itself, so that a disk without a level on flash does what it always did.
        let mut random = state.random.clone();
        state.changed.cut(&mut random);
        drop(state);
        self.shared.released.notify_waiters();
        lost
    }

    /// Changes what is wrong with it.
    pub fn set_faults(&self, change: impl FnOnce(&mut Faults)) {
        let mut state = self.lock();
        let requests = state.requests;
        let nth = state.faults.nth;
        change(&mut state.faults);
        if state.faults.nth != nth {
            state.faults.nth = state.faults.nth.map(|n| requests + n);
        }
        drop(state);
        self.shared.released.notify_waiters();
    }

    /// What never ends stays: bad ranges. Everything else is well again.
    pub fn heal(&self) {
        self.set_faults(|faults| {
            let bad_writes = std::mem::take(&mut faults.bad_writes);
            *faults = Faults { bad_writes, ..Faults::default() };
        });
    }

    /// Everything is well again.
    pub fn repair(&self) {
        self.set_faults(|faults| *faults = Faults::default());
    }

    /// Bytes that cannot be written.
    pub fn bad_writes(&self) -> Vec<Range<u64>> {
        self.lock().faults.bad_writes.clone()
    }

    /// Whether it never takes something that its write log has.
    pub fn fills_its_log(&self) -> bool {
        self.write_log.is_some() && !self.bad_writes().is_empty()
    }

    /// Whether it can be relied on that a write outside of the bad ranges will be taken. One behind
    /// a write log takes none while one before it cannot be taken.
    pub fn takes_writes(&self) -> bool {
        let state = self.lock();
        let faults = &state.faults;
        // A lease may have to be renewed first.
        let is_uneasy = state.habits.service.is_some() && !state.is_calm;
        let fails = faults.failing_writes + faults.failing_flushes > 0 || faults.full;
        // What fails once is tried again.
        let is_dead = faults.nth.is_some() && faults.dead_after;
        !(fails || is_dead || faults.stalled || is_uneasy || self.write_log.is_some())
    }

    /// It was asked too often for a run that goes forward.
    pub fn is_overrun(&self) -> bool {
        let is_overrun = self.lock().requests >= REQUESTS_MAX;
        is_overrun || self.write_log.as_ref().is_some_and(|log| log.disk.is_overrun())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.shared.lock()
    }
}

/// The disk, as one server sees it.
struct DiskStore {
    shared: Arc<Shared>,
    owner: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Read,
    Write,
    Flush,
}

/// A request on its way.
struct Ticket {
    shared: Arc<Shared>,
    owner: u64,
    number: u64,
    to_effect: u64,
    to_answer: u64,
    fails: Option<Failing>,
}

#[derive(Clone, Copy)]
enum Failing {
    Clean,
    Torn,
    Full,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn begin(self: &Arc<Self>, owner: u64, kind: Kind, what: (u64, u64)) -> Ticket {
        let mut state = self.lock();
        state.requests += 1;
        let (number, faults) = (state.requests, state.faults.clone());
        let State { habits, random, .. } = &mut *state;
        let mut wait = || match random.percent(habits.at_once) {
            true => 0,
            false => random.below(habits.slow_ms + 1),
        };
        let (mut to_effect, to_answer) = (wait(), wait());
        let failing = match kind {
            Kind::Read => faults.failing_reads,
            Kind::Write => faults.failing_writes,
            Kind::Flush => faults.failing_flushes,
        };
        let is_nth =
            faults.nth.is_some_and(|nth| number == nth || (number > nth && faults.dead_after));
        let is_full = faults.full && kind == Kind::Write;
        let fails = match (random.percent(failing) || is_nth, is_full) {
            (_, true) => Some(Failing::Full),
            (true, _) if faults.torn && random.percent(50) => Some(Failing::Torn),
            (true, _) => Some(Failing::Clean),
            _ => None,
        };
        if to_effect > 0 {
            to_effect += state.in_line(to_effect);
        }
        let (at, bytes) = what;
        self.log.line(|| {
            let how = if fails.is_some() { ", will fail" } else { "" };
            let blocks = (at / SECTOR, bytes / SECTOR);
            format!("{} {number} {kind:?} {blocks:?} {to_effect}+{to_answer} ms{how}", self.name)
        });
        Ticket { shared: Arc::clone(self), owner, number, to_effect, to_answer, fails }
    }
}

impl Shared {
    /// Waits until it does anything; for a server only while that is alive.
    async fn awake(&self, owner: Option<u64>) -> io::Result<MutexGuard<'_, State>> {
        loop {
            let mut released = std::pin::pin!(self.released.notified());
            released.as_mut().enable();
            {
                let state = self.lock();
                if owner.is_some_and(|owner| state.owner != owner) {
                    return Err(io::ErrorKind::BrokenPipe.into());
                }
                if state.requests >= REQUESTS_MAX {
                    break;
                }
                if !state.faults.stalled {
                    return Ok(state);
                }
            }
            released.await;
        }
        pending().await
    }
}

impl Ticket {
    /// Waits until the request takes effect.
    async fn effect(&self) -> io::Result<MutexGuard<'_, State>> {
        sleep(self.to_effect).await;
        self.shared.awake(Some(self.owner)).await
    }

    async fn answer<T>(&self, result: io::Result<T>) -> io::Result<T> {
        sleep(self.to_answer).await;
        if self.shared.lock().owner != self.owner {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        self.shared.log.line(|| {
            let how = if result.is_ok() { "done" } else { "failed" };
            format!("{} {} {how}", self.shared.name, self.number)
        });
        result
    }

    fn error(&self) -> io::Error {
        let kind = match self.fails {
            Some(Failing::Full) => io::ErrorKind::StorageFull,
            _ => io::ErrorKind::Other,
        };
        io::Error::new(kind, format!("{}: fails on purpose", self.shared.name))
    }

    /// Makes a change, as far as it succeeds.
    async fn change(self, offset: u64, data: Bytes, kept: bool) -> io::Result<()> {
        let result = {
            let mut state = self.effect().await?;
            let whole = offset..offset + data.len() as u64;
            let bad = state.faults.bad_writes.iter().find(|bad| overlap(bad, &whole)).cloned();
            let part = match (self.fails, bad) {
                (Some(Failing::Torn), _) => state.random.below(data.len() as u64 / SECTOR + 1),
                (Some(_), _) => 0,
                (None, Some(bad)) => bad.start.saturating_sub(offset) / SECTOR,
                (None, None) => u64::MAX,
            };
            let is_whole = part == u64::MAX;
            let taken = part.saturating_mul(SECTOR).min(data.len() as u64);
            state.put(offset, data.slice(..taken as usize), kept && is_whole);
            if is_whole { Ok(()) } else { Err(self.error()) }
        };
        self.answer(result).await
    }
}

impl State {
    /// Milliseconds until one of the places at the disk is free, which is taken for `ms` then.
    fn in_line(&mut self, ms: u64) -> u64 {
        let Some(most) = self.habits.at_a_time else { return 0 };
        let now = Instant::now();
        let free = if self.busy.len() < most { None } else { self.busy.pop() };
        let begins = free.map_or(now, |Reverse(at)| at.max(now));
        self.busy.push(Reverse(begins + Duration::from_millis(ms)));
        (begins - now).as_millis() as u64
    }

    fn put(&mut self, offset: u64, data: Bytes, kept: bool) {
        if !data.is_empty() {
            self.changed.note();
            self.current[offset as usize..][..data.len()].copy_from_slice(&data);
            let data = Bytes::copy_from_slice(&data);
            self.volatile.push_back(Change { offset, data, kept });
            if self.volatile.len() > VOLATILE_MAX {
                self.flush(self.first + 1);
            }
        }
    }

    /// Makes durable what has a smaller number.
    fn flush(&mut self, end: u64) {
        if end >= self.first + self.volatile.len() as u64 {
            self.changed.flushed();
        }
        while self.first < end {
            let Some(Change { offset, data, .. }) = self.volatile.pop_front() else { return };
            self.durable[offset as usize..][..data.len()].copy_from_slice(&data);
            self.first += 1;
        }
    }
}

fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

async fn sleep(ms: u64) {
    if ms > 0 {
        tokio::time::sleep(Duration::from_millis(ms)).await;
    }
}

impl Store for DiskStore {
    fn facts(&self) -> Facts {
        let state = self.shared.lock();
        Facts {
            size: state.current.len() as u64,
            alignment: state.habits.alignment,
            read_only: false,
            zeroes_fast: state.habits.zeroes_fast,
            name: format!("sim:{}", self.shared.name),
        }
    }

    fn read(&self, offset: u64, mut into: Vec<Buffer>) -> Answer<(Vec<Buffer>, io::Result<()>)> {
        let length = into.iter_mut().map(|buffer| (**buffer).as_mut().len() as u64).sum();
        let ticket = self.shared.begin(self.owner, Kind::Read, (offset, length));
        Box::pin(async move {
            let result = async {
                let mut state = ticket.effect().await?;
                let whole = offset..offset + length;
                let bad = state.faults.bad_reads.iter().any(|bad| overlap(bad, &whole));
                let mut at = offset as usize;
                for buffer in &mut into {
                    let buffer = (**buffer).as_mut();
                    buffer.copy_from_slice(&state.current[at..at + buffer.len()]);
                    at += buffer.len();
                    let flips = state.faults.flips;
                    if flips > 0 && length <= FLIPS_MAX && state.random.percent(flips) {
                        buffer[state.random.below(buffer.len() as u64) as usize] ^= 1;
                    }
                }
                if bad || ticket.fails.is_some() { Err(ticket.error()) } else { Ok(()) }
            };
            let result = result.await;
            let result = ticket.answer(result).await;
            (into, result)
        })
    }

    fn write(&self, offset: u64, data: Vec<Bytes>, durable: bool) -> Answer<io::Result<()>> {
        let data = Bytes::from(data.concat());
        let what = (offset, data.len() as u64);
        let ticket = self.shared.begin(self.owner, Kind::Write, what);
        Box::pin(ticket.change(offset, data, durable))
    }

    fn takes_many(&self) -> bool {
        self.shared.lock().habits.takes_many
    }

    fn write_many(&self, writes: Vec<ManyWrite>, _here: bool, written: ManyWritten) {
        let each: Vec<_> =
            writes.into_iter().map(|write| self.write(write.offset, write.data, false)).collect();
        tokio::spawn(async move { written(join_all(each).await) });
    }

    fn zero(
        &self,
        offset: u64,
        length: u64,
        how: Zeroing,
        durable: bool,
    ) -> Answer<io::Result<()>> {
        if how.only_if_fast && !self.facts().zeroes_fast {
            return Box::pin(async { Err(io::ErrorKind::Unsupported.into()) });
        }
        let ticket = self.shared.begin(self.owner, Kind::Write, (offset, length));
        let zeroes = Bytes::from(vec![0; length as usize]);
        Box::pin(ticket.change(offset, zeroes, durable))
    }

    fn trim(&self, offset: u64, length: u64, durable: bool) -> Answer<io::Result<()>> {
        let ticket = self.shared.begin(self.owner, Kind::Write, (offset, length));
        let length = if self.shared.lock().habits.trim_zeroes { length } else { 0 };
        Box::pin(ticket.change(offset, Bytes::from(vec![0; length as usize]), durable))
    }

    fn flush(&self) -> Answer<io::Result<()>> {
        let ticket = self.shared.begin(self.owner, Kind::Flush, (0, 0));
        let end = {
            let state = self.shared.lock();
            state.first + state.volatile.len() as u64
        };
        Box::pin(async move {
            let result = {
                let mut state = ticket.effect().await?;
                if ticket.fails.is_some() {
                    Err(ticket.error())
                } else {
                    state.flush(end);
                    Ok(())
                }
            };
            ticket.answer(result).await
        })
    }

    fn extents(&self, offset: u64, length: u64) -> Answer<io::Result<Vec<Extent>>> {
        let ticket = self.shared.begin(self.owner, Kind::Read, (offset, length));
        Box::pin(async move {
            let result = {
                let state = ticket.effect().await?;
                let bytes = &state.current[offset as usize..(offset + length) as usize];
                let mut extents = Vec::<Extent>::new();
                for sector in bytes.chunks(SECTOR as usize) {
                    let zero = sector.iter().all(|&byte| byte == 0);
                    match extents.last_mut() {
                        Some(last) if last.zero == zero => last.length += sector.len() as u64,
                        _ => extents.push(Extent { length: sector.len() as u64, hole: zero, zero }),
                    }
                }
                if ticket.fails.is_some() { Err(ticket.error()) } else { Ok(extents) }
            };
            ticket.answer(result).await
        })
    }

    fn reload(&self) -> Answer<io::Result<u64>> {
        let size = self.facts().size;
        Box::pin(async move { Ok(size) })
    }

    fn version(&self) -> Answer<Option<Version>> {
        let (shared, owner) = (Arc::clone(&self.shared), self.owner);
        Box::pin(async move {
            let state = shared.awake(Some(owner)).await.ok()?;
            Some(Version { identity: 1, changed_ns: state.changed.last_ns() })
        })
    }
}
