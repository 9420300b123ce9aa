//! The folder for a restart: the saved cache state of each volume, and for each write-back volume a
//! mark that exists while it may hold changes that its store does not have.
//!
//! Not here: what a state is (`volume/state.rs`), and what a volume does with it
//! (`volume/restore.rs`).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

use crate::config::Write;
use crate::exports::ExportTable;
use crate::lock::sleep_lock;
use crate::process::error::{ServeError, work};
use crate::replace::replace;
use crate::volume::Volume;
use crate::volume::state::{SavedContent, StateError};

/// The folder. Clones are of the same one.
#[derive(Clone)]
pub(crate) struct StateFolder {
    path: PathBuf,
    /// Held while a state is taken and written: otherwise two would write the same file at a time,
    /// or an older state would replace a newer one.
    saving: Arc<Mutex<()>>,
}

impl StateFolder {
    pub(crate) fn open(path: PathBuf) -> Result<StateFolder, ServeError> {
        let what = format!("state folder {}", path.display());
        fs::create_dir_all(&path).map_err(|error| work(&what, &error))?;
        Ok(StateFolder { path, saving: Arc::default() })
    }

    fn content(&self, volume: &Volume) -> PathBuf {
        self.path.join(format!("{}.warm", volume.config().name))
    }

    fn mark(&self, volume: &Volume) -> PathBuf {
        self.path.join(format!("{}.in-use", volume.config().name))
    }

    /// Logs what an unclean end may have lost, and restores the saved cache.
    pub(crate) fn resume(&self, volume: &Arc<Volume>) {
        let name = volume.config().name.clone();
        let mark = self.mark(volume);
        if mark.exists() {
            tracing::warn!(
                volume = name,
                "did not end cleanly while it was write-back: writes that were answered after \
                 the last flush may be lost; what was flushed is there"
            );
        }
        if volume.config().write == Write::Back {
            // The mark must survive a power failure.
            if let Err(error) = replace(&mark, format!("{}\n", std::process::id()).as_bytes()) {
                tracing::warn!("{}: {error}", mark.display());
            }
        }
        let path = self.content(volume);
        if path.exists() && volume.config().cache_blocks > 0 {
            if let Err(error) = restore(volume, &path) {
                tracing::warn!("{}: {error}", path.display());
            }
        }
    }

    /// Saves the state of a volume, unless that is closing: then the last state is saved already.
    fn save(&self, volume: &Volume) -> Result<(), StateError> {
        let _one_at_a_time = sleep_lock(&self.saving);
        if volume.answers.is_closing() { Ok(()) } else { self.write(volume) }
    }

    /// Saves the last state of a volume, which refuses requests from then on.
    pub(crate) fn save_last(&self, volume: &Volume) -> Result<(), StateError> {
        let _one_at_a_time = sleep_lock(&self.saving);
        volume.answers.close();
        self.write(volume)
    }

    fn write(&self, volume: &Volume) -> Result<(), StateError> {
        let config = volume.config();
        if config.cache_blocks == 0 {
            return Ok(());
        }
        SavedContent::of(volume)?.save(&self.content(volume))
    }

    /// Saves by a thread that may wait for the disk, and logs a failure.
    pub(crate) async fn save_by(
        &self,
        volume: &Arc<Volume>,
        save: fn(&StateFolder, &Volume) -> Result<(), StateError>,
    ) {
        let (state, saved) = (self.clone(), Arc::clone(volume));
        if let Ok(Err(error)) = spawn_blocking(move || save(&state, &saved)).await {
            tracing::warn!("{}: {error}", self.content(volume).display());
        }
    }

