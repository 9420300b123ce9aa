//! The end of a volume: running requests are answered, dirty blocks are written, and blocks that
//! the store would not take are reported.
//!
//! A store that refuses some blocks still gets all others, since a refused block does not hold up
//! the others (`dirty.rs`). A store that refuses everything may recover: it is tried again for the
//! time that the configuration allows.
//!
//! Not here: what a server does with all its volumes (`process/run.rs`), and the file that keeps
//! unwritten data (`process/unwritten.rs`).

use std::fmt;
use std::io;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use undercroft_nbd::Failure;
use undercroft_store::Store;

use crate::answer::Failed;
use crate::volume::Volume;
use crate::volume::shards::Shards;

/// Pause before refused blocks are tried again; it doubles each time.
const PAUSE_FIRST: Duration = Duration::from_millis(100);
const PAUSE_LONGEST: Duration = Duration::from_secs(2);

/// How long write-outs at the store are awaited when no more are begun, and what a write log that
/// does not get empty has under way there.
pub(crate) const LAST_ANSWERS: Duration = Duration::from_secs(5);
const LAST_REQUESTS_OF_A_LOG: Duration = Duration::from_secs(30);

/// Most ranges of blocks that the text lists.
const RANGES_NAMED: usize = 16;

/// What a store had not taken when its volume was closed.
#[derive(Clone, Debug)]
pub struct Unwritten {
    /// The blocks whose last changes were answered and are not at the store, in order.
    pub blocks: Vec<RangeInclusive<u64>>,
    /// Bytes of a block.
    pub block_bytes: u64,
    /// The store's last error.
    pub why: Failed,
}

impl Unwritten {
    /// The dirty blocks. `why`: the store's last error, if it refused none of them by itself.
    fn of(shards: &Shards, why: Failed) -> Self {
        let (mut dirty, mut last) = (Vec::new(), None);
        for shard in shards.each() {
            let (its, refused) = shard.dirty.all();
            dirty.extend(its);
            last = last.or(refused);
        }
        dirty.sort_unstable();
        let runs = dirty.chunk_by(|block, next| block + 1 == *next);
        let blocks = runs.map(|run| run[0]..=run[run.len() - 1]).collect();
        let block_bytes = shards.geometry.block_bytes();
        Self { blocks, block_bytes, why: last.unwrap_or(why) }
    }

    /// Number of blocks.
    pub fn count(&self) -> u64 {
        self.blocks.iter().map(|run| run.end() - run.start() + 1).sum()
    }
}

impl fmt::Display for Unwritten {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { blocks, block_bytes, why } = self;
        if blocks.is_empty() {
            return write!(
                f,
                "{why}: all blocks were written, but the store did not say that they are durable; \
                 what was written since its last flush may be lost"
            );
        }
        write!(f, "{why}: {} blocks of {block_bytes} bytes are not written: ", self.count())?;
        for (index, run) in blocks.iter().take(RANGES_NAMED).enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            match run.end() - run.start() {
                0 => write!(f, "{comma}{}", run.start())?,
                _ => write!(f, "{comma}{}-{}", run.start(), run.end())?,
            }
        }
        match blocks.len().saturating_sub(RANGES_NAMED) {
            0 => Ok(()),
            more => write!(f, " and {more} more ranges"),
        }
    }
}

impl std::error::Error for Unwritten {}

/// After an attempt to close a volume: begins no more write-outs, and waits for those at the store,
/// for some seconds. What the store does not have then, it gets only if it answers them later.
pub(crate) async fn write_out_no_more(volume: &Volume) {
    volume.pace.iter().for_each(|pace| pace.end());
    let is_over = || volume.shards.each().all(|shard| shard.dirty.writing_count() == 0);
    let ended = volume.until(|| is_over().then_some(()));
    let _ = timeout(LAST_ANSWERS, ended).await;
    if volume.store.backlog().is_some() {
        // It would go on with its store.
        let _ = give_up(&*volume.store).await;
    }
}

