//! Telling another server what leaves the cache of the volume that it is the store of: hints wait
//! here, and go in front of requests. While the server below takes none, nothing is kept.
//!
//! The counters of the cache go the same way, once a second while they change, so that the server
//! below can show them.
//!
//! Every connection has a client id of its own: data that an old connection still holds is not
//! taken for that of the new one, which may have changed the block since.

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::Notify;
use undercroft_hints::{
    Away, ClientId, ClientStat, Hint, HintQueue, Mailbox, MessageAnswer, Report,
};
use undercroft_nbd::{Client, ClientError};

use crate::clock;
use crate::config::Reporting;
use crate::counters::TellStats;
use crate::shard::tell::Listener;
use crate::volume::Volume;

/// Longest time that a hint waits for others.
const FLUSH_AFTER: Duration = Duration::from_millis(10);

/// How often the server below is told the counters.
const STAT_EVERY: Duration = Duration::from_secs(1);

/// What is to be told, and the way to whom.
pub(in crate::serve) struct HintSender {
    how: Reporting,
    /// Bytes of a block of the volume.
    block_bytes: u32,
    state: Mutex<State>,
    /// Hints wait without a request that they could go with.
    hints_wait: Arc<Notify>,
}

struct State {
    hints: HintQueue,
    /// Of the connection as it is now, while the server takes hints.
    mailbox: Option<Mailbox>,
    /// Counters that go with the next message, and those that went last on this connection.
    stat: Option<ClientStat>,
    told_stat: Option<ClientStat>,
    /// Messages of the connections before.
    messages_before: u64,
    messages_refused: u64,
    unheard: u64,
    /// The request may be about to come that drove the last blocks out: nothing goes without it.
    is_fresh: bool,
    /// Requests that wait: what happens meanwhile must not go before them.
    waiting: usize,
    /// That the server takes no hints has been said.
    is_warned: bool,
}

/// What is to be done before a request may go.
enum Step {
    /// Nothing: it may. The answer is that to the message in front of it.
    Go(Option<MessageAnswer>),
    /// A message was sent, which has to be answered first.
    Hear(MessageAnswer),
    /// A message is on its way, which has to be answered first.
    Wait(Away),
}

/// A request waits, as long as this is there.
struct Waits<'a>(&'a HintSender);

impl<'a> Waits<'a> {
    fn new(sender: &'a HintSender) -> Self {
        sender.lock().waiting += 1;
        Self(sender)
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.lock().waiting -= 1;
    }
}

impl HintSender {
    pub(in crate::serve) fn new(how: Reporting, block_bytes: u32) -> Arc<HintSender> {
        let state = State {
            hints: HintQueue::new(how.batch),
            mailbox: None,
            stat: None,
            told_stat: None,
            messages_before: 0,
            messages_refused: 0,
            unheard: 0,
            is_fresh: false,
            waiting: 0,
            is_warned: false,
        };
        let (state, hints_wait) = (Mutex::new(state), Arc::default());
        Arc::new(HintSender { how, block_bytes, state, hints_wait })
    }

    pub(super) fn how(&self) -> Reporting {
        self.how
    }

    /// The context that a new connection is to be opened with.
    pub(super) fn context(&self) -> String {
        Mailbox::context(self.how.report, ClientId::random())
    }

    /// The mailbox of a new connection.
    ///
    /// # Errors
    /// When its server does not take what is to be told.
    pub(super) fn mailbox(&self, client: Client) -> Result<Mailbox, ClientError> {
        let mailbox = Mailbox::over(client, self.how.report)?;
        let (theirs, ours) = (mailbox.grant().block_bytes, self.block_bytes);
        if theirs != ours {
            let text = format!("it counts in blocks of {theirs} bytes, this volume in {ours}");
            return Err(ClientError::Refused(text));
        }
        Ok(mailbox)
    }

