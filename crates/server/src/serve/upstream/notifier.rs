//! What a volume sends to the server that is its store beside requests: hints about what leaves its
//! cache (`hint_sender.rs`), or the messages of a scheme's level (`level_sender.rs`).

use std::ops::Range;
use std::sync::Arc;

use undercroft_hints::{LevelLink, Mailbox, MessageAnswer};
use undercroft_nbd::{Client, ClientError};

use super::hint_sender::HintSender;
use super::level_sender::LevelSender;

/// What sends, to which the connection gives each request before it goes.
#[derive(Clone)]
pub(in crate::serve) enum Notifier {
    /// Hints about the blocks that leave the cache.
    Hints(Arc<HintSender>),
    /// The messages of one level of a scheme to the next.
    Level(Arc<LevelSender>),
}

/// What a new connection is good for.
pub(super) enum Opened {
    Mailbox(Result<Mailbox, ClientError>),
    Link(Result<LevelLink, ClientError>),
}

impl Notifier {
    /// The context that a new connection is to be opened with.
    pub(super) fn context(&self) -> String {
        match self {
            Self::Hints(sender) => sender.context(),
            Self::Level(sender) => sender.context(),
        }
    }

    /// Looks what a new connection is good for.
    pub(super) fn open(&self, client: Client) -> Opened {
        match self {
            Self::Hints(sender) => Opened::Mailbox(sender.mailbox(client)),
            Self::Level(sender) => Opened::Link(sender.link(client)),
        }
    }

    /// Why it is good for nothing, and what would help.
    pub(super) fn refused(&self, opened: &Opened) -> Option<String> {
        match (self, opened) {
            (Self::Hints(sender), Opened::Mailbox(Err(error))) => Some(format!(
                "report={}: {error}; the volume there needs placement=eviction or gl, and blocks \
                 of the same size",
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

    /// Begins to send what no request takes along; to be called once.
    pub(super) fn start(&self) {
        match self {
            Self::Hints(sender) => sender.start(),
            Self::Level(sender) => sender.start(),
        }
    }

    /// A new connection takes the place of the last one.
    pub(super) fn attach(&self, store: &str, opened: Opened) {
        match (self, opened) {
            (Self::Hints(sender), Opened::Mailbox(opened)) => sender.attach(store, opened),
            (Self::Level(sender), Opened::Link(opened)) => sender.attach(store, opened),
            _ => {}
        }
    }

    /// Says what there is to say before a request for these bytes, which goes next.
    pub(super) async fn before(&self, bytes: Range<u64>, changes: bool) -> Option<MessageAnswer> {
        match self {
            Self::Hints(sender) => sender.before(bytes, changes).await,
            Self::Level(sender) => sender.before(bytes).await,
        }
    }

    /// Waits for the answer to that.
    pub(super) async fn heard(&self, answer: Option<MessageAnswer>) {
        match self {
            Self::Hints(sender) => sender.heard(answer).await,
            Self::Level(_) => {
                // An answer that is lost is counted where it was waited for.
                if let Some(answer) = answer {
                    let _ = answer.await;
                }
            }
        }
    }
}
