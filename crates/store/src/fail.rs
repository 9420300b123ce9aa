//! A store that fails on purpose, by a rule that counts requests or draws random numbers: equal
//! sequences of requests fail in the same way. A test controls it through its [`FailHandle`].

mod spec;

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use rustix::io::Errno;
use tokio::sync::watch;

use crate::medium::{buffers_bytes, cut, pieces_bytes, ready, wrap};
use crate::store::{Answer, Buffer, Extent, Facts, Store, Zeroing};
use undercroft_random::SplitMix64;

pub(crate) use spec::KINDS;

/// The kinds of requests that can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestKind {
    /// [`Store::read`].
    Read,
    /// [`Store::write`].
    Write,
    /// [`Store::zero`].
    Zero,
    /// [`Store::trim`].
    Trim,
    /// [`Store::flush`].
    Flush,
    /// [`Store::extents`].
    Extents,
}

/// Which requests of the given kind fail, counted from 1 since the rule was set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Trigger {
    /// This one.
    Nth(u64),
    /// This one and all after it.
    From(u64),
    /// Every n-th request.
    Every(u64),
    /// Requests that touch bytes in `from..to`: a bad place on the medium.
    Within {
        /// First byte.
        from: u64,
        /// The byte behind the last one.
        to: u64,
    },
    /// Each request with this probability, drawn with this seed.
    Chance {
        /// From 0 (never) to 1 (always).
        probability: f64,
        /// Seed of the random numbers.
        seed: u64,
    },
}

/// What happens to a failing request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// It has no effect and fails.
    Error(FailWith),
    /// Its first half takes effect (a flush: all of it), and then it fails.
    Short(FailWith),
    /// It waits this long, or until [`FailHandle::release`], and then proceeds normally. `None`: no
    /// time limit. A time limit needs a tokio runtime with timers.
    Stall(Option<Duration>),
}

/// The error that a request fails with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FailWith {
    /// EIO.
    #[default]
    Io,
    /// ENOSPC.
    NoSpace,
    /// ENOMEM.
    NoMemory,
}

/// Which requests fail, and how.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FailRule {
    /// The kind of requests; `None`: all kinds.
    pub kind: Option<RequestKind>,
    /// Which requests of that kind.
    pub trigger: Trigger,
    /// How they fail.
    pub failure: Failure,
}

/// The failing store.
pub struct FailStore {
    inner: Arc<dyn Store>,
    handle: FailHandle,
}

/// Controls a [`FailStore`].
#[derive(Clone)]
pub struct FailHandle {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    /// Notified on each release.
    release: watch::Sender<()>,
}

struct State {
    rule: Option<FailRule>,
    random: SplitMix64,
    seen: u64,
    failed: u64,
}

impl FailHandle {
    /// Sets another rule, or none, and restarts the count.
    pub fn set(&self, rule: Option<FailRule>) {
        *self.lock() = State::new(rule);
    }

    /// Lets all stalled requests proceed.
    pub fn release(&self) {
        self.shared.release.send_replace(());
    }

    /// Requests to which the rule has applied since it was set.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.lock().failed
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a request, and returns what happens to it.
    fn meet(&self, kind: RequestKind, (offset, length): (u64, u64)) -> Fate {
        // Subscribes first, so that a release right afterwards is not missed.
        let released = self.shared.release.subscribe();
        match self.lock().meet(kind, offset, offset.saturating_add(length)) {
            None => Fate::Pass,
            Some(Failure::Error(with)) => Fate::Fail(with),
            Some(Failure::Short(with)) => Fate::Short(with),
            Some(Failure::Stall(time)) => Fate::Stall(Stall { time, released }),
        }
    }
}

impl State {
    fn new(rule: Option<FailRule>) -> State {
        let seed = match rule {
            Some(FailRule { trigger: Trigger::Chance { seed, .. }, .. }) => seed,
            _ => 0,
        };
        State { rule, random: SplitMix64::new(seed), seen: 0, failed: 0 }
    }

    fn meet(&mut self, kind: RequestKind, start: u64, end: u64) -> Option<Failure> {
        let rule = self.rule?;
        if rule.kind.is_some_and(|only| only != kind) {
            return None;
        }
        self.seen += 1;
        let met = match rule.trigger {
            Trigger::Nth(n) => self.seen == n,
            Trigger::From(n) => self.seen >= n,
            Trigger::Every(n) => n > 0 && self.seen % n == 0,
            Trigger::Within { from, to } => start < to && from < end,
            Trigger::Chance { probability, .. } => self.random.next_f64() < probability,
        };
        self.failed += u64::from(met);
        met.then_some(rule.failure)
    }
}

/// The treatment of one request.
enum Fate {
    Pass,
    Fail(FailWith),
    Short(FailWith),
    Stall(Stall),
}

struct Stall {
    time: Option<Duration>,
    released: watch::Receiver<()>,
}

impl Stall {
    async fn pass(mut self) {
        // An error means that the store and all its handles are gone, so nobody can release it.
        let released = self.released.changed();
        match self.time {
            Some(time) => drop(tokio::time::timeout(time, released).await),
            None => drop(released.await),
        }
    }
}

