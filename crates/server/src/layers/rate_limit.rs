//! Limits of requests and bytes per second, of a volume and of each of its clients: the layer in
//! which requests wait until they may pass. Who is next is decided in `shares.rs`.
//!
//! The requests of a connection keep their order. While one of them waits, the others stay with the
//! client, so that they hold no memory that others need; for one that waits its connection sets
//! memory aside. The waiting request of a connection that ends is dropped, so that nobody waits for
//! it. Limits may change at any time, also for the requests that wait.

mod shares;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Waker;

use futures_util::task::AtomicWaker;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};
use undercroft_nbd::{Command, Peer, Request, Session, while_others_wait};

use self::shares::{Next, Rates, Shares};
use crate::config::VolumeConfig;
use crate::layers::access::{Connection, refuse};
use crate::lock::sleep_lock;

/// The limits of a volume, and what waits because of them.
pub(crate) struct Limiter {
    state: Mutex<State>,
    /// Whether there is a limit.
    limits: AtomicBool,
    /// Notified of requests that wait.
    wanted: Notify,
}

struct State {
    shares: Shares<Waiting>,
    /// Whether the task runs that lets waiting requests pass.
    is_passing: bool,
}

/// A request that waits, and its connection.
struct Waiting {
    queue: Arc<ConnectionQueue>,
    request: Request,
}

/// A connection with its requests in order.
struct ConnectionQueue {
    number: u64,
    /// Name of its client.
    client: Arc<str>,
    session: Mutex<Box<dyn Session>>,
    connection: Arc<Connection>,
    /// Number of requests that wait, or are about to be passed on.
    waiting: AtomicUsize,
    /// Work done for requests that have waited, see [`Session::serve`].
    work_debt: AtomicU64,
    /// The connection's task, if it waits until none of its requests waits.
    task: AtomicWaker,
}

impl Limiter {
    /// The limiter for these rules.
    pub(crate) fn of(rules: &VolumeConfig, now: std::time::Instant) -> Arc<Limiter> {
        let shares = Shares::new(Rates::default(), Rates::default(), now.into());
        let state = Mutex::new(State { shares, is_passing: false });
        let limits = AtomicBool::new(false);
        let limiter = Arc::new(Limiter { state, limits, wanted: Notify::new() });
        limiter.set(rules, now);
        limiter
    }

    /// Changes the limits to those of these rules, for requests that wait and for all later ones.
    pub(crate) fn set(&self, rules: &VolumeConfig, now: std::time::Instant) {
        let volume = Rates { requests: rules.requests_per_second, bytes: rules.bytes_per_second };
        let of_each = Rates {
            requests: rules.client_requests_per_second,
            bytes: rules.client_bytes_per_second,
        };
        sleep_lock(&self.state).shares.set(volume, of_each, now.into());
        self.limits.store(!(volume.is_unlimited() && of_each.is_unlimited()), Ordering::Relaxed);
        self.wanted.notify_one();
    }

    /// Lets waiting requests pass until none waits.
    async fn pass_on(self: Arc<Self>) {
        loop {
            let next = {
                let mut state = sleep_lock(&self.state);
                let next = state.shares.next(Instant::now());
                state.is_passing = !matches!(next, Next::Nothing);
                next
            };
            match next {
                Next::Nothing => return,
                Next::Wait(wait) => _ = timeout(wait, self.wanted.notified()).await,
                Next::Pass(Waiting { queue, request }) => {
                    queue.pass(request);
                    tokio::task::yield_now().await;
                }
            }
        }
    }
}

impl ConnectionQueue {
    /// Passes on a request that has waited.
    fn pass(&self, request: Request) {
        {
            let mut session = sleep_lock(&self.session);
            // A later request cannot be served before this one, since that takes the lock; and its
            // answer finds that none waits any more.
            self.waiting.fetch_sub(1, Ordering::SeqCst);
            if self.connection.is_revoked() {
                refuse(request);
            } else {
                let work = session.serve(&mut vec![request]);
                self.work_debt.fetch_add(work, Ordering::Relaxed);
            }
        }
        self.task.wake();
    }
}

/// The name under which the limits count a peer: its certificate's, else its address without the
/// port. Over a unix socket that is its process.
fn client_of(peer: &Peer) -> Arc<str> {
    let host = peer.address.parse::<SocketAddr>().map(|address| address.ip().to_string());
    match (&peer.certificate, host) {
        (Some(name), _) => format!("certificate {name}").into(),
        (None, Ok(host)) => host.into(),
        (None, Err(_)) => peer.address.as_str().into(),
    }
}

/// Bytes of a request that count: those read and written.
fn bytes_of(request: &Request) -> u64 {
    match request.command {
        Command::Read { .. } | Command::Write { .. } => request.length,
        _ => 0,
    }
}

/// The layer for limits. It is there without limits, too, since they may be set at any time.
pub(crate) struct RateLimit {
    limiter: Arc<Limiter>,
    queue: Arc<ConnectionQueue>,
    /// Where the task runs that lets requests pass: not on the thread of a connection, since all
    /// others need it.
    runtime: Handle,
}

