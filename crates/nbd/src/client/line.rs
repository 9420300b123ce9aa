//! The way to an export that outlives its connections: a lost one is made again, and what may have
//! been lost with it is not forgotten.
//!
//! A server that went away may have lost what it had answered and not made durable. So the first
//! FLUSH after a connection was lost with such changes is in doubt, and has to fail, as after a
//! failed `fdatasync`: its caller must write again what it has, or give up.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::channel::Channel;
use super::{Client, ClientError};

/// One connection after another to the same export.
#[derive(Debug)]
pub struct Line {
    /// For logs.
    name: String,
    now: tokio::sync::Mutex<Now>,
    doubt: Mutex<Doubt>,
}

/// The way to the export as it is now.
#[derive(Debug)]
struct Now {
    channel: Channel,
    /// When connecting again failed last, and why.
    failed: Option<(Instant, ClientError)>,
}

/// Whether answered changes went with a connection.
#[derive(Debug, Default)]
struct Doubt {
    /// They may have, and no FLUSH has said so yet.
    open: bool,
    /// When a FLUSH said so last: those that had come by then say it too.
    told: Option<Instant>,
}

impl Line {
    /// Over a connection that was just made. `name` is for logs.
    pub fn new(name: String, client: Client) -> Line {
        let now = Now { channel: Channel::new(client), failed: None };
        Line { name, now: tokio::sync::Mutex::new(now), doubt: Mutex::default() }
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
                if now.channel.has_unflushed() {
                    self.doubt().open = true;
                }
                tracing::warn!("{}: connected again", self.name);
                *now = Now { channel: Channel::new(client), failed: None };
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
        now.channel.flush().await?;
        now.channel = now.channel.over(client);
        Ok(())
    }

    /// A change was answered on a channel.
    pub fn changed(&self, channel: &Channel) {
        channel.add_unflushed();
        // The next connection may have been made already without knowing of this one.
        if channel.client.is_lost() {
            self.doubt().open = true;
        }
    }

    /// Whether a FLUSH that came at that time has to fail, since a connection was lost with changes
    /// that were answered and not flushed: to be asked once it has its channel.
    pub fn is_in_doubt(&self, arrived: Instant) -> bool {
        self.doubt().holds(arrived)
    }

    fn doubt(&self) -> MutexGuard<'_, Doubt> {
        self.doubt.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Doubt {
    fn holds(&mut self, arrived: Instant) -> bool {
        if self.open {
            *self = Doubt { open: false, told: Some(Instant::now()) };
            return true;
        }
        self.told.is_some_and(|told| arrived <= told)
    }
}
