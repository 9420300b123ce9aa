//! Reads of files through io_uring that begin and end on one thread. A pool of threads costs a read
//! two wake-ups, of the thread that reads and of the one that waits; here no thread of the program
//! is woken but the one that asked, by what wakes it for its sockets, too.
//!
//! A thread that drives a runtime of its own offers this by a task ([`serve`]). [`read`] says
//! whether the calling thread takes a read; if not (also where the system refuses io_uring, or is
//! older than Linux 6.1), the caller reads in another way.
//!
//! Not here: writes, retries, what is read for whom, and how long anybody waits.
//!
//! What makes the call sound that lets the kernel write to memory:
//! 1. The memory of a read is in its place before its address is taken. It is not touched, moved or
//!    freed until the kernel has said that the read has ended: also if nobody waits for it any
//!    more. If the ring ends before, it is kept for ever.
//! 2. A [`Memory`] owns what it gives out as bytes, since it is `'static` and nobody else has it.
//! 3. A ring is used by the thread that made it only, and by one user at a time: it is in a
//!    thread-local cell. Wakers of reads and the end of memory run outside of it.

use std::cell::RefCell;
use std::fs::File;
use std::future::Future;
use std::io::{self, ErrorKind};
use std::mem::replace;
use std::os::fd::{AsRawFd, OwnedFd};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use io_uring::types::Fd;
use io_uring::{IoUring, opcode};
use rustix::event::{EventfdFlags, eventfd};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::{Notify, oneshot};
use tokio::time::sleep;

/// Most reads of a thread at a time.
pub const READS_MAX: usize = 128;

/// How often the kernel is asked in a turn whether reads have ended. It ends 20 at a time, and says
/// when there are more; but it may also say so when there are none, until the next one ends.
const ROUNDS: usize = READS_MAX / 20 + 1;

/// Pause before the kernel, which was short of memory, is asked again.
const PAUSE: Duration = Duration::from_millis(1);

/// Memory for a read; it comes back with the answer.
pub type Memory = Box<dyn AsMut<[u8]> + Send>;

/// What a read has brought: the memory, and how many of its first bytes were read (fewer than asked
/// for at the end of the file, and now and then before it), or an error.
pub type Ended = (Memory, io::Result<usize>);

thread_local! {
    /// The ring of this thread.
    static HERE: RefCell<Here> = const { RefCell::new(Here::Nothing) };
}

/// Where the kernel may still write, though the ring has ended.
static KEPT: Mutex<Vec<Memory>> = Mutex::new(Vec::new());

enum Here {
    /// No ring: nobody serves it, or the system refuses one.
    Nothing,
    /// Nobody has asked for a read yet; told when somebody does.
    Unused(Arc<Notify>),
    Ring(Box<Ring>),
}

struct Ring {
    io: IoUring,
    /// Told when there are reads to submit.
    begun: Arc<Notify>,
    /// Whether the kernel took all that it was last asked to.
    is_taken: bool,
    /// What the kernel reads into, by the number that it knows a read by.
    reads: Vec<Option<Reading>>,
    /// The numbers that are free.
    free: Vec<usize>,
    /// Held by each [`Read`], too.
    awaited: Arc<()>,
    /// Reads so far.
    count: u64,
}

struct Reading {
    memory: Memory,
    /// Open until the end.
    _file: Arc<File>,
    answer: oneshot::Sender<Ended>,
}

/// A read that has begun: `None` if the ring has ended before it.
pub struct Read {
    answer: oneshot::Receiver<Ended>,
    was_pending: bool,
    _awaited: Arc<()>,
}

/// Begins to read from a byte of a file (at most `i64::MAX`) into the memory, on the calling
/// thread's ring. Drop the answer to wait no longer; the memory stays in use until the read has
/// ended.
///
/// # Errors
/// The memory, if this thread takes no read now.
pub fn read(file: &Arc<File>, offset: u64, memory: Memory) -> Result<Read, Memory> {
    HERE.with_borrow_mut(|here| {
        match here {
            Here::Ring(ring) => return ring.begin(file, offset, memory),
            // The next one finds a ring.
            Here::Unused(begun) => begun.notify_one(),
            Here::Nothing => {}
        }
        Err(memory)
    })
}

/// How many [`Read`]s of the calling thread somebody has, also those whose answer has come. While
/// there are any, it must not wait for anything else.
pub fn awaited() -> usize {
    HERE.with_borrow(|here| match here {
        Here::Ring(ring) => Arc::strong_count(&ring.awaited) - 1,
        _ => 0,
    })
}

/// How many reads the calling thread's ring has taken so far.
pub fn taken() -> u64 {
    HERE.with_borrow(|here| match here {
        Here::Ring(ring) => ring.count,
        _ => 0,
    })
}

/// Offers the calling thread's reads, and ends them. Spawn it on the runtime of a thread that
/// drives no other one, and which nobody else drives (`new_current_thread`, with I/O and time).
pub async fn serve() {
    let begun = Arc::new(Notify::new());
    HERE.set(Here::Unused(Arc::clone(&begun)));
    let _served = Served(Arc::clone(&begun));
    begun.notified().await;
    let made = Ring::new(Arc::clone(&begun));
    let Ok((ring, event)) = made else { return };
    HERE.set(Here::Ring(Box::new(ring)));
    while let Some(is_taken) = turn() {
        tokio::select! {
            () = begun.notified(), if is_taken => {}
            () = sleep(PAUSE), if !is_taken => {}
            ready = event.readable() => match ready {
                Ok(mut ready) => ready.clear_ready(),
                // The runtime ends.
                Err(_) => return,
            }
        }
    }
}

