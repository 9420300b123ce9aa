//! Limits the connections of the HTTP listener: their number, and the duration of each, whatever
//! its client does. So the listener needs only a few of the file descriptors, which are meant for
//! the clients of volumes. And limits the work for pages, whose makers share threads with the
//! volumes' stores.
//!
//! A connection that carries events lasts as long as its client reads them. It has its place among
//! the viewers, whose number is limited too, and gives back its place among the others.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::extract::connect_info::Connected;
use axum::serve::IncomingStream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpListener;
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep, sleep};
use undercroft_nbd::{Peer, Transport, UnixSocket};

/// Most connections at a time; further ones wait until one ends.
pub(crate) const CONNECTIONS: usize = 64;

/// Longest duration of a connection, including requests and answers.
const LASTS: Duration = Duration::from_secs(10);

/// Longest time that a client of events may take no byte, although some wait for it.
const STALLS: Duration = Duration::from_secs(10);

/// Pause after accepting a connection failed, for example for lack of file descriptors.
const PAUSE: Duration = Duration::from_secs(1);

/// How many times as long as a page took nobody gets another one, and how long at most.
const RESTS: u32 = 4;
const REST_MAX: Duration = Duration::from_secs(1);

/// What the HTTP listener listens on.
pub(crate) enum Socket {
    Tcp(TcpListener),
    Unix(UnixSocket),
}

impl Socket {
    async fn accept(&self) -> io::Result<(Box<dyn Transport>, Peer)> {
        match self {
            Socket::Tcp(listener) => {
                let (stream, from) = listener.accept().await?;
                let ip = Some(from.ip().to_canonical());
                Ok((Box::new(stream), Peer { address: from.to_string(), ip, ..Peer::default() }))
            }
            Socket::Unix(socket) => {
                let (stream, peer) = socket.accept().await?;
                Ok((Box::new(stream), peer))
            }
        }
    }
}

/// A listener whose connections are limited.
pub(super) struct Bounded {
    socket: Socket,
    free: Arc<Semaphore>,
}

impl Bounded {
    pub(super) fn new(socket: Socket) -> Bounded {
        Bounded { socket, free: Arc::new(Semaphore::new(CONNECTIONS)) }
    }
}

/// Lets pages be made one at a time, with rests in between: so they take a fifth of a thread at
/// most, however many ask for them.
#[derive(Clone, Default)]
pub(super) struct Turns(Arc<Mutex<()>>);

impl Turns {
    /// Makes a page when it is its turn.
    pub(super) async fn make<T>(&self, page: impl Future<Output = T>) -> T {
        let turn = Arc::clone(&self.0).lock_owned().await;
        let began = Instant::now();
        let made = page.await;
        let rest = (RESTS * began.elapsed()).min(REST_MAX);
        tokio::spawn(async move {
            sleep(rest).await;
            drop(turn);
        });
        made
    }
}

/// The client of a connection.
#[derive(Clone)]
pub(super) struct Client {
    pub(super) peer: Peer,
    /// Whether the connection carries events; once set it stays so.
    is_viewer: Arc<AtomicBool>,
}

impl Client {
    /// The connection carries events from now on: it lasts as long as they are read.
    pub(super) fn views(&self) {
        self.is_viewer.store(true, Ordering::Relaxed);
    }
}

impl Connected<IncomingStream<'_, Bounded>> for Client {
    fn connect_info(stream: IncomingStream<'_, Bounded>) -> Client {
        let (peer, is_viewer) = (stream.remote_addr().clone(), &stream.io().is_viewer);
        Client { peer, is_viewer: Arc::clone(is_viewer) }
    }
}

impl axum::serve::Listener for Bounded {
    type Io = Connection;
    type Addr = Peer;

