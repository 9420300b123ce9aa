//! An NBD client with its own cache, which tells the server about evicted blocks.
//!
//! Here: the interface for callers. Not here: the connections (`session.rs`), the order of
//! operations (`gate.rs`), the cached blocks and the hints about them (`state.rs`), reads and
//! changes (`read.rs`, `change.rs`).

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
use undercroft_hints::{Abilities, ClientId, MessageAnswer, Told};
use undercroft_level::UpperLevel;
use undercroft_nbd::{ClientError, ReconnectId, ReconnectingClient, Uri};
use undercroft_policy::Context;

pub use options::{CachedOptions, CachedStats};
use session::{Operation, Session, Shape};
use state::State;

/// Most answers of the server about its cache for which an operation waits.
const ANSWERS_MAX: usize = 64;

/// A connection with a cache in front. Clones share both. When the last clone is dropped, the
/// connection closes after everything is answered. The [crate] has an example.
///
/// Operations that share a block take effect in the order in which they were first polled; other
/// operations have no fixed order. An operation over several blocks is not atomic for other
/// clients. Once started, an operation runs to its end even if its future is dropped. Nobody else
/// may change the volume meanwhile: the cache would not notice that its content is old. After a
/// failed change the cache drops the blocks concerned.
///
/// When the connection is lost, all running operations fail. The next operation reconnects. If that
/// is not possible it fails, even if the cache could answer it. After reconnecting the cache is
/// empty, so that reads return what the server has. If writes had been answered on the lost
/// connection and not flushed, the next [`flush`](Self::flush) reports that.
#[derive(Clone)]
pub struct CachedClient {
    shared: Arc<Shared>,
}

/// A pending answer of the server about the content of its cache.
type News = std::pin::Pin<Box<dyn Future<Output = Result<Told, ClientError>> + Send>>;

/// State shared by callers and operations.
struct Shared {
    state: Mutex<State>,
    /// The server's address.
    uri: Uri,
    options: CachedOptions,
    /// The identity by which the server recognises this client's successive connections.
    id: ReconnectId,
    line: ReconnectingClient,
    /// Number of the last loss on the line that the caller was told of.
    told: AtomicU64,
    /// Held shared by each operation. Reconnecting takes it exclusively, and so waits until the
    /// operations on the lost connection have ended.
    running: Arc<RwLock<()>>,
    shape: Shape,
    /// Notified when hints wait and no request is there to take them along.
    hints_wait: Arc<Notify>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        // Wakes the task that sends waiting hints, so that it ends.
        self.hints_wait.notify_one();
    }
}

