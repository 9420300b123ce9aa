//! A write log before a store: it conforms as any store does, and what happens when the store or
//! the log fails, or is another one. Lives that end in the middle are in `log_lives.rs`.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};
use undercroft_store::{
    FailRule, FailStore, FailWith, Failure, LogOptions, LogStore, OpenOptions, RequestKind, Store,
    StoreSpec, Trigger, Zeroing,
};

use crate::log_lives::{Disk, Left};
use crate::suite::{conforms, memory, read, write};

const LOG: u64 = 8 << 20;

pub(crate) async fn before(
    inner: Arc<dyn Store>,
    log: Arc<dyn Store>,
    life: u64,
) -> io::Result<LogStore> {
    let (bytes, name) = (log.facts().size, "/log".to_owned());
    let options = LogOptions { bytes, life, unmarked: true, name, on_warning: None };
    LogStore::open(inner, log, options).await
}

const FAILS: Failure = Failure::Error(FailWith::Io);
const STALLS: Failure = Failure::Stall(None);

/// A store whose writes fail so, from this one on.
fn failing(disk: Arc<dyn Store>, write: u64, failure: Failure) -> Arc<FailStore> {
    let kind = Some(RequestKind::Write);
    Arc::new(FailStore::new(disk, Some(FailRule { kind, trigger: Trigger::From(write), failure })))
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_a_store() {
    let (inner, log) = (memory(1 << 20), memory(LOG));
    let store = Arc::new(before(Arc::clone(&inner), Arc::clone(&log), 1).await.unwrap());
    conforms(Arc::clone(&store) as _, 400).await;
    let content = read(&*store, 0, 1 << 20).await.unwrap();
    store.close().await.unwrap();
    assert!(store.backlog().unwrap().age.is_none());
    assert!(read(&*inner, 0, 1 << 20).await.unwrap() == content);
    assert!(write(&*store, 0, &[1]).await.is_err(), "it is closed");
}

/// One answer tells of many changes, so that a range with many is listed in few requests.
#[tokio::test]
async fn an_answer_lists_many_changes() {
    const BLOCKS: u64 = 1500;
    let inner = failing(memory(8 << 20), 1, STALLS);
    let handle = inner.handle();
    let store = before(inner, memory(4 * LOG), 1).await.unwrap();
    for block in 0..BLOCKS {
        if block % 2 == 0 {
            write(&store, block << 12, &[1; 4096]).await.unwrap();
        } else {
            store.zero(block << 12, 4096, Zeroing::default(), false).await.unwrap();
        }
    }
    let mut at = 0;
    for most in [1024, BLOCKS as usize - 1024] {
        let extents = store.extents(at, (8 << 20) - at).await.unwrap();
        assert_eq!(extents.len(), most);
        for extent in extents {
            assert_eq!((extent.length, extent.zero), (4096, (at >> 12) % 2 == 1));
            at += extent.length;
        }
    }
    let rest = store.extents(at, (8 << 20) - at).await.unwrap();
    assert!(rest.iter().all(|extent| extent.zero) && at == BLOCKS << 12, "{rest:?}");
    handle.set(None);
    handle.release();
    store.close().await.unwrap();
}

/// The ring is full and the store stalls: changes wait, and go on.
#[tokio::test(start_paused = true)]
async fn a_full_log_waits_for_its_store() {
    let inner = failing(memory(64 << 20), 1, STALLS);
    let handle = inner.handle();
    let store = Arc::new(before(inner, memory(LOG), 1).await.unwrap());
    let writing = {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            for block in 0..24 {
                write(&*store, block << 20, &vec![block as u8 + 1; 1 << 20]).await.unwrap();
            }
        })
    };
    sleep(Duration::from_secs(60)).await;
    assert!(!writing.is_finished() && store.backlog().unwrap().bytes > LOG * 3 / 4);
    assert_eq!(read(&*store, 5 << 20, 1).await.unwrap(), [6], "reads go on");
    handle.set(None);
    handle.release();
    writing.await.unwrap();
    store.close().await.unwrap();
    assert_eq!(read(&*store, 23 << 20, 1).await.unwrap(), [24]);
}

