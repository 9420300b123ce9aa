//! A server from its plan: opened, running, reloaded, stopped.
//!
//! The way out: no new connections, what is in flight is answered, what the caches know is saved for
//! a warm restart, every volume is flushed.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::sync::watch;
use undercroft_frames::Memory;
use undercroft_nbd::{
    ClientOptions, ClientTlsFiles, Listener, Server, ServerOptions, Tls, TlsFiles, TlsKeys,
};
use undercroft_store::OpenOptions;

use super::access::Doors;
use super::plan::{Address, Plan, PlannedVolume, TlsPaths, TlsPlan};
use super::{http, upstream};
use crate::state::{SavedContent, StateError};
use crate::volume::{Volume, Write};

/// How long connections may take to end when the server stops.
const GRACE: Duration = Duration::from_secs(30);

/// Why a server could not start or stop as it should.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The plan cannot work: a matter of the configuration.
    #[error("{0}")]
    Plan(String),
    /// Something could not be opened, bound, or written.
    #[error("{0}")]
    Work(String),
}

/// A server that serves.
pub struct Running {
    server: Server,
    doors: Arc<Doors>,
    addresses: Vec<String>,
    http: Option<SocketAddr>,
    keys: Option<(TlsKeys, TlsPaths)>,
    state: Option<StateFolder>,
    stop: watch::Sender<bool>,
}

impl Running {
    /// Opens everything that the plan says and begins to serve.
    ///
    /// # Errors
    /// Names what could not be opened. Nothing is left running then.
    pub async fn start(plan: &Plan) -> Result<Running, ServeError> {
        let state = plan.state.clone().map(StateFolder::open).transpose()?;
        let doors = Doors::new(rand_seed());
        let volumes = open_volumes(plan).await?;
        for (volume, planned) in volumes.iter().zip(&plan.volumes) {
            doors.add(Arc::clone(volume), planned.access.clone());
        }
        let (tls, keys) = tls(&plan.tls)?;
        let options = ServerOptions {
            tls,
            handshake_timeout: plan.handshake_timeout,
            max_connections: plan.max_connections,
            max_requests: plan.max_requests,
            max_bytes: plan.max_bytes,
        };
        let server = Server::new(Arc::clone(&doors) as _, options);
        let mut listeners = Vec::new();
        for address in &plan.listen {
            listeners.push(listen(address).await?);
        }
        let pages = match &plan.http {
            Some(address) => {
                let listener = TcpListener::bind(address).await;
                Some(listener.map_err(|e| work(&format!("http {address}"), &e))?)
            }
            None => None,
        };
        let http = pages.as_ref().map(TcpListener::local_addr).transpose();
        let http = http.map_err(|e| work("http", &e))?;
        // Before the first write is answered, so that the mark of an unclean end stands by then;
        // and after all that can fail, so that a server which never began leaves none.
        if let Some(state) = &state {
            volumes.iter().for_each(|volume| state.resume(volume));
            tokio::spawn(save_now_and_then(state.clone(), volumes, plan.state_interval));
        }
        let mut addresses = Vec::new();
        for (listener, uri) in listeners {
            addresses.push(uri);
            let server = server.clone();
            tokio::spawn(async move { server.listen(listener).await });
        }
        let stop = watch::Sender::new(false);
        if let Some(listener) = pages {
            tokio::spawn(http::serve(listener, Arc::clone(&doors), stop.subscribe()));
        }
        Ok(Running { server, doors, addresses, http, keys, state, stop })
    }

    /// Where it listens, as the beginnings of URIs: `nbd://127.0.0.1:10809/`.
    pub fn addresses(&self) -> &[String] {
        &self.addresses
    }

    /// Where it listens for HTTP.
    pub fn http(&self) -> Option<SocketAddr> {
        self.http
    }

    /// Its volumes, by name.
    pub fn volumes(&self) -> Vec<Arc<Volume>> {
        self.doors.all().iter().map(|door| Arc::clone(door.volume())).collect()
    }

