//! The server side: accepts connections, negotiates, serves.
//!
//! Here: the server, its limits, and how it stops. Not here: the exports; see [`Exports`].

mod busy_poll;
pub(crate) mod certificate;
mod context;
mod encode;
mod generations;
mod handshake;
mod inbox;
mod listen;
mod negotiating;
mod offer;
mod refusals;
mod reservation;
mod stall_timer;
mod threads;
mod transmission;

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::budget::Budget;
use crate::link::{Ended, Link, Transport};
use crate::reply::Answers;
use crate::service::{Exports, Peer};
use crate::task_queue::Stop;
use crate::tls::Tls;
use crate::wire::REP_ERR_POLICY;

pub use listen::{Listener, UnixSocket};
pub use threads::{Alone, while_others_wait};

use generations::Lines;
use handshake::{Handshake, Opened};
use negotiating::Negotiating;
use refusals::{RefusalLog, Refused};
use threads::Threads;
use transmission::Transmission;

/// Longest wait for a client to read the last bytes before its connection closes.
const GOOD_BYE: Duration = Duration::from_secs(2);

/// Longest wait for a cut connection to end. Its thread only has to notice the cut, so this limit
/// matters only if a thread is stuck, which would otherwise block the server's end.
const CUT: Duration = Duration::from_secs(5);

/// How long a negotiating client has, after the server began to stop, to send an option and receive
/// the refusal.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// The options and limits of a server.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Whether connections are encrypted.
    pub tls: Tls,
    /// Longest time from the first byte to the first request.
    pub handshake_timeout: Duration,
    /// Most connections that have opened an export; further ones are refused with a message.
    pub max_connections: usize,
    /// Most connections that have not opened an export; a further one replaces the oldest.
    pub max_negotiating: usize,
    /// Most requests in flight on one connection; further ones wait in the socket.
    pub max_requests: usize,
    /// Most bytes that the requests of one connection hold, from their arrival until their answers
    /// are sent. A single request may exceed it.
    pub max_bytes: u64,
    /// Most bytes that the requests of all connections to one export hold; further requests wait.
    pub max_export_bytes: u64,
    /// Most bytes that the requests of all connections hold.
    pub max_total_bytes: u64,
    /// How long a client may neither send nor receive while others wait for the memory held for it;
    /// then it is disconnected.
    pub stall: Duration,
    /// Longest time that a thread polls its socket before it sleeps, where that pays off; zero:
    /// never.
    pub busy_poll: Duration,
}

impl Default for ServerOptions {
    /// No TLS, 20 s for handshakes, 4096 connections and 256 negotiating ones, 1024 requests and 32
    /// MiB per connection, 64 MiB per export, 128 MiB in all, 5 s of stall, 50 us of busy polling.
    fn default() -> ServerOptions {
        ServerOptions {
            tls: Tls::Off,
            handshake_timeout: Duration::from_secs(20),
            max_connections: 4096,
            max_negotiating: 256,
            max_requests: 1024,
            max_bytes: 32 << 20,
            max_export_bytes: 64 << 20,
            max_total_bytes: 128 << 20,
            stall: Duration::from_secs(5),
            busy_poll: Duration::from_micros(50),
        }
    }
}

/// A server. Clones share it.
#[derive(Clone)]
pub struct Server {
    inner: Arc<Inner>,
}

struct Inner {
    exports: Arc<dyn Exports>,
    options: ServerOptions,
    stop: watch::Sender<Stop>,
    /// Number of open connections, negotiating or in transmission.
    count: watch::Sender<usize>,
    /// Connections that have not opened an export.
    negotiating: Negotiating,
    /// Number of connections that have opened an export.
    guests: AtomicUsize,
    budget: Arc<Budget>,
    /// Bytes that connections in transmission have read and not processed after their last turns.
    aside: Arc<AtomicUsize>,
    /// Connections in transmission.
    serving: Mutex<BTreeMap<u64, Reachable>>,
    lines: Lines,
    /// Number of connections that were refused.
    refused: AtomicU64,
    refusals: RefusalLog,
    next_id: AtomicU64,
    threads: Threads,
}

/// Access to a connection in transmission.
struct Reachable {
    answers: Arc<Answers>,
    owner: u64,
    peer: Peer,
}

impl Inner {
    fn stopping(&self) -> bool {
        *self.stop.borrow() != Stop::No
    }

    fn is_full(&self) -> bool {
        self.guests.load(Ordering::SeqCst) >= self.options.max_connections
    }

    /// The refusal for a client beyond the limit of connections.
    fn no_room(&self) -> (u32, String) {
        let limit = self.options.max_connections;
        let text = format!("all {limit} connections that this server allows are in use");
        (REP_ERR_POLICY, text)
    }

