//! What a client tells the server of its own cache: hints are queued, and go in front of requests,
//! many in one message. The replay and the caching client share this.
//!
//! Not here: the format (`undercroft_nbd::hint`), and which blocks leave a cache.

mod mailbox;
mod queue;

use undercroft_nbd::coop::Abilities;

pub(crate) use mailbox::{Answer, Away, Mailbox, client_id};
pub(crate) use queue::HintQueue;

/// What the server is told of the blocks that leave the client's cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Report {
    /// Nothing: any NBD server will do.
    #[default]
    Nothing,
    /// Which blocks, and when.
    Evictions,
    /// The same, and their data.
    Demotions,
}

impl Report {
    /// What the server must grant for it.
    pub(crate) fn needs(self) -> Abilities {
        let none = Abilities::default();
        match self {
            Report::Nothing => none,
            Report::Evictions => Abilities { evict: true, ..none },
            Report::Demotions => Abilities { evict: true, demote: true, ..none },
        }
    }
}

impl std::str::FromStr for Report {
    type Err = String;

    fn from_str(text: &str) -> Result<Report, String> {
        match text {
            "nothing" => Ok(Report::Nothing),
            "evictions" => Ok(Report::Evictions),
            "demotions" => Ok(Report::Demotions),
            _ => Err("expected nothing, evictions or demotions".to_owned()),
        }
    }
}