    /// Reads the certificates again, and looks which volumes have grown. What cannot be done is
    /// logged, and stays as it was.
    pub async fn reload(&self) {
        if let Some((keys, paths)) = &self.keys {
            match load_keys(paths) {
                Ok(config) => {
                    keys.replace(config);
                    tracing::info!("certificates reloaded");
                }
                Err(error) => tracing::error!("certificates stay as they were: {error}"),
            }
        }
        for volume in self.volumes() {
            let (name, before) = (&volume.config().name, volume.size());
            match volume.grow().await {
                Ok(size) if size > before => {
                    tracing::info!(volume = name, before, size, "the volume has grown");
                }
                Ok(_) => {}
                Err(error) => tracing::error!(volume = name, "cannot look at its size: {error}"),
            }
        }
    }

    /// Ends it: answers what is in flight, flushes, saves.
    ///
    /// # Errors
    /// A volume could not be flushed: what is lost is said.
    pub async fn stop(self) -> Result<(), ServeError> {
        let cut = self.server.shutdown(GRACE).await;
        if cut > 0 {
            tracing::warn!(connections = cut, "closed with requests unanswered");
        }
        let mut failures = Vec::new();
        for volume in self.volumes() {
            let name = &volume.config().name;
            if let Some(state) = &self.state {
                state.save(&volume);
            }
            match volume.close().await {
                Ok(()) => self.state.iter().for_each(|state| state.mark_clean(&volume)),
                Err(error) => {
                    let dirty = volume.stats().dirty;
                    failures.push(format!("volume {name}: {error}; {dirty} blocks are lost"));
                }
            }
        }
        self.stop.send_replace(true);
        if failures.is_empty() { Ok(()) } else { Err(ServeError::Work(failures.join("; "))) }
    }
}

fn work(what: &str, error: &dyn std::fmt::Display) -> ServeError {
    ServeError::Work(format!("{what}: {error}"))
}

async fn open_volumes(plan: &Plan) -> Result<Vec<Arc<Volume>>, ServeError> {
    let bytes: u64 = plan.volumes.iter().map(|volume| volume.config.memory_bytes()).sum();
    let bytes = usize::try_from(bytes)
        .map_err(|_| ServeError::Plan("the caches are larger than memory can be".to_owned()))?;
    let memory = Memory::new(bytes).map_err(|error| work("cache", &error))?;
    let mut upstream_options = ClientOptions::default();
    if let Some(roots) = &plan.upstream_roots {
        let files = ClientTlsFiles { roots: roots.clone(), identity: None };
        upstream_options.tls = Some(files.load().map_err(|error| work("tls", &error))?);
    }
    let mut volumes = Vec::new();
    for planned in &plan.volumes {
        volumes.push(open_volume(planned, &memory, &upstream_options).await?);
    }
    Ok(volumes)
}

async fn open_volume(
    planned: &PlannedVolume,
    memory: &Memory,
    upstream_options: &ClientOptions,
) -> Result<Arc<Volume>, ServeError> {
    let name = &planned.config.name;
    let options = OpenOptions {
        size: planned.size,
        read_only: planned.config.read_only,
        upstream: Some(upstream::upstream(upstream_options.clone())),
    };
    let store = undercroft_store::open(planned.store.clone(), options).await;
    let store = store.map_err(|error| {
        let text = format!("volume {name}: {error}");
        match error.kind() {
            io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported => ServeError::Plan(text),
            _ => ServeError::Work(text),
        }
    })?;
    let mut config = planned.config.clone();
    config.seed = rand_seed();
    let volume = Volume::open(config, store, memory, Handle::current());
    volume.map_err(|error| ServeError::Plan(error.to_string()))
}

/// A seed that clients cannot know, from the standard library's own randomness.
fn rand_seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0)
}

fn tls(plan: &TlsPlan) -> Result<(Tls, Option<(TlsKeys, TlsPaths)>), ServeError> {
    let load = |paths: &TlsPaths| {
        let config = load_keys(paths).map_err(|error| work("tls", &error))?;
        Ok::<_, ServeError>((TlsKeys::new(config), paths.clone()))
    };
    Ok(match plan {
        TlsPlan::Off => (Tls::Off, None),
        TlsPlan::Offered(paths) => {
            let (keys, paths) = load(paths)?;
            (Tls::Offered(keys.clone()), Some((keys, paths)))
        }
        TlsPlan::Required(paths) => {
            let (keys, paths) = load(paths)?;
            (Tls::Required(keys.clone()), Some((keys, paths)))
        }
    })
}