/// A store that fails gets its changes when it works again; a flush does not need it.
#[tokio::test(start_paused = true)]
async fn a_store_that_fails_is_tried_again() {
    let disk = memory(1 << 20);
    let inner = failing(Arc::clone(&disk), 1, FAILS);
    let handle = inner.handle();
    let store = before(inner, memory(LOG), 1).await.unwrap();
    write(&store, 4096, &[7; 4096]).await.unwrap();
    store.flush().await.unwrap();
    sleep(Duration::from_secs(300)).await;
    assert!(store.backlog().unwrap().age.is_some_and(|age| age > Duration::from_secs(200)));
    handle.set(None);
    sleep(Duration::from_secs(30)).await;
    assert!(store.backlog().unwrap().age.is_none());
    assert_eq!(read(&*disk, 4096, 1).await.unwrap(), [7]);
}

/// A log that fails takes no change any more; the store gets what the log has.
#[tokio::test(start_paused = true)]
async fn a_log_that_fails_is_emptied() {
    for failure in [FAILS, STALLS] {
        let disk = memory(1 << 20);
        // The first write is the head's.
        let medium = failing(memory(LOG), 3, failure);
        let inner = failing(Arc::clone(&disk), 1, STALLS);
        let handle = inner.handle();
        let store = before(inner, medium, 1).await.unwrap();
        write(&store, 0, &[1; 4096]).await.unwrap();
        assert!(write(&store, 4096, &[2; 4096]).await.is_err());
        assert!(write(&store, 8192, &[3; 4096]).await.is_err() && store.flush().await.is_err());
        assert!(store.stopped().is_some_and(|why| why.contains("log /log failed")));
        handle.set(None);
        handle.release();
        sleep(Duration::from_secs(200)).await;
        assert_eq!(read(&*disk, 0, 1).await.unwrap(), [1]);
        assert_eq!(read(&store, 0, 1).await.unwrap(), [1]);
        // The store is whole without it, so it can be closed; a change is refused all the same.
        store.flush().await.unwrap();
        assert!(write(&store, 8192, &[3; 4096]).await.is_err());
        store.close().await.unwrap();
    }
}

/// What only the log has is not replaced by what the store had before: a read of it fails.
#[tokio::test(start_paused = true)]
async fn what_cannot_be_read_of_the_log_fails() {
    for failure in [FAILS, STALLS] {
        let inner = failing(memory(1 << 20), 1, STALLS);
        let medium = Arc::new(FailStore::new(memory(LOG), None));
        let handle = medium.handle();
        let store = before(inner, medium, 1).await.unwrap();
        write(&store, 4096, &[7; 4096]).await.unwrap();
        let (kind, trigger) = (Some(RequestKind::Read), Trigger::From(1));
        handle.set(Some(FailRule { kind, trigger, failure }));
        let answer = timeout(Duration::from_secs(31), read(&store, 4096, 1)).await;
        assert!(answer.expect("nobody waits for ever").is_err());
        assert_eq!(read(&store, 0, 1).await.unwrap(), [0], "the rest is read");
        handle.set(None);
        handle.release();
        assert_eq!(read(&store, 4096, 1).await.unwrap(), [7]);
    }
}

/// Changes that wait for room when the store is closed are made, or refused.
#[tokio::test(start_paused = true)]
async fn what_waits_at_the_end_is_in_the_store_if_it_was_answered() {
    let disk = memory(64 << 20);
    let inner = failing(Arc::clone(&disk), 1, STALLS);
    let handle = inner.handle();
    let store = Arc::new(before(inner, memory(LOG), 1).await.unwrap());
    let writes = (0..24_u64).map(|block| {
        let store = Arc::clone(&store);
        tokio::spawn(async move { write(&*store, block << 20, &vec![9; 1 << 20]).await })
    });
    let writes: Vec<_> = writes.collect();
    sleep(Duration::from_secs(5)).await;
    assert!(writes.iter().any(|write| !write.is_finished()), "none waits");
    let closing = {
        let store = Arc::clone(&store);
        tokio::spawn(async move { store.close().await })
    };
    sleep(Duration::from_secs(5)).await;
    handle.set(None);
    handle.release();
    closing.await.unwrap().unwrap();
    for (block, write) in writes.into_iter().enumerate() {
        let is_there = read(&*disk, (block as u64) << 20, 1).await.unwrap() == [9];
        assert!(write.await.unwrap().is_err() || is_there, "block {block} was answered");
    }
}

