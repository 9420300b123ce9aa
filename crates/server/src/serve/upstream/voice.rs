//! What a volume says to the server that is its store, beside requests: nothing, what leaves its
//! cache (`tell.rs`), or what one level of a scheme says to the next (`moves.rs`).

use std::ops::Range;
use std::sync::Arc;

use undercroft_nbd::report::{Answer, LevelLink, Mailbox};
use undercroft_nbd::{Client, ClientError};

use super::moves::Mover;
use super::tell::Teller;

/// Who speaks.
#[derive(Clone)]
pub(in crate::serve) enum Voice {
    Tells(Arc<Teller>),
    Moves(Arc<Mover>),
}

/// What a new connection is good for.
pub(super) enum Opened {
    Mailbox(Result<Mailbox, ClientError>),
    Link(Result<LevelLink, ClientError>),
}

impl Voice {
    /// The context that a new connection is to be opened with.
    pub(super) fn context(&self) -> String {
        match self {
            Self::Tells(teller) => teller.context(),
            Self::Moves(mover) => mover.context(),
        }
    }

    /// Looks what a new connection is good for.
    pub(super) fn open(&self, client: Client) -> Opened {
        match self {
            Self::Tells(teller) => Opened::Mailbox(teller.mailbox(client)),
            Self::Moves(mover) => Opened::Link(mover.link(client)),
        }
    }

    /// Why it is good for nothing, and what would help.
    pub(super) fn refused(&self, opened: &Opened) -> Option<String> {
        match (self, opened) {
            (Self::Tells(teller), Opened::Mailbox(Err(error))) => Some(format!(
                "report={}: {error}; the volume there needs placement=eviction or gl, and blocks \
                 of the same size",
                teller.how()
            )),
            (Self::Moves(mover), Opened::Link(Err(error))) => {
                let scheme = mover.scheme();
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
            Self::Tells(teller) => teller.start(),
            Self::Moves(mover) => mover.start(),
        }
    }

    /// A new connection takes the place of the last one.
    pub(super) fn attach(&self, store: &str, opened: Opened) {
        match (self, opened) {
            (Self::Tells(teller), Opened::Mailbox(opened)) => teller.attach(store, opened),
            (Self::Moves(mover), Opened::Link(opened)) => mover.attach(store, opened),
            _ => {}
        }
    }

    /// Says what there is to say before a request for these bytes, which goes next.
    pub(super) async fn before(&self, bytes: Range<u64>, changes: bool) -> Option<Answer> {
        match self {
            Self::Tells(teller) => teller.before(bytes, changes).await,
            Self::Moves(mover) => mover.before(bytes).await,
        }
    }

    /// Waits for the answer to that.
    pub(super) async fn heard(&self, answer: Option<Answer>) {
        match self {
            Self::Tells(teller) => teller.heard(answer).await,
            Self::Moves(_) => {
                // An answer that is lost is counted where it was waited for.
                if let Some(answer) = answer {
                    let _ = answer.await;
                }
            }
        }
    }
}