impl CachedClient {
    /// Connects, and runs the connection on the current runtime.
    ///
    /// # Errors
    /// The server cannot be reached, refuses, or does not take the hints that `report` needs; or
    /// the policy cannot be built.
    pub async fn connect(uri: &Uri, options: &CachedOptions) -> Result<CachedClient, ClientError> {
        let below = options.below();
        let build = || {
            options.awareness().check()?;
            let policy = options.policy.build(&Context::new(options.blocks.max(1)))?;
            UpperLevel::new(policy, options.write_mode, &below)
        };
        let level = build().map_err(|error| ClientError::Refused(error.to_string()))?;
        let id = options.client_id.unwrap_or_else(ClientId::random);
        let line = ReconnectId::default();
        let session = Session::open(uri, options, id, line.next()).await?;
        let shared = Arc::new(Shared {
            id: line,
            told: AtomicU64::new(0),
            line: ReconnectingClient::new(uri.to_string(), session.client.clone()),
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

    /// Whether the connection is lost: the next operation reconnects, or fails.
    pub fn is_lost(&self) -> bool {
        self.shared.lock().is_lost()
    }

    /// The counters.
    pub fn stats(&self) -> CachedStats {
        self.shared.lock().stats()
    }

    /// Reads `length` bytes from `offset` on.
    ///
    /// # Errors
    /// The range passes the volume's end, or the server fails.
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

    /// Writes `data` at `offset`, through to the server. With `fua` the data are durable before the
    /// answer.
    ///
    /// # Errors
    /// The range passes the volume's end, or the server fails. After a failure the content of the
    /// range is unknown.
    pub async fn write(&self, offset: u64, data: Bytes, fua: bool) -> Result<(), ClientError> {
        let bytes = self.shared.check(offset, data.len() as u64)?;
        if bytes.is_empty() {
            return Ok(());
        }
        let turn = Turn::enter(&self.shared, &bytes);
        finish(async move { turn.begin().await?.write(bytes, data, fua).await }).await
    }

    /// Makes everything durable that was answered before this call.
    ///
    /// # Errors
    /// The server fails. [`ClientError::Unflushed`] is reported once for each lost connection with
    /// changes that had been answered and not flushed.
    pub async fn flush(&self) -> Result<(), ClientError> {
        self.shared.check(0, 0)?;
        let shared = Arc::clone(&self.shared);
        // FLUSHes that run at the same time all report a loss.
        let told = shared.told.load(Ordering::SeqCst);
        finish(async move {
            let operation = Operation::begin(shared, None).await?;
            let shared = &operation.shared;
            if shared.tells_loss_since(told) {
                return Err(ClientError::Unflushed);
            }
            let flushed = shared.line.flush(&operation.channel).await;
            if flushed.is_err() {
                // That reports the loss as well.
                shared.tells_loss_since(told);
                shared.forget_lost(&flushed);
            }
            flushed
        })
        .await
    }

    /// Tells the server that the content of a range is no longer needed (TRIM).
    ///
    /// # Errors
    /// The range passes the volume's end, or the server does not offer TRIM or fails.
    pub async fn trim(&self, offset: u64, length: u64) -> Result<(), ClientError> {
        let bytes = self.shared.check(offset, length)?;
        if bytes.is_empty() {
            return Ok(());
        }
        let turn = Turn::enter(&self.shared, &bytes);
        finish(async move { turn.begin().await?.trim(bytes).await }).await
    }

    /// Makes a range read as zeroes. With `fua` this is durable before the answer.
    ///
    /// # Errors
    /// The range passes the volume's end, or the server does not offer WRITE_ZEROES or fails.
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

    /// Waits until all running operations are answered, disconnects and closes. Later operations of
    /// other clones fail.
    pub async fn close(self) {
        let client = self.shared.lock().close();
        client.close().await;
    }
}

/// Runs an operation to its end even if its caller stops waiting: other operations may depend on
/// it.
async fn finish<T: Send + 'static>(
    operation: impl Future<Output = Result<T, ClientError>> + Send + 'static,
) -> Result<T, ClientError> {
    let ended = tokio::spawn(operation).await;
    // The operation panicked, or the runtime is shutting down.
    ended.unwrap_or_else(|error| Err(ClientError::Lost(error.to_string())))
}

/// An operation's place in the order; dropping it leaves the order.
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

    /// Starts the operation when it is its turn.
    async fn begin(mut self) -> Result<Operation, ClientError> {
        if let Some(turn) = self.turn.take() {
            // The sender lives as long as the place in the order, so there is no error.
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
    /// A poisoned lock is sound: nothing that runs under it panics half-way.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a loss later than number `told` happened. The caller must report it: it counts as
    /// reported.
    fn tells_loss_since(&self, told: u64) -> bool {
        let losses = self.line.losses();
        self.told.fetch_max(losses, Ordering::SeqCst);
        losses > told
    }

    /// The range in bytes, if it lies within the volume and the client is not closed.
    fn check(&self, offset: u64, length: u64) -> Result<Range<u64>, ClientError> {
        let size = self.shape.size;
        match offset.checked_add(length) {
            _ if self.lock().is_closed() => Err(state::closed()),
            Some(end) if end <= size => Ok(offset..end),
            _ => {
                let text = format!("{length} bytes at {offset} pass the end of {size} bytes");
                Err(ClientError::Argument(text))
            }
        }
    }

    /// The blocks that a range of bytes touches.
    fn blocks(&self, bytes: &Range<u64>) -> Range<u64> {
        bytes.start / self.shape.block..bytes.end.div_ceil(self.shape.block)
    }

    /// The bytes of a block; the volume's last block may be short.
    fn bytes_of(&self, block: u64) -> Range<u64> {
        let start = block * self.shape.block;
        start..self.shape.size.min(start + self.shape.block)
    }

    /// Splits a range into parts that fit one request each, at block boundaries.
    fn stretches(&self, bytes: Range<u64>) -> impl Iterator<Item = Range<u64>> + use<> {
        let request = self.shape.request;
        let mut at = bytes.start;
        std::iter::from_fn(move || {
            let start = at;
            at = bytes.end.min((start / request + 1) * request);
            (start < bytes.end).then_some(start..at)
        })
    }

    /// Awaits the answer to a message, if one was sent.
    async fn hear(&self, answer: Option<MessageAnswer>) {
        if let Some(answer) = answer {
            // A message lost with its connection counts as not refused.
            if let Err(ClientError::Server { .. }) = answer.await {
                self.lock().refused();
            }
        }
    }

    /// Reads what the server tells about its cache, and leaves what is long to the next time.
    async fn hear_news(&self, told: Option<News>) -> Result<(), ClientError> {
        let Some(told) = told else { return Ok(()) };
        let mut told = told.await?;
        for left in (0..ANSWERS_MAX).rev() {
            let (more, again) = self.lock().told(&told);
            self.hear(again).await;
            let rest = if more > 0 && left > 0 { self.lock().ask_more(more) } else { None };
            match rest {
                Some(rest) => told = rest.await?,
                None => break,
            }
        }
        Ok(())
    }

    /// If hints wait, makes sure that they are sent soon.
    fn remind(&self, state: &State) {
        if state.has_hints() {
            self.hints_wait.notify_one();
        }
    }
}

/// Sends hints that no request has taken along within `after`.
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
