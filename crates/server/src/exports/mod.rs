//! The table of exports: the volumes, who may use each of them, and how much. It refuses peers and
//! limits connections, and builds the layers of a session.
//!
//! Not here: what a request passes then (`layers`).

pub(crate) mod advice;
mod control;
pub(crate) mod set;
pub(crate) mod text;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockWriteGuard, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use undercroft_nbd::{Context, Export, ExportInfo, Exports, Peer, Refusal, Session};

use crate::advice::page;
use crate::clock;
use crate::config::{Changes, VolumeConfig};
use crate::events;
use crate::exports::set::AdminRequests;
use crate::http::metrics;
use crate::layers::access::{Access, ClientStats, Connection, admits, is_listed};
use crate::layers::hints::{HintedExport, layout};
use crate::layers::rate_limit::{Limiter, RateLimit};
use crate::lock::sleep_lock;
use crate::process::pending_volume::PendingVolume;
use crate::volume::Volume;

/// The exports of a server by name.
pub(crate) struct ExportTable {
    by_name: RwLock<BTreeMap<String, Arc<ExportEntry>>>,
    /// The volumes that are not served yet, by name. Taken after `by_name`, where both are.
    pending: Mutex<BTreeMap<String, Arc<PendingVolume>>>,
    /// The names in the order of the configuration; the first is the default export.
    order: RwLock<Vec<String>>,
    this: Weak<ExportTable>,
    /// Changes with every start, so that clients notice that the server has lost its knowledge.
    epoch: u64,
    /// The latest status text.
    kept: Mutex<Option<StatusText>>,
    /// Where changes are asked for.
    pub(crate) admin: Arc<AdminRequests>,
}

/// How long a status text is kept for clients that read it in parts.
const STATUS_LASTS: Duration = Duration::from_secs(1);

/// A status text, and the names of its volumes.
struct StatusText {
    of: Vec<String>,
    made: Instant,
    text: Bytes,
}

/// An export: a volume, with the rules of access in force.
pub(crate) struct ExportEntry {
    volume: Arc<Volume>,
    /// The configuration with the access options in force.
    rules: Arc<VolumeConfig>,
    connections: Arc<Connections>,
    /// Whether new connections are refused: the volume is being removed, or another entry has new
    /// rules.
    is_closed: AtomicBool,
}

/// The connections to a volume and to its control export, under old and new rules.
struct Connections {
    /// The limits of requests and bytes, which change with the rules for open connections too.
    limiter: Arc<Limiter>,
    /// The number by which the protocol identifies their sessions. It is unique to the volume; a
    /// later volume of the same name has another one.
    owner: u64,
    /// Number of open connections.
    open: AtomicUsize,
    all: Mutex<Vec<Weak<Connection>>>,
}

impl ExportTable {
    /// An empty table.
    pub(crate) fn new(epoch: u64) -> Arc<ExportTable> {
        Arc::new_cyclic(|this| {
            let (by_name, order) = (RwLock::default(), RwLock::default());
            let (pending, kept, admin) = (Mutex::default(), Mutex::default(), Arc::default());
            ExportTable { by_name, pending, order, this: this.clone(), epoch, kept, admin }
        })
    }

    /// Makes the status text for a peer, with the volumes that it may open only.
    fn status_for(&self, peer: &Peer) -> layout::Status {
        let (exports, peer) = (self.this.clone(), peer.clone());
        Arc::new(move |goes_on| {
            let Some(exports) = exports.upgrade() else { return Bytes::new() };
            exports.status(&peer, goes_on)
        })
    }

    /// The volumes that a peer may open, and those of them that are not served yet.
    fn open_to(&self, peer: &Peer) -> (Vec<Arc<ExportEntry>>, Vec<Arc<PendingVolume>>) {
        let (mut all, mut pending) = (self.all(), self.pending());
        all.retain(|entry| admits(&entry.rules, peer).is_ok());
        pending.retain(|pending| admits(pending.config(), peer).is_ok());
        (all, pending)
    }

