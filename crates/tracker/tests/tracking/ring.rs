//! The ring: order, bounds, writers at the same time, and one that died.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use undercroft_tracker::ring::{Next, Ring};
use undercroft_tracker::segment::Segment;
use undercroft_tracker::segment::layout::RING_TAIL;

#[test]
fn records_come_out_in_order_and_a_full_ring_drops() {
    let segment = Segment::anonymous(1).unwrap();
    let ring = Ring::new(&segment);
    assert_eq!(ring.pop(), Next::Nothing);
    for lap in 0..3 {
        for n in 0..ring.capacity() {
            assert!(ring.push([n, lap, 9]));
        }
        assert!(!ring.push([0, 0, 9]), "it is full");
        for n in 0..ring.capacity() {
            assert_eq!(ring.pop(), Next::Record([n, lap, 9]));
        }
        assert_eq!(ring.pop(), Next::Nothing);
    }
}

#[test]
fn a_cell_of_a_dead_writer_is_given_up() {
    let segment = Segment::anonymous(1).unwrap();
    let ring = Ring::new(&segment);
    ring.push([1, 1, 9]);
    // As a writer that was killed after it had claimed its cell.
    segment.word(RING_TAIL).fetch_add(1, SeqCst);
    ring.push([3, 3, 9]);
    assert_eq!(ring.pop(), Next::Record([1, 1, 9]));
    assert_eq!(ring.pop(), Next::Unfinished);
    ring.skip();
    assert_eq!(ring.pop(), Next::Record([3, 3, 9]));
    // The next laps are not disturbed.
    for _ in 0..3 {
        (0..ring.capacity()).for_each(|n| assert!(ring.push([n, 0, 9])));
        (0..ring.capacity()).for_each(|n| assert_eq!(ring.pop(), Next::Record([n, 0, 9])));
    }
}

#[test]
fn many_writers_lose_only_what_they_are_told_is_lost() {
    let segment = Segment::anonymous(1).unwrap();
    let ring = Ring::new(&segment);
    let done = AtomicBool::new(false);
    let (pushed, popped) = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..4_u64)
            .map(|writer| {
                scope.spawn(move || (0..50_000).filter(|n| ring.push([writer, *n, 9])).count())
            })
            .collect();
        let done = &done;
        let reader = scope.spawn(move || {
            let mut last = HashMap::new();
            let mut count = 0;
            loop {
                match ring.pop() {
                    Next::Record([writer, n, 9]) => {
                        let before = last.insert(writer, n);
                        assert!(before.is_none_or(|before| before < n), "in order of each");
                        count += 1;
                    }
                    Next::Nothing if done.load(SeqCst) && ring.is_empty() => return count,
                    _ => std::hint::spin_loop(),
                }
            }
        });
        let pushed: usize = writers.into_iter().map(|writer| writer.join().unwrap()).sum();
        done.store(true, SeqCst);
        (pushed, reader.join().unwrap())
    });
    assert_eq!(pushed, popped);
}