    /// Removes the saved state of a volume.
    pub(crate) fn forget(&self, volume: &Volume) {
        let path = self.content(volume);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!("{}: {error}", path.display());
            }
            _ => {}
        }
    }

    /// Removes the mark of a volume that has ended in order; waits a second for that.
    pub(crate) async fn mark_clean(&self, volume: &Volume) {
        let mark = self.mark(volume);
        // The mark exists only for write-back volumes.
        let removed = spawn_blocking(move || fs::remove_file(mark));
        let _ = timeout(Duration::from_secs(1), removed).await;
    }
}

/// Restores a volume's saved cache; the data are read in the background.
fn restore(volume: &Arc<Volume>, path: &Path) -> Result<(), StateError> {
    let name = volume.config().name.clone();
    let saved = SavedContent::load(path, SavedContent::bytes_max(volume.now().cache_blocks))?;
    let restored = volume.restore(&saved)?;
    let blocks = restored.blocks().len();
    match restored.starts_anew() {
        None => tracing::info!(volume = name, blocks, "the cache goes on; its data is being read"),
        Some(why) => tracing::warn!(volume = name, blocks, "the cache starts anew: {why}"),
    }
    let volume = Arc::clone(volume);
    tokio::spawn(async move {
        let blocks = restored.warm_up(&volume).await;
        tracing::info!(volume = name, blocks, "cache is warm again");
    });
    Ok(())
}

/// Saves the states of all volumes again and again.
pub(crate) async fn save_now_and_then(
    state: StateFolder,
    exports: Arc<ExportTable>,
    interval: Duration,
) {
    loop {
        sleep(interval).await;
        for entry in exports.all() {
            state.save_by(entry.volume(), StateFolder::save).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use undercroft_nbd::ClientOptions;

    use super::*;
    use crate::config::Settings;
    use crate::process::run::{close, open_volume};
    use crate::process::surroundings::Surroundings;

    /// A folder, and a volume that takes a second to be closed if it has to wait.
    async fn opened(folder: &Path) -> (StateFolder, Arc<Volume>) {
        let state = StateFolder::open(folder.to_owned()).unwrap();
        let volumes = [Settings::volume("v=mem:,size=4MiB,cache=1MiB").unwrap()];
        let mut config = Settings::default().set("volume", volumes.to_vec()).config().unwrap();
        config.volumes[0].close_patience = Duration::from_secs(1);
        let (options, surroundings) = (ClientOptions::default(), Surroundings::default());
        (state, open_volume(&config.volumes[0], &options, &surroundings, None).await.unwrap())
    }

    #[tokio::test]
    async fn a_folder_that_hangs_keeps_no_volume_from_being_closed() {
        let folder = tempfile::tempdir().unwrap();
        let (state, volume) = opened(folder.path()).await;
        let (sender, ended) = std::sync::mpsc::channel::<()>();
        let (saving, locked) = (Arc::clone(&state.saving), Arc::new(std::sync::Barrier::new(2)));
        let at = Arc::clone(&locked);
        let hangs = std::thread::spawn(move || {
            let _saving = saving.lock().unwrap();
            at.wait();
            let _ = ended.recv();
        });
        locked.wait();
        let closed = timeout(Duration::from_secs(20), close(&volume, Some(&state))).await;
        closed.expect("it waits for the folder").unwrap();
        assert!(volume.answers.is_closing() && !state.content(&volume).exists());
        drop(sender);
        hangs.join().unwrap();
    }

    #[tokio::test]
    async fn states_are_saved_one_after_another_and_the_last_is_the_last() {
        let folder = tempfile::tempdir().unwrap();
        let (state, volume) = opened(folder.path()).await;
        std::thread::scope(|scope| {
            let save = |_| scope.spawn(|| (0..50).try_for_each(|_| state.save(&volume)));
            for saved in (0..4).map(save).collect::<Vec<_>>() {
                saved.join().unwrap().unwrap();
            }
        });
        state.save_last(&volume).unwrap();
        let path = state.content(&volume);
        fs::remove_file(&path).unwrap();
        state.save(&volume).unwrap();
        assert!(!path.exists(), "a save that was late wrote over the last one");
    }
}
