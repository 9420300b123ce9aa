//! A private descriptor table for the sender.
//!
//! With the program's table, the program would notice the sender: its sockets would take descriptor
//! numbers, would be closed by programs that close everything, and would be inherited. Also,
//! closing a file that the sender has opened would release the locks (`fcntl`) that the program
//! holds on the same file, which databases rely on.

use std::io;

use rustix::fd::RawFd;

/// Separates the calling thread from the descriptors of its process, and closes its copies of them;
/// standard error stays open if `keep_stderr` is set.
///
/// # Errors
/// The error of the system: Linux before 5.9, or a system call filter. Nothing has changed then.
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
    // SAFETY: with the flag the calling thread first gets its own table, none of whose descriptors
    // has an owner, because the thread has only begun. The second call uses that table, too.
    let result = unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