/// While this exists, the reads of its thread are ended.
struct Served(Arc<Notify>);

impl Drop for Served {
    fn drop(&mut self) {
        let ended = HERE.try_with(|here| {
            let is_own = match &*here.borrow() {
                Here::Ring(ring) => Arc::ptr_eq(&ring.begun, &self.0),
                Here::Unused(begun) => Arc::ptr_eq(begun, &self.0),
                Here::Nothing => false,
            };
            is_own.then(|| here.replace(Here::Nothing))
        });
        drop(ended);
    }
}

/// Submits what has begun, and answers what has ended. Returns whether the kernel took all; `None`
/// if this thread has no ring, or the ring has failed.
fn turn() -> Option<bool> {
    let mut ended = Vec::new();
    let is_taken = HERE.with_borrow_mut(|here| {
        let Here::Ring(ring) = here else { return None };
        ring.turn(&mut ended).ok().map(|()| ring.is_taken)
    });
    for (answer, what) in ended {
        // If nobody waits for it, the memory is freed.
        let _ = answer.send(what);
    }
    is_taken
}

impl Ring {
    /// A ring, and what the kernel signals when reads have ended.
    fn new(begun: Arc<Notify>) -> io::Result<(Self, AsyncFd<OwnedFd>)> {
        let mut builder = IoUring::builder();
        // What a read's end takes is done when this thread asks for it, and not in the middle of
        // something else.
        builder.setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag();
        builder.setup_submit_all();
        let mut io = builder.build(READS_MAX as u32)?;
        // A system may let rings be made and refuse to use them.
        // SAFETY: it has no memory.
        let pushed = unsafe { io.submission().push(&opcode::Nop::new().build()) };
        pushed.map_err(io::Error::other)?;
        io.submit_and_wait(1)?;
        io.completion().for_each(drop);
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        io.submitter().register_eventfd(event.as_raw_fd())?;
        // SAFETY: an owned descriptor is open, and the same, as long as it is there.
        let event = unsafe { AsyncFd::register_with_interest(event, Interest::READABLE) }?;
        let reads = (0..READS_MAX).map(|_| None).collect();
        let free = (0..READS_MAX).rev().collect();
        let awaited = Arc::default();
        Ok((Self { io, begun, is_taken: true, reads, free, awaited, count: 0 }, event))
    }

    fn begin(&mut self, file: &Arc<File>, offset: u64, memory: Memory) -> Result<Read, Memory> {
        let Some(number) = self.is_taken.then(|| self.free.pop()).flatten() else {
            return Err(memory);
        };
        let (answer, answered) = oneshot::channel();
        let reading = Reading { memory, _file: Arc::clone(file), answer };
        let memory = (*self.reads[number].insert(reading).memory).as_mut();
        // A longer one is continued by the caller.
        let length = u32::try_from(memory.len()).unwrap_or(u32::MAX);
        let entry = opcode::Read::new(Fd(file.as_raw_fd()), memory.as_mut_ptr(), length);
        let entry = entry.offset(offset).build().user_data(number as u64);
        // SAFETY: `memory` has `length` bytes, and stays as it is until `ended` or for ever (rules
        // 1 to 3); the file is open as long.
        if unsafe { self.io.submission().push(&entry) }.is_err() {
            self.free.push(number);
            let reading = self.reads[number].take();
            return Err(reading.expect("the one that was put there").memory);
        }
        self.count += 1;
        self.begun.notify_one();
        Ok(Read { answer: answered, was_pending: false, _awaited: Arc::clone(&self.awaited) })
    }

    fn turn(&mut self, ended: &mut Vec<(oneshot::Sender<Ended>, Ended)>) -> io::Result<()> {
        for _ in 0..ROUNDS {
            let submission = self.io.submission();
            if submission.is_empty() && !submission.taskrun() {
                break;
            }
            drop(submission);
            match self.io.submit() {
                Ok(_) => {}
                Err(error) if is_for_now(error.kind()) => break,
                Err(error) => return Err(error),
            }
        }
        self.is_taken = self.io.submission().is_empty();
        for entry in self.io.completion() {
            let number = entry.user_data() as usize;
            let Some(Reading { memory, answer, .. }) = self.reads[number].take() else { continue };
            self.free.push(number);
            let failed = || io::Error::from_raw_os_error(-entry.result());
            ended.push((answer, (memory, usize::try_from(entry.result()).map_err(|_| failed()))));
        }
        Ok(())
    }
}

/// Whether the kernel may be asked again: it is short of memory, or was interrupted.
fn is_for_now(kind: ErrorKind) -> bool {
    use ErrorKind::{Interrupted, OutOfMemory, ResourceBusy, WouldBlock};
    matches!(kind, Interrupted | OutOfMemory | ResourceBusy | WouldBlock)
}

impl Drop for Ring {
    fn drop(&mut self) {
        let left = self.reads.iter_mut().filter_map(Option::take).map(|reading| reading.memory);
        KEPT.lock().unwrap_or_else(PoisonError::into_inner).extend(left);
    }
}

impl Future for Read {
    type Output = Option<Ended>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut answer = Pin::new(&mut self.answer).poll(cx);
        if answer.is_pending() && replace(&mut self.was_pending, true) {
            // Whoever waits may look at a clock next: an end that is there must not be late because
            // this thread was.
            turn();
            answer = Pin::new(&mut self.answer).poll(cx);
        }
        answer.map(Result::ok)
    }
}
