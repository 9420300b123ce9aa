//! Reads on the ring of a thread: what they bring, who waits for them, and who owns their memory.
//! Pipes without a writer are devices that hang. Meant to be run under AddressSanitizer, too
//! (`make sanitize`).

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use tempfile::NamedTempFile;
use tokio::runtime::{Builder, Runtime};
use tokio::task::yield_now;
use tokio::time::timeout;
use undercroft_ring::{Memory, READS_MAX, Read, awaited, read, serve};

const BYTES: usize = 4096;

/// Memory that says when it is freed.
struct Watched {
    bytes: Vec<u8>,
    is_freed: Arc<AtomicBool>,
}

impl AsMut<[u8]> for Watched {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.is_freed.store(true, Ordering::SeqCst);
    }
}

fn watched() -> (Memory, Arc<AtomicBool>) {
    let is_freed = Arc::<AtomicBool>::default();
    (Box::new(Watched { bytes: vec![0; BYTES], is_freed: Arc::clone(&is_freed) }), is_freed)
}

fn memory() -> Memory {
    Box::new(vec![0_u8; BYTES])
}

/// A runtime of this thread that offers reads; `None` where the system refuses a ring.
fn runtime() -> Option<Runtime> {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    drop(runtime.spawn(serve()));
    let file = Arc::new(File::open("/dev/zero").unwrap());
    let is_taken = runtime.block_on(async {
        yield_now().await;
        // The first one makes the ring.
        drop(read(&file, 0, memory()));
        yield_now().await;
        match read(&file, 0, memory()) {
            Ok(read) => read.await.is_some(),
            Err(_) => false,
        }
    });
    if !is_taken {
        println!("skipped: no io_uring here");
    }
    is_taken.then_some(runtime)
}

fn file(bytes: usize) -> (NamedTempFile, Vec<u8>) {
    let file = NamedTempFile::new().unwrap();
    let data: Vec<u8> = (0..bytes).map(|byte| (byte / 7) as u8).collect();
    file.as_file().write_all_at(&data, 0).unwrap();
    (file, data)
}

fn pipe() -> (Arc<File>, File) {
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    (Arc::new(File::from(reader)), File::from(writer))
}

/// [`Memory`] says nothing of itself.
trait Begun {
    fn unwrap_read(self) -> Read;
}

impl Begun for Result<Read, Memory> {
    fn unwrap_read(self) -> Read {
        self.unwrap_or_else(|_| panic!("the thread takes no read"))
    }
}

#[test]
fn reads_bring_what_the_file_has() {
    let Some(runtime) = runtime() else { return };
    let (there, data) = file(20 * BYTES + 100);
    let opened = Arc::new(there.reopen().unwrap());
    runtime.block_on(async {
        let begin = |offset| read(&opened, offset as u64, memory()).unwrap_read();
        // All at a time, and from anywhere.
        let offsets: Vec<usize> = (0..20).map(|block| block * BYTES + block * 3).collect();
        let reads: Vec<_> = offsets.iter().map(|offset| begin(*offset)).collect();
        for (offset, read) in offsets.into_iter().zip(reads) {
            let (mut memory, read) = read.await.unwrap();
            assert_eq!(read.unwrap(), BYTES);
            assert!((*memory).as_mut() == &data[offset..offset + BYTES], "at {offset}");
        }
        // Less at the end of the file, and nothing behind it.
        let (mut memory, read) = begin(20 * BYTES).await.unwrap();
        assert_eq!(read.unwrap(), 100);
        assert!((*memory).as_mut()[..100] == data[20 * BYTES..]);
        assert_eq!(begin(21 * BYTES).await.unwrap().1.unwrap(), 0);
        assert_eq!(awaited(), 0);
    });
    let cannot = OpenOptions::new().write(true).open(there.path()).unwrap();
    let failed = runtime.block_on(read(&Arc::new(cannot), 0, memory()).unwrap_read());
    assert!(failed.unwrap().1.is_err(), "a file that is open for writing only");
}

