//! CPU time of 4 KiB reads that the page cache holds: this crate's file store against `preadv` in
//! a loop, with the same offsets. Prints nanoseconds a read, a checksum, and the ratio. Run by
//! `cargo bench`; a run with few reads, as `cargo test --benches` makes it, checks only that both
//! read the same.

use std::fs::File;
use std::io::{IoSliceMut, Write};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use undercroft_store::{Buffer, FileOptions, FileStore, Store};

const BLOCK: usize = 4096;
const BLOCKS: u64 = 16 << 10;

fn main() {
    let measured = std::env::args().any(|argument| argument == "--bench");
    let reads = if measured { 1_000_000 } else { 10_000 };
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = folder.path().join("volume");
    let mut file = File::create(&path).unwrap();
    for block in 0..BLOCKS {
        file.write_all(&vec![block as u8; BLOCK]).unwrap();
    }
    file.sync_all().unwrap();

    let file = File::open(&path).unwrap();
    let store = FileStore::open(&path, &FileOptions::default()).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    for round in 0..if measured { 5 } else { 1 } {
        let plain = cpu(|| plain(&file, reads));
        let ours = cpu(|| runtime.block_on(through_the_store(&store, reads)));
        let (plain_ns, ours_ns) = (per_read(plain.0, reads), per_read(ours.0, reads));
        assert_eq!(plain.1, ours.1, "they did not read the same");
        println!(
            "round {round}: preadv {plain_ns:.0} ns, store {ours_ns:.0} ns of CPU a read, \
             ratio {:.2} (checksum {})",
            ours_ns / plain_ns,
            plain.1
        );
    }
}

fn plain(file: &File, reads: u64) -> u64 {
    let mut memory = vec![0; BLOCK];
    let mut sum = 0;
    for read in 0..reads {
        let mut slices = [IoSliceMut::new(&mut memory)];
        let count = rustix::io::preadv(file, &mut slices, offset(read)).unwrap();
        assert_eq!(count, BLOCK);
        sum += u64::from(memory[BLOCK - 1]);
    }
    sum
}

async fn through_the_store(store: &FileStore, reads: u64) -> u64 {
    let mut buffers: Vec<Buffer> = vec![Box::new(vec![0_u8; BLOCK])];
    let mut sum = 0;
    for read in 0..reads {
        let (back, result) = store.read(offset(read), buffers).await;
        result.unwrap();
        buffers = back;
        sum += u64::from((*buffers[0]).as_mut()[BLOCK - 1]);
    }
    sum
}

/// A fixed walk that is no stride the kernel or the processor could guess.
fn offset(read: u64) -> u64 {
    (undercroft_random::fibonacci(read) >> 40) % BLOCKS * BLOCK as u64
}

/// CPU time of the whole process, of all its threads.
fn cpu(run: impl FnOnce() -> u64) -> (Duration, u64) {
    let now = || Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap();
    let before = now();
    let sum = run();
    (now() - before, sum)
}

fn per_read(time: Duration, reads: u64) -> f64 {
    time.as_nanos() as f64 / reads as f64
}
