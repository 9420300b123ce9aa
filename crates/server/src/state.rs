//! Warm restart: the list of the resident blocks, saved and placed again.
//!
//! The list has the blocks in the policy's order, next victim first where a policy has one, so
//! that placing them in this order gives LRU its order back and the others a good start. What a
//! policy remembers beyond residence (counts, ghosts) is not saved. Data is not saved either: it
//! is read from the store again, with low priority.
//!
//! The file, little-endian: the magic bytes, version (u32), block size (u32), size of the volume
//! in bytes (u64), number of blocks (u64), the blocks (u64 each), CRC-32 of all before (u32).

use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::volume::{Volume, Work};

const MAGIC: &[u8; 8] = b"UCWARM\r\n";
const VERSION: u32 = 1;
const HEAD_BYTES: usize = 32;

/// Blocks that a restart has on their way at a time.
const BLOCKS_AT_A_TIME: usize = 64;

/// Why a saved list cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// The file cannot be read or written.
    #[error("saved cache content: {0}")]
    Io(#[from] io::Error),
    /// It is something else, damaged, or of another version.
    #[error("saved cache content: {0}; delete the file, it is only a hint")]
    Unusable(String),
}

/// The resident blocks of a volume, in the order in which they are to be placed again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedContent {
    /// Bytes of a block.
    pub block_bytes: u32,
    /// Bytes of the volume.
    pub volume_bytes: u64,
    /// The blocks.
    pub blocks: Vec<u64>,
}

impl SavedContent {
    /// The file's bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEAD_BYTES + 8 * self.blocks.len() + 4);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&self.block_bytes.to_le_bytes());
        bytes.extend_from_slice(&self.volume_bytes.to_le_bytes());
        bytes.extend_from_slice(&(self.blocks.len() as u64).to_le_bytes());
        for block in &self.blocks {
            bytes.extend_from_slice(&block.to_le_bytes());
        }
        let sum = crc32fast::hash(&bytes);
        bytes.extend_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Reads a file's bytes.
    ///
    /// # Errors
    /// They are not such a file, or damaged.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, StateError> {
        let unusable = |text: &str| StateError::Unusable(text.to_string());
        if bytes.len() < HEAD_BYTES + 4 || !bytes.starts_with(MAGIC) {
            return Err(unusable("this is no such file"));
        }
        let (body, sum) = bytes.split_at(bytes.len() - 4);
        if crc32fast::hash(body).to_le_bytes() != sum {
            return Err(unusable("the checksum does not match"));
        }
        let u32_at =
            |at: usize| u32::from_le_bytes(body[at..at + 4].try_into().unwrap_or_default());
        let u64_at =
            |at: usize| u64::from_le_bytes(body[at..at + 8].try_into().unwrap_or_default());
        if u32_at(8) != VERSION {
            return Err(StateError::Unusable(format!("version {} is not known", u32_at(8))));
        }
        let list = &body[HEAD_BYTES..];
        if list.len() % 8 != 0 || (list.len() / 8) as u64 != u64_at(24) {
            return Err(unusable("its length does not match its content"));
        }
        let blocks = (HEAD_BYTES..body.len()).step_by(8).map(u64_at).collect();
        Ok(Self { block_bytes: u32_at(12), volume_bytes: u64_at(16), blocks })
    }

    /// Writes the file, under another name first, so that it is whole or not there.
    ///
    /// # Errors
    /// The system refuses.
    pub fn save(&self, path: &Path) -> Result<(), StateError> {
        let part = path.with_extension("part");
        let mut file = fs::File::create(&part)?;
        file.write_all(&self.to_bytes())?;
        file.sync_all()?;
        fs::rename(&part, path)?;
        Ok(())
    }

    /// Reads a file that was saved.
    ///
    /// # Errors
    /// The system refuses, or the file is not usable.
    pub fn load(path: &Path) -> Result<Self, StateError> {
        Self::from_bytes(&fs::read(path)?)
    }
}

impl Volume {
    /// The resident blocks as they are now.
    pub fn content(&self) -> SavedContent {
        let mut blocks = Vec::new();
        for shard in 0..self.shards.len() {
            let residents = self.lock(shard).cache.residents();
            blocks.extend(residents.into_iter().map(|(block, _)| block));
        }
        SavedContent {
            block_bytes: self.config.block_bytes,
            volume_bytes: self.geometry.size(),
            blocks,
        }
    }

    /// Places saved content again, while there is room and nobody reads from the store: the number
    /// of blocks placed. Ends early when the volume is closed.
    ///
    /// # Errors
    /// The content is of a volume with blocks of another size.
    pub async fn restore(self: &Arc<Self>, saved: &SavedContent) -> Result<u64, StateError> {
        if saved.block_bytes != self.config.block_bytes {
            return Err(StateError::Unusable(format!(
                "it is for blocks of {} bytes, the volume has blocks of {}",
                saved.block_bytes, self.config.block_bytes
            )));
        }
        let end = self.geometry.size().div_ceil(self.geometry.block_bytes());
        let mut placed = 0;
        for group in saved.blocks.chunks(BLOCKS_AT_A_TIME) {
            while self.fetching.load(Ordering::Relaxed) > 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            if self.is_closing() || self.shards.is_empty() {
                break;
            }
            let mut work = Work::new(self);
            for &block in group.iter().filter(|&&block| block < end) {
                let (shard, _) = work.shard(block);
                let policy = shard.cache.policy();
                if policy.len() < policy.capacity() && shard.cache.frame(block).is_none() {
                    self.prefetch(self.geometry.start(block), 1, false, &mut work);
                    placed += 1;
                }
            }
            work.finish();
        }
        Ok(placed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_back_or_refused() {
        let saved =
            SavedContent { block_bytes: 4096, volume_bytes: 1 << 30, blocks: vec![3, 0, u64::MAX] };
        let bytes = saved.to_bytes();
        assert_eq!(SavedContent::from_bytes(&bytes).unwrap(), saved);
        for length in 0..bytes.len() {
            assert!(SavedContent::from_bytes(&bytes[..length]).is_err());
        }
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert!(SavedContent::from_bytes(&damaged).is_err(), "byte {at}");
        }
    }

    #[test]
    fn a_file_is_whole_or_not_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("demo.warm");
        assert!(matches!(SavedContent::load(&path), Err(StateError::Io(_))));
        let saved = SavedContent { block_bytes: 8192, volume_bytes: 1, blocks: vec![0] };
        saved.save(&path).unwrap();
        assert_eq!(SavedContent::load(&path).unwrap(), saved);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
