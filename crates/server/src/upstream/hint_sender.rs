//! Tells another server, which is the store of a volume, what leaves the volume's cache: hints wait
//! here, and go in front of requests. While the server below takes no hints, none are kept.
//!
//! The counters of the cache are sent in the same way, once a second while they change, so that the
//! server below can show them.
//!
//! Every connection has its own client id, so that the server does not take data still held by an
//! old connection for data of the new one, which may have changed the block since.

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
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
use crate::eviction_sink::EvictionSink;
use crate::lock::sleep_lock;
use crate::volume::Volume;

/// Longest time that a hint waits for further ones.
const FLUSH_AFTER: Duration = Duration::from_millis(10);

/// How often the counters are sent to the server below.
const STAT_EVERY: Duration = Duration::from_secs(1);

/// The waiting hints, and the connection's mailbox.
pub(crate) struct HintSender {
    how: Reporting,
    /// Bytes of a block of the volume.
    block_bytes: u32,
    state: Mutex<State>,
    /// Notified when hints wait and no request is there to take them along.
    hints_wait: Arc<Notify>,
}

struct State {
    hints: HintQueue,
    /// The mailbox of the current connection, if the server takes hints.
    mailbox: Option<Mailbox>,
    /// Counters to send with the next message, and those sent last on this connection.
    stat: Option<ClientStat>,
    told_stat: Option<ClientStat>,
    /// Messages sent over earlier connections.
    messages_before: u64,
    messages_refused: u64,
    unheard: u64,
    /// Whether the request that evicted the last blocks may still be about to come; nothing is sent
    /// without it then.
    is_fresh: bool,
    /// Number of waiting requests; later hints must not be sent before them.
    waiting: usize,
    /// Whether it was logged that the server takes no hints.
    is_warned: bool,
}

/// What must be done before a request may be sent.
enum Step {
    /// The request may be sent. The answer belongs to the message in front of it.
    Go(Option<MessageAnswer>),
    /// A message was sent, and must be answered first.
    Hear(MessageAnswer),
    /// An earlier message must be answered first.
    Wait(Away),
}

