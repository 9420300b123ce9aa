//! The server side: accepts connections, negotiates, serves.
//!
//! Here: the server, its limits, and how it stops. Not here: what it serves; see
//! [`Exports`].

mod busy_poll;
mod certificate;
mod context;
mod encode;
mod handshake;
mod inbox;
mod listen;
mod offer;
mod threads;
mod transmission;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;

use crate::link::{Ended, Link, Transport};
use crate::mailbox::{Mailbox, Stop};
use crate::reply::Answers;
use crate::service::{Exports, Peer};
use crate::tls::Tls;

pub use listen::Listener;

use handshake::Handshake;
use threads::Threads;
use transmission::Transmission;

/// How long a client may take to read the last bytes before the connection closes.
const GOOD_BYE: Duration = Duration::from_secs(2);

/// How long a client that still negotiates may take to ask something, and hear that the server is
/// going away.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Most clients at a time that are told that the server is full; more are closed without a word.
const MAX_TURNED_AWAY: usize = 64;

/// What a server bounds.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Whether connections are encrypted.
    pub tls: Tls,
    /// From the first byte to the first request.
    pub handshake_timeout: Duration,
    /// Most connections at a time; more are told so and closed.
    pub max_connections: usize,
    /// Most requests in flight on one connection; more wait in the socket.
    pub max_requests: usize,
    /// Most bytes of data in flight on one connection, and of answers not yet sent. A single
    /// request may pass it.
    pub max_bytes: u64,
    /// Longest time that a thread looks at its socket before it sleeps, where that pays; none: it
    /// sleeps at once.
    pub busy_poll: Duration,
}

impl Default for ServerOptions {
    /// No TLS, 20 s, 4096 connections, 1024 requests and 64 MiB each, 50 us.
    fn default() -> ServerOptions {
        ServerOptions {
            tls: Tls::Off,
            handshake_timeout: Duration::from_secs(20),
            max_connections: 4096,
            max_requests: 1024,
            max_bytes: 64 << 20,
            busy_poll: Duration::from_micros(50),
        }
    }
}

/// A server. Clones are the same server.
#[derive(Clone)]
pub struct Server {
    inner: Arc<Inner>,
}

struct Inner {
    exports: Arc<dyn Exports>,
    options: ServerOptions,
    stop: watch::Sender<Stop>,
    /// Connections that there are, in either phase.
    count: watch::Sender<usize>,
    /// Those in transmission.
    serving: Mutex<BTreeMap<u64, Reachable>>,
    next_id: AtomicU64,
    threads: Threads,
    /// For those that are told that there is no room.
    turned_away: Semaphore,
}

/// A connection in transmission, as others reach it.
struct Reachable {
    mailbox: Arc<Answers>,
    export: String,
    peer: Peer,
}

impl Inner {
    fn stopping(&self) -> bool {
        *self.stop.borrow() != Stop::No
    }

