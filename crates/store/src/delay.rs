//! A store that delays requests: a disk with a service time and a queue, in front of another store.
//!
//! Only reads, writes, zeroes, trims and flushes are delayed. The time of each is fixed when it is
//! requested, so the schedule does not depend on when answers are polled. The other store gets the
//! request when that time has come, so that a change takes effect then and not earlier. This needs
//! a tokio runtime with timers, whose resolution is one millisecond: the schedule keeps shorter
//! times, but an answer may come up to a millisecond late.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, sleep_until};
use undercroft_text::Time;

use crate::kind::{Description, Kind, StoreSpec, Words};
use crate::open::{OpenOptions, invalid};
use crate::parse::{Parsed, TIME_MAX, Text, write_options};
use crate::store::{Answer, Buffer, Extent, Facts, Store, Zeroing};
use undercroft_random::SplitMix64;

/// How long requests take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delay {
    /// Shortest service time.
    pub min: Duration,
    /// Longest service time; each request's time is drawn uniformly. Equal to `min`: a fixed time.
    pub max: Duration,
    /// Requests served at the same time, at least 1; further ones wait in order. `None`: no limit.
    pub queue: Option<u32>,
    /// Seed of the random times.
    pub seed: u64,
}

impl Delay {
    /// Longest service time that is accepted.
    pub const MAX: Duration = TIME_MAX;

    /// Most requests served at the same time.
    pub const QUEUE_MAX: u32 = 65_536;
}

pub(crate) static KINDS: [Kind; 1] = [Kind {
    name: "delay",
    form: "delay(...):STORE",
    summary: "a disk that takes its time, for tests",
    parse,
}];

/// The specification of a delayed store: `delay(2ms..8ms,queue=4,seed=1):STORE`.
#[derive(Debug)]
struct DelaySpec {
    delay: Delay,
    inner: StoreSpec,
}

/// The error text for a missing time.
const TIME_EXPECTED: &str = "a time, as in delay(5ms): or delay(2ms..8ms):";

fn parse(words: &Words<'_>) -> Parsed<StoreSpec> {
    let rest = words.place()?;
    let Some(inside) = words.inside else { return rest.fail(TIME_EXPECTED) };
    Ok(StoreSpec::new(DelaySpec { delay: delay(inside)?, inner: words.store(rest)? }))
}

fn delay(inside: Text<'_>) -> Parsed<Delay> {
    let options = inside.options();
    let Some(((first, None), options)) = options.split_first() else {
        return inside.fail(TIME_EXPECTED);
    };
    let (min, max) = first.split("..");
    let max = max.unwrap_or(min);
    let mut delay = Delay { min: min.time()?, max: max.time()?, queue: None, seed: 0 };
    if delay.min > delay.max {
        return max.fail("a time that is not below the first");
    }
    for (name, value) in options {
        match (name.text(), value) {
            ("queue", Some(value)) => {
                let most = u64::from(Delay::QUEUE_MAX);
                delay.queue = Some(value.number(1, most, "1 to 65536 requests")? as u32);
            }
            ("seed", Some(value)) => delay.seed = value.number(0, u64::MAX, "a number")?,
            _ => return name.fail("queue=N or seed=N"),
        }
    }
    Ok(delay)
}

impl Description for DelaySpec {
    fn open(&self, options: OpenOptions) -> Answer<io::Result<Arc<dyn Store>>> {
        let (inner, delay) = (self.inner.open(options), self.delay);
        Box::pin(async move { Ok(Arc::new(DelayStore::new(inner.await?, delay)?) as _) })
    }

    fn parts(&self) -> &[StoreSpec] {
        std::slice::from_ref(&self.inner)
    }

    fn is_wrapper(&self) -> bool {
        true
    }
}

