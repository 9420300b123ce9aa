//! A table of descriptors of the sender's own.
//!
//! With the program's table shared, the sender would be seen: its sockets would take numbers,
//! would be closed by programs that close everything, would be inherited; and closing a file that
//! it has opened would release the locks (`fcntl`) that the program holds on the same file, which
//! databases rely on.

use std::io;

use rustix::fd::RawFd;

/// Parts the calling thread from the descriptors of its process, and closes its copies of them;
/// of the standard error only if it is not to be kept.
///
/// # Errors
/// The system's: Linux before 5.9, or a filter of system calls. Then nothing has changed.
pub(super) fn leave(keep_stderr: bool) -> io::Result<()> {
    const STDERR: RawFd = 2;
    if keep_stderr {
        close_range(0, STDERR as u32 - 1, libc::CLOSE_RANGE_UNSHARE)?;
        close_range(STDERR as u32 + 1, u32::MAX, 0)
    } else {
        close_range(0, u32::MAX, libc::CLOSE_RANGE_UNSHARE)
    }
}

fn close_range(first: u32, last: u32, flags: u32) -> io::Result<()> {
    // SAFETY: with the flag the calling thread gets its own table first, and nothing of it is
    // owned by anybody: the thread has only begun. The second call is on that table, too.
    let result = unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
