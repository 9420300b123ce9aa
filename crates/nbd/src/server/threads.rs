//! The threads that connections run on. Each has its own reactor, and keeps the connections that it
//! was given until they end.
//!
//! If threads shared connections and took tasks from each other, they would wake each other
//! needlessly when one connection at a time is active; that costs up to a tenth of the processor
//! time of a cached read (docs/developer/decisions.md). Here a thread sleeps until one of its own
//! sockets has data.
//!
//! Not here: what a connection does, and how long its thread polls before it sleeps
//! (`busy_poll.rs`).

use std::cell::{Cell, OnceCell};
use std::future::Future;
use std::io;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

use super::busy_poll;

/// Threads per processor. More than one, so that the system can distribute the busy connections.
const PER_PROCESSOR: usize = 4;

thread_local! {
    /// The seat of this thread's connections.
    static SEAT: OnceCell<Weak<Seat>> = const { OnceCell::new() };
    static OTHERS_WAIT: Cell<bool> = const { Cell::new(false) };
}

/// What the connections of a thread share.
#[derive(Debug, Default)]
struct Seat {
    /// The thread may wait for long.
    waits: AtomicBool,
}

/// The calling thread, which may wait for long while this exists: only the client of its one
/// connection feels that, and no further connection is given to it.
#[derive(Debug)]
pub struct Alone(Arc<Seat>);

impl Alone {
    /// `None` if others would feel it: the thread serves several connections, or holds a lock that
    /// others need ([`while_others_wait`]), or is not one of a server's.
    pub fn here() -> Option<Alone> {
        let seat = SEAT.with(|seat| seat.get().and_then(Weak::upgrade))?;
        // The list's, the connection's, and this one.
        let is_alone = !OTHERS_WAIT.get() && Arc::strong_count(&seat) == 3;
        is_alone.then(|| {
            seat.waits.store(true, Ordering::SeqCst);
            Alone(seat)
        })
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        self.0.waits.store(false, Ordering::SeqCst);
    }
}

/// Does something under a lock for which threads of other connections may wait: no thread is
/// [`Alone`] meanwhile.
pub fn while_others_wait<T>(work: impl FnOnce() -> T) -> T {
    OTHERS_WAIT.set(true);
    let done = work();
    OTHERS_WAIT.set(false);
    done
}

/// The threads of a server, started when needed.
#[derive(Debug)]
pub(super) struct Threads {
    list: Mutex<Vec<Thread>>,
    /// Longest time that a thread polls before it sleeps.
    busy_poll: Duration,
}

/// A thread. Dropping this ends the thread and its remaining connections.
#[derive(Debug)]
struct Thread {
    reactor: Handle,
    /// Held once here, and once by each of its connections.
    seat: Arc<Seat>,
    _end: oneshot::Sender<()>,
}

impl Threads {
    /// No threads yet.
    pub(super) fn new(busy_poll: Duration) -> Threads {
        Threads { list: Mutex::default(), busy_poll }
    }

    /// Runs a connection on the thread with the fewest connections. If the system refuses the first
    /// thread, the connection runs as an ordinary task.
    pub(super) fn run(&self, connection: impl Future<Output = ()> + Send + 'static) {
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        let load = |thread: &&Thread| (thread.waits(), thread.connections());
        let idle = list.iter().any(|thread| load(&thread) == (false, 0));
        let most = PER_PROCESSOR * thread::available_parallelism().map_or(1, NonZeroUsize::get);
        if !idle && list.len() < most {
            match Thread::begin(list.len(), self.busy_poll) {
                Ok(thread) => list.push(thread),
                Err(error) => tracing::warn!("no thread more for connections: {error}"),
            }
        }
        match list.iter().min_by_key(load) {
            Some(thread) => thread.run(connection),
            None => drop(tokio::spawn(connection)),
        }
    }
}

impl Thread {
    fn begin(number: usize, busy_poll: Duration) -> io::Result<Thread> {
        let mut reactor = Builder::new_current_thread();
        if !busy_poll.is_zero() {
            reactor
                .on_thread_park(move || busy_poll::before_sleep(busy_poll))
                .on_thread_unpark(move || busy_poll::after_sleep(busy_poll));
        }
        let reactor = reactor.enable_all().build()?;
        let handle = reactor.handle().clone();
        let (end, ended) = oneshot::channel();
        let name = format!("connections-{number}");
        let seat = Arc::new(Seat::default());
        let of_thread = Arc::downgrade(&seat);
        thread::Builder::new().name(name).spawn(move || {
            SEAT.with(|seat| seat.set(of_thread)).expect("a new thread");
            reactor.spawn(undercroft_ring::serve());
            drop(reactor.block_on(ended));
        })?;
        Ok(Thread { reactor: handle, seat, _end: end })
    }

