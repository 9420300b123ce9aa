//! A connection with a mailbox: opting in, and sending one message at a time.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use tokio::sync::Notify;

use undercroft_nbd::{Client, ClientError, ClientOptions, Uri};

use crate::client_id::ClientId;
use crate::grant::{Abilities, Grant, NAME, Query};
use crate::parse::{Told, parse_told};
use crate::queue::{HintQueue, Message};
use crate::record::{Follow, Hint, MESSAGE_BYTES_MAX};
use crate::report::Report;

/// A connection to a server that accepts hints.
///
/// ```no_run
/// use std::time::Instant;
/// use undercroft_hints::{ClientId, HintQueue, Mailbox, Report};
/// use undercroft_nbd::{ClientError, ClientOptions, Uri};
///
/// # async fn run() -> Result<(), ClientError> {
/// let uri: Uri = "nbd://127.0.0.1/disk".parse().unwrap();
/// let (options, id) = (ClientOptions::default(), ClientId::random());
/// let mut mailbox = Mailbox::connect(&uri, &options, Report::Evictions, id).await?;
/// let mut queue = HintQueue::new(1);
/// queue.add(7, None, Instant::now());
/// if let Some(answer) = mailbox.send(&mut queue, Instant::now(), Vec::new(), true) {
///     answer.await?;
/// }
/// # Ok(())
/// # }
/// ```
pub struct Mailbox {
    client: Client,
    grant: Grant,
    /// Most bytes of a message.
    bytes_max: usize,
    /// Whether a message is unanswered.
    away: Arc<Unanswered>,
    /// Blocks that the last message handed over.
    handed_over: Vec<u64>,
    messages: u64,
}

/// Whether a message is unanswered.
#[derive(Default)]
struct Unanswered {
    is_any: AtomicBool,
    answered: Notify,
}

/// Waits until no message is unanswered.
pub struct Away(Arc<Unanswered>);

impl Away {
    /// Waits for that. Who waits longest goes on first.
    pub async fn over(self) {
        loop {
            let mut answered = std::pin::pin!(self.0.answered.notified());
            answered.as_mut().enable();
            if !self.0.is_any.load(Ordering::SeqCst) {
                return;
            }
            answered.await;
        }
    }
}

/// Marks a message as unanswered; dropping it frees the mailbox.
struct OnItsWay(Arc<Unanswered>);

impl Drop for OnItsWay {
    fn drop(&mut self) {
        self.0.is_any.store(false, Ordering::SeqCst);
        self.0.answered.notify_waiters();
    }
}

/// The answer to a message. Awaiting it frees the mailbox. An error concerns this message only.
pub type MessageAnswer = std::pin::Pin<Box<dyn Future<Output = Result<(), ClientError>> + Send>>;

impl Mailbox {
    /// Connects, and asks for all abilities that `report` needs, and for counters.
    ///
    /// # Errors
    /// The server cannot be reached, or does not grant what was asked for.
    pub async fn connect(
        uri: &Uri,
        options: &ClientOptions,
        report: Report,
        client_id: ClientId,
    ) -> Result<Mailbox, ClientError> {
        Mailbox::asking_for(uri, options, report.needs(), client_id).await
    }

    /// Connects, and asks for the abilities `needs`, all of which the server must grant.
    ///
    /// # Errors
    /// As for [`connect`](Mailbox::connect).
    pub async fn asking_for(
        uri: &Uri,
        options: &ClientOptions,
        needs: Abilities,
        client_id: ClientId,
    ) -> Result<Mailbox, ClientError> {
        let mut options = options.clone();
        let want = Abilities { stat: true, ..needs };
        options.contexts.push(Query { client: Some(client_id), want }.to_string());
        Mailbox::with(Client::connect(uri, &options).await?, needs)
    }

    /// The metadata context to request when opening a connection for [`over`](Mailbox::over).
    pub fn context(report: Report, client_id: ClientId) -> String {
        let want = Abilities { stat: true, ..report.needs() };
        Query { client: Some(client_id), want }.to_string()
    }

    /// The mailbox of a connection that was opened with the [`context`](Mailbox::context).
    ///
    /// # Errors
    /// The server did not grant what the report needs.
    pub fn over(client: Client, report: Report) -> Result<Mailbox, ClientError> {
        Mailbox::with(client, report.needs())
    }

    fn with(client: Client, needs: Abilities) -> Result<Mailbox, ClientError> {
        let contexts = &client.remote().contexts;
        let Some(grant) = contexts.iter().find_map(|(_, name)| Grant::parse(name)) else {
            let text = format!("it does not cooperate with clients (no context {NAME})");
            return Err(ClientError::Refused(text));
        };
        if needs.and(grant.grant) != needs {
            let text = format!("it takes no such hints: asked for {needs}, got '{}'", grant.grant);
            return Err(ClientError::Refused(text));
        }
        let bytes_max = grant.window_bytes.min(client.remote().info.max_block.into());
        let bytes_max = (bytes_max as usize).min(MESSAGE_BYTES_MAX);
        let away = Arc::<Unanswered>::default();
        Ok(Mailbox { client, grant, bytes_max, away, handed_over: Vec::new(), messages: 0 })
    }

