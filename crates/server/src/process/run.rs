//! The life of a server: opened from its configuration, running, stopped. `reload.rs` changes it
//! while it runs, and `opener.rs` waits for volumes whose stores are away.
//!
//! Stopping: no new connections are accepted, requests in flight are answered, the state of the
//! caches is saved for a warm restart, and all volumes are written out and flushed at the same
//! time. Blocks that a store does not take are reported, and kept in a file if a folder is
//! configured for that.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::AtomicI64;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::{join_all, try_join_all};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use undercroft_frames::Memory;
use undercroft_nbd::{ClientOptions, Server, ServerOptions, Tls, TlsKeys};
use undercroft_store::{AWAY, Facts, OpenOptions};
use undercroft_text::Bytes;

use crate::advice::feeder::feed_advisers;
use crate::answer::Failed;
use crate::clock;
use crate::config::{Address, ServerConfig, TlsConfig, TlsMode, VolumeConfig};
use crate::exports::{ExportEntry, ExportTable};
use crate::http;
use crate::http::Rights;
use crate::http::metrics::About;
use crate::process::check::lacks_a_side;
use crate::process::error::{ServeError, work};
use crate::process::flash_changes::ServerFlash;
use crate::process::flash_device::FlashDevice;
use crate::process::lending::Lending;
use crate::process::listeners::{listen, listen_http};
use crate::process::memory_limit;
use crate::process::opener::{First, Opener, OpeningTask};
use crate::process::reload::Problems;
use crate::process::state_folder::{StateFolder, save_now_and_then};
use crate::process::surroundings::Surroundings;
use crate::process::unwritten;
use crate::upstream;
use crate::volume::Volume;
use crate::volume::change::prepare;
use crate::volume::close::{Unwritten, write_out_no_more};

/// How long connections may take to end when the server stops.
pub(crate) const GRACE: Duration = Duration::from_secs(30);

/// Time between two looks whether stores still have their names.
const LOOK_AT_NAMES: Duration = Duration::from_secs(2);

/// A running server.
pub struct Running {
    /// The configuration in force; what a reload could not change is as it was.
    pub(crate) config: ServerConfig,
    pub(crate) server: Server,
    pub(crate) exports: Arc<ExportTable>,
    /// Removed volumes that could not be closed yet.
    pub(crate) leaving: Vec<Arc<ExportEntry>>,
    /// The tasks of volumes whose stores are away, by name; some may have ended.
    pub(crate) opening: HashMap<String, OpeningTask>,
    /// Volumes whose stores have not yet told their size, by name.
    pub(crate) growing: HashMap<String, JoinHandle<Result<u64, Failed>>>,
    addresses: Vec<String>,
    http: Option<Address>,
    /// Who may see the pages over HTTP.
    pub(crate) rights: Rights,
    pub(crate) keys: Option<TlsKeys>,
    /// When the certificates expire, in seconds since 1970; 0 without certificates.
    pub(crate) expiry: Arc<AtomicI64>,
    pub(crate) state: Option<StateFolder>,
    pub(crate) surroundings: Surroundings,
    pub(crate) flash: ServerFlash,
    pub(crate) problems: Problems,
    /// What `undercroft set` has changed since the configuration was read, by volume.
    pub(crate) set_by_hand: HashMap<String, Vec<String>>,
    pub(crate) lending: Lending,
    stop: watch::Sender<bool>,
}

impl Running {
    /// Opens everything that a valid configuration names, and starts to serve. A volume whose store
    /// is away is served as soon as that is there.
    ///
    /// # Errors
    /// What could not be opened. Nothing is left running then.
    pub async fn start(config: &ServerConfig) -> Result<Running, ServeError> {
        Running::start_in(config, Surroundings::default()).await
    }

