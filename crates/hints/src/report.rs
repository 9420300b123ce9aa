//! How much a cache tells the server below it about its evictions.
//!
//! Not here: the queue of hints (`queue.rs`), the connection (`mailbox.rs`).

use crate::grant::Abilities;

/// What a server is told about the blocks that leave the cache above it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Report {
    /// Nothing; this works with any NBD server.
    #[default]
    Nothing,
    /// Which blocks left, and when.
    Evictions,
    /// Which blocks left, when, and their data.
    Demotions,
    /// No single blocks, but summaries of the cache's content.
    Digest,
}

impl Report {
    /// The abilities that the server must grant for it.
    pub fn needs(self) -> Abilities {
        let none = Abilities::default();
        match self {
            Report::Nothing => none,
            Report::Evictions => Abilities { evict: true, ..none },
            Report::Demotions => Abilities { evict: true, demote: true, ..none },
            Report::Digest => Abilities { digest: true, ..none },
        }
    }
}

impl std::str::FromStr for Report {
    type Err = String;

    fn from_str(text: &str) -> Result<Report, String> {
        let all = [Report::Nothing, Report::Evictions, Report::Demotions, Report::Digest];
        let found = all.into_iter().find(|report| report.to_string() == text);
        found.ok_or_else(|| "expected nothing, evictions, demotions or digest".to_owned())
    }
}

/// The text form that options use.
impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Report::Nothing => "nothing",
            Report::Evictions => "evictions",
            Report::Demotions => "demotions",
            Report::Digest => "digest",
        })
    }
}
