//! The level on flash of a volume, which comes and goes while the volume is served: it
//! [takes](VolumeFlash::take) one as soon as it is known what lies on its part of the device, and
//! may [leave](VolumeFlash::leave) it again.
//!
//! Until it is known what lies there, and after a level with journals has gone until the device
//! says durably that nothing does, changes of the store wait; reads do not.
//!
//! Not here: how parts are given (`process/flash_device.rs`), and when a change may go on below a
//! level with journals (`flash_commits.rs`).

use std::ops::RangeInclusive;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::timeout;
use undercroft_store::Store;

use crate::clock;
use crate::config::VolumeConfig;
use crate::flash::FlashPart;
use crate::geometry::Geometry;
use crate::lock::sleep_lock;
use crate::shard::flash_level::FlashLevel;
use crate::volume::flash_commits::{
    Change, FlashCommits, Host, Levels, StoreChanges, commit_now_and_then,
};

/// How long it may take until it is known what lies on a part, of some TiB.
const UNKNOWN_LONGEST: Duration = Duration::from_secs(300);

/// The level on flash of a volume, and what changes of its store wait for.
pub struct VolumeFlash {
    now: Mutex<Now>,
    /// Whether it is [`Now::Unknown`].
    pub(super) is_awaited: Arc<AtomicBool>,
    /// Notified when that is something else.
    changed: Notify,
    pub(super) changes: Arc<StoreChanges>,
    volume: VolumeConfig,
    levels: Arc<dyn Levels>,
    geometry: Arc<Geometry>,
    store: Arc<dyn Store>,
    runtime: Handle,
    host: OnceLock<Arc<dyn Host>>,
    /// Held by whoever gives the volume a level, or takes it away.
    pub(crate) turn: tokio::sync::Mutex<()>,
}

#[derive(Clone)]
enum Now {
    /// For nothing: no level counts after a restart.
    Free,
    /// Since then it is not known what lies on flash.
    Unknown(Instant),
    /// For the commits of a level.
    Recorded(Arc<FlashCommits>),
    /// For nothing any more: the volume has ended without a level.
    Closed,
}

impl VolumeFlash {
    /// Of a volume that is being opened, without a level.
    pub(super) fn new(
        volume: &VolumeConfig,
        levels: Arc<dyn Levels>,
        geometry: &Arc<Geometry>,
        store: &Arc<dyn Store>,
        runtime: &Handle,
    ) -> Self {
        let now = match volume.awaits_flash {
            true => Now::Unknown(clock::now()),
            false => Now::Free,
        };
        Self {
            now: Mutex::new(now),
            is_awaited: Arc::new(AtomicBool::new(volume.awaits_flash)),
            changed: Notify::new(),
            changes: Arc::default(),
            volume: volume.clone(),
            levels,
            geometry: Arc::clone(geometry),
            store: Arc::clone(store),
            runtime: runtime.clone(),
            host: OnceLock::new(),
            turn: tokio::sync::Mutex::default(),
        }
    }

    /// Whether changes of the store may have to wait.
    pub(super) fn orders_changes(&self) -> bool {
        !matches!(self.now(), Now::Free)
    }

    /// The volume, for commits, is there.
    pub(super) fn is_of(&self, host: Arc<dyn Host>) {
        let _ = self.host.set(host);
    }

    fn now(&self) -> Now {
        sleep_lock(&self.now).clone()
    }

    /// Begins a change of these blocks of the store, if nothing has to be awaited.
    pub(super) fn try_change(&self, blocks: &[RangeInclusive<u64>]) -> Option<Change> {
        let change = StoreChanges::begin(&self.changes);
        let is_open = match self.now() {
            Now::Free | Now::Closed => true,
            Now::Unknown(_) => false,
            Now::Recorded(commits) => commits.allows(blocks),
        };
        is_open.then_some(change)
    }

    /// Waits until these blocks of the store may be changed.
    pub(super) async fn before_change(&self, blocks: &[RangeInclusive<u64>]) -> Change {
        let change = StoreChanges::begin(&self.changes);
        if let Some(commits) = self.until_known().await {
            commits.until_allowed(blocks).await;
        }
        change
    }

