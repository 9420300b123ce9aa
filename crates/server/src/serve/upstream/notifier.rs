//! What a volume sends, beside requests, to the server that is its store: hints about what leaves
//! its cache (`hint_sender.rs`), or the messages of a level of a scheme (`level_sender.rs`).

use std::ops::Range;
use std::sync::Arc;

use undercroft_hints::{LevelLink, Mailbox, MessageAnswer};
use undercroft_nbd::{Client, ClientError};

use super::hint_sender::HintSender;
use super::level_sender::LevelSender;

/// The sender; the connection calls it before each request.
#[derive(Clone)]
pub(in crate::serve) enum Notifier {
    /// Hints about the blocks that leave the cache.
    Hints(Arc<HintSender>),
    /// The messages of one level of a scheme to the next.
    Level(Arc<LevelSender>),
}

/// What a new connection can be used for.
pub(super) enum Opened {
    Mailbox(Result<Mailbox, ClientError>),
    Link(Result<LevelLink, ClientError>),
}

impl Notifier {
    /// The metadata context to request when opening a connection.
    pub(super) fn context(&self) -> String {
        match self {
            Self::Hints(sender) => sender.context(),
            Self::Level(sender) => sender.context(),
        }
    }

    /// Checks what a new connection can be used for.
    pub(super) fn open(&self, client: Client) -> Opened {
        match self {
            Self::Hints(sender) => Opened::Mailbox(sender.mailbox(client)),
            Self::Level(sender) => Opened::Link(sender.link(client)),
        }
    }

    /// Why the connection cannot be used, with advice.
    pub(super) fn refused(&self, opened: &Opened) -> Option<String> {
        match (self, opened) {
            (Self::Hints(sender), Opened::Mailbox(Err(error))) => Some(format!(
                "report={}: {error}; the volume there needs placement=auto, eviction or gl, and \
                 blocks of the same size",
                sender.how()
            )),
            (Self::Level(sender), Opened::Link(Err(error))) => {
                let scheme = sender.scheme();
                Some(format!(
                    "placement={scheme}: {error}; the volume there needs placement={scheme} too, \
                     or say report=nothing here, and this is the lowest level"
                ))
            }
            _ => None,
        }
    }

    /// Starts to send what no request takes along; call it once.
    pub(super) fn start(&self) {
        match self {
            Self::Hints(sender) => sender.start(),
            Self::Level(sender) => sender.start(),
        }
    }

    /// Replaces the last connection by a new one.
    pub(super) fn attach(&self, store: &str, opened: Opened) {
        match (self, opened) {
            (Self::Hints(sender), Opened::Mailbox(opened)) => sender.attach(store, opened),
            (Self::Level(sender), Opened::Link(opened)) => sender.attach(store, opened),
            _ => {}
        }
    }

    /// Sends what must precede a request for these bytes, which must be sent next.
    pub(super) async fn before(&self, bytes: Range<u64>, changes: bool) -> Option<MessageAnswer> {
        match self {
            Self::Hints(sender) => sender.before(bytes, changes).await,
            Self::Level(sender) => sender.before(bytes).await,
        }
    }

    /// Waits for the answer to that message.
    pub(super) async fn heard(&self, answer: Option<MessageAnswer>) {
        match self {
            Self::Hints(sender) => sender.heard(answer).await,
            Self::Level(_) => {
                // Lost answers are counted where they are awaited.
                if let Some(answer) = answer {
                    let _ = answer.await;
                }
            }
        }
    }
}
