//! Makes a file's data durable, and remembers if that ever failed.
//!
//! When the kernel cannot write back dirty pages, it reports that once and then treats them as
//! clean: the next `fdatasync` would succeed although data are lost. So the first failure is
//! remembered, and all later flushes are refused. Of several calls at the same time one is told,
//! and the others succeed: so a success counts when all have ended that ran beside it.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::pin::pin;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use rustix::io::Errno;
use tokio::sync::Notify;

/// Whether flushes can still succeed.
pub(super) struct Durability {
    /// Whether data wait in the page cache. Direct writes are told of their own failures alone.
    is_cached: bool,
    failed: OnceLock<Errno>,
    calls: Mutex<Calls>,
    /// Notified when a call has ended.
    ended: Notify,
}

/// A flush or durable write has succeeded: the number of the last call that had begun by then. It
/// counts when it is [confirmed](Durability::confirm).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Success(u64);

/// Flushes and durable writes.
#[derive(Default)]
struct Calls {
    begun: u64,
    /// Numbers of those that have not ended.
    running: BTreeSet<u64>,
}

/// A call that has not ended.
struct Running<'a>(&'a Durability, u64);

/// Whether a write is already durable.
pub(super) enum Durable {
    Already,
    No,
}

impl Durability {
    pub(super) fn new(is_cached: bool) -> Self {
        let (failed, calls, ended) = (OnceLock::new(), Mutex::default(), Notify::new());
        Self { is_cached, failed, calls, ended }
    }

    /// Fails if an earlier flush failed.
    pub(super) fn check(&self) -> io::Result<()> {
        let Some(errno) = self.failed.get() else { return Ok(()) };
        let first = io::Error::from(*errno);
        let why = format!(
            "an earlier flush failed ({first}) and data may be lost; check the disk, then restart"
        );
        // Always EIO: waiting or freeing space does not recover the data.
        Err(crate::medium::wrap(why, Errno::IO.into()))
    }

    /// Makes all data of the file durable.
    pub(super) fn sync(&self, file: &File) -> io::Result<Success> {
        self.check()?;
        let flush = || {
            // EINTR is not a failure of the medium; the flush is repeated.
            rustix::io::retry_on_intr(|| rustix::fs::fdatasync(file)).map_err(|errno| {
                let _ = self.failed.set(errno);
                io::Error::from(errno)
            })
        };
        self.call(flush).map(|((), success)| success)
    }

    /// Runs a durable write. Like a flush, it may be the only call that reports an earlier page's
    /// failure. Another error than that of the medium, such as lack of space, concerns this write
    /// alone if `again`, the same write without durability, fails in the same way.
    pub(super) fn watch<T>(
        &self,
        write: impl FnOnce() -> io::Result<T>,
        again: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<(T, Success)> {
        let is_of_earlier = |error: &io::Error| match error.kind() {
            _ if error.raw_os_error() == Some(Errno::IO.raw_os_error()) => true,
            ErrorKind::StaleNetworkFileHandle => true,
            ErrorKind::OutOfMemory => false,
            _ if !self.is_cached => false,
            _ => !again().is_err_and(|other| other.raw_os_error() == error.raw_os_error()),
        };
        self.call(|| {
            write().inspect_err(|error| {
                if is_of_earlier(error) {
                    let _ = self.failed.set(Errno::IO);
                }
            })
        })
    }

    /// Makes a call that notes its failure.
    fn call<T>(&self, call: impl FnOnce() -> io::Result<T>) -> io::Result<(T, Success)> {
        if !self.is_cached {
            return Ok((call()?, Success(0)));
        }
        let running = self.begin();
        let done = call()?;
        drop(running);
        Ok((done, Success(self.calls().begun)))
    }

    /// Waits for the calls that ran beside one that has succeeded, and fails if one of them has
    /// failed.
    pub(super) async fn confirm(&self, Success(last): Success) -> io::Result<()> {
        let runs = || self.calls().running.first().is_some_and(|&first| first <= last);
        loop {
            let mut ended = pin!(self.ended.notified());
            ended.as_mut().enable();
            if !runs() {
                return self.check();
            }
            ended.await;
        }
    }

    fn begin(&self) -> Running<'_> {
        let mut calls = self.calls();
        calls.begun += 1;
        let number = calls.begun;
        calls.running.insert(number);
        Running(self, number)
    }

    fn calls(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.calls().running.remove(&self.1);
        self.0.ended.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;
    use crate::medium::os_error;

    #[test]
    fn after_a_failure_nothing_is_promised_any_more() {
        let file = tempfile::tempfile().unwrap();
        let durability = Durability::new(true);
        durability.sync(&file).unwrap();
        let fails = |errno: Errno| move || Err::<(), _>(io::Error::from(errno));
        assert!(durability.watch(fails(Errno::NOSPC), fails(Errno::NOSPC)).is_err());
        durability.sync(&file).expect("a full disk loses nothing that was written before");
        assert!(durability.watch(fails(Errno::IO), fails(Errno::IO)).is_err());
        let error = durability.sync(&file).unwrap_err();
        assert_eq!(os_error(&error), Some(Errno::IO.raw_os_error()));
        assert!(error.to_string().contains("earlier flush failed"), "{error}");
    }

    /// A disk that is allocated late has no room for what was answered before.
    #[test]
    fn lack_of_space_that_a_write_itself_does_not_meet_is_that_of_earlier_ones() {
        for errno in [Errno::NOSPC, Errno::NODATA] {
            let durability = Durability::new(true);
            assert!(durability.watch(|| Err::<(), _>(errno.into()), || Ok(())).is_err());
            assert!(durability.check().is_err(), "{errno}");
        }
    }

    #[tokio::test]
    async fn no_call_succeeds_beside_one_that_is_told_of_a_failure() {
        for fails in [false, true] {
            let durability = Durability::new(true);
            // One runs when the other one succeeds.
            let beside = durability.begin();
            let ((), success) = durability.call(|| Ok(())).unwrap();
            let later = durability.begin();
            let mut confirmed = pin!(durability.confirm(success));
            assert!(timeout(Duration::from_millis(20), &mut confirmed).await.is_err());
            if fails {
                durability.failed.set(Errno::IO).unwrap();
            }
            drop(beside);
            assert_eq!(confirmed.await.is_err(), fails);
            drop(later);
        }
    }
}
