//! Intercepts the installation of filters of system calls (seccomp), by `prctl` and by `syscall`,
//! which libseccomp uses. `undercroft_tracker::filter` says what follows from one.
//!
//! Not seen: installations by instructions of the program's own, past the C library.

use std::ffi::{c_int, c_long, c_ulong};

use undercroft_tracker::filter;

use crate::original::{instead_of, not_there};
use crate::shim::{errno, is_inside, sender_is_gone, set_errno, tracker};

const OF_ALL_THREADS: c_ulong = libc::SECCOMP_FILTER_FLAG_TSYNC;

/// The flags that fit a mode of `prctl`. The strict mode is not for all threads, but the program is
/// expected to have no other: only the call that ends one thread is allowed from then on.
fn of_prctl(mode: c_ulong) -> c_ulong {
    if mode as u32 == libc::SECCOMP_MODE_STRICT { OF_ALL_THREADS } else { 0 }
}

/// Passes an installation on, with the library out of its way.
///
/// `flags` are those of `seccomp`.
fn installs(flags: c_ulong, original: impl Fn() -> c_long) -> c_long {
    let of_all_threads = flags & OF_ALL_THREADS != 0;
    // Otherwise a positive result is a thread that has another filter.
    let gives_descriptor = flags & libc::SECCOMP_FILTER_FLAG_NEW_LISTENER != 0;
    if tracker().is_none() || is_inside() {
        return original();
    }
    let (mut result, mut error) = (0, 0);
    let before = errno();
    filter::install(of_all_threads, sender_is_gone, || {
        set_errno(before);
        result = original();
        error = errno();
        let installed = result == 0 || result > 0 && gives_descriptor;
        if installed {
            forget_volumes();
        }
        installed
    });
    set_errno(error);
    result
}

/// Programs that are started from now on inherit the filter, which may kill them at the calls with
/// which tracking begins. Without volumes it does not begin.
fn forget_volumes() {
    // SAFETY: a name that ends with a zero. The value is this process's own, and one byte of it is
    // written; whoever reads it meanwhile reads either text, both of which end.
    unsafe {
        let value = libc::getenv(c"UNDERCROFT_VOLUMES".as_ptr());
        if !value.is_null() {
            value.write(0);
        }
    }
}

/// Whether arguments of `prctl` install a filter.
fn is_filter(option: c_long, mode: c_ulong, filter: c_ulong) -> bool {
    option == c_long::from(libc::PR_SET_SECCOMP)
        && match mode as u32 {
            libc::SECCOMP_MODE_STRICT => true,
            libc::SECCOMP_MODE_FILTER => filter != 0,
            _ => false,
        }
}

instead_of! {
    prctl(option: c_int, a: c_ulong, b: c_ulong, c: c_ulong, d: c_ulong) -> c_int,
    else not_there(),
    |original| {
        if is_filter(option.into(), a, b) {
            installs(of_prctl(a), || original().into()) as c_int
        } else {
            original()
        }
    }

    syscall(
        number: c_long, a: c_ulong, b: c_ulong, c: c_ulong, d: c_ulong, e: c_ulong, f: c_ulong
    ) -> c_long, else { set_errno(libc::ENOSYS); -1 },
    |original| match number {
        libc::SYS_prctl if is_filter(a as c_long, b, c) => installs(of_prctl(b), original),
        libc::SYS_seccomp => match a as u32 {
            libc::SECCOMP_SET_MODE_STRICT => installs(OF_ALL_THREADS, original),
            // Without a filter it asks whether the kernel knows the flags.
            libc::SECCOMP_SET_MODE_FILTER if c != 0 => installs(b, original),
            _ => original(),
        },
        _ => original(),
    }
}
