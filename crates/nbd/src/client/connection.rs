//! The task that owns a client's socket.
//!
//! A server that answers ESHUTDOWN waits for its clients to disconnect. So nothing is sent after
//! that, and the connection ends when all requests in flight are answered.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::AsyncWriteExt;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::replies::{InFlight, Replies};
use super::{Buffer, ClientError, ReadDone, Remote, Shared};
use crate::link::{Link, Transport};
use crate::outbox::Outbox;
use crate::service::Extent;
use crate::task_queue::Stop;
use crate::wire::{CMD_DISC, RequestHeader};

/// Most requests in flight; further ones wait here. Servers need not accept more.
const MAX_IN_FLIGHT: usize = 1024;

/// Longest wait for the server when disconnecting.
const GOOD_BYE: Duration = Duration::from_secs(2);

/// A queued request.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) command: u16,
    pub(super) flags: u16,
    pub(super) offset: u64,
    pub(super) length: u64,
    pub(super) data: Vec<Bytes>,
    pub(super) waiter: Waiter,
}

/// Receives the answer, and holds what has arrived of it so far.
pub(super) enum Waiter {
    Done(oneshot::Sender<Result<(), ClientError>>),
    Read { into: Vec<Buffer>, sender: oneshot::Sender<ReadDone> },
    Extents { found: Vec<(u32, Vec<Extent>)>, sender: ExtentsSender },
}

type ExtentsSender = oneshot::Sender<Result<Vec<(u32, Vec<Extent>)>, ClientError>>;

impl Waiter {
    /// Passes the answer to the caller, if it still waits.
    pub(super) fn finish(self, result: Result<(), ClientError>) {
        match self {
            Waiter::Done(sender) => drop(sender.send(result)),
            Waiter::Read { into, sender } => drop(sender.send((into, result))),
            Waiter::Extents { found, sender } => drop(sender.send(result.map(|()| found))),
        }
    }

    pub(super) fn fail(self, error: ClientError) {
        self.finish(Err(error));
    }
}

impl std::fmt::Debug for Waiter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Waiter")
    }
}

/// A connection in its transmission phase.
pub(super) struct Connection {
    transport: Box<dyn Transport>,
    shared: Arc<Shared>,
    outbox: Outbox,
    in_flight: InFlight,
    replies: Replies,
    /// Calls that have not been sent.
    waiting: VecDeque<Call>,
    /// Calls just taken from the queue; empty between turns.
    taken: Vec<Call>,
    /// Whether a disconnect request was queued.
    parted: bool,
}

impl Connection {
    pub(super) fn new(link: Link, remote: &Remote, shared: Arc<Shared>) -> Connection {
        let contexts = remote.contexts.iter().map(|(id, _)| *id).collect();
        Connection {
            transport: link.transport,
            shared,
            outbox: Outbox::default(),
            in_flight: InFlight::default(),
            replies: Replies::new(link.input, remote.structured, contexts),
            waiting: VecDeque::new(),
            taken: Vec::new(),
            parted: false,
        }
    }

    /// Works until the last caller is gone or the connection breaks. Then all open requests fail.
    pub(super) async fn run(mut self) {
        let result = std::future::poll_fn(|cx| self.poll(cx)).await;
        let graceful = result.is_ok();
        if graceful && self.in_flight.is_shutting_down {
            let what = "the server is shutting down".to_owned();
            let _ = self.shared.lost.set(ClientError::Lost(what));
        }
        if let Err(error) = result {
            tracing::debug!("connection ended: {error}");
            let _ = self.shared.lost.set(error);
        }
        self.fail_all();
        if graceful {
            // The server may have disconnected already.
            let _ = timeout(GOOD_BYE, self.transport.shutdown()).await;
        }
    }

    /// Fails all waiting and future calls.
    fn fail_all(&mut self) {
        let late = self.shared.calls.close();
        let reason = self.shared.reason();
        let queued = self.waiting.drain(..).chain(self.taken.drain(..)).chain(late);
        for waiter in self.in_flight.drain().chain(queued.map(|call| call.waiter)) {
            waiter.fail(reason.clone());
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ClientError>> {
        loop {
            let stop = self.shared.calls.take(&mut self.taken);
            let called = !self.taken.is_empty();
            self.waiting.extend(self.taken.drain(..));
            self.send_calls();
            let idle = self.waiting.is_empty() && self.in_flight.is_empty();
            let shuts_down = self.in_flight.is_shutting_down && self.in_flight.is_empty();
            if (stop != Stop::No && idle || shuts_down) && !self.parted {
                self.say_good_bye();
            }
            let sent = self.outbox.send(cx, &mut *self.transport)?;
            if self.parted && sent.is_all {
                return Poll::Ready(Ok(()));
            }
            let answered = match self.replies.poll(cx, &mut *self.transport, &mut self.in_flight) {
                Poll::Ready(result) => result.map(|()| true)?,
                Poll::Pending => false,
            };
            let progress = called || sent.bytes > 0 || answered;
            if !progress && self.shared.calls.sleep(cx.waker(), stop) {
                return Poll::Pending;
            }
        }
    }

    /// Sends calls, as many as may be in flight.
    fn send_calls(&mut self) {
        while self.in_flight.len() < MAX_IN_FLIGHT && !self.in_flight.is_shutting_down {
            let Some(call) = self.waiting.pop_front() else { return };
            let Call { command, flags, offset, length, data, waiter } = call;
            let payload_length = data.iter().map(|piece| piece.len() as u64).sum();
            let cookie = self.in_flight.add(offset, length, waiter);
            let header = RequestHeader { flags, command, cookie, offset, length, payload_length };
            self.outbox.head(&header.bytes());
            data.into_iter().for_each(|piece| self.outbox.data(piece.into()));
        }
    }

    fn say_good_bye(&mut self) {
        let (flags, command, cookie) = (0, CMD_DISC, u64::MAX);
        let header =
            RequestHeader { flags, command, cookie, offset: 0, length: 0, payload_length: 0 };
        self.outbox.head(&header.bytes());
        self.parted = true;
    }
}

impl Drop for Connection {
    /// Fails the calls even if the runtime shuts down under the task, so that no caller waits for
    /// ever.
    fn drop(&mut self) {
        self.fail_all();
        self.shared.ended.send_replace(true);
    }
}