impl fmt::Display for DelaySpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Delay { min, max, queue, seed } = self.delay;
        let max = if min == max { String::new() } else { format!("..{}", Time(max)) };
        let queue = queue.map(|queue| format!("queue={queue}"));
        let seed = (seed != 0).then(|| format!("seed={seed}"));
        f.write_str("delay")?;
        write_options(f, [Some(format!("{}{max}", Time(min))), queue, seed])?;
        write!(f, ":{}", self.inner)
    }
}

/// The delaying store.
pub struct DelayStore {
    inner: Arc<dyn Store>,
    delay: Delay,
    schedule: Mutex<Schedule>,
}

struct Schedule {
    random: SplitMix64,
    /// When each place in the queue becomes free.
    free: BinaryHeap<Reverse<Instant>>,
}

impl DelayStore {
    /// Puts a delay in front of a store.
    ///
    /// # Errors
    /// The times are not in order or beyond [`Delay::MAX`], or the queue is 0 or too long.
    pub fn new(inner: Arc<dyn Store>, delay: Delay) -> io::Result<DelayStore> {
        let queue_fits = delay.queue.is_none_or(|queue| (1..=Delay::QUEUE_MAX).contains(&queue));
        if delay.min > delay.max || delay.max > Delay::MAX || !queue_fits {
            return Err(invalid(&format!(
                "delay: times in order and up to {} s, a queue of 1 to {}",
                Delay::MAX.as_secs(),
                Delay::QUEUE_MAX
            )));
        }
        let schedule = Schedule { random: SplitMix64::new(delay.seed), free: BinaryHeap::new() };
        Ok(DelayStore { inner, delay, schedule: Mutex::new(schedule) })
    }

    /// Takes a place in the queue. Returns when the request will have been served.
    fn turn(&self) -> Instant {
        let now = Instant::now();
        let mut schedule = self.schedule.lock().unwrap_or_else(PoisonError::into_inner);
        let spread = self.delay.max - self.delay.min;
        let service = self.delay.min + spread.mul_f64(schedule.random.next_f64());
        let Some(queue) = self.delay.queue else { return now + service };
        let free = &mut schedule.free;
        let start = if free.len() < queue as usize {
            now
        } else {
            free.pop().map_or(now, |Reverse(at)| at.max(now))
        };
        free.push(Reverse(start + service));
        start + service
    }

    fn wait<T: 'static>(
        &self,
        ask: impl FnOnce(&dyn Store) -> Answer<T> + Send + 'static,
    ) -> Answer<T> {
        let served = self.turn();
        let inner = Arc::clone(&self.inner);
        Box::pin(async move {
            sleep_until(served).await;
            ask(&*inner).await
        })
    }
}

impl Store for DelayStore {
    fn inner(&self) -> Option<&dyn Store> {
        Some(&*self.inner)
    }

    fn facts(&self) -> Facts {
        let facts = self.inner.facts();
        Facts { name: format!("delay:{}", facts.name), ..facts }
    }

    fn read(&self, offset: u64, into: Vec<Buffer>) -> Answer<(Vec<Buffer>, io::Result<()>)> {
        self.wait(move |store| store.read(offset, into))
    }

    fn write(&self, offset: u64, data: Vec<Bytes>, durable: bool) -> Answer<io::Result<()>> {
        self.wait(move |store| store.write(offset, data, durable))
    }

    fn zero(
        &self,
        offset: u64,
        length: u64,
        how: Zeroing,
        durable: bool,
    ) -> Answer<io::Result<()>> {
        self.wait(move |store| store.zero(offset, length, how, durable))
    }

    fn trim(&self, offset: u64, length: u64, durable: bool) -> Answer<io::Result<()>> {
        self.wait(move |store| store.trim(offset, length, durable))
    }

    fn flush(&self) -> Answer<io::Result<()>> {
        self.wait(|store| store.flush())
    }

    fn extents(&self, offset: u64, length: u64) -> Answer<io::Result<Vec<Extent>>> {
        self.inner.extents(offset, length)
    }

    fn reload(&self) -> Answer<io::Result<u64>> {
        self.inner.reload()
    }
}
