//! Converts Bloom filters to records and back: a whole filter in parts with its number, or the
//! positions that changed.
//!
//! Not here: what the bits mean to the two caches (`undercroft_level::content`).

use bytes::Bytes;
use undercroft_level::content::{Body, Digest, Publication, Shape};

use crate::record::{DIGEST_PART_BYTES, Hint};

/// The records that carry a publication of a filter of this shape, in order.
pub fn publication_hints(shape: Shape, publication: &Publication) -> Vec<Hint> {
    let Publication { epoch: seed, sequence, ref body } = *publication;
    let (bits, hashes) = (shape.bits, shape.hashes as u8);
    let changes = |positions| Hint::Changes { bits, hashes, seed, sequence, positions };
    match body {
        Body::Changes(positions) => vec![changes(Bytes::copy_from_slice(positions))],
        Body::Whole(all) => {
            let all = Bytes::copy_from_slice(all);
            let starts = (0..all.len()).step_by(DIGEST_PART_BYTES);
            let part = |(part, start): (u16, usize)| {
                let end = all.len().min(start + DIGEST_PART_BYTES);
                Hint::Digest { bits, hashes, seed, part, filter: all.slice(start..end) }
            };
            let parts = (0..).zip(starts).map(part);
            parts.chain([changes(Bytes::new())]).collect()
        }
    }
}

/// Assembles a filter from the parts received so far.
#[derive(Debug, Default)]
pub struct Assembly {
    shape: (u32, u8, u8),
    parts: Vec<u8>,
    next: u16,
}

impl Assembly {
    /// Bytes of the parts received so far.
    pub fn bytes(&self) -> usize {
        self.parts.len()
    }

    /// Takes a record. Returns a publication (of neighbour 0) when the record completes one.
    /// Filters of more than `bits_max` bits are ignored.
    pub fn take(&mut self, hint: &Hint, bits_max: u32) -> Option<Digest> {
        match hint {
            Hint::Digest { bits, hashes, seed, part, filter } if *bits <= bits_max => {
                let shape = (*bits, *hashes, *seed);
                if *part == 0 {
                    (self.shape, self.next) = (shape, 0);
                    self.parts.clear();
                }
                if self.shape == shape && self.next == *part {
                    self.parts.extend_from_slice(filter);
                    self.next += 1;
                }
                None
            }
            Hint::Changes { bits, hashes, seed, sequence, positions } if *bits <= bits_max => {
                let (bits, hashes, seed, sequence) = (*bits, *hashes, *seed, *sequence);
                let all = bits.div_ceil(8) as usize;
                let is_whole = self.shape == (bits, hashes, seed) && self.parts.len() == all;
                let parts = std::mem::take(&mut self.parts);
                let body = if is_whole && positions.is_empty() {
                    Body::Whole(parts)
                } else {
                    Body::Changes(positions.to_vec())
                };
                let shape = Shape { bits, hashes: hashes.into(), seed: seed.into() };
                let publication = Publication { epoch: seed, sequence, body };
                Some(Digest { from: 0, shape, publication })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_in_parts_comes_together_again() {
        for bytes in [1, 7, DIGEST_PART_BYTES, DIGEST_PART_BYTES + 1, 3 * DIGEST_PART_BYTES] {
            let all: Vec<u8> = (0..bytes).map(|i| (i % 251) as u8).collect();
            let bits = bytes as u32 * 8;
            let shape = Shape { bits, hashes: 4, seed: 7 };
            let publication = Publication { epoch: 7, sequence: 9, body: Body::Whole(all) };
            let digest = Digest { from: 0, shape, publication };
            let mut assembly = Assembly::default();
            let hints = publication_hints(shape, &digest.publication);
            let taken: Vec<_> = hints.iter().filter_map(|h| assembly.take(h, bits)).collect();
            assert_eq!(taken, std::slice::from_ref(&digest));
            // One part is missing, so the rest makes no complete filter.
            let mut assembly = Assembly::default();
            let taken: Vec<_> = hints[1..].iter().filter_map(|h| assembly.take(h, bits)).collect();
            assert_eq!(taken[0].publication.body, Body::Changes(Vec::new()));
            let mut assembly = Assembly::default();
            assert!(hints.iter().all(|hint| assembly.take(hint, bits - 1).is_none()));
            let body = Body::Changes(vec![1, 2]);
            let publication = Publication { body, ..digest.publication };
            let hints = publication_hints(shape, &publication);
            assert_eq!(assembly.take(&hints[0], bits), Some(Digest { publication, ..digest }));
        }
    }
}