    /// The export with the advice for a peer that may open a volume.
    fn advice(&self, volume: &str, peer: &Peer) -> Result<Arc<dyn Export>, Refusal> {
        let entry = self.entry(volume, peer)?;
        let volume = entry.volume.config().name.clone();
        let (exports, peer, name) = (self.this.clone(), peer.clone(), volume.clone());
        let text = Arc::new(move || {
            let exports = exports.upgrade().ok_or(Refusal::ShuttingDown)?;
            // Its rights may have changed since it opened the export.
            exports.entry(&name, &peer)?;
            let (all, pending) = exports.open_to(&peer);
            Ok(Bytes::from(page::json(&all, &pending).to_string()))
        });
        Ok(Arc::new(advice::export(&volume, entry.owner(), text)))
    }

    /// The status of the volumes that a peer may open; of very many without histograms, so that it
    /// fits the window. The latest text is kept shortly for clients that continue reading. One text
    /// is kept for all clients, because it may be long and they may be many.
    fn status(&self, peer: &Peer, goes_on: bool) -> Bytes {
        let (exports, pending) = self.open_to(peer);
        let there = exports.iter().map(|entry| &entry.volume.config().name);
        let away = pending.iter().map(|pending| &pending.config().name);
        let of: Vec<_> = there.chain(away).cloned().collect();
        let mut kept = sleep_lock(&self.kept);
        let fits = |kept: &&StatusText| kept.of == of && clock::now() - kept.made < STATUS_LASTS;
        if let Some(kept) = kept.as_ref().filter(|_| goes_on).filter(fits) {
            return kept.text.clone();
        }
        let events =
            events::last(metrics::EVENTS, Some(&|volume| of.iter().any(|of| of == volume)));
        let mut stats = metrics::json(&exports, &pending, &self.order(), events);
        let mut text = stats.to_string();
        if text.len() as u64 > layout::WINDOW {
            metrics::leave_out_buckets(&mut stats);
            text = stats.to_string();
        }
        let text = Bytes::from(text);
        *kept = Some(StatusText { of, made: clock::now(), text: text.clone() });
        text
    }

    /// Adds a volume, which may have been away until now.
    pub(crate) fn add(&self, volume: Arc<Volume>, rules: &VolumeConfig) {
        let name = volume.config().name.clone();
        let entry = ExportEntry::new(volume, rules, Arc::new(Connections::new(rules)));
        let mut exports = self.write();
        sleep_lock(&self.pending).remove(&name);
        exports.insert(name, entry);
    }

    /// Adds a volume that is not served yet.
    pub(crate) fn announce(&self, pending: Arc<PendingVolume>) {
        sleep_lock(&self.pending).insert(pending.config().name.clone(), pending);
    }

    /// Forgets a volume that is not served yet; returns whether there was one.
    pub(crate) fn forget(&self, name: &str) -> bool {
        sleep_lock(&self.pending).remove(name).is_some()
    }

    /// The volumes that are not served yet, by name.
    pub(crate) fn pending(&self) -> Vec<Arc<PendingVolume>> {
        sleep_lock(&self.pending).values().cloned().collect()
    }

    /// Sets the rules for new connections to a volume. Returns its entry before and after, or
    /// `None` if the rules are equal.
    pub(crate) fn change_rules(
        &self,
        rules: &VolumeConfig,
    ) -> Option<(Arc<ExportEntry>, Arc<ExportEntry>)> {
        let mut exports = self.write();
        let entry = exports
            .get_mut(&rules.name)
            .filter(|entry| entry.rules.has_changed(rules, Changes::Access))?;
        let next =
            ExportEntry::new(Arc::clone(&entry.volume), rules, Arc::clone(&entry.connections));
        entry.is_closed.store(true, Ordering::SeqCst);
        entry.connections.limiter.set(rules, clock::now());
        Some((std::mem::replace(entry, Arc::clone(&next)), next))
    }

