//! The lock of a shard, and how a thread waits for it. The lock is held for the few microseconds
//! that the requests of one message take. Sleeping and waking takes longer, especially if another
//! processor must wake the thread: threads of busy connections would then lose the processor on
//! which the other end of their connection runs. So a waiting thread spins for a while before it
//! sleeps.
//!
//! Other locks are held very briefly or are rarely contended: threads sleep for these at once.

use crate::sync::{Mutex, MutexGuard, PoisonError, TryLockError, spin_loop, yield_now};

/// Attempts in a row, about 15 us: as long as a running holder may need.
const SPINS: u32 = 300;

/// Further attempts that yield the processor, because the holder may be waiting for this one.
const YIELDS: u32 = 100;

/// Takes a lock that is held for microseconds. A poisoned lock is taken as it is.
#[inline]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    try_lock(mutex).unwrap_or_else(|| wait_for(mutex))
}

#[cold]
fn wait_for<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    for look in 0..SPINS + YIELDS {
        if look < SPINS {
            spin_loop();
        } else {
            yield_now();
        }
        if let Some(guard) = try_lock(mutex) {
            return guard;
        }
    }
    sleep_lock(mutex)
}

/// Takes a lock that is rarely contended, or held for longer. A poisoned lock is taken as it is:
/// nothing that runs under it panics half-way.
pub(crate) fn sleep_lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;
    use std::time::{Duration, Instant};

    use rustix::time::{ClockId, clock_gettime};

    use super::*;

    #[test]
    fn one_at_a_time_holds_it() {
        let count = Arc::new(Mutex::new(0));
        let add = |_| {
            let count = Arc::clone(&count);
            thread::spawn(move || {
                for _ in 0..10_000 {
                    let mut held = lock(&count);
                    let before = *held;
                    *held = before + 1;
                }
            })
        };
        let threads: Vec<_> = (0..8).map(add).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(*lock(&count), 80_000);
    }

    #[test]
    fn a_lock_that_is_held_long_is_slept_for() {
        let held = Arc::new(Mutex::new(()));
        let (guard, waits) = (lock(&held), Arc::new(AtomicBool::new(true)));
        let waiter = thread::spawn({
            let (held, waits) = (Arc::clone(&held), Arc::clone(&waits));
            move || {
                let before = clock_gettime(ClockId::ThreadCPUTime);
                drop(lock(&held));
                waits.store(false, Ordering::SeqCst);
                Duration::try_from(clock_gettime(ClockId::ThreadCPUTime) - before).unwrap()
            }
        });
        let start = Instant::now();
        thread::sleep(Duration::from_millis(500));
        assert!(waits.load(Ordering::SeqCst));
        drop(guard);
        let computed = waiter.join().unwrap();
        assert!(computed < start.elapsed() / 4, "{computed:?} of {:?}", start.elapsed());
    }

    #[test]
    fn what_a_panic_left_behind_is_taken_as_it_is() {
        let value = Arc::new(Mutex::new(7));
        let other = Arc::clone(&value);
        let panicked = thread::spawn(move || {
            let _held = lock(&other);
            panic!("on purpose");
        });
        assert!(panicked.join().is_err());
        assert_eq!(*lock(&value), 7);
    }
}
