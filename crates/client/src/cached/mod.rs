//! An NBD client with a cache of its own, which tells the server what leaves the cache.
//!
//! Here: what a caller sees. Not here: the connections (`session.rs`), the order of operations
//! (`gate.rs`), what lies in the cache and what is said about it (`state.rs`), how a read or a
//! change goes on (`read.rs`, `change.rs`).

mod change;
mod gate;
mod options;
mod read;
mod session;
mod state;

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::{Notify, RwLock, oneshot};
use undercroft_cache::Level;
use undercroft_cache::policy::Context;
use undercroft_hints::{Abilities, ClientId, MessageAnswer, Told};
use undercroft_nbd::{ClientError, Failure, Line, LineId, Uri};

pub use options::{CachedOptions, CachedStats};
use session::{Operation, Session, Shape};
use state::State;

/// A connection with a cache in front. Clones share both. It closes, everything answered, when the
/// last one is dropped. The [crate] has an example.
///
/// Operations that touch a block in common take effect in the order in which they were first
/// polled; there is no such order between others, and an operation over several blocks is no unit
/// for another client. One that has begun is carried to its end also if its future is dropped.
/// Nobody else may change the volume meanwhile: what is in the cache would not be noticed to be
/// old. After a failed change the cache keeps nothing of the blocks concerned.
///
/// When the connection is lost, what was under way fails. The next operation connects again, and
/// fails if that is not possible; also what the cache could answer. After that the cache begins
/// empty, so that what is read is what the server has. If writes had been answered on the lost
/// connection and not flushed, the next [`flush`](Self::flush) says so.
#[derive(Clone)]
pub struct CachedClient {
    shared: Arc<Shared>,
}

/// What the server tells of its cache, to come.
type News = std::pin::Pin<Box<dyn Future<Output = Result<Told, ClientError>> + Send>>;

/// What callers and operations share.
struct Shared {
    state: Mutex<State>,
    /// The server, and what is wanted of it.
    uri: Uri,
    options: CachedOptions,
    /// What the server knows its connections by.
    id: LineId,
    line: Line,
    /// The last of the line's losses that the caller was told of.
    told: AtomicU64,
    /// Held by each operation. Who connects again waits until those on the lost connection have
    /// ended.
    running: Arc<RwLock<()>>,
    shape: Shape,
    /// Hints wait without a request that they could go with.
    hints_wait: Arc<Notify>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        // The flusher finds nobody left.
        self.hints_wait.notify_one();
    }
}

impl CachedClient {
    /// Connects, on the runtime that this is called on.
    ///
    /// # Errors
    /// When the server cannot be reached, refuses, or does not take the hints that `report` needs;
    /// when the policy cannot be made.
    pub async fn connect(uri: &Uri, options: &CachedOptions) -> Result<CachedClient, ClientError> {
        let below = options.below();
        let build = || {
            options.awareness().check()?;
            let policy = options.policy.build(&Context::new(options.blocks.max(1)))?;
            Level::of_policy(policy, options.write_mode, 0).knowing_below(&below)
        };
        let level = build().map_err(|error| ClientError::Refused(error.to_string()))?;
        let id = options.client_id.unwrap_or_else(ClientId::random);
        let line = LineId::default();
        let session = Session::open(uri, options, id, line.next()).await?;
        let shared = Arc::new(Shared {
            id: line,
            told: AtomicU64::new(0),
            line: Line::new(uri.to_string(), session.client.clone()),
            running: Arc::default(),
            shape: session.shape,
            state: Mutex::new(State::new(level, options, session)),
            uri: uri.clone(),
            options: options.clone(),
            hints_wait: Arc::new(Notify::new()),
        });
        if options.needs() != Abilities::default() {
            let wait = Arc::clone(&shared.hints_wait);
            tokio::spawn(flush_hints(Arc::downgrade(&shared), wait, options.flush_after));
        }
        Ok(CachedClient { shared })
    }

    /// Bytes of the volume.
    pub fn size(&self) -> u64 {
        self.shared.shape.size
    }

    /// Bytes of a block.
    pub fn block_bytes(&self) -> u32 {
        self.shared.shape.block as u32
    }

