//! Busy polling: a thread that expects something soon polls its socket for some microseconds before
//! it sleeps. Waking it takes longer than that: tens of microseconds on a processor that has gone
//! idle.
//!
//! The polling time adapts to its success. If something came while the thread slept, but within the
//! longest polling time, the time doubles. If the thread slept longer than that, the time halves,
//! and soon becomes zero. Between two polls the thread yields to other threads that are ready to
//! run on its processor. If such a thread keeps the processor, polling stops for a while.
//!
//! Not here: what is read, and for whom. The reactor finds what has arrived when the thread
//! continues.

use std::cell::{Cell, RefCell};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Polling time of a thread that begins to poll.
const FIRST: Duration = Duration::from_micros(10);

/// If yielding takes longer than this, another thread is computing. Polling then stops for
/// [`RESTS`] waits, because each yield may take milliseconds.
const CROWDED: Duration = Duration::from_micros(200);
const RESTS: u32 = 1000;

thread_local! {
    /// The sockets of this thread's connections.
    static SOCKETS: RefCell<Vec<OwnedFd>> = const { RefCell::new(Vec::new()) };
    /// Whether something other than a socket may end the wait; polling would not notice that.
    static WAITS_FOR_OTHERS: Cell<bool> = const { Cell::new(false) };
    static LOOKS_FOR: Cell<Duration> = const { Cell::new(Duration::ZERO) };
    static SINCE: Cell<Option<Instant>> = const { Cell::new(None) };
    /// Number of waits until polling may resume.
    static RESTING: Cell<u32> = const { Cell::new(0) };
}

/// A socket that this thread polls; dropping it, on this thread, ends that.
pub(super) struct Watched(RawFd);

impl Watched {
    /// `socket` is a duplicate of the descriptor that the connection reads from.
    pub(super) fn new(socket: OwnedFd) -> Watched {
        let watched = Watched(socket.as_raw_fd());
        SOCKETS.with_borrow_mut(|sockets| sockets.push(socket));
        watched
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        SOCKETS.with_borrow_mut(|sockets| sockets.retain(|socket| socket.as_raw_fd() != self.0));
    }
}

/// The connection of this thread goes to sleep. `others`: it waits for more than its socket.
pub(super) fn waits_for_others(others: bool) {
    WAITS_FOR_OTHERS.set(others);
}

/// Call before the thread sleeps: polls for up to `longest`.
pub(super) fn before_sleep(longest: Duration) {
    if WAITS_FOR_OTHERS.get() {
        return;
    }
    SOCKETS.with_borrow(|sockets| {
        // With several connections, polling one would delay the others.
        let [socket] = &sockets[..] else { return };
        if RESTING.get() > 0 {
            return RESTING.set(RESTING.get() - 1);
        }
        let since = Instant::now();
        SINCE.set(Some(since));
        let looks_for = LOOKS_FOR.get().min(longest);
        let mut sockets = [PollFd::new(socket, PollFlags::IN)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut looked = since.elapsed();
        while looked < looks_for && poll(&mut sockets, Some(&at_once)) == Ok(0) {
            thread::yield_now();
            let now = since.elapsed();
            if now - looked > CROWDED {
                SINCE.set(None);
                LOOKS_FOR.set(Duration::ZERO);
                return RESTING.set(RESTS);
            }
            looked = now;
        }
    });
}

/// Call after the thread has slept.
pub(super) fn after_sleep(longest: Duration) {
    let Some(since) = SINCE.take() else { return };
    LOOKS_FOR.set(next(LOOKS_FOR.get(), since.elapsed(), longest));
}

/// The polling time after a wait, of which `looked_for` was spent polling.
fn next(looked_for: Duration, waited: Duration, longest: Duration) -> Duration {
    if waited > longest {
        return if looked_for > FIRST { looked_for / 2 } else { Duration::ZERO };
    }
    if waited <= looked_for {
        return looked_for;
    }
    (2 * looked_for).max(FIRST).min(longest)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    use rustix::time::{ClockId, clock_gettime};

    use super::*;

    const LONGEST: Duration = Duration::from_secs(2);

    /// How long this thread computed while it was about to sleep. Others may keep the processor for
    /// as long as they like meanwhile.
    fn computed_before_sleep() -> Duration {
        let now = || clock_gettime(ClockId::ThreadCPUTime);
        let before = now();
        before_sleep(LONGEST);
        Duration::try_from(now() - before).unwrap()
    }

    #[test]
    fn it_looks_longer_where_that_pays_and_not_at_all_where_it_does_not() {
        let us = Duration::from_micros;
        let mut looks_for = Duration::ZERO;
        for expected in [10, 20, 40, 50] {
            looks_for = next(looks_for, us(45), us(50));
            assert_eq!(looks_for, us(expected));
        }
        assert_eq!(next(looks_for, us(3), us(50)), us(50), "something came while it looked");
        for expected in [25_000, 12_500, 6_250, 0, 0] {
            looks_for = next(looks_for, us(51), us(50));
            assert_eq!(looks_for.as_nanos(), expected);
        }
    }

    /// Something arrives after a tenth of the longest time, and ends the polling.
    #[test]
    fn what_comes_ends_the_looking() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let watched = Watched::new(ours.try_clone().unwrap().into());
        LOOKS_FOR.set(LONGEST);
        let start = Instant::now();
        let other = thread::spawn(move || {
            thread::sleep(LONGEST / 10);
            theirs.write_all(b"x").unwrap();
            theirs
        });
        before_sleep(LONGEST);
        let took = start.elapsed();
        // On a busy machine polling may have stopped before.
        let rests = RESTING.take() == RESTS;
        assert!(rests || (took >= LONGEST / 10 && took < LONGEST), "{took:?}");
        after_sleep(LONGEST);
        assert!(rests || LOOKS_FOR.get() == LONGEST);

        // There is data to read, so polling ends at once; without the socket there is no polling.
        drop((watched, other.join().unwrap()));
        assert!(computed_before_sleep() < LONGEST / 20);
    }

    #[test]
    fn it_rests_where_others_compute() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let _watched = Watched::new(ours.into());
        RESTING.set(2);
        for rest in [1, 0] {
            LOOKS_FOR.set(LONGEST);
            assert!(computed_before_sleep() < LONGEST / 20 && RESTING.get() == rest);
        }
        // Polls for the whole time, or until another thread keeps the processor.
        let start = Instant::now();
        before_sleep(LONGEST);
        assert!(start.elapsed() >= LONGEST || RESTING.get() == RESTS);
    }

    #[test]
    fn it_does_not_look_while_others_are_waited_for() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let _watched = Watched::new(ours.into());
        LOOKS_FOR.set(LONGEST);
        waits_for_others(true);
        assert!(computed_before_sleep() < LONGEST / 20);
        waits_for_others(false);
        let start = Instant::now();
        before_sleep(LONGEST);
        assert!(start.elapsed() >= LONGEST || RESTING.get() == RESTS);
    }
}
