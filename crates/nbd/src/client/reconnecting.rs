//! A series of connections to one export: a lost connection is replaced by a new one, and the
//! events at which changes may have been lost are counted.
//!
//! A server that disappears may lose what it had answered and not made durable. So a connection
//! that ends with such changes counts as a *loss*. The end of the next connection is a loss, too,
//! if no FLUSH has succeeded in between, because changes that survived the first loss may be lost
//! then. Users compare [`ReconnectingClient::losses`] with an earlier value. They are also called
//! at each loss, and before anything is sent over a new connection.
//!
//! Not here: who is told of a loss, and how users react to it; that differs between users.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::channel::Channel;
use super::{Client, ClientError};
use crate::generation::ConnectionGeneration;
use crate::service::Failure;

/// Pause before a second attempt to reconnect.
const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// Longest time that reconnecting waits for a server that is busy with an earlier connection's
/// requests.
const BUSY_MAX: Duration = Duration::from_secs(10);

/// Pause between two looks whether all is answered over a connection that is to be replaced.
const ANSWERED_PAUSE: Duration = Duration::from_millis(1);

/// Called at each loss and for each new connection; must not block.
pub type OnLoss = Arc<dyn Fn() + Send + Sync>;

/// A series of connections to one export.
pub struct ReconnectingClient {
    /// The name in log messages.
    name: String,
    now: tokio::sync::Mutex<Now>,
    /// Number of the connection in `now`.
    current: AtomicU64,
    losses: AtomicU64,
    on_loss: Mutex<Vec<OnLoss>>,
}

/// The current connection.
struct Now {
    channel: Channel,
    /// Time and error of the last failed attempt to reconnect.
    failed: Option<(Instant, ClientError)>,
}

impl ReconnectingClient {
    /// A line whose first connection is `client`. `name` appears in logs.
    pub fn new(name: String, client: Client) -> ReconnectingClient {
        ReconnectingClient::over(name, Channel::new(client, false))
    }

    /// A line over a new connection, for a user that may have made changes in an earlier process.
    /// These may be lost until the first FLUSH succeeds.
    pub fn resumed(name: String, client: Client) -> ReconnectingClient {
        ReconnectingClient::over(name, Channel::new(client, true))
    }

    fn over(name: String, channel: Channel) -> ReconnectingClient {
        let now = Now { channel, failed: None };
        ReconnectingClient {
            name,
            now: tokio::sync::Mutex::new(now),
            current: AtomicU64::new(0),
            losses: AtomicU64::new(0),
            on_loss: Mutex::default(),
        }
    }

    /// The current connection; if it was lost, a new one made by `connect`. Callers that waited
    /// while an attempt failed do not try again, so many requests for an absent server fail
    /// together.
    ///
    /// # Errors
    /// There is no connection, and none can be made.
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
                // This order ensures that a late change of the old connection is either seen here,
                // or sees the new number.
                self.current.store(number, Ordering::SeqCst);
                tracing::warn!("{}: connected again", self.name);
                if now.channel.has_unflushed() {
                    self.count_loss("the connection was lost");
                } else {
                    // A failed change may have been visible, and may now be undone.
                    self.call_users();
                }
                let channel = now.channel.over(client, number);
                *now = Now { channel, failed: None };
                Ok(now.channel.clone())
            }
            Err(error) => {
                if now.failed.is_none() {
                    tracing::debug!("{}: {error}", self.name);
                }
                now.failed = Some((Instant::now(), error.clone()));
                Err(error)
            }
        }
    }

    /// Whether the current connection is lost, and nobody is replacing it now.
    pub fn is_lost(&self) -> bool {
        self.now.try_lock().is_ok_and(|now| now.channel.client.is_lost())
    }

    /// Replaces a working connection, when all that was asked over it is answered: a FLUSH on the
    /// new connection need not cover changes on the old one, so the old one is flushed first.
    /// `number` is its [number](Channel::number).
    ///
    /// # Errors
    /// It was lost meanwhile, something is not answered within ten seconds, or the FLUSH failed.
    pub async fn replace(&self, number: u64, client: Client) -> Result<(), ClientError> {
        // Nobody begins anything over it meanwhile.
        let mut now = self.now.lock().await;
        let began = Instant::now();
        while now.channel.is_shared() && !now.channel.client.is_lost() {
            if began.elapsed() > BUSY_MAX {
                let why = "what was asked over the earlier connection is not answered";
                return Err(ClientError::Busy(why.to_owned()));
            }
            tokio::time::sleep(ANSWERED_PAUSE).await;
        }
        if now.channel.number != number || now.channel.client.is_lost() {
            return Err(ClientError::Lost("it ended while another was made".to_owned()));
        }
        self.flush(&now.channel).await?;
        now.channel = now.channel.over(client, number);
        Ok(())
    }

    /// Processes the answer to a change: a `durable` change that was not requested with FUA is
    /// followed by a FLUSH.
    ///
    /// # Errors
    /// The change or the FLUSH failed.
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

    /// Notes a change that was answered on a channel and is not durable yet.
    pub fn changed(&self, channel: &Channel) {
        channel.add_unflushed();
        // The next connection may have been made without knowing about this change.
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

    /// A FLUSH or a change with FUA failed. If the server itself reports the error, it may have
    /// lost earlier answered changes: a server whose own store is a server reports losses in this
    /// way.
    fn note_failure(&self, channel: &Channel, error: &ClientError) {
        let is_failure = matches!(error, ClientError::Server { failure: Failure::Io, .. });
        if is_failure && channel.has_unflushed() {
            self.count_loss(&format!("the server cannot make durable what it has ({error})"));
        }
    }

    /// Number of events so far at which answered changes that no FLUSH had covered may have been
    /// lost.
    pub fn losses(&self) -> u64 {
        self.losses.load(Ordering::SeqCst)
    }

    /// Registers a function that is called at each loss, after [`losses`](Self::losses) has
    /// increased, and for each new connection, before anything is sent over it.
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

/// The identity by which a server recognises the connections of a line, and the newest of them; see
/// `generation.rs`. A server that does not support it ignores it.
#[derive(Debug)]
pub struct ReconnectId {
    id: u128,
    last: AtomicU64,
}

impl Default for ReconnectId {
    /// A random identity.
    fn default() -> ReconnectId {
        // Every `RandomState` has random keys.
        let half = || u128::from(RandomState::new().hash_one(std::process::id()));
        ReconnectId { id: half() << 64 | half(), last: AtomicU64::new(0) }
    }
}

impl ReconnectId {
    /// The metadata context to request for a connection that replaces all earlier ones.
    pub fn next(&self) -> String {
        let number = self.last.fetch_add(1, Ordering::SeqCst) + 1;
        ConnectionGeneration { id: self.id, number }.to_string()
    }

    /// The metadata context to request for a second connection that does not replace the last one.
    pub fn beside(&self) -> String {
        ConnectionGeneration { id: self.id, number: self.last.load(Ordering::SeqCst) }.to_string()
    }
}

/// Reconnects: tries twice to reach the server, and for ten seconds if it is busy with requests of
/// an earlier connection.
///
/// # Errors
/// The error of the last attempt.
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
