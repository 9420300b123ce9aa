//! Commits of the journals of a volume's level on flash, so that the next server finds there what
//! this one leaves ([`FlashCommits`]). One task makes them, one after another:
//!
//! 1. What was written to flash is synced, if the store has its blocks durably.
//! 2. A page of the journal and one of the table are written for each shard that has news, with
//!    the copies that are durable now, the ends of others, and the stamp.
//! 3. They are synced. Then changes of the store go on that waited for the end of a copy, and
//!    writes to slots whose copy has ended.
//!
//! The stamp says until when changes of the store are this server's. No change is made later than
//! that, so one that somebody else makes is noticed by the next server.
//!
//! If a commit fails or takes too long, the level is used no more. Changes of the store wait until
//! the stamp is over, and are made then: the next server finds that the store was changed.
//!
//! Not here: what a page holds (`undercroft_flash`), how a change waits (`ordered_store.rs`), and
//! how a level comes and goes (`flash.rs`).

use std::io;
use std::ops::RangeInclusive;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use foldhash::fast::FixedState;
use futures_util::future::{BoxFuture, try_join_all};
use hashbrown::HashMap;
use tokio::sync::Notify;
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};
use undercroft_flash::{Slot, Stamp};
use undercroft_store::Store;

use crate::clock;
use crate::flash::{APART_NS, FlashJournals, FlashPart, STAMP_MAX_NS};
use crate::geometry::Geometry;
use crate::lock::sleep_lock;
use crate::shard::flash_level::{FlashLevel, Gate, Page};

/// Pause after which a commit is made for what no request waits for: new copies, and slots that are
/// taken over.
const TICK: Duration = Duration::from_millis(500);

/// How long copies wait for a FLUSH of a client before the store is flushed for them.
const FLUSH_AFTER: Duration = Duration::from_secs(5);

/// Copies that wait for that, beyond which the store is flushed at once.
const QUEUE_MAX: usize = 1 << 16;

/// How long a commit may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// How far ahead a stamp reaches when commits take no time; how much of it must be left for a
/// change, and how much lest a new one is made. In nanoseconds.
const STAMP_NS: u64 = 2_000_000_000;
const LEFT_NS: u64 = 1_000_000_000;
const RENEW_NS: u64 = 1_700_000_000;

/// How long it takes until the time of a store's last change is as durable as its data: a stamp
/// admits what was the last change so long ago, or at the stamp before that.
const SETTLES: Duration = Duration::from_secs(60);

/// The levels on flash of a volume's shards.
pub(crate) trait Levels: Send + Sync {
    /// Their number.
    fn count(&self) -> usize;

    /// Does something with one, under the lock of its shard.
    fn with(&self, index: usize, what: &mut dyn FnMut(&mut FlashLevel));

    /// Puts one below its shard, or takes it away. A block that is changing, or that the store does
    /// not have yet, has no copy there that counts.
    fn replace(&self, index: usize, level: Option<Box<FlashLevel>>);
}

/// What commits need of their volume.
pub(crate) trait Host: Send + Sync {
    /// A commit of a shard's journal is durable: what waited for it goes on. Returns whether there
    /// is more for the next one.
    fn committed(&self, shard: usize) -> bool;

    /// Makes durable what the store has, if it can.
    fn flush(&self) -> BoxFuture<'static, ()>;

    /// Whether the volume is no more.
    fn is_gone(&self) -> bool;
}

/// The commits of a volume.
pub(crate) struct FlashCommits {
    volume: String,
    levels: Arc<dyn Levels>,
    geometry: Arc<Geometry>,
    part: Arc<FlashPart>,
    journals: Arc<FlashJournals>,
    store: Arc<dyn Store>,
    stamps: Mutex<Stamps>,
    /// Whether the next commit is to bring a new stamp.
    wants_stamp: AtomicBool,
    /// Whether the store is being flushed for copies that wait for it.
    is_flushing: Arc<AtomicBool>,
    changes: Arc<StoreChanges>,
    /// Notified after each commit.
    progress: Notify,
    queue: tokio::sync::Mutex<Queue>,
}

/// What the journals say of the store.
struct Stamps {
    durable: Stamp,
    /// The latest moment of a stamp that may be on the device: a commit that failed may be there.
    may_say_until: u64,
    /// Whether a commit of this run has brought one.
    is_said: bool,
    /// Since when no commit is made any more.
    over: Option<Instant>,
    /// How long the last commit took, and the changes of the store that were answered by then.
    took: Duration,
    answered: u64,
    /// The times of the store's last change that were seen, and when.
    seen: [(Instant, u64); 2],
}