    /// Whether the connection has ended: the next operation makes a new one, or fails.
    pub fn is_lost(&self) -> bool {
        self.shared.lock().is_lost()
    }

    /// What was counted.
    pub fn stats(&self) -> CachedStats {
        self.shared.lock().stats()
    }

    /// Reads `length` bytes from `offset` on.
    ///
    /// # Errors
    /// When the range passes the volume's end, or the server fails.
    pub async fn read(&self, offset: u64, length: usize) -> Result<Bytes, ClientError> {
        let began = Instant::now();
        let bytes = self.shared.check(offset, length as u64)?;
        let data = if bytes.is_empty() {
            Ok(Bytes::new())
        } else if let Some(data) = self.shared.read_if_here(&bytes) {
            Ok(data)
        } else {
            let turn = Turn::enter(&self.shared, &bytes);
            finish(async move { turn.begin().await?.read(bytes).await }).await
        };
        let took = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.shared.lock().read_us_total += took;
        data
    }

    /// Writes `data` at `offset`, through to the server. `fua`: durable before the answer.
    ///
    /// # Errors
    /// When the range passes the volume's end, or the server fails. Then it is not known what is
    /// in the range.
    pub async fn write(&self, offset: u64, data: Bytes, fua: bool) -> Result<(), ClientError> {
        let bytes = self.shared.check(offset, data.len() as u64)?;
        if bytes.is_empty() {
            return Ok(());
        }
        let turn = Turn::enter(&self.shared, &bytes);
        finish(async move { turn.begin().await?.write(bytes, data, fua).await }).await
    }

    /// Makes everything durable that was answered before.
    ///
    /// # Errors
    /// When the server fails. [`ClientError::Unflushed`], once, when a connection was lost with
    /// changes that had been answered and not flushed.
    pub async fn flush(&self) -> Result<(), ClientError> {
        self.shared.check(0, 0)?;
        let shared = Arc::clone(&self.shared);
        // FLUSHes that are under way together tell it together.
        let told = shared.told.load(Ordering::SeqCst);
        finish(async move {
            let operation = Operation::begin(shared, None).await?;
            let shared = &operation.shared;
            if shared.tells_loss_since(told) {
                return Err(ClientError::Unflushed);
            }
            let flushed = shared.line.flush(&operation.channel).await;
            // A failure tells it as well; and what the server has lost must not be read here.
            if flushed.is_err() && shared.tells_loss_since(told) {
                shared.lock().forget_all();
            }
            flushed
        })
        .await
    }

    /// Says that the content of a range is no longer needed.
    ///
    /// # Errors
    /// When the range passes the volume's end, the server does not offer it, or fails.
    pub async fn trim(&self, offset: u64, length: u64) -> Result<(), ClientError> {
        let bytes = self.shared.check(offset, length)?;
        if bytes.is_empty() {
            return Ok(());
        }
        let turn = Turn::enter(&self.shared, &bytes);
        finish(async move { turn.begin().await?.trim(bytes).await }).await
    }

    /// Makes a range read as zeroes. `fua`: durable before the answer.
    ///
    /// # Errors
    /// When the range passes the volume's end, the server does not offer it, or fails.
    pub async fn write_zeroes(
        &self,
        offset: u64,
        length: u64,
        fua: bool,
    ) -> Result<(), ClientError> {
        let bytes = self.shared.check(offset, length)?;
        if bytes.is_empty() {
            return Ok(());
        }
        let turn = Turn::enter(&self.shared, &bytes);
        finish(async move { turn.begin().await?.write_zeroes(bytes, fua).await }).await
    }

    /// Waits until everything begun is answered, says good-bye and closes. Operations of other
    /// clones that come later fail.
    pub async fn close(self) {
        let client = self.shared.lock().close();
        client.close().await;
    }
}

/// Carries an operation to its end, whether or not its caller waits: others may wait for it.
async fn finish<T: Send + 'static>(
    operation: impl Future<Output = Result<T, ClientError>> + Send + 'static,
) -> Result<T, ClientError> {
    let ended = tokio::spawn(operation).await;
    // It panicked, or the runtime goes away.
    ended.unwrap_or_else(|error| Err(ClientError::Lost(error.to_string())))
}

