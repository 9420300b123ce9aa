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
//!    It is computed once per content, when no operation on the block is left ([`Shard::prove`]):
//!    after a fetch, a reload, or a write of which the server has the whole block; never for a hit.
//! 2. It is stored with the slot of a resident block, in the active record of an active block, and
//!    in the delivery record of any other block.
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
//! Not here: what happens to accepted data (`eviction_placement.rs`).

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::ops::RangeInclusive;

use bytes::Bytes;
use xxhash_rust::xxh3::xxh3_64_with_secret;

use crate::geometry::Geometry;
use crate::geometry::zeroes;
use crate::job::Job;
use crate::shard::Shard;
use crate::shard::content::{Content, Running};

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

/// The digests of a shard's resident blocks.
pub(crate) struct Digests {
    hasher: Hasher,
    /// Digest by slot; 0: not known.
    of_slots: Vec<u64>,
}

impl Digests {
    /// Digests for `slots` slots, all unknown.
    pub(crate) fn new(hasher: Hasher, slots: u32) -> Self {
        Self { hasher, of_slots: vec![0; slots as usize] }
    }

    /// Digests for `slots` slots, if there are fewer; the new ones are unknown.
    pub(crate) fn grow(&mut self, slots: usize) {
        self.of_slots.resize(slots.max(self.of_slots.len()), 0);
    }

    /// Prefetches the digests of these slots, so that the processor overlaps its waits for memory.
    pub(crate) fn warm(&self, slots: &[u32]) {
        let sum = slots.iter().fold(0, |sum, &slot| sum ^ self.of_slots[slot as usize]);
        std::hint::black_box(sum);
    }

    /// Takes the digest out of the slot of a resident block that becomes active.
    pub(crate) fn lift(&mut self, slot: u32) -> Digest {
        match std::mem::take(&mut self.of_slots[slot as usize]) {
            0 => Digest::Struck,
            digest => Digest::Known(digest),
        }
    }
}

/// The state of the digest of an active block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Digest {
    /// Not known, and it will not be computed.
    #[default]
    Struck,
    /// It will be computed when no operation on the block is left.
    Pending,
    /// The digest.
    Known(u64),
}

impl Digest {
    /// Call when an operation begins after which the content is another one, or newly in memory.
    pub(crate) fn begin(&mut self) {
        *self = Digest::Pending;
    }

    /// A write-out begins: if it succeeds, the copy equals the store's content again.
    pub(crate) fn begin_write_out(&mut self) {
        if *self == Digest::Struck {
            *self = Digest::Pending;
        }
    }
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

impl Shard {
    /// Call when a write of a block succeeded and the block is not in memory: takes the digest of
    /// the data written, if they were the whole block.
    pub(crate) fn prove_written(&mut self, block: u64) {
        let Some(digests) = &self.digests else { return };
        let Some(record) = self.active.get_mut(&block) else { return };
        let Some(op) = record.queue.front() else { return };
        if record.digest == Digest::Pending && record.state.content.is_absent() {
            let digest = digests.hasher.of_write(&op.job, block, &self.geometry);
            record.digest = digest.map_or(Digest::Struck, Digest::Known);
        }
    }

    /// Call when no operation on the block is left. Returns the digest of its content if that
    /// equals the volume's content; otherwise 0.
    pub(crate) fn prove(&self, block: u64) -> u64 {
        let (Some(digests), Some(record)) = (&self.digests, self.active.get(&block)) else {
            return 0;
        };
        if self.ranges.cover(block) {
            return 0;
        }
        match record.digest {
            Digest::Known(digest) => digest,
            Digest::Struck => 0,
            Digest::Pending => {
                let length = self.geometry.len(block);
                digests.hasher.of_content(&record.state.content, length).unwrap_or(0)
            }
        }
    }

    /// The digest of a slot; 0 if it is not known.
    pub(crate) fn digest_of_slot(&self, slot: u32) -> u64 {
        self.digests.as_ref().map_or(0, |digests| digests.of_slots[slot as usize])
    }

    /// Sets the digest of a slot: that of its current content, or 0.
    pub(crate) fn set_digest_of_slot(&mut self, slot: u32, digest: u64) {
        if let Some(digests) = &mut self.digests {
            digests.of_slots[slot as usize] = digest;
        }
    }

    /// A slot was filled without an operation on its block: stores the known digest, or computes it
    /// from the content if `known` is 0.
    pub(crate) fn prove_slot(&mut self, block: u64, slot: u32, known: u64) {
        let Some(digests) = &mut self.digests else { return };
        let (content, length) =
            (&self.slots[slot as usize].state.content, self.geometry.len(block));
        let computed = || digests.hasher.of_content(content, length).unwrap_or(0);
        digests.of_slots[slot as usize] = if known == 0 { computed() } else { known };
    }

    /// A block leaves its slot: takes its digest, which the record of its delivery will keep.
    pub(crate) fn take_digest_of_slot(&mut self, slot: u32) -> u64 {
        let of_slot = self.digests.as_mut().map(|digests| &mut digests.of_slots[slot as usize]);
        of_slot.map_or(0, std::mem::take)
    }

