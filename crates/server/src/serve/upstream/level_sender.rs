//! The interface of a shard to the level below (`lower.rs`), over the connection of the volume's
//! store. Blocks that move down and announcements go in front of requests; answers are kept until
//! the requests end.
//!
//! A request waits only for messages about its own blocks: data that are on their way down must
//! arrive first. While the server below runs no such level, all blocks count as read from disk.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use undercroft_cache::movement::{Load, Pass};
use undercroft_hints::{
    AskedAt, ClientId, Departed, LevelLink, LevelMessage, LevelQueue, LevelSaid, MessageAnswer,
    Passed, Verdict,
};
use undercroft_nbd::{Client, ClientError};

use crate::counters::LowerStats;
use crate::lower::{Ascended, Lower, Settlement, Settling};

/// Longest time that a block waits to go down with a request.
const FLUSH_AFTER: Duration = Duration::from_millis(10);

/// Most announcements and answers that are kept; more would belong to requests that were never
/// made.
const KEPT_MAX: usize = 4096;

/// The waiting messages, and the connection's link.
pub(in crate::serve) struct LevelSender {
    scheme: String,
    block_bytes: u32,
    state: Arc<Mutex<State>>,
    /// Notified when blocks wait and no request is there to take them along.
    waits: Arc<Notify>,
    /// Notified when a message was accepted, or lost.
    heard: Arc<Notify>,
    /// Serializes the questions about exchanged blocks.
    exchange: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Default)]
struct State {
    queue: LevelQueue,
    /// The link of the current connection, if the server runs the next level.
    link: Option<LevelLink>,
    /// Total blocks of all levels below.
    blocks: u64,
    /// Announcements of requests, by block.
    asks: HashMap<u64, AskedAt>,
    answers: HashMap<u64, Passed>,
    /// Blocks whose data are on their way down, and how often.
    away: HashMap<u64, u32>,
    /// Number of blocks that went down or will, and for which another may come up.
    awaited: u64,
    /// Those of them that a running [`Lower::settle`] handles.
    settling: u64,
    is_warned: bool,
    stats: LowerStats,
}

impl State {
    /// Sends waiting blocks, and announces these requests.
    fn say(&mut self, asks: &[AskedAt]) -> Option<(LevelSaid, Vec<u64>)> {
        let link = self.link.clone()?;
        let message = self.queue.message(asks, link.bytes_max());
        if message.bytes.is_empty() {
            return None;
        }
        let LevelMessage { handed_over, asked, bytes } = &message;
        self.stats.messages += 1;
        self.stats.message_bytes += bytes.len() as u64;
        self.stats.demotions += handed_over.len() as u64;
        self.stats.asks += *asked as u64;
        for &block in handed_over {
            *self.away.entry(block).or_default() += 1;
        }
        let said = link.say(&message);
        Some((said, message.handed_over))
    }

    fn is_away(&self, blocks: &Range<u64>) -> bool {
        self.away.keys().any(|block| blocks.contains(block))
    }
}

impl LevelSender {
    pub(in crate::serve) fn new(scheme: String, block_bytes: u32) -> Arc<LevelSender> {
        let (state, waits, heard) = (Arc::default(), Arc::default(), Arc::default());
        Arc::new(LevelSender { scheme, block_bytes, state, waits, heard, exchange: Arc::default() })
    }

    pub(super) fn scheme(&self) -> &str {
        &self.scheme
    }

    /// The metadata context to request when opening a connection. Each has its own id, because a
    /// server may still process messages of the last connection.
    pub(super) fn context(&self) -> String {
        LevelLink::context(ClientId::random())
    }

    /// The link over a new connection.
    ///
    /// # Errors
    /// The server does not run the next level.
    pub(super) fn link(&self, client: Client) -> Result<LevelLink, ClientError> {
        LevelLink::over(client, &self.scheme, self.block_bytes)
    }

    /// Replaces the last connection by a new one, with or without a level below.
    pub(super) fn attach(&self, store: &str, opened: Result<LevelLink, ClientError>) {
        let mut state = self.lock();
        // It may be another server now, or the server may have forgotten what it delivered.
        let dropped = state.queue.clear();
        state.stats.unheard += dropped;
        match opened {
            Ok(link) => {
                if std::mem::take(&mut state.is_warned) {
                    tracing::info!("{store}: is the next level again");
                }
                state.blocks = link.blocks();
                state.link = Some(link);
            }
            Err(error) => {
                if !std::mem::replace(&mut state.is_warned, true) {
                    tracing::warn!(
                        "{store}: {error}; nothing goes down, and all comes from there \
                                    as from a disk"
                    );
                }
                state.link = None;
            }
        }
    }

    /// Sends what must precede a request for these bytes. The request must be sent next; await the
    /// answer after it.
    pub(super) async fn before(self: &Arc<Self>, bytes: Range<u64>) -> Option<MessageAnswer> {
        let size = u64::from(self.block_bytes);
        let blocks = bytes.start / size..bytes.end.div_ceil(size);
        loop {
            let mut heard = std::pin::pin!(self.heard.notified());
            heard.as_mut().enable();
            let first = {
                let mut state = self.lock();
                if state.queue.concerns(&blocks) && !state.is_away(&blocks) {
                    state.say(&[])
                } else if state.is_away(&blocks) {
                    None
                } else {
                    break;
                }
            };
            match first {
                Some(said) => self.hear(said).await,
                None if self.lock().link.is_none() => break,
                None => heard.await,
            }
        }
        let mut state = self.lock();
        // A range may be longer than the list of announcements.
        let asked: Vec<u64> =
            state.asks.keys().copied().filter(|block| blocks.contains(block)).collect();
        let mut asks: Vec<_> = asked.iter().filter_map(|block| state.asks.remove(block)).collect();
        asks.sort_by_key(|asked| asked.time);
        let Some((said, handed_over)) = state.say(&asks) else {
            state.stats.unheard += asks.len() as u64;
            return None;
        };
        drop(state);
        let sender = Arc::clone(self);
        Some(Box::pin(async move {
            let mut said = (said, handed_over);
            let heard = sender.hear_message(&mut said).await;
            let answers = said.0.answers().await;
            let mut state = sender.lock();
            let answers = answers.unwrap_or_default();
            state.stats.answers += answers.len() as u64;
            if state.answers.len() > KEPT_MAX {
                state.answers.clear();
            }
            state.answers.extend(answers.into_iter().map(|passed| (passed.block, passed)));
            heard
        }))
    }