fn load_keys(
    paths: &TlsPaths,
) -> Result<Arc<undercroft_nbd::ServerTlsConfig>, undercroft_nbd::TlsError> {
    TlsFiles {
        certificates: paths.certificates.clone(),
        key: paths.key.clone(),
        client_roots: paths.client_roots.clone(),
    }
    .load()
}

async fn listen(address: &Address) -> Result<(Listener, String), ServeError> {
    match address {
        Address::Tcp(address) => {
            let listener = Listener::tcp(address.as_str()).await;
            let listener = listener.map_err(|error| work(&format!("listen {address}"), &error))?;
            let local = listener.tcp_address().map_or_else(|| address.clone(), |a| a.to_string());
            Ok((listener, format!("nbd://{local}/")))
        }
        Address::Unix(path) => {
            let listener = Listener::unix(path);
            let what = format!("listen unix:{}", path.display());
            let listener = listener.map_err(|error| work(&what, &error))?;
            Ok((listener, format!("nbd+unix:///?socket={}", path.display())))
        }
    }
}

/// The folder for what a restart needs: what the cache of each volume knows, and for a
/// write-back volume a mark that stands while it may hold what its store does not.
#[derive(Clone)]
struct StateFolder {
    path: PathBuf,
}

impl StateFolder {
    fn open(path: PathBuf) -> Result<StateFolder, ServeError> {
        let what = format!("state folder {}", path.display());
        fs::create_dir_all(&path).map_err(|error| work(&what, &error))?;
        Ok(StateFolder { path })
    }

    fn content(&self, volume: &Volume) -> PathBuf {
        self.path.join(format!("{}.warm", volume.config().name))
    }

    fn mark(&self, volume: &Volume) -> PathBuf {
        self.path.join(format!("{}.in-use", volume.config().name))
    }

    /// Says what an unclean end may have lost, and brings back what was cached.
    fn resume(&self, volume: &Arc<Volume>) {
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
            if let Err(error) = self.write_durably(&mark) {
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

    /// A mark that a power cut took with it would be none.
    fn write_durably(&self, mark: &Path) -> io::Result<()> {
        fs::write(mark, format!("{}\n", std::process::id()))?;
        fs::File::open(mark)?.sync_all()?;
        fs::File::open(&self.path)?.sync_all()
    }

    fn save(&self, volume: &Volume) {
        let path = self.content(volume);
        if volume.config().cache_blocks > 0 {
            if let Err(error) = volume.content().and_then(|content| content.save(&path)) {
                tracing::warn!("{}: {error}", path.display());
            }
        }
    }

    fn mark_clean(&self, volume: &Volume) {
        // It stands only where the volume is write-back.
        let _ = fs::remove_file(self.mark(volume));
    }
}

/// Gives a volume back what its cache knew; the data follows in the background.
fn restore(volume: &Arc<Volume>, path: &Path) -> Result<(), StateError> {
    let name = volume.config().name.clone();
    let saved = SavedContent::load(path, volume.content_bytes_max())?;
    let restored = volume.restore(&saved)?;
    let blocks = restored.blocks().len();
    match restored.starts_anew() {
        None => tracing::info!(volume = name, blocks, "the cache goes on; its data is being read"),
        Some(why) => tracing::warn!(volume = name, blocks, "the cache starts anew: {why}"),
    }
    let volume = Arc::clone(volume);
    tokio::spawn(async move {
        let blocks = volume.warm_up(restored).await;
        tracing::info!(volume = name, blocks, "cache is warm again");
    });
    Ok(())
}

async fn save_now_and_then(state: StateFolder, volumes: Vec<Arc<Volume>>, interval: Duration) {
    loop {
        tokio::time::sleep(interval).await;
        for volume in volumes.iter().filter(|volume| !volume.is_closing()) {
            let (state, volume) = (state.clone(), Arc::clone(volume));
            // Writing the file may wait for the disk.
            let _ = tokio::task::spawn_blocking(move || state.save(&volume)).await;
        }
    }
}
