//! The data of a block: a function of its number and of the number of writes to it, so that
//! returned data can be checked without keeping them. Blocks never written are zero.

use undercroft_random::{fibonacci, mix};

/// How often this replay has written each block of the trace.
pub(super) struct Versions(Vec<u32>);

impl Versions {
    pub(super) fn new(blocks: u32) -> Self {
        Self(vec![0; blocks as usize])
    }

    /// The version of a block.
    pub(super) fn of(&self, block: u32) -> u32 {
        self.0[block as usize]
    }

    /// Advances the version of a block that is about to be written.
    pub(super) fn next(&mut self, block: u32) -> u32 {
        let version = &mut self.0[block as usize];
        // Version 0 means never written, so the counter skips it when it wraps around.
        *version = version.checked_add(1).unwrap_or(1);
        *version
    }
}

/// Fills a buffer with the data of a block.
pub(super) fn fill(bytes: &mut [u8], block: u32, version: u32) {
    if version == 0 {
        bytes.fill(0);
        return;
    }
    for (at, word) in bytes.chunks_mut(8).enumerate() {
        let value = word_of(block, version, at as u64).to_le_bytes();
        word.copy_from_slice(&value[..word.len()]);
    }
}

/// Whether the bytes are the data of a block at this version.
pub(super) fn is(bytes: &[u8], block: u32, version: u32) -> bool {
    if version == 0 {
        return bytes.iter().all(|&byte| byte == 0);
    }
    bytes.chunks(8).enumerate().all(|(at, word)| {
        let value = word_of(block, version, at as u64).to_le_bytes();
        *word == value[..word.len()]
    })
}

/// A hash of the word's block, version and position.
fn word_of(block: u32, version: u32, at: u64) -> u64 {
    mix((u64::from(block) << 32 | u64::from(version)).wrapping_add(fibonacci(at + 1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_tells_blocks_and_versions_apart() {
        let mut bytes = [7; 4099];
        fill(&mut bytes, 3, 1);
        assert!(is(&bytes, 3, 1));
        assert!(!is(&bytes, 3, 2) && !is(&bytes, 4, 1) && !is(&bytes, 3, 0));
        bytes[4098] ^= 1;
        assert!(!is(&bytes, 3, 1));
        fill(&mut bytes, 3, 0);
        assert!(is(&bytes, 3, 0));
    }
}
