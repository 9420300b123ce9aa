//! A write log on fast storage before a slow store. A change is answered when it is in the log, and
//! a flush when the log is durable; the store gets the changes later. Whatever ends the process or
//! the power, the log has what was answered, or flushed, and the next process goes on from there.
//!
//! * The store gets the changes of one flush epoch after another, each epoch's newest ones in the
//!   order of the store's bytes (`destage.rs`). So the store alone is what a disk would be that
//!   lost its power there: all before one flush, and some of what came between that one and the
//!   next. It is not while changes are made again, after a start and after the store failed.
//! * What the log has is newer than what the store has, so reads look there first (`overlay.rs`).
//! * The store has a mark while anything may be in its log, so that nobody opens it without.
//! * If the log fails, or does not answer, no change is taken any more, until the store is opened
//!   anew. What can be read of the log goes to the store.
//!
//! One task appends to the log, and one moves what is there to the store. What a range of the log
//! holds is forgotten only when the store has it durably, and the head of the log says so.
//!
//! Not here: how it is opened (`open.rs`), and what the log looks like (`format.rs`, `ring.rs`).

mod destage;
mod format;
mod open;
mod overlay;
mod ring;
mod spec;
mod writer;

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use undercroft_random::hash;

use crate::medium::{Medium, buffers_bytes, cut, pieces_bytes, ready, scatter};
use crate::open::OnWarning;
use crate::store::{
    Answer, Backlog, Buffer, Extent, Facts, MAX_EXTENTS, OnLoss, Store, Version, Zeroing,
};

use format::{DATA_MAX, Entry, Point, What, Writer};
use overlay::{Overlay, Piece, Place};
use ring::{Batch, Ring};
pub(crate) use spec::KINDS;

/// How long the log may take to answer before it counts as failed.
const PATIENCE: Duration = Duration::from_secs(30);

/// Bytes of the smallest log: enough for what is on its way at once.
pub(crate) const LOG_MIN_BYTES: u64 = 8 << 20;

/// How a log is opened.
#[derive(Clone)]
pub struct LogOptions {
    /// Bytes of the medium that are used.
    pub bytes: u64,
    /// A number that no other opening of a log ever had.
    pub life: u64,
    /// Whether the store gets no mark, and is not asked for one: it cannot have one.
    pub unmarked: bool,
    /// What the log is called in the mark.
    pub name: String,
    /// Is told when the store does not take what the log has.
    pub on_warning: Option<OnWarning>,
}

/// A store with a write log before it.
pub struct LogStore {
    shared: Arc<Shared>,
    tasks: Arc<Mutex<Vec<JoinHandle<()>>>>,
}

/// What requests and the tasks of a log share.
struct Shared {
    inner: Arc<dyn Store>,
    medium: Medium,
    ring: Ring,
    writer: Writer,
    options: LogOptions,
    state: Mutex<State>,
    /// Wakes the task that appends.
    queued: Notify,
    /// Wakes the task that moves changes to the store.
    work: Notify,
    /// Notified when changes have left the log, and when its mode changes.
    moved: Notify,
}

struct State {
    overlay: Overlay,
    /// What is in the log, the oldest first, and the number of changes in it.
    batches: VecDeque<Batch>,
    entries: usize,
    /// Where the oldest begins, and where the next one will.
    tail: Point,
    end: Point,
    /// Number of the newest head.
    head: u64,
    /// Changes that are to be appended, and whether some are being appended.
    queue: VecDeque<Queued>,
    is_appending: bool,
    /// A write of the log that was given up, and may have an effect yet.
    late: Option<JoinHandle<io::Result<()>>>,
    /// How many batches are known to be durable, from the first on.
    durable: u64,
    mode: Mode,
    /// Whether the log has failed, and the store is whole without it.
    is_given_up: bool,
    /// Whether the tasks are to end.
    is_over: bool,
}

/// A change that is to be appended.
struct Queued {
    entry: Entry,
    data: Vec<Bytes>,
    answer: Option<oneshot::Sender<io::Result<()>>>,
}

