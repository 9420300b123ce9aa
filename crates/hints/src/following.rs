//! The client's side of a content-aware cache: decodes what the server tells of its cache, and
//! encodes what the client publishes of its own. The caching client and the replay share this.
//!
//! Not here: what a cache does with this knowledge (`undercroft_level::content`).

use undercroft_level::UpperLevel;
use undercroft_level::content::Publisher;
use undercroft_policy::{Awareness, Knows};

use crate::filter::{Assembly, publication_hints};
use crate::parse::Told;
use crate::record::{Follow, Following, Hint, MESSAGE_BYTES_MAX};

/// Most bits of a filter that is accepted: 64 MiB.
const FILTER_BITS_MAX: u32 = 1 << 29;

/// Most blocks that one answer may tell of. A server tells of at most one for each 8 bytes asked
/// for; a run of 8 bytes could name 65,536.
const BLOCKS_TOLD_MAX: usize = MESSAGE_BYTES_MAX / 8;

impl Follow {
    /// The request of a cache of `capacity` blocks to be told what the server holds, in the form
    /// that `awareness` needs.
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

/// Decodes what a server tells of its cache, and updates the level's knowledge.
#[derive(Debug, Default)]
pub struct ContentReader {
    assembly: Assembly,
    /// Answers read.
    pub answers: u64,
    /// Bytes of their records.
    pub bytes: u64,
}

impl ContentReader {
    /// Bytes to ask for when the server has not said how many are needed.
    pub const ASKED_BYTES: usize = 4096;

    /// Drops the parts of an incomplete filter: another server may answer from now on.
    pub fn begin_anew(&mut self) {
        self.assembly = Assembly::default();
    }

    /// Takes an answer. Returns false if something was lost, or is more than a server tells; the
    /// client must then follow anew.
    pub fn take(&mut self, told: &Told, level: &mut UpperLevel) -> bool {
        self.answers += 1;
        self.bytes += told.bytes as u64;
        let (mut is_complete, mut left) = (true, 0..BLOCKS_TOLD_MAX);
        for (at, hint) in told.hints.iter().enumerate() {
            match hint {
                Hint::Evict { runs, .. } | Hint::Hold(runs) => {
                    let holds = matches!(hint, Hint::Hold(_));
                    let mut blocks = runs.iter().flat_map(|run| run.blocks());
                    left.by_ref().zip(&mut blocks).for_each(|(_, block)| level.told(block, holds));
                    is_complete &= blocks.next().is_none();
                }
                // It concerns earlier answers, so it comes first.
                Hint::Follow(_) if at == 0 => level.lost(),
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

/// Publishes a summary of the client's own cache when enough blocks have entered and left.
pub struct ContentPublisher {
    publisher: Publisher,
    /// Publications so far.
    pub published: u64,
    /// Bytes of their records.
    pub bytes: u64,
}

impl ContentPublisher {
    /// A publisher for an empty cache of `capacity` blocks.
    pub fn new(awareness: &Awareness, capacity: u32) -> Self {
        let Awareness { filter_bits, hashes, publish, .. } = *awareness;
        let publisher = Publisher::new(filter_bits, hashes, capacity, publish);
        Self { publisher, published: 0, bytes: 0 }
    }

    /// A block entered the cache (`came`) or left it.
    pub fn changed(&mut self, block: u64, came: bool) {
        if came { self.publisher.came(block) } else { self.publisher.went(block) }
    }

    /// The server did not take what was sent: the next publication is a whole filter.
    pub fn refused(&mut self) {
        self.publisher.ask_for_whole();
    }

    /// The records of a publication, if one is due. `content` lists all blocks in the cache.
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

#[cfg(test)]
mod tests {
    use undercroft_level::Below;
    use undercroft_policy::{Context, Spec, WriteMode};

    use super::*;
    use crate::record::BlockRun;

    fn level() -> UpperLevel {
        let policy = Spec::parse("lru-ca,alpha=1").unwrap().build(&Context::new(2)).unwrap();
        UpperLevel::new(policy, WriteMode::Allocate, &Below::Told).unwrap()
    }

    fn told(hints: Vec<Hint>) -> Told {
        Told { hints, bytes: 0, more: 0 }
    }

    /// The longest answer has 131,000 runs of 65,536 blocks: minutes of work.
    #[test]
    fn a_server_that_tells_of_too_many_blocks_is_not_listened_to() {
        let (mut level, mut reader) = (level(), ContentReader::default());
        let run = |first| BlockRun::new(first, BlockRun::COUNT_MAX).unwrap();
        let (most, more) = (vec![run(0), run(1 << 20)], vec![run(0), run(1 << 20), run(1 << 30)]);
        assert!(reader.take(&told(vec![Hint::Hold(most)]), &mut level));
        assert!(!reader.take(&told(vec![Hint::Hold(more)]), &mut level));
        let lies = told(vec![Hint::Hold(vec![run(0); 65_000]); 2]);
        let began = std::time::Instant::now();
        assert!(!reader.take(&lies, &mut level));
        assert!(began.elapsed().as_secs() < 30, "{:?}", began.elapsed());
    }

    #[test]
    fn what_is_known_is_forgotten_once_in_an_answer() {
        let (mut level, mut reader) = (level(), ContentReader::default());
        for block in [1, 2] {
            level.asks(block);
            level.told(block, false);
            level.answered(block, false, None);
            level.reference(block, false);
        }
        let (lost, two) = (Hint::Follow(Follow::default()), BlockRun::new(2, 1).unwrap());
        let hints = vec![lost.clone(), Hint::Hold(vec![two]), lost];
        assert!(reader.take(&told(hints), &mut level));
        level.asks(3);
        level.reference(3, false);
        assert_eq!(level.cache().evicted()[0].block, 2, "which the server has");
    }
}
