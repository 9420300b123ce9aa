//! Several stores as one.

use std::io::ErrorKind;
use std::sync::Arc;

use bytes::Bytes;
use undercroft_store::{
    FailRule, FailStore, FailWith, Failure, FileOptions, FileStore, RequestKind, SpanStore, Store,
    Trigger, Zeroing, os_error,
};

use crate::suite::{conforms, folder, memory, read, read_into, refuses_changes, write};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concatenated_stores_conform_to_the_suite() {
    let parts = vec![memory(100_000), memory(0), memory(1), memory(70_001), memory(300_000)];
    conforms(Arc::new(SpanStore::concat(parts).unwrap()), 1500).await;
    conforms(Arc::new(SpanStore::concat(vec![memory(5000)]).unwrap()), 300).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn striped_stores_conform_to_the_suite() {
    let parts = vec![memory(100_000), memory(120_000), memory(99_999)];
    conforms(Arc::new(SpanStore::stripe(parts.clone(), 4096).unwrap()), 1500).await;
    conforms(Arc::new(SpanStore::stripe(parts, 7).unwrap()), 100).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parts_with_direct_io_keep_the_whole_aligned() {
    let folder = folder();
    let options = FileOptions { size: Some(1 << 20), direct: true, ..FileOptions::default() };
    let Ok(file) = FileStore::open(&folder.path().join("part"), &options) else {
        return println!("skipped: no direct I/O here");
    };
    let file: Arc<dyn Store> = Arc::new(file);
    let odd = SpanStore::concat(vec![memory(1000), Arc::clone(&file)]).err().unwrap();
    assert!(odd.to_string().contains("part 1 is 1000"), "{odd}");
    let odd = SpanStore::stripe(vec![memory(1 << 20), Arc::clone(&file)], 100).err().unwrap();
    assert!(odd.to_string().contains("multiple of"), "{odd}");
    let whole = SpanStore::stripe(vec![memory(1 << 20), file], 8192).unwrap();
    assert!(whole.facts().alignment > 1);
    conforms(Arc::new(whole), 300).await;
}

#[tokio::test]
async fn bytes_lie_where_the_layout_says() {
    let (first, second) = (memory(30), memory(30));
    let whole = SpanStore::stripe(vec![Arc::clone(&first), Arc::clone(&second)], 10).unwrap();
    assert_eq!(whole.facts().size, 60);
    let data: Vec<u8> = (0..60).collect();
    write(&whole, 0, &data).await.unwrap();
    let ranges = |starts: [u8; 3]| starts.iter().flat_map(|at| *at..*at + 10).collect::<Vec<_>>();
    assert_eq!(read(&*first, 0, 30).await.unwrap(), ranges([0, 20, 40]));
    assert_eq!(read(&*second, 0, 30).await.unwrap(), ranges([10, 30, 50]));
    assert_eq!(read_into(&whole, 5, &[3, 0, 22, 25]).await.unwrap(), data[5..55]);
}

/// A range of a tebibyte touches millions of stripes, and is still one request to each part.
#[tokio::test]
async fn a_huge_range_is_one_request_for_each_part() {
    let size = 1 << 40;
    let whole = SpanStore::stripe(vec![memory(size), memory(size)], 4096).unwrap();
    write(&whole, size + 5, b"gone").await.unwrap();
    whole.zero(0, 2 * size, Zeroing::default(), false).await.unwrap();
    assert_eq!(read(&whole, size + 5, 4).await.unwrap(), [0; 4]);
}

#[tokio::test]
async fn an_error_names_its_part_and_the_buffers_come_back() {
    let rule = FailRule {
        kind: None,
        trigger: Trigger::From(1),
        failure: Failure::Error(FailWith::NoSpace),
    };
    let broken = Arc::new(FailStore::new(memory(100), Some(rule)));
    let handle = broken.handle();
    let whole = SpanStore::concat(vec![memory(100), broken, memory(100)]).unwrap();
    let data = vec![Bytes::from(vec![1; 300])];
    let errors = [
        read_into(&whole, 0, &[50, 150, 100]).await.err().unwrap(),
        whole.write(0, data, false).await.unwrap_err(),
        whole.zero(0, 300, Zeroing::default(), false).await.unwrap_err(),
        whole.trim(99, 2, false).await.unwrap_err(),
        whole.flush().await.unwrap_err(),
        whole.extents(0, 300).await.unwrap_err(),
    ];
    for error in errors {
        assert!(error.to_string().starts_with("part 2: "), "{error}");
        assert_eq!(error.kind(), ErrorKind::StorageFull);
        assert_eq!(os_error(&error), Some(rustix::io::Errno::NOSPC.raw_os_error()));
    }
    assert_eq!(handle.failed(), 6);
    assert_eq!(read(&whole, 200, 100).await.unwrap(), [0; 100], "the other parts still work");
}

#[tokio::test]
async fn flush_reaches_every_part() {
    let counting = |_| {
        let never = Failure::Stall(Some(std::time::Duration::ZERO));
        let kind = Some(RequestKind::Flush);
        let rule = FailRule { kind, trigger: Trigger::From(1), failure: never };
        Arc::new(FailStore::new(memory(10), Some(rule)))
    };
    let parts: Vec<_> = (0..3).map(counting).collect();
    let stores = parts.iter().map(|part| Arc::clone(part) as Arc<dyn Store>).collect();
    SpanStore::concat(stores).unwrap().flush().await.unwrap();
    assert!(parts.iter().all(|part| part.handle().failed() == 1));
}

#[tokio::test]
async fn read_only_if_a_part_is_and_grows_with_the_last() {
    let folder = folder();
    let path = folder.path().join("part");
    std::fs::write(&path, [3; 500]).unwrap();
    let options = FileOptions { read_only: true, ..FileOptions::default() };
    let file = Arc::new(FileStore::open(&path, &options).unwrap());
    let whole = SpanStore::concat(vec![memory(100), file]).unwrap();
    refuses_changes(&whole).await;
    std::fs::write(&path, [3; 900]).unwrap();
    assert_eq!(whole.reload().await.unwrap(), 1000);
    assert_eq!(read(&whole, 999, 1).await.unwrap(), [3]);
}

#[test]
fn nothing_and_too_much_are_refused() {
    assert!(SpanStore::concat(Vec::new()).is_err());
    assert!(SpanStore::stripe(vec![memory(10)], 0).is_err());
    let half = 1 << 62;
    assert!(SpanStore::concat(vec![memory(half), memory(half)]).is_err());
    assert!(SpanStore::stripe(vec![memory(half), memory(half)], 4096).is_err());
    assert!(SpanStore::stripe(vec![memory(half), memory(half)], 1 << 63).is_err());
}

/// One time of a last change does not tell that one of several files is as it was: it may have been
/// put back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_tells_who_changed_several_files() {
    let folder = folder();
    let options = FileOptions { size: Some(1 << 20), ..FileOptions::default() };
    let file = |name| -> Arc<dyn Store> {
        Arc::new(FileStore::open(&folder.path().join(name), &options).unwrap())
    };
    let both = [file("a"), file("b")];
    assert!(both[0].version().await.is_some());
    assert_eq!(SpanStore::stripe(both.to_vec(), 4096).unwrap().version().await, None);
    assert_eq!(SpanStore::concat(both.to_vec()).unwrap().version().await, None);
}