    /// Removes a volume from the table, so that no new connections start, and returns its entry.
    pub(crate) fn remove(&self, name: &str) -> Option<Arc<ExportEntry>> {
        let entry = self.write().remove(name)?;
        entry.is_closed.store(true, Ordering::SeqCst);
        Some(entry)
    }

    /// Sets the order of the exports. The first is the default export, which the empty name opens.
    pub(crate) fn set_order(&self, names: Vec<String>) {
        *self.order.write().unwrap_or_else(PoisonError::into_inner) = names;
    }

    /// The names in the order of the configuration.
    pub(crate) fn order(&self) -> Vec<String> {
        self.order.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The name of the default export.
    pub(crate) fn default_name(&self) -> Option<String> {
        self.order.read().unwrap_or_else(PoisonError::into_inner).first().cloned()
    }

    fn write(&self) -> RwLockWriteGuard<'_, BTreeMap<String, Arc<ExportEntry>>> {
        self.by_name.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// All exports, by name.
    pub(crate) fn all(&self) -> Vec<Arc<ExportEntry>> {
        self.by_name.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// The export that a peer asks for.
    fn entry(&self, name: &str, peer: &Peer) -> Result<Arc<ExportEntry>, Refusal> {
        let name = if name.is_empty() { self.default_name() } else { Some(name.to_owned()) };
        let name = name.ok_or(Refusal::Unknown)?;
        // Both tables together, so that a volume that arrives is in one of them.
        let exports = self.by_name.read().unwrap_or_else(PoisonError::into_inner);
        match (exports.get(&name), sleep_lock(&self.pending).get(&name)) {
            (Some(entry), _) => admits(&entry.rules, peer).map(|()| Arc::clone(entry)),
            (None, Some(pending)) => Err(pending.refusal(peer)),
            (None, None) => Err(Refusal::Unknown),
        }
    }
}

impl Exports for ExportTable {
    fn list(&self, peer: &Peer) -> Vec<(String, String)> {
        let exports = self.all().into_iter().filter(|entry| admits(&entry.rules, peer).is_ok());
        exports
            .map(|d| (d.volume.config().name.clone(), d.volume.config().description.clone()))
            .collect()
    }

    fn find(&self, name: &str, peer: &Peer) -> Result<Arc<dyn Export>, Refusal> {
        if let Some(volume) = name.strip_prefix(set::SET) {
            return self.admin.open(volume, peer).map(|export| Arc::new(export) as _);
        }
        if let Some(volume) = name.strip_prefix(advice::ADVICE) {
            return self.advice(volume, peer);
        }
        let (name, is_control) = match name.strip_prefix(control::CONTROL) {
            Some(volume) => (volume, true),
            None => (name, false),
        };
        let entry = self.entry(name, peer)?;
        if entry.volume.answers.is_closing() {
            return Err(Refusal::ShuttingDown);
        }
        let (status, epoch) = (self.status_for(peer), self.epoch);
        let (volume, may_write) = (Arc::clone(&entry.volume), entry.may_write(peer));
        let inner: Box<dyn Export> = match is_control {
            true => Box::new(control::ControlExport { volume, status, epoch, may_write }),
            false => Box::new(HintedExport::new(volume, status, epoch, may_write)),
        };
        Ok(Arc::new(OpenedExport { inner, entry }))
    }
}

/// The place of an open connection among those that a volume allows.
struct Place(Arc<Connections>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Connections {
    fn new(rules: &VolumeConfig) -> Connections {
        static OWNERS: AtomicU64 = AtomicU64::new(1);
        let owner = OWNERS.fetch_add(1, Ordering::Relaxed);
        let limiter = Limiter::of(rules, clock::now());
        Connections { limiter, owner, open: AtomicUsize::new(0), all: Mutex::default() }
    }
}

impl ExportEntry {
    fn new(
        volume: Arc<Volume>,
        rules: &VolumeConfig,
        connections: Arc<Connections>,
    ) -> Arc<ExportEntry> {
        let (rules, is_closed) = (Arc::new(rules.clone()), AtomicBool::new(false));
        Arc::new(ExportEntry { volume, rules, connections, is_closed })
    }

    /// The volume of the export.
    pub(crate) fn volume(&self) -> &Arc<Volume> {
        &self.volume
    }

    /// The counters of the open connections, the busiest first.
    pub(crate) fn clients(&self) -> Vec<ClientStats> {
        let mut all: Vec<_> = self.open_connections().iter().map(|client| client.stats()).collect();
        all.sort_by_key(|client| std::cmp::Reverse(client.requests));
        all
    }

    /// The open connections.
    pub(crate) fn open_connections(&self) -> Vec<Arc<Connection>> {
        let clients = sleep_lock(&self.connections.all);
        clients.iter().filter_map(Weak::upgrade).collect()
    }

    /// The number by which the protocol identifies the sessions of this volume, of its control
    /// export and of its advice.
    pub(crate) fn owner(&self) -> u64 {
        self.connections.owner
    }

    /// Refuses all further requests of the selected connections, and returns their number. The
    /// caller closes them. A connection that is just starting is refused, too.
    pub(crate) fn revoke(&self, is_meant: impl Fn(&Peer) -> bool) -> usize {
        let mut present = self.open_connections();
        present.retain(|client| is_meant(client.peer()));
        present.iter().for_each(|client| client.revoke());
        present.len()
    }

    /// Whether a peer has fewer rights than under the rules `before`, so that its connections must
    /// end.
    pub(crate) fn revokes(&self, before: &ExportEntry, peer: &Peer) -> bool {
        admits(&self.rules, peer).is_err() || (before.may_write(peer) && !self.may_write(peer))
    }

    fn may_write(&self, peer: &Peer) -> bool {
        is_listed(&self.rules.writers, peer)
    }

    /// Takes a place for a connection.
    fn connect(&self, peer: &Peer) -> Result<(Arc<Connection>, Place), Refusal> {
        let limit = self.rules.connections.unwrap_or(usize::MAX);
        let connections = &self.connections;
        let entered = connections.open.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |open| {
            (open < limit).then_some(open + 1)
        });
        if entered.is_err() {
            let name = &self.volume.config().name;
            return Err(Refusal::Denied(format!(
                "all {limit} connections that volume '{name}' allows are in use; end one, or \
                 raise its 'connections'"
            )));
        }
        let place = Place(Arc::clone(connections));
        let client = Arc::new(Connection::new(peer));
        let mut clients = sleep_lock(&connections.all);
        clients.retain(|client| client.strong_count() > 0);
        clients.push(Arc::downgrade(&client));
        // Code that closes the entry, or replaces the client roots, looks at the connections
        // afterwards.
        if self.is_closed.load(Ordering::SeqCst) || !peer.is_trusted() {
            return Err(Refusal::ShuttingDown);
        }
        Ok((client, place))
    }
}

/// An export opened by one peer.
struct OpenedExport {
    /// The volume, or its control export.
    inner: Box<dyn Export>,
    entry: Arc<ExportEntry>,
}

impl Export for OpenedExport {
    fn owner(&self) -> u64 {
        self.entry.owner()
    }

    fn info(&self, peer: &Peer, contexts: &[Context]) -> ExportInfo {
        let mut info = self.inner.info(peer, contexts);
        info.flags.read_only |= !self.entry.may_write(peer);
        info
    }

    fn contexts(&self, query: &str) -> Vec<Context> {
        self.inner.contexts(query)
    }

    fn connect(&self, peer: &Peer, contexts: &[Context]) -> Result<Box<dyn Session>, Refusal> {
        let session = self.inner.connect(peer, contexts)?;
        let (client, place) = self.entry.connect(peer)?;
        let limiter = Arc::clone(&self.entry.connections.limiter);
        let runtime = self.entry.volume().runtime.clone();
        let session = RateLimit::new(limiter, session, Arc::clone(&client), runtime);
        Ok(Box::new(Access::new(client, place, session)))
    }
}
