//! Memory of caches that moves between volumes. Once a second a task looks at what each volume did
//! (`activity.rs`) and what its adviser says, asks what moves (`division.rs`), and changes shares
//! and sizes, the latter in the way in which `undercroft set` changes them.
//!
//! Before the configuration of a cache changes, and before a volume is added,
//! [`Lending::take_back`] brings all to the shares that are configured.
//!
//! Not here: how a cache changes its size (`volume/change.rs`), what the advisers know (`advice`).

mod activity;
mod division;

use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use undercroft_adviser::{Estimate, amount};
use undercroft_text::Bytes;

use self::activity::{Activity, Counted};
use self::division::{Member, Moves, Transfer, Unit, next};
use crate::config::VolumeConfig;
use crate::exports::ExportTable;
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

/// The task that moves memory; it ends when this is dropped.
pub(crate) struct Lending {
    states: Arc<Mutex<States>>,
    task: JoinHandle<()>,
}

/// What is known of the volumes, by name.
#[derive(Default)]
pub(crate) struct States(HashMap<String, State>);

/// What is known of a volume.
#[derive(Default)]
struct State {
    activity: Activity,
    /// Blocks that the configuration gives it, if its share moves.
    configured: Option<u32>,
    /// The blocks that its cache is getting, and the task that sees to it.
    change: Option<(u32, JoinHandle<()>)>,
    /// Periods for which its size could not change, or room that it gave up was not free.
    stuck: u32,
    /// Periods to go without an attempt.
    rest: u32,
    /// Its size compared with its share, when that was last logged.
    standing: Option<Ordering>,
}

impl Lending {
    /// Begins to move memory among the volumes of the table that are configured to.
    pub(crate) fn start(exports: Arc<ExportTable>) -> Lending {
        let states = Arc::<Mutex<States>>::default();
        let shared = Arc::clone(&states);
        let task = tokio::spawn(async move {
            let mut periods = interval(PERIOD);
            periods.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                periods.tick().await;
                shared.lock().await.pass(&cached(&exports));
            }
        });
        Lending { states, task }
    }

    /// Brings all volumes to the shares that are configured; nothing moves while the result is
    /// held.
    ///
    /// # Errors
    /// A volume cannot give back what it borrowed. The others have given back theirs.
    pub(crate) async fn take_back(
        &self,
        exports: &ExportTable,
    ) -> Result<OwnedMutexGuard<States>, String> {
        let mut states = Arc::clone(&self.states).lock_owned().await;
        let volumes = cached(exports);
        states.reset(&volumes);
        let is_changing = states.0.values().any(State::is_changing);
        if !is_changing && volumes.iter().all(is_even) {
            return Ok(states);
        }
        tracing::info!("caches are about to change: all get the shares first that are configured");
        if timeout(PATIENCE, states.even_out(&volumes)).await.is_ok() {
            return Ok(states);
        }
        let late = volumes.iter().find(|volume| is_over(volume));
        Err(late.map_or("a cache is still changing; try again".to_owned(), |volume| {
            format!(
                "volume '{}' has not given back what it borrowed of other volumes' cache, since \
                 its store does not take the dirty blocks; try again when it does",
                volume.config().name
            )
        }))
    }

    /// Ends the task; sizes that are being changed get there.
    pub(crate) fn end(&self) {
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
    all.filter(|volume| volume.config().cache_blocks > 0 && !volume.answers.is_closing()).collect()
}

/// Whether a volume has lent nothing, and borrowed nothing.
fn is_even(volume: &Arc<Volume>) -> bool {
    volume.now().cache_blocks == volume.share_blocks()
}

/// Whether a volume has more than its share, or memory that it gave up is not free yet.
fn is_over(volume: &Arc<Volume>) -> bool {
    volume.now().cache_blocks > volume.share_blocks() || volume.surplus_frames() > 0
}

/// Changes the size of a cache, in a task that runs to its end and logs a failure.
fn change(volume: &Arc<Volume>, blocks: u32) -> JoinHandle<()> {
    let volume = Arc::clone(volume);
    tokio::spawn(async move {
        let name = &volume.config().name;
        match volume.resize(blocks).await {
            Ok(()) => {
                let cache = Bytes(volume.now().cache_bytes());
                tracing::debug!(volume = name, %cache, "its cache has changed for a while");
            }
            Err(why) => tracing::warn!(volume = name, "its cache has not changed: {why}"),
        }
    })
}

impl States {
    /// Looks at the volumes after a period, and changes shares and sizes.
    fn pass(&mut self, volumes: &[Arc<Volume>]) {
        let moves = |config: &VolumeConfig| config.lends() || config.borrows();
        if volumes.iter().all(|volume| is_even(volume) && !moves(&volume.now())) {
            return self.0.clear();
        }
        self.0.retain(|name, _| volumes.iter().any(|volume| volume.config().name == *name));
        let members: Vec<_> = volumes.iter().map(|volume| self.look_at(volume)).collect();
        let sum = |of: fn(&Member) -> u64| members.iter().map(of).sum::<u64>();
        if sum(|member| member.share) != sum(|member| member.configured) {
            // A volume is gone, and with it what it got of others' shares, or they of its.
            return self.reset(volumes);
        }
        let Moves { targets, sizes, transfer } = next(&members);
        for ((volume, member), target) in volumes.iter().zip(&members).zip(targets) {
            self.of(volume).tell(&volume.config().name, member, target);
        }
        for (at, bytes) in sizes {
            let (volume, blocks) = (&volumes[at], (bytes / members[at].block) as u32);
            self.of(volume).change = Some((blocks, change(volume, blocks)));
        }
        if let Some(transfer) = transfer {
            let blocks = |at: usize| (transfer.bytes / members[at].block) as u32;
            let (from, to) = (&volumes[transfer.from], &volumes[transfer.to]);
            from.set_share(from.share_blocks() - blocks(transfer.from));
            to.set_share(to.share_blocks() + blocks(transfer.to));
            tell_of(&transfer, from, to);
        }
    }

