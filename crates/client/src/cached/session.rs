//! Successive connections to the server: how each is opened, and which one an operation uses.
//!
//! When a connection is lost, its operations fail, and the next operation reconnects. The cache is
//! then emptied: the server may have lost writes that were not flushed, and somebody else may have
//! written meanwhile. So later reads return what the server has. FLUSH reports what may be lost
//! (`undercroft_nbd::ReconnectingClient`). The same holds after a FLUSH, or a change with FUA, that
//! the server answers with EIO: it may be a client itself, and its server may have lost something.

use std::sync::Arc;

use tokio::sync::OwnedRwLockReadGuard;
use undercroft_hints::{Abilities, ClientId, Follow, Mailbox};
use undercroft_nbd::{Channel, Client, ClientError, Failure, Uri, connect_again};

use super::{CachedOptions, Shared, Turn};

/// Bytes of a block if the server does not tell.
const BLOCK_BYTES: u32 = 4096;

/// Most bytes of a request to the server. Longer operations are split.
const REQUEST_BYTES: u64 = 1 << 20;

/// A new connection.
pub(super) struct Session {
    pub(super) client: Client,
    /// The mailbox, if the client sends hints.
    pub(super) mailbox: Option<Mailbox>,
    pub(super) shape: Shape,
}

/// The sizes of an export, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) size: u64,
    /// Bytes of a block.
    pub(super) block: u64,
    /// Most bytes of a request; a multiple of the block size.
    pub(super) request: u64,
    /// Requests are multiples of this.
    pub(super) unit: u64,
}

impl Session {
    /// Connects, on the current runtime.
    pub(super) async fn open(
        uri: &Uri,
        options: &CachedOptions,
        id: ClientId,
        line: String,
    ) -> Result<Session, ClientError> {
        let needs = options.needs();
        let mut asking = options.options.clone();
        asking.contexts.push(line);
        if needs == Abilities::default() {
            let client = Client::connect(uri, &asking).await?;
            let info = &client.remote().info;
            let (size, preferred) = (info.size, info.preferred_block);
            let fits = preferred.is_power_of_two() && (512..=64 << 10).contains(&preferred);
            let block = if fits { preferred } else { BLOCK_BYTES }.max(info.min_block);
            return Session::over(client, None, size, block);
        }
        // The session's own size includes the window, so ask for the volume's size separately.
        let size = Client::describe(uri, &options.options).await?.info.size;
        let mut mailbox = Mailbox::asking_for(uri, &asking, needs, id).await?;
        if needs.follow {
            mailbox.follow(Follow::new(&options.awareness(), options.blocks.max(1))).await?;
        }
        let block = mailbox.grant().block_bytes;
        Session::over(mailbox.client().clone(), Some(mailbox), size, block)
    }

    fn over(
        client: Client,
        mailbox: Option<Mailbox>,
        size: u64,
        block: u32,
    ) -> Result<Session, ClientError> {
        let (info, block) = (&client.remote().info, u64::from(block));
        let (unit, most) = (info.min_block.into(), u64::from(info.max_block).min(REQUEST_BYTES));
        if block > most || block % unit != 0 {
            let text = format!(
                "blocks are of {block} bytes, requests of {most} at most, in units of {unit}"
            );
            return Err(ClientError::Refused(text));
        }
        let shape = Shape { size, block, request: most - most % block, unit };
        Ok(Session { client, mailbox, shape })
    }
}

impl Shape {
    /// Checks that a reopened export is compatible with the one opened first.
    fn check(&self, now: &Shape) -> Result<(), ClientError> {
        let fits = now.size >= self.size
            && now.block == self.block
            && now.request >= self.request
            && now.unit <= self.unit;
        if fits {
            return Ok(());
        }
        let text = format!("the export is another one: it was {self}, now it is {now}");
        Err(ClientError::Refused(text))
    }
}

impl std::fmt::Display for Shape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Shape { size, block, request, unit } = self;
        write!(f, "{size} bytes in blocks of {block}, requests of {unit} to {request}")
    }
}

/// A running operation. Until it is dropped, its connection is not replaced.
pub(super) struct Operation {
    pub(super) shared: Arc<Shared>,
    pub(super) channel: Channel,
    _running: OwnedRwLockReadGuard<()>,
    /// Its place in the order, if it has one.
    _turn: Option<Turn>,
}

impl Operation {
    /// Starts on the current connection, or on a new one if it is lost.
    pub(super) async fn begin(
        shared: Arc<Shared>,
        turn: Option<Turn>,
    ) -> Result<Operation, ClientError> {
        loop {
            let channel = shared.line.channel(shared.connect_again()).await?;
            let running = Arc::clone(&shared.running).read_owned().await;
            // While `running` is held, a connection that is not lost is the one that the state
            // uses.
            if !channel.client.is_lost() {
                return Ok(Operation { shared, channel, _running: running, _turn: turn });
            }
        }
    }

    /// Processes the answer to a change, which with `fua` is durable or has failed.
    ///
    /// # Errors
    /// The change failed.
    pub(super) async fn settle(
        &self,
        fua: bool,
        answer: Result<(), ClientError>,
    ) -> Result<(), ClientError> {
        let settled = self.shared.line.settle(&self.channel, fua, answer).await;
        if fua {
            self.shared.forget_lost(&settled);
        }
        settled
    }
}

impl Shared {
    /// Empties the cache if the server could not make something durable: it may have lost what it
    /// had answered, to this client or to others, and the cache must not keep that.
    pub(super) fn forget_lost(&self, ended: &Result<(), ClientError>) {
        if let Err(ClientError::Server { failure: Failure::Io, .. }) = ended {
            let mut state = self.lock();
            state.forget_all();
            state.keep_data(&(0..u64::MAX));
        }
    }

    async fn connect_again(&self) -> Result<Client, ClientError> {
        // Operations on the lost connection end soon; after this they no longer touch the cache.
        let _alone = self.running.write().await;
        // A new random id: the server may still process requests of the old connection, and must
        // not mistake them for this one's.
        let open = || Session::open(&self.uri, &self.options, ClientId::random(), self.id.next());
        let session = connect_again(open).await?;
        self.shape.check(&session.shape)?;
        let client = session.client.clone();
        self.lock().begin_anew(session)?;
        Ok(client)
    }
}