/// What happens to changes.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Mode {
    Taken,
    /// They are refused, since the store is being closed; the log is emptied.
    Closing,
    /// They are refused, since the log failed; the log is emptied as far as it can be read.
    Failed(String),
}

impl LogStore {
    /// Puts a change into the log.
    fn change(
        &self,
        doing: &'static str,
        (offset, length): (u64, u64),
        what: What,
        data: &[Bytes],
        durable: bool,
    ) -> Answer<io::Result<()>> {
        let shared = Arc::clone(&self.shared);
        if let Err(error) = shared.medium.check_change(doing, offset, length) {
            return ready(Err(error));
        }
        let queued = shared.queue(offset, length, what, data);
        Box::pin(async move {
            let fault = |error| shared.medium.fault(doing, offset, length, error);
            if let Some(answer) = queued.map_err(fault)? {
                answer.await.unwrap_or_else(|_| Err(gone())).map_err(fault)?;
            }
            if durable { shared.flush().await.map_err(fault) } else { Ok(()) }
        })
    }
}

fn gone() -> io::Error {
    io::Error::other("the write log is closed")
}

impl State {
    /// Fails if changes are refused.
    fn refused(&self) -> io::Result<()> {
        match &self.mode {
            Mode::Failed(why) => Err(io::Error::other(why.clone())),
            Mode::Taken if !self.is_over => Ok(()),
            Mode::Taken | Mode::Closing => Err(gone()),
        }
    }

    /// Since when the oldest change has been in the log.
    fn since(&self) -> Option<Instant> {
        self.batches.front().map(|batch| batch.since)
    }

    /// Bytes of the ring that are in use.
    fn used(&self) -> u64 {
        self.end.position - self.tail.position
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a change, in pieces that fit into a batch. Returns what answers the last one; `None`:
    /// there is nothing to change.
    fn queue(
        &self,
        offset: u64,
        length: u64,
        what: What,
        data: &[Bytes],
    ) -> io::Result<Option<oneshot::Receiver<io::Result<()>>>> {
        let piece_bytes = if what == What::Data { DATA_MAX } else { u64::MAX };
        let (mut done, mut receiver) = (0, None);
        let mut state = self.state();
        state.refused()?;
        while done < length {
            let now = piece_bytes.min(length - done);
            let data = if what == What::Data { cut(data, done, now) } else { Vec::new() };
            let entry = Entry { offset: offset + done, length: now, what };
            done += now;
            let answer = (done == length).then(|| {
                let (sender, answer) = oneshot::channel();
                receiver = Some(answer);
                sender
            });
            state.queue.push_back(Queued { entry, data, answer });
        }
        drop(state);
        self.queued.notify_one();
        Ok(receiver)
    }

    /// Makes durable what the log has.
    async fn flush(&self) -> io::Result<()> {
        if self.state().is_given_up {
            // All that was answered is in the store alone.
            return self.inner.flush().await;
        }
        let appended = {
            let state = self.state();
            state.refused()?;
            state.end.sequence
        };
        let flushed = timeout(PATIENCE, self.ring.medium.flush()).await;
        match flushed.unwrap_or_else(|late| Err(late.into())) {
            Ok(()) => {
                let mut state = self.state();
                state.durable = state.durable.max(appended);
                Ok(())
            }
            Err(error) => {
                self.fail(&error);
                Err(error)
            }
        }
    }

    /// The log takes no changes any more.
    fn fail(&self, error: &io::Error) {
        let why = format!(
            "the write log {} failed: {error}; no change is taken until the store is opened again",
            self.options.name
        );
        let mut state = self.state();
        if matches!(state.mode, Mode::Failed(_)) {
            return;
        }
        state.mode = Mode::Failed(why.clone());
        let queued = std::mem::take(&mut state.queue);
        drop(state);
        let answers = queued.into_iter().filter_map(|one| one.answer);
        writer::answer_all(answers, || Err(io::Error::other(why.clone())));
        self.warn(&why);
        self.work.notify_one();
        self.moved.notify_waiters();
    }

    fn warn(&self, what: &str) {
        self.options.on_warning.iter().for_each(|tell| tell(what));
    }

    /// Waits until something is so; looks each time that the log has changed.
    async fn until<T>(&self, mut is_so: impl FnMut(&mut State) -> Option<T>) -> T {
        loop {
            let mut moved = pin!(self.moved.notified());
            moved.as_mut().enable();
            if let Some(found) = is_so(&mut self.state()) {
                return found;
            }
            moved.await;
        }
    }

    async fn read_log(&self, position: u64, length: u64) -> io::Result<Vec<u8>> {
        timeout(PATIENCE, self.ring.read(position, length)).await?
    }

    /// Reads a range: from the log what is there, and the rest from the store.
    async fn read(&self, offset: u64, into: &mut [Buffer]) -> io::Result<()> {
        let length = buffers_bytes(into);
        // Again, if what was read has left the log meanwhile, since its place may have been
        // written over.
        'again: loop {
            let pieces: Vec<Piece> = self.state().overlay.pieces(offset, length).collect();
            for piece in pieces {
                let bytes = match piece.place {
                    Some(Place::Zero { .. }) => vec![0; piece.length as usize],
                    Some(Place::Log(position)) => {
                        let bytes = self.read_log(position, piece.length).await;
                        if self.state().tail.position > position {
                            continue 'again;
                        }
                        bytes?
                    }
                    None => ring::read(&*self.inner, piece.offset, piece.length).await?,
                };
                scatter(into, (piece.offset - offset) as usize, &bytes);
            }
            return Ok(());
        }
    }

