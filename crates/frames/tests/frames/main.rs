//! Frames from many threads: nothing is written under a reader, nothing is lost, nothing is
//! handed out twice. Meant to be run under AddressSanitizer, ThreadSanitizer and valgrind too
//! (`make sanitize`).

mod cost;
mod sizes;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use undercroft_frames::{Frame, FrameMut, HugePageHeap, Memory, MemoryError};

/// All of these tests run on it.
#[global_allocator]
static HEAP: HugePageHeap = HugePageHeap;

const FRAME_BYTES: usize = 4096;

fn filled(mut frame: FrameMut, byte: u8) -> Frame {
    frame.fill(byte);
    frame.freeze()
}

#[test]
fn a_fresh_frame_is_zero_and_frames_are_apart() {
    let pool = Memory::new(1).unwrap().pool(3, FRAME_BYTES).unwrap();
    let mut frames: Vec<_> = std::iter::from_fn(|| pool.take()).collect();
    assert_eq!(frames.len(), 3);
    assert_eq!(pool.free_count(), 0);
    assert!(frames.iter().all(|f| f.iter().all(|&b| b == 0)));
    for (i, frame) in frames.iter_mut().enumerate() {
        frame.fill(i as u8 + 1);
    }
    for (i, frame) in frames.iter().enumerate() {
        assert!(frame.iter().all(|&b| b == i as u8 + 1));
    }
    drop(frames);
    assert_eq!(pool.free_count(), 3);
}

#[test]
fn a_shared_frame_cannot_be_written() {
    let pool = Memory::new(1).unwrap().pool(1, FRAME_BYTES).unwrap();
    let frame = filled(pool.take().unwrap(), 7);
    let reader = frame.clone();
    assert!(frame.is_shared());
    let frame = frame.try_into_mut().unwrap_err();
    assert!(reader.as_ref().iter().all(|&b| b == 7));
    drop(reader);
    assert!(!frame.is_shared());
    let mut frame = frame.try_into_mut().unwrap();
    frame[0] = 8;
    assert!(pool.take().is_none());
    drop(frame);
    assert!(pool.take().is_some());
}

#[test]
fn a_frame_outlives_its_pool_and_memory() {
    let memory = Memory::new(1).unwrap();
    let pool = memory.pool(2, FRAME_BYTES).unwrap();
    let frame = filled(pool.take().unwrap(), 9);
    drop(pool);
    drop(memory);
    let other = frame.clone();
    drop(frame);
    assert!(other.as_ref().iter().all(|&b| b == 9));
}

#[test]
fn budget_and_frame_size_are_checked() {
    let memory = Memory::new(1).unwrap();
    assert!(matches!(memory.pool(1, 1000), Err(MemoryError::FrameSize(1000))));
    assert!(matches!(memory.pool(1, 256), Err(MemoryError::FrameSize(256))));
    let all = memory.bytes() / 65536;
    assert!(memory.pool(all as u32, 65536).is_ok());
    assert!(matches!(memory.pool(1, 512), Err(MemoryError::Budget { left: 0, .. })));
    assert!(matches!(Memory::new(usize::MAX), Err(MemoryError::Map { .. })));
}

