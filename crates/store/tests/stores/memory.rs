//! The store in memory.

use std::sync::Arc;

use undercroft_store::{MemoryStore, Store, Zeroing};

use crate::suite::{conforms, read, write};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conforms_to_the_suite() {
    conforms(Arc::new(MemoryStore::new(1_000_003).unwrap()), 2000).await;
    conforms(Arc::new(MemoryStore::new(100).unwrap()), 500).await;
}

#[tokio::test]
async fn takes_memory_only_for_what_was_written() {
    let pebibyte = 1 << 50;
    let store = MemoryStore::new(pebibyte).unwrap();
    write(&store, pebibyte - 3, b"end").await.unwrap();
    write(&store, pebibyte / 2, b"middle").await.unwrap();
    assert_eq!(store.allocated_bytes(), 2 * 65536);
    assert_eq!(read(&store, pebibyte - 3, 3).await.unwrap(), b"end");
    store.trim(0, pebibyte, false).await.unwrap();
    assert_eq!(store.allocated_bytes(), 0);
    assert_eq!(read(&store, pebibyte - 3, 3).await.unwrap(), [0; 3]);
}

#[tokio::test]
async fn zeroing_keeps_what_must_stay_allocated() {
    let store = MemoryStore::new(1 << 20).unwrap();
    let keep = Zeroing { keep_allocated: true, only_if_fast: false };
    store.zero(65536, 65536, keep, false).await.unwrap();
    assert_eq!(store.allocated_bytes(), 65536);
    let extents = store.extents(0, 1 << 20).await.unwrap();
    let lengths: Vec<_> = extents.iter().map(|extent| (extent.length, extent.hole)).collect();
    assert_eq!(lengths, [(65536, true), (65536, false), ((1 << 20) - 131_072, true)]);
    store.zero(0, 1 << 20, Zeroing::default(), false).await.unwrap();
    assert_eq!(store.allocated_bytes(), 0);
}

#[test]
fn a_size_beyond_all_addresses_is_refused() {
    let error = MemoryStore::new(1 << 63).err().unwrap();
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
}
