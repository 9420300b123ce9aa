//! Intercepts synchronous reads and writes.

use std::ffi::{c_int, c_void};

use libc::{iovec, off_t, off64_t, size_t, ssize_t};
use undercroft_tracker::{Direction, Kept, Tracked, Transfer, fds, filter};

use crate::original::{Original, instead_of, not_there};
use crate::shim::{errno, is_inside, set_errno, tracker, with};

/// The position in the file.
#[derive(Clone, Copy)]
enum Where {
    Offset(i64),
    /// The descriptor's file position.
    Position,
}

/// The program's buffers.
#[derive(Clone, Copy)]
enum Memory {
    One(*const c_void, size_t),
    Many(*const iovec, c_int),
}

impl Memory {
    /// Address and length of each piece.
    ///
    /// # Safety
    /// A list of buffers must be one, or its length 0.
    unsafe fn pieces(self) -> impl Iterator<Item = (u64, u64)> {
        let one =
            if let Memory::One(at, bytes) = self { Some((at as u64, bytes as u64)) } else { None };
        let (list, count) = match self {
            Memory::Many(list, count) if !list.is_null() => (list, count.max(0) as usize),
            _ => (std::ptr::null(), 0),
        };
        let many = (0..count).map(move |n| {
            // SAFETY: within the list, by the caller's word.
            let piece = unsafe { *list.add(n) };
            (piece.iov_base as u64, piece.iov_len as u64)
        });
        one.into_iter().chain(many)
    }
}

/// A reading call. Nearly all calls of most programs use untracked descriptors; these only take one
/// load and a jump, so that all other code is kept out of this path.
#[inline(always)]
fn reads(fd: c_int, from: Where, memory: Memory, original: impl Fn() -> ssize_t) -> ssize_t {
    if fds::get(fd).is_none() { original() } else { tracked_read(fd, from, memory, original) }
}

#[inline(never)]
fn tracked_read(fd: c_int, from: Where, memory: Memory, original: impl Fn() -> ssize_t) -> ssize_t {
    let Some(call) = Tracked::before(fd) else { return original() };
    let bypasses = tracker().is_some_and(|tracker| tracker.bypasses());
    // The call that bypasses is another one than the program's.
    let permit = if bypasses { filter::may_call() } else { None };
    let mut kept = Kept::default();
    keep(&call, from, memory, &mut kept);
    let result = match &permit {
        Some(_) => uncached(fd, from, memory, original),
        None => original(),
    };
    drop(permit);
    done(&call, Direction::Read, from, memory, result, &mut kept);
    result
}

/// Keeps what a read is about to overwrite. Of reads at the file position nothing is kept:
/// databases give the offset.
#[inline]
fn keep(call: &Tracked, from: Where, memory: Memory, kept: &mut Kept) {
    let Where::Offset(offset) = from else { return };
    if is_inside() {
        return;
    }
    with(|tracker| match memory {
        Memory::One(at, bytes) => {
            let piece = || std::iter::once((at as u64, bytes as u64));
            tracker.keep(call, offset as u64, piece, kept);
        }
        Memory::Many(list, count) => {
            let buffers = || tracker.buffers(list as u64, count.max(0) as usize);
            tracker.keep(call, offset as u64, buffers, kept);
        }
    });
}

#[inline(always)]
fn writes(fd: c_int, from: Where, memory: Memory, original: impl Fn() -> ssize_t) -> ssize_t {
    let direction = Direction::Write;
    if fds::get(fd).is_none() { original() } else { tracked(fd, direction, from, memory, original) }
}

/// Makes a call unchanged, and tracks it.
#[inline(never)]
fn tracked(
    fd: c_int,
    direction: Direction,
    from: Where,
    memory: Memory,
    original: impl Fn() -> ssize_t,
) -> ssize_t {
    let Some(call) = Tracked::before(fd) else { return original() };
    let mut kept = Kept::default();
    if direction == Direction::Read {
        keep(&call, from, memory, &mut kept);
    }
    let result = original();
    done(&call, direction, from, memory, result, &mut kept);
    result
}

#[inline]
fn done(
    call: &Tracked,
    direction: Direction,
    from: Where,
    memory: Memory,
    result: ssize_t,
    kept: &mut Kept,
) {
    if result <= 0 {
        return with(|tracker| tracker.free(kept));
    }
    let bytes = result as u64;
    with(|tracker| {
        let offset = match from {
            Where::Offset(offset) => Some(offset as u64),
            Where::Position => call.position().and_then(|after| after.checked_sub(bytes)),
        };
        let Some(offset) = offset else {
            tracker.free(kept);
            return tracker.missed();
        };
        // SAFETY: the call succeeded with this list.
        let pieces = unsafe { memory.pieces() };
        let transfer = Transfer { direction, offset, bytes, is_async: false };
        tracker.moved(call, transfer, pieces, kept);
    });
}