    /// Starts like [`start`](Self::start), with other surroundings than the system's.
    ///
    /// # Errors
    /// As for [`Running::start`].
    pub async fn start_in(
        config: &ServerConfig,
        surroundings: Surroundings,
    ) -> Result<Running, ServeError> {
        memory_limit::check(&config.volumes)?;
        if let Some(what) = lacks_a_side(config) {
            tracing::warn!("{what}");
        }
        let state = config.state.clone().map(StateFolder::open).transpose()?;
        let flash = ServerFlash::open(config.flash.as_ref(), &surroundings).await?;
        let exports = ExportTable::new(surroundings.seed());
        exports.admin.set_administrators(&config.administrators);
        exports.set_order(config.volumes.iter().map(|volume| volume.name.clone()).collect());
        let opener = opener(config, &surroundings, &flash, &exports, state.as_ref())?;
        // All at once: one may have to wait for a service, or for a lease to expire.
        let opening = config.volumes.iter().map(|volume| opener.open(volume));
        let (mut open, mut away) = (Vec::new(), Vec::new());
        for (first, rules) in try_join_all(opening).await?.into_iter().zip(&config.volumes) {
            match first {
                First::Open(volume) => open.push((volume, rules)),
                First::Away(waiting) => away.push((rules.name.clone(), waiting)),
            }
        }
        let began = clock::now();
        let (tls, keys) = tls(&config.tls)?;
        config.tls.warn_of_dates();
        let expiry = Arc::new(AtomicI64::new(config.tls.expiry()));
        let limits = &config.limits;
        let options = ServerOptions {
            tls,
            handshake_timeout: limits.handshake,
            max_connections: limits.connections,
            max_negotiating: limits.negotiating,
            max_requests: limits.requests,
            max_bytes: limits.bytes,
            max_export_bytes: limits.volume_bytes,
            max_total_bytes: limits.total_bytes,
            stall: limits.stall,
            busy_poll: limits.busy_poll,
        };
        let server = Server::new(Arc::clone(&exports) as _, options);
        let mut listeners = Vec::new();
        for address in &config.listen {
            listeners.push(listen(address, &config.tls).await?);
        }
        let rights = Rights::default();
        rights.token.load(config.http_token_file.as_deref()).map_err(ServeError::Work)?;
        rights.hosts.set(config);
        let pages = match &config.http {
            Some(address) => Some(listen_http(address).await?),
            None => None,
        };
        // Before the first write is answered, so that the mark of an unclean end exists by then;
        // and after everything that can fail, so that a server that never started leaves none.
        open.into_iter().for_each(|(volume, rules)| opener.serve(volume, rules));
        let away = away.into_iter().map(|(name, waiting)| (name, opener.wait(waiting)));
        let opening = away.collect();
        if let Some(state) = &state {
            let exports = Arc::clone(&exports);
            tokio::spawn(save_now_and_then(state.clone(), exports, config.state_interval));
        }
        tokio::spawn(feed_advisers(Arc::downgrade(&exports)));
        tokio::spawn(look_at_names(Arc::downgrade(&exports)));
        let mut addresses = Vec::new();
        for (listener, uri) in listeners {
            addresses.push(uri);
            let server = server.clone();
            tokio::spawn(async move { server.listen(listener).await });
        }
        let stop = watch::Sender::new(false);
        let http = pages.map(|(socket, address)| {
            let (exports, server) = (Arc::clone(&exports), server.clone());
            let about = About { exports, server, began, expiry: Arc::clone(&expiry) };
            tokio::spawn(http::serve(socket, about, rights.clone(), stop.subscribe()));
            address
        });
        let lending = Lending::start(Arc::clone(&exports));
        let (config, leaving, growing) = (config.clone(), Vec::new(), HashMap::new());
        Ok(Running {
            config,
            server,
            exports,
            leaving,
            opening,
            growing,
            addresses,
            http,
            rights,
            keys,
            expiry,
            state,
            surroundings,
            flash,
            problems: Problems::default(),
            set_by_hand: HashMap::new(),
            lending,
            stop,
        })
    }

    /// The NBD server, for connections that no listener accepts.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// The addresses that it listens on, as beginnings of URIs: `nbd://127.0.0.1:10809/`.
    pub fn addresses(&self) -> &[String] {
        &self.addresses
    }

    /// The address that it listens on for HTTP, with the actual port.
    pub fn http(&self) -> Option<&Address> {
        self.http.as_ref()
    }