    fn of(&mut self, volume: &Volume) -> &mut State {
        self.0.entry(volume.config().name.clone()).or_default()
    }

    /// Gives all shares back as they are configured; sizes are to follow.
    fn reset(&mut self, volumes: &[Arc<Volume>]) {
        for volume in volumes {
            if let Some(blocks) = self.of(volume).configured.take() {
                volume.set_share(blocks);
            }
        }
    }

    /// Brings all sizes to the shares.
    async fn even_out(&mut self, volumes: &[Arc<Volume>]) {
        for state in self.0.values_mut() {
            if let Some((_, task)) = &mut state.change {
                // It logs its failure, as those below do.
                let _ = task.await;
                state.change = None;
            }
        }
        for volume in volumes.iter().filter(|volume| is_over(volume)) {
            let _ = change(volume, volume.share_blocks()).await;
        }
        while volumes.iter().any(is_over) {
            sleep(LOOK).await;
        }
        for volume in volumes.iter().filter(|volume| !is_even(volume)) {
            let _ = change(volume, volume.share_blocks()).await;
        }
    }

    /// What a volume did in the last period, and what it may have.
    fn look_at(&mut self, volume: &Arc<Volume>) -> Member {
        let (now, stats, state) = (volume.now(), volume.stats(), self.of(volume));
        let hits = stats.read_hits + stats.write_hits + stats.streamed;
        let references = stats.reads + stats.writes;
        let counted = Counted { references, misses: references.saturating_sub(hits) };
        state.activity.note(counted, now.cache_idle.as_secs().div_ceil(PERIOD.as_secs()) as usize);
        let works = stats.store_up == 1;
        let is_fixed = state.is_fixed(volume);
        let is_idle = works && state.activity.is_idle(stats.share_blocks);
        // A few blocks may be missing, of ranges that were dropped.
        let is_full = stats.resident + stats.capacity_blocks / 64 >= stats.capacity_blocks;
        let wants = works && is_full && state.activity.misses_much(stats.share_blocks);
        let mut configured = volume.share_blocks();
        if now.is_share_auto {
            configured = *state.configured.get_or_insert(configured);
        }
        let block = u64::from(now.block_bytes);
        let (share, configured) = (stats.share_blocks * block, u64::from(configured) * block);
        let growing = state.change.as_ref().map_or(0, |(blocks, _)| *blocks);
        Member {
            configured,
            share,
            least: now.least_bytes(configured).min(share),
            most: now.most_bytes(configured).max(share),
            block,
            size: u64::from(now.cache_blocks.max(growing)) * block,
            leaving: volume.surplus_frames() * block,
            is_idle: is_idle && !is_fixed,
            wants: wants && !is_idle && !is_fixed,
            is_fixed,
            worth: (now.is_share_auto && works).then(|| volume.advice.ready(volume)).flatten(),
        }
    }
}

impl State {
    fn is_changing(&self) -> bool {
        self.change.as_ref().is_some_and(|(_, task)| !task.is_finished())
    }

    /// Whether the size of the volume cannot change in this period.
    fn is_fixed(&mut self, volume: &Volume) -> bool {
        let ended = self.change.take_if(|(_, task)| task.is_finished());
        let has_failed = ended.is_some_and(|(blocks, _)| volume.now().cache_blocks != blocks);
        self.rest = if has_failed { REST } else { self.rest.saturating_sub(1) };
        let is_changing = self.change.is_some() || volume.changing.try_lock().is_err();
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
    fn tell(&mut self, volume: &str, member: &Member, target: u64) {
        let now = member.size.cmp(&member.share);
        // A size that is on its way to a share that has changed is neither.
        if target.cmp(&member.share) != now || self.standing == Some(now) {
            return;
        }
        let what = match (now, self.standing.replace(now)) {
            (Ordering::Less, _) => "is idle, and lends room of its cache",
            (Ordering::Greater, _) => "borrows room of other volumes' cache",
            (Ordering::Equal, Some(Ordering::Less)) => "has all of its cache again",
            (Ordering::Equal, Some(_)) => "has given back what it borrowed",
            (Ordering::Equal, None) => return,
        };
        let (share, cache) = (Bytes(member.share), Bytes(member.size));
        tracing::info!(volume, %share, %cache, "{what}");
    }
}

/// Logs that a part of a share goes to another volume, and why.
fn tell_of(transfer: &Transfer, from: &Volume, to: &Volume) {
    let said = |what: &Estimate| match transfer.unit {
        Unit::Reads => format!("{} disk reads a second", amount(what)),
        Unit::Time => format!("{} ms of waiting a second", amount(&what.times(1e3))),
    };
    let share = |volume: &Volume| {
        Bytes(u64::from(volume.share_blocks()) * u64::from(volume.config().block_bytes))
    };
    tracing::info!(
        volume = to.config().name,
        from = from.config().name,
        cache = %Bytes(transfer.bytes),
        share = %share(to),
        from_share = %share(from),
        "gets a part of another volume's share: that saves {} here; there it would save at most {}",
        said(&transfer.gain),
        said(&transfer.loss)
    );
}
