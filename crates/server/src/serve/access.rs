//! Who may use a volume, and how much: a layer between the protocol and the volumes.
//!
//! It refuses peers that a volume is not for, bounds connections and requests a second, and counts
//! what each connection asks for, so that one client that scans is seen. The volumes behind it
//! know nothing of clients.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockWriteGuard, Weak};
use std::time::{Duration, Instant};

use serde::Serialize;
use undercroft_nbd::{
    Command, Context, Export, ExportInfo, Exports, Peer, Refusal, Request, Session,
};

use super::plan::Access;
use super::{control, coop, levels, report};
use crate::clock;
use crate::session::VolumeExport;
use crate::volume::Volume;

/// The volumes of a server, each behind its rules.
pub(crate) struct Doors {
    by_name: RwLock<BTreeMap<String, Arc<Door>>>,
    /// The export of the empty name.
    default: RwLock<Option<String>>,
    this: Weak<Doors>,
    /// Changes with every start, so that clients notice that what the server knew is gone.
    epoch: u64,
}

/// A volume behind its rules.
pub(crate) struct Door {
    volume: Arc<Volume>,
    access: Access,
    bucket: Option<Mutex<Bucket>>,
    guests: Arc<Guests>,
    /// Nobody else comes in: the volume goes away, or another door has new rules.
    shut: AtomicBool,
}

/// The connections to a volume, whatever rules they came in by.
#[derive(Default)]
struct Guests {
    /// How many there are.
    open: AtomicUsize,
    clients: Mutex<Vec<Weak<Client>>>,
}

/// What one connection asked for.
pub(crate) struct Client {
    peer: Peer,
    requests: AtomicU64,
    bytes_read: AtomicU64,
    bytes_written: AtomicU64,
    delayed: AtomicU64,
}

/// The counters of a connection, as people read them.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ClientStats {
    /// Certificate or address.
    pub(crate) client: String,
    /// Requests of all kinds.
    pub(crate) requests: u64,
    /// Bytes asked for by READ.
    pub(crate) bytes_read: u64,
    /// Bytes sent by WRITE.
    pub(crate) bytes_written: u64,
    /// Requests that had to wait for the limit of requests a second.
    pub(crate) delayed_requests: u64,
}

/// Lets so many requests through in a second, and a second's worth at once.
struct Bucket {
    per_second: f64,
    /// Requests that may pass now; negative: that many are waiting.
    tokens: f64,
    filled: Instant,
}

impl Bucket {
    fn new(per_second: u32, now: Instant) -> Bucket {
        let per_second = f64::from(per_second.max(1));
        Bucket { per_second, tokens: per_second, filled: now }
    }

    /// How long the request that arrives now has to wait.
    fn wait(&mut self, now: Instant) -> Duration {
        let gained = now.saturating_duration_since(self.filled).as_secs_f64() * self.per_second;
        self.tokens = (self.tokens + gained).min(self.per_second) - 1.0;
        self.filled = now;
        Duration::from_secs_f64((-self.tokens / self.per_second).max(0.0))
    }
}

impl Doors {
    /// No volumes yet.
    pub(crate) fn new(epoch: u64) -> Arc<Doors> {
        Arc::new_cyclic(|this| {
            let (by_name, default) = (RwLock::default(), RwLock::default());
            Doors { by_name, default, this: this.clone(), epoch }
        })
    }

    /// What tells a peer the status, of the volumes that are for it and of no others.
    fn status_for(&self, peer: &Peer) -> coop::Status {
        let (doors, peer) = (self.this.clone(), peer.clone());
        Arc::new(move || {
            let mut all = doors.upgrade().map(|doors| doors.all()).unwrap_or_default();
            all.retain(|door| door.admits(&peer).is_ok());
            report::stats(&all).to_string()
        })
    }

    /// Adds a volume. The first one is the default.
    pub(crate) fn add(&self, volume: Arc<Volume>, access: Access) {
        let name = volume.config().name.clone();
        let door = Door::new(volume, access, Arc::default());
        let mut default = self.default.write().unwrap_or_else(PoisonError::into_inner);
        default.get_or_insert_with(|| name.clone());
        self.write().insert(name, door);
    }