    fn waits(&self) -> bool {
        self.seat.waits.load(Ordering::SeqCst)
    }

    fn connections(&self) -> usize {
        Arc::strong_count(&self.seat) - 1
    }

    fn run(&self, connection: impl Future<Output = ()> + Send + 'static) {
        let seat = Arc::clone(&self.seat);
        self.reactor.spawn(async move {
            connection.await;
            drop(seat);
        });
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use tokio::sync::oneshot;

    use super::*;

    const BUSY_POLL: Duration = Duration::from_micros(50);

    fn counts(threads: &Threads) -> Vec<usize> {
        threads.list.lock().unwrap().iter().map(Thread::connections).collect()
    }

    /// Each of the first connections has a thread of its own; a thread without connections is
    /// reused.
    #[tokio::test]
    async fn connections_are_spread() {
        let threads = Threads::new(BUSY_POLL);
        let most = PER_PROCESSOR * thread::available_parallelism().unwrap().get();
        let mut open = Vec::new();
        let mut seen = HashSet::new();
        for _ in 0..most {
            let (name, end) = connect(&threads).await;
            seen.insert(name);
            open.push(end);
        }
        assert_eq!(seen.len(), most);
        open.push(connect(&threads).await.1);
        assert_eq!(counts(&threads).iter().sum::<usize>(), most + 1);
        assert_eq!(counts(&threads).len(), most);

        drop(open.remove(1));
        while !counts(&threads).contains(&0) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        open.push(connect(&threads).await.1);
        assert!(!counts(&threads).contains(&0));
    }

    #[tokio::test]
    async fn a_thread_knows_whether_it_serves_one_connection() {
        let threads = Threads::new(BUSY_POLL);
        let (ask, asked) = tokio::sync::mpsc::channel::<oneshot::Sender<bool>>(1);
        let answers = |mut asked: tokio::sync::mpsc::Receiver<oneshot::Sender<bool>>| async move {
            while let Some(answer) = asked.recv().await {
                assert!(while_others_wait(Alone::here).is_none());
                answer.send(Alone::here().is_some()).unwrap();
            }
        };
        let is_alone = async || {
            let (answer, answered) = oneshot::channel();
            ask.send(answer).await.unwrap();
            answered.await.unwrap()
        };
        threads.run(answers(asked));
        assert!(is_alone().await && Alone::here().is_none());
        let most = PER_PROCESSOR * thread::available_parallelism().unwrap().get();
        let mut others = Vec::new();
        for _ in 1..most {
            others.push(connect(&threads).await);
        }
        assert!(is_alone().await);
        for _ in 0..most {
            others.push(connect(&threads).await);
        }
        assert!(!is_alone().await);
    }

    #[tokio::test]
    async fn no_connection_comes_to_a_thread_that_waits() {
        let threads = Threads::new(BUSY_POLL);
        let (tell, told) = oneshot::channel();
        let (ends, ended) = oneshot::channel::<()>();
        threads.run(async move {
            let alone = Alone::here();
            let name = thread::current().name().unwrap_or_default().to_owned();
            tell.send((name, alone.is_some())).unwrap();
            let _ = ended.await;
            drop(alone);
        });
        let (waits, is_alone) = told.await.unwrap();
        assert!(is_alone);
        let most = PER_PROCESSOR * thread::available_parallelism().unwrap().get();
        let mut others = Vec::new();
        for _ in 0..3 * most {
            others.push(connect(&threads).await);
            assert_ne!(others.last().unwrap().0, waits);
        }
        drop(ends);
    }

    /// The name of the connection's thread, and a handle that ends the connection when dropped.
    async fn connect(threads: &Threads) -> (String, oneshot::Sender<()>) {
        let (tell, told) = oneshot::channel();
        let (ends, ended) = oneshot::channel::<()>();
        threads.run(async move {
            tell.send(thread::current().name().unwrap_or_default().to_owned()).unwrap();
            let _ = ended.await;
        });
        (told.await.unwrap(), ends)
    }

    #[tokio::test]
    async fn what_runs_ends_with_the_threads() {
        let threads = Threads::new(BUSY_POLL);
        let (gone, is_gone) = oneshot::channel::<()>();
        threads.run(async move {
            let _gone = gone;
            std::future::pending().await
        });
        drop(threads);
        is_gone.await.unwrap_err();
    }
}