    fn serving(&self) -> MutexGuard<'_, BTreeMap<u64, Reachable>> {
        self.serving.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Server {
    /// Bytes that requests hold now, as they are charged (see [`ServerOptions::max_total_bytes`]).
    /// This includes requests that have outlived their connections.
    pub fn pinned_bytes(&self) -> u64 {
        self.inner.budget.used()
    }

    /// A server of these exports, without connections.
    pub fn new(exports: Arc<dyn Exports>, options: ServerOptions) -> Server {
        let threads = Threads::new(options.busy_poll);
        let inner = Inner {
            exports,
            negotiating: Negotiating::new(options.max_negotiating),
            guests: AtomicUsize::new(0),
            budget: Budget::new(options.max_total_bytes, options.max_export_bytes),
            aside: Arc::default(),
            options,
            stop: watch::Sender::new(Stop::No),
            count: watch::Sender::new(0),
            serving: Mutex::default(),
            lines: Lines::default(),
            refused: AtomicU64::new(0),
            refusals: RefusalLog::default(),
            next_id: AtomicU64::new(0),
            threads,
        };
        Server { inner: Arc::new(inner) }
    }

    /// Number of open connections.
    pub fn connections(&self) -> usize {
        *self.inner.count.borrow()
    }

    /// Number of connections that have opened an export.
    pub fn guests(&self) -> usize {
        self.inner.guests.load(Ordering::SeqCst)
    }

    /// Number of connections so far that were refused: for a limit, a missing right, an export that
    /// is not there, or a handshake that failed.
    pub fn refused(&self) -> u64 {
        self.inner.refused.load(Ordering::Relaxed)
    }

    /// Serves one client over any transport until it leaves; `peer` tells what is known about the
    /// client.
    ///
    /// # Errors
    /// Why the connection ended, unless the client left regularly. No action is needed.
    pub async fn attend(&self, transport: impl Transport, peer: Peer) -> Result<(), Ended> {
        let _counted = Counted::new(&self.inner);
        let refused = Mutex::new(Refused::default());
        let opened = self.negotiate(transport, peer.clone(), &refused).await;
        let refused = refused.into_inner().unwrap_or_else(PoisonError::into_inner);
        self.note_refusal(&opened, refused, peer);
        let Some(opened) = opened? else { return Ok(()) };
        tracing::debug!(peer = opened.peer.address, export = opened.export, "connected");
        let Opened { link, session, offer, owner, peer, answers, guest: _guest, .. } = opened;
        let reachable = Reachable { answers: Arc::clone(&answers), owner, peer };
        let _serving = Serving::enter(&self.inner, reachable);
        let transmission = Transmission::new(link, session, offer, answers, &self.inner);
        let mut transport = transmission.run().await?;
        // This fails if the client has disconnected already.
        let _ = timeout(GOOD_BYE, transport.shutdown()).await;
        Ok(())
    }

    /// Counts and logs a connection that was refused something that it needs, or had no right to.
    fn note_refusal(
        &self,
        opened: &Result<Option<Opened<'_>>, Ended>,
        refused: Refused,
        peer: Peer,
    ) {
        let (is_refused, other) = match opened {
            Ok(Some(_)) => (refused.is_denied, None),
            Ok(None) => (refused.is_needed, None),
            // Errors of TLS are of this kind; others mean that the client has left.
            Err(Ended::Io(error)) if error.kind() == ErrorKind::InvalidData => {
                (true, Some(format!("TLS: {error}")))
            }
            Err(Ended::Io(_)) => (refused.is_needed, None),
            Err(error) => (true, Some(error.to_string())),
        };
        self.inner.refused.fetch_add(u64::from(is_refused), Ordering::Relaxed);
        let other = other.map(|why| (peer, String::new(), why));
        if let Some((peer, export, why)) = refused.last.or(other).filter(|_| is_refused) {
            self.inner.refusals.note(&peer, &export, &why);
        }
    }

    /// Logs an attempt that was refused elsewhere in the program together with those of NBD, of
    /// which some are named each minute and the others counted: who, what was wanted, and why it
    /// was refused.
    pub fn log_refusal(&self, peer: &Peer, what: &str, why: &str) {
        self.inner.refusals.note(peer, what, why);
    }

    /// Negotiates within the limits; `refused` is set if the client was refused something that it
    /// needs. Returns `None` if the client or the server ends the handshake.
    async fn negotiate(
        &self,
        transport: impl Transport,
        peer: Peer,
        refused: &Mutex<Refused>,
    ) -> Result<Option<Opened<'_>>, Ended> {
        let place = self.inner.negotiating.enter();
        let link = Link::new(Box::new(transport));
        let handshake = Handshake::new(&self.inner, link, peer, refused).run();
        let mut stop = self.inner.stop.subscribe();
        tokio::select! {
            biased;
            opened = timeout(self.inner.options.handshake_timeout, handshake) => match opened {
                Ok(opened) => opened,
                Err(_) => Err(Ended::Refused("the handshake took too long".to_owned())),
            },
            () = place.is_lost() => {
                let limit = self.inner.options.max_negotiating;
                let text = format!("{limit} connections that came later negotiate too");
                Err(Ended::Refused(text))
            }
            () = last_words(&mut stop) => Ok(None),
        }
    }

