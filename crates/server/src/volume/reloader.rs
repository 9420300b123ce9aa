//! Idle times of a volume's store: who waits for it, and the reloads that are done when nobody
//! does. A demand request never waits for a reload; a reload that comes too late is dropped.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::Notify;

use crate::answer::Failed;
use crate::shard::content::{Content, Home, Memory};
use crate::volume::{Volume, Work, ask_store};

/// How often the reloader looks whether the volume is still there.
const TICK: Duration = Duration::from_secs(1);

/// Somebody waits for the store, as long as this is there.
pub(crate) struct Demand(Arc<Volume>);

impl Drop for Demand {
    fn drop(&mut self) {
        let volume = &self.0;
        if volume.demand.fetch_sub(1, Ordering::SeqCst) == 1 && volume.has_clients() {
            volume.reload_wanted.notify_one();
        }
    }
}

/// A reload that may begin.
struct Reload {
    shard: usize,
    block: u64,
    memory: Memory,
}

impl Volume {
    /// A request to the store begins that somebody waits for.
    pub(crate) fn demand(self: &Arc<Self>) -> Demand {
        self.demand.fetch_add(1, Ordering::SeqCst);
        Demand(Arc::clone(self))
    }

    /// Whether somebody waits for the store.
    pub(crate) fn has_demand(&self) -> bool {
        self.demand.load(Ordering::SeqCst) > 0
    }

    fn next_reload(&self) -> Option<Reload> {
        if self.has_demand() || self.is_closing() {
            return None;
        }
        (0..self.shards.len()).find_map(|shard| {
            let (block, memory) = self.lock(shard).begin_reload()?;
            Some(Reload { shard, block, memory })
        })
    }

    /// Reads a block back. Whatever happens, the shard hears of the end.
    async fn reload(self: &Arc<Self>, reload: Reload) {
        let Reload { shard, block, memory } = reload;
        let (offset, length) = (self.geometry.start(block), self.geometry.len(block));
        let (buffers, home) = Home::lend([(memory, length)].into_iter());
        let store = Arc::clone(&self.store);
        let read = ask_store(async move {
            let (buffers, result) = store.read(offset, buffers).await;
            drop(buffers);
            result
        });
        let content: Result<Content, Failed> = read.await.and_then(|()| {
            let kept = std::io::Error::other("the store kept the memory of a read");
            let memory = home.collect().and_then(|mut all| all.pop());
            memory.map(Memory::into_content).ok_or_else(|| Failed::from(kept))
        });
        let mut work = Work::new(self);
        let (shard, fx) = work.nth_shard(shard);
        shard.end_reload(content, fx);
        work.finish();
        self.progress.notify_waiters();
    }
}

/// Runs as long as the volume is in use: one reload at a time, while nobody waits for the store.
pub(crate) async fn reloader(volume: Weak<Volume>, wanted: Arc<Notify>) {
    loop {
        let Some(present) = volume.upgrade() else { return };
        match present.next_reload() {
            Some(reload) => present.reload(reload).await,
            None => {
                drop(present);
                let _ = tokio::time::timeout(TICK, wanted.notified()).await;
            }
        }
    }
}
