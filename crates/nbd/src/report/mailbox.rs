//! A connection with a mailbox: opting in, and at most one message on its way.

use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::watch;

use super::queue::Message;
use super::{HintQueue, Report};
use crate::coop::{Abilities, Grant, NAME, Query};
use crate::hint::{Hint, MESSAGE_BYTES_MAX};
use crate::{Client, ClientError, ClientOptions, Uri};

/// A connection whose server takes hints.
pub struct Mailbox {
    client: Client,
    grant: Grant,
    /// Most bytes of a message.
    bytes_max: usize,
    /// Whether a message is on its way.
    away: Arc<watch::Sender<bool>>,
    /// Blocks that the last message handed over.
    handed_over: Vec<u64>,
    messages: u64,
}

/// What to wait for until no message is on its way.
pub struct Away(watch::Receiver<bool>);

impl Away {
    /// Until then.
    pub async fn over(mut self) {
        // An error means that there is no mailbox any more.
        let _ = self.0.wait_for(|away| !away).await;
    }
}

/// A message on its way; the mailbox is free again when this is dropped.
struct OnItsWay(Arc<watch::Sender<bool>>);

impl Drop for OnItsWay {
    fn drop(&mut self) {
        self.0.send_replace(false);
    }
}

/// The answer to a message: awaited, it frees the mailbox. An error is of the message alone.
pub type Answer = std::pin::Pin<Box<dyn Future<Output = Result<(), ClientError>> + Send>>;

impl Mailbox {
    /// Connects, asking for all that a report needs, and for counters.
    ///
    /// # Errors
    /// When the server cannot be reached, or does not grant it.
    pub async fn connect(
        uri: &Uri,
        options: &ClientOptions,
        report: Report,
        client_id: u128,
    ) -> Result<Mailbox, ClientError> {
        let mut options = options.clone();
        options.contexts.push(Mailbox::context(report, client_id));
        Mailbox::over(Client::connect(uri, &options).await?, report)
    }

    /// The context that a connection is to be opened with for [`over`](Mailbox::over).
    pub fn context(report: Report, client_id: u128) -> String {
        let want = Abilities { stat: true, ..report.needs() };
        Query { client: Some(client_id), want }.to_string()
    }

    /// The mailbox of a connection that was opened with the [`context`](Mailbox::context).
    ///
    /// # Errors
    /// When the server did not grant what the report needs.
    pub fn over(client: Client, report: Report) -> Result<Mailbox, ClientError> {
        let needs = report.needs();
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
        let away = Arc::new(watch::Sender::new(false));
        Ok(Mailbox { client, grant, bytes_max, away, handed_over: Vec::new(), messages: 0 })
    }

    /// The connection. Requests may go on it that have nothing to do with hints.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// What the server agreed to.
    pub fn grant(&self) -> &Grant {
        &self.grant
    }

    /// Whether a message is on its way: no other is sent until it is answered.
    pub fn is_away(&self) -> bool {
        *self.away.borrow()
    }

    /// Sends hints if the mailbox is free: the next request that is queued follows them. With
    /// `extra` always, else if there are enough of them, or any if they are `pressing`.
    pub fn send(
        &mut self,
        hints: &mut HintQueue,
        now: Instant,
        extra: Option<Hint>,
        pressing: bool,
    ) -> Option<Answer> {
        if extra.is_none() && !(hints.is_due() || pressing && !hints.is_empty()) {
            return None;
        }
        if self.is_away() {
            return None;
        }
        let none = || Message { hints: Vec::new(), handed_over: Vec::new() };
        // Room for what comes with them.
        let mut message = hints.take(now, self.bytes_max.saturating_sub(128)).unwrap_or_else(none);
        message.hints.splice(0..0, extra);
        if message.hints.is_empty() {
            return None;
        }
        let bytes = self.padded(&message);
        self.handed_over = message.handed_over;
        self.messages += 1;
        let answer = self.client.write(self.grant.window_base, vec![bytes], false);
        self.away.send_replace(true);
        let on_its_way = OnItsWay(Arc::clone(&self.away));
        Some(Box::pin(async move {
            let result = answer.await;
            drop(on_its_way);
            result
        }))
    }

    /// The server may take writes in whole blocks only; zeroes end a message.
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

    /// If a message is on its way that hands one of these blocks over, what to wait for.
    pub fn is_handing_over(&self, blocks: &Range<u64>) -> Option<Away> {
        let any = self.handed_over.iter().any(|block| blocks.contains(block));
        (any && self.is_away()).then(|| self.away())
    }

    /// Messages sent.
    pub fn messages(&self) -> u64 {
        self.messages
    }

    /// What to wait for until a message can be sent.
    pub fn away(&self) -> Away {
        Away(self.away.subscribe())
    }
}

/// A number that no other client has.
pub fn client_id() -> u128 {
    // Its keys are random.
    let half = || u128::from(RandomState::new().hash_one(std::process::id()));
    half() << 64 | half()
}