/// Copies whose data are on flash, and that are not in the journal.
#[derive(Default)]
struct Queue {
    /// By shard and slot: the block, and how many changes of the store were answered then.
    copies: HashMap<(usize, Slot), (u64, u64), FixedState>,
    /// Since when there are any.
    since: Option<Instant>,
}

/// Changes of a store, by their number.
pub(super) struct StoreChanges {
    /// Those that are being made, that were answered, and that were answered before a flush which
    /// succeeded.
    running: AtomicU64,
    answered: AtomicU64,
    covered: AtomicU64,
}

/// A change of the store that is being made, or waits.
pub(super) struct Change(Arc<StoreChanges>);

impl FlashCommits {
    /// For the part of a volume if it has journals; `None` for another one.
    pub(super) fn new(
        volume: &str,
        part: &Arc<FlashPart>,
        levels: Arc<dyn Levels>,
        geometry: &Arc<Geometry>,
        store: &Arc<dyn Store>,
        changes: Arc<StoreChanges>,
    ) -> Option<Arc<Self>> {
        let journals = Arc::clone(part.journals.as_ref()?);
        let (durable, may_say_until) = (journals.stamp, journals.may_say_until);
        let seen = [(clock::now(), durable.since_ns); 2];
        Some(Arc::new(Self {
            volume: volume.to_owned(),
            levels,
            geometry: Arc::clone(geometry),
            part: Arc::clone(part),
            journals,
            store: Arc::clone(store),
            stamps: Mutex::new(Stamps {
                durable,
                may_say_until,
                is_said: false,
                over: None,
                took: Duration::ZERO,
                answered: 1,
                seen,
            }),
            wants_stamp: AtomicBool::new(false),
            is_flushing: Arc::default(),
            changes,
            progress: Notify::new(),
            queue: tokio::sync::Mutex::default(),
        }))
    }

    /// Whether these blocks of the store may be changed now, by a change that has
    /// [begun](StoreChanges).
    pub(super) fn allows(&self, blocks: &[RangeInclusive<u64>]) -> bool {
        matches!(self.gate(blocks), Gate::Open)
    }

    /// Waits until these blocks of the store may be changed, by a change that has
    /// [begun](StoreChanges).
    pub(super) async fn until_allowed(&self, blocks: &[RangeInclusive<u64>]) {
        self.until_open(|| self.gate(blocks)).await;
    }

    /// Waits until a gate is open.
    async fn until_open(&self, mut gate: impl FnMut() -> Gate + Send) {
        loop {
            let mut progress = pin!(self.progress.notified());
            progress.as_mut().enable();
            match gate() {
                Gate::Open => return,
                Gate::Sweeping => yield_now().await,
                Gate::Shut => {
                    self.journals.wanted.notify_one();
                    // Also woken by the clock, for the end of the last stamp.
                    let _ = timeout(TICK, progress).await;
                }
            }
        }
    }

    fn gate(&self, blocks: &[RangeInclusive<u64>]) -> Gate {
        {
            let stamps = sleep_lock(&self.stamps);
            let now = self.now_ns();
            if stamps.over.is_some() {
                return if stamps.are_past(now) { Gate::Open } else { Gate::Shut };
            }
            if now + LEFT_NS > stamps.durable.until_ns || stamps.are_ahead(now) {
                self.wants_stamp.store(true, Ordering::SeqCst);
                return Gate::Shut;
            }
        }
        self.gate_of_levels(blocks)
    }

    fn gate_of_levels(&self, blocks: &[RangeInclusive<u64>]) -> Gate {
        let mut gate = Gate::Open;
        for range in blocks {
            let shards = if range.start() == range.end() { 1 } else { self.levels.count() };
            let first = self.geometry.shard_of(*range.start());
            for index in (0..shards).map(|index| (first + index) % self.levels.count()) {
                self.levels.with(index, &mut |flash| gate = gate.max(flash.before_change(range)));
            }
        }
        gate
    }