/// A change that waits when the store is dropped is refused.
#[tokio::test(start_paused = true)]
async fn what_waits_when_the_store_is_dropped_is_refused() {
    let stalls = FailRule { kind: None, trigger: Trigger::From(2), failure: STALLS };
    let inner = Arc::new(FailStore::new(memory(64 << 20), Some(stalls)));
    let store = before(inner, memory(LOG), 1).await.unwrap();
    let writes: Vec<_> = (0..24_u64)
        .map(|block| store.write(block << 20, vec![vec![9; 1 << 20].into()], false))
        .collect();
    sleep(Duration::from_secs(5)).await;
    drop(store);
    let answers = futures_util::future::join_all(writes).await;
    assert!(answers.iter().any(Result::is_err) && answers.iter().any(Result::is_ok));
}

/// A log that does not get empty is closed all the same, whoever waits for that, and its store gets
/// nothing more then but what is under way.
#[tokio::test(start_paused = true)]
async fn a_close_that_is_given_up_ends_all_changes() {
    let disk = memory(64 << 20);
    let inner = failing(Arc::clone(&disk), 1, STALLS);
    let handle = inner.handle();
    let store = before(inner, memory(LOG), 1).await.unwrap();
    for block in 0..512 {
        write(&store, block << 13, &[9; 4096]).await.unwrap();
    }
    store.flush().await.unwrap();
    let other = tokio::spawn(store.close());
    sleep(Duration::from_secs(1)).await;
    assert!(timeout(Duration::from_secs(5), store.close()).await.is_err());
    let again = store.close();
    handle.set(None);
    handle.release();
    assert!(again.await.is_err() && other.await.unwrap().is_err());
    let content = read(&*disk, 0, 64 << 20).await.unwrap();
    let written = content.iter().filter(|&&byte| byte == 9).count() >> 12;
    assert!((1..100).contains(&written), "{written} blocks");
    sleep(Duration::from_secs(60)).await;
    assert!(read(&*disk, 0, 64 << 20).await.unwrap() == content);
}

/// A flush covers what the store had from an earlier life, or before it had a log.
#[tokio::test(start_paused = true)]
async fn what_the_store_had_is_durable() {
    let disk = Disk::new(Left::new(vec![0; 1 << 20]), 1);
    for sector in 0..64 {
        write(&*disk, sector * 512, &[7; 512]).await.unwrap();
    }
    let store = before(Arc::clone(&disk) as _, memory(LOG), 1).await.unwrap();
    store.flush().await.unwrap();
    let disk = Disk::new(disk.end(false), 1);
    assert!(read(&*disk, 0, 64 * 512).await.unwrap().iter().all(|&byte| byte == 7));
}

/// A write of the log that was given up takes no effect after the log was given up.
#[tokio::test(start_paused = true)]
async fn a_late_append_is_not_believed() {
    for is_late in [false, true] {
        let failure = if is_late {
            Failure::Stall(Some(Duration::from_secs(40)))
        } else {
            // All of it is there all the same.
            Failure::Short(FailWith::default())
        };
        let rule = FailRule { kind: Some(RequestKind::Write), trigger: Trigger::Nth(3), failure };
        let (disk, log) = (memory(1 << 20), memory(LOG));
        let medium = Arc::new(FailStore::new(Arc::clone(&log), Some(rule)));
        let store = before(Arc::clone(&disk), medium, 1).await.unwrap();
        write(&store, 0, &[1; 4096]).await.unwrap();
        assert!(write(&store, 4096, &[2; 4096]).await.is_err());
        sleep(Duration::from_secs(120)).await;
        store.close().await.unwrap();
        assert_eq!(read(&*disk, 0, 1).await.unwrap(), [1]);
        write(&*disk, 4096, &[3; 4096]).await.unwrap();
        let store = before(Arc::clone(&disk), log, 2).await.unwrap();
        assert_eq!(read(&store, 4096, 1).await.unwrap(), [3], "late: {is_late}");
    }
}

/// A batch that was durable and is damaged is not the end of the log: what follows would be lost
/// without a word. One that no flush had covered is, since a loss of power leaves it so.
#[tokio::test(start_paused = true)]
async fn a_damaged_batch_that_was_durable_is_missed() {
    // The header of the second of three batches, and its data: two pages each, behind two heads.
    for (page, is_flushed) in [(4, true), (5, true), (4, false), (5, false)] {
        let (disk, log) = (memory(1 << 20), memory(LOG));
        // It takes nothing, so that the log keeps what it has.
        let refusing = failing(Arc::clone(&disk), 1, FAILS);
        let store = before(refusing, Arc::clone(&log), 1).await.unwrap();
        for block in 0..3 {
            write(&store, block * 4096, &[block as u8 + 1; 4096]).await.unwrap();
            if is_flushed {
                store.flush().await.unwrap();
            }
        }
        drop(store);
        write(&*log, page * 4096 + 20, &[77]).await.unwrap();
        let again = before(Arc::clone(&disk), log, 2).await;
        if is_flushed {
            let why = again.err().unwrap().to_string();
            assert!(why.contains("log /log: it is damaged: changes are gone"), "{page}: {why}");
        } else {
            let found = read(&again.unwrap(), 0, 3 * 4096).await.unwrap();
            assert_eq!([found[0], found[4096], found[8192]], [1, 0, 0], "{page}");
        }
    }
}

