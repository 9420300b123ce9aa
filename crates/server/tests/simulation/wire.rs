//! Connections in memory: a stream with two ends that can be cut, and held so that what was sent
//! is not taken; and the port that a server answers at.

use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio::task::AbortHandle;
use undercroft_nbd::{Peer, Server};

/// What can be done to a connection from outside.
#[derive(Clone, Default)]
pub struct Wire(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    is_cut: bool,
    /// The client takes nothing.
    is_held: bool,
    /// Bytes that the server sent.
    answered: u64,
    wakers: Vec<Waker>,
}

impl Wire {
    /// Both sides lose it, with what was on its way.
    pub fn cut(&self) {
        self.change(|state| state.is_cut = true);
    }

    /// The client reads no more, or again.
    pub fn hold(&self, held: bool) {
        self.change(|state| state.is_held = held);
    }

    /// Bytes that the server sent.
    pub fn answered(&self) -> u64 {
        self.0.lock().unwrap().answered
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let wakers = {
            let mut state = self.0.lock().unwrap();
            change(&mut state);
            std::mem::take(&mut state.wakers)
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Whether it was cut, or has to wait.
    fn stands(&self, cx: &Context<'_>, reads_as_client: bool) -> Poll<io::Result<()>> {
        let mut state = self.0.lock().unwrap();
        if state.is_cut {
            return Poll::Ready(Err(ErrorKind::ConnectionReset.into()));
        }
        if !state.wakers.iter().any(|waker| waker.will_wake(cx.waker())) {
            state.wakers.push(cx.waker().clone());
        }
        if reads_as_client && state.is_held { Poll::Pending } else { Poll::Ready(Ok(())) }
    }
}

/// One end of a connection.
pub struct End {
    stream: DuplexStream,
    wire: Wire,
    is_client: bool,
}

impl AsyncRead for End {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.wire.stands(cx, self.is_client) {
            Poll::Ready(Ok(())) => Pin::new(&mut self.stream).poll_read(cx, into),
            other => other,
        }
    }
}

impl AsyncWrite for End {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.wire.stands(cx, false) {
            Poll::Ready(Ok(())) => {
                let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
                if let (Poll::Ready(Ok(count)), false) = (&written, self.is_client) {
                    self.wire.0.lock().unwrap().answered += *count as u64;
                }
                written
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => Poll::Pending,
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Where a server is found, while there is one.
#[derive(Clone, Default)]
pub struct Port(Arc<Mutex<Listening>>);

#[derive(Default)]
struct Listening {
    server: Option<Server>,
    connections: Vec<(Wire, AbortHandle)>,
}

impl Port {
    pub fn open(&self, server: Server) {
        self.0.lock().unwrap().server = Some(server);
    }

    /// Nobody else comes in.
    pub fn close(&self) {
        self.0.lock().unwrap().server = None;
    }

    /// The server is gone from one moment to the next.
    pub fn kill(&self) {
        let connections = {
            let mut listening = self.0.lock().unwrap();
            listening.server = None;
            std::mem::take(&mut listening.connections)
        };
        for (wire, task) in connections {
            task.abort();
            wire.cut();
        }
    }

    /// Connects; `buffer` bytes may be on their way in each direction.
    pub fn connect(&self, peer: &str, buffer: usize) -> io::Result<(End, Wire)> {
        self.connect_as(Peer { address: peer.to_owned(), ..Peer::default() }, buffer)
    }

    /// Connects as somebody of whom more is known.
    pub fn connect_as(&self, peer: Peer, buffer: usize) -> io::Result<(End, Wire)> {
        let mut listening = self.0.lock().unwrap();
        let Some(server) = listening.server.clone() else {
            return Err(ErrorKind::ConnectionRefused.into());
        };
        let (ours, theirs) = tokio::io::duplex(buffer);
        let wire = Wire::default();
        let end = |stream, is_client| End { stream, wire: wire.clone(), is_client };
        let (ours, theirs) = (end(ours, true), end(theirs, false));
        let task = tokio::spawn(async move {
            // Why it ended is the client's to judge.
            let _ = server.attend(theirs, peer).await;
        });
        listening.connections.retain(|(_, task)| !task.is_finished());
        listening.connections.push((wire.clone(), task.abort_handle()));
        Ok((ours, wire))
    }
}
