//! Reads memory of this program that may not be there: by the system, which reports an error where
//! an ordinary access would kill the program; and memory of which the program has just proved that
//! it is there.

use std::sync::atomic::AtomicU64;

use libc::{c_ulong, iovec};

use crate::table::{GRANULE, HEAD, Head};

/// Most granules that are read together: a page of 64 KiB.
pub(crate) const TOGETHER_MAX: usize = 16;

/// Why memory was not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unread {
    /// It is not there, or not readable.
    Missing,
    /// The kernel does not allow it to this process.
    Refused,
}

/// The process that runs this, asked for each time: a child of `vfork` is another process than the
/// one whose memory it shares, and may not read it by that one's number.
fn own_id() -> libc::pid_t {
    rustix::process::getpid().as_raw_pid()
}

/// A list of pieces of memory that are read together, and where to.
pub(crate) struct Reads<'a> {
    from: [iovec; TOGETHER_MAX],
    to: [iovec; TOGETHER_MAX],
    count: usize,
    bytes: usize,
    targets: std::marker::PhantomData<&'a [AtomicU64]>,
}

impl<'a> Reads<'a> {
    pub(crate) fn new() -> Self {
        let none = iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        Self {
            from: [none; TOGETHER_MAX],
            to: [none; TOGETHER_MAX],
            count: 0,
            bytes: 0,
            targets: std::marker::PhantomData,
        }
    }

    /// Adds the memory at an address, as many bytes as `to` has room for. Does nothing after
    /// [`TOGETHER_MAX`] of them.
    pub(crate) fn add(&mut self, address: u64, to: &'a [AtomicU64]) {
        if self.count < TOGETHER_MAX {
            let iov_len = size_of_val(to);
            self.from[self.count] = iovec { iov_base: address as *mut _, iov_len };
            self.to[self.count] = iovec { iov_base: to.as_ptr().cast_mut().cast(), iov_len };
            self.count += 1;
            self.bytes += iov_len;
        }
    }

    /// Reads all of them.
    pub(crate) fn read(&self) -> Result<(), Unread> {
        if self.count == 0 {
            return Ok(());
        }
        let count = self.count as c_ulong;
        let (to, from) = (self.to.as_ptr(), self.from.as_ptr());
        // SAFETY: the kernel checks the addresses that are read. It writes into words that live as
        // long as `self`; others may read them meanwhile, which is why they are atomic.
        let read = unsafe { libc::process_vm_readv(own_id(), to, count, from, count, 0) };
        if read == self.bytes as isize {
            return Ok(());
        }
        // SAFETY: the place of this thread's `errno`.
        let error = unsafe { *libc::__errno_location() };
        let refused = read < 0 && [libc::EPERM, libc::ENOSYS].contains(&error);
        Err(if refused { Unread::Refused } else { Unread::Missing })
    }
}

/// Reads `each` bytes at each of these addresses into `to`, one after the other. Returns the number
/// of addresses that were read; the one after them is not readable, or there was no room for more.
pub(crate) fn read_scattered(at: &[u64], each: usize, to: &mut [u8]) -> usize {
    /// Most pieces of one call of the system.
    const PIECES_MAX: usize = 1024;
    let count = at.len().min(to.len() / each).min(PIECES_MAX);
    let piece = |&address: &u64| iovec { iov_base: address as *mut _, iov_len: each };
    let from: Vec<iovec> = at[..count].iter().map(piece).collect();
    let into = iovec { iov_base: to.as_mut_ptr().cast(), iov_len: count * each };
    let (into, pieces) = (&raw const into, count as c_ulong);
    // SAFETY: the kernel checks the addresses that are read, and writes at most `count * each`
    // bytes into `to`, which is borrowed for that.
    let read = unsafe { libc::process_vm_readv(own_id(), into, 1, from.as_ptr(), pieces, 0) };
    usize::try_from(read).unwrap_or(0) / each
}

/// The head of a granule in memory from or to which a call of the program has just succeeded.
///
/// # Safety
/// The program made a call with this memory, a granule long; the call succeeded, and has not
/// returned to the program yet.
pub(crate) unsafe fn head_at(address: u64) -> Option<Head> {
    let start = address as *const u64;
    start.is_aligned().then(|| {
        // SAFETY: within the granule, by the caller's word. Another thread of the program may
        // change it: volatile, so that each word is read once.
        std::array::from_fn(|word| unsafe { start.add(word).read_volatile() })
    })
}

const _: () = assert!(HEAD * 8 <= GRANULE as usize);
