//! Many writes at once: each does what it would have done by itself.

use std::io::ErrorKind;
use std::sync::Arc;

use bytes::Bytes;
use tempfile::TempDir;
use tokio::sync::oneshot;
use undercroft_store::{FileOptions, FileStore, ManyWrite, Store};

use crate::suite::{Random, folder, memory, read, seed};

const SIZE: u64 = 1 << 20;

/// How each of the writes ended.
async fn write_many(store: &dyn Store, writes: Vec<ManyWrite>) -> Vec<Result<(), ErrorKind>> {
    let (tell, told) = oneshot::channel();
    let written = |results: Vec<std::io::Result<()>>| drop(tell.send(results));
    store.write_many(writes, false, Box::new(written));
    let results = told.await.unwrap();
    results.into_iter().map(|result| result.map_err(|error| error.kind())).collect()
}

fn stores(folder: &TempDir) -> Vec<Arc<dyn Store>> {
    let options = FileOptions { size: Some(SIZE), ..FileOptions::default() };
    let file = FileStore::open(&folder.path().join("many"), &options).unwrap();
    vec![Arc::new(file), memory(SIZE)]
}

#[tokio::test]
async fn many_writes_are_as_one_after_another() {
    let folder = folder();
    for store in stores(&folder) {
        assert!(store.takes_many());
        let mut random = Random::new(seed());
        let mut model = vec![0_u8; SIZE as usize];
        for round in 0..100_u64 {
            // Runs that follow one another and gaps, in any order.
            let (mut at, mut writes) = (random.below(4096), Vec::new());
            while at < SIZE {
                let length = (1 + random.below(9000)).min(SIZE - at);
                let data = Bytes::from(vec![(round + at) as u8; length as usize]);
                model[at as usize..(at + length) as usize].copy_from_slice(&data);
                let cut = random.below(length) as usize;
                let data = vec![data.slice(..cut), data.slice(cut..)];
                writes.push(ManyWrite { offset: at, data });
                let gap = if random.below(2) == 0 { 0 } else { random.below(20_000) };
                at += length + gap;
            }
            for index in (1..writes.len()).rev() {
                writes.swap(index, random.below(index as u64 + 1) as usize);
            }
            let results = write_many(&*store, writes).await;
            assert!(results.iter().all(Result::is_ok), "{results:?}");
        }
        assert!(read(&*store, 0, SIZE).await.unwrap() == model, "{}", store.facts().name);
    }
}

/// The caller's thread makes them itself if it may wait.
#[tokio::test]
async fn writes_made_here_are_made_at_once() {
    let folder = folder();
    for store in stores(&folder) {
        let (tell, mut told) = oneshot::channel();
        let here = std::thread::current().id();
        let written = move |results: Vec<std::io::Result<()>>| {
            let _ = tell.send((results.len(), std::thread::current().id() == here));
        };
        let data = vec![Bytes::from_static(&[7; 4096])];
        store.write_many(vec![ManyWrite { offset: 8192, data }], true, Box::new(written));
        assert_eq!(told.try_recv(), Ok((1, true)), "{}", store.facts().name);
        assert_eq!(read(&*store, 8192, 4096).await.unwrap(), [7; 4096]);
    }
}

#[tokio::test]
async fn each_of_many_writes_fails_by_itself() {
    let folder = folder();
    for store in stores(&folder) {
        let write = |offset| ManyWrite { offset, data: vec![Bytes::from_static(&[7; 4096])] };
        // The last two follow the others and pass the end.
        let writes = (0..4).rev().map(|i| write(SIZE - 8192 + i * 4096)).collect();
        let results = write_many(&*store, writes).await;
        let refused = Err(ErrorKind::InvalidInput);
        assert_eq!(results, [refused, refused, Ok(()), Ok(())]);
        assert_eq!(read(&*store, SIZE - 8192, 8192).await.unwrap(), [7; 8192]);
    }
}