    /// Remembers the digest of a block that is not resident; 0 changes nothing. Digests of blocks
    /// in a range are not remembered, since their content is about to change.
    pub(crate) fn remember_digest(&mut self, block: u64, digest: u64) {
        if digest == 0 || self.ranges.cover(block) {
            return;
        }
        self.cache.set_digest(block, digest);
    }

    /// The digest of a block without active record; 0 if it is not known.
    fn known_digest(&self, block: u64) -> u64 {
        match self.cache.frame(block) {
            Some(slot) => self.digest_of_slot(slot),
            None => self.cache.digest(block),
        }
    }

    /// Discards a block's digest.
    pub(crate) fn strike_digest(&mut self, block: u64) {
        if self.digests.is_none() {
            return;
        }
        if let Some(record) = self.active.get_mut(&block) {
            record.digest = Digest::Struck;
        }
        if let Some(slot) = self.cache.frame(block) {
            self.set_digest_of_slot(slot, 0);
        }
        self.cache.set_digest(block, 0);
    }

    /// Discards the digests of a range that begins. Its deliveries are forgotten anyway. Digests in
    /// slots are ignored as long as the range exists, and its end updates every slot.
    pub(crate) fn strike_digests(&mut self, blocks: &RangeInclusive<u64>) {
        if self.digests.is_none() {
            return;
        }
        let within = self.active.iter_mut().filter(|(block, _)| blocks.contains(block));
        within.for_each(|(_, record)| record.digest = Digest::Struck);
    }

    /// Discards all digests, and voids the running reload.
    pub(crate) fn forget_digests(&mut self) {
        let Some(digests) = &mut self.digests else { return };
        digests.of_slots.fill(0);
        self.active.values_mut().for_each(|record| record.digest = Digest::Struck);
        self.cache.forget_digests();
        if let Some(coop) = self.coop.as_deref_mut() {
            coop.void_reload(|_| true);
        }
    }

    /// The digest of data that a client hands over.
    ///
    /// # Errors
    /// Says why the data are not known to equal the volume's content.
    pub(crate) fn proven(&self, block: u64, data: &Bytes) -> Result<u64, Refusal> {
        if data.len() != self.geometry.len(block) {
            return Err(Refusal::Malformed);
        }
        let digests = self.digests.as_ref().ok_or(Refusal::Unknown)?;
        if let Some(content) = self.dirty_content(block) {
            let is_equal = content.piece(0, data.len()).is_some_and(|own| own == data);
            return if is_equal { Ok(digests.hasher.of(data)) } else { Err(Refusal::Changed) };
        }
        if !self.is_quiet(block) || self.is_reloading(block) {
            return Err(Refusal::Busy);
        }
        match self.known_digest(block) {
            0 => Err(Refusal::Unknown),
            known if digests.hasher.of(data) == known => Ok(known),
            _ => Err(Refusal::Changed),
        }
    }

    /// The content of a block without a slot that is dirty or being written out, and has no other
    /// operation: what a read would return, whether the store takes it or not.
    fn dirty_content(&self, block: u64) -> Option<&Content> {
        let record = self.active.get(&block)?;
        let is_dirty = match record.running {
            Running::WriteOut(_) => true,
            Running::Nothing => record.state.dirty.is_some(),
            Running::Fetch | Running::Write | Running::Starved => false,
        };
        let is_alone = is_dirty && record.queue.is_empty() && !self.ranges.cover(block);
        (is_alone && !record.state.content.is_absent()).then_some(&record.state.content)
    }

    /// The digest of any data; `None` if the volume keeps no digests.
    pub(crate) fn digest_of(&self, data: &Bytes) -> Option<u64> {
        self.digests.as_ref().map(|digests| digests.hasher.of(data))
    }

    fn is_reloading(&self, block: u64) -> bool {
        let reloading = self.coop.as_deref().and_then(|coop| coop.reloading.as_ref());
        reloading.is_some_and(|reloading| reloading.block == block)
    }

    /// Checks that each known digest is that of the block's content.
    pub(crate) fn validate_digests(&self) -> Result<(), String> {
        let Some(digests) = &self.digests else { return Ok(()) };
        let is_right = |block, content: &Content, digest| {
            let own = digests.hasher.of_content(content, self.geometry.len(block));
            digest == 0 || own.is_none_or(|own| own == digest)
        };
        for (block, slot) in self.cache.residents() {
            let (at, digest) = (&self.slots[slot as usize], self.digest_of_slot(slot));
            if digest != 0 && at.state.content.is_absent()
                || !is_right(block, &at.state.content, digest)
            {
                return Err(format!("block {block}: its digest is not that of its content"));
            }
        }
        for (&block, record) in &self.active {
            let Digest::Known(digest) = record.digest else { continue };
            if !is_right(block, &record.state.content, digest) {
                return Err(format!("block {block}: its record's digest is of something else"));
            }
        }
        Ok(())
    }
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
