//! A server from its plan: opened, running, stopped. What changes while it runs is in `reload.rs`.
//!
//! The way out: no new connections, what is in flight is answered, what the caches know is saved
//! for a warm restart, every volume is written out and flushed, all at the same time. What a store
//! does not take is named, and kept in a file if there is a folder for that.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join_all, try_join_all};
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use undercroft_frames::Memory;
use undercroft_nbd::report::Report;
use undercroft_nbd::{ClientOptions, Listener, Server, ServerOptions, Tls, TlsFiles, TlsKeys};
use undercroft_store::OpenOptions;

use super::access::{Door, Doors};
use super::plan::{Address, Plan, PlannedVolume, TlsPaths, TlsPlan};
use super::surroundings::Surroundings;
use super::upstream::Voice;
use super::{http, unwritten, upstream};
use crate::answer::Failed;
use crate::close::Unwritten;
use crate::config::Write;
use crate::replace::replace;
use crate::state::{SavedContent, StateError};
use crate::volume::Volume;

/// How long connections may take to end when the server stops.
pub(super) const GRACE: Duration = Duration::from_secs(30);

/// What takes longer than this to open is said to be waited for.
const OPENING: Duration = Duration::from_secs(2);

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
    /// The plan in force: what a reload could not change is as it was.
    pub(super) plan: Plan,
    pub(super) server: Server,
    pub(super) doors: Arc<Doors>,
    /// Volumes that were taken away and could not be closed yet.
    pub(super) leaving: Vec<Arc<Door>>,
    /// Volumes whose stores have not yet said how large they are, by name.
    pub(super) growing: HashMap<String, JoinHandle<Result<u64, Failed>>>,
    addresses: Vec<String>,
    http: Option<SocketAddr>,
    pub(super) keys: Option<TlsKeys>,
    pub(super) state: Option<StateFolder>,
    pub(super) surroundings: Surroundings,
    stop: watch::Sender<bool>,
}

impl Running {
    /// Opens everything that the plan says and begins to serve.
    ///
    /// # Errors
    /// Names what could not be opened. Nothing is left running then.
    pub async fn start(plan: &Plan) -> Result<Running, ServeError> {
        Running::start_in(plan, Surroundings::default()).await
    }

