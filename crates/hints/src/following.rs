//! The client's side of a content-aware cache: what it is told of the server's cache, taken out of
//! records, and what it publishes of its own, put into records. The caching client and the replay
//! share this.
//!
//! Not here: what a cache does with what it knows (`undercroft_cache::content`).

use undercroft_cache::Level;
use undercroft_cache::content::Publisher;
use undercroft_cache::policy::{Awareness, Knows};

use crate::filter::{Assembly, publication_hints};
use crate::parse::Told;
use crate::record::{Follow, Following, Hint};

/// Bits of a filter at most: 64 MiB of them.
const FILTER_BITS_MAX: u32 = 1 << 29;

impl Follow {
    /// How a cache of `capacity` blocks asks to be told, so that its policy knows of the server's
    /// cache in the way that `awareness` names.
    pub fn new(awareness: &Awareness, capacity: u32) -> Follow {
        let what = match awareness.knows {
            Knows::Exact => Following::Blocks,
            Knows::Bloom => Following::Digest,
            Knows::Emulation => Following::Nothing,
        };
        Follow {
            what,
            filter_bits: awareness.filter_bits as u8,
            hashes: awareness.hashes as u8,
            publish_ppm: (awareness.publish * 1e6).round() as u32,
            capacity_blocks: capacity.into(),
        }
    }
}

/// Takes in what a server tells of its cache.
#[derive(Debug, Default)]
pub struct ContentReader {
    assembly: Assembly,
    /// Answers taken in.
    pub answers: u64,
    /// Bytes of what they said.
    pub bytes: u64,
}

impl ContentReader {
    /// Bytes that are asked for where no more are known to be needed.
    pub const ASKED_BYTES: usize = 4096;

    /// Another server may tell from now on.
    pub fn begin_anew(&mut self) {
        self.assembly = Assembly::default();
    }

    /// Takes an answer in: whether nothing was lost. If something was, following is to be begun
    /// anew.
    pub fn take(&mut self, told: &Told, level: &mut Level) -> bool {
        self.answers += 1;
        self.bytes += told.bytes as u64;
        let mut is_complete = true;
        for hint in &told.hints {
            match hint {
                Hint::Evict { runs, .. } => {
                    runs.iter().flat_map(|r| r.blocks()).for_each(|b| level.told_below(b, false));
                }
                Hint::Hold(runs) => {
                    runs.iter().flat_map(|r| r.blocks()).for_each(|b| level.told_below(b, true));
                }
                Hint::Follow(_) => level.lost_below(),
                other => {
                    if let Some(digest) = self.assembly.take(other, FILTER_BITS_MAX) {
                        is_complete &= level.told_content(&digest).is_ok();
                    }
                }
            }
        }
        is_complete
    }
}

/// A client's own summary, published when enough has come and gone.
pub struct ContentPublisher {
    publisher: Publisher,
    /// Publications so far.
    pub published: u64,
    /// Bytes of their records.
    pub bytes: u64,
}

impl ContentPublisher {
    /// Of a cache of so many blocks that is empty.
    pub fn new(awareness: &Awareness, capacity: u32) -> Self {
        let Awareness { filter_bits, hashes, publish, .. } = *awareness;
        let publisher = Publisher::new(filter_bits, hashes, capacity, publish);
        Self { publisher, published: 0, bytes: 0 }
    }

    /// A block came, or went.
    pub fn changed(&mut self, block: u64, came: bool) {
        if came { self.publisher.came(block) } else { self.publisher.went(block) }
    }

    /// The server did not take what was sent: the next one is whole.
    pub fn refused(&mut self) {
        self.publisher.ask_for_whole();
    }

    /// The records of a summary, if one is due. `content`: all that is in the cache.
    pub fn due(&mut self, content: impl FnOnce() -> Vec<u64>) -> Vec<Hint> {
        if !self.publisher.is_due() {
            return Vec::new();
        }
        let publication = self.publisher.publish(content);
        let hints = publication_hints(self.publisher.published().shape(), &publication);
        self.published += 1;
        self.bytes += hints.iter().map(|hint| 20 + hint.data_bytes() as u64).sum::<u64>();
        hints
    }
}
