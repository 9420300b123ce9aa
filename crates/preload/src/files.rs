//! Intercepts calls that open, duplicate and close descriptors, or change the size or allocation of
//! files.

use std::ffi::{c_char, c_int, c_uint};

use libc::{FILE, mode_t, off_t, off64_t};
use undercroft_tracker::fds;

use crate::original::{instead_of, not_there};
use crate::shim::{is_at_home, is_inside, is_tracked, tracker, with};

/// Call after a call that may have opened a file.
fn opened(fd: c_int, flags: c_int) -> c_int {
    if fd < 0 || tracker().is_none() || is_inside() {
        return fd;
    }
    let odd = libc::O_PATH | libc::O_DIRECTORY;
    let reads = flags & libc::O_ACCMODE != libc::O_WRONLY && flags & odd == 0;
    let counts = |fd| reads || fds::get(fd).is_some();
    if counts(fd) && is_at_home() {
        with(|tracker| tracker.opened(fd, reads));
    }
    fd
}

/// Call after a call that may have made `new` a duplicate of `old`.
fn copied(old: c_int, new: c_int) -> c_int {
    let concerns = || fds::get(old).is_some() || fds::get(new).is_some();
    if new >= 0 && old != new && !is_inside() && concerns() && is_at_home() {
        with(|tracker| tracker.duplicated(old, new));
    }
    new
}

/// A call that closes `new` and reopens it as a duplicate.
fn replaced(old: c_int, new: c_int, original: impl Fn() -> c_int) -> c_int {
    let was = if is_tracked(new) && old != new { fds::set(new, None) } else { None };
    let result = original();
    if result < 0 {
        fds::set(new, was.or_else(|| fds::get(new)));
        return result;
    }
    copied(old, result)
}

/// Call before a descriptor is closed; afterwards another file may get its number at once.
fn closes(fd: c_int) {
    if is_tracked(fd) {
        fds::set(fd, None);
    }
}

fn closes_all(first: c_uint, last: c_uint) {
    if tracker().is_none() || is_inside() || !is_at_home() {
        return;
    }
    let last = last.min(fds::MAX as c_uint - 1);
    (first..=last).filter_map(|fd| c_int::try_from(fd).ok()).for_each(|fd| {
        fds::set(fd, None);
    });
}

/// Call after a call that changed the size or allocation of a file.
fn changed(fd: c_int, result: c_int) -> c_int {
    if fds::get(fd).is_some() && !is_inside() {
        with(|tracker| tracker.changed(fd));
    }
    result
}

type Path = *const c_char;

instead_of! {
    open(path: Path, flags: c_int, mode: mode_t) -> c_int, else not_there(),
    |original| opened(original(), flags)

    open64(path: Path, flags: c_int, mode: mode_t) -> c_int, else not_there(),
    |original| opened(original(), flags)

    openat(folder: c_int, path: Path, flags: c_int, mode: mode_t) -> c_int, else not_there(),
    |original| opened(original(), flags)

    openat64(folder: c_int, path: Path, flags: c_int, mode: mode_t) -> c_int, else not_there(),
    |original| opened(original(), flags)

    __open_2(path: Path, flags: c_int) -> c_int, else not_there(),
    |original| opened(original(), flags)

    __open64_2(path: Path, flags: c_int) -> c_int, else not_there(),
    |original| opened(original(), flags)

    __openat_2(folder: c_int, path: Path, flags: c_int) -> c_int, else not_there(),
    |original| opened(original(), flags)

    __openat64_2(folder: c_int, path: Path, flags: c_int) -> c_int, else not_there(),
    |original| opened(original(), flags)

    creat(path: Path, mode: mode_t) -> c_int, else not_there(),
    |original| opened(original(), libc::O_WRONLY)

    creat64(path: Path, mode: mode_t) -> c_int, else not_there(),
    |original| opened(original(), libc::O_WRONLY)

    close(fd: c_int) -> c_int, else not_there(),
    |original| {
        closes(fd);
        original()
    }

    close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int, else not_there(),
    |original| {
        if flags as c_uint & libc::CLOSE_RANGE_CLOEXEC == 0 {
            closes_all(first, last);
        }
        original()
    }

    closefrom(first: c_int) -> (), else {},
    |original| {
        closes_all(first.max(0) as c_uint, c_uint::MAX);
        original()
    }

    fclose(stream: *mut FILE) -> c_int, else not_there(),
    |original| {
        if tracker().is_some() && !stream.is_null() {
            // SAFETY: the stream is open until the original closes it.
            closes(unsafe { libc::fileno(stream) });
        }
        original()
    }

    dup(old: c_int) -> c_int, else not_there(),
    |original| copied(old, original())

    dup2(old: c_int, new: c_int) -> c_int, else not_there(),
    |original| replaced(old, new, original)

    dup3(old: c_int, new: c_int, flags: c_int) -> c_int, else not_there(),
    |original| replaced(old, new, original)

    fcntl(fd: c_int, command: c_int, argument: usize) -> c_int, else not_there(),
    |original| controlled(fd, command, original())

    fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int, else not_there(),
    |original| controlled(fd, command, original())

    ftruncate(fd: c_int, length: off_t) -> c_int, else not_there(),
    |original| changed(fd, original())

    ftruncate64(fd: c_int, length: off64_t) -> c_int, else not_there(),
    |original| changed(fd, original())

    fallocate(fd: c_int, mode: c_int, offset: off_t, length: off_t) -> c_int, else not_there(),
    |original| changed(fd, original())

    fallocate64(fd: c_int, mode: c_int, offset: off64_t, length: off64_t) -> c_int,
    else not_there(),
    |original| changed(fd, original())

    posix_fallocate(fd: c_int, offset: off_t, length: off_t) -> c_int, else libc::ENOSYS,
    |original| changed(fd, original())

    posix_fallocate64(fd: c_int, offset: off64_t, length: off64_t) -> c_int, else libc::ENOSYS,
    |original| changed(fd, original())
}

fn controlled(fd: c_int, command: c_int, result: c_int) -> c_int {
    match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => copied(fd, result),
        _ => result,
    }
}