    /// The configuration in force. The first volume is the default export.
    pub fn config(&self) -> &ServerConfig {
        &self.config
    }

    /// The volumes that are not served yet because their stores are away, by name, and why.
    pub fn pending_volumes(&self) -> Vec<(String, String)> {
        let all = self.exports.pending();
        all.iter().map(|pending| (pending.config().name.clone(), pending.why())).collect()
    }

    /// The volumes that are served, by name.
    pub fn volumes(&self) -> Vec<Arc<Volume>> {
        self.exports.all().iter().map(|entry| Arc::clone(entry.volume())).collect()
    }

    /// Stops the server: answers requests in flight, flushes, and saves the state of the caches.
    ///
    /// # Errors
    /// A volume could not be flushed; the message tells what is lost.
    pub async fn stop(self) -> Result<(), ServeError> {
        self.lending.end();
        // First, so that no volume arrives while the others are closed.
        join_all(self.opening.values().map(OpeningTask::end)).await;
        let cut = self.server.shutdown(GRACE).await;
        if cut > 0 {
            tracing::warn!(connections = cut, "closed with requests unanswered");
        }
        let patience_s = self.config.limits.close.as_secs();
        tracing::info!(patience_s, "closing; a store that does not take what is dirty has so long");
        let mut exports = self.exports.all();
        exports.extend(self.leaving.iter().cloned());
        let closing = exports.iter().map(|entry| close(entry.volume(), self.state.as_ref()));
        let ended = exports.iter().zip(join_all(closing).await);
        let lost: Vec<_> = ended.filter_map(|(entry, end)| Some((entry, end.err()?))).collect();
        if self.config.unwritten.is_some() {
            // A change of a store after its file is made would outdate that.
            let kept = lost.iter().filter(|(_, lost)| !lost.blocks.is_empty());
            join_all(kept.map(|(entry, _)| write_out_no_more(entry.volume()))).await;
        }
        let failures: Vec<_> = lost.iter().map(|(it, lost)| self.lost(it.volume(), lost)).collect();
        self.stop.send_replace(true);
        if failures.is_empty() { Ok(()) } else { Err(ServeError::Work(failures.join("; "))) }
    }

    /// Describes what is lost, and keeps it in a file if configured.
    fn lost(&self, volume: &Volume, lost: &Unwritten) -> String {
        let name = &volume.config().name;
        let kept = match &self.config.unwritten {
            Some(folder) if !lost.blocks.is_empty() => unwritten::keep(folder, volume, lost),
            _ => return format!("volume {name}: {lost}; they are lost"),
        };
        match kept {
            Ok(path) => format!(
                "volume {name}: {lost}; they are kept in {}: when the store is well again, and \
                 before the volume is served again, `undercroft unwritten write` brings them there",
                path.display()
            ),
            Err(error) => format!("volume {name}: {lost}; they are lost: {error}"),
        }
    }
}

/// The volumes that are open: those that are served, and those that could not be closed yet.
pub(crate) fn open_volumes(running: &Running) -> Vec<Arc<Volume>> {
    let mut entries = running.exports.all();
    entries.extend(running.leaving.iter().cloned());
    entries.iter().map(|entry| Arc::clone(entry.volume())).collect()
}

/// Saves the state for a warm restart, and makes everything durable.
pub(crate) async fn close(
    volume: &Arc<Volume>,
    state: Option<&StateFolder>,
) -> Result<(), Unwritten> {
    if let Some(state) = state {
        // A folder that hangs must not keep the volume from being closed.
        let patience = volume.config().close_patience;
        if timeout(patience, state.save_by(volume, StateFolder::save_last)).await.is_err() {
            let name = &volume.config().name;
            tracing::warn!(volume = name, "the state folder is slow: the cache may not be saved");
        }
    }
    volume.close().await?;
    if let Some(state) = state {
        state.mark_clean(volume).await;
    }
    Ok(())
}

