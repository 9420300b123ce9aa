//! The connection to another server's export. If it is lost it is reopened, provided that the
//! export is still compatible with the one opened first: by the next request, or by a task of its
//! own while there is none, so that it is known whether the server is there. Not here: the store.

use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
use std::time::Duration;

use undercroft_hints::{Mailbox, MessageAnswer};
use undercroft_nbd::wire::{READ_ONLY, SEND_FAST_ZERO};
use undercroft_nbd::{
    Channel, Client, ClientError, ClientOptions, ReconnectId, ReconnectingClient, Uri,
    connect_again,
};
use undercroft_store::{AWAY, Absence, Facts, OnLoss};

use super::hint_sender::HintSender;
use super::patience::{Patience, SharedPatience};
use crate::clock;
use crate::lock::sleep_lock;

/// Time between two looks at an idle connection, and between two attempts to replace a lost one.
const LOOK: Duration = Duration::from_millis(500);
const TRY: Duration = Duration::from_secs(1);

/// The state that requests share; they outlive the call that started them.
pub(super) struct Link {
    uri: Uri,
    options: ClientOptions,
    /// The identity by which the server recognises its successive connections.
    id: ReconnectId,
    line: ReconnectingClient,
    patience: SharedPatience,
    /// Whether the last attempt to connect failed, and the first of those that failed since there
    /// was a connection.
    is_absent: AtomicBool,
    absence: Mutex<Option<Absence>>,
    facts: RwLock<Facts>,
    /// What is told about the cache in front, if anything.
    sender: Option<Arc<HintSender>>,
}

/// A new connection.
struct Dialled {
    client: Client,
    /// Bytes of the export. The session's own size includes the window.
    size: u64,
    /// With a sender of hints: the mailbox, if the server accepts its messages.
    mailbox: Option<Result<Mailbox, ClientError>>,
}

impl Link {
    /// Connects for the first time.
    pub(super) async fn open(
        uri: Uri,
        options: ClientOptions,
        name: String,
        read_only: bool,
        waits: Duration,
        sender: Option<Arc<HintSender>>,
    ) -> io::Result<Link> {
        let id = ReconnectId::default();
        let dialled = dial(&uri, &options, id.next(), sender.as_ref()).await;
        let dialled = dialled.map_err(|error| {
            let kind = if error.is_away() { AWAY } else { ErrorKind::Other };
            io::Error::new(kind, format!("{name}: {error}"))
        })?;
        if let Some(sender) = &sender {
            if let Some(Err(error)) = &dialled.mailbox {
                let why = sender.explain(error);
                return Err(io::Error::new(ErrorKind::InvalidInput, format!("{name}: {why}")));
            }
            sender.start();
        }
        let Dialled { client, size, mailbox } = dialled;
        attach(sender.as_ref(), &name, mailbox);
        let remote = client.remote();
        let facts = Facts {
            size,
            alignment: remote.info.min_block.max(1),
            read_only: read_only || remote.offers(READ_ONLY),
            zeroes_fast: remote.offers(SEND_FAST_ZERO),
            name: name.clone(),
        };
        let line = ReconnectingClient::resumed(name, client);
        Ok(Link {
            uri,
            options,
            id,
            line,
            patience: SharedPatience::new(waits),
            is_absent: AtomicBool::new(false),
            absence: Mutex::default(),
            facts: RwLock::new(facts),
            sender,
        })
    }

    pub(super) fn facts(&self) -> Facts {
        self.facts.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Adds the store's name to an error.
    pub(super) fn failed(&self, error: ClientError) -> io::Error {
        let error = io::Error::from(error);
        io::Error::new(error.kind(), format!("{}: {error}", self.facts().name))
    }

    /// The current connection, or a new one if it was lost.
    ///
    /// # Errors
    /// There is no connection, and none can be made.
    pub(super) async fn channel(&self) -> Result<Channel, ClientError> {
        let channel = self.line.channel(self.connect_again()).await;
        match &channel {
            Ok(_) if !self.is_absent.load(Ordering::SeqCst) => {}
            Ok(_) => {
                let mut absence = sleep_lock(&self.absence);
                *absence = None;
                self.is_absent.store(false, Ordering::SeqCst);
            }
            Err(error) => {
                let mut absence = sleep_lock(&self.absence);
                let since = absence.as_ref().map_or_else(clock::now, |absence| absence.since);
                let (name, mut why) = (self.facts().name, error.to_string());
                if !why.contains(&name) {
                    why = format!("{name}: {why}");
                }
                *absence = Some(Absence { since, why, is_final: !error.is_away() });
                self.is_absent.store(true, Ordering::SeqCst);
            }
        }
        channel
    }

    /// See [`Store::absence`](undercroft_store::Store::absence).
    pub(super) fn absence(&self) -> Option<Absence> {
        sleep_lock(&self.absence).clone()
    }

    /// The patience of a request that begins now.
    pub(super) fn patience(&self) -> Patience<'_> {
        self.patience.of_request()
    }