    /// Waits until none of the copies that are void now counts after a restart.
    ///
    /// # Errors
    /// That cannot be written, and the store was not changed since, so a restart may find some.
    pub(super) async fn all_ended(&self) -> Result<(), String> {
        let (mut ends, mut is_over) = (vec![None; self.levels.count()], false);
        let have_ended = || {
            let mut gate = Gate::Open;
            is_over = self.is_over();
            if is_over {
                return gate;
            }
            for (index, ends) in ends.iter_mut().enumerate() {
                self.levels.with(index, &mut |flash| gate = gate.max(flash.have_ended(ends)));
            }
            gate
        };
        self.until_open(have_ended).await;
        if !is_over {
            return Ok(());
        }
        let said = sleep_lock(&self.stamps).may_say_until;
        match timeout(PATIENCE, self.store.version()).await {
            Ok(Some(version)) if version.changed_ns > said => Ok(()),
            _ => Err("what lies on flash cannot be ended for good, since its journal cannot be \
                      written: a restart finds some of it, unless the store is changed before; \
                      nothing is read from there until then"
                .to_owned()),
        }
    }

    /// Commits what there is, with the lock of the queue held. Returns whether more is waiting that
    /// somebody waits for.
    ///
    /// # Errors
    /// The device failed or did not answer, or the store did not tell its version.
    async fn commit(&self, queue: &mut Queue, host: &dyn Host, is_last: bool) -> io::Result<bool> {
        if self.part.medium.is_off() {
            return Err(io::Error::other("the device is used no more"));
        }
        self.take_written(queue);
        let began = clock::now();
        self.make_store_durable(queue, host, is_last).await;
        let ready = queue.take_covered(self.changes.covered.load(Ordering::SeqCst));
        // Before the stamp: it is over soon.
        self.enter(ready).await?;
        let stamp = self.stamp(is_last).await?;
        let (pages, committed) = self.pages(stamp);
        if pages.is_empty() {
            return Ok(false);
        }
        {
            let mut stamps = sleep_lock(&self.stamps);
            stamps.may_say_until = stamps.may_say_until.max(stamp.until_ns);
        }
        self.write(pages).await?;
        {
            let mut stamps = sleep_lock(&self.stamps);
            (stamps.durable, stamps.is_said) = (stamp, true);
            stamps.took = clock::since(began);
        }
        let is_more =
            committed.into_iter().fold(false, |is_more, index| host.committed(index) | is_more);
        self.progress.notify_waiters();
        Ok(is_more)
    }

    /// Flushes the store if copies have waited long for that, and for the `last` commit. Only the
    /// last one waits until it is done.
    async fn make_store_durable(&self, queue: &mut Queue, host: &dyn Host, is_last: bool) {
        if is_last {
            // If it fails, these copies stay out of the journal.
            let _ = timeout(PATIENCE, host.flush()).await;
            return;
        }
        let waited = queue.since.map_or(Duration::ZERO, clock::since);
        let is_due = waited > FLUSH_AFTER || waited > TICK && queue.copies.len() > QUEUE_MAX;
        if is_due && !self.is_flushing.swap(true, Ordering::SeqCst) {
            queue.since = Some(clock::now());
            let (flush, is_flushing) = (host.flush(), Arc::clone(&self.is_flushing));
            tokio::spawn(async move {
                flush.await;
                is_flushing.store(false, Ordering::SeqCst);
            });
        }
    }

    /// Makes copies durable on flash that are durable in the store, and tells the journals.
    async fn enter(&self, ready: Vec<((usize, Slot), u64)>) -> io::Result<()> {
        if !ready.is_empty() {
            timeout(PATIENCE, self.part.medium.store.flush()).await??;
        }
        for ((index, slot), block) in ready {
            self.levels.with(index, &mut |flash| flash.enter(slot, block));
        }
        Ok(())
    }

    /// The pages of a commit with this stamp, and whose they are: of each shard that has news, and
    /// of the first one if the stamp is new.
    fn pages(&self, stamp: Stamp) -> (Vec<Page>, Vec<usize>) {
        let is_new = {
            let stamps = sleep_lock(&self.stamps);
            stamp != stamps.durable || !stamps.is_said
        };
        let (mut pages, mut committed) = (Vec::new(), Vec::new());
        for index in 0..self.levels.count() {
            self.levels.with(index, &mut |flash| {
                if let Some(both) = flash.commit(stamp, is_new && index == 0) {
                    pages.extend(both);
                    committed.push(index);
                }
            });
        }
        (pages, committed)
    }

