//! The store that fails on purpose.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use undercroft_store::{
    FailRule, FailStore, FailWith, Failure, MemoryStore, RequestKind, Store, Trigger, Zeroing,
    os_error,
};

use crate::suite::{conforms, read, read_into, write};

fn failing(rule: FailRule) -> FailStore {
    FailStore::new(Arc::new(MemoryStore::new(1000).unwrap()), Some(rule))
}

fn rule(kind: Option<RequestKind>, trigger: Trigger, failure: Failure) -> FailRule {
    FailRule { kind, trigger, failure }
}

const EIO: Failure = Failure::Error(FailWith::Io);

/// Which of ten reads fail.
async fn pattern(trigger: Trigger) -> Vec<u32> {
    let store = failing(rule(Some(RequestKind::Read), trigger, EIO));
    let mut failed = Vec::new();
    for request in 1..=10 {
        write(&store, 0, b"other kinds do not count").await.unwrap();
        if read(&store, 0, 10).await.is_err() {
            failed.push(request);
        }
    }
    assert_eq!(store.handle().failed(), failed.len() as u64);
    failed
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conforms_to_the_suite_while_it_does_not_fail() {
    let inner = Arc::new(MemoryStore::new(100_000).unwrap());
    conforms(Arc::new(FailStore::new(inner, None)), 300).await;
}

#[tokio::test]
async fn triggers_meet_what_they_say() {
    assert_eq!(pattern(Trigger::Nth(3)).await, [3]);
    assert_eq!(pattern(Trigger::From(8)).await, [8, 9, 10]);
    assert_eq!(pattern(Trigger::Every(4)).await, [4, 8]);
    let chance = |probability, seed| Trigger::Chance { probability, seed };
    assert_eq!(pattern(chance(0.0, 1)).await, [0; 0]);
    assert_eq!(pattern(chance(1.0, 1)).await.len(), 10);
    let drawn = pattern(chance(0.5, 1)).await;
    assert!((1..10).contains(&drawn.len()), "{drawn:?}");
    assert_eq!(pattern(chance(0.5, 1)).await, drawn);
    assert_ne!(pattern(chance(0.5, 2)).await, drawn);
}

#[tokio::test]
async fn every_kind_can_fail_and_says_so() {
    let store = failing(rule(None, Trigger::From(1), EIO));
    let errors = [
        read_into(&store, 0, &[3, 4]).await.err().unwrap(),
        write(&store, 0, b"x").await.unwrap_err(),
        store.zero(0, 10, Zeroing::default(), false).await.unwrap_err(),
        store.trim(0, 10, false).await.unwrap_err(),
        store.flush().await.unwrap_err(),
        store.extents(0, 10).await.unwrap_err(),
    ];
    let doing = ["read", "write", "zero", "trim", "flush", "extents"];
    for (error, doing) in errors.iter().zip(doing) {
        assert_eq!(os_error(error), Some(rustix::io::Errno::IO.raw_os_error()));
        let text = error.to_string();
        assert!(text.contains(&format!("mem:: {doing} fails on purpose")), "{text}");
    }
    store.handle().set(None);
    assert_eq!(read(&store, 0, 1).await.unwrap(), [0], "no failed write took effect");
}

#[tokio::test]
async fn short_requests_take_effect_by_half() {
    let short = Failure::Short(FailWith::NoSpace);
    let store = failing(rule(None, Trigger::Every(2), short));
    let pieces = vec![Bytes::from(vec![1; 30]), Bytes::from(vec![2; 70])];
    assert_eq!(read(&store, 0, 10).await.unwrap(), [0; 10]);
    store.write(0, pieces, false).await.unwrap_err();
    let expected = [vec![1; 30], vec![2; 20], vec![0; 50]].concat();
    assert_eq!(read(&store, 0, 100).await.unwrap(), expected);
    store.zero(0, 20, Zeroing::default(), false).await.unwrap_err();
    assert_eq!(read(&store, 9, 2).await.unwrap(), [0, 1]);
    assert!(read_into(&store, 0, &[10, 20]).await.is_err());
    store.flush().await.unwrap();
    store.flush().await.unwrap_err();
}

#[tokio::test(start_paused = true)]
async fn a_stall_lasts_its_time_or_until_released() {
    let hour = Duration::from_secs(3600);
    let store = Arc::new(failing(rule(None, Trigger::From(1), Failure::Stall(Some(hour)))));
    let start = tokio::time::Instant::now();
    store.flush().await.unwrap();
    assert!(start.elapsed() >= hour);

    let stall = Failure::Stall(None);
    store.handle().set(Some(rule(Some(RequestKind::Write), Trigger::Nth(1), stall)));
    let writer = Arc::clone(&store);
    let written = tokio::spawn(async move { write(&*writer, 0, b"stalled").await });
    tokio::time::sleep(hour).await;
    assert!(!written.is_finished());
    assert_eq!(read(&*store, 0, 7).await.unwrap(), [0; 7], "others pass");
    store.handle().release();
    written.await.unwrap().unwrap();
    assert_eq!(read(&*store, 0, 7).await.unwrap(), b"stalled");
}

/// A release between the request and the first look at its answer counts.
#[tokio::test]
async fn a_release_is_not_missed() {
    let store = failing(rule(None, Trigger::From(1), Failure::Stall(None)));
    let answer = store.flush();
    store.handle().release();
    answer.await.unwrap();
    let answer = store.flush();
    drop(store);
    answer.await.unwrap();
}