impl RateLimit {
    pub(crate) fn new(
        limiter: Arc<Limiter>,
        session: Box<dyn Session>,
        connection: Arc<Connection>,
        runtime: Handle,
    ) -> RateLimit {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        let client = client_of(connection.peer());
        sleep_lock(&limiter.state).shares.join(&client, Instant::now());
        let queue = Arc::new(ConnectionQueue {
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
            client,
            session: Mutex::new(session),
            connection,
            waiting: AtomicUsize::new(0),
            work_debt: AtomicU64::new(0),
            task: AtomicWaker::new(),
        });
        RateLimit { limiter, queue, runtime }
    }

    /// Whether requests pass without a look at the limits: there are none, and nothing waits.
    fn is_free(&self) -> bool {
        !self.limiter.limits.load(Ordering::Relaxed)
            && self.queue.waiting.load(Ordering::SeqCst) == 0
    }

    /// Drops the waiting requests, which answers them.
    fn drop_waiting(&self) {
        let ConnectionQueue { client, number, waiting, .. } = &*self.queue;
        let dropped =
            sleep_lock(&self.limiter.state).shares.drop_connection(client, *number, Instant::now());
        waiting.fetch_sub(dropped.len(), Ordering::SeqCst);
    }

    /// Returns a request that may pass; others wait.
    fn delay(&self, request: Request) -> Option<Request> {
        let Self { limiter, queue, runtime } = self;
        let (bytes, now) = (bytes_of(&request), Instant::now());
        let mut state = sleep_lock(&limiter.state);
        // Requests start to wait only here.
        let is_first = queue.waiting.load(Ordering::SeqCst) == 0;
        if is_first && state.shares.try_pass(&queue.client, bytes, now) {
            return Some(request);
        }
        queue.connection.count_delayed();
        queue.waiting.fetch_add(1, Ordering::SeqCst);
        let waiting = Waiting { queue: Arc::clone(queue), request };
        state.shares.push(&queue.client, queue.number, (bytes, waiting), now);
        if std::mem::replace(&mut state.is_passing, true) {
            limiter.wanted.notify_one();
        } else {
            runtime.spawn(Arc::clone(limiter).pass_on());
        }
        None
    }
}

impl Session for RateLimit {
    fn serve(&mut self, requests: &mut Vec<Request>) -> u64 {
        if self.is_free() {
            return sleep_lock(&self.queue.session).serve(requests);
        }
        // Held until those that may pass are served, so that none that waits overtakes them; the
        // task that lets the requests of all connections pass may wait for it.
        let mut session = sleep_lock(&self.queue.session);
        let mut passing = Vec::with_capacity(requests.len());
        for request in requests.drain(..) {
            passing.extend(self.delay(request));
        }
        let work = while_others_wait(|| session.serve(&mut passing));
        work + self.queue.work_debt.swap(0, Ordering::Relaxed)
    }

    fn room(&mut self, waker: &Waker) -> usize {
        if self.is_free() {
            return usize::MAX;
        }
        self.queue.task.register(waker);
        usize::from(self.queue.waiting.load(Ordering::SeqCst) == 0)
    }

    fn no_more(&mut self, is_gone: bool) {
        if is_gone {
            self.drop_waiting();
        }
        sleep_lock(&self.queue.session).no_more(is_gone);
    }
}

impl Drop for RateLimit {
    fn drop(&mut self) {
        self.drop_waiting();
        sleep_lock(&self.limiter.state).shares.leave(&self.queue.client);
    }
}

#[cfg(test)]
mod tests {
    use undercroft_nbd::Reply;

    use super::*;

    /// Notes the offsets of the requests that come.
    struct Notes(Arc<Mutex<Vec<u64>>>);

    impl Session for Notes {
        fn serve(&mut self, requests: &mut Vec<Request>) -> u64 {
            let mut notes = self.0.lock().unwrap();
            notes.extend(requests.drain(..).map(|request| request.offset));
            0
        }
    }

    /// The first requests of a large batch pass at once, and the first that waits may pass while
    /// the layer still goes through the others.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn no_request_overtakes_another_one_of_its_connection() {
        const REQUESTS: u64 = 100_000;
        let rules = VolumeConfig { requests_per_second: Some(10_000), ..VolumeConfig::default() };
        let limiter = Limiter::of(&rules, crate::clock::now());
        let notes = Arc::<Mutex<Vec<u64>>>::default();
        let next = Box::new(Notes(Arc::clone(&notes)));
        let mut layer = RateLimit::new(limiter, next, Arc::default(), Handle::current());
        let requests = (0..REQUESTS).map(|offset| {
            let ((reply, _), command) = (Reply::detached(), Command::Flush);
            Request { command, offset, length: 0, durable: false, reply }
        });
        layer.serve(&mut requests.collect());
        let notes = notes.lock().unwrap();
        assert!(notes.len() >= 10_000, "a second's requests pass at once");
        assert!(notes.is_sorted(), "out of order");
    }
}
