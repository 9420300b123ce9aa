//! The way to an export that outlives its connections: a lost one is made again, and it is counted
//! how often changes may have been lost with one.
//!
//! A server that went away may have lost what it had answered and not made durable. So a connection
//! that ends with such changes is a *loss*; so is the next one, if no FLUSH has succeeded in
//! between: what the first did not take may go with the second. Who uses the line compares
//! [`Line::losses`] with what it was at another time, and is called at each loss and before
//! anything goes over a new connection.
//!
//! Not here: who is told of a loss, and what is done about it. That differs from one user to the
//! next.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::channel::Channel;
use super::{Client, ClientError};
use crate::lineage::Lineage;
use crate::service::Failure;

/// Pause before a second try to connect again.
const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// How long a server may be busy with what an earlier connection sent, before callers get an error.
const BUSY_MAX: Duration = Duration::from_secs(10);

/// Called at each loss and with each new connection; must not block.
pub type OnLoss = Arc<dyn Fn() + Send + Sync>;

/// One connection after another to the same export.
pub struct Line {
    /// For logs.
    name: String,
    now: tokio::sync::Mutex<Now>,
    /// Number of the connection in `now`.
    current: AtomicU64,
    losses: AtomicU64,
    on_loss: Mutex<Vec<OnLoss>>,
}

/// The way to the export as it is now.
#[derive(Debug)]
struct Now {
    channel: Channel,
    /// When connecting again failed last, and why.
    failed: Option<(Instant, ClientError)>,
}

impl Line {
    /// Over a connection that was just made, by somebody who never had another. `name` is for logs.
    pub fn new(name: String, client: Client) -> Line {
        Line::over(name, Channel::new(client, false))
    }

    /// Over a connection that was just made, by somebody who may have made changes before, in a
    /// process that is no more: until the first FLUSH succeeds, they may be lost.
    pub fn resumed(name: String, client: Client) -> Line {
        Line::over(name, Channel::new(client, true))
    }

    fn over(name: String, channel: Channel) -> Line {
        let now = Now { channel, failed: None };
        Line {
            name,
            now: tokio::sync::Mutex::new(now),
            current: AtomicU64::new(0),
            losses: AtomicU64::new(0),
            on_loss: Mutex::default(),
        }
    }

    /// The connection, a new one by `connect` if the last was lost. Who waited while a try failed
    /// does not try again: many requests for a server that is away fail together.
    ///
    /// # Errors
    /// There is none, and none can be had.
    pub async fn channel(
        &self,
        connect: impl Future<Output = Result<Client, ClientError>>,
    ) -> Result<Channel, ClientError> {
        let arrived = Instant::now();
        let mut now = self.now.lock().await;
        if !now.channel.client.is_lost() {
            return Ok(now.channel.clone());
        }
        if let Some((_, error)) = now.failed.as_ref().filter(|(at, _)| *at >= arrived) {
            return Err(error.clone());
        }
        match connect.await {
            Ok(client) => {
                let number = now.channel.number + 1;
                // In this order: a change of the old connection is found here, or finds this.
                self.current.store(number, Ordering::SeqCst);
                tracing::warn!("{}: connected again", self.name);
                if now.channel.has_unflushed() {
                    self.count_loss("the connection was lost");
                } else {
                    // A change that failed may have been seen, and be gone.
                    self.call_users();
                }
                let channel = now.channel.over(client, number);
                *now = Now { channel, failed: None };
                Ok(now.channel.clone())
            }
            Err(error) => {
                if now.failed.is_none() {
                    tracing::warn!("{}: {error}", self.name);
                }
                now.failed = Some((Instant::now(), error.clone()));
                Err(error)
            }
        }
    }

    /// Goes on over another connection, while the last one stands. A FLUSH on the new one need not
    /// cover the old one: so that is made first.
    ///
    /// # Errors
    /// The FLUSH failed.
    pub async fn replace(&self, client: Client) -> Result<(), ClientError> {
        let mut now = self.now.lock().await;
        self.flush(&now.channel).await?;
        now.channel = now.channel.over(client, now.channel.number);
        Ok(())
    }

