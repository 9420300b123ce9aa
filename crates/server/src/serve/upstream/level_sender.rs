//! The level below as a shard speaks to it (`lower.rs`), over the connection of the volume's store:
//! what goes down and what is said of requests goes in front of requests, and the answers are kept
//! until the requests are over.
//!
//! Requests wait for nothing but what concerns their own blocks: data that is on its way down is
//! heard first. While the server below runs no such level, everything comes from the disk as far as
//! this one knows.

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

/// Words of requests and answers that are kept; more are of requests that were never made.
const KEPT_MAX: usize = 4096;

/// What is to be said, and the way to whom.
pub(in crate::serve) struct LevelSender {
    scheme: String,
    block_bytes: u32,
    state: Arc<Mutex<State>>,
    /// Blocks wait without a request that they could go with.
    waits: Arc<Notify>,
    /// A message was heard, or is lost.
    heard: Arc<Notify>,
    /// One asks at a time what comes up.
    exchange: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Default)]
struct State {
    queue: LevelQueue,
    /// Of the connection as it is now, while the server runs the next level.
    link: Option<LevelLink>,
    /// Blocks of all levels below.
    blocks: u64,
    /// What is to be said of requests, by block.
    asks: HashMap<u64, AskedAt>,
    answers: HashMap<u64, Passed>,
    /// Blocks whose data is on its way, and how often.
    away: HashMap<u64, u32>,
    /// Blocks that went down or will, for which something may come up.
    awaited: u64,
    /// Of these, those that [`Lower::settle`] takes care of.
    settling: u64,
    is_warned: bool,
    stats: LowerStats,
}

impl State {
    /// Sends what waits, and what is to be said of these requests.
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

    /// The context that a new connection is to be opened with. Each has an id of its own: a server
    /// may still be busy with what the last one sent.
    pub(super) fn context(&self) -> String {
        LevelLink::context(ClientId::random())
    }

    /// The link over a new connection.
    ///
    /// # Errors
    /// When its server does not run the next level.
    pub(super) fn link(&self, client: Client) -> Result<LevelLink, ClientError> {
        LevelLink::over(client, &self.scheme, self.block_bytes)
    }

    /// A new connection takes the place of the last one, with or without a level below.
    pub(super) fn attach(&self, store: &str, opened: Result<LevelLink, ClientError>) {
        let mut state = self.lock();
        // The server may be another one now, or have forgotten what it delivered.
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

    /// Says what there is to say before a request for these bytes, which goes next; the answer is
    /// to be awaited after the request.
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
        // A range may be longer than all that is known.
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

    /// Waits until a message is heard, or lost.
    async fn hear(&self, mut said: (LevelSaid, Vec<u64>)) {
        // What it was answered is counted there.
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

    /// Begins to send down what no request takes along; to be called once.
    pub(super) fn start(self: &Arc<Self>) {
        tokio::spawn(flush(Arc::downgrade(self), Arc::clone(&self.waits)));
    }

    /// Nothing that is called under the lock can panic half-way, so a poisoned one is sound.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Data on its way down; when this is dropped it has arrived, or never will.
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

/// What a shard holds of the level below.
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

/// What is being settled, until this is dropped.
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
        // The flusher finds nobody left.
        self.waits.notify_one();
    }
}

/// Sends down what no request has taken along for so long.
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