    /// Gives a volume other rules, for connections that begin from now on: its door.
    pub(crate) fn change(&self, name: &str, access: Access) -> Option<Arc<Door>> {
        let mut doors = self.write();
        let door = doors.get_mut(name)?;
        let next = Door::new(Arc::clone(&door.volume), access, Arc::clone(&door.guests));
        door.shut.store(true, Ordering::SeqCst);
        *door = Arc::clone(&next);
        Some(next)
    }

    /// Takes a volume away, for connections that begin from now on: its door.
    pub(crate) fn remove(&self, name: &str) -> Option<Arc<Door>> {
        let door = self.write().remove(name)?;
        door.shut.store(true, Ordering::SeqCst);
        Some(door)
    }

    /// Chooses the export of the empty name.
    pub(crate) fn set_default(&self, name: Option<String>) {
        *self.default.write().unwrap_or_else(PoisonError::into_inner) = name;
    }

    /// The export of the empty name.
    pub(crate) fn default_name(&self) -> Option<String> {
        self.default.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn write(&self) -> RwLockWriteGuard<'_, BTreeMap<String, Arc<Door>>> {
        self.by_name.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// All doors, by name.
    pub(crate) fn all(&self) -> Vec<Arc<Door>> {
        self.by_name.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    fn door(&self, name: &str) -> Option<Arc<Door>> {
        let name = if name.is_empty() { self.default_name()? } else { name.to_owned() };
        self.by_name.read().unwrap_or_else(PoisonError::into_inner).get(&name).cloned()
    }
}

impl Exports for Doors {
    fn list(&self, peer: &Peer) -> Vec<(String, String)> {
        let doors = self.all().into_iter().filter(|door| door.admits(peer).is_ok());
        doors
            .map(|d| (d.volume.config().name.clone(), d.volume.config().description.clone()))
            .collect()
    }

    fn find(&self, name: &str, peer: &Peer) -> Result<Arc<dyn Export>, Refusal> {
        let (name, is_control) = match name.strip_prefix(control::CONTROL) {
            Some(volume) => (volume, true),
            None => (name, false),
        };
        let door = self.door(name).ok_or(Refusal::Unknown)?;
        door.admits(peer)?;
        if door.volume.is_closing() {
            return Err(Refusal::ShuttingDown);
        }
        let (status, epoch) = (self.status_for(peer), self.epoch);
        let volume = Arc::clone(&door.volume);
        let control = is_control.then(|| control::Control {
            volume: Arc::clone(&volume),
            status: Arc::clone(&status),
            epoch,
        });
        let window = coop::Place::of_volume(&volume, door.may_write(peer));
        let export = VolumeExport(volume);
        Ok(Arc::new(Opened { export, control, window, door, status, epoch }))
    }
}

impl Door {
    fn new(volume: Arc<Volume>, access: Access, guests: Arc<Guests>) -> Arc<Door> {
        let now = clock::now();
        let bucket = access.requests_per_second.map(|limit| Mutex::new(Bucket::new(limit, now)));
        Arc::new(Door { volume, access, bucket, guests, shut: AtomicBool::new(false) })
    }

    /// The volume behind it.
    pub(crate) fn volume(&self) -> &Arc<Volume> {
        &self.volume
    }

    /// The connections that there are, the busiest first.
    pub(crate) fn clients(&self) -> Vec<ClientStats> {
        let mut all: Vec<_> = self.present().iter().map(|client| client.stats()).collect();
        all.sort_by_key(|client| std::cmp::Reverse(client.requests));
        all
    }

    /// The connections that there are, however they came in.
    fn present(&self) -> Vec<Arc<Client>> {
        let clients = self.guests.clients.lock().unwrap_or_else(PoisonError::into_inner);
        clients.iter().filter_map(Weak::upgrade).collect()
    }

    /// Whether one of these peers is connected.
    pub(crate) fn has_guest(&self, is_meant: impl Fn(&Peer) -> bool) -> bool {
        self.present().iter().any(|client| is_meant(&client.peer))
    }

    /// Whether a peer that came in by older rules has no right to stay as it is.
    pub(crate) fn turns_away(&self, before: &Access, peer: &Peer) -> bool {
        self.admits(peer).is_err() || (is_listed(&before.writers, peer) && !self.may_write(peer))
    }

    fn admits(&self, peer: &Peer) -> Result<(), Refusal> {
        if self.access.tls_required && !peer.encrypted {
            return Err(Refusal::TlsRequired);
        }
        if !is_listed(&self.access.clients, peer) {
            return Err(Refusal::Denied("this certificate may not open the export".to_owned()));
        }
        Ok(())
    }

    fn may_write(&self, peer: &Peer) -> bool {
        is_listed(&self.access.writers, peer)
    }

    fn enter(&self, peer: &Peer) -> Result<Arc<Client>, Refusal> {
        let limit = self.access.connections.unwrap_or(usize::MAX);
        let guests = &self.guests;
        let entered = guests.open.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |open| {
            (open < limit).then_some(open + 1)
        });
        if entered.is_err() {
            let name = &self.volume.config().name;
            return Err(Refusal::Denied(format!(
                "all {limit} connections that volume '{name}' allows are in use; end one, or \
                 raise its 'connections'"
            )));
        }
        let client = Arc::new(Client {
            peer: peer.clone(),
            requests: AtomicU64::new(0),
            bytes_read: AtomicU64::new(0),
            bytes_written: AtomicU64::new(0),
            delayed: AtomicU64::new(0),
        });
        let mut clients = guests.clients.lock().unwrap_or_else(PoisonError::into_inner);
        clients.retain(|client| client.strong_count() > 0);
        clients.push(Arc::downgrade(&client));
        // Whoever shuts the door looks afterwards who is in.
        if self.shut.load(Ordering::SeqCst) {
            guests.open.fetch_sub(1, Ordering::SeqCst);
            return Err(Refusal::ShuttingDown);
        }
        Ok(client)
    }
}

/// Whether a list of certificates is for everybody, or names the peer's.
fn is_listed(list: &[String], peer: &Peer) -> bool {
    list.is_empty() || peer.certificate.as_ref().is_some_and(|name| list.contains(name))
}

impl Client {
    fn stats(&self) -> ClientStats {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let name = self.peer.certificate.as_ref().unwrap_or(&self.peer.address);
        ClientStats {
            client: name.clone(),
            requests: get(&self.requests),
            bytes_read: get(&self.bytes_read),
            bytes_written: get(&self.bytes_written),
            delayed_requests: get(&self.delayed),
        }
    }