    async fn extents(&self, offset: u64, length: u64) -> io::Result<Vec<Extent>> {
        let (gap, extents) = {
            let state = self.state();
            let mut pieces = state.overlay.pieces(offset, length).peekable();
            let gap = pieces.peek().filter(|piece| piece.place.is_none()).map(|gap| gap.length);
            let extents = pieces.take(MAX_EXTENTS).map_while(|Piece { length, place, .. }| {
                let (hole, zero) = match place? {
                    Place::Log(_) => (false, false),
                    Place::Zero { allocated } => (!allocated, true),
                };
                Some(Extent { length, hole, zero })
            });
            (gap, extents.collect())
        };
        match gap {
            Some(length) => self.inner.extents(offset, length).await,
            None => Ok(extents),
        }
    }

    /// Takes no changes any more, empties the log, and takes the mark off the store.
    async fn empty(&self) -> io::Result<()> {
        {
            let mut state = self.state();
            if state.mode == Mode::Taken {
                state.mode = Mode::Closing;
            }
        }
        self.queued.notify_one();
        self.work.notify_one();
        let ended = self.until(|state| {
            let is_empty =
                state.queue.is_empty() && !state.is_appending && state.batches.is_empty();
            let has_failed = matches!(state.mode, Mode::Failed(_));
            let is_done = if has_failed { state.is_given_up } else { is_empty };
            (is_done || state.is_over).then_some((is_done, has_failed))
        });
        match ended.await {
            (false, _) => Err(io::Error::other("it was closed before")),
            (true, true) => Ok(()),
            (true, false) => self.leave_store().await,
        }
    }

    /// The tasks end as soon as they have nothing under way.
    fn end_tasks(&self) {
        self.state().is_over = true;
        self.queued.notify_one();
        self.work.notify_one();
        self.moved.notify_waiters();
    }

    /// Takes the mark off the store, and gives the empty log another identity: a copy of the store
    /// that has the mark still lacks what the log has had.
    async fn leave_store(&self) -> io::Result<()> {
        self.take_mark_off().await?;
        if !self.options.unmarked {
            let id = hash(self.writer.id ^ self.writer.life);
            let end = self.state().end;
            // Without it, such a copy is taken for this store.
            let _ = self.write_head(end, Writer { id, ..self.writer }).await;
        }
        Ok(())
    }

    async fn take_mark_off(&self) -> io::Result<()> {
        if self.options.unmarked { Ok(()) } else { self.inner.set_mark(None).await }
    }
}

impl Store for LogStore {
    fn inner(&self) -> Option<&dyn Store> {
        Some(&*self.shared.inner)
    }

    fn facts(&self) -> Facts {
        self.shared.medium.facts()
    }

