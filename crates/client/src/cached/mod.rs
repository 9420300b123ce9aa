//! An NBD client with a cache of its own, which tells the server what leaves the cache.
//!
//! Here: what a caller sees. Not here: the order of operations (`gate.rs`), what lies in the cache
//! and what is said about it (`state.rs`), how a read or a change goes on (`read.rs`, `change.rs`).

mod change;
mod gate;
mod options;
mod read;
mod state;

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::{Notify, oneshot};
use undercroft_cache::content::{Below, Upper};
use undercroft_cache::policy::Context;
use undercroft_nbd::coop::Abilities;
use undercroft_nbd::{Client, ClientError, Failure, Uri};

use crate::following::follow;
pub use options::{CachedOptions, CachedStats};
use state::State;
use undercroft_nbd::hint::Told;
use undercroft_nbd::report::{Answer, Mailbox, client_id};

/// Bytes of a block where no server says it.
const BLOCK_BYTES: u32 = 4096;

/// Most bytes of a request to the server. Longer operations take several.
const REQUEST_BYTES: u64 = 1 << 20;

/// A connection with a cache in front. Clones share both. It closes, everything answered, when the
/// last one is dropped.
///
/// Operations that touch a block in common take effect in the order in which they were first
/// polled; there is no such order between others, and an operation over several blocks is no unit
/// for another client. One that has begun is carried to its end also if its future is dropped.
/// Nobody else may change the volume meanwhile: what is in the cache would not be noticed to be
/// old. After a failed change the cache keeps nothing of the blocks concerned. Once the connection
/// is lost everything fails, also what the cache could answer.
#[derive(Clone)]
pub struct CachedClient {
    shared: Arc<Shared>,
}

/// What the server tells of its cache, to come.
type News = std::pin::Pin<Box<dyn Future<Output = Result<Told, ClientError>> + Send>>;

/// What callers and operations share.
struct Shared {
    state: Mutex<State>,
    client: Client,
    size: u64,
    block_bytes: u64,
    /// Most bytes of a request, whole blocks.
    request_bytes: u64,
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
        let follows = matches!(below, Below::Told | Below::Digests);
        let build = || {
            options.awareness().check()?;
            let policy = options.policy.build(&Context::new(options.blocks.max(1)))?;
            Upper::new(policy, options.write_mode, below)
        };
        let level = build().map_err(|error| ClientError::Refused(error.to_string()))?;
        let follow = follows.then(|| follow(&options.awareness(), options.blocks.max(1)));
        let needs = Abilities { follow: follows, ..options.report.needs() };
        let (client, mailbox, size, block_bytes) = match needs == Abilities::default() {
            true => {
                let client = Client::connect(uri, &options.options).await?;
                let info = &client.remote().info;
                let (size, preferred) = (info.size, info.preferred_block);
                let fits = preferred.is_power_of_two() && (512..=64 << 10).contains(&preferred);
                let block_bytes = if fits { preferred } else { BLOCK_BYTES };
                let block_bytes = block_bytes.max(info.min_block);
                (client, None, size, block_bytes)
            }
            false => {
                // The session itself is told of the window, too; the volume's size is another.
                let size = Client::describe(uri, &options.options).await?.info.size;
                let id = options.client_id.unwrap_or_else(client_id);
                let mut mailbox = Mailbox::asking_for(uri, &options.options, needs, id).await?;
                if let Some(follow) = follow {
                    mailbox.follow(follow).await?;
                }
                let block_bytes = mailbox.grant().block_bytes;
                (mailbox.client().clone(), Some(mailbox), size, block_bytes)
            }
        };
        let (info, block_bytes) = (&client.remote().info, u64::from(block_bytes));
        let most = u64::from(info.max_block).min(REQUEST_BYTES);
        if block_bytes > most || block_bytes % u64::from(info.min_block) != 0 {
            let unit = info.min_block;
            let text = format!(
                "blocks are of {block_bytes} bytes, requests of {most} at most, in units of {unit}"
            );
            return Err(ClientError::Refused(text));
        }
        let shared = Arc::new(Shared {
            state: Mutex::new(State::new(level, options, mailbox, follow)),
            client,
            size,
            block_bytes,
            request_bytes: most - most % block_bytes,
            hints_wait: Arc::new(Notify::new()),
        });
        if needs != Abilities::default() {
            let wait = Arc::clone(&shared.hints_wait);
            tokio::spawn(flush_hints(Arc::downgrade(&shared), wait, options.flush_after));
        }
        Ok(CachedClient { shared })
    }

    /// Bytes of the volume.
    pub fn size(&self) -> u64 {
        self.shared.size
    }

    /// Bytes of a block.
    pub fn block_bytes(&self) -> u32 {
        self.shared.block_bytes as u32
    }

    /// Whether the connection has ended: every further operation fails.
    pub fn is_lost(&self) -> bool {
        self.shared.client.is_lost()
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
            finish(async move { turn.wait().await.read(bytes).await }).await
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
        finish(async move { turn.wait().await.write(bytes, data, fua).await }).await
    }

    /// Makes everything durable that was answered before.
    ///
    /// # Errors
    /// When the server fails.
    pub async fn flush(&self) -> Result<(), ClientError> {
        self.shared.client.flush().await
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
        finish(async move { turn.wait().await.trim(bytes).await }).await
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
        finish(async move { turn.wait().await.write_zeroes(bytes, fua).await }).await
    }

    /// Waits until everything begun is answered, says good-bye and closes. Operations of other
    /// clones that come later fail.
    pub async fn close(self) {
        self.shared.client.clone().close().await;
    }
}

/// Carries an operation to its end, whether or not its caller waits.
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

    /// Until the operation may begin.
    async fn wait(mut self) -> Turn {
        if let Some(turn) = self.turn.take() {
            // The sender lives as long as the place in the order.
            let _ = turn.await;
        }
        self
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

    /// The range, if it lies within the volume and the connection stands.
    fn check(&self, offset: u64, length: u64) -> Result<Range<u64>, ClientError> {
        let size = self.size;
        match offset.checked_add(length) {
            _ if self.client.is_lost() => {
                Err(ClientError::Lost("it was lost or closed before".to_owned()))
            }
            Some(end) if end <= size => Ok(offset..end),
            _ => {
                let text = format!("{length} bytes at {offset} pass the end of {size} bytes");
                Err(ClientError::Server { failure: Failure::Invalid, text })
            }
        }
    }

    /// The blocks that a range of bytes touches.
    fn blocks(&self, bytes: &Range<u64>) -> Range<u64> {
        bytes.start / self.block_bytes..bytes.end.div_ceil(self.block_bytes)
    }

    /// The bytes of a block; the last one may be short.
    fn bytes_of(&self, block: u64) -> Range<u64> {
        let start = block * self.block_bytes;
        start..self.size.min(start + self.block_bytes)
    }

    /// The parts of a range that go in one request each, cut at blocks.
    fn stretches(&self, bytes: Range<u64>) -> impl Iterator<Item = Range<u64>> + use<> {
        let request = self.request_bytes;
        let mut at = bytes.start;
        std::iter::from_fn(move || {
            let start = at;
            at = bytes.end.min((start / request + 1) * request);
            (start < bytes.end).then_some(start..at)
        })
    }

    /// A message was answered, if one was sent.
    async fn hear(&self, answer: Option<Answer>) {
        if let Some(answer) = answer {
            if answer.await.is_err() {
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
