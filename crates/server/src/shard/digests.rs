//! Verifies data that a client hands over.
//!
//! A client that evicts a block may send it, to spare the server a read. Other clients would then
//! read these data, and the next write of a part of the block would make them durable. So the
//! server accepts them only if they equal the volume's content. It compares them by a digest of 64
//! bits: XXH3 with a secret that is random for each volume and each start. Sender, connection and
//! time are no part of the check.
//!
//! The rules:
//! 1. The digest of a block belongs to the content that was last delivered or written successfully.
//!    It is computed once per content, when no operation on the block is left, or its slot is
//!    filled without one: after a fetch, a reload, or a write of which the server has the whole
//!    block; never for a hit.
//! 2. It is stored by slot for a resident block, by block for an active one, and in the delivery
//!    record of any other block.
//! 3. It is discarded when any part of the block begins to change, for any reason and in every
//!    mode; when a write or write-out fails; and for all blocks when the store may have lost
//!    something ([`Volume::forget_digests`]).
//! 4. Data are refused while a fetch, a reload or a change of the block runs, or while a range
//!    covers it. They are compared and placed under one hold of the shard's lock, in the server's
//!    own memory.
//! 5. While a block is only being written out, its content is in memory: data are compared with
//!    that.
//!
//! So a known digest is that of the content that a read would return. Volumes that accept no data
//! from clients keep no digests.
//!
//! Not here: the check of data, and what happens to them (`handed_over.rs`).

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

use hashbrown::HashMap;
use undercroft_level::{Level, Request};
use xxhash_rust::xxh3::xxh3_64_with_secret;

use crate::geometry::{Geometry, zeroes};
use crate::job::Job;
use crate::shard::content::{Active, Content};
use crate::shard::event::{Event, Goes, Leaving};

/// Bytes of XXH3's secret.
const SECRET_BYTES: usize = 192;

/// Computes the digests of a volume.
#[derive(Clone)]
pub(crate) struct Hasher {
    secret: Box<[u8; SECRET_BYTES]>,
    /// Length and digest of a whole block of zeroes.
    zero: (usize, u64),
}

impl Hasher {
    /// A hasher with a new random secret, for blocks of `block_bytes`.
    pub(crate) fn new(block_bytes: u32) -> Self {
        let mut secret = Box::new([0; SECRET_BYTES]);
        // Every `RandomState` has random keys.
        for (number, part) in secret.chunks_exact_mut(8).enumerate() {
            part.copy_from_slice(&RandomState::new().hash_one(number).to_le_bytes());
        }
        let length = block_bytes as usize;
        let mut hasher = Self { secret, zero: (length, 0) };
        hasher.zero.1 = hasher.of(&zeroes(length));
        hasher
    }

    /// The digest of `bytes`; never 0.
    fn of(&self, bytes: &[u8]) -> u64 {
        xxh3_64_with_secret(bytes, &self.secret[..]).max(1)
    }

    /// The digest of a block of `length` bytes; `None` if its content is absent.
    fn of_content(&self, content: &Content, length: usize) -> Option<u64> {
        match content {
            Content::Absent => None,
            Content::Zero if length == self.zero.0 => Some(self.zero.1),
            Content::Zero => Some(self.of(&zeroes(length))),
            Content::Frame(frame) => Some(self.of(&frame.as_ref()[..length])),
            Content::Loose(bytes) => Some(self.of(&bytes[..length])),
        }
    }

    /// The digest of a block that a job writes; `None` if it writes only a part of the block.
    fn of_write(&self, job: &Job, block: u64, geometry: &Geometry) -> Option<u64> {
        job.whole_block(block, geometry).map(|data| self.of(&data))
    }
}

/// The digests of a shard's blocks, but for those that the level keeps with deliveries.
pub(crate) struct Digests {
    hasher: Hasher,
    /// Digest by slot, of blocks without operations; 0: not known.
    of_slots: Vec<u64>,
    /// Of active blocks. Of those that are not in it no digest is known, and none will be computed.
    of_active: OfActive,
}

type OfActive = HashMap<u64, Digest, foldhash::fast::RandomState>;

impl Digests {
    /// Digests for `slots` slots, all unknown.
    pub(crate) fn new(hasher: Hasher, slots: u32) -> Self {
        Self { hasher, of_slots: vec![0; slots as usize], of_active: HashMap::default() }
    }

    /// Prefetches the digests of these slots, so that the processor overlaps its waits for memory.
    pub(crate) fn warm(&self, slots: &[u32]) {
        let sum = slots.iter().fold(0, |sum, &slot| sum ^ self.of_slots[slot as usize]);
        std::hint::black_box(sum);
    }

    /// The digest of a slot; 0 if it is not known.
    pub(super) fn of_slot(&self, slot: u32) -> u64 {
        self.of_slots[slot as usize]
    }

    /// The digest of any data.
    pub(super) fn of_data(&self, data: &[u8]) -> u64 {
        self.hasher.of(data)
    }

    /// Checks that each known digest is that of the block's content.
    pub(super) fn validate<'a>(
        &self,
        residents: impl Iterator<Item = (u64, u32, &'a Content)>,
        active: &HashMap<u64, Active, foldhash::fast::RandomState>,
        geometry: &Geometry,
    ) -> Result<(), String> {
        let is_right = |block, content: &Content, digest| {
            let own = self.hasher.of_content(content, geometry.len(block));
            digest == 0 || own.is_none_or(|own| own == digest)
        };
        for (block, slot, content) in residents {
            let digest = self.of_slot(slot);
            if digest != 0 && content.is_absent() || !is_right(block, content, digest) {
                return Err(format!("block {block}: its digest is not that of its content"));
            }
        }
        for (&block, digest) in &self.of_active {
            let Some(record) = active.get(&block) else {
                return Err(format!("block {block}: a digest of operations that are over"));
            };
            let is_wrong = |digest| !is_right(block, &record.state.content, digest);
            if matches!(digest, Digest::Known(digest) if is_wrong(*digest)) {
                return Err(format!("block {block}: its record's digest is of something else"));
            }
        }
        Ok(())
    }

