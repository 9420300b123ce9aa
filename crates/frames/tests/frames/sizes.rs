//! Pools whose size changes: no frame is lost or handed out twice, a frame that somebody holds
//! keeps its bytes, and what is given up is the system's again.

use undercroft_frames::{Frame, FrameMut, Memory, Pools};

use super::{FRAME_BYTES, filled, is_mapped, is_present};

/// What the system may put in memory at once.
const HUGE_PAGE_BYTES: usize = 2 << 20;

fn pools(count: u32) -> Pools {
    let memory = Memory::new(count as usize * FRAME_BYTES).unwrap();
    memory.pool(count, FRAME_BYTES).unwrap().into()
}

fn take_all(pools: &Pools) -> Vec<FrameMut> {
    std::iter::from_fn(|| pools.take()).collect()
}

#[test]
fn frames_beyond_the_size_stay_until_they_are_let_go() {
    let mut pools = pools(8);
    let frames: Vec<_> = (1..=8).map(|byte| filled(pools.take().unwrap(), byte)).collect();
    assert_eq!(pools.resize(3), 0);
    assert_eq!((pools.count(), pools.free_count()), (3, 0));
    let surplus = frames.iter().filter(|frame| frame.is_surplus()).count();
    assert_eq!(surplus, 5);
    assert!(!pools.give_back(), "somebody holds them");
    for (frame, byte) in frames.iter().zip(1..) {
        assert!(frame.as_ref().iter().all(|&b| b == byte));
    }
    drop(frames);
    assert!(pools.give_back());
    assert_eq!(take_all(&pools).len(), 3);
    // And back again, with frames of zeroes beyond the first three.
    assert_eq!(pools.resize(20), 12, "there is memory for eight");
    pools.add(&Memory::new(12 * FRAME_BYTES).unwrap(), 12).unwrap();
    assert_eq!(pools.count(), 20);
    let mut frames = take_all(&pools);
    assert_eq!(frames.len(), 20);
    assert_eq!(frames.iter().filter(|frame| frame.iter().all(|&b| b == 0)).count(), 17);
    for (number, frame) in frames.iter_mut().enumerate() {
        frame.fill(number as u8);
    }
    assert!((0..).zip(&frames).all(|(number, frame)| frame.iter().all(|&b| b == number)));
    // The added ones go first.
    assert_eq!(pools.resize(4), 0);
    drop(frames);
    assert!(pools.give_back());
    assert_eq!(take_all(&pools).len(), 4);
    assert_eq!(pools.resize(20), 12, "the mapping that was added is gone");
}

/// Looks at the pages of its own frames only: the system joins neighbouring mappings, such as those
/// of tests beside this one, and counts them as one.
#[test]
fn memory_that_is_given_up_returns_to_the_system() {
    let count = 4096;
    let mut pools = pools(count);
    let frames: Vec<_> = take_all(&pools).into_iter().map(|frame| filled(frame, 1)).collect();
    assert!(frames.iter().all(|frame| is_present(frame.as_ref())));
    let (kept, gone): (Vec<_>, Vec<_>) = {
        pools.resize(count / 4);
        frames.into_iter().partition(|frame| !frame.is_surplus())
    };
    assert_eq!((kept.len(), gone.len()), (1024, 3072));
    assert!(gone.iter().all(|frame| is_present(frame.as_ref())), "frames are held");
    // The system may at any time make a huge page of what is there of it, and fill the rest.
    let huge_page = |frame: &Frame| frame.as_ref().as_ptr().addr() / HUGE_PAGE_BYTES;
    let shared = kept.iter().map(huge_page).max().unwrap();
    let alone = gone.iter().filter(|frame| huge_page(frame) > shared);
    let places: Vec<_> = alone.map(|frame| frame.as_ref().as_ptr().addr()).collect();
    assert!(places.len() > 2048, "{} frames are alone", places.len());
    drop(gone);
    assert!(pools.give_back());
    let left = places.iter().filter(|&&place| is_mapped(place)).count();
    assert_eq!(left, 0, "frames of {} that are given up and still in memory", places.len());
    assert!(kept.iter().all(|frame| frame.as_ref().iter().all(|&byte| byte == 1)));
}

#[test]
fn sizes_change_while_threads_take_frames() {
    let memory = Memory::new(64 * FRAME_BYTES).unwrap();
    let pool = memory.pool(64, FRAME_BYTES).unwrap();
    std::thread::scope(|scope| {
        for byte in 1..=3 {
            let pool = pool.clone();
            scope.spawn(move || {
                for _ in 0..3000 {
                    let Some(frame) = pool.take() else { continue };
                    let frame = filled(frame, byte);
                    std::thread::yield_now();
                    assert!(frame.as_ref().iter().all(|&b| b == byte));
                }
            });
        }
        for round in 0..600 {
            pool.resize([64, 8, 33, 0][round % 4]);
            pool.give_back();
            std::thread::yield_now();
        }
    });
    pool.resize(64);
    assert_eq!(pool.free_count(), 64, "each came back once");
}
