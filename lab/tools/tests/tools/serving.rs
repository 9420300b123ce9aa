//! A whole server in this process, on a socket of its own.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use undercroft_nbd::{Endpoint, Uri};
use undercroft_server::process::{Address, CacheShare, Running, ServerConfig};
use undercroft_server::{Volume, VolumeConfig};

/// A server, as long as this is there.
pub(crate) struct Served {
    running: Running,
    folder: tempfile::TempDir,
}

impl Served {
    /// Serves volumes, each with a cache of its own size.
    pub(crate) async fn start(volumes: Vec<VolumeConfig>) -> Self {
        Self::start_with(volumes, |_| ()).await
    }

    /// As [`start`](Self::start), with other settings changed.
    pub(crate) async fn start_with(
        volumes: Vec<VolumeConfig>,
        change: impl FnOnce(&mut ServerConfig),
    ) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let own = |volume: &VolumeConfig| match volume.cache {
            CacheShare::Bytes(bytes) => bytes,
            CacheShare::Rest | CacheShare::Off => 0,
        };
        let mut config = ServerConfig {
            listen: vec![Address::Unix(socket(folder.path()))],
            cache_bytes: volumes.iter().map(own).sum(),
            volumes,
            ..ServerConfig::default()
        };
        change(&mut config);
        let config = config.validate().expect("a configuration");
        let running = Running::start(&config).await.expect("a server");
        Self { running, folder }
    }

    /// The address of a volume.
    pub(crate) fn uri(&self, volume: &str) -> Uri {
        let endpoint = Endpoint::Unix(socket(self.folder.path()));
        Uri { endpoint, export: volume.to_owned(), tls: false }
    }

    /// A volume.
    pub(crate) fn volume(&self, name: &str) -> Arc<Volume> {
        let mut volumes = self.running.volumes().into_iter();
        volumes.find(|volume| volume.config().name == name).expect("the volume")
    }

    /// Ends the server cleanly.
    pub(crate) async fn stop(self) {
        self.running.stop().await.expect("a clean end");
    }
}

fn socket(folder: &Path) -> PathBuf {
    folder.join("nbd.sock")
}