    /// The connection, for requests other than hints.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// What the server agreed to.
    pub fn grant(&self) -> &Grant {
        &self.grant
    }

    /// Whether a message is unanswered. Until it is answered no other is sent.
    pub fn is_away(&self) -> bool {
        self.away.is_any.load(Ordering::SeqCst)
    }

    /// Sends hints if the mailbox is free, in front of the next request that is queued. A message
    /// is sent if there is `extra`, if enough hints wait, or if any wait and `pressing` is set.
    pub fn send(
        &mut self,
        hints: &mut HintQueue,
        now: Instant,
        extra: Vec<Hint>,
        pressing: bool,
    ) -> Option<MessageAnswer> {
        if extra.is_empty() && !(hints.is_due() || pressing && !hints.is_empty()) {
            return None;
        }
        if self.is_away() {
            return None;
        }
        // Leaves room for `extra`.
        let room = self.bytes_max.saturating_sub(64 * (1 + extra.len()));
        let room = room.saturating_sub(extra.iter().map(Hint::data_bytes).sum());
        let mut message = hints.take(now, room).unwrap_or_default();
        message.hints.splice(0..0, extra);
        if message.hints.is_empty() {
            return None;
        }
        Some(self.post(message))
    }

    fn post(&mut self, message: Message) -> MessageAnswer {
        let bytes = self.padded(&message);
        self.handed_over = message.handed_over;
        self.messages += 1;
        let answer = self.client.write(self.grant.window_base, vec![bytes], false);
        self.away.is_any.store(true, Ordering::SeqCst);
        let on_its_way = OnItsWay(Arc::clone(&self.away));
        Box::pin(async move {
            let result = answer.await;
            drop(on_its_way);
            result
        })
    }

    /// Asks the server to tell this connection, from now on, what it holds. Call it only while no
    /// message is unanswered.
    pub fn follow(&mut self, follow: Follow) -> MessageAnswer {
        self.post(Message { hints: vec![Hint::Follow(follow)], handed_over: Vec::new() })
    }

    /// Reads up to `bytes` of what the server tells about its cache, as of the requests queued
    /// before this call. Returns an empty answer if the server does not tell.
    pub fn ask(
        &self,
        bytes: usize,
    ) -> impl Future<Output = Result<Told, ClientError>> + Send + use<> {
        let reading = self.grant.news.map(|(base, most)| {
            // The server accepts whole blocks only, and never splits a record.
            let unit = (self.client.remote().info.min_block as usize).max(64);
            let bytes = bytes.max(1).next_multiple_of(unit).min(most as usize);
            self.client.read(base, vec![Box::new(vec![0_u8; bytes])])
        });
        async move {
            let Some(reading) = reading else { return Ok(Told::default()) };
            let (mut buffers, result) = reading.await;
            result?;
            let all = buffers.first_mut().map(|buffer| (**buffer).as_mut().to_vec());
            let told = parse_told(&all.unwrap_or_default().into());
            told.map_err(|error| ClientError::Refused(format!("what the server holds: {error}")))
        }
    }

    /// Pads with zeroes, which end a message: the server may accept writes of whole blocks only.
    fn padded(&self, message: &Message) -> bytes::Bytes {
        let bytes = message.bytes();
        let length = bytes.len().next_multiple_of(self.client.remote().info.min_block as usize);
        if length == bytes.len() {
            return bytes;
        }
        let mut padded = bytes::BytesMut::from(bytes);
        padded.resize(length, 0);
        padded.freeze()
    }

    /// If an unanswered message hands one of these blocks over, returns what to wait for.
    pub fn is_handing_over(&self, blocks: &Range<u64>) -> Option<Away> {
        let any = self.handed_over.iter().any(|block| blocks.contains(block));
        (any && self.is_away()).then(|| self.away())
    }

    /// Number of messages sent.
    pub fn messages(&self) -> u64 {
        self.messages
    }

    /// Waits until a message can be sent.
    pub fn away(&self) -> Away {
        Away(Arc::clone(&self.away))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[tokio::test]
    async fn who_waits_longest_goes_on_first() {
        let away = Arc::<Unanswered>::default();
        away.is_any.store(true, Ordering::SeqCst);
        let on_its_way = OnItsWay(Arc::clone(&away));
        let order = Arc::<Mutex<Vec<u32>>>::default();
        let waiting = (0..50).map(|number| {
            let (one, order) = (Away(Arc::clone(&away)), Arc::clone(&order));
            tokio::spawn(async move {
                one.over().await;
                order.lock().unwrap().push(number);
            })
        });
        let waiting: Vec<_> = waiting.collect();
        tokio::task::yield_now().await;
        assert!(order.lock().unwrap().is_empty(), "the message is unanswered");
        drop(on_its_way);
        for one in waiting {
            one.await.unwrap();
        }
        assert!((0..50).eq(order.lock().unwrap().iter().copied()));
        Away(away).over().await;
    }
}