    fn count(&self, batch: BatchCounts) {
        let BatchCounts { requests, bytes_read, bytes_written } = batch;
        self.requests.fetch_add(requests, Ordering::Relaxed);
        self.bytes_read.fetch_add(bytes_read, Ordering::Relaxed);
        self.bytes_written.fetch_add(bytes_written, Ordering::Relaxed);
    }
}

/// What a client asked with requests that arrived together: counted by itself first, since each
/// change that others see holds the processor up.
#[derive(Default)]
struct BatchCounts {
    requests: u64,
    bytes_read: u64,
    bytes_written: u64,
}

impl BatchCounts {
    fn count(&mut self, request: &Request) {
        self.requests += 1;
        match request.command {
            Command::Read { .. } => self.bytes_read += request.length,
            Command::Write { .. } => self.bytes_written += request.length,
            _ => {}
        }
    }
}

/// A volume that a peer was let in to.
struct Opened {
    export: VolumeExport,
    /// Instead of the volume, the door for hints about it.
    control: Option<control::Control>,
    window: coop::Place,
    door: Arc<Door>,
    status: coop::Status,
    epoch: u64,
}

impl Export for Opened {
    fn info(&self, peer: &Peer, contexts: &[Context]) -> ExportInfo {
        if let Some(control) = &self.control {
            return control.info(peer, contexts);
        }
        let mut info = self.export.info(peer, contexts);
        info.flags.read_only |= !self.door.may_write(peer);
        if opted_in(contexts) {
            info.size = self.window.told_size(contexts);
        }
        info
    }

    fn contexts(&self, query: &str) -> Vec<Context> {
        if let Some(control) = &self.control {
            return control.contexts(query);
        }
        let mut contexts = self.export.contexts(query);
        contexts.extend(self.window.contexts(query, &self.door.volume, self.epoch));
        contexts
    }

