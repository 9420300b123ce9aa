//! Who may use a volume, and how much: a layer between the protocol and the volumes.
//!
//! It refuses peers that a volume is not for, bounds connections and requests a second, and counts
//! what each connection asks for, so that one client that scans is seen. The volumes behind it
//! know nothing of clients.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockWriteGuard, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde::Serialize;
use undercroft_nbd::{
    Command, Context, Export, ExportInfo, Exports, Failure, Peer, Refusal, Request, Session,
};

use super::pace::{Bucket, Paced};
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
    /// The status text that was made last.
    kept: Mutex<Option<Kept>>,
}

/// How long who reads the status in parts is given parts of the same.
const KEPT_FOR: Duration = Duration::from_secs(1);

/// A status text, of these volumes.
struct Kept {
    of: Vec<String>,
    made: Instant,
    text: Bytes,
}

/// A volume behind its rules.
pub(crate) struct Door {
    volume: Arc<Volume>,
    access: Access,
    bucket: Option<Arc<Bucket>>,
    guests: Arc<Guests>,
    /// Nobody else comes in: the volume goes away, or another door has new rules.
    shut: AtomicBool,
}

/// The connections to a volume, whatever rules they came in by and whatever export they asked for.
struct Guests {
    /// By which the protocol knows their sessions: every volume has another, also one that has the
    /// name of one that is gone.
    owner: u64,
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
    pub(super) delayed: AtomicU64,
    /// It has no right to stay, and is about to be closed: nothing more is done for it.
    dismissed: AtomicBool,
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

impl Doors {
    /// No volumes yet.
    pub(crate) fn new(epoch: u64) -> Arc<Doors> {
        Arc::new_cyclic(|this| {
            let (by_name, default) = (RwLock::default(), RwLock::default());
            Doors { by_name, default, this: this.clone(), epoch, kept: Mutex::default() }
        })
    }

    /// What tells a peer the status, of the volumes that are for it and of no others.
    fn status_for(&self, peer: &Peer) -> coop::Status {
        let (doors, peer) = (self.this.clone(), peer.clone());
        Arc::new(move |goes_on| {
            let Some(doors) = doors.upgrade() else { return Bytes::new() };
            let mut all = doors.all();
            all.retain(|door| door.admits(&peer).is_ok());
            doors.status(&all, goes_on)
        })
    }

    /// The status of some volumes. The last text is kept for a moment for those who go on reading,
    /// one for all: it may be long, and they many.
    fn status(&self, doors: &[Arc<Door>], goes_on: bool) -> Bytes {
        let name = |door: &Arc<Door>| door.volume.config().name.clone();
        let of: Vec<_> = doors.iter().map(name).collect();
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = |kept: &&Kept| kept.of == of && clock::now() - kept.made < KEPT_FOR;
        if let Some(kept) = kept.as_ref().filter(|_| goes_on).filter(fits) {
            return kept.text.clone();
        }
        let text = Bytes::from(report::stats(doors).to_string());
        *kept = Some(Kept { of, made: clock::now(), text: text.clone() });
        text
    }

    /// Adds a volume. The first one is the default.
    pub(crate) fn add(&self, volume: Arc<Volume>, access: Access) {
        let name = volume.config().name.clone();
        let door = Door::new(volume, access, Arc::new(Guests::new()));
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
        let may_write = door.may_write(peer);
        let control = is_control.then(|| control::Control {
            volume: Arc::clone(&volume),
            status: Arc::clone(&status),
            epoch,
            may_write,
        });
        let window = coop::Place::of_volume(&volume, may_write);
        let export = VolumeExport(volume);
        Ok(Arc::new(Opened { export, control, window, door, status, epoch }))
    }
}

impl Guests {
    fn new() -> Guests {
        static OWNERS: AtomicU64 = AtomicU64::new(1);
        let owner = OWNERS.fetch_add(1, Ordering::Relaxed);
        Guests { owner, open: AtomicUsize::new(0), clients: Mutex::default() }
    }
}

impl Door {
    fn new(volume: Arc<Volume>, access: Access, guests: Arc<Guests>) -> Arc<Door> {
        let now = clock::now();
        let bucket = access.requests_per_second.map(|limit| Arc::new(Bucket::new(limit, now)));
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

    /// By what the protocol knows the sessions of this volume, those of its control export too.
    pub(crate) fn owner(&self) -> u64 {
        self.guests.owner
    }

    /// Does nothing more for those of the connections that are meant: how many there are. They are
    /// to be closed; one that is only about to begin finds itself dismissed.
    pub(crate) fn dismiss(&self, is_meant: impl Fn(&Peer) -> bool) -> usize {
        let mut present = self.present();
        present.retain(|client| is_meant(&client.peer));
        present.iter().for_each(|client| client.dismissed.store(true, Ordering::SeqCst));
        present.len()
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
            dismissed: AtomicBool::new(false),
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
    pub(super) fn is_dismissed(&self) -> bool {
        self.dismissed.load(Ordering::Relaxed)
    }

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
    fn owner(&self) -> u64 {
        self.door.owner()
    }

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
        let client = self.door.enter(peer)?;
        let session = match &self.door.bucket {
            Some(bucket) => Box::new(Paced::new(Arc::clone(bucket), session, Arc::clone(&client))),
            None => session,
        };
        Ok(Box::new(Visit { session, client, door: Arc::clone(&self.door) }))
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

/// Answers a connection that has no right to stay.
pub(super) fn refuse(request: Request) {
    let text = "who may use the volume has changed, or it goes away".to_owned();
    request.reply.fail(Failure::ShuttingDown, text);
}

/// A connection to a volume.
struct Visit {
    session: Box<dyn Session>,
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
        if self.client.is_dismissed() {
            return refuse(request);
        }
        let mut counts = BatchCounts::default();
        counts.count(&request);
        self.client.count(counts);
        self.session.submit(request);
    }

    fn end_of_batch(&mut self) {
        self.session.end_of_batch();
    }

    fn serve(&mut self, requests: &mut Vec<Request>) {
        if self.client.is_dismissed() {
            return requests.drain(..).for_each(refuse);
        }
        // Before the answers: who has them finds them counted.
        let mut counts = BatchCounts::default();
        requests.iter().for_each(|request| counts.count(request));
        self.client.count(counts);
        self.session.serve(requests);
    }

    fn owed(&mut self) -> u64 {
        self.session.owed()
    }

    fn no_more(&mut self, is_gone: bool) {
        self.session.no_more(is_gone);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_of_certificates() {
        let nobody = Peer::default();
        let db = Peer { certificate: Some("db".to_owned()), ..Peer::default() };
        assert!(is_listed(&[], &nobody));
        assert!(!is_listed(&["db".to_owned()], &nobody));
        assert!(is_listed(&["db".to_owned()], &db));
    }
}