impl FailWith {
    fn error(self, name: &str, doing: &'static str) -> io::Error {
        let errno = match self {
            FailWith::Io => Errno::IO,
            FailWith::NoSpace => Errno::NOSPC,
            FailWith::NoMemory => Errno::NOMEM,
        };
        wrap(format!("{name}: {doing} fails on purpose"), errno.into())
    }
}

impl FailStore {
    /// Puts a rule in front of a store.
    pub fn new(inner: Arc<dyn Store>, rule: Option<FailRule>) -> FailStore {
        let state = Mutex::new(State::new(rule));
        let shared = Arc::new(Shared { state, release: watch::Sender::new(()) });
        FailStore { inner, handle: FailHandle { shared } }
    }

    /// The handle that controls it.
    #[must_use]
    pub fn handle(&self) -> FailHandle {
        self.handle.clone()
    }

    /// A request without buffers: `part` sends its first half.
    fn ask<T: Send + 'static>(
        &self,
        (kind, doing): (RequestKind, &'static str),
        range: (u64, u64),
        all: impl FnOnce(&dyn Store) -> Answer<io::Result<T>> + Send + 'static,
        part: impl FnOnce(&dyn Store) -> Answer<io::Result<()>> + Send + 'static,
    ) -> Answer<io::Result<T>> {
        let inner = Arc::clone(&self.inner);
        match self.handle.meet(kind, range) {
            Fate::Pass => all(&*inner),
            Fate::Fail(with) => {
                Box::pin(async move { Err(with.error(&inner.facts().name, doing)) })
            }
            Fate::Short(with) => Box::pin(async move {
                part(&*inner).await?;
                Err(with.error(&inner.facts().name, doing))
            }),
            Fate::Stall(stall) => Box::pin(async move {
                stall.pass().await;
                all(&*inner).await
            }),
        }
    }

    /// Half of a length, rounded down to the alignment.
    fn half(&self, length: u64) -> u64 {
        let alignment = u64::from(self.inner.facts().alignment);
        length / 2 / alignment * alignment
    }
}

impl Store for FailStore {
    fn inner(&self) -> Option<&dyn Store> {
        Some(&*self.inner)
    }

    fn facts(&self) -> Facts {
        let facts = self.inner.facts();
        Facts { name: format!("fail:{}", facts.name), ..facts }
    }

    fn read(&self, offset: u64, mut into: Vec<Buffer>) -> Answer<(Vec<Buffer>, io::Result<()>)> {
        let inner = Arc::clone(&self.inner);
        let length = buffers_bytes(&mut into);
        match self.handle.meet(RequestKind::Read, (offset, length)) {
            Fate::Pass => inner.read(offset, into),
            Fate::Fail(with) => {
                Box::pin(async move { (into, Err(with.error(&inner.facts().name, "read"))) })
            }
            Fate::Short(with) => Box::pin(async move {
                let (mut into, result) = inner.read(offset, into).await;
                // The second half is overwritten, because callers must not use it.
                let mut skip = length - length / 2;
                for buffer in &mut into {
                    let buffer = (**buffer).as_mut();
                    let kept = skip.min(buffer.len() as u64);
                    skip -= kept;
                    buffer[kept as usize..].fill(0xdb);
                }
                (into, result.and_then(|()| Err(with.error(&inner.facts().name, "read"))))
            }),
            Fate::Stall(stall) => Box::pin(async move {
                stall.pass().await;
                inner.read(offset, into).await
            }),
        }
    }

    fn write(&self, offset: u64, data: Vec<Bytes>, durable: bool) -> Answer<io::Result<()>> {
        let length = pieces_bytes(&data);
        let half = self.half(length);
        let first = cut(&data, 0, half);
        self.ask(
            (RequestKind::Write, "write"),
            (offset, length),
            move |store| store.write(offset, data, durable),
            move |store| store.write(offset, first, durable),
        )
    }

    fn zero(
        &self,
        offset: u64,
        length: u64,
        how: Zeroing,
        durable: bool,
    ) -> Answer<io::Result<()>> {
        let half = self.half(length);
        self.ask(
            (RequestKind::Zero, "zero"),
            (offset, length),
            move |store| store.zero(offset, length, how, durable),
            move |store| store.zero(offset, half, how, durable),
        )
    }

    fn trim(&self, offset: u64, length: u64, durable: bool) -> Answer<io::Result<()>> {
        let half = self.half(length);
        self.ask(
            (RequestKind::Trim, "trim"),
            (offset, length),
            move |store| store.trim(offset, length, durable),
            move |store| store.trim(offset, half, durable),
        )
    }

    fn flush(&self) -> Answer<io::Result<()>> {
        let whole = (0, self.inner.facts().size);
        let kind = (RequestKind::Flush, "flush");
        self.ask(kind, whole, |store| store.flush(), |store| store.flush())
    }

    fn extents(&self, offset: u64, length: u64) -> Answer<io::Result<Vec<Extent>>> {
        self.ask(
            (RequestKind::Extents, "extents"),
            (offset, length),
            move |store| store.extents(offset, length),
            |_| ready(Ok(())),
        )
    }

    fn reload(&self) -> Answer<io::Result<u64>> {
        self.inner.reload()
    }
}