    /// Starts as [`start`](Self::start) does, with other surroundings than the system's.
    ///
    /// # Errors
    /// As for [`Running::start`].
    pub async fn start_in(plan: &Plan, surroundings: Surroundings) -> Result<Running, ServeError> {
        let state = plan.state.clone().map(StateFolder::open).transpose()?;
        let doors = Doors::new(surroundings.seed());
        let upstream = upstream_options(plan, &surroundings)?;
        // Together: one may have to wait for a service, or for a lease to run out.
        let opening =
            plan.volumes.iter().map(|planned| open_volume(planned, &upstream, &surroundings));
        for (volume, planned) in try_join_all(opening).await?.into_iter().zip(&plan.volumes) {
            doors.add(volume, planned.access.clone());
        }
        let (tls, keys) = tls(&plan.tls)?;
        let options = ServerOptions {
            tls,
            handshake_timeout: plan.handshake_timeout,
            max_connections: plan.max_connections,
            max_negotiating: plan.max_negotiating,
            max_requests: plan.max_requests,
            max_bytes: plan.max_bytes[0],
            max_export_bytes: plan.max_bytes[1],
            max_total_bytes: plan.max_bytes[2],
            stall: plan.stall,
            busy_poll: plan.busy_poll,
        };
        let server = Server::new(Arc::clone(&doors) as _, options);
        let mut listeners = Vec::new();
        for address in &plan.listen {
            listeners.push(listen(address, &plan.tls).await?);
        }
        let pages = match &plan.http {
            Some(address) => {
                let listener = TcpListener::bind(address).await;
                Some(listener.map_err(|e| unusable("--http", address, &e))?)
            }
            None => None,
        };
        let http = pages.as_ref().map(TcpListener::local_addr).transpose();
        let http = http.map_err(|e| work("http", &e))?;
        // Before the first write is answered, so that the mark of an unclean end stands by then;
        // and after all that can fail, so that a server which never began leaves none.
        plan.volumes.iter().for_each(|planned| outdate_unwritten(plan, planned));
        if let Some(state) = &state {
            doors.all().iter().for_each(|door| state.resume(door.volume()));
            let doors = Arc::clone(&doors);
            tokio::spawn(save_now_and_then(state.clone(), doors, plan.state_interval));
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
        let (plan, leaving, growing) = (plan.clone(), Vec::new(), HashMap::new());
        Ok(Running {
            plan,
            server,
            doors,
            leaving,
            growing,
            addresses,
            http,
            keys,
            state,
            surroundings,
            stop,
        })
    }

    /// What connections come to: for those that no listener accepts.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// Where it listens, as the beginnings of URIs: `nbd://127.0.0.1:10809/`.
    pub fn addresses(&self) -> &[String] {
        &self.addresses
    }

    /// Where it listens for HTTP.
    pub fn http(&self) -> Option<SocketAddr> {
        self.http
    }

    /// What it serves, in the order of the settings: the first is the default export.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Its volumes, by name.
    pub fn volumes(&self) -> Vec<Arc<Volume>> {
        self.doors.all().iter().map(|door| Arc::clone(door.volume())).collect()
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
        let patience_s = self.plan.close_patience.as_secs();
        tracing::info!(patience_s, "closing; a store that does not take what is dirty has so long");
        let mut doors = self.doors.all();
        doors.extend(self.leaving.iter().cloned());
        let closing = doors.iter().map(|door| close(door.volume(), self.state.as_ref()));
        let ended = join_all(closing).await;
        let lost = doors.iter().zip(ended).filter_map(|(door, end)| Some((door, end.err()?)));
        let failures: Vec<_> = lost.map(|(door, lost)| self.lost(door.volume(), &lost)).collect();
        self.stop.send_replace(true);
        if failures.is_empty() { Ok(()) } else { Err(ServeError::Work(failures.join("; "))) }
    }

    /// Says what is lost, and keeps it where that is wanted.
    fn lost(&self, volume: &Volume, lost: &Unwritten) -> String {
        let name = &volume.config().name;
        let planned = self.plan.volumes.iter().find(|planned| planned.config.name == *name);
        match (&self.plan.unwritten, planned) {
            (Some(folder), Some(planned)) if !lost.blocks.is_empty() => {
                match unwritten::keep(folder, volume, &planned.store, lost) {
                    Ok(path) => format!(
                        "volume {name}: {lost}; they are kept in {}: when the store is well again, \
                         and before the volume is served again, `undercroft unwritten write` \
                         brings them there",
                        path.display()
                    ),
                    Err(error) => format!("volume {name}: {lost}; they are lost: {error}"),
                }
            }
            _ => format!("volume {name}: {lost}; they are lost"),
        }
    }
}

/// Saves what makes a restart warm, and makes everything durable.
pub(super) async fn close(
    volume: &Arc<Volume>,
    state: Option<&StateFolder>,
) -> Result<(), Unwritten> {
    if let Some(state) = state {
        state.save(volume);
    }
    volume.close().await?;
    state.into_iter().for_each(|state| state.mark_clean(volume));
    Ok(())
}

/// What was kept of a volume must not be written to it once it is open for writing.
pub(super) fn outdate_unwritten(plan: &Plan, planned: &PlannedVolume) {
    if let (Some(folder), false) = (&plan.unwritten, planned.config.read_only) {
        unwritten::outdate(folder, &planned.config.name, &planned.store);
    }
}

fn work(what: &str, error: &dyn std::fmt::Display) -> ServeError {
    ServeError::Work(format!("{what}: {error}"))
}

/// How volumes connect to other servers.
pub(super) fn upstream_options(
    plan: &Plan,
    surroundings: &Surroundings,
) -> Result<ClientOptions, ServeError> {
    let connector = surroundings.connector.clone();
    let mut options = ClientOptions { connector, ..ClientOptions::default() };
    if let Some(files) = &plan.upstream_tls {
        options.tls = Some(files.load().map_err(|error| work("tls", &error))?);
    }
    Ok(options)
}

/// Opens a volume, with frames in memory of its own: the system has it back with the volume.
pub(super) async fn open_volume(
    planned: &PlannedVolume,
    upstream_options: &ClientOptions,
    surroundings: &Surroundings,
) -> Result<Arc<Volume>, ServeError> {
    let name = &planned.config.name;
    let report = planned.report;
    let block_bytes = planned.config.block_bytes;
    let voice = match &planned.config.scheme {
        Some(scheme) if planned.has_level_below => {
            Some(Voice::Moves(upstream::Mover::new(scheme.to_string(), block_bytes)))
        }
        _ if report.report == Report::Nothing => None,
        _ => Some(Voice::Tells(upstream::Teller::new(report, block_bytes))),
    };
    let options = OpenOptions {
        size: planned.size,
        read_only: planned.config.read_only,
        upstream: Some(upstream::upstream(upstream_options.clone(), voice.clone())),
    };
    let mut opening = match surroundings.store(name) {
        Some(store) => Box::pin(std::future::ready(Ok(store))),
        None => undercroft_store::open(planned.store.clone(), options),
    };
    let store = match tokio::time::timeout(OPENING, &mut opening).await {
        Ok(opened) => opened,
        Err(_) => {
            let store = planned.store.to_string();
            tracing::warn!(
                volume = name,
                store,
                "not open yet: the service does not answer, or, of a bucket, the lease of a \
                 server that was killed has not run out"
            );
            opening.await
        }
    };
    let store = store.map_err(|error| {
        let text = format!("volume {name}: {error}");
        match error.kind() {
            io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported => ServeError::Plan(text),
            _ => ServeError::Work(text),
        }
    })?;
    let mut config = planned.config.clone();
    config.seed = surroundings.seed();
    let mut teller = None;
    match voice {
        Some(Voice::Tells(tells)) => {
            config.listener = Some(Arc::clone(&tells) as _);
            teller = Some(tells);
        }
        Some(Voice::Moves(mover)) => config.lower = Some(Arc::new(upstream::Below(mover))),
        None => {}
    }
    let bytes = usize::try_from(config.memory_bytes()).map_err(|_| {
        ServeError::Plan(format!("volume {name}: the cache is larger than memory can be"))
    })?;
    let memory = Memory::new(bytes).map_err(|e| work(&format!("volume {name}"), &e))?;
    let volume = Volume::open(config, store, &memory, Handle::current());
    let volume = volume.map_err(|error| ServeError::Plan(error.to_string()))?;
    // It ends by itself, at the latest with the volume.
    if let Err(error) = memory.prepare() {
        tracing::warn!(volume = name, "the cache's memory is not prepared: {error}");
    }
    if let Some(teller) = teller {
        teller.tell_of(&volume);
    }
    Ok(volume)
}

fn tls(plan: &TlsPlan) -> Result<(Tls, Option<TlsKeys>), ServeError> {
    let load = |paths: &TlsPaths| {
        let config = load_keys(paths).map_err(|error| work("tls", &error))?;
        Ok::<_, ServeError>(TlsKeys::new(config))
    };
    Ok(match plan {
        TlsPlan::Off => (Tls::Off, None),
        TlsPlan::Offered(paths) => {
            let keys = load(paths)?;
            (Tls::Offered(keys.clone()), Some(keys))
        }
        TlsPlan::Required(paths) => {
            let keys = load(paths)?;
            (Tls::Required(keys.clone()), Some(keys))
        }
    })
}

pub(super) fn load_keys(
    paths: &TlsPaths,
) -> Result<Arc<undercroft_nbd::ServerTlsConfig>, undercroft_nbd::TlsError> {
    TlsFiles {
        certificates: paths.certificates.clone(),
        key: paths.key.clone(),
        client_roots: paths.client_roots.clone(),
    }
    .load()
}

/// What is wrong with an address to listen on, and what to do.
fn unusable(flag: &str, address: &str, error: &io::Error) -> ServeError {
    let advice = match error.kind() {
        io::ErrorKind::AddrInUse => {
            "another program listens there (`ss -ltnp` shows which): end it, or choose another \
             address"
        }
        io::ErrorKind::AddrNotAvailable => "this machine does not have that address",
        io::ErrorKind::PermissionDenied => "ports below 1024 are for root",
        _ => return work(&format!("{flag} {address}"), error),
    };
    ServeError::Work(format!("{flag} {address}: {error}: {advice}"))
}

async fn listen(address: &Address, tls: &TlsPlan) -> Result<(Listener, String), ServeError> {
    let scheme = if matches!(tls, TlsPlan::Required(_)) { "nbds" } else { "nbd" };
    match address {
        Address::Tcp(address) => {
            let listener = Listener::tcp(address.as_str()).await;
            let listener = listener.map_err(|e| unusable("--listen", address, &e))?;
            let local = listener.tcp_address().map_or_else(|| address.clone(), |a| a.to_string());
            Ok((listener, format!("{scheme}://{local}/")))
        }
        Address::Unix(path) => {
            let listener = Listener::unix(path);
            let what = format!("--listen unix:{}", path.display());
            let listener = listener.map_err(|error| work(&what, &error))?;
            Ok((listener, format!("{scheme}+unix:///?socket={}", path.display())))
        }
    }
}

/// The folder for what a restart needs: what the cache of each volume knows, and for a
/// write-back volume a mark that stands while it may hold what its store does not.
#[derive(Clone)]
pub(super) struct StateFolder {
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
    pub(super) fn resume(&self, volume: &Arc<Volume>) {
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
            // A mark that a power cut took with it would be none.
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

    fn save(&self, volume: &Volume) {
        let path = self.content(volume);
        // The neighbours of a level of a scheme would not know that it is back.
        let config = volume.config();
        if config.cache_blocks > 0 && config.scheme.is_none() {
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

async fn save_now_and_then(state: StateFolder, doors: Arc<Doors>, interval: Duration) {
    loop {
        tokio::time::sleep(interval).await;
        for door in doors.all().iter().filter(|door| !door.volume().is_closing()) {
            let (state, volume) = (state.clone(), Arc::clone(door.volume()));
            // Writing the file may wait for the disk.
            let _ = tokio::task::spawn_blocking(move || state.save(&volume)).await;
        }
    }
}