/// Writers fill frames with one byte each and hand clones to readers, who check that all bytes of
/// a frame are equal as long as they hold it; in between frames are taken back and rewritten.
#[test]
fn no_reader_sees_a_write() {
    const ROUNDS: usize = if cfg!(debug_assertions) { 20_000 } else { 100_000 };
    let pool = Memory::new(1).unwrap().pool(16, 512).unwrap();
    let checked = AtomicUsize::new(0);
    thread::scope(|scope| {
        let mut to_readers = Vec::new();
        for _ in 0..2 {
            let (sender, receiver) = mpsc::sync_channel::<Frame>(4);
            to_readers.push(sender);
            let checked = &checked;
            scope.spawn(move || {
                for frame in receiver {
                    let first = frame.as_ref()[0];
                    assert!(frame.as_ref().iter().all(|&b| b == first));
                    checked.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for writer in 0..2_usize {
            let (pool, to_readers) = (pool.clone(), to_readers.clone());
            scope.spawn(move || {
                let mut kept: Option<Frame> = None;
                for round in 0..ROUNDS {
                    let byte = (round * 2 + writer) as u8;
                    let own = kept.take().map(Frame::try_into_mut);
                    let Some(frame) = (match own {
                        Some(Ok(frame)) => Some(frame),
                        _ => pool.take(),
                    }) else {
                        thread::yield_now();
                        continue;
                    };
                    let frame = filled(frame, byte);
                    to_readers[round % 2].send(frame.clone()).unwrap();
                    kept = Some(frame);
                }
            });
        }
        drop(to_readers);
    });
    assert!(checked.load(Ordering::Relaxed) > ROUNDS / 2);
    assert_eq!(pool.free_count(), 16);
}

/// From small to large and back, zeroed and not: what lies in huge pages is what was put there.
#[test]
fn large_pieces_of_the_heap_keep_what_they_hold() {
    let mut numbers: Vec<u64> = Vec::new();
    for n in 0..3 << 20 {
        numbers.push(n);
    }
    let zeroes = vec![0_u8; 9 << 20];
    numbers.truncate(1000);
    numbers.shrink_to_fit();
    numbers.resize(2 << 20, 7);
    assert!(numbers[..1000].iter().zip(0..).all(|(&number, n)| number == n));
    assert!(numbers[1000..].iter().all(|&number| number == 7));
    assert!(zeroes.iter().all(|&byte| byte == 0));
}

/// Whether the page at an address has memory, or a place in swap, as the system tells.
fn is_mapped(address: usize) -> bool {
    use std::os::unix::fs::FileExt;
    let pagemap = std::fs::File::open("/proc/self/pagemap").unwrap();
    let mut entry = [0; 8];
    pagemap.read_exact_at(&mut entry, address as u64 / 4096 * 8).unwrap();
    u64::from_le_bytes(entry) >> 62 != 0
}

/// Whether each page of a frame has memory.
fn is_present(frame: &[u8]) -> bool {
    frame.chunks(4096).all(|page| is_mapped(page.as_ptr().addr()))
}

/// A mapping without reserve could be larger than all memory, and nobody would know until it is
/// used.
#[test]
fn memory_is_reserved() {
    let memory = Memory::new(4 << 20).unwrap();
    let frame = memory.pool(1, FRAME_BYTES).unwrap().take().unwrap();
    let address = frame.as_ptr().addr();
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut lines = maps.lines().skip_while(|line| {
        let range = line.split(' ').next().and_then(|range| range.split_once('-'));
        let number = |text| usize::from_str_radix(text, 16).unwrap_or(0);
        !range.is_some_and(|(start, end)| (number(start)..number(end)).contains(&address))
    });
    let flags = lines.find_map(|line| line.strip_prefix("VmFlags:")).unwrap();
    assert!(!flags.split_whitespace().any(|flag| flag == "nr"), "{flags}");
}

/// Some frames are written while the memory is prepared, others only afterwards.
#[test]
fn prepared_memory_is_the_budget_and_keeps_what_is_in_it() {
    let memory = Memory::new(16 << 20).unwrap();
    let pool = memory.pool(4096, FRAME_BYTES).unwrap();
    let all: Vec<FrameMut> = std::iter::from_fn(|| pool.take()).collect();
    // One in the middle: at its ends the memory may share a huge page with a neighbour's.
    assert!(!is_present(&all[2048]), "nobody touched it yet");
    let prepared = memory.prepare(|done| panic!("only {done} bytes")).unwrap();
    let mut frames: Vec<Frame> = Vec::new();
    for (i, frame) in all.into_iter().enumerate() {
        frames.push(if i % 2 == 0 { filled(frame, i as u8) } else { frame.freeze() });
    }
    assert_eq!(prepared.join().unwrap(), memory.bytes(), "all of the budget, and no more");
    for (i, frame) in frames.iter().enumerate() {
        let byte = if i % 2 == 0 { i as u8 } else { 0 };
        assert!(is_present(frame.as_ref()), "frame {i}");
        assert!(frame.as_ref().iter().all(|&b| b == byte), "frame {i}");
    }
}
