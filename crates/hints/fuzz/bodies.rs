//! What the fuzz targets do with their bytes. The ordinary tests do the same with random ones.

use bytes::{Bytes, BytesMut};
use undercroft_hints::{Hint, parse, parse_evictions};

/// The bytes are a mailbox message. What is understood of it, written down again, is understood
/// as the same; and evictions read where they lie are the same.
pub(crate) fn hints(bytes: &[u8]) {
    let message = Bytes::copy_from_slice(bytes);
    let evictions = parse_evictions(&message);
    let Ok(hints) = parse(&message) else { return assert!(evictions.is_none()) };
    if let Some(found) = evictions {
        let (age_us, sequence, flags) = (found.age_us, found.sequence, found.flags);
        let runs = found.runs().collect();
        assert_eq!(hints, [Hint::Evict { age_us, sequence, flags, runs }]);
    }
    let mut again = BytesMut::new();
    hints.iter().for_each(|hint| hint.put(&mut again));
    assert_eq!(parse(&again.freeze()), Ok(hints));
}
