//! Bloom filters on their way: a filter in parts with its number, or what has changed in it; out of
//! records, and into them.
//!
//! Not here: what the bits mean, which is between the two caches.

use bytes::Bytes;

use super::{DIGEST_PART_BYTES, Hint};

/// One publication of a filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Bits of the filter.
    pub bits: u32,
    /// Hash functions.
    pub hashes: u8,
    /// What they begin with.
    pub seed: u8,
    /// One more for each publication.
    pub sequence: u32,
    /// The bits, or what has changed.
    pub body: Body,
}

/// The content of a publication.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// All bits: bit i is bit i % 8 of byte i / 8.
    Whole(Bytes),
    /// As in [`Hint::Changes`].
    Changes(Bytes),
}

impl Summary {
    /// The records that say it, in order.
    pub fn hints(&self) -> Vec<Hint> {
        let Summary { bits, hashes, seed, sequence, ref body } = *self;
        let changes = |positions| Hint::Changes { bits, hashes, seed, sequence, positions };
        match body {
            Body::Changes(positions) => vec![changes(positions.clone())],
            Body::Whole(all) => {
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
}

/// The parts of a filter that have come so far.
#[derive(Debug, Default)]
pub struct Assembly {
    shape: (u32, u8, u8),
    parts: Vec<u8>,
    next: u16,
}

impl Assembly {
    /// Takes a record: a publication, if it is complete now. Filters of more than `bits_max` bits
    /// are left out.
    pub fn take(&mut self, hint: &Hint, bits_max: u32) -> Option<Summary> {
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
                    Body::Whole(parts.into())
                } else {
                    Body::Changes(positions.clone())
                };
                Some(Summary { bits, hashes, seed, sequence, body })
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
            let body = Body::Whole(all.into());
            let summary = Summary { bits, hashes: 4, seed: 7, sequence: 9, body };
            let mut assembly = Assembly::default();
            let hints = summary.hints();
            let taken: Vec<_> = hints.iter().filter_map(|h| assembly.take(h, bits)).collect();
            assert_eq!(taken, std::slice::from_ref(&summary));
            // One part is missing: what is left says nothing whole.
            let mut assembly = Assembly::default();
            let taken: Vec<_> = hints[1..].iter().filter_map(|h| assembly.take(h, bits)).collect();
            assert_eq!(taken[0].body, Body::Changes(Bytes::new()));
            let mut assembly = Assembly::default();
            assert!(hints.iter().all(|hint| assembly.take(hint, bits - 1).is_none()));
            let changes = Summary { body: Body::Changes(Bytes::from_static(&[1, 2])), ..summary };
            assert_eq!(assembly.take(&changes.hints()[0], bits), Some(changes));
        }
    }
}
