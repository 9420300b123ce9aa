//! A model checker of interleavings for the three places where threads meet without a plain lock:
//! the waiting for a shard's lock, the pool of frames, and the tracker's ring. The very source
//! files are compiled here, with `shuttle`'s primitives in place of the standard library's, which
//! decide at every step which thread goes on.
//!
//! Each check runs many schedules, drawn at random and by the PCT algorithm (which finds bugs that
//! need few changes of threads). A failure prints a schedule, which `shuttle::replay` repeats.
//! SCHEDULES=N runs N of each kind (default 20,000).
//!
//! Not found here: what a processor reorders (every step is seen by all at once). ThreadSanitizer
//! and the tests with real threads are for that (`make sanitize`).

#[path = "../../../crates/server/src/lock.rs"]
mod lock;
mod memory;
#[path = "../../../crates/frames/src/pool.rs"]
#[allow(dead_code, reason = "only what threads share is checked")]
mod pool;
#[path = "../../../crates/tracker/src/ring.rs"]
#[allow(dead_code, reason = "only what threads share is checked")]
mod ring;
mod segment;
mod sync;

/// Fetching memory ahead changes nothing that a program can see.
mod ahead {
    use crate::sync::atomic::AtomicU64;

    pub(crate) fn write(_: &AtomicU64) {}
}

use shuttle::sync::atomic::{AtomicU32, Ordering};
use shuttle::sync::{Arc, Mutex};
use shuttle::thread;

use memory::Mapping;
use pool::{Frame, Pool};
use ring::{Next, Ring};
use segment::Segment;

fn main() {
    let count = std::env::var("SCHEDULES").ok().and_then(|text| text.parse().ok());
    let count = count.unwrap_or(20_000);
    let checks: [(&str, fn()); 5] = [
        ("a shard's lock is held by one at a time", one_holds_the_lock),
        ("a frame has one writer, and readers see what it wrote", frames_are_exclusive),
        ("a frame that all let go of is free once", frames_come_back_once),
        ("what writers put into the ring comes out once, in their order", records_come_out),
        ("a cell that is given up makes no record of two", a_slow_writer_is_given_up),
    ];
    for (what, check) in checks {
        shuttle::check_random(check, count);
        shuttle::check_pct(check, count, 3);
        println!("{what}: {} schedules", 2 * count);
    }
}

fn one_holds_the_lock() {
    let (count, inside) = (Arc::new(Mutex::new(0)), Arc::new(AtomicU32::new(0)));
    let add = |_| {
        let (count, inside) = (Arc::clone(&count), Arc::clone(&inside));
        thread::spawn(move || {
            for _ in 0..2 {
                let mut held = lock::lock(&count);
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                *held += 1;
                assert_eq!(inside.fetch_sub(1, Ordering::SeqCst), 1);
            }
        })
    };
    let threads: Vec<_> = (0..3).map(add).collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(*lock::lock(&count), 6);
}

/// Threads share a frame, let it go or take the right to write; whoever has that finds what the
/// writer before it left whole.
fn frames_are_exclusive() {
    let pool = Mapping::pool(2, 64);
    let mut first = pool.take().unwrap();
    first.fill(1);
    let shared = first.freeze();
    let work = |number: u8| {
        let (pool, frame) = (pool.clone(), shared.clone());
        thread::spawn(move || write_if_alone(&pool, frame, number))
    };
    let threads: Vec<_> = (2..5).map(work).collect();
    write_if_alone(&pool, shared, 5);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(pool.free_count(), 2);
}

fn write_if_alone(pool: &Pool, frame: Frame, number: u8) {
    let is_whole = |bytes: &[u8]| bytes.iter().all(|byte| *byte == bytes[0]);
    assert!(is_whole(frame.as_ref()));
    match frame.try_into_mut() {
        Ok(mut own) => {
            for byte in own.iter_mut() {
                *byte = number;
            }
            thread::yield_now();
            assert!(own.iter().all(|&byte| byte == number));
            drop(own.freeze());
        }
        Err(shared) => {
            thread::yield_now();
            assert!(is_whole(shared.as_ref()));
        }
    }
    if let Some(mut other) = pool.take() {
        other.fill(number);
        thread::yield_now();
        assert!(other.iter().all(|&byte| byte == number), "somebody else has the frame");
    }
}

fn frames_come_back_once() {
    let pool = Mapping::pool(1, 64);
    let shared = pool.take().unwrap().freeze();
    let let_go = |_| {
        let frame = shared.clone();
        thread::spawn(move || drop(frame))
    };
    let threads: Vec<_> = (0..3).map(let_go).collect();
    drop(shared);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(pool.free_count(), 1);
    let only = pool.take();
    assert!(only.is_some() && pool.take().is_none());
}

fn records_come_out() {
    let segment = Arc::new(Segment::new(2));
    let write = |writer: u64| {
        let segment = Arc::clone(&segment);
        thread::spawn(move || {
            let ring = Ring::new(&segment);
            (0..2).filter(|&number| ring.push([writer, number, writer + number])).count()
        })
    };
    let writers: Vec<_> = (1..3).map(write).collect();
    let ring = Ring::new(&segment);
    let (mut found, mut looks) = (Vec::new(), 0);
    while looks < 12 {
        match ring.pop() {
            Next::Record(record) => found.push(record),
            Next::Nothing | Next::Unfinished => {
                looks += 1;
                thread::yield_now();
            }
        }
    }
    let pushed: usize = writers.into_iter().map(|writer| writer.join().unwrap()).sum();
    while let Next::Record(record) = ring.pop() {
        found.push(record);
    }
    assert_eq!(found.len(), pushed, "all that was taken, and nothing twice");
    for writer in 1..3 {
        let its: Vec<u64> = found.iter().filter(|r| r[0] == writer).map(|r| r[1]).collect();
        assert!(its.is_sorted() && its.windows(2).all(|two| two[0] != two[1]), "{found:?}");
    }
    let is_whole = |[writer, number, sum]: &[u64; 3]| {
        (1..3).contains(writer) && *number < 2 && *sum == writer + number
    };
    assert!(found.iter().all(is_whole), "{found:?}");
}

/// The reader gives up what is not finished. A writer that was only slow then says that its record
/// was dropped; nobody finds half of it.
fn a_slow_writer_is_given_up() {
    let segment = Arc::new(Segment::new(1));
    let write = |writer: u64| {
        let segment = Arc::clone(&segment);
        thread::spawn(move || Ring::new(&segment).push([writer, writer + 100, writer + 200]))
    };
    let writers: Vec<_> = (1..3).map(write).collect();
    let ring = Ring::new(&segment);
    let mut found = Vec::new();
    for _ in 0..6 {
        match ring.pop() {
            Next::Record(record) => found.push(record),
            Next::Unfinished => ring.skip(),
            Next::Nothing => thread::yield_now(),
        }
    }
    let pushed = writers.into_iter().filter(|_| true).map(|w| w.join().unwrap()).filter(|&p| p);
    let pushed = pushed.count();
    while let Next::Record(record) = ring.pop() {
        found.push(record);
    }
    assert_eq!(found.len(), pushed);
    let is_whole =
        |[writer, second, third]: &[u64; 3]| (second - writer, third - writer) == (100, 200);
    assert!(found.iter().all(is_whole), "{found:?}");
}
