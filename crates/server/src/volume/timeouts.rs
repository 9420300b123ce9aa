//! Looks at a volume every now and then: which requests in the queues of blocks have waited for too
//! long, how its store is, and what its cache saved. `answers.rs` says what late requests are.

use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::clock;
use crate::job::{Job, JobKind};
use crate::lock::lock;
use crate::volume::answers::too_late;
use crate::volume::store_health::LOOK;
use crate::volume::{Volume, Work};

impl Work<'_> {
    /// Answers the requests of a shard whose blocks have waited for longer than the limit.
    fn answer_late(mut self, index: usize, limit: Duration) {
        let (now, volume) = (clock::now(), self.volume);
        let (shard, fx) = self.nth_shard(index);
        // Those that need a frame wait for whatever is being written out, or for the flush before.
        let syncing = || volume.pace.as_ref().and_then(|pace| pace.syncing_since());
        let writing = shard.dirty.at_store_since().or_else(syncing).unwrap_or(now);
        let is_late = |&(job, is_starved): &(&Arc<Job>, bool)| {
            let since = if is_starved { job.started.max(writing) } else { job.started };
            // A WRITE_ZEROES is late as a whole (`answer_in_time`), and not with its ends.
            now.saturating_duration_since(since) >= limit && !matches!(job.kind, JobKind::Zero)
        };
        let mut jobs: Vec<_> = shard.blocks.jobs().filter(is_late).map(|(job, _)| job).collect();
        // The longest waiting first.
        jobs.sort_by_key(|job| (job.started, job.offset, job.length));
        for job in jobs {
            let late = || volume.answers.late.begin(job.length);
            fx.finished.extend(job.give_up(too_late(limit), late));
        }
        self.finish();
    }
}

/// The background task that looks at the store, keeps the account of what the cache saves, and
/// answers late requests; ends with the volume. It checks often enough that no client waits much
/// longer than the limit.
pub(crate) async fn watch(volume: Weak<Volume>, limit: Option<Duration>) {
    let tick = limit.map_or(LOOK, |limit| (limit / 8).clamp(Duration::from_millis(10), LOOK));
    loop {
        tokio::time::sleep(tick).await;
        let Some(volume) = volume.upgrade() else { return };
        volume.store_health.look();
        if lock(&volume.account).is_due(clock::now()) {
            volume.savings(&volume.stats());
        }
        if let Some(limit) = limit {
            (0..volume.shards.len()).for_each(|i| Work::new(&volume).answer_late(i, limit));
        }
    }
}
