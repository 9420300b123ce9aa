//! Intercepts asynchronous reads and writes: libaio, and io_uring through liburing. They count as
//! done when they are submitted. A request that fails later leaves a block in the table that is not
//! in memory, until the frame is used again.
//!
//! Requests are examined before they are submitted, because another thread may free them
//! afterwards.

use std::ffi::{c_int, c_long, c_uint, c_void};

use libc::iovec;
use undercroft_tracker::{Direction, Kept, Tracked, Transfer};

use crate::original::instead_of;
use crate::shim::{errno, is_inside, set_errno, tracker, with};

/// Most requests examined in one call.
const REQUESTS_MAX: usize = 4096;
/// Most buffers of a request, which is the kernel's limit.
const BUFFERS_MAX: usize = 1024;

/// One request.
struct Request {
    fd: c_int,
    direction: Direction,
    offset: u64,
    /// The buffer or the list of buffers.
    memory: *const c_void,
    /// Length in bytes, or number of buffers.
    length: usize,
    is_list: bool,
}

impl Request {
    /// # Safety
    /// A list of buffers must be one.
    unsafe fn tell(&self) {
        let Some(call) = Tracked::before(self.fd) else { return };
        let count = if self.is_list { self.length.min(BUFFERS_MAX) } else { 1 };
        let piece = |n: usize| {
            if self.is_list {
                // SAFETY: within the list, by the caller's word.
                let piece = unsafe { *self.memory.cast::<iovec>().add(n) };
                (piece.iov_base as u64, piece.iov_len as u64)
            } else {
                (self.memory as u64, self.length as u64)
            }
        };
        with(|tracker| {
            let bytes = (0..count).map(|n| piece(n).1).fold(0, u64::saturating_add);
            let pieces = || (0..count).map(piece);
            let (direction, offset) = (self.direction, self.offset);
            let mut kept = Kept::default();
            if direction == Direction::Read {
                tracker.keep(&call, offset, pieces, &mut kept);
            }
            let transfer = Transfer { direction, offset, bytes, is_async: true };
            tracker.moved(&call, transfer, pieces(), &mut kept);
        });
    }
}

/// The beginning of the kernel's `struct iocb`, on little-endian machines.
#[repr(C)]
struct Iocb {
    data: u64,
    key: u32,
    flags: u32,
    opcode: u16,
    priority: i16,
    fd: u32,
    buffer: u64,
    bytes: u64,
    offset: i64,
}

/// # Safety
/// As for `io_submit`: so many pointers to requests.
unsafe fn look_at_iocbs(count: c_long, requests: *const *const Iocb) {
    if requests.is_null() {
        return;
    }
    for n in 0..usize::try_from(count).unwrap_or(0).min(REQUESTS_MAX) {
        // SAFETY: within the list, by the caller's word.
        let request = unsafe { *requests.add(n) };
        if request.is_null() {
            return;
        }
        // SAFETY: a request that is about to be read by the kernel.
        let request = unsafe { &*request };
        let (direction, is_list) = match request.opcode {
            0 => (Direction::Read, false),
            1 => (Direction::Write, false),
            7 => (Direction::Read, true),
            8 => (Direction::Write, true),
            _ => continue,
        };
        let request = Request {
            fd: request.fd as c_int,
            direction,
            offset: request.offset as u64,
            memory: request.buffer as *const c_void,
            length: request.bytes as usize,
            is_list,
        };
        // SAFETY: the list is about to be read by the kernel.
        unsafe { request.tell() };
    }
}

/// The beginning of liburing's `struct io_uring`. Programs allocate it themselves, so its layout is
/// fixed.
#[repr(C)]
struct Ring {
    submission: Submission,
    completion: [u64; 11],
    flags: c_uint,
}

#[repr(C)]
struct Submission {
    head: *const c_uint,
    tail: *const c_uint,
    mask: *const c_uint,
    entries: *const c_uint,
    flags: *const c_uint,
    dropped: *const c_uint,
    array: *const c_uint,
    requests: *const u8,
    first: c_uint,
    end: c_uint,
    size: usize,
    memory: *const c_void,
    pad: [c_uint; 4],
}