#[test]
fn without_a_task_there_are_no_reads() {
    let (there, _) = file(BYTES);
    let opened = Arc::new(there.reopen().unwrap());
    let refused = || {
        let (memory, is_freed) = watched();
        let memory = read(&opened, 0, memory).err().unwrap();
        assert!(!is_freed.load(Ordering::SeqCst) && awaited() == 0);
        drop(memory);
        assert!(is_freed.load(Ordering::SeqCst));
    };
    refused();
    // Nor after its runtime has ended.
    drop(runtime());
    refused();
}

/// Again and again, since the kernel says now and then that reads have ended when none have.
#[test]
fn so_many_at_a_time_and_no_more() {
    let Some(runtime) = runtime() else { return };
    let (hangs, mut writer) = pipe();
    runtime.block_on(async {
        let begin = || read(&hangs, 0, memory());
        for _ in 0..300 {
            let reads: Vec<_> = (0..READS_MAX).map(|_| begin().unwrap_read()).collect();
            assert!(begin().is_err() && awaited() == READS_MAX);
            let writes = thread::spawn(move || {
                writer.write_all(&vec![1; READS_MAX * BYTES]).unwrap();
                writer
            });
            let mut bytes = 0;
            for read in reads {
                bytes += read.await.unwrap().1.unwrap();
            }
            // A read takes what the pipe has just then.
            let mut left = READS_MAX * BYTES - bytes;
            while left > 0 {
                left -= begin().unwrap_read().await.unwrap().1.unwrap();
            }
            writer = writes.join().unwrap();
        }
        writer.write_all(&[2; BYTES]).unwrap();
        let (mut memory, read) = begin().unwrap_read().await.unwrap();
        assert!(read.unwrap() == BYTES && (*memory).as_mut() == [2; BYTES]);
    });
}

#[test]
fn memory_is_in_use_until_the_read_has_ended() {
    let Some(runtime) = runtime() else { return };
    let (hangs, mut writer) = pipe();
    let (memory, is_freed) = watched();
    runtime.block_on(async {
        let read = read(&hangs, 0, memory).unwrap_read();
        assert!(timeout(Duration::from_millis(50), read).await.is_err());
        // Nobody waits for it any more.
        assert!(!is_freed.load(Ordering::SeqCst) && awaited() == 0);
        assert_eq!(Arc::strong_count(&hangs), 2, "its file is open");
        writer.write_all(b"late").unwrap();
        while Arc::strong_count(&hangs) > 1 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert!(is_freed.load(Ordering::SeqCst));
    });
}

#[test]
fn memory_of_a_thread_that_ends_is_never_freed() {
    let (hangs, _writer) = pipe();
    let (memory, is_freed) = watched();
    let of_thread = Arc::clone(&hangs);
    let thread = thread::spawn(move || {
        let runtime = runtime()?;
        let read = read(&of_thread, 0, memory).unwrap_read();
        runtime.block_on(yield_now());
        assert_eq!(awaited(), 1);
        Some(read)
    });
    let Some(read) = thread.join().unwrap() else { return };
    assert!(!is_freed.load(Ordering::SeqCst));
    assert_eq!(Arc::strong_count(&hangs), 1, "its file is not kept");
    // Nobody waits for ever either.
    let runtime = Builder::new_current_thread().build().unwrap();
    assert!(runtime.block_on(read).is_none());
}

#[test]
fn an_end_is_not_late_because_its_thread_was() {
    let Some(runtime) = runtime() else { return };
    let (hangs, mut writer) = pipe();
    runtime.block_on(async {
        let mut read = pin!(read(&hangs, 0, memory()).unwrap_read());
        let mut context = Context::from_waker(Waker::noop());
        assert!(read.as_mut().poll(&mut context).is_pending());
        // The task submits it, and has no turn before the next look.
        yield_now().await;
        writer.write_all(b"in time").unwrap();
        let Poll::Ready(Some((_, read))) = read.as_mut().poll(&mut context) else {
            panic!("it has ended");
        };
        assert_eq!(read.unwrap(), 7);
    });
}