    /// What comes of the answer to a change: one that is to be `durable` and was not made so by FUA
    /// is followed by a FLUSH.
    ///
    /// # Errors
    /// The change failed, or the FLUSH.
    pub async fn settle(
        &self,
        channel: &Channel,
        durable: bool,
        answer: Result<(), ClientError>,
    ) -> Result<(), ClientError> {
        match answer {
            Ok(()) if channel.fua(durable) => Ok(()),
            Ok(()) => {
                self.changed(channel);
                if durable { self.flush(channel).await } else { Ok(()) }
            }
            Err(error) => {
                if channel.fua(durable) {
                    self.note_failure(channel, &error);
                }
                Err(error)
            }
        }
    }

    /// A change was answered on a channel that is not durable yet.
    pub fn changed(&self, channel: &Channel) {
        channel.add_unflushed();
        // The next connection may have been made already without knowing of this one.
        if channel.number < self.current.load(Ordering::SeqCst) {
            self.count_loss("a change was answered late");
        }
    }

    /// Makes everything durable that was answered on a channel before.
    ///
    /// # Errors
    /// The FLUSH failed.
    pub async fn flush(&self, channel: &Channel) -> Result<(), ClientError> {
        let flushed = channel.flush().await;
        if let Err(error) = &flushed {
            self.note_failure(channel, error);
        }
        flushed
    }

    /// A FLUSH, or a change with FUA, failed. If it is the server that failed, it may have lost
    /// what it had answered before: so a server says it whose own store is a server.
    fn note_failure(&self, channel: &Channel, error: &ClientError) {
        let is_failure = matches!(error, ClientError::Server { failure: Failure::Io, .. });
        if is_failure && channel.has_unflushed() {
            self.count_loss(&format!("the server cannot make durable what it has ({error})"));
        }
    }

    /// How often so far changes that had been answered, and that no FLUSH had covered, may have
    /// been lost.
    pub fn losses(&self) -> u64 {
        self.losses.load(Ordering::SeqCst)
    }

    /// Has a function called from now on at each loss, when [`losses`](Self::losses) has grown, and
    /// with each new connection, before anything goes over it.
    pub fn on_loss(&self, call: OnLoss) {
        self.on_loss.lock().unwrap_or_else(PoisonError::into_inner).push(call);
    }

    fn count_loss(&self, why: &str) {
        tracing::error!("{}: {why}; changes that were not flushed may be lost", self.name);
        self.losses.fetch_add(1, Ordering::SeqCst);
        self.call_users();
    }

    fn call_users(&self) {
        let all = self.on_loss.lock().unwrap_or_else(PoisonError::into_inner).clone();
        all.iter().for_each(|call| call());
    }
}

impl std::fmt::Debug for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Line").field("name", &self.name).field("now", &self.now).finish()
    }
}

/// The name by which a server knows the connections of a line, and which of them is the newest: see
/// `lineage.rs`. A server that does not know it ignores it.
#[derive(Debug)]
pub struct LineId {
    id: u128,
    last: AtomicU64,
}

impl Default for LineId {
    /// A random one.
    fn default() -> LineId {
        // Its keys are random.
        let half = || u128::from(RandomState::new().hash_one(std::process::id()));
        LineId { id: half() << 64 | half(), last: AtomicU64::new(0) }
    }
}

impl LineId {
    /// The metadata context to ask for with a connection that replaces all before.
    pub fn next(&self) -> String {
        let number = self.last.fetch_add(1, Ordering::SeqCst) + 1;
        Lineage { id: self.id, number }.to_string()
    }

    /// The metadata context to ask for with a connection beside the last one, which it does not
    /// replace.
    pub fn beside(&self) -> String {
        Lineage { id: self.id, number: self.last.load(Ordering::SeqCst) }.to_string()
    }
}

/// Connects again: tries twice to reach the server, and for ten seconds if it is busy with what an
/// earlier connection sent.
///
/// # Errors
/// Of the last try.
pub async fn connect_again<T, F>(open: impl Fn() -> F) -> Result<T, ClientError>
where
    F: Future<Output = Result<T, ClientError>>,
{
    let (began, mut tried) = (Instant::now(), false);
    loop {
        match open().await {
            Err(ClientError::Lost(_)) if !std::mem::replace(&mut tried, true) => {}
            Err(ClientError::Busy(_)) if began.elapsed() < BUSY_MAX => {}
            other => return other,
        }
        tokio::time::sleep(RETRY_PAUSE).await;
    }
}
