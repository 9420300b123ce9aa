//! What a client is told of the server's cache, taken out of the records: the same for the caching
//! client and for the replay. And what the client itself publishes, put into records.

use bytes::Bytes;
use undercroft_cache::content::{self, Digest, Publication, Publisher, Shape, Upper};
use undercroft_cache::policy::{Awareness, Knows};
use undercroft_nbd::hint::{Assembly, Body, Follow, Following, Hint, Summary, Told};

/// Bits of a filter at most: 64 MiB of them.
const FILTER_BITS_MAX: u32 = 1 << 29;

/// Bytes that are asked for where no more are known to be needed.
pub(crate) const NEWS_BYTES: usize = 4096;

/// How a cache of so many blocks wants to be told, so that its policy knows as it is meant to.
pub(crate) fn follow(awareness: &Awareness, capacity: u32) -> Follow {
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

/// What has come so far.
#[derive(Debug, Default)]
pub(crate) struct News {
    assembly: Assembly,
    /// Answers, and bytes of what they said.
    pub(crate) answers: u64,
    pub(crate) bytes: u64,
}

impl News {
    /// Another server may tell from now on.
    pub(crate) fn begin_anew(&mut self) {
        self.assembly = Assembly::default();
    }

    /// Takes an answer in: whether nothing was lost. If something was, following is to be begun
    /// anew.
    pub(crate) fn take(&mut self, told: &Told, level: &mut Upper) -> bool {
        self.answers += 1;
        self.bytes += told.bytes as u64;
        let mut is_complete = true;
        for hint in &told.hints {
            match hint {
                Hint::Evict { runs, .. } => {
                    runs.iter().flat_map(|r| r.blocks()).for_each(|b| level.told(b, false));
                }
                Hint::Hold(runs) => {
                    runs.iter().flat_map(|r| r.blocks()).for_each(|b| level.told(b, true));
                }
                Hint::Follow(_) => level.lost(),
                other => {
                    if let Some(summary) = self.assembly.take(other, FILTER_BITS_MAX) {
                        is_complete &= level.heard(&received(summary)).is_ok();
                    }
                }
            }
        }
        is_complete
    }
}

fn received(summary: Summary) -> Digest {
    let Summary { bits, hashes, seed, sequence, body } = summary;
    let body = match body {
        Body::Whole(bits) => content::Body::Whole(bits.to_vec()),
        Body::Changes(positions) => content::Body::Changes(positions.to_vec()),
    };
    let shape = Shape { bits, hashes: hashes.into(), seed: seed.into() };
    Digest { from: 0, shape, publication: Publication { epoch: seed, sequence, body } }
}

/// A client's own summary, published when enough has come and gone.
pub(crate) struct Publishing {
    publisher: Publisher,
    pub(crate) published: u64,
    pub(crate) bytes: u64,
}

impl Publishing {
    /// Of a cache of so many blocks that is empty.
    pub(crate) fn new(awareness: &Awareness, capacity: u32) -> Self {
        let Awareness { filter_bits, hashes, publish, .. } = *awareness;
        let publisher = Publisher::new(filter_bits, hashes, capacity, publish);
        Self { publisher, published: 0, bytes: 0 }
    }

    /// A block came, or went.
    pub(crate) fn changed(&mut self, block: u64, came: bool) {
        if came { self.publisher.came(block) } else { self.publisher.went(block) }
    }

    /// The server did not take what was sent: the next one is whole.
    pub(crate) fn refused(&mut self) {
        self.publisher.ask_for_whole();
    }

    /// The records of a summary, if one is due. `content`: all that is in the cache.
    pub(crate) fn due(&mut self, content: impl FnOnce() -> Vec<u64>) -> Vec<Hint> {
        if !self.publisher.is_due() {
            return Vec::new();
        }
        let Publication { epoch, sequence, body } = self.publisher.publish(content);
        let body = match body {
            content::Body::Whole(bits) => Body::Whole(Bytes::from(bits)),
            content::Body::Changes(positions) => Body::Changes(Bytes::from(positions)),
        };
        let Shape { bits, hashes, .. } = self.publisher.published().shape();
        let hashes = hashes as u8;
        let hints = Summary { bits, hashes, seed: epoch, sequence, body }.hints();
        self.published += 1;
        self.bytes += hints.iter().map(|hint| 20 + hint.data_bytes() as u64).sum::<u64>();
        hints
    }
}