/// Closes a store within some seconds. A write log that does not get empty only ends what it has
/// under way.
///
/// # Errors
/// The store's own; or it takes longer.
pub(crate) async fn give_up(store: &dyn Store) -> io::Result<()> {
    match timeout(LAST_ANSWERS, store.close()).await {
        Ok(closed) => closed,
        // A write log takes up nothing more, and waits for that.
        Err(_) => timeout(LAST_REQUESTS_OF_A_LOG, store.close()).await?,
    }
}

impl Volume {
    /// Answers running requests, refuses new ones, and makes everything durable. The volume cannot
    /// be used afterwards. Takes at most [`close_patience`](crate::VolumeConfig::close_patience),
    /// and slightly more if the store stalls (half a minute with a write log), or up to five
    /// minutes more if a level on flash fails or is slow, for which changes and the end of its
    /// journal wait.
    ///
    /// # Errors
    /// The blocks that the store did not take in that time. They stay dirty, so closing may be
    /// tried again.
    pub async fn close(self: &Arc<Self>) -> Result<(), Unwritten> {
        self.answers.close();
        let (start, patience) = (Instant::now(), self.config.close_patience);
        let mut begins = start;
        let mut deadline = |patience| {
            // The store is not to blame for what waits for flash.
            begins = begins.max(Instant::from_std(self.flash.holds_until(start.into_std())));
            begins + patience
        };
        let pending = &self.answers.pending;
        let answered = self.until(|| (pending.load(Ordering::SeqCst) == 0).then_some(()));
        // A request that the store does not answer must not keep dirty blocks from being written.
        let _ = timeout_at(deadline(patience / 2), answered).await;
        if let Some(recorder) = &self.recorder {
            let recorder = Arc::clone(recorder);
            let ended = spawn_blocking(move || recorder.end());
            if timeout_at(start + patience / 2, ended).await.is_err() {
                let name = &self.config.name;
                tracing::warn!(volume = name, "the recording is not complete: its disk is slow");
            }
        }
        let mut pause = PAUSE_FIRST;
        loop {
            let ended = match timeout_at(deadline(patience), self.write_everything()).await {
                Ok(ended) => ended,
                Err(_) => Err(Failed::new(Failure::Io, "the store does not answer")),
            };
            let Err(why) = ended else { break };
            if Instant::now() + pause > deadline(patience) {
                return Err(Unwritten::of(&self.shards, why));
            }
            sleep(pause).await;
            pause = (2 * pause).min(PAUSE_LONGEST);
        }
        // A reload may still be running. What it evicts may have been changed by then, by whoever
        // opens the store next.
        self.shards.each().for_each(|mut shard| shard.blocks.watchers.below = None);
        let late = self.answers.late.open() + pending.load(Ordering::SeqCst);
        if late == 0 {
            self.flash.end().await;
        } else {
            // Late requests may still take effect; nobody else may open the store before that.
            let name = &self.config.name;
            tracing::warn!(volume = name, late, "the store is not given up: it has not answered");
            return Ok(());
        }
        let store = Arc::clone(&self.store);
        // Nothing is lost if it fails, but another server may have to wait.
        let mut closing = tokio::spawn(async move { store.close().await });
        let given_up = timeout_at(deadline(patience), &mut closing).await;
        if let Ok(Ok(Err(error))) = &given_up {
            tracing::warn!(volume = self.config.name, "the store cannot be given up: {error}");
        }
        if given_up.is_err() && self.store.backlog().is_some() {
            // It would go on. The store may be opened again at once, under another name, so what it
            // has under way is awaited.
            closing.abort();
            let _ = timeout(LAST_REQUESTS_OF_A_LOG, self.store.close()).await;
        }
        if let Some(log) = self.store.backlog().filter(|log| log.age.is_some()) {
            let (name, bytes) = (&self.config.name, log.bytes);
            tracing::warn!(volume = name, bytes, "the store needs its write log: it is not empty");
        }
        Ok(())
    }

    /// Offers every dirty block to the store, alone if a run with others fails, and flushes the
    /// store.
    async fn write_everything(self: &Arc<Self>) -> Result<(), Failed> {
        let written = self.write_out_below(&self.shards.changes_so_far(), true).await;
        // What the store accepted must become durable, whatever else it refused.
        let flushed = self.flush_store().await;
        written.and(flushed)
    }
}