    /// Takes over what was written to flash since the last time.
    fn take_written(&self, queue: &mut Queue) {
        for index in 0..self.levels.count() {
            let mut written = Vec::new();
            self.levels.with(index, &mut |flash| written = flash.take_written());
            let answered = self.changes.answered();
            for (slot, block) in written {
                queue.copies.insert((index, slot), (block, answered));
            }
        }
        if !queue.copies.is_empty() {
            queue.since.get_or_insert_with(clock::now);
        }
    }

    /// The stamp of the next commit.
    async fn stamp(&self, is_last: bool) -> io::Result<Stamp> {
        let now = self.now_ns();
        let (durable, stamped, is_ahead) = {
            let stamps = sleep_lock(&self.stamps);
            (stamps.durable, stamps.answered, stamps.are_ahead(now))
        };
        let answered = self.changes.answered();
        let changes = answered > stamped || self.changes.running.load(Ordering::SeqCst) > 0;
        let is_wanted = self.wants_stamp.load(Ordering::SeqCst)
            || is_ahead
            || changes && now + RENEW_NS > durable.until_ns;
        if !is_wanted && !is_last {
            return Ok(durable);
        }
        let Ok(version) = timeout(PATIENCE, self.store.version()).await else {
            // It does not answer now; changes of it wait.
            return Ok(durable);
        };
        let version =
            version.ok_or_else(|| io::Error::other("the store has no version any more"))?;
        let (identity, changed) = (version.identity, version.changed_ns);
        self.wants_stamp.store(false, Ordering::SeqCst);
        if is_last {
            return Ok(Stamp { identity, since_ns: changed, until_ns: changed });
        }
        let mut stamps = sleep_lock(&self.stamps);
        let [older, newer] = stamps.seen;
        if clock::since(newer.0) > SETTLES {
            stamps.seen = [newer, (clock::now(), changed)];
        }
        stamps.answered = answered;
        // Or it would be over when it is there.
        let ahead = (STAMP_NS + 2 * stamps.took.as_nanos() as u64).min(STAMP_MAX_NS);
        Ok(Stamp { identity, since_ns: older.1.min(changed), until_ns: self.now_ns() + ahead })
    }

    /// Writes pages to the device, and makes them durable. Others may not have their places before
    /// that has ended, even if nobody waits for it any more.
    async fn write(&self, pages: Vec<Page>) -> io::Result<()> {
        let part = Arc::clone(&self.part);
        let written = tokio::spawn(async move {
            let device = &part.medium.store;
            let written = pages
                .into_iter()
                .map(|(byte, page)| device.write(byte, vec![Bytes::from(page)], false));
            try_join_all(written).await?;
            device.flush().await
        });
        timeout(PATIENCE, written).await?.map_err(io::Error::other)?
    }

    /// No commit is made any more.
    fn give_up(&self, why: &io::Error) {
        tracing::error!(
            volume = self.volume,
            "flash: its journal cannot be written: {why}; its level is used no more until it \
             is removed and added again (undercroft flash), or the server is started again, and is \
             cold then if the store changes"
        );
        self.make_no_more();
        for index in 0..self.levels.count() {
            self.levels.with(index, &mut FlashLevel::turn_off);
        }
        self.progress.notify_waiters();
    }

    fn now_ns(&self) -> u64 {
        (self.part.medium.clock)()
    }

    /// Until when a change that began at `start` may wait for a commit that does not end, or,
    /// without any, for the end of the last stamp; `start` if it waits for neither.
    pub(super) fn holds_until(&self, start: Instant) -> Instant {
        let stamp = Duration::from_nanos(STAMP_MAX_NS + APART_NS);
        let over = sleep_lock(&self.stamps).over;
        match over {
            Some(over) => start.max(over + stamp),
            // A commit syncs the device, and writes to it.
            None if self.queue.try_lock().is_err() => start + 2 * PATIENCE + stamp,
            None => start,
        }
    }

    fn is_over(&self) -> bool {
        sleep_lock(&self.stamps).over.is_some()
    }

    fn make_no_more(&self) {
        sleep_lock(&self.stamps).over.get_or_insert_with(clock::now);
        // The task ends, and with it what it keeps.
        self.journals.wanted.notify_one();
    }

    /// No commit is made any more when this returns. Changes of the store wait until the last stamp
    /// is over, or they are [void](Self::void).
    pub(super) async fn stop(&self) {
        self.make_no_more();
        drop(self.queue.lock().await);
    }

