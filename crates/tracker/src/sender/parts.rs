//! Puts the contents of blocks together that are larger than a granule. Their granules leave their
//! frames one after the other.

use bytes::Bytes;

use crate::table::GRANULE;

/// Most blocks of which some granules wait for the others; the oldest is dropped first.
const BLOCKS_MAX: usize = 64;

/// Most granules of a block: one bit for each. No server of ours has blocks of more than 64 KiB.
const GRANULES_MAX: usize = u64::BITS as usize;

/// The blocks that are not complete.
#[derive(Default)]
pub(super) struct Parts {
    list: Vec<Part>,
}

struct Part {
    block: u64,
    bytes: Vec<u8>,
    /// One bit for each granule that is here.
    here: u64,
}

impl Parts {
    /// Adds the content of a granule, `offset` bytes into a block of `block_bytes`. Returns the
    /// block if that completes it. Blocks of more than [`GRANULES_MAX`] granules are not kept.
    pub(super) fn add(
        &mut self,
        block: u64,
        block_bytes: usize,
        offset: usize,
        content: &[u8],
    ) -> Option<Bytes> {
        let granules = block_bytes / GRANULE as usize;
        if granules > GRANULES_MAX {
            return None;
        }
        let at = self.list.iter().position(|part| part.block == block).unwrap_or_else(|| {
            if self.list.len() == BLOCKS_MAX {
                self.list.remove(0);
            }
            self.list.push(Part { block, bytes: vec![0; block_bytes], here: 0 });
            self.list.len() - 1
        });
        let part = &mut self.list[at];
        part.bytes.get_mut(offset..offset + content.len())?.copy_from_slice(content);
        part.here |= 1 << (offset / GRANULE as usize);
        let is_whole = part.here.count_ones() as usize == granules;
        is_whole.then(|| self.list.remove(at).bytes.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const G: usize = GRANULE as usize;

    #[test]
    fn a_block_is_complete_with_its_last_granule_in_any_order() {
        let mut parts = Parts::default();
        let granule = |byte: u8| vec![byte; G];
        for (order, block) in [[0, 1, 2, 3], [3, 1, 0, 2]].into_iter().zip(7..) {
            for (n, at) in order.into_iter().enumerate() {
                let whole = parts.add(block, 4 * G, at * G, &granule(at as u8));
                let expected = (0..4).flat_map(granule).collect::<Vec<_>>();
                assert_eq!(whole, (n == 3).then(|| expected.into()), "{block}, {at}");
            }
        }
        assert!(parts.list.is_empty());
    }

    #[test]
    fn blocks_that_are_too_large_are_not_kept() {
        let mut parts = Parts::default();
        for granule in 0..128 {
            assert_eq!(parts.add(7, 128 * G, granule * G, &[1; G]), None);
        }
        assert!(parts.list.is_empty());
        let mut largest = (0..64).filter_map(|granule| parts.add(7, 64 * G, granule * G, &[1; G]));
        assert_eq!(largest.next(), Some(vec![1; 64 * G].into()));
    }

    #[test]
    fn blocks_that_are_never_complete_are_dropped() {
        let mut parts = Parts::default();
        for block in 0..1000 {
            assert_eq!(parts.add(block, 2 * G, 0, &[1; G]), None);
        }
        assert_eq!(parts.list.len(), BLOCKS_MAX);
        assert_eq!(parts.add(0, 2 * G, G, &[2; G]), None, "its first half was dropped");
        let whole = [[1; G], [2; G]].concat();
        assert_eq!(parts.add(999, 2 * G, G, &[2; G]), Some(whole.into()));
    }
}