/// Reads without leaving data in the kernel's page cache (Linux 6.14 on ext4 and XFS). If that is
/// refused, makes the program's own call, now and from then on.
#[inline(never)]
fn uncached(fd: c_int, from: Where, memory: Memory, original: impl Fn() -> ssize_t) -> ssize_t {
    const RWF_DONTCACHE: c_int = 0x80;
    static PREADV2: Original = Original::new(c"preadv2");
    type Preadv2 = unsafe extern "C" fn(c_int, *const iovec, c_int, off_t, c_int) -> ssize_t;
    let address = PREADV2.address();
    if address.is_null() {
        return original();
    }
    // SAFETY: the function of this name has this type.
    let preadv2 = unsafe { std::mem::transmute::<*mut c_void, Preadv2>(address) };
    let before = errno();
    let offset = match from {
        Where::Offset(offset) if offset >= 0 => offset,
        Where::Offset(_) => return original(),
        Where::Position => -1,
    };
    let one;
    let (list, count) = match memory {
        Memory::One(at, bytes) => {
            one = iovec { iov_base: at.cast_mut(), iov_len: bytes };
            (&raw const one, 1)
        }
        Memory::Many(list, count) => (list, count),
    };
    // SAFETY: the memory is the buffer that the program passed for reading.
    let result = unsafe { preadv2(fd, list, count, offset, RWF_DONTCACHE) };
    if result >= 0 || ![libc::EOPNOTSUPP, libc::EINVAL, libc::ENOSYS].contains(&errno()) {
        return result;
    }
    set_errno(before);
    let result = original();
    if result >= 0 {
        if let Some(tracker) = tracker() {
            tracker.bypass_refused();
        }
    }
    result
}

/// For `preadv2` and `pwritev2`, -1 means the file position.
fn or_position(offset: i64) -> Where {
    if offset == -1 { Where::Position } else { Where::Offset(offset) }
}

type Bytes = *mut c_void;
type ConstBytes = *const c_void;
type Vector = *const iovec;

instead_of! {
    read(fd: c_int, buffer: Bytes, count: size_t) -> ssize_t, else not_there(),
    |original| reads(fd, Where::Position, Memory::One(buffer, count), original)

    __read_chk(fd: c_int, buffer: Bytes, count: size_t, room: size_t) -> ssize_t, else not_there(),
    |original| reads(fd, Where::Position, Memory::One(buffer, count), original)

    pread(fd: c_int, buffer: Bytes, count: size_t, offset: off_t) -> ssize_t, else not_there(),
    |original| reads(fd, Where::Offset(offset), Memory::One(buffer, count), original)

    pread64(fd: c_int, buffer: Bytes, count: size_t, offset: off64_t) -> ssize_t, else not_there(),
    |original| reads(fd, Where::Offset(offset), Memory::One(buffer, count), original)

    __pread_chk(fd: c_int, buffer: Bytes, count: size_t, offset: off_t, room: size_t) -> ssize_t,
    else not_there(),
    |original| reads(fd, Where::Offset(offset), Memory::One(buffer, count), original)

    __pread64_chk(
        fd: c_int, buffer: Bytes, count: size_t, offset: off64_t, room: size_t
    ) -> ssize_t, else not_there(),
    |original| reads(fd, Where::Offset(offset), Memory::One(buffer, count), original)

    readv(fd: c_int, list: Vector, count: c_int) -> ssize_t, else not_there(),
    |original| reads(fd, Where::Position, Memory::Many(list, count), original)

    preadv(fd: c_int, list: Vector, count: c_int, offset: off_t) -> ssize_t, else not_there(),
    |original| reads(fd, Where::Offset(offset), Memory::Many(list, count), original)

    preadv64(fd: c_int, list: Vector, count: c_int, offset: off64_t) -> ssize_t, else not_there(),
    |original| reads(fd, Where::Offset(offset), Memory::Many(list, count), original)

    preadv2(fd: c_int, list: Vector, count: c_int, offset: off_t, flags: c_int) -> ssize_t,
    else not_there(),
    |original| with_flags(fd, or_position(offset), Memory::Many(list, count), flags, original)

    preadv64v2(fd: c_int, list: Vector, count: c_int, offset: off64_t, flags: c_int) -> ssize_t,
    else not_there(),
    |original| with_flags(fd, or_position(offset), Memory::Many(list, count), flags, original)

    write(fd: c_int, buffer: ConstBytes, count: size_t) -> ssize_t, else not_there(),
    |original| writes(fd, Where::Position, Memory::One(buffer, count), original)

    pwrite(fd: c_int, buffer: ConstBytes, count: size_t, offset: off_t) -> ssize_t,
    else not_there(),
    |original| writes(fd, Where::Offset(offset), Memory::One(buffer, count), original)

    pwrite64(fd: c_int, buffer: ConstBytes, count: size_t, offset: off64_t) -> ssize_t,
    else not_there(),
    |original| writes(fd, Where::Offset(offset), Memory::One(buffer, count), original)

    writev(fd: c_int, list: Vector, count: c_int) -> ssize_t, else not_there(),
    |original| writes(fd, Where::Position, Memory::Many(list, count), original)

    pwritev(fd: c_int, list: Vector, count: c_int, offset: off_t) -> ssize_t, else not_there(),
    |original| writes(fd, Where::Offset(offset), Memory::Many(list, count), original)

    pwritev64(fd: c_int, list: Vector, count: c_int, offset: off64_t) -> ssize_t, else not_there(),
    |original| writes(fd, Where::Offset(offset), Memory::Many(list, count), original)

    pwritev2(fd: c_int, list: Vector, count: c_int, offset: off_t, flags: c_int) -> ssize_t,
    else not_there(),
    |original| writes(fd, or_position(offset), Memory::Many(list, count), original)

    pwritev64v2(fd: c_int, list: Vector, count: c_int, offset: off64_t, flags: c_int) -> ssize_t,
    else not_there(),
    |original| writes(fd, or_position(offset), Memory::Many(list, count), original)
}

/// A read whose own flags are passed on unchanged.
fn with_flags(
    fd: c_int,
    from: Where,
    memory: Memory,
    flags: c_int,
    original: impl Fn() -> ssize_t,
) -> ssize_t {
    if flags == 0 {
        return reads(fd, from, memory, original);
    }
    tracked(fd, Direction::Read, from, memory, original)
}