    /// Makes a request again and again, until it is answered or its patience ends.
    pub(super) async fn until_answered<T, A>(&self, attempt: impl Fn() -> A) -> io::Result<T>
    where
        A: Future<Output = Result<T, ClientError>>,
    {
        let mut patience = self.patience();
        loop {
            if let Some(result) = patience.accept(attempt().await).await {
                return result.map_err(|error| self.failed(error));
            }
        }
    }

    async fn connect_again(&self) -> Result<Client, ClientError> {
        let again = connect_again(|| self.dial(self.id.next())).await?;
        self.check(&again)?;
        attach(self.sender.as_ref(), &self.facts().name, again.mailbox);
        Ok(again.client)
    }

    async fn dial(&self, line: String) -> Result<Dialled, ClientError> {
        dial(&self.uri, &self.options, line, self.sender.as_ref()).await
    }

    /// Sends what must precede a request for a range, which must be sent next.
    pub(super) async fn before(
        &self,
        offset: u64,
        length: u64,
        changes: bool,
    ) -> Option<MessageAnswer> {
        self.sender.as_ref()?.before(offset..offset + length, changes).await
    }

    /// Waits for the answer to that message.
    pub(super) async fn heard(&self, answer: Option<MessageAnswer>) {
        if let Some(sender) = &self.sender {
            sender.heard(answer).await;
        }
    }

    /// Checks that a reopened export is compatible with the one opened first.
    fn check(&self, again: &Dialled) -> Result<(), ClientError> {
        let (facts, remote) = (self.facts(), again.client.remote());
        let refuse = |what: String| Err(ClientError::Refused(what));
        if again.size < facts.size {
            return refuse(format!(
                "the export has shrunk from {} to {} bytes",
                facts.size, again.size
            ));
        }
        if remote.info.min_block.max(1) > facts.alignment {
            return refuse(format!(
                "the export takes units of {} bytes now, it was {}",
                remote.info.min_block, facts.alignment
            ));
        }
        if !facts.read_only && remote.offers(READ_ONLY) {
            return refuse("the export is read-only now".to_owned());
        }
        Ok(())
    }

    /// Processes the answer to a change; see [`ReconnectingClient::settle`].
    pub(super) async fn settle(
        &self,
        channel: &Channel,
        durable: bool,
        answer: Result<(), ClientError>,
    ) -> Result<(), ClientError> {
        self.line.settle(channel, durable, answer).await
    }

    /// Makes durable what was answered before.
    pub(super) async fn flush(&self) -> io::Result<()> {
        self.until_answered(|| async { self.line.flush(&self.channel().await?).await }).await
    }

    /// See [`Store::losses`](undercroft_store::Store::losses).
    pub(super) fn losses(&self) -> u64 {
        self.line.losses()
    }

    /// See [`Store::on_loss`](undercroft_store::Store::on_loss).
    pub(super) fn on_loss(&self, call: OnLoss) {
        self.line.on_loss(call);
    }

    /// Reads the export's size again, over a new connection, since a size is told only when a
    /// connection is opened. Returns the size in bytes.
    pub(super) async fn grow(&self) -> io::Result<u64> {
        let number = self.channel().await.map_err(|error| self.failed(error))?.number();
        // A second connection; the first one continues until this replaces it.
        let again = self.dial(self.id.beside()).await.map_err(|error| self.failed(error))?;
        let size = again.size;
        if size <= self.facts().size {
            return Ok(self.facts().size);
        }
        self.check(&again).map_err(|error| self.failed(error))?;
        self.line.replace(number, again.client).await.map_err(|error| self.failed(error))?;
        attach(self.sender.as_ref(), &self.facts().name, again.mailbox);
        self.facts.write().unwrap_or_else(PoisonError::into_inner).size = size;
        Ok(size)
    }
}

/// The background task of a link, which ends with it: replaces a lost connection though nothing is
/// asked.
pub(super) async fn keep(link: Weak<Link>) {
    let mut pause = LOOK;
    loop {
        tokio::time::sleep(pause).await;
        let Some(link) = link.upgrade() else { return };
        let is_lost = link.is_absent.load(Ordering::SeqCst) || link.line.is_lost();
        let is_there = !is_lost || link.channel().await.is_ok();
        pause = if is_there { LOOK } else { TRY };
    }
}

/// Connects, and opts in if there is a sender of hints.
async fn dial(
    uri: &Uri,
    options: &ClientOptions,
    line: String,
    sender: Option<&Arc<HintSender>>,
) -> Result<Dialled, ClientError> {
    let plain = options;
    let mut options = options.clone();
    options.contexts.push(line);
    let Some(sender) = sender else {
        let client = Client::connect(uri, &options).await?;
        let size = client.remote().info.size;
        return Ok(Dialled { client, size, mailbox: None });
    };
    let size = Client::describe(uri, plain).await?.info.size;
    options.contexts.push(sender.context());
    let client = Client::connect(uri, &options).await?;
    let mailbox = Some(sender.mailbox(client.clone()));
    Ok(Dialled { client, size, mailbox })
}

fn attach(
    sender: Option<&Arc<HintSender>>,
    name: &str,
    mailbox: Option<Result<Mailbox, ClientError>>,
) {
    if let (Some(sender), Some(mailbox)) = (sender, mailbox) {
        sender.attach(name, mailbox);
    }
}