/// An operation's place in the order. It leaves when this is dropped.
struct Turn {
    shared: Arc<Shared>,
    id: u64,
    turn: Option<oneshot::Receiver<()>>,
}

impl Turn {
    fn enter(shared: &Arc<Shared>, bytes: &Range<u64>) -> Turn {
        let blocks = shared.blocks(bytes);
        let (id, turn) = shared.lock().gate.enter(blocks);
        Turn { shared: Arc::clone(shared), id, turn }
    }

    /// Begins the operation when it is its turn.
    async fn begin(mut self) -> Result<Operation, ClientError> {
        if let Some(turn) = self.turn.take() {
            // The sender lives as long as the place in the order.
            let _ = turn.await;
        }
        Operation::begin(Arc::clone(&self.shared), Some(self)).await
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.shared.lock().gate.leave(self.id);
    }
}

impl Shared {
    /// Nothing that is called under the lock can panic half-way, so a poisoned one is sound.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether something was lost since the loss of this number; whoever asks tells it.
    fn tells_loss_since(&self, told: u64) -> bool {
        let losses = self.line.losses();
        self.told.fetch_max(losses, Ordering::SeqCst);
        losses > told
    }

    /// The range, if it lies within the volume and nobody has closed that.
    fn check(&self, offset: u64, length: u64) -> Result<Range<u64>, ClientError> {
        let size = self.shape.size;
        match offset.checked_add(length) {
            _ if self.lock().is_closed() => Err(state::closed()),
            Some(end) if end <= size => Ok(offset..end),
            _ => {
                let text = format!("{length} bytes at {offset} pass the end of {size} bytes");
                Err(ClientError::Server { failure: Failure::Invalid, text })
            }
        }
    }

    /// The blocks that a range of bytes touches.
    fn blocks(&self, bytes: &Range<u64>) -> Range<u64> {
        bytes.start / self.shape.block..bytes.end.div_ceil(self.shape.block)
    }

    /// The bytes of a block; the last one may be short.
    fn bytes_of(&self, block: u64) -> Range<u64> {
        let start = block * self.shape.block;
        start..self.shape.size.min(start + self.shape.block)
    }

    /// The parts of a range that go in one request each, cut at blocks.
    fn stretches(&self, bytes: Range<u64>) -> impl Iterator<Item = Range<u64>> + use<> {
        let request = self.shape.request;
        let mut at = bytes.start;
        std::iter::from_fn(move || {
            let start = at;
            at = bytes.end.min((start / request + 1) * request);
            (start < bytes.end).then_some(start..at)
        })
    }

    /// A message was answered, if one was sent.
    async fn hear(&self, answer: Option<MessageAnswer>) {
        if let Some(answer) = answer {
            // One that went with its connection was not refused.
            if let Err(ClientError::Server { .. }) = answer.await {
                self.lock().refused();
            }
        }
    }

    /// Takes in what the server told of its cache, all of it.
    async fn hear_news(&self, told: Option<News>) -> Result<(), ClientError> {
        let Some(told) = told else { return Ok(()) };
        let mut told = told.await?;
        loop {
            let (more, again) = self.lock().told(&told);
            self.hear(again).await;
            let rest = if more > 0 { self.lock().ask_more(more) } else { None };
            match rest {
                Some(rest) => told = rest.await?,
                None => return Ok(()),
            }
        }
    }

    /// If hints are left behind, sees to it that they are sent before long.
    fn remind(&self, state: &State) {
        if state.has_hints() {
            self.hints_wait.notify_one();
        }
    }
}

/// Sends hints that no request has taken along for so long.
async fn flush_hints(shared: Weak<Shared>, wait: Arc<Notify>, after: Duration) {
    loop {
        wait.notified().await;
        tokio::time::sleep(after).await;
        let Some(shared) = shared.upgrade() else { return };
        let away = shared.lock().message_away();
        if let Some(away) = away {
            away.over().await;
        }
        let answer = shared.lock().message(Instant::now(), true);
        shared.hear(answer).await;
        let state = shared.lock();
        shared.remind(&state);
    }
}