/// Bytes that the log's device has changed do not come to the store.
#[tokio::test(start_paused = true)]
async fn a_change_that_is_damaged_in_the_log_is_not_made() {
    let (disk, log) = (memory(1 << 20), memory(LOG));
    let store = before(Arc::clone(&disk), Arc::clone(&log), 1).await.unwrap();
    write(&store, 0, &[1; 4096]).await.unwrap();
    store.flush().await.unwrap();
    write(&*log, 3 * 4096, &[2]).await.unwrap();
    sleep(Duration::from_secs(60)).await;
    assert_eq!(read(&*disk, 0, 2).await.unwrap(), [0, 0]);
    let why = store.stopped().unwrap_or_default();
    assert!(why.contains("log /log failed: it is damaged"), "{why}");
    assert!(write(&store, 4096, &[3; 4096]).await.is_err());
    // It was flushed, so the next one to open the log must not go on without it.
    drop(store);
    let why = before(disk, log, 2).await.err().unwrap().to_string();
    assert!(why.contains("changes are gone that were durable"), "{why}");
}

/// A log is opened before its store with the units that it was written with.
#[tokio::test(start_paused = true)]
async fn a_store_with_larger_units_is_refused_until_the_log_is_empty() {
    let log = memory(LOG);
    let store = before(memory(1 << 20), Arc::clone(&log), 1).await.unwrap();
    write(&store, 100, &[1; 100]).await.unwrap();
    drop(store);
    let larger = before(Disk::new(Left::new(vec![0; 1 << 20]), 1), Arc::clone(&log), 2).await;
    assert!(larger.err().unwrap().to_string().contains("parts of 512 bytes"));
    let store = before(memory(1 << 20), log, 3).await.unwrap();
    assert_eq!(read(&store, 100, 1).await.unwrap(), [1]);
}

/// A medium that holds something else stays as it is, and a damaged log is not begun anew.
#[tokio::test]
async fn nothing_else_is_taken_for_a_log() {
    for (found, why) in [(&b"undercroft wrlog"[..], "damaged"), (b"other", "something else")] {
        for page in [0, 4096] {
            let medium = memory(LOG);
            write(&*medium, page, found).await.unwrap();
            let error = before(memory(1 << 20), Arc::clone(&medium), 1).await.err().unwrap();
            assert!(error.to_string().contains(why), "{error}");
            assert_eq!(read(&*medium, page, found.len() as u64).await.unwrap(), found);
        }
    }
    let (medium, options) = (memory(LOG), |bytes| LogOptions {
        bytes,
        life: 1,
        unmarked: true,
        name: "/log".to_owned(),
        on_warning: None,
    });
    let larger = LogStore::open(memory(1 << 20), Arc::clone(&medium), options(2 * LOG)).await;
    assert!(larger.err().unwrap().to_string().contains("has only"));
    before(memory(2 << 20), Arc::clone(&medium), 1).await.unwrap().close().await.unwrap();
    let smaller = before(memory(1 << 20), medium, 2).await;
    assert!(smaller.err().unwrap().to_string().contains("a larger store"));
}

