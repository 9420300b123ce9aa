//! The handle by which a request is answered, and the answers.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use smallvec::SmallVec;
use tokio::sync::oneshot;

use crate::budget::Share;
use crate::command::AnswerKind;
use crate::piece::Pieces;
use crate::service::{Extent, Failure};
use crate::task_queue::TaskQueue;

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Done; no data.
    Done,
    /// The data of a read, in pieces.
    Data(Pieces),
    /// The beginning of a read that may be answered in several chunks; the rest is zero.
    Start(Pieces),
    /// For each context its key and extents.
    Extents(Vec<(u32, Vec<Extent>)>),
    /// The request failed; with a text for people.
    Failed(Failure, String),
}

/// What a connection stores about a request in flight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticket {
    pub(crate) cookie: u64,
    pub(crate) offset: u64,
    pub(crate) length: u64,
    pub(crate) wants: AnswerKind,
    /// Whether at most one extent for each context is wanted.
    pub(crate) one_extent: bool,
    /// Bytes charged to the limits until its answer has been sent.
    pub(crate) charge: u64,
    /// Its weight in the limit of requests in flight.
    pub(crate) weight: usize,
}

/// The queue for the answers of a connection. If the connection is gone, a request that is answered
/// releases its charge.
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
}

/// Total charge of these requests.
pub(crate) fn charge(answers: &[(Ticket, Answer)]) -> u64 {
    answers.iter().map(|(ticket, _)| ticket.charge).sum()
}

enum Way {
    Connection(Arc<Answers>, Ticket),
    Call(Box<dyn FnOnce(Answer) + Send>),
}

/// The handle to answer one request: at once or later, from any thread. Dropping it unused answers
/// EIO. An answer that does not fit the request (data for a write, or data of another length than
/// requested) reaches the client as EIO.
pub struct Reply {
    way: Option<Way>,
    /// A second request to answer with `Done` at the same time.
    rider: Option<Box<Way>>,
}

impl Reply {
    pub(crate) fn new(answers: Arc<Answers>, ticket: Ticket) -> Reply {
        Reply { way: Some(Way::Connection(answers, ticket)), rider: None }
    }

    /// A handle without a connection, for callers other than the protocol: the answer is passed to
    /// a function, which must not block.
    pub fn call(function: impl FnOnce(Answer) + Send + 'static) -> Reply {
        Reply { way: Some(Way::Call(Box::new(function))), rider: None }
    }

    /// A handle without a connection, and the future answer.
    pub fn detached() -> (Reply, Awaited) {
        let (sender, receiver) = oneshot::channel();
        // The caller may have stopped waiting.
        let reply = Reply::call(move |answer| drop(sender.send(answer)));
        (reply, Awaited { receiver })
    }

    /// Answers another request, which is done, together with this one, whatever this answer is.
    /// This saves a packet for an answer that nobody waits for. A handle carries at most one other
    /// request.
    pub fn with(mut self, mut done: Reply) -> Reply {
        for before in [self.rider.take(), done.rider.take()].into_iter().flatten() {
            before.send(Answer::Done);
        }
        self.rider = done.way.take().map(Box::new);
        self
    }

    /// Whether the answer can still be delivered, as far as known: the connection is open.
    pub fn is_awaited(&self) -> bool {
        match &self.way {
            Some(Way::Connection(answers, _)) => answers.queue.is_open(),
            Some(Way::Call(_)) => true,
            None => false,
        }
    }

    /// Answers: done, without data.
    pub fn done(self) {
        self.answer(Answer::Done);
    }

    /// Answers with the data of a read: `length` bytes in pieces, sent without copying.
    pub fn data(self, pieces: impl Into<Pieces>) {
        self.answer(Answer::Data(pieces.into()));
    }

    /// Answers with the beginning of a read whose client did not ask for one chunk. The rest of the
    /// requested length is zero.
    pub fn start(self, pieces: impl Into<Pieces>) {
        self.answer(Answer::Start(pieces.into()));
    }

    /// Answers with the status of a range: for each selected context its key and extents. Extents
    /// start at the request's offset, each at least 1 byte long; the last one may pass the end of
    /// the request.
    pub fn extents(self, contexts: Vec<(u32, Vec<Extent>)>) {
        self.answer(Answer::Extents(contexts));
    }

    /// Answers with a failure; clients with structured replies receive the text.
    pub fn fail(self, failure: Failure, message: String) {
        self.answer(Answer::Failed(failure, message));
    }

    /// Answers with any of these.
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

/// A connection, and answers for it.
type ToOne = (Arc<Answers>, Vec<(Ticket, Answer)>);

/// Collects answers and delivers them together when dropped, which is cheaper than one by one: all
/// answers for a connection are queued at once. Collecting takes no lock and wakes no task.
#[derive(Default)]
pub struct Replies {
    /// The answers for each connection, in order.
    by_connection: SmallVec<[ToOne; 1]>,
    /// Answers for callers in this process.
    others: Vec<(Way, Answer)>,
    /// Expected number of answers.
    room: usize,
}

impl Replies {
    /// With room for `room` answers.
    pub fn with_capacity(room: usize) -> Replies {
        let mut replies = Replies::default();
        replies.room = room;
        replies
    }

    /// Adds the answer to a request.
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

    /// Adds an answer for another destination than the one before.
    #[cold]
    fn put_apart(&mut self, way: Way, answer: Answer) {
        match way {
            Way::Connection(to, ticket) => {
                // With room for some riders.
                let mut answers = Vec::with_capacity(self.room + self.room / 8);
                answers.push((ticket, answer));
                self.by_connection.push((to, answers));
            }
            other => self.others.push((other, answer)),
        }
    }

    /// Whether there are no answers.
    pub fn is_empty(&self) -> bool {
        self.by_connection.is_empty() && self.others.is_empty()
    }
}

impl Drop for Replies {
    /// Delivers the answers, so that none is lost.
    fn drop(&mut self) {
        for (connection, answers) in self.by_connection.drain(..) {
            let late = connection.queue.push_all(answers);
            let charge = charge(&late);
            drop(late);
            connection.share.release(charge);
        }
        for (way, answer) in self.others.drain(..) {
            way.send(answer);
        }
    }
}

impl Way {
    fn send(self, answer: Answer) {
        match self {
            // The client may be gone, so that nobody waits.
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

/// The future answer of a [detached](Reply::detached) handle.
#[derive(Debug)]
pub struct Awaited {
    receiver: oneshot::Receiver<Answer>,
}

impl Awaited {
    /// Waits for the answer, on a thread that runs no asynchronous tasks.
    pub fn wait(self) -> Answer {
        self.receiver.blocking_recv().expect("a handle answers, at the latest when dropped")
    }

    /// The answer, if it has been given.
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
