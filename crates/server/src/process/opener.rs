//! Volumes that cannot be opened yet because their stores are away: another server that does not
//! run, an object store that cannot be reached. The other volumes are served meanwhile. Each has a
//! task that tries again with growing pauses, and serves the volume as soon as it is open; one
//! attempt runs at a time, and everything that it opened is dropped if it fails.
//!
//! At first only a store that is away is waited for: any other error ends the start. Later errors
//! (the store is there, and has another size) stay with the volume until an attempt succeeds, or a
//! reload changes its configuration.

use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use undercroft_nbd::ClientOptions;

use crate::config::VolumeConfig;
use crate::exports::ExportTable;
use crate::process::error::ServeError;
use crate::process::flash_device::FlashDevice;
use crate::process::pending_volume::PendingVolume;
use crate::process::run::open_volume;
use crate::process::state_folder::StateFolder;
use crate::process::surroundings::Surroundings;
use crate::process::unwritten;
use crate::volume::Volume;

/// How long a start and a reload wait for a store before they go on without it.
const PATIENCE: Duration = Duration::from_secs(5);

/// Longest duration of an attempt. Stores have shorter limits of their own; this is for one that
/// keeps none. An object store tries for three minutes, and a lease lasts 15 s.
const ATTEMPT: Duration = Duration::from_secs(240);

/// Pauses between two attempts; they double.
const PAUSE_FIRST: Duration = Duration::from_millis(500);
const PAUSE_LONGEST: Duration = Duration::from_secs(10);

/// Pause between two checks for the end of a task.
const LOOK: Duration = Duration::from_millis(1);

/// What opening a volume needs beside its configuration.
#[derive(Clone)]
pub(crate) struct Opener {
    pub(crate) upstream: ClientOptions,
    pub(crate) surroundings: Surroundings,
    pub(crate) flash: Option<Arc<FlashDevice>>,
    pub(crate) exports: Arc<ExportTable>,
    pub(crate) state: Option<StateFolder>,
    /// Folder for blocks that stores have not taken.
    pub(crate) unwritten: Option<PathBuf>,
}

type Attempt = Pin<Box<dyn Future<Output = Result<Arc<Volume>, ServeError>> + Send>>;

/// The result of the first attempt.
pub(crate) enum First {
    Open(Arc<Volume>),
    Away(Waiting),
}

/// A volume to wait for, and an attempt to open it that has not ended.
pub(crate) struct Waiting {
    pending: Arc<PendingVolume>,
    attempt: Option<Attempt>,
}

/// The task that opens a volume as soon as its store is there; it ends when this is dropped.
pub(crate) struct OpeningTask(JoinHandle<()>);

impl Opener {
    fn attempt(&self, config: &VolumeConfig) -> Attempt {
        let (config, opener) = (config.clone(), self.clone());
        Box::pin(async move {
            let Opener { upstream, surroundings, flash, .. } = &opener;
            open_volume(&config, upstream, surroundings, flash.as_ref()).await
        })
    }

    /// Tries to open a volume, for a few seconds at most.
    ///
    /// # Errors
    /// Why it cannot be opened, if waiting would not help.
    pub(crate) async fn open(&self, config: &VolumeConfig) -> Result<First, ServeError> {
        let mut attempt = self.attempt(config);
        let (why, attempt) = match timeout(PATIENCE, &mut attempt).await {
            Ok(Ok(volume)) => return Ok(First::Open(volume)),
            Ok(Err(ServeError::Away(why))) => (why, None),
            Ok(Err(error)) => return Err(error),
            Err(_) => {
                let (store, limit) = (&config.store, PATIENCE.as_secs());
                (format!("{store}: no answer within {limit} s"), Some(attempt))
            }
        };
        let pending = PendingVolume::new(config, String::new());
        pending.note(&why);
        Ok(First::Away(Waiting { pending, attempt }))
    }

    /// Waits for a volume without a first attempt.
    pub(crate) fn wait_for(&self, config: &VolumeConfig) -> OpeningTask {
        let why = "it is being opened".to_owned();
        self.wait(Waiting { pending: PendingVolume::new(config, why), attempt: None })
    }

    /// Announces a volume as away, and opens it as soon as its store is there.
    pub(crate) fn wait(&self, waiting: Waiting) -> OpeningTask {
        self.exports.announce(Arc::clone(&waiting.pending));
        OpeningTask(tokio::spawn(open_when_there(self.clone(), waiting)))
    }

    /// Serves a volume that was opened.
    pub(crate) fn serve(&self, volume: Arc<Volume>, rules: &VolumeConfig) {
        self.begin(&volume, rules);
        self.exports.add(volume, rules);
    }

    /// What is done before the first request: what was kept of an earlier end is outdated, and the
    /// cache is restored.
    pub(crate) fn begin(&self, volume: &Arc<Volume>, rules: &VolumeConfig) {
        // Kept blocks must not be written any more when the volume can be written.
        if let (Some(folder), false) = (&self.unwritten, rules.read_only) {
            unwritten::outdate(folder, &rules.name, &rules.store);
        }
        self.state.iter().for_each(|state| state.resume(volume));
    }
}

/// Tries until the volume is open, and serves it.
async fn open_when_there(opener: Opener, waiting: Waiting) {
    let Waiting { pending, mut attempt } = waiting;
    let mut pause = PAUSE_FIRST;
    loop {
        let opening = attempt.take().unwrap_or_else(|| opener.attempt(pending.config()));
        let why = match timeout(ATTEMPT, opening).await {
            Ok(Ok(volume)) => {
                // Without a wait in between, so that ending this task leaves nothing half done.
                opener.serve(volume, pending.config());
                tracing::warn!(volume = pending.config().name, "is served now");
                return;
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => {
                format!("{}: no answer within {} s", pending.config().store, ATTEMPT.as_secs())
            }
        };
        pending.note(&why);
        sleep(pause).await;
        pause = (2 * pause).min(PAUSE_LONGEST);
    }
}

impl OpeningTask {
    /// Ends the task. Afterwards the volume is served, or nothing of it is open.
    pub(crate) async fn end(&self) {
        self.0.abort();
        while !self.0.is_finished() {
            sleep(LOOK).await;
        }
    }
}

impl Drop for OpeningTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}
