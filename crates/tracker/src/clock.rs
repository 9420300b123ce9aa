//! The clocks: the time of a call, and what a scan costs. Both may be read at any time, from any
//! thread. Not here: how long anything may take; that stands where it is waited for.

use crate::filter;

/// The monotonic clock in microseconds; does not change `errno`. Where a filter may forbid to ask
/// the system, it is exact to a few milliseconds only: that clock is never the system's to read.
#[inline]
pub fn now_us() -> u64 {
    let clock = if filter::is_on() { libc::CLOCK_MONOTONIC_COARSE } else { libc::CLOCK_MONOTONIC };
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the C library's function fills in the value. It is used because it takes the kernel's
    // fast path wherever there is one, which other ways to read the clock do not under valgrind.
    unsafe { libc::clock_gettime(clock, &raw mut now) };
    now.tv_sec as u64 * 1_000_000 + now.tv_nsec as u64 / 1000
}

/// Processor time of the calling thread in microseconds. What a scan costs is measured by it: on a
/// busy machine a scan may be interrupted for long, and costs no more for that.
pub(crate) fn cpu_us() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    now.tv_sec as u64 * 1_000_000 + now.tv_nsec as u64 / 1000
}
