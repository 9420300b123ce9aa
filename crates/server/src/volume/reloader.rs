//! Runs reloads in idle times of a volume's store, while no client waits for it (`store_use.rs`).
//! A demand request never waits for a reload; a reload that comes too late is dropped.

use std::iter::once;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::clock;
use crate::config::VolumeConfig;
use crate::shard::content::{Memory, read_into};
use crate::shard::effects::Ended;
use crate::volume::store_state::StoreRequest;
use crate::volume::store_use::{StoreDemand, StoreUse};
use crate::volume::{Volume, Work};

/// How often the reloader checks whether the volume still exists, and the period of measurements of
/// the store's use.
const TICK: Duration = Duration::from_secs(1);

impl Volume {
    /// Begins what the placement of `config` needs, which goes by the evictions of clients: these
    /// are distinguished, the use of the store is measured, and a task makes the reloads.
    pub(crate) fn begin_to_cooperate(self: &Arc<Self>, config: &VolumeConfig) {
        self.clients.distinguish();
        if config.placement.is_auto() {
            self.demand.store_use.get_or_init(StoreUse::new);
        }
        let has_reloader = &self.demand.has_reloader;
        if !self.config.reload_at_once && !has_reloader.swap(true, Ordering::SeqCst) {
            self.runtime.spawn(reloader(Arc::downgrade(self), Arc::clone(&self.demand)));
        }
    }
}

/// A block that is being read back. The shard is told of the end in any case.
struct Reload {
    volume: Arc<Volume>,
    shard: usize,
    block: u64,
    memory: Memory,
}

impl Reload {
    /// Begins a reload, if one is queued and no client waits for the store.
    fn begin(volume: &Arc<Volume>) -> Option<Self> {
        if volume.demand.is_there() || volume.answers.is_closing() {
            return None;
        }
        let mut shards = volume.shards.each().enumerate();
        let (shard, (block, memory)) =
            shards.find_map(|(index, mut shard)| Some((index, shard.blocks.begin_reload()?)))?;
        Some(Self { volume: Arc::clone(volume), shard, block, memory })
    }

    async fn run(self) {
        let Self { volume, shard, block, memory } = self;
        let (offset, length) = (volume.geometry.start(block), volume.geometry.len(block));
        let (store, epoch) = (Arc::clone(&volume.store), volume.losses.epoch());
        let read = async move { read_into(&*store, offset, once((memory, length))).await };
        let result = volume.store_health.ask(StoreRequest::Read, read).await.map(Memory::only);
        Work::new(&volume).on(shard, |shard, fx| {
            // Checked under the lock: a loss that comes later finds what is stored here.
            let is_lost = result.is_ok() && volume.losses.epoch() != epoch;
            shard.end_reload(Ended { result, is_alone: true, is_lost }, fx);
        });
        volume.progress.notify_waiters();
    }
}

/// The background task for reloads; ends with the volume. Runs one reload at a time, while no
/// client waits for the store.
async fn reloader(volume: Weak<Volume>, demand: Arc<StoreDemand>) {
    let mut measured = clock::now();
    loop {
        let Some(present) = volume.upgrade() else { return };
        if clock::now().saturating_duration_since(measured) >= TICK {
            if let Some(store_use) = demand.store_use.get() {
                let share = store_use.end_period();
                for mut shard in present.shards.each() {
                    let placement = shard.blocks.level.placement_mut();
                    placement.into_iter().for_each(|it| it.set_store_busy(share));
                }
            }
            measured = clock::now();
        }
        let reload = Reload::begin(&present);
        drop(present);
        match reload {
            Some(reload) => reload.run().await,
            None => _ = tokio::time::timeout(TICK, demand.reload_wanted.notified()).await,
        }
    }
}