    /// Whether no commit is made any more, and changes of the store wait for nothing.
    pub(super) fn is_past(&self) -> bool {
        sleep_lock(&self.stamps).are_past(self.now_ns())
    }

    /// What the journals say counts no more: changes of the store wait for nothing.
    pub(super) fn void(&self) {
        sleep_lock(&self.stamps).may_say_until = 0;
        self.progress.notify_waiters();
    }

    /// The volume has ended, and its store is durable: the next server shall find all that is on
    /// flash, if nobody changes the store before.
    pub(super) async fn end(&self, host: &dyn Host) {
        // Held until no commit is made any more: another one would say that the store's next change
        // may be this server's.
        let mut queue = match timeout(PATIENCE, self.queue.lock()).await {
            Ok(queue) => queue,
            Err(why) => return self.give_up(&why.into()),
        };
        let ended = async {
            loop {
                let mut is_writing = false;
                for index in 0..self.levels.count() {
                    self.levels.with(index, &mut |flash| is_writing |= flash.is_writing());
                }
                // The last stamp must not be there before the end of what is void.
                let is_last = !is_writing && self.gate_of_levels(&[0..=u64::MAX]) == Gate::Open;
                if self.is_over() || !self.commit(&mut queue, host, is_last).await? && is_last {
                    return io::Result::Ok(());
                }
                sleep(Duration::from_millis(1)).await;
            }
        };
        match timeout(2 * PATIENCE, ended).await {
            Ok(Ok(())) => self.make_no_more(),
            Ok(Err(why)) => self.give_up(&why),
            Err(why) => self.give_up(&why.into()),
        }
    }
}

impl Stamps {
    /// Whether no commit is made any more, and a change now is later than every stamp.
    fn are_past(&self, now_ns: u64) -> bool {
        // The system's clock may have been set back.
        let is_past = |over| clock::since(over) > Duration::from_nanos(STAMP_MAX_NS + APART_NS);
        let Some(over) = self.over else { return false };
        now_ns > self.may_say_until + APART_NS || is_past(over)
    }

    /// Whether the stamp reaches farther ahead than any that is made now: the system's clock was
    /// set back, and what somebody else changes from now on would be taken for ours.
    fn are_ahead(&self, now_ns: u64) -> bool {
        self.is_said && self.durable.until_ns > now_ns + STAMP_MAX_NS
    }
}

impl Queue {
    /// Takes out the copies whose blocks a flush has made durable in the store. `covered`: changes
    /// of the store that were answered before that flush began.
    fn take_covered(&mut self, covered: u64) -> Vec<((usize, Slot), u64)> {
        let is_covered = |_: &_, &mut (_, answered): &mut (u64, u64)| answered <= covered;
        let ready = self.copies.extract_if(is_covered);
        let ready = ready.map(|(place, (block, _))| (place, block)).collect();
        self.since = self.since.filter(|_| !self.copies.is_empty());
        ready
    }
}

impl StoreChanges {
    pub(super) fn begin(all: &Arc<Self>) -> Change {
        all.running.fetch_add(1, Ordering::SeqCst);
        Change(Arc::clone(all))
    }

    /// Those that were answered so far.
    pub(super) fn answered(&self) -> u64 {
        self.answered.load(Ordering::SeqCst)
    }

    /// A flush of the store has succeeded, which began when so many were answered.
    pub(super) fn flushed(&self, answered: u64) {
        self.covered.fetch_max(answered, Ordering::SeqCst);
    }
}

impl Default for StoreChanges {
    fn default() -> Self {
        // Changes by an earlier process may not be durable.
        let (running, answered, covered) =
            (AtomicU64::new(0), AtomicU64::new(1), AtomicU64::new(0));
        Self { running, answered, covered }
    }
}

impl Drop for Change {
    fn drop(&mut self) {
        self.0.answered.fetch_add(1, Ordering::SeqCst);
        self.0.running.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The task that commits; it ends with the volume.
pub(super) async fn commit_now_and_then(commits: Arc<FlashCommits>, host: Arc<dyn Host>) {
    while !commits.is_over() && !host.is_gone() {
        let _ = timeout(TICK, commits.journals.wanted.notified()).await;
        let (mut queue, mut is_more) = (commits.queue.lock().await, true);
        while is_more && !commits.is_over() {
            is_more = commits.commit(&mut queue, &*host, false).await.unwrap_or_else(|why| {
                commits.give_up(&why);
                false
            });
        }
    }
}
