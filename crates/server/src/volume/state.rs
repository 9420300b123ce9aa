//! The file of a warm restart: the state of a volume's cache when it was saved. `restore.rs`
//! restores it.
//!
//! The file contains the state of the policies, in the format of `crates/level`, and no data; data
//! are read from the store again. So an outdated file costs hits, but cannot cause wrong data.
//!
//! `docs/developer/file-formats.md` describes the bytes.

use std::io::{self, Read};
use std::path::Path;

use undercroft_level::KnownBlocks;

use crate::replace::{open_regular, replace};

const MAGIC: &[u8; 8] = b"UCWARM\r\n";
const VERSION: u32 = 2;

/// Why the content cannot be saved, loaded or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// The file cannot be read or written.
    #[error("saved cache content: {0}")]
    Io(#[from] io::Error),
    /// It is another kind of file, damaged, or of another version.
    #[error("saved cache content: {0}; delete the file, it is only a hint")]
    Unusable(String),
    /// The cache cannot be saved.
    #[error("the cache cannot be saved: {0}")]
    Unsaved(String),
}

/// The saved state of a volume's cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedContent {
    /// Bytes of a block.
    pub block_bytes: u32,
    /// Bytes of the volume.
    pub volume_bytes: u64,
    /// The policy with all its parameters.
    pub policy: String,
    /// The saved cache of each shard.
    pub shards: Vec<Vec<u8>>,
}

impl SavedContent {
    /// Upper limit of the bytes of a file, for a cache of so many blocks: 64 MiB, and 1 KiB for
    /// each.
    pub(crate) fn bytes_max(cache_blocks: u32) -> u64 {
        (64 << 20) + 1024 * u64::from(cache_blocks)
    }

    /// The resident blocks before `end`, in the order in which they must be placed.
    pub(super) fn residents(&self, end: u64) -> Result<Vec<u64>, StateError> {
        let mut blocks = Vec::new();
        for shard in &self.shards {
            let residents = KnownBlocks::residents_of(shard);
            blocks.extend(residents.map_err(|e| StateError::Unusable(e.to_string()))?);
        }
        blocks.retain(|&block| block < end);
        Ok(blocks)
    }

    /// Encodes the file.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&self.block_bytes.to_le_bytes());
        bytes.extend_from_slice(&self.volume_bytes.to_le_bytes());
        bytes.extend_from_slice(&(self.policy.len() as u32).to_le_bytes());
        bytes.extend_from_slice(self.policy.as_bytes());
        bytes.extend_from_slice(&(self.shards.len() as u32).to_le_bytes());
        for shard in &self.shards {
            bytes.extend_from_slice(&(shard.len() as u64).to_le_bytes());
            bytes.extend_from_slice(shard);
        }
        let sum = crc32fast::hash(&bytes);
        bytes.extend_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Decodes the file.
    ///
    /// # Errors
    /// The bytes are not such a file, or damaged.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, StateError> {
        let unusable = |text: &str| StateError::Unusable(text.to_string());
        let body = bytes.strip_prefix(MAGIC).ok_or_else(|| unusable("this is no such file"))?;
        let Some((body, sum)) = body.split_last_chunk() else {
            return Err(unusable("it ends too early"));
        };
        if crc32fast::hash(&bytes[..bytes.len() - 4]) != u32::from_le_bytes(*sum) {
            return Err(unusable("the checksum does not match"));
        }
        let mut left = Left(body);
        let version = left.u32()?;
        if version != VERSION {
            return Err(StateError::Unusable(format!("version {version} is not known")));
        }
        let (block_bytes, volume_bytes) = (left.u32()?, left.u64()?);
        let length = u64::from(left.u32()?);
        let policy = String::from_utf8_lossy(left.take(length)?).into_owned();
        let mut shards = Vec::new();
        for _ in 0..left.u32()? {
            let length = left.u64()?;
            shards.push(left.take(length)?.to_vec());
        }
        if !left.0.is_empty() {
            return Err(unusable("its length does not match its content"));
        }
        Ok(Self { block_bytes, volume_bytes, policy, shards })
    }

    /// Writes the file, under another name first, so that it is never incomplete.
    ///
    /// # Errors
    /// The operating system reports an error.
    pub fn save(&self, path: &Path) -> Result<(), StateError> {
        Ok(replace(path, &self.to_bytes())?)
    }

    /// Reads a file of at most `longest` bytes.
    ///
    /// # Errors
    /// The operating system reports an error, or the file is not usable.
    pub fn load(path: &Path, longest: u64) -> Result<Self, StateError> {
        let mut file = open_regular(path)?;
        let length = file.metadata()?.len();
        if length > longest {
            let text = format!("{length} bytes are more than a cache of this size saves");
            return Err(StateError::Unusable(text));
        }
        let mut bytes = Vec::with_capacity(length as usize);
        file.by_ref().take(length).read_to_end(&mut bytes)?;
        Self::from_bytes(&bytes)
    }
}

/// The unread rest of a file.
struct Left<'a>(&'a [u8]);

impl<'a> Left<'a> {
    fn take(&mut self, length: u64) -> Result<&'a [u8], StateError> {
        let taken = usize::try_from(length).ok().and_then(|length| self.0.split_at_checked(length));
        let (taken, rest) =
            taken.ok_or_else(|| StateError::Unusable("it ends too early".into()))?;
        self.0 = rest;
        Ok(taken)
    }

    fn u32(&mut self) -> Result<u32, StateError> {
        Ok(u32::from_le_bytes(self.take(4)?.try_into().unwrap_or_default()))
    }

    fn u64(&mut self) -> Result<u64, StateError> {
        Ok(u64::from_le_bytes(self.take(8)?.try_into().unwrap_or_default()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn saved() -> SavedContent {
        SavedContent {
            block_bytes: 4096,
            volume_bytes: 1 << 30,
            policy: "lru".into(),
            shards: vec![vec![1, 2, 3], vec![], vec![0xff; 40]],
        }
    }

    #[test]
    fn a_file_is_read_back_or_refused() {
        let bytes = saved().to_bytes();
        assert_eq!(SavedContent::from_bytes(&bytes).unwrap(), saved());
        for length in 0..bytes.len() {
            assert!(SavedContent::from_bytes(&bytes[..length]).is_err());
        }
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert!(SavedContent::from_bytes(&damaged).is_err(), "byte {at}");
        }
    }

    /// A file with wrong content and a right checksum must do no harm either.
    #[test]
    fn damage_under_a_right_checksum_is_refused_or_taken() {
        let whole = saved().to_bytes();
        let body = &whole[..whole.len() - 4];
        let seal = |body: &[u8]| [body, &crc32fast::hash(body).to_le_bytes()].concat();
        let mut refused = 0;
        for at in 0..body.len() {
            for byte in [0, 1, 0x7f, 0xff] {
                let mut damaged = body.to_vec();
                damaged[at] = byte;
                refused += u32::from(SavedContent::from_bytes(&seal(&damaged)).is_err());
            }
            assert!(SavedContent::from_bytes(&seal(&body[..at])).is_err());
        }
        assert!(refused > 50, "{refused}");
        let longer = [body, &[0]].concat();
        assert!(SavedContent::from_bytes(&seal(&longer)).is_err());
    }

    #[test]
    fn a_file_is_whole_or_not_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("demo.warm");
        assert!(matches!(SavedContent::load(&path, 1000), Err(StateError::Io(_))));
        saved().save(&path).unwrap();
        assert_eq!(SavedContent::load(&path, 1000).unwrap(), saved());
        assert!(matches!(SavedContent::load(&path, 50), Err(StateError::Unusable(_))));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