    fn read(&self, offset: u64, mut into: Vec<Buffer>) -> Answer<(Vec<Buffer>, io::Result<()>)> {
        let length = buffers_bytes(&mut into);
        if let Err(error) = self.shared.medium.check("read", offset, length) {
            return ready((into, Err(error)));
        }
        let is_there = |piece: Piece| piece.place.is_some();
        if !self.shared.state().overlay.pieces(offset, length).any(is_there) {
            return self.shared.inner.read(offset, into);
        }
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            let read = shared.read(offset, &mut into).await;
            (into, read.map_err(|error| shared.medium.fault("read", offset, length, error)))
        })
    }

    fn write(&self, offset: u64, data: Vec<Bytes>, durable: bool) -> Answer<io::Result<()>> {
        self.change("write", (offset, pieces_bytes(&data)), What::Data, &data, durable)
    }

    fn zero(
        &self,
        offset: u64,
        length: u64,
        how: Zeroing,
        durable: bool,
    ) -> Answer<io::Result<()>> {
        if how.only_if_fast && !self.facts().zeroes_fast {
            // The store will have to write them.
            let checked = self.shared.medium.check_change("zero", offset, length);
            return ready(checked.and(Err(ErrorKind::Unsupported.into())));
        }
        let what = if how.keep_allocated { What::Zeroes } else { What::Hole };
        self.change("zero", (offset, length), what, &[], durable)
    }

    fn trim(&self, offset: u64, length: u64, durable: bool) -> Answer<io::Result<()>> {
        if self.facts().zeroes_fast {
            return self.change("trim", (offset, length), What::Hole, &[], durable);
        }
        // It would have to write zeroes, for the range to read the same ever after.
        match self.shared.medium.check_change("trim", offset, length) {
            Ok(()) if durable => self.flush(),
            checked => ready(checked),
        }
    }

    fn flush(&self) -> Answer<io::Result<()>> {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            if shared.medium.facts().read_only {
                return shared.inner.flush().await;
            }
            shared.flush().await.map_err(|error| shared.medium.fault_of_all("flush", error))
        })
    }

    fn extents(&self, offset: u64, length: u64) -> Answer<io::Result<Vec<Extent>>> {
        if let Err(error) = self.shared.medium.check("extents", offset, length) {
            return ready(Err(error));
        }
        let shared = Arc::clone(&self.shared);
        Box::pin(async move { shared.extents(offset, length).await })
    }

    fn reload(&self) -> Answer<io::Result<u64>> {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move { Ok(shared.medium.grow(shared.inner.reload().await?)) })
    }

    /// The store's own is that of what it has got so far.
    fn version(&self) -> Answer<Option<Version>> {
        ready(None)
    }

    /// What the store loses, it gets from the log again.
    fn losses(&self) -> Option<u64> {
        None
    }

    fn on_loss(&self, _: OnLoss) {}

    fn stopped(&self) -> Option<String> {
        match &self.shared.state().mode {
            Mode::Failed(why) => Some(why.clone()),
            Mode::Taken | Mode::Closing => self.shared.inner.stopped(),
        }
    }

    fn backlog(&self) -> Option<Backlog> {
        let state = self.shared.state();
        Some(Backlog {
            bytes: state.used(),
            capacity: self.shared.ring.bytes,
            age: state.since().map(|since| since.elapsed()),
        })
    }

    fn close(&self) -> Answer<io::Result<()>> {
        let (shared, tasks) = (Arc::clone(&self.shared), Arc::clone(&self.tasks));
        Box::pin(async move {
            let emptied = {
                // Also if this is given up: then nothing more comes to the store.
                let _ends = Ends(&shared);
                if shared.medium.facts().read_only { Ok(()) } else { shared.empty().await }
            };
            // They keep the store open.
            let tasks = std::mem::take(&mut *tasks.lock().unwrap_or_else(PoisonError::into_inner));
            join_all(tasks).await;
            emptied?;
            shared.inner.close().await
        })
    }
}

/// Ends the tasks of a log when it goes.
struct Ends<'a>(&'a Shared);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.end_tasks();
    }
}

impl Drop for LogStore {
    fn drop(&mut self) {
        self.shared.end_tasks();
    }
}