    fn serving(&self) -> MutexGuard<'_, BTreeMap<u64, Reachable>> {
        self.serving.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Server {
    /// A server of these exports, with nobody connected.
    pub fn new(exports: Arc<dyn Exports>, options: ServerOptions) -> Server {
        let threads = Threads::new(options.busy_poll);
        let inner = Inner {
            exports,
            options,
            stop: watch::Sender::new(Stop::No),
            count: watch::Sender::new(0),
            serving: Mutex::default(),
            next_id: AtomicU64::new(0),
            threads,
            turned_away: Semaphore::new(MAX_TURNED_AWAY),
        };
        Server { inner: Arc::new(inner) }
    }

    /// Connections that there are now.
    pub fn connections(&self) -> usize {
        *self.inner.count.borrow()
    }

    /// Serves one client over any transport until it leaves; `peer` says who it is as far as that
    /// is known.
    ///
    /// # Errors
    /// Why it ended other than by the client's leave. Nothing needs to be done about it.
    pub async fn attend(&self, transport: impl Transport, peer: Peer) -> Result<(), Ended> {
        let Some(_guest) = Guest::enter(&self.inner) else {
            let limit = self.inner.options.max_connections;
            let text = format!("all {limit} connections that this server allows are in use");
            self.turn_away(transport, peer, &text).await;
            return Err(Ended::Refused(text));
        };
        let handshake = Handshake::new(&self.inner, Link::new(Box::new(transport)), peer).run();
        let mut stop = self.inner.stop.subscribe();
        let opened = tokio::select! {
            biased;
            opened = timeout(self.inner.options.handshake_timeout, handshake) => match opened {
                Ok(opened) => opened?,
                Err(_) => return Err(Ended::Refused("the handshake took too long".to_owned())),
            },
            () = last_words(&mut stop) => return Ok(()),
        };
        let Some(opened) = opened else { return Ok(()) };
        tracing::debug!(peer = opened.peer.address, export = opened.export, "connected");
        let mailbox: Arc<Answers> = Arc::new(Mailbox::new());
        let handshake::Opened { link, session, offer, export, peer } = opened;
        let reachable = Reachable { mailbox: Arc::clone(&mailbox), export, peer };
        let _serving = Serving::enter(&self.inner, reachable);
        let options = &self.inner.options;
        let mut transport = Transmission::new(link, session, offer, options, mailbox).run().await?;
        // A client that has left already makes this fail, as it may.
        let _ = timeout(GOOD_BYE, transport.shutdown()).await;
        Ok(())
    }

    /// Tells a client that there is no room for it, if not too many are told just now.
    async fn turn_away(&self, transport: impl Transport, peer: Peer, text: &str) {
        let Ok(_permit) = self.inner.turned_away.try_acquire() else { return };
        let handshake = Handshake::new(&self.inner, Link::new(Box::new(transport)), peer);
        // It may well leave before.
        let _ = timeout(LAST_WORDS, handshake.refuse(text)).await;
    }

    /// Takes no more connections, refuses new requests with ESHUTDOWN, and waits until what is in
    /// flight is answered; after `grace` closes what is left. Gives the number of connections
    /// that had to be cut. Flushing dirty data is up to the owner of the exports, afterwards.
    pub async fn shutdown(&self, grace: Duration) -> usize {
        self.stop_all(Stop::Drain);
        let mut count = self.inner.count.subscribe();
        if timeout(grace, count.wait_for(|count| *count == 0)).await.is_ok() {
            return 0;
        }
        let cut = self.connections();
        self.stop_all(Stop::Now);
        let _ = count.wait_for(|count| *count == 0).await;
        cut
    }

    /// Ends the connections in transmission that are `unwelcome`, by export and peer, as
    /// [`Server::shutdown`] ends all. Gives the number of those that had to be cut.
    pub async fn hang_up(&self, unwelcome: impl Fn(&str, &Peer) -> bool, grace: Duration) -> usize {
        let is_meant = |(id, c): (&u64, &Reachable)| unwelcome(&c.export, &c.peer).then_some(*id);
        let ids: Vec<_> = self.inner.serving().iter().filter_map(is_meant).collect();
        let stop = |ids: &[u64], stop| {
            let serving = self.inner.serving();
            ids.iter().filter_map(|id| serving.get(id)).for_each(|c| c.mailbox.stop(stop));
        };
        stop(&ids, Stop::Drain);
        let mut count = self.inner.count.subscribe();
        let are_gone = || ids.iter().all(|id| !self.inner.serving().contains_key(id));
        if timeout(grace, count.wait_for(|_| are_gone())).await.is_ok() {
            return 0;
        }
        let cut = ids.iter().filter(|id| self.inner.serving().contains_key(id)).count();
        stop(&ids, Stop::Now);
        let _ = count.wait_for(|_| are_gone()).await;
        cut
    }

    fn stop_all(&self, stop: Stop) {
        self.inner.stop.send_modify(|now| *now = stop.max(*now));
        self.inner.serving().values().for_each(|connection| connection.mailbox.stop(stop));
    }
}

/// Waits until the server has stopped for long enough to hang up on who still negotiates.
async fn last_words(stop: &mut watch::Receiver<Stop>) {
    let _ = stop.wait_for(|stop| *stop != Stop::No).await;
    let _ = timeout(LAST_WORDS, stop.wait_for(|stop| *stop == Stop::Now)).await;
}

/// A connection, counted for as long as this lives.
struct Guest<'a> {
    inner: &'a Inner,
}

impl Guest<'_> {
    fn enter(inner: &Inner) -> Option<Guest<'_>> {
        let limit = inner.options.max_connections;
        let entered = inner.count.send_if_modified(|count| {
            let room = *count < limit;
            *count += usize::from(room);
            room
        });
        entered.then(|| Guest { inner })
    }
}

impl Drop for Guest<'_> {
    fn drop(&mut self) {
        self.inner.count.send_modify(|count| *count -= 1);
    }
}

/// Keeps a connection in transmission reachable for as long as this lives.
struct Serving<'a> {
    inner: &'a Inner,
    id: u64,
    mailbox: Arc<Answers>,
}

impl Serving<'_> {
    fn enter(inner: &Inner, connection: Reachable) -> Serving<'_> {
        let id = inner.next_id.fetch_add(1, Ordering::Relaxed);
        let mailbox = Arc::clone(&connection.mailbox);
        inner.serving().insert(id, connection);
        // The server may have begun to stop before the mailbox could be reached.
        mailbox.stop(*inner.stop.borrow());
        Serving { inner, id, mailbox }
    }
}

impl Drop for Serving<'_> {
    fn drop(&mut self) {
        self.inner.serving().remove(&self.id);
        self.mailbox.close();
    }
}
