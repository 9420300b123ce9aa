//! A thread that expects something soon looks at its socket for some microseconds before it
//! sleeps. Waking it up takes longer than that: tens of microseconds on a processor that went idle.
//!
//! How long it looks follows what came of it. Something came while it slept, soon enough that
//! looking on would have met it: it looks twice as long the next time. It slept longer than it may
//! look: half as long, and soon not at all. Between two looks whoever else is ready to run on this
//! processor may; if that one keeps it, there is no looking for some time.
//!
//! Not here: what is read, and who waits for it. The reactor sees what came when the thread goes
//! on.

use std::cell::{Cell, RefCell};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// How long a thread looks that has just begun to.
const FIRST: Duration = Duration::from_micros(10);

/// Who yields and gets the processor back so late has met somebody who computes. It is not offered
/// again for so many waits: each time may take milliseconds.
const CROWDED: Duration = Duration::from_micros(200);
const RESTS: u32 = 1000;

thread_local! {
    /// The sockets of the connections of this thread.
    static SOCKETS: RefCell<Vec<OwnedFd>> = const { RefCell::new(Vec::new()) };
    /// Something else than a socket may end the waiting, and would not be seen.
    static WAITS_FOR_OTHERS: Cell<bool> = const { Cell::new(false) };
    static LOOKS_FOR: Cell<Duration> = const { Cell::new(Duration::ZERO) };
    static SINCE: Cell<Option<Instant>> = const { Cell::new(None) };
    /// Waits until it may look again.
    static RESTING: Cell<u32> = const { Cell::new(0) };
}

/// A socket that this thread looks at, until this is dropped there.
pub(super) struct Watched(RawFd);

impl Watched {
    /// `socket` is another descriptor of what the connection reads from.
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

/// The connection of this thread goes to sleep: whether it waits for more than its socket.
pub(super) fn waits_for_others(others: bool) {
    WAITS_FOR_OTHERS.set(others);
}

/// The thread is about to sleep: looks for up to `longest`.
pub(super) fn before_sleep(longest: Duration) {
    if WAITS_FOR_OTHERS.get() {
        return;
    }
    SOCKETS.with_borrow(|sockets| {
        // Of several connections one at a time would be looked at, and the others made to wait.
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

/// It goes on.
pub(super) fn after_sleep(longest: Duration) {
    let Some(since) = SINCE.take() else { return };
    LOOKS_FOR.set(next(LOOKS_FOR.get(), since.elapsed(), longest));
}

/// How long to look after one wait, of which `looked_for` was spent looking.
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

    use super::*;

    const LONGEST: Duration = Duration::from_millis(200);

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

    /// Something comes after a tenth of the longest time: it is seen then.
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
        // On a crowded machine it may have given up before.
        let rests = RESTING.take() == RESTS;
        assert!(rests || (took >= LONGEST / 10 && took < LONGEST), "{took:?}");
        after_sleep(LONGEST);
        assert!(rests || LOOKS_FOR.get() == LONGEST);

        // There is something to read, so it would not look again; without the socket neither.
        drop((watched, other.join().unwrap()));
        let start = Instant::now();
        before_sleep(LONGEST);
        assert!(start.elapsed() < LONGEST / 2);
    }

    #[test]
    fn it_rests_where_others_compute() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let _watched = Watched::new(ours.into());
        RESTING.set(2);
        for rest in [1, 0] {
            LOOKS_FOR.set(LONGEST);
            let start = Instant::now();
            before_sleep(LONGEST);
            assert!(start.elapsed() < LONGEST / 2 && RESTING.get() == rest);
        }
        // It looks again, to the end or until somebody else keeps the processor.
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
        let start = Instant::now();
        before_sleep(LONGEST);
        assert!(start.elapsed() < LONGEST / 2);
        waits_for_others(false);
        before_sleep(LONGEST);
        assert!(start.elapsed() >= LONGEST || RESTING.get() == RESTS);
    }
}