/// Counts a request as waiting while it exists.
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
    pub(crate) fn new(how: Reporting, block_bytes: u32) -> Arc<HintSender> {
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

    /// Why the server below takes no hints, with advice.
    pub(super) fn explain(&self, error: &ClientError) -> String {
        format!(
            "report={}: {error}; the volume there needs placement=auto, eviction or gl, and blocks \
             of the same size",
            self.how
        )
    }

    /// The metadata context to request when opening a connection.
    pub(super) fn context(&self) -> String {
        Mailbox::context(self.how.report, ClientId::random())
    }

    /// The mailbox of a new connection.
    ///
    /// # Errors
    /// The server does not take the configured hints.
    pub(super) fn mailbox(&self, client: Client) -> Result<Mailbox, ClientError> {
        let mailbox = Mailbox::over(client, self.how.report)?;
        let (theirs, ours) = (mailbox.grant().block_bytes, self.block_bytes);
        if theirs != ours {
            let text = format!("it counts in blocks of {theirs} bytes, this volume in {ours}");
            return Err(ClientError::Refused(text));
        }
        Ok(mailbox)
    }

    /// Replaces the last connection by a new one, with or without a mailbox.
    pub(super) fn attach(&self, store: &str, opened: Result<Mailbox, ClientError>) {
        let mut state = self.lock();
        // It may be another server now, or the server may have forgotten what it delivered.
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

    /// Sends the hints that must precede a request for these bytes, which `changes` them or reads
    /// them, and waits for whatever the request must not overtake. The request must be sent next;
    /// pass the answer to [`heard`](Self::heard) after the request's own.
    pub(super) async fn before(&self, bytes: Range<u64>, changes: bool) -> Option<MessageAnswer> {
        let size = u64::from(self.block_bytes);
        let blocks = bytes.start / size..bytes.end.div_ceil(size);
        // Hints from now on come after the request, however long it has to wait.
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

    /// Waits for the answer to a message, if one was sent. Hints without a request are sent soon.
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

    /// Starts to send hints that no request takes along; call it once.
    pub(super) fn start(self: &Arc<Self>) {
        tokio::spawn(flush_hints(Arc::downgrade(self), Arc::clone(&self.hints_wait)));
    }

    /// Starts to send the counters of the volume; call it once.
    pub(crate) fn tell_of(self: &Arc<Self>, volume: &Arc<Volume>) {
        tokio::spawn(tell_counters(Arc::downgrade(self), Arc::downgrade(volume)));
    }

    /// A poisoned lock is sound: nothing that runs under it panics half-way.
    fn lock(&self) -> MutexGuard<'_, State> {
        sleep_lock(&self.state)
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
        // Each hint goes with its request, so none may be sent before the last message is answered.
        if batch == 1 && !hints.is_empty() && mailbox.is_away() {
            return Step::Wait(mailbox.away());
        }
        // The eviction was true until now. A server that places the block first may have its data
        // for the request.
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

    /// Sends the hints that are due, with the counters if they are due.
    fn send(&mut self, now: Instant, pressing: bool) -> Option<MessageAnswer> {
        let mailbox = self.mailbox.as_mut().filter(|mailbox| !mailbox.is_away())?;
        let stat = self.stat.take();
        self.told_stat = stat.or(self.told_stat);
        let extra = stat.map(|stat| Hint::ClientStat(Box::new(stat))).into_iter().collect();
        mailbox.send(&mut self.hints, now, extra, pressing)
    }

    /// Sets the counters to send, if they have changed. Sends them at once if no request is about
    /// to be sent.
    fn count(&mut self, stat: ClientStat) -> Option<MessageAnswer> {
        let takes_stat = self.mailbox.as_ref().is_some_and(|mailbox| mailbox.grant().grant.stat);
        if !takes_stat || self.told_stat == Some(stat) {
            return None;
        }
        self.stat = Some(stat);
        if self.is_fresh || self.waiting > 0 { None } else { self.send(clock::now(), false) }
    }

    /// A message of hints that have waited long enough, if it may be sent without a request.
    fn late_hints(&mut self) -> Option<MessageAnswer> {
        let now = clock::now();
        if self.is_fresh || self.waiting > 0 || self.hints.waits_since(now) < FLUSH_AFTER {
            return None;
        }
        self.mailbox.as_mut()?.send(&mut self.hints, now, Vec::new(), true)
    }
}

impl EvictionSink for HintSender {
    fn wants_data(&self) -> bool {
        self.how.report == Report::Demotions
    }

    fn on_evicted(&self, block: u64, data: Option<Bytes>) {
        // The volume's last block may be short; only whole blocks are handed over.
        let data = data.filter(|data| data.len() == self.block_bytes as usize);
        self.queue(|hints, now| hints.add(block, data, now));
    }

    fn on_evicted_dirty(&self, block: u64) {
        self.queue(|hints, now| hints.add_written(block, now));
    }

    fn on_readmitted(&self, block: u64) {
        self.lock().hints.cancel(block);
    }

    fn piggyback(&self, blocks: &[u64]) {
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
        // Wakes the task that sends waiting hints, so that it ends.
        self.hints_wait.notify_one();
    }
}

/// Sends the counters periodically.
async fn tell_counters(sender: Weak<HintSender>, volume: Weak<Volume>) {
    loop {
        tokio::time::sleep(STAT_EVERY).await;
        let (Some(sender), Some(volume)) = (sender.upgrade(), volume.upgrade()) else { return };
        let policy = volume.now().policy.info().name;
        let stat = volume.stats().for_server_below(volume.latencies(), policy);
        drop(volume);
        let answer = sender.lock().count(stat);
        sender.heard(answer).await;
    }
}

/// Sends hints that no request has taken along in time.
async fn flush_hints(sender: Weak<HintSender>, wait: Arc<Notify>) {
    loop {
        wait.notified().await;
        tokio::time::sleep(FLUSH_AFTER).await;
        let Some(sender) = sender.upgrade() else { return };
        let away = sender.lock().mailbox.as_ref().map(Mailbox::away);
        if let Some(away) = away {
            away.over().await;
        }
        let answer = sender.lock().late_hints();
        match answer {
            Some(answer) => sender.heard(Some(answer)).await,
            None => sender.remind(&sender.lock()),
        }
    }
}
