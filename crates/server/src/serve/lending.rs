//! Idle room of caches, lent to other volumes and taken back, and shares that move. Once a second a
//! task moves shares where that is configured (`pool.rs`), looks at what each volume did
//! (`activity.rs`), asks who should have how much (`division.rs`), and changes sizes a step at a
//! time, in the way in which `undercroft set` changes them.
//!
//! A volume that lends or borrows only has another size than its share for a while. Before the
//! configuration of a cache changes, and before a volume is added, [`Lending::take_back`] brings
//! all to the shares that are configured.
//!
//! Not here: how a cache changes its size (`volume/change.rs`).

mod activity;
mod division;
mod pool;
mod sharing;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use undercroft_text::Bytes;

use self::activity::{Activity, Counted};
use self::division::{Member, steps, targets};
use self::pool::Pool;
use super::exports::ExportTable;
use crate::config::VolumeConfig;
use crate::volume::Volume;

/// Time between two looks at the volumes.
const PERIOD: Duration = Duration::from_secs(1);

/// How long taking back waits for a store that must take dirty blocks first.
const PATIENCE: Duration = Duration::from_secs(10);

/// Pause between two looks whether memory is free.
const LOOK: Duration = Duration::from_millis(5);

/// Periods without an attempt after a cache could not change its size.
const REST: u32 = 60;

/// Periods after which it is logged that a cache does not get smaller.
const LONG: u32 = 10;

/// The task that lends room; it ends when this is dropped.
pub(super) struct Lending {
    volumes: Arc<Mutex<Known>>,
    task: JoinHandle<()>,
}

/// What is known of the volumes.
#[derive(Default)]
pub(super) struct Known {
    /// By name.
    lent: HashMap<String, Lent>,
    pool: Pool,
}

/// What is known of a volume that may lend or borrow.
#[derive(Default)]
struct Lent {
    activity: Activity,
    change: Option<JoinHandle<Result<(), String>>>,
    /// Periods for which its size could not change, or room that it gave up was not free.
    stuck: u32,
    /// Periods to go without an attempt.
    rest: u32,
    standing: Standing,
    /// Bytes of its share, and whether its size still has to follow a change of that.
    share: u64,
    follows: bool,
}

/// Whether a volume has lent room, or borrowed some.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Standing {
    #[default]
    Even,
    Lends,
    Borrows,
}

impl Lending {
    /// Begins to lend among the volumes of the table that are configured to.
    pub(super) fn start(exports: Arc<ExportTable>) -> Lending {
        let volumes = Arc::<Mutex<Known>>::default();
        let known = Arc::clone(&volumes);
        let task = tokio::spawn(async move {
            let mut periods = interval(PERIOD);
            periods.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                periods.tick().await;
                known.lock().await.pass(&cached(&exports));
            }
        });
        Lending { volumes, task }
    }

    /// Brings all volumes to the shares that are configured; nothing moves or is lent while the
    /// result is held.
    ///
    /// # Errors
    /// A volume cannot give back what it borrowed. The others have their shares, as far as there is
    /// room.
    pub(super) async fn take_back(
        &self,
        exports: &ExportTable,
    ) -> Result<OwnedMutexGuard<Known>, String> {
        let mut known = Arc::clone(&self.volumes).lock_owned().await;
        let volumes = cached(exports);
        known.pool.reset(&volumes);
        let is_over = |volume: &&Arc<Volume>| {
            volume.now().cache_blocks > volume.share_blocks() || volume.surplus_frames() > 0
        };
        let is_under = |volume: &&Arc<Volume>| volume.now().cache_blocks < volume.share_blocks();
        let changing = known.lent.values_mut().filter_map(|lent| lent.change.take());
        let waiting: Vec<_> = changing.filter(|change| !change.is_finished()).collect();
        if waiting.is_empty() && volumes.iter().all(is_even) {
            return Ok(known);
        }
        tracing::info!("caches are about to change: all get the shares first that are configured");
        let mut waits = Ok(());
        let all = async {
            for change in waiting {
                // It logs its failure.
                let _ = change.await;
            }
            for volume in volumes.iter().filter(is_over) {
                waits = Err(format!(
                    "volume '{}' has not given back what it borrowed of other volumes' cache, \
                     since its store does not take the dirty blocks; try again when it does",
                    volume.config().name
                ));
                // Of its own, because it must run to its end.
                let _ = change(volume, volume.share_blocks()).await;
                while volume.surplus_frames() > 0 {
                    sleep(LOOK).await;
                }
                waits = Ok(());
            }
        };
        if timeout(PATIENCE, all).await.is_err() {
            let changing = || "a cache is still changing; try again".to_owned();
            return Err(waits.err().unwrap_or_else(changing));
        }
        for volume in volumes.iter().filter(is_under) {
            let _ = change(volume, volume.share_blocks()).await;
        }
        known.lent.values_mut().for_each(|lent| lent.standing = Standing::Even);
        Ok(known)
    }

    /// Ends the task; sizes that are being changed get there.
    pub(super) fn end(&self) {
        self.task.abort();
    }
}

impl Drop for Lending {
    fn drop(&mut self) {
        self.end();
    }
}

/// The volumes whose caches can change their size.
fn cached(exports: &ExportTable) -> Vec<Arc<Volume>> {
    let all = exports.all().into_iter().map(|entry| Arc::clone(entry.volume()));
    all.filter(|volume| {
        let config = volume.config();
        config.cache_blocks > 0 && !volume.is_closing()
    })
    .collect()
}