    async fn accept(&mut self) -> (Connection, Peer) {
        let place = Arc::clone(&self.free).acquire_owned().await.ok();
        loop {
            match self.socket.accept().await {
                Ok((stream, peer)) => {
                    let over = Box::pin(sleep(LASTS));
                    let (is_viewer, stalls) = (Arc::default(), None);
                    return (Connection { stream, over, is_viewer, stalls, place }, peer);
                }
                // The client has disconnected again.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    tracing::debug!("http: cannot accept a connection: {error}");
                    sleep(PAUSE).await;
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<Peer> {
        Ok(Peer::default())
    }
}

/// A connection that fails when its time is over, or, of a viewer, when that does not read.
pub(super) struct Connection {
    stream: Box<dyn Transport>,
    over: Pin<Box<Sleep>>,
    is_viewer: Arc<AtomicBool>,
    /// Until when a viewer must have read something, while something waits for it.
    stalls: Option<Pin<Box<Sleep>>>,
    /// Its share of the limit on connections, unless it is a viewer's.
    place: Option<OwnedSemaphorePermit>,
}

impl Connection {
    fn bounded<T>(
        &mut self,
        context: &mut Context<'_>,
        poll: impl FnOnce(Pin<&mut dyn Transport>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if self.is_viewer.load(Ordering::Relaxed) {
            self.place = None;
        } else if self.over.as_mut().poll(context).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        poll(Pin::new(&mut *self.stream), context)
    }

    /// Sends something, or fails for a viewer that has not read for too long.
    fn send<T>(
        &mut self,
        context: &mut Context<'_>,
        poll: impl FnOnce(Pin<&mut dyn Transport>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let sent = self.bounded(context, poll);
        if sent.is_ready() {
            self.stalls = None;
        } else if self.is_viewer.load(Ordering::Relaxed) {
            let stalls = self.stalls.get_or_insert_with(|| Box::pin(sleep(STALLS)));
            if stalls.as_mut().poll(context).is_ready() {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
        }
        sent
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.bounded(context, |stream, context| stream.poll_read(context, into))
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.send(context, |stream, context| stream.poll_write(context, bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.send(context, |stream, context| stream.poll_write_vectored(context, pieces))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.bounded(context, |stream, context| stream.poll_flush(context))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.bounded(context, |stream, context| stream.poll_shutdown(context))
    }
}

#[cfg(test)]
mod tests {
    use futures_util::future::join_all;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn pages_leave_time_to_others() {
        let (turns, took, began) = (Turns::default(), Duration::from_millis(100), Instant::now());
        join_all((0..8).map(|_| turns.make(async { sleep(took).await }))).await;
        assert!(began.elapsed() >= took * (7 * (1 + RESTS) + 1), "{:?}", began.elapsed());
        // One that comes later does not wait.
        sleep(took * RESTS * 2).await;
        let began = Instant::now();
        turns.make(sleep(took)).await;
        assert!(began.elapsed() < took * 2, "{:?}", began.elapsed());
    }

    /// A connection with room for few bytes, and its client.
    fn connection(is_viewer: bool) -> (Connection, tokio::io::DuplexStream, Arc<Semaphore>) {
        let (stream, client) = tokio::io::duplex(16);
        let places = Arc::new(Semaphore::new(1));
        let place = Arc::clone(&places).try_acquire_owned().ok();
        let (over, is_viewer) = (Box::pin(sleep(LASTS)), Arc::new(AtomicBool::new(is_viewer)));
        let stream = Box::new(stream);
        (Connection { stream, over, is_viewer, stalls: None, place }, client, places)
    }

    #[tokio::test(start_paused = true)]
    async fn a_viewer_lasts_while_it_reads() {
        let (mut connection, mut client, places) = connection(true);
        for _ in 0..60 {
            sleep(STALLS / 2).await;
            connection.write_all(&[1; 16]).await.unwrap();
            client.read_exact(&mut [0; 16]).await.unwrap();
        }
        assert_eq!(places.available_permits(), 1, "its place is given back");
        // It does not read: what fits is taken, and then nothing for a while.
        connection.write_all(&[1; 16]).await.unwrap();
        let began = Instant::now();
        let stalled = connection.write_all(&[1; 16]).await.unwrap_err();
        assert_eq!(stalled.kind(), io::ErrorKind::TimedOut);
        assert!((STALLS..STALLS * 2).contains(&began.elapsed()), "{:?}", began.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn other_connections_end_in_time_whatever_they_do() {
        let (mut connection, mut client, places) = connection(false);
        let began = Instant::now();
        let ended = loop {
            sleep(Duration::from_secs(1)).await;
            if let Err(error) = connection.write_all(&[1; 16]).await {
                break error;
            }
            client.read_exact(&mut [0; 16]).await.unwrap();
        };
        assert_eq!((ended.kind(), places.available_permits()), (io::ErrorKind::TimedOut, 0));
        assert!((LASTS..LASTS * 2).contains(&began.elapsed()));
    }
}
