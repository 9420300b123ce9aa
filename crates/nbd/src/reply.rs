//! The handle that a request is answered with, and the answers.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use smallvec::SmallVec;
use tokio::sync::oneshot;

use crate::budget::Share;
use crate::piece::Pieces;
use crate::service::{Extent, Failure};
use crate::task_queue::TaskQueue;

/// What a request was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Done; no data.
    Done,
    /// The data of a read, in pieces.
    Data(Pieces),
    /// The first bytes of a read that may be answered in several pieces; the rest is zero.
    Start(Pieces),
    /// For each context its key and extents.
    Extents(Vec<(u32, Vec<Extent>)>),
    /// It failed, with a text for people.
    Failed(Failure, String),
}

/// Which kind of answer a request wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wants {
    Nothing,
    Data,
    Extents { one: bool },
}

/// What a connection remembers of a request while it is in flight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticket {
    pub(crate) cookie: u64,
    pub(crate) offset: u64,
    pub(crate) length: u64,
    pub(crate) wants: Wants,
    /// Bytes that it counts for towards the limits, until its answer was sent.
    pub(crate) charge: u64,
    /// Requests that it counts for.
    pub(crate) weight: usize,
}

/// Where the answers of a connection go. A request that is answered when the connection is gone
/// gives back what it was charged.
pub(crate) struct Answers {
    pub(crate) queue: TaskQueue<(Ticket, Answer)>,
    pub(crate) share: Share,
}

impl Answers {
    pub(crate) fn new(share: Share) -> Answers {
        Answers { queue: TaskQueue::new(), share }
    }

    fn push(&self, ticket: Ticket, answer: Answer) {
        if let Err((ticket, answer)) = self.queue.push((ticket, answer)) {
            drop(answer);
            self.share.release(ticket.charge);
        }
    }

    fn push_all(&self, answers: Vec<(Ticket, Answer)>) {
        let late = self.queue.push_all(answers);
        if !late.is_empty() {
            let charge = charge(&late);
            drop(late);
            self.share.release(charge);
        }
    }
}

/// What requests were charged together.
pub(crate) fn charge(answers: &[(Ticket, Answer)]) -> u64 {
    answers.iter().map(|(ticket, _)| ticket.charge).sum()
}

enum Way {
    Connection(Arc<Answers>, Ticket),
    Call(Box<dyn FnOnce(Answer) + Send>),
}

/// The handle to answer one request with: at once or later, from any thread. Dropping it unused
/// answers EIO. An answer that does not fit the request (data for a write, data of another length
/// than was asked) reaches the client as EIO.
pub struct Reply {
    way: Option<Way>,
    /// The way of another answer, that the request is done, which goes with it.
    rider: Option<Box<Way>>,
}

impl Reply {
    pub(crate) fn new(answers: Arc<Answers>, ticket: Ticket) -> Reply {
        Reply { way: Some(Way::Connection(answers, ticket)), rider: None }
    }

    /// A handle without any connection, for callers other than the protocol: the answer goes to a
    /// function, which must not block.
    pub fn call(function: impl FnOnce(Answer) + Send + 'static) -> Reply {
        Reply { way: Some(Way::Call(Box::new(function))), rider: None }
    }

    /// A handle without any connection, with the answer to wait for.
    pub fn detached() -> (Reply, Awaited) {
        let (sender, receiver) = oneshot::channel();
        // Whoever waited may have lost interest.
        let reply = Reply::call(move |answer| drop(sender.send(answer)));
        (reply, Awaited { receiver })
    }

    /// The other request is done, and told so together with this answer, whatever that is: an
    /// answer that nobody waits for is not worth a packet of its own. One only rides on a handle.
    pub fn with(mut self, mut done: Reply) -> Reply {
        for before in [self.rider.take(), done.rider.take()].into_iter().flatten() {
            before.send(Answer::Done);
        }
        self.rider = done.way.take().map(Box::new);
        self
    }

    /// Whether somebody still waits for the answer, as far as is known: its connection stands.
    pub fn is_awaited(&self) -> bool {
        match &self.way {
            Some(Way::Connection(answers, _)) => answers.queue.is_open(),
            Some(Way::Call(_)) => true,
            None => false,
        }
    }

    /// Done; no data.
    pub fn done(self) {
        self.answer(Answer::Done);
    }

    /// The data of a read: `length` bytes in pieces, sent from where they lie.
    pub fn data(self, pieces: impl Into<Pieces>) {
        self.answer(Answer::Data(pieces.into()));
    }

