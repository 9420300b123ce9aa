//! The store that takes its time, on tokio's paused clock: times are exact, and nobody waits.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use undercroft_store::{Delay, DelayStore, MemoryStore, Store};

use crate::suite::{conforms, read, write};

fn delayed(min_ms: u64, max_ms: u64, queue: Option<u32>) -> DelayStore {
    let ms = Duration::from_millis;
    let delay = Delay { min: ms(min_ms), max: ms(max_ms), queue, seed: 1 };
    DelayStore::new(Arc::new(MemoryStore::new(1 << 20).unwrap()), delay).unwrap()
}

/// When each of several reads that are asked for together is answered, in ms.
async fn answers_ms(store: &DelayStore, requests: usize) -> Vec<u128> {
    let start = Instant::now();
    let asked: Vec<_> = (0..requests).map(|_| store.read(0, Vec::new())).collect();
    let mut tasks = Vec::new();
    for answer in asked {
        tasks.push(tokio::spawn(async move {
            answer.await.1.unwrap();
            start.elapsed().as_millis()
        }));
    }
    let mut times = Vec::new();
    for task in tasks {
        times.push(task.await.unwrap());
    }
    times
}

#[tokio::test(start_paused = true)]
async fn conforms_to_the_suite() {
    conforms(Arc::new(delayed(1, 3, Some(2))), 300).await;
}

#[tokio::test(start_paused = true)]
async fn without_a_queue_all_are_served_at_once() {
    assert_eq!(answers_ms(&delayed(5, 5, None), 4).await, [5, 5, 5, 5]);
}

#[tokio::test(start_paused = true)]
async fn a_queue_serves_in_order_and_rests_in_between() {
    let store = delayed(5, 5, Some(2));
    for _ in 0..2 {
        assert_eq!(answers_ms(&store, 5).await, [5, 5, 10, 10, 15]);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn times_lie_in_the_range_and_repeat() {
    let first = answers_ms(&delayed(10, 50, None), 200).await;
    assert!(first.iter().all(|ms| (10..=51).contains(ms)), "{first:?}");
    assert!(first.iter().any(|ms| *ms < 20) && first.iter().any(|ms| *ms > 40), "{first:?}");
    assert_eq!(first, answers_ms(&delayed(10, 50, None), 200).await);
}

#[tokio::test(start_paused = true)]
async fn a_change_happens_when_its_time_has_come() {
    let inner = Arc::new(MemoryStore::new(100).unwrap());
    let second = Duration::from_secs(1);
    let delay = Delay { min: second, max: second, queue: None, seed: 0 };
    let store = Arc::new(DelayStore::new(Arc::clone(&inner) as _, delay).unwrap());
    let writer = Arc::clone(&store);
    let written = tokio::spawn(async move { write(&*writer, 0, b"late").await });
    tokio::time::sleep(second / 2).await;
    assert_eq!(read(&*inner, 0, 4).await.unwrap(), [0; 4]);
    written.await.unwrap().unwrap();
    assert_eq!(read(&*inner, 0, 4).await.unwrap(), b"late");
    let start = Instant::now();
    store.extents(0, 100).await.unwrap();
    assert!(start.elapsed().is_zero(), "questions about the store do not wait");
}

/// Delays on the real clock, with a wide margin above.
#[tokio::test]
async fn real_time_passes() {
    let start = std::time::Instant::now();
    answers_ms(&delayed(30, 30, Some(1)), 3).await;
    let took = start.elapsed();
    assert!((Duration::from_millis(90)..Duration::from_secs(20)).contains(&took), "{took:?}");
}

#[test]
fn senseless_delays_are_refused() {
    let inner: Arc<dyn Store> = Arc::new(MemoryStore::new(1).unwrap());
    let good = Delay { min: Delay::MAX, max: Delay::MAX, queue: Some(1), seed: 0 };
    let longer = Delay::MAX + Duration::from_nanos(1);
    assert!(DelayStore::new(Arc::clone(&inner), good).is_ok());
    for bad in [
        Delay { max: longer, ..good },
        Delay { max: Duration::ZERO, ..good },
        Delay { queue: Some(0), ..good },
        Delay { queue: Some(Delay::QUEUE_MAX + 1), ..good },
    ] {
        assert!(DelayStore::new(Arc::clone(&inner), bad).is_err(), "{bad:?}");
    }
}