    /// A new connection takes the place of the last one, with or without a mailbox.
    pub(super) fn attach(&self, store: &str, opened: Result<Mailbox, ClientError>) {
        let mut state = self.lock();
        // The server may be another one now, or have forgotten what it delivered.
        state.hints.keep_data(&(0..u64::MAX));
        state.told_stat = None;
        state.messages_before += state.mailbox.as_ref().map_or(0, Mailbox::messages);
        match opened {
            Ok(mailbox) => {
                if std::mem::take(&mut state.is_warned) {
                    tracing::info!("{store}: takes hints again");
                }
                state.mailbox = Some(mailbox);
            }
            Err(error) => {
                if !std::mem::replace(&mut state.is_warned, true) {
                    let how = self.how;
                    tracing::warn!(
                        "{store}: {error}; what leaves the cache is not told (report={how})"
                    );
                }
                state.mailbox = None;
                state.unheard += state.hints.clear();
            }
        }
    }

    /// Sends what there is to say before a request for these bytes, which `changes` them or reads
    /// them, and waits for what the request must not overtake. To be called when the request goes
    /// next; the answer is to be [`heard`](Self::heard) after its own.
    pub(super) async fn before(&self, bytes: Range<u64>, changes: bool) -> Option<MessageAnswer> {
        let size = u64::from(self.block_bytes);
        let blocks = bytes.start / size..bytes.end.div_ceil(size);
        // What happens from now on comes after the request, however long that has to wait.
        let known = self.lock().hints.added();
        let mut waits = None;
        loop {
            let step = self.lock().step(&blocks, changes, known, self.how.batch);
            match step {
                Step::Go(answer) => return answer,
                Step::Hear(answer) => {
                    waits.get_or_insert_with(|| Waits::new(self));
                    self.heard(Some(answer)).await;
                }
                Step::Wait(away) => {
                    waits.get_or_insert_with(|| Waits::new(self));
                    away.over().await;
                }
            }
        }
    }

    /// Waits for the answer to a message, if one was sent. What has no request to go with is sent
    /// before long.
    pub(super) async fn heard(&self, answer: Option<MessageAnswer>) {
        let Some(answer) = answer else { return };
        let result = answer.await;
        let mut state = self.lock();
        state.messages_refused += u64::from(result.is_err());
        self.remind(&state);
    }

    fn queue(&self, add: impl FnOnce(&mut HintQueue, Instant)) {
        let mut state = self.lock();
        if state.mailbox.is_none() {
            state.unheard += 1;
            return;
        }
        add(&mut state.hints, clock::now());
        state.is_fresh = true;
    }

    fn remind(&self, state: &State) {
        if !state.hints.is_empty() {
            self.hints_wait.notify_one();
        }
    }

    /// Begins to send hints that no request takes along; to be called once.
    pub(super) fn start(self: &Arc<Self>) {
        tokio::spawn(flush_hints(Arc::downgrade(self), Arc::clone(&self.hints_wait)));
    }

    /// Begins to tell the counters of the volume; to be called once.
    pub(in crate::serve) fn tell_of(self: &Arc<Self>, volume: &Arc<Volume>) {
        tokio::spawn(tell_counters(Arc::downgrade(self), Arc::downgrade(volume)));
    }

