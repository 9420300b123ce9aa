//! Programs that filter their own system calls (seccomp). A filter may kill the program for a call
//! that the program would never make. So from the moment at which one is installed, the library
//! calls the system in none of the program's threads: each place that would do so asks
//! [`may_call`] first, and does without if the answer is no. The sender has a thread of its own,
//! which most filters do not concern; before a filter for all threads it ends.
//!
//! Not here: how an installation is noticed; `crates/preload` does that.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::time::Duration;

use crate::clock::now_us;

/// Set while a filter is in force or about to be; the lower bits count [`Permit`]s.
const FILTERED: u32 = 1 << 31;

/// Longest wait for calls of the system that have begun, and then for the sender's end, in
/// microseconds: it may wait for a server several times.
const WAIT_MAX_US: u64 = 10_000_000;

static STATE: AtomicU32 = AtomicU32::new(0);
static INSTALLING: AtomicU32 = AtomicU32::new(0);
static INSTALLED: AtomicBool = AtomicBool::new(false);
static SENDER_ENDS: AtomicBool = AtomicBool::new(false);

/// Permission to call the system in a thread of the program. No filter is installed while it is
/// held.
#[must_use]
pub struct Permit(());

impl Drop for Permit {
    fn drop(&mut self) {
        // In a child the count begins anew, with fewer than are held if a handler has forked.
        let one_less = |state: u32| (state & !FILTERED > 0).then(|| state - 1);
        let _ = STATE.fetch_update(SeqCst, Relaxed, one_less);
    }
}

/// Whether code in a thread of the program may call the system, for as long as the permit is held.
pub fn may_call() -> Option<Permit> {
    let before = STATE.fetch_add(1, SeqCst);
    let permit = Permit(());
    if before & FILTERED == 0 { Some(permit) } else { None }
}

/// Whether the program filters its system calls.
#[inline]
pub fn is_on() -> bool {
    STATE.load(Acquire) & FILTERED != 0
}

/// Whether the sender must end, because the filter is for its thread as well.
pub(crate) fn ends_sender() -> bool {
    SENDER_ENDS.load(Acquire)
}

/// Call in a child after a fork: the threads that had permits are not there.
pub(crate) fn forked() {
    STATE.fetch_and(FILTERED, SeqCst);
}

/// Installs a filter by `install`, which says whether it succeeded. Before that it waits until no
/// thread of the program calls the system for the tracker. `of_all_threads`: waits also until the
/// sender of this process has ended; `sender_is_gone` says so, and calls nothing that a filter
/// could forbid. Neither wait is for ever: a server that stalls must not hold the program up.
pub fn install(
    of_all_threads: bool,
    sender_is_gone: impl Fn() -> bool,
    install: impl FnOnce() -> bool,
) {
    INSTALLING.fetch_add(1, AcqRel);
    let is_first = STATE.fetch_or(FILTERED, SeqCst) & FILTERED == 0;
    // An earlier filter may forbid to sleep.
    let pause = || match is_first {
        true => std::thread::sleep(Duration::from_millis(1)),
        false => std::hint::spin_loop(),
    };
    let wait = |is_over: &dyn Fn() -> bool| {
        let until = now_us() + WAIT_MAX_US;
        while !is_over() && now_us() < until {
            pause();
        }
    };
    wait(&|| STATE.load(SeqCst) & !FILTERED == 0);
    if of_all_threads {
        SENDER_ENDS.store(true, Release);
        wait(&sender_is_gone);
    }
    if install() {
        INSTALLED.store(true, Release);
    } else if INSTALLING.load(Acquire) == 1 && !INSTALLED.load(Acquire) {
        SENDER_ENDS.store(false, Release);
        STATE.fetch_and(!FILTERED, SeqCst);
    }
    INSTALLING.fetch_sub(1, AcqRel);
}
