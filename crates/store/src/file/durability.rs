//! Makes a file's data durable, and remembers if that ever failed.
//!
//! When the kernel cannot write back dirty pages, it reports that once and then treats them as
//! clean: the next `fdatasync` would succeed although data are lost. So the first failure is
//! remembered, and all later flushes are refused.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::sync::OnceLock;

use rustix::io::Errno;

/// Whether flushes can still succeed.
#[derive(Default)]
pub(super) struct Durability {
    failed: OnceLock<Errno>,
}

/// Whether a change is already durable.
pub(super) enum Durable {
    Already,
    No,
}

impl Durability {
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
    pub(super) fn sync(&self, file: &File) -> io::Result<()> {
        self.check()?;
        // EINTR is not a failure of the medium; the flush is repeated.
        rustix::io::retry_on_intr(|| rustix::fs::fdatasync(file)).map_err(|errno| {
            let _ = self.failed.set(errno);
            io::Error::from(errno)
        })
    }

    /// Runs a durable write. Like a flush, it may be the only call that reports an earlier page's
    /// failure. Lack of space, however, concerns this write alone.
    pub(super) fn watch<T>(&self, write: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        write().inspect_err(|error| {
            if error.raw_os_error() == Some(Errno::IO.raw_os_error())
                || error.kind() == ErrorKind::StaleNetworkFileHandle
            {
                let _ = self.failed.set(Errno::IO);
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::medium::os_error;

    #[test]
    fn after_a_failure_nothing_is_promised_any_more() {
        let file = tempfile::tempfile().unwrap();
        let durability = Durability::default();
        durability.sync(&file).unwrap();
        let full = || Err::<(), _>(io::Error::from(Errno::NOSPC));
        assert!(durability.watch(full).is_err());
        durability.sync(&file).expect("a full disk loses nothing that was written before");
        assert!(durability.watch(|| Err::<(), _>(io::Error::from(Errno::IO))).is_err());
        let error = durability.sync(&file).unwrap_err();
        assert_eq!(os_error(&error), Some(Errno::IO.raw_os_error()));
        assert!(error.to_string().contains("earlier flush failed"), "{error}");
    }
}