    /// Nothing that is called under the lock can panic half-way, so a poisoned one is sound.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn step(&mut self, blocks: &Range<u64>, changes: bool, known: u64, batch: usize) -> Step {
        let late = self.hints.set_aside(known);
        let step = self.next_step(blocks, changes, batch);
        self.hints.put_back(late);
        step
    }

    fn next_step(&mut self, blocks: &Range<u64>, changes: bool, batch: usize) -> Step {
        let Self { hints, mailbox: Some(mailbox), .. } = self else { return Step::Go(None) };
        let now = clock::now();
        if let Some(away) = mailbox.is_handing_over(blocks) {
            return Step::Wait(away);
        }
        // Each hint with its request: so none may go before the last message is answered.
        if batch == 1 && !hints.is_empty() && mailbox.is_away() {
            return Step::Wait(mailbox.away());
        }
        // That they had left was true until now. A server that has it placed first may have the
        // data for the request.
        if hints.concerns(blocks) {
            if let Some(answer) = mailbox.send(hints, now, Vec::new(), true) {
                return Step::Hear(answer);
            }
        }
        if changes {
            hints.keep_data(blocks);
        } else {
            hints.cancel_within(blocks);
        }
        let pressing = hints.waits_since(now) >= FLUSH_AFTER;
        let answer = self.send(now, pressing);
        self.hints.depart();
        Step::Go(answer)
    }

    /// Sends what is due, with the counters if they are.
    fn send(&mut self, now: Instant, pressing: bool) -> Option<MessageAnswer> {
        let mailbox = self.mailbox.as_mut().filter(|mailbox| !mailbox.is_away())?;
        let stat = self.stat.take();
        self.told_stat = stat.or(self.told_stat);
        let extra = stat.map(|stat| Hint::ClientStat(Box::new(stat))).into_iter().collect();
        mailbox.send(&mut self.hints, now, extra, pressing)
    }

    /// The counters are to be told, if they are other ones: by themselves if no request is about
    /// to go.
    fn count(&mut self, stat: ClientStat) -> Option<MessageAnswer> {
        let takes_stat = self.mailbox.as_ref().is_some_and(|mailbox| mailbox.grant().grant.stat);
        if !takes_stat || self.told_stat == Some(stat) {
            return None;
        }
        self.stat = Some(stat);
        if self.is_fresh || self.waiting > 0 { None } else { self.send(clock::now(), false) }
    }

    /// A message of what has waited long enough, if that may go by itself.
    fn overdue(&mut self) -> Option<MessageAnswer> {
        let now = clock::now();
        if self.is_fresh || self.waiting > 0 || self.hints.waits_since(now) < FLUSH_AFTER {
            return None;
        }
        self.mailbox.as_mut()?.send(&mut self.hints, now, Vec::new(), true)
    }
}

impl Listener for HintSender {
    fn wants_data(&self) -> bool {
        self.how.report == Report::Demotions
    }

    fn left(&self, block: u64, data: Option<Bytes>) {
        // The volume's last block may be short.
        let data = data.filter(|data| data.len() == self.block_bytes as usize);
        self.queue(|hints, now| hints.add(block, data, now));
    }

    fn left_dirty(&self, block: u64) {
        self.queue(|hints, now| hints.add_written(block, now));
    }

    fn is_back(&self, block: u64) {
        self.lock().hints.cancel(block);
    }

    fn ride(&self, blocks: &[u64]) {
        self.lock().hints.ride(blocks);
    }

    fn settled(&self) {
        let mut state = self.lock();
        state.is_fresh = false;
        self.remind(&state);
    }

    fn told(&self) -> TellStats {
        let state = self.lock();
        let counts = state.hints.counts();
        let messages = state.mailbox.as_ref().map_or(0, Mailbox::messages);
        TellStats {
            messages: state.messages_before + messages,
            messages_refused: state.messages_refused,
            evictions: counts.told,
            handed_over: counts.handed_over,
            lost: counts.lost,
            unheard: state.unheard,
            listening: u64::from(state.mailbox.is_some()),
        }
    }
}

impl fmt::Debug for HintSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HintSender({})", self.how)
    }
}

impl Drop for HintSender {
    fn drop(&mut self) {
        // The flusher finds nobody left.
        self.hints_wait.notify_one();
    }
}

/// Tells the counters now and then.
async fn tell_counters(sender: Weak<HintSender>, volume: Weak<Volume>) {
    loop {
        tokio::time::sleep(STAT_EVERY).await;
        let (Some(sender), Some(volume)) = (sender.upgrade(), volume.upgrade()) else { return };
        let stat = volume.client_stat();
        drop(volume);
        let answer = sender.lock().count(stat);
        sender.heard(answer).await;
    }
}

/// Sends hints that no request has taken along for so long.
async fn flush_hints(sender: Weak<HintSender>, wait: Arc<Notify>) {
    loop {
        wait.notified().await;
        tokio::time::sleep(FLUSH_AFTER).await;
        let Some(sender) = sender.upgrade() else { return };
        let away = sender.lock().mailbox.as_ref().map(Mailbox::away);
        if let Some(away) = away {
            away.over().await;
        }
        let answer = sender.lock().overdue();
        match answer {
            Some(answer) => sender.heard(Some(answer)).await,
            None => sender.remind(&sender.lock()),
        }
    }
}