/// The beginning of the kernel's `struct io_uring_sqe`.
#[repr(C)]
struct Sqe {
    opcode: u8,
    flags: u8,
    priority: u16,
    fd: i32,
    offset: u64,
    address: u64,
    length: u32,
}

const SETUP_SQE128: c_uint = 1 << 10;
/// The descriptor is the index of a registered file, which is unknown here.
const FIXED_FILE: u8 = 1;
/// The kernel chooses the buffer.
const BUFFER_SELECT: u8 = 1 << 5;

/// # Safety
/// As for `io_uring_submit`: a ring that was set up.
unsafe fn look_at_ring(ring: *const c_void) {
    if ring.is_null() || tracker().is_none() || is_inside() {
        return;
    }
    // SAFETY: the ring is the program's, which lets no other thread submit meanwhile.
    let ring = unsafe { &*ring.cast::<Ring>() };
    let queue = &ring.submission;
    // SAFETY: set when the ring was made, and constant.
    let mask = unsafe { *queue.mask };
    let bytes = if ring.flags & SETUP_SQE128 == 0 { 64 } else { 128 };
    let count = queue.end.wrapping_sub(queue.first);
    for n in 0..count.min(mask.wrapping_add(1)).min(REQUESTS_MAX as c_uint) {
        let at = (queue.first.wrapping_add(n) & mask) as usize * bytes;
        // SAFETY: a request that the program has filled in, within the ring.
        let request = unsafe { &*queue.requests.add(at).cast::<Sqe>() };
        let (direction, is_list) = match request.opcode {
            1 => (Direction::Read, true),
            2 => (Direction::Write, true),
            4 | 22 => (Direction::Read, false),
            5 | 23 => (Direction::Write, false),
            _ => continue,
        };
        let unknown = request.flags & (FIXED_FILE | BUFFER_SELECT) != 0;
        if unknown || request.offset == u64::MAX {
            with(|tracker| tracker.missed());
            continue;
        }
        let request = Request {
            fd: request.fd,
            direction,
            offset: request.offset,
            memory: request.address as *const c_void,
            length: request.length as usize,
            is_list,
        };
        // SAFETY: the list is about to be read by the kernel.
        unsafe { request.tell() };
    }
}

/// A call that submits what is in a ring.
fn submits(ring: *const c_void, original: impl Fn() -> c_int) -> c_int {
    // SAFETY: the program's argument.
    unsafe { look_at_ring(ring) };
    original()
}

/// Makes libaio's system call, for a program in which no library has the function.
/// `io_uring_submit` has no such replacement, since it also fills the queue.
fn submit_directly(context: *mut c_void, count: c_long, requests: *mut *mut c_void) -> c_int {
    if tracker().is_some() && !is_inside() {
        // SAFETY: the program's arguments.
        unsafe { look_at_iocbs(count, requests.cast_const().cast()) };
    }
    let before = errno();
    // SAFETY: the program's arguments; the kernel checks them.
    let result = unsafe { libc::syscall(libc::SYS_io_submit, context, count, requests) };
    let result = if result < 0 { -errno() } else { result as c_int };
    set_errno(before);
    result
}

instead_of! {
    io_submit(context: *mut c_void, count: c_long, requests: *mut *mut c_void) -> c_int,
    else submit_directly(context, count, requests),
    |original| {
        if tracker().is_some() && !is_inside() {
            // SAFETY: the program's arguments.
            unsafe { look_at_iocbs(count, requests.cast()) };
        }
        original()
    }

    io_uring_submit(ring: *mut c_void) -> c_int, else -libc::ENOSYS,
    |original| submits(ring, original)

    io_uring_submit_and_wait(ring: *mut c_void, count: c_uint) -> c_int, else -libc::ENOSYS,
    |original| submits(ring, original)

    io_uring_submit_and_wait_timeout(
        ring: *mut c_void, results: *mut c_void, count: c_uint, time: *mut c_void,
        signals: *mut c_void
    ) -> c_int, else -libc::ENOSYS,
    |original| submits(ring, original)

    io_uring_submit_and_get_events(ring: *mut c_void) -> c_int, else -libc::ENOSYS,
    |original| submits(ring, original)
}
