//! SIGHUP when the file of a volume was replaced, for example by a new one that was renamed to its
//! name: the new file is opened if nobody can notice, and then with an empty cache.

use std::sync::Arc;

use undercroft_text::Bytes;

use crate::config::VolumeConfig;
use crate::exports::ExportEntry;
use crate::process::opener::First;
use crate::process::run::{Running, close};

impl Running {
    /// Opens the files that have replaced those of volumes, or says why not.
    pub(super) async fn open_replaced(&mut self) {
        for entry in self.exports.all() {
            let Some(what) = entry.volume().store_health.look_at_name().await else { continue };
            let name = entry.volume().config().name.clone();
            match self.replace_store(entry).await {
                Ok(()) => {
                    tracing::warn!(
                        volume = name,
                        "{what}: the new one is served, nothing is cached"
                    );
                }
                Err(why) => problem!(self, error, volume = name;
                    "{what}: what has its name is not opened: {why}"
                ),
            }
        }
    }

    /// Opens what has the name of a volume's store now, and serves it.
    async fn replace_store(&mut self, entry: Arc<ExportEntry>) -> Result<(), String> {
        let before = Arc::clone(entry.volume());
        is_unused(&entry)?;
        let Some(config) = self.configured(&before.config().name).cloned() else {
            return Err("it is not configured any more".to_owned());
        };
        // Nothing is created in place of what is gone.
        let existing = VolumeConfig { create: false, ..config.clone() };
        let mut opener = self.opener().map_err(|error| error.to_string())?;
        // Until it has gone, the old one has the part that is listed under this name.
        opener.flash = None;
        let opened = opener.open(&existing).await.map_err(|error| error.to_string())?;
        let First::Open(volume) = opened else {
            return Err("it cannot be opened at present".to_owned());
        };
        let fits = match volume.size() < before.size() {
            true => {
                Err(format!("it has {}, less than {}", Bytes(volume.size()), Bytes(before.size())))
            }
            false => is_unused(&entry),
        };
        if let Err(why) = fits {
            // Nothing of it was used.
            let _ = volume.close().await;
            return Err(why);
        }
        // Kept where `stop` finds it. A client that came since then has to come again.
        self.leaving.extend(self.exports.remove(&config.name));
        self.end_connections(&entry, |_| true).await;
        if let Err(error) = close(&before, self.state.as_ref()).await {
            let _ = volume.close().await;
            return Err(format!("the old one cannot be closed: {error}"));
        }
        self.leaving.retain(|leaving| !Arc::ptr_eq(leaving, &entry));
        // It is about other data.
        self.state.iter().for_each(|state| state.forget(&before));
        opener.serve(Arc::clone(&volume), &config);
        drop(before);
        if let Some(device) = self.flash.device().cloned() {
            // To its end, even if nobody waits for it any more.
            tokio::spawn(async move { device.give_bytes(&volume, config.flash_bytes).await });
        }
        Ok(())
    }
}

/// Whether no client would notice another store.
fn is_unused(entry: &ExportEntry) -> Result<(), String> {
    let (clients, dirty) = (entry.open_connections().len(), entry.volume().stats().dirty);
    if clients > 0 {
        return Err(format!("{clients} clients are connected, who have seen the old one"));
    }
    if dirty > 0 {
        return Err(format!("{dirty} blocks are dirty, which belong to the old one"));
    }
    Ok(())
}
