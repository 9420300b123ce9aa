//! One connection after another: how each is opened, and what an operation goes on over.
//!
//! When a connection is lost the operations on it fail, and the next one that comes connects again.
//! From the cache nothing is kept then: the server may have lost what was written and not flushed,
//! and while nobody was connected somebody else may have written. So what is read after that is
//! what the server has. FLUSH says what may be lost (`undercroft_nbd::Line`).

use std::sync::Arc;

use tokio::sync::OwnedRwLockReadGuard;
use undercroft_hints::{Abilities, ClientId, Follow, Mailbox};
use undercroft_nbd::{Channel, Client, ClientError, Uri, connect_again};

use super::{CachedOptions, Shared, Turn};

/// Bytes of a block where no server says it.
const BLOCK_BYTES: u32 = 4096;

/// Most bytes of a request to the server. Longer operations take several.
const REQUEST_BYTES: u64 = 1 << 20;

/// A connection that was just made.
pub(super) struct Session {
    pub(super) client: Client,
    /// Where hints go, if anywhere.
    pub(super) mailbox: Option<Mailbox>,
    pub(super) shape: Shape,
}

/// What an export is like, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) size: u64,
    /// Of a block.
    pub(super) block: u64,
    /// Most of a request, whole blocks.
    pub(super) request: u64,
    /// What requests are multiples of.
    pub(super) unit: u64,
}

impl Session {
    /// Connects, on the runtime that this is called on.
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
        // The session itself is told of the window, too; the volume's size is another.
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
    /// Whether an export can still stand for the one that was opened first.
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

/// An operation under way. Until this is dropped no other connection takes this one's place.
pub(super) struct Operation {
    pub(super) shared: Arc<Shared>,
    pub(super) channel: Channel,
    _running: OwnedRwLockReadGuard<()>,
    /// Its place in the order, where that matters.
    _turn: Option<Turn>,
}

impl Operation {
    /// Begins over a connection that stands, which is made if there is none.
    pub(super) async fn begin(
        shared: Arc<Shared>,
        turn: Option<Turn>,
    ) -> Result<Operation, ClientError> {
        loop {
            let channel = shared.line.channel(shared.connect_again()).await?;
            let running = Arc::clone(&shared.running).read_owned().await;
            // One that stands is the one that the state has, and stays it from here on.
            if !channel.client.is_lost() {
                return Ok(Operation { shared, channel, _running: running, _turn: turn });
            }
        }
    }

    /// A change was answered; `fua`: and is durable.
    pub(super) fn changed(&self, fua: bool) {
        if !fua {
            self.shared.line.changed(&self.channel);
        }
    }
}

impl Shared {
    async fn connect_again(&self) -> Result<Client, ClientError> {
        // What goes on over the lost connection ends soon, and takes nothing over after this.
        let _alone = self.running.write().await;
        // The server may still be busy with what the old connection sent, which must not be taken
        // for this one's word.
        let open = || Session::open(&self.uri, &self.options, ClientId::random(), self.id.next());
        let session = connect_again(open).await?;
        self.shape.check(&session.shape)?;
        let client = session.client.clone();
        self.lock().begin_anew(session)?;
        Ok(client)
    }
}