    /// Waits until it is known what lies on flash. Returns the commits of the level, if it has
    /// journals.
    pub(super) async fn until_known(&self) -> Option<Arc<FlashCommits>> {
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            match self.now() {
                Now::Unknown(_) => changed.await,
                Now::Recorded(commits) => return Some(commits),
                Now::Free | Now::Closed => return None,
            }
        }
    }

    /// Changes wait for something else from now on, unless the volume has ended. Returns whether
    /// it has not.
    fn set(&self, next: Now) -> bool {
        let mut now = sleep_lock(&self.now);
        let is_open = !matches!(*now, Now::Closed);
        if is_open {
            self.is_awaited.store(matches!(next, Now::Unknown(_)), Ordering::Relaxed);
            *now = next;
        }
        drop(now);
        self.changed.notify_waiters();
        is_open
    }

    /// Whether it is not known what lies on flash, so that changes wait.
    pub(crate) fn is_unknown(&self) -> bool {
        self.is_awaited.load(Ordering::Relaxed)
    }

    /// Until when a change that began at `start` may wait for flash; `start` if it does not.
    pub(super) fn holds_until(&self, start: Instant) -> Instant {
        match self.now() {
            Now::Free | Now::Closed => start,
            Now::Unknown(since) => start.max(since + UNKNOWN_LONGEST),
            Now::Recorded(commits) => commits.holds_until(start),
        }
    }

    /// The volume has ended, and its store is durable. No level comes any more.
    pub(super) async fn end(&self) {
        // What is being given or taken away is finished first, as the next server is to find it.
        let _turn = timeout(UNKNOWN_LONGEST, self.turn.lock()).await;
        if let (Now::Recorded(commits), Some(host)) = (self.now(), self.host.get()) {
            commits.end(&**host).await;
        }
        self.set(Now::Closed);
    }

    /// Puts a level on flash below the cache, with what lies in its part; with `None`, the volume
    /// goes on without one. What waits for that goes on. Does nothing if there is a level.
    ///
    /// A part with journals is for a volume that was opened with
    /// [`awaits_flash`](VolumeConfig::awaits_flash), and may hold what an earlier server left only
    /// if the store was not changed since that.
    pub fn take(&self, part: Option<FlashPart>) {
        let may_have_journals = self.volume.awaits_flash;
        let is_fit = |part: &FlashPart| part.journals.is_none() || may_have_journals;
        let is_open = !matches!(self.now(), Now::Closed);
        if self.is_there() {
            return;
        }
        let Some(part) = part.filter(is_fit).filter(|_| is_open).map(Arc::new) else {
            self.set(Now::Free);
            return;
        };
        let (count, VolumeConfig { name, block_bytes, seed, .. }) =
            (self.levels.count(), &self.volume);
        for index in 0..count {
            let place = (index as u32, count as u32);
            let level = FlashLevel::new(&part, place, *block_bytes, *seed);
            self.levels.replace(index, Some(Box::new(level)));
        }
        let (levels, changes) = (Arc::clone(&self.levels), Arc::clone(&self.changes));
        let (geometry, store) = (&self.geometry, &self.store);
        let commits = FlashCommits::new(name, &part, levels, geometry, store, changes);
        let is_taken = self.set(commits.clone().map_or(Now::Free, Now::Recorded));
        if let (Some(commits), Some(host), true) = (commits, self.host.get(), is_taken) {
            self.runtime.spawn(commit_now_and_then(commits, Arc::clone(host)));
        }
    }

    /// Takes the level on flash away, if there is one; requests to its device are not awaited. If
    /// the level has journals, changes of the store wait from then on, until the device lists
    /// nothing of the volume any more, or a stamp on it is over: then [`forget`](Self::forget) is
    /// to be called.
    ///
    /// Returns its commits, of which none is being made any more.
    pub(crate) async fn leave(&self) -> Option<Arc<FlashCommits>> {
        let commits = self.until_known().await;
        if let Some(commits) = &commits {
            if !commits.is_past() {
                self.set(Now::Unknown(clock::now()));
            }
            commits.stop().await;
        }
        for index in 0..self.levels.count() {
            self.levels.replace(index, None);
        }
        commits
    }

    /// Nothing of the level that has gone, with these commits, counts after a restart: what waits
    /// for that goes on.
    pub(crate) fn forget(&self, commits: &FlashCommits) {
        commits.void();
        self.set(Now::Free);
    }

    /// Whether there is no level on flash, and none is being given.
    pub(crate) fn is_lacking(&self) -> bool {
        !self.is_unknown() && self.turn.try_lock().is_ok() && !self.is_there()
    }

    /// Whether there is a level on flash.
    pub(crate) fn is_there(&self) -> bool {
        let mut is_there = false;
        (0..self.levels.count())
            .for_each(|index| self.levels.with(index, &mut |_| is_there = true));
        is_there
    }
}