    /// Waits until a message is accepted, or lost.
    async fn hear(&self, mut said: (LevelSaid, Vec<u64>)) {
        // Failures are counted in `hear_message`.
        let _ = self.hear_message(&mut said).await;
    }

    async fn hear_message(
        &self,
        (said, handed_over): &mut (LevelSaid, Vec<u64>),
    ) -> Result<(), ClientError> {
        let arrives = Arrives { sender: self, blocks: std::mem::take(handed_over) };
        let result = said.heard().await;
        drop(arrives);
        self.lock().stats.messages_refused += u64::from(result.is_err());
        result
    }

    /// Starts to send down blocks that no request takes along; call it once.
    pub(super) fn start(self: &Arc<Self>) {
        tokio::spawn(flush(Arc::downgrade(self), Arc::clone(&self.waits)));
    }

    /// A poisoned lock is sound: nothing that runs under it panics half-way.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Data on their way down; when this is dropped they have arrived, or never will.
struct Arrives<'a> {
    sender: &'a LevelSender,
    blocks: Vec<u64>,
}

impl Drop for Arrives<'_> {
    fn drop(&mut self) {
        let mut state = self.sender.lock();
        for block in &self.blocks {
            if let Some(count) = state.away.get_mut(block) {
                *count -= 1;
                if *count == 0 {
                    state.away.remove(block);
                }
            }
        }
        drop(state);
        self.sender.heard.notify_waiters();
    }
}

/// The shard's view of the level below.
#[derive(Debug)]
pub(in crate::serve) struct LevelBelow(pub(in crate::serve) Arc<LevelSender>);

impl Lower for LevelBelow {
    fn blocks(&self) -> u64 {
        self.0.lock().blocks
    }

    fn ask(&self, asked: AskedAt) {
        let mut state = self.0.lock();
        if state.asks.len() > KEPT_MAX {
            state.asks.clear();
        }
        state.asks.insert(asked.asked.block, asked);
    }

    fn down(&self, departed: Departed, awaits: bool) {
        let mut state = self.0.lock();
        state.awaited += u64::from(awaits);
        if state.link.as_ref().is_none_or(|link| !link.takes_data()) {
            state.stats.unheard += 1;
            return;
        }
        state.queue.push(departed);
        drop(state);
        if !awaits {
            self.0.waits.notify_one();
        }
    }

    fn answer(&self, block: u64) -> Pass {
        let answered = self.0.lock().answers.remove(&block);
        answered.map_or(Pass::Fresh { nearest: 0.0 }, |passed| passed.pass())
    }

    fn is_settled(&self) -> bool {
        self.0.lock().awaited == 0
    }

    fn settle(&self) -> Settling {
        let sender = Arc::clone(&self.0);
        Box::pin(async move {
            let (said, link, count) = {
                let mut state = sender.lock();
                let count = state.awaited - state.settling;
                state.settling += count;
                let said = state.say(&[]);
                (said, state.link.clone(), count)
            };
            let hold = Box::new(Settles { sender: Arc::clone(&sender), count });
            let mut ascended = Vec::new();
            if let Some(said) = said {
                sender.hear(said).await;
            }
            for _ in 0..count {
                let _alone = sender.exchange.lock().await;
                let Some(link) = &link else { break };
                let answers = link.ask_exchange().answers().await.unwrap_or_default();
                let risen = answers.into_iter().find(|a| a.verdict == Verdict::Exchanged);
                let Some(passed) = risen else { continue };
                if let Ok(data) = link.fetch_exchanged(passed.block).await {
                    let load = Load { frequency: passed.frequency, history: passed.history };
                    ascended.push(Ascended { block: passed.block, load, data });
                }
            }
            sender.lock().stats.exchanges += ascended.len() as u64;
            Settlement { ascended, hold }
        })
    }

    fn told(&self) -> LowerStats {
        let state = self.0.lock();
        LowerStats {
            lost: state.queue.lost,
            listening: u64::from(state.link.is_some()),
            ..state.stats
        }
    }
}

/// Counts exchanges as being settled while it exists.
struct Settles {
    sender: Arc<LevelSender>,
    count: u64,
}

impl Drop for Settles {
    fn drop(&mut self) {
        let mut state = self.sender.lock();
        state.awaited -= self.count;
        state.settling -= self.count;
    }
}

impl fmt::Debug for LevelSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LevelSender({})", self.scheme)
    }
}

impl Drop for LevelSender {
    fn drop(&mut self) {
        // Wakes the task that sends waiting blocks, so that it ends.
        self.waits.notify_one();
    }
}

/// Sends down blocks that no request has taken along in time.
async fn flush(sender: Weak<LevelSender>, waits: Arc<Notify>) {
    loop {
        waits.notified().await;
        tokio::time::sleep(FLUSH_AFTER).await;
        let Some(sender) = sender.upgrade() else { return };
        let said = sender.lock().say(&[]);
        if let Some(said) = said {
            sender.hear(said).await;
        }
    }
}