    /// Accepts no further connections, refuses new requests with ESHUTDOWN, and waits until
    /// requests in flight are answered. After `grace` it closes the remaining connections. Returns
    /// the number of connections that had to be cut. The owner of the exports must flush dirty data
    /// afterwards.
    pub async fn shutdown(&self, grace: Duration) -> usize {
        self.stop_all(Stop::Drain);
        let mut count = self.inner.count.subscribe();
        if timeout(grace, count.wait_for(|count| *count == 0)).await.is_ok() {
            return 0;
        }
        let cut = self.connections();
        self.stop_all(Stop::Now);
        let _ = timeout(CUT, count.wait_for(|count| *count == 0)).await;
        cut
    }

    /// Ends the connections in transmission for which `unwelcome` is true, given the owner of their
    /// export ([`Export::owner`](crate::Export::owner)) and the peer. It proceeds like
    /// [`Server::shutdown`]. Returns the number of connections that had to be cut.
    pub async fn hang_up(&self, unwelcome: impl Fn(u64, &Peer) -> bool, grace: Duration) -> usize {
        let is_meant = |(id, c): (&u64, &Reachable)| unwelcome(c.owner, &c.peer).then_some(*id);
        let ids: Vec<_> = self.inner.serving().iter().filter_map(is_meant).collect();
        let stop = |ids: &[u64], stop| {
            let serving = self.inner.serving();
            ids.iter().filter_map(|id| serving.get(id)).for_each(|c| c.answers.queue.stop(stop));
        };
        stop(&ids, Stop::Drain);
        let mut count = self.inner.count.subscribe();
        let are_gone = || ids.iter().all(|id| !self.inner.serving().contains_key(id));
        if timeout(grace, count.wait_for(|_| are_gone())).await.is_ok() {
            return 0;
        }
        let cut = ids.iter().filter(|id| self.inner.serving().contains_key(id)).count();
        stop(&ids, Stop::Now);
        let _ = timeout(CUT, count.wait_for(|_| are_gone())).await;
        cut
    }

    fn stop_all(&self, stop: Stop) {
        self.inner.stop.send_modify(|now| *now = stop.max(*now));
        self.inner.serving().values().for_each(|connection| connection.answers.queue.stop(stop));
    }
}

/// Waits until the server has been stopping long enough to cut negotiating clients.
async fn last_words(stop: &mut watch::Receiver<Stop>) {
    let _ = stop.wait_for(|stop| *stop != Stop::No).await;
    let _ = timeout(LAST_WORDS, stop.wait_for(|stop| *stop == Stop::Now)).await;
}

/// Counts a connection while it exists.
struct Counted<'a> {
    inner: &'a Inner,
}

impl Counted<'_> {
    fn new(inner: &Inner) -> Counted<'_> {
        inner.count.send_modify(|count| *count += 1);
        Counted { inner }
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.inner.count.send_modify(|count| *count -= 1);
    }
}

/// Counts a connection that has opened an export while it exists.
struct Guest<'a> {
    inner: &'a Inner,
}

impl Guest<'_> {
    /// Returns `None` if the limit is reached.
    fn enter(inner: &Inner) -> Option<Guest<'_>> {
        let limit = inner.options.max_connections;
        let more = |count: usize| (count < limit).then_some(count + 1);
        let entered = inner.guests.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more);
        entered.is_ok().then(|| Guest { inner })
    }
}

impl Drop for Guest<'_> {
    fn drop(&mut self) {
        self.inner.guests.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Makes a connection in transmission reachable while it exists.
struct Serving<'a> {
    inner: &'a Inner,
    id: u64,
}

impl Serving<'_> {
    fn enter(inner: &Inner, connection: Reachable) -> Serving<'_> {
        let id = inner.next_id.fetch_add(1, Ordering::Relaxed);
        let answers = Arc::clone(&connection.answers);
        inner.serving().insert(id, connection);
        // The server may have begun to stop before the queue was reachable.
        answers.queue.stop(*inner.stop.borrow());
        Serving { inner, id }
    }
}

impl Drop for Serving<'_> {
    fn drop(&mut self) {
        self.inner.serving().remove(&self.id);
    }
}