/// A file is not opened without its log while that has anything, nor is a log before another file.
#[tokio::test]
async fn a_file_and_its_log_know_one_another() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let open = async |text: String| {
        let spec = text.parse::<StoreSpec>().unwrap();
        assert_eq!(spec.to_string(), text);
        spec.open(OpenOptions { size: Some(1 << 20), ..OpenOptions::default() }).await
    };
    let with_log = |file: &str| format!("log({},size=8MiB):file:{}", path("log"), path(file));
    let plain = format!("file:{}", path("one"));
    let store = match open(with_log("one")).await {
        Ok(store) => store,
        Err(error) if error.kind() == ErrorKind::Unsupported => {
            return println!("skipped: files have no attributes here");
        }
        Err(error) => panic!("{error}"),
    };
    write(&*store, 0, &[5; 4096]).await.unwrap();
    store.flush().await.unwrap();
    drop(store);
    let refused = async |text: &str, why: &str| {
        // The tasks of the one before may be at work for a moment.
        for _ in 0..1000 {
            let error = open(text.to_owned()).await.err().unwrap().to_string();
            if !error.contains("in use") {
                assert!(error.contains(why), "{error}");
                return;
            }
            sleep(Duration::from_millis(10)).await;
        }
        panic!("{text} is in use");
    };
    refused(&plain, "a part of it is in its write log").await;
    refused(&with_log("other"), "it is another store").await;
    let both = format!("concat({plain};file:{})", path("other"));
    let before_both = format!("log({},size=8MiB):{both}", path("another"));
    let refused_both = async |text: &str, why: &str| {
        let opened = text.parse::<StoreSpec>().unwrap().open(OpenOptions::default()).await;
        let error = opened.err().unwrap().to_string();
        assert!(error.contains(why), "{error}");
    };
    refused_both(&both, "a part of it is in its write log").await;
    refused_both(&before_both, "a part of it is in its log parts have").await;
    let when_free = async |text: String| {
        loop {
            match open(text.clone()).await {
                Ok(store) => break store,
                Err(error) => assert!(error.to_string().contains("in use"), "{error}"),
            }
            sleep(Duration::from_millis(10)).await;
        }
    };
    let store = when_free(with_log("one")).await;
    assert_eq!(read(&*store, 0, 1).await.unwrap(), [5]);
    store.close().await.unwrap();
    drop(store);
    let store = when_free(plain.clone()).await;
    assert_eq!(read(&*store, 0, 1).await.unwrap(), [5]);
    drop(store);

    // What a log has given to a copy of its store, the store itself still lacks.
    let before_it = |file: &str| format!("log({},size=8MiB):file:{}", path("own log"), path(file));
    let store = open(before_it("original")).await.unwrap();
    write(&*store, 4096, &[7; 4096]).await.unwrap();
    store.flush().await.unwrap();
    drop(store);
    let mut copying = std::process::Command::new("cp");
    copying.args(["--archive", &path("original"), &path("copy")]);
    assert!(copying.status().unwrap().success());
    when_free(before_it("copy")).await.close().await.unwrap();
    let copy = when_free(format!("file:{}", path("copy"))).await;
    assert_eq!(read(&*copy, 4096, 1).await.unwrap(), [7]);
    refused(&before_it("original"), "the store has another log").await;

    // An empty log that two stores had belongs to the one that had it last.
    drop(when_free(with_log("one")).await);
    let other = when_free(with_log("other")).await;
    write(&*other, 0, &[6; 4096]).await.unwrap();
    drop(other);
    refused(&with_log("one"), "the store has another log").await;
}

/// A store of which only a part can have a mark gets none.
#[tokio::test]
async fn parts_are_marked_together() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let file = format!("file(size=1MiB):{}", path("file"));
    let log = format!("log({},size=8MiB):concat({file};mem(1MiB):)", path("log"));
    let open = async |text: &str| {
        text.parse::<StoreSpec>().unwrap().open(OpenOptions::default()).await.map(drop)
    };
    let error = open(&log).await.unwrap_err().to_string();
    assert!(error.contains("say `unmarked`"), "{error}");
    open(&file).await.unwrap();
}

/// A log that fails while it has nothing leaves the file as one that needs none.
#[tokio::test]
async fn a_file_whose_empty_log_fails_is_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file").display().to_string();
    let options = OpenOptions { size: Some(1 << 20), has_log: true, ..OpenOptions::default() };
    let spec = format!("file:{path}").parse::<StoreSpec>().unwrap();
    let file = spec.open(options).await.unwrap();
    let medium = failing(memory(LOG), 2, FAILS);
    let name = "/log".to_owned();
    let log = LogOptions { bytes: LOG, life: 1, unmarked: false, name, on_warning: None };
    let store = match LogStore::open(Arc::clone(&file), medium, log).await {
        Err(error) if error.kind() == ErrorKind::Unsupported => {
            return println!("skipped: files have no attributes here");
        }
        opened => opened.unwrap(),
    };
    assert!(file.mark().await.unwrap().is_some());
    assert!(write(&store, 0, &[1; 4096]).await.is_err());
    while file.mark().await.unwrap().is_some() {
        sleep(Duration::from_millis(10)).await;
    }
    store.close().await.unwrap();
}