/// Whether a volume has lent nothing, and borrowed nothing.
fn is_even(volume: &Arc<Volume>) -> bool {
    volume.now().cache_blocks == volume.share_blocks()
}

/// Changes the size of a cache, in a task that runs to its end and logs a failure.
fn change(volume: &Arc<Volume>, blocks: u32) -> JoinHandle<Result<(), String>> {
    let volume = Arc::clone(volume);
    tokio::spawn(async move {
        let name = &volume.config().name;
        let changed = volume.resize(blocks).await;
        match &changed {
            Ok(()) => {
                let cache = Bytes(volume.now().cache_bytes());
                tracing::debug!(volume = name, %cache, "its cache has changed for a while");
            }
            Err(why) => tracing::warn!(volume = name, "its cache has not changed: {why}"),
        }
        changed
    })
}

impl Known {
    /// Looks at the volumes after a period, and changes sizes.
    fn pass(&mut self, volumes: &[Arc<Volume>]) {
        self.pool.pass(volumes);
        let terms: Vec<_> = volumes.iter().map(|volume| volume.now()).collect();
        let any = |of: fn(&VolumeConfig) -> bool| terms.iter().any(|config| of(config));
        let lends = any(|config| config.cache_min.is_some());
        let borrows = any(|config| config.cache_max.is_some());
        let moves = any(|config| config.is_share_auto);
        if !(moves || lends && borrows) && volumes.iter().all(is_even) {
            self.lent.clear();
            return;
        }
        self.lent.retain(|name, _| terms.iter().any(|config| config.name == *name));
        let members: Vec<_> =
            volumes.iter().zip(&terms).map(|(volume, now)| self.look_at(volume, now)).collect();
        for (at, bytes) in steps(&members, &targets(&members)) {
            let (volume, block) = (&volumes[at], members[at].block);
            let lent = self.lent.entry(volume.config().name.clone()).or_default();
            lent.change = Some(change(volume, (bytes / block) as u32));
        }
    }

    /// What a volume did in the last period, and what it may have.
    fn look_at(&mut self, volume: &Arc<Volume>, now: &VolumeConfig) -> Member {
        let lent = self.lent.entry(now.name.clone()).or_default();
        let (stats, block) = (volume.stats(), u64::from(now.block_bytes));
        let hits = stats.read_hits + stats.write_hits + stats.streamed;
        let references = stats.reads + stats.writes;
        let counted = Counted { references, misses: references.saturating_sub(hits) };
        lent.activity.note(counted, now.cache_idle.as_secs().div_ceil(PERIOD.as_secs()) as usize);
        let share = stats.share_blocks * block;
        let works = stats.store_up == 1;
        let is_idle = works && lent.activity.is_idle(stats.share_blocks);
        // A few blocks may be missing, of ranges that were dropped.
        let is_full = stats.resident + stats.capacity_blocks / 64 >= stats.capacity_blocks;
        let wants = works && is_full && lent.activity.misses_much(stats.share_blocks);
        let is_fixed = lent.is_fixed(volume);
        let member = Member {
            share,
            least: now.least_bytes(share).min(share),
            most: now.most_bytes(share),
            block,
            size: stats.capacity_blocks * block,
            leaving: volume.surplus_frames() * block,
            is_idle,
            wants: wants && !is_idle,
            is_fixed,
        };
        lent.tell(&now.name, &member);
        member
    }
}

impl Lent {
    /// Whether the size of the volume cannot change in this period.
    fn is_fixed(&mut self, volume: &Volume) -> bool {
        let change = self.change.take_if(|change| change.is_finished());
        let ended = change.and_then(futures_util::FutureExt::now_or_never);
        if let Some(Ok(Err(_))) = ended {
            self.rest = REST;
        }
        self.rest = self.rest.saturating_sub(1);
        let is_changing = self.change.is_some() || volume.is_changing();
        let is_stuck = is_changing || volume.surplus_frames() > 0;
        self.stuck = if is_stuck { self.stuck.saturating_add(1) } else { 0 };
        if self.stuck == LONG {
            tracing::warn!(
                volume = volume.config().name,
                "the room that it gives up is not free yet: its store does not take the dirty \
                 blocks; other volumes wait for it"
            );
        }
        is_changing || self.rest > 0
    }

    /// Logs when a volume begins or ends to lend or to borrow.
    fn tell(&mut self, volume: &str, member: &Member) {
        self.follows |= std::mem::replace(&mut self.share, member.share) != member.share;
        self.follows &= member.size != member.share;
        if self.follows {
            return;
        }
        let now = match member.size.cmp(&member.share) {
            std::cmp::Ordering::Less => Standing::Lends,
            std::cmp::Ordering::Equal => Standing::Even,
            std::cmp::Ordering::Greater => Standing::Borrows,
        };
        let before = std::mem::replace(&mut self.standing, now);
        if before == now {
            return;
        }
        let (share, cache) = (Bytes(member.share), Bytes(member.size));
        let what = match (now, before) {
            (Standing::Lends, _) => "is idle, and lends room of its cache",
            (Standing::Borrows, _) => "borrows room of other volumes' cache",
            (Standing::Even, Standing::Lends) => "has all of its cache again",
            (Standing::Even, _) => "has given back what it borrowed",
        };
        tracing::info!(volume, %share, %cache, "{what}");
    }
}
