//! Idle times of a volume's store: tracks store requests that clients wait for, and runs reloads
//! when there are none. A demand request never waits for a reload; a reload that comes too late is
//! dropped.

use std::iter::once;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::Notify;

use crate::clock;
use crate::shard::content::{Memory, read_into};
use crate::shard::effects::Ended;
use crate::volume::store_state::StoreRequest;
use crate::volume::{Volume, Work};

/// How often the reloader checks whether the volume still exists, and the period of measurements of
/// the store's use.
const TICK: Duration = Duration::from_secs(1);

/// While this exists, a client waits for the store.
pub(crate) struct Demand(Arc<Volume>);

impl Drop for Demand {
    fn drop(&mut self) {
        let volume = &self.0;
        if volume.demand.fetch_sub(1, Ordering::SeqCst) == 1 && volume.has_clients() {
            volume.reload_wanted.notify_one();
        }
    }
}

/// A reload that may start.
struct Reload {
    shard: usize,
    block: u64,
    memory: Memory,
}

impl Volume {
    /// Counts a store request that a client waits for.
    pub(crate) fn demand(self: &Arc<Self>) -> Demand {
        self.demand.fetch_add(1, Ordering::SeqCst);
        Demand(Arc::clone(self))
    }

    /// Whether a client waits for the store.
    pub(crate) fn has_demand(&self) -> bool {
        self.demand.load(Ordering::SeqCst) > 0
    }

    fn next_reload(&self) -> Option<Reload> {
        if self.has_demand() || self.is_closing() {
            return None;
        }
        (0..self.shards.len()).find_map(|shard| {
            let (block, memory) = self.shards.lock(shard).begin_reload()?;
            Some(Reload { shard, block, memory })
        })
    }

    /// Tells the placement how busy clients keep the store.
    fn note_store_use(&self) {
        let Some(store_use) = self.store_use.get() else { return };
        let share = store_use.end_period();
        self.shards.each().for_each(|mut shard| shard.cache.set_store_busy(share));
    }

    /// Reads a block back. The shard is told of the end in any case.
    async fn reload(self: &Arc<Self>, reload: Reload) {
        let Reload { shard, block, memory } = reload;
        let (offset, length) = (self.geometry.start(block), self.geometry.len(block));
        let (store, epoch) = (Arc::clone(&self.store), self.losses.epoch());
        let read = async move { read_into(&*store, offset, once((memory, length))).await };
        let result = self.store_health.ask(StoreRequest::Read, read).await.map(Memory::only);
        let mut work = Work::new(self);
        let (shard, fx) = work.nth_shard(shard);
        // Checked under the lock: a loss that comes later finds what is stored here.
        let is_lost = result.is_ok() && self.losses.epoch() != epoch;
        shard.end_reload(Ended { result, is_alone: true, is_lost }, fx);
        work.finish();
        self.progress.notify_waiters();
    }
}

/// The background task for reloads; ends with the volume. Runs one reload at a time, while no
/// client waits for the store.
pub(crate) async fn reloader(volume: Weak<Volume>, wanted: Arc<Notify>) {
    let mut measured = clock::now();
    loop {
        let Some(present) = volume.upgrade() else { return };
        if clock::now().saturating_duration_since(measured) >= TICK {
            present.note_store_use();
            measured = clock::now();
        }
        match present.next_reload() {
            Some(reload) => present.reload(reload).await,
            None => {
                drop(present);
                let _ = tokio::time::timeout(TICK, wanted.notified()).await;
            }
        }
    }
}