    fn connect(&self, peer: &Peer, contexts: &[Context]) -> Result<Box<dyn Session>, Refusal> {
        let session = self.begin(peer, contexts)?;
        let late = match self.door.bucket {
            Some(_) => Some(Arc::new(Mutex::new(self.begin(peer, contexts)?))),
            None => None,
        };
        let client = self.door.enter(peer)?;
        Ok(Box::new(Visit { session, late, client, door: Arc::clone(&self.door) }))
    }
}

/// Whether the opt-in context was agreed on.
fn opted_in(contexts: &[Context]) -> bool {
    contexts.iter().any(|context| context.key == coop::COOP)
}

impl Opened {
    fn begin(&self, peer: &Peer, contexts: &[Context]) -> Result<Box<dyn Session>, Refusal> {
        if let Some(control) = &self.control {
            return control.connect(peer, contexts);
        }
        let volume = &self.door.volume;
        let session = if opted_in(contexts) {
            let (base, status) = (self.window.base(), Arc::clone(&self.status));
            Box::new(coop::CoopSession::new(volume, contexts, base, status)?)
        } else {
            self.export.connect(peer, contexts)?
        };
        if volume.config().lower.is_none() {
            return Ok(session);
        }
        Ok(Box::new(levels::Gate::new(volume, session)))
    }
}

/// A connection to a volume.
struct Visit {
    session: Box<dyn Session>,
    /// For requests that have to wait, where requests a second are limited.
    late: Option<Arc<Mutex<Box<dyn Session>>>>,
    client: Arc<Client>,
    door: Arc<Door>,
}

impl Drop for Visit {
    fn drop(&mut self) {
        self.door.guests.open.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Session for Visit {
    fn submit(&mut self, request: Request) {
        let mut counts = BatchCounts::default();
        counts.count(&request);
        self.client.count(counts);
        self.begin(request);
    }

    fn end_of_batch(&mut self) {
        self.session.end_of_batch();
    }

    fn serve(&mut self, requests: &mut Vec<Request>) {
        // Before the answers: who has them finds them counted.
        let mut counts = BatchCounts::default();
        requests.iter().for_each(|request| counts.count(request));
        self.client.count(counts);
        if self.late.is_none() {
            return self.session.serve(requests);
        }
        requests.drain(..).for_each(|request| self.begin(request));
        self.session.end_of_batch();
    }
}

impl Visit {
    /// Begins a request, now or when its time has come.
    fn begin(&mut self, request: Request) {
        if let (Some(bucket), Some(late)) = (&self.door.bucket, &self.late) {
            let wait = bucket.lock().unwrap_or_else(PoisonError::into_inner).wait(clock::now());
            if !wait.is_zero() {
                self.client.delayed.fetch_add(1, Ordering::Relaxed);
                let late = Arc::clone(late);
                tokio::spawn(async move {
                    tokio::time::sleep(wait).await;
                    let mut session = late.lock().unwrap_or_else(PoisonError::into_inner);
                    session.submit(request);
                    session.end_of_batch();
                });
                return;
            }
        }
        self.session.submit(request);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_at_once_and_then_one_after_another() {
        let start = Instant::now();
        let mut bucket = Bucket::new(10, start);
        for _ in 0..10 {
            assert!(bucket.wait(start).is_zero());
        }
        assert_eq!(bucket.wait(start).as_millis(), 100);
        assert_eq!(bucket.wait(start).as_millis(), 200);
        assert!(bucket.wait(start + Duration::from_secs(1)).is_zero());
        // A long silence saves up one second's worth, no more.
        let late = start + Duration::from_secs(100);
        let passed = (0..20).filter(|_| bucket.wait(late).is_zero()).count();
        assert_eq!(passed, 10);
    }

    #[test]
    fn lists_are_of_certificates() {
        let nobody = Peer::default();
        let db = Peer { certificate: Some("db".to_owned()), ..Peer::default() };
        assert!(is_listed(&[], &nobody));
        assert!(!is_listed(&["db".to_owned()], &nobody));
        assert!(is_listed(&["db".to_owned()], &db));
    }
}