    /// The first bytes of a read whose client did not ask for one piece: the rest, of as many bytes
    /// as were asked for, is zero.
    pub fn start(self, pieces: impl Into<Pieces>) {
        self.answer(Answer::Start(pieces.into()));
    }

    /// The status of a range: for each selected context its key and extents. Extents go on from
    /// the request's offset, each at least 1 byte; the last one may pass the end of the request.
    pub fn extents(self, contexts: Vec<(u32, Vec<Extent>)>) {
        self.answer(Answer::Extents(contexts));
    }

    /// It failed; the text goes to clients that understand it.
    pub fn fail(self, failure: Failure, message: String) {
        self.answer(Answer::Failed(failure, message));
    }

    /// Any of these.
    pub fn answer(mut self, answer: Answer) {
        self.send(answer);
    }

    fn send(&mut self, answer: Answer) {
        if let Some(way) = self.way.take() {
            way.send(answer);
        }
        if let Some(rider) = self.rider.take() {
            rider.send(Answer::Done);
        }
    }
}

/// A connection, and the answers for it.
type ToOne = (Arc<Answers>, Vec<(Ticket, Answer)>);

/// Answers that are given together, which costs less than one by one: those that go to one
/// connection are left there at once. Collecting them takes no lock and wakes nobody.
#[derive(Default)]
pub struct Replies {
    /// For each connection its answers, in their order.
    by_connection: SmallVec<[ToOne; 1]>,
    /// Whom somebody in this process waits for.
    others: Vec<(Way, Answer)>,
    /// How many are expected.
    room: usize,
}

impl Replies {
    /// Where so many answers have room.
    pub fn with_capacity(room: usize) -> Replies {
        let mut replies = Replies::default();
        replies.room = room;
        replies
    }

    /// Takes the answer of a request.
    #[inline(always)]
    pub fn add(&mut self, mut reply: Reply, answer: Answer) {
        if let Some(way) = reply.way.take() {
            self.put(way, answer);
        }
        if let Some(rider) = reply.rider.take() {
            self.put(*rider, Answer::Done);
        }
    }

    #[inline(always)]
    fn put(&mut self, way: Way, answer: Answer) {
        match (way, self.by_connection.last_mut()) {
            (Way::Connection(to, ticket), Some((last, answers))) if Arc::ptr_eq(&to, last) => {
                answers.push((ticket, answer));
            }
            (way, _) => self.put_apart(way, answer),
        }
    }

    /// An answer that goes elsewhere than the one before.
    #[cold]
    fn put_apart(&mut self, way: Way, answer: Answer) {
        match way {
            Way::Connection(to, ticket) => {
                // With room for some that ride.
                let mut answers = Vec::with_capacity(self.room + self.room / 8);
                answers.push((ticket, answer));
                self.by_connection.push((to, answers));
            }
            other => self.others.push((other, answer)),
        }
    }

    /// Whether there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.by_connection.is_empty() && self.others.is_empty()
    }

    /// Gives them all.
    pub fn send(self) {
        drop(self);
    }
}

impl Drop for Replies {
    /// No answer is lost, whatever happens.
    fn drop(&mut self) {
        for (connection, answers) in self.by_connection.drain(..) {
            connection.push_all(answers);
        }
        for (way, answer) in self.others.drain(..) {
            way.send(answer);
        }
    }
}

impl Way {
    fn send(self, answer: Answer) {
        match self {
            // Nobody may be waiting any more: the client is gone.
            Way::Connection(answers, ticket) => answers.push(ticket, answer),
            Way::Call(function) => function(answer),
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if self.way.is_some() {
            self.send(Answer::Failed(Failure::Io, "the request was dropped".to_owned()));
        }
    }
}

/// The answer to come of a [detached](Reply::detached) handle.
#[derive(Debug)]
pub struct Awaited {
    receiver: oneshot::Receiver<Answer>,
}

impl Awaited {
    /// Waits for it on a thread that runs no asynchronous tasks.
    pub fn wait(self) -> Answer {
        self.receiver.blocking_recv().expect("a handle answers, at the latest when dropped")
    }

    /// The answer, if it was given already.
    pub fn now(&mut self) -> Option<Answer> {
        self.receiver.try_recv().ok()
    }
}

impl Future for Awaited {
    type Output = Answer;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Answer> {
        let answer = Pin::new(&mut self.receiver).poll(cx);
        answer.map(|answer| answer.expect("a handle answers, at the latest when dropped"))
    }
}