    /// Follows the rules above.
    #[inline(always)]
    pub(super) fn watch(&mut self, event: &Event<'_>, level: &mut Level, geometry: &Geometry) {
        let Self { hasher, of_slots, of_active } = self;
        match *event {
            Event::Entered { slot, .. } | Event::Replaces { slot } => of_slots[slot as usize] = 0,
            Event::Left { block, slot, how, is_covered, .. } => {
                let digest = std::mem::take(&mut of_slots[slot as usize]);
                match how {
                    Leaving::Busy { .. } => {}
                    Leaving::Dirty => know(of_active, block, digest),
                    // The content of blocks in a range is about to change.
                    Leaving::Clean if digest == 0 || is_covered => {}
                    Leaving::Clean => level.clients_mut().set_digest(block, digest),
                }
            }
            Event::Activated { block, slot } => {
                let of_slot = slot.map(|slot| std::mem::take(&mut of_slots[slot as usize]));
                know(of_active, block, of_slot.unwrap_or(0));
            }
            Event::Writes { request: &Request { block, .. }, .. }
            | Event::Unknown { block }
            | Event::Written { block, is_ok: false, .. } => self.strike(block, level),
            Event::Changes { block } | Event::Changed { block, .. } => {
                _ = of_active.insert(block, Digest::Pending)
            }
            // If it succeeds, the copy equals the store's content again.
            Event::WritesOut { block } => _ = of_active.entry(block).or_insert(Digest::Pending),
            Event::Written { block, job, content, is_ok: true } => {
                // If the block is not in memory, the data written are all there is.
                let is_pending = of_active.get(&block) == Some(&Digest::Pending);
                if let Some(job) = job.filter(|_| is_pending && content.is_absent()) {
                    know(of_active, block, hasher.of_write(job, block, geometry).unwrap_or(0));
                }
            }
            Event::Idle { block, content, to, is_covered, .. } => {
                let digest = match of_active.get(&block).filter(|_| !is_covered) {
                    None => 0,
                    Some(Digest::Known(digest)) => *digest,
                    Some(Digest::Pending) => {
                        hasher.of_content(content, geometry.len(block)).unwrap_or(0)
                    }
                };
                match to {
                    Goes::Stays if digest == 0 => return,
                    Goes::Stays => return know(of_active, block, digest),
                    Goes::ToSlot(slot) => of_slots[slot as usize] = digest,
                    Goes::Nowhere if digest != 0 => level.clients_mut().set_digest(block, digest),
                    Goes::Nowhere => {}
                }
                of_active.remove(&block);
            }
            Event::Filled { block, slot, content, digest } => {
                let computed = || hasher.of_content(content, geometry.len(block)).unwrap_or(0);
                of_slots[slot as usize] = if digest == 0 { computed() } else { digest };
            }
            // Deliveries are forgotten anyway. Digests in slots are ignored as long as the range
            // exists, and its end updates every slot.
            Event::RangeBegins { blocks } => of_active.retain(|block, _| !blocks.contains(block)),
            Event::ContentsUnknown => {
                of_slots.fill(0);
                of_active.clear();
                level.clients_mut().forget_digests();
            }
            Event::Slots(slots) => of_slots.resize(slots.max(of_slots.len()), 0),
            Event::Gone { .. }
            | Event::Returned { .. }
            | Event::Reads { .. }
            | Event::Placed { .. }
            | Event::RangeEnds { .. }
            | Event::Replaced => {}
        }
    }

    /// Discards a block's digest.
    fn strike(&mut self, block: u64, level: &mut Level) {
        self.of_active.remove(&block);
        if let Some(slot) = level.frame(block) {
            self.of_slots[slot as usize] = 0;
        }
        level.clients_mut().set_digest(block, 0);
    }
}

/// Sets the digest of an active block; 0: not known.
fn know(of_active: &mut OfActive, block: u64, digest: u64) {
    match digest {
        0 => _ = of_active.remove(&block),
        digest => _ = of_active.insert(block, Digest::Known(digest)),
    }
}

/// The digest of an active block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Digest {
    /// It will be computed when no operation on the block is left.
    Pending,
    /// The digest.
    Known(u64),
}

/// Why data that a client hands over are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// They are shorter or longer than the block.
    Malformed,
    /// An operation, a reload or a range of the block is in progress.
    Busy,
    /// The digest of the block's content is not known.
    Unknown,
    /// The block has other content.
    Changed,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_depends_on_every_byte_and_on_the_start_of_the_server() {
        let hasher = Hasher::new(4096);
        let mut bytes = vec![7; 4096];
        let digest = hasher.of(&bytes);
        for at in 0..bytes.len() {
            bytes[at] ^= 1;
            assert_ne!(hasher.of(&bytes), digest, "byte {at}");
            bytes[at] ^= 1;
        }
        assert_eq!(hasher.clone().of(&bytes), digest);
        assert_ne!(Hasher::new(4096).of(&bytes), digest);
    }

    #[test]
    fn zeroes_are_zeroes_however_they_are_kept() {
        let hasher = Hasher::new(4096);
        for length in [4096, 1536] {
            let loose = Content::loose(zeroes(length));
            let zero = hasher.of_content(&Content::Zero, length);
            assert_eq!(zero, hasher.of_content(&loose, length));
            assert_eq!(zero, Some(hasher.of(&vec![0; length])));
        }
        assert_eq!(hasher.of_content(&Content::Absent, 4096), None);
    }
}
