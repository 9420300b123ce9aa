//! The end of each data object: bytes that no other version of any object has.
//!
//! Services make an ETag of the content, often its MD5. Without these bytes an ETag would come back
//! when content comes back, and a request that was made for the first of two equal versions could
//! be executed on the second one.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

/// Bytes of a stamp.
pub(super) const STAMP_BYTES: u64 = 24;

/// How a stamp begins.
const MAGIC: [u8; 8] = *b"UCDATA\r\n";

/// The name of one version of one object. `docs/developer/file-formats.md` has its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    /// The open store that wrote it: a random number.
    session: u64,
    /// Counts what that store wrote.
    number: u64,
}

/// Makes the stamps of one open store.
pub(super) struct Stamps {
    session: u64,
    made: AtomicU64,
}

impl Stamps {
    pub(super) fn new() -> Stamps {
        // The system seeds this differently each time.
        let session = RandomState::new().hash_one(std::process::id());
        Stamps { session, made: AtomicU64::new(0) }
    }

    /// A stamp that nobody has seen yet.
    pub(super) fn next(&self) -> Stamp {
        Stamp { session: self.session, number: self.made.fetch_add(1, Ordering::Relaxed) }
    }

    /// Whether a stamp was made here.
    pub(super) fn made(&self, stamp: Stamp) -> bool {
        stamp.session == self.session
    }
}

impl Stamp {
    pub(super) fn bytes(self) -> Bytes {
        let parts = [MAGIC, self.session.to_le_bytes(), self.number.to_le_bytes()];
        parts.concat().into()
    }

    /// The stamp that these bytes end in; `None` if they do not.
    pub(super) fn at_the_end(bytes: &[u8]) -> Option<Stamp> {
        let (_, stamp) = bytes.split_last_chunk::<{ STAMP_BYTES as usize }>()?;
        let part = |at: usize| stamp[at..at + 8].try_into().map(u64::from_le_bytes).ok();
        (stamp[..8] == MAGIC)
            .then(|| Some(Stamp { session: part(8)?, number: part(16)? }))
            .flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_differ_and_are_found_at_the_end() {
        let (ours, theirs) = (Stamps::new(), Stamps::new());
        let (first, second, other) = (ours.next(), ours.next(), theirs.next());
        assert!(first != second && ours.made(first) && ours.made(second) && !ours.made(other));
        let bytes = [b"data", &first.bytes()[..]].concat();
        assert_eq!(first.bytes().len() as u64, STAMP_BYTES);
        assert_eq!(Stamp::at_the_end(&bytes), Some(first));
        assert_eq!(Stamp::at_the_end(&bytes[..bytes.len() - 1]), None);
        assert_eq!(Stamp::at_the_end(&bytes[9..]), None);
    }
}