/// What opens volumes, with the certificates for other servers read again.
pub(crate) fn opener(
    config: &ServerConfig,
    surroundings: &Surroundings,
    flash: &ServerFlash,
    exports: &Arc<ExportTable>,
    state: Option<&StateFolder>,
) -> Result<Opener, ServeError> {
    let connector = surroundings.connector.clone();
    let mut upstream = ClientOptions { connector, ..ClientOptions::default() };
    if let Some(files) = config.tls.upstream_files() {
        upstream.tls = Some(files.load().map_err(|error| work("tls", &error))?);
    }
    Ok(Opener {
        upstream,
        surroundings: surroundings.clone(),
        flash: flash.device().cloned(),
        exports: Arc::clone(exports),
        state: state.cloned(),
        unwritten: config.unwritten.clone(),
    })
}

/// Opens a volume with frames in memory of its own, which is freed with the volume.
pub(crate) async fn open_volume(
    config: &VolumeConfig,
    upstream_options: &ClientOptions,
    surroundings: &Surroundings,
    flash: Option<&Arc<FlashDevice>>,
) -> Result<Arc<Volume>, ServeError> {
    let name = &config.name;
    let report = config.report.filter(|report| !report.is_nothing());
    let sender = report.map(|report| upstream::HintSender::new(report, config.block_bytes));
    let others = upstream::upstream(upstream_options.clone(), config.reconnect, sender.clone());
    let options = OpenOptions {
        size: config.size,
        must_exist: !config.create,
        read_only: config.read_only,
        upstream: Some(others),
        on_made: Some(Arc::new(says_what_is_made(name.clone()))),
        on_warning: Some(Arc::new({
            let volume = name.clone();
            move |what: &str| tracing::warn!(volume, "{what}")
        })),
        ..OpenOptions::default()
    };
    let given = surroundings.stores.as_ref().and_then(|give| give(name));
    let opening = given.unwrap_or_else(|| config.store.open(options));
    let store = opening.await.map_err(|error| {
        let text = format!("volume {name}: {error}");
        match error.kind() {
            io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported => ServeError::Plan(text),
            AWAY => ServeError::Away(text),
            _ => ServeError::Work(text),
        }
    })?;
    let mut config = config.clone();
    config.seed = surroundings.seed();
    config.awaits_flash = flash.is_some_and(|flash| flash.is_awaited_by(&config));
    config.eviction_sink = sender.clone().map(|sender| sender as _);
    let bytes = usize::try_from(config.memory_bytes()).map_err(|_| {
        ServeError::Plan(format!("volume {name}: the cache is larger than memory can be"))
    })?;
    let memory = Memory::new(bytes).map_err(|e| work(&format!("volume {name}"), &e))?;
    let volume = Volume::open(config, store, &memory, Handle::current());
    let volume = volume.map_err(|error| ServeError::Plan(error.to_string()))?;
    prepare(name, &memory);
    if let Some(sender) = sender {
        sender.tell_of(&volume);
    }
    if let Some(flash) = flash {
        flash.give_soon(&volume).await;
    }
    Ok(volume)
}

/// Logs that opening a store created it: after a typing error that is an empty disk.
fn says_what_is_made(volume: String) -> impl Fn(Facts) {
    move |facts| {
        let (store, bytes) = (facts.name, Bytes(facts.size));
        tracing::warn!(
            volume,
            "{store} did not exist and was created, {bytes} of zeroes; create=no forbids that"
        );
    }
}

fn tls(config: &TlsConfig) -> Result<(Tls, Option<TlsKeys>), ServeError> {
    let Some(files) = config.files() else { return Ok((Tls::Off, None)) };
    let keys = TlsKeys::new(files.load().map_err(|error| work("tls", &error))?);
    let tls = match config.mode {
        TlsMode::Required => Tls::Required(keys.clone()),
        _ => Tls::Offered(keys.clone()),
    };
    Ok((tls, Some(keys)))
}

/// Looks again and again whether the stores of all volumes still have their names.
async fn look_at_names(exports: Weak<ExportTable>) {
    loop {
        sleep(LOOK_AT_NAMES).await;
        let Some(exports) = exports.upgrade() else { return };
        let volumes: Vec<_> =
            exports.all().iter().map(|entry| Arc::clone(entry.volume())).collect();
        drop(exports);
        join_all(volumes.iter().map(|volume| volume.store_health.look_at_name())).await;
    }
}
