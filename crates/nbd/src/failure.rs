//! The protocol's errors, as numbers on the wire and as errors of the operating system.

use std::fmt;
use std::io;

use crate::service::Failure;

/// Every failure, its number on the wire, and its name.
const TABLE: [(Failure, u32, &str); 8] = [
    (Failure::NotPermitted, 1, "EPERM"),
    (Failure::Io, 5, "EIO"),
    (Failure::NoMemory, 12, "ENOMEM"),
    (Failure::Invalid, 22, "EINVAL"),
    (Failure::NoSpace, 28, "ENOSPC"),
    (Failure::Overflow, 75, "EOVERFLOW"),
    (Failure::NotSupported, 95, "ENOTSUP"),
    (Failure::ShuttingDown, 108, "ESHUTDOWN"),
];

impl Failure {
    fn row(self) -> (Failure, u32, &'static str) {
        TABLE[TABLE.iter().position(|row| row.0 == self).expect("every failure has its row")]
    }

    /// Its number on the wire, which is that of Linux.
    pub fn number(self) -> u32 {
        self.row().1
    }

    /// The failure with a number. Unknown numbers count as EINVAL, as the protocol demands of
    /// clients.
    pub fn from_number(number: u32) -> Failure {
        TABLE.iter().find(|row| row.1 == number).map_or(Failure::Invalid, |row| row.0)
    }

    /// Converts an error of the operating system: by its number if the protocol has it, otherwise
    /// by its kind, otherwise EIO.
    pub fn from_io(error: &io::Error) -> Failure {
        let by_number = |raw: i32| TABLE.iter().find(|row| i64::from(row.1) == i64::from(raw));
        if let Some(row) = error.raw_os_error().and_then(by_number) {
            return row.0;
        }
        match error.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                Failure::NotPermitted
            }
            io::ErrorKind::OutOfMemory => Failure::NoMemory,
            io::ErrorKind::InvalidInput => Failure::Invalid,
            io::ErrorKind::StorageFull
            | io::ErrorKind::QuotaExceeded
            | io::ErrorKind::FileTooLarge => Failure::NoSpace,
            io::ErrorKind::Unsupported => Failure::NotSupported,
            _ => Failure::Io,
        }
    }

    /// The error kind that a client reports for it. [`Failure::from_io`] converts it back to the
    /// same failure.
    pub fn kind(self) -> io::ErrorKind {
        match self {
            Failure::NotPermitted => io::ErrorKind::PermissionDenied,
            Failure::Io | Failure::Overflow | Failure::ShuttingDown => io::ErrorKind::Other,
            Failure::NoMemory => io::ErrorKind::OutOfMemory,
            Failure::Invalid => io::ErrorKind::InvalidInput,
            Failure::NoSpace => io::ErrorKind::StorageFull,
            Failure::NotSupported => io::ErrorKind::Unsupported,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.row().2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_kinds_come_back() {
        for (failure, number, name) in TABLE {
            assert_eq!(failure.number(), number);
            assert_eq!(Failure::from_number(number), failure);
            assert_eq!(Failure::from_io(&io::Error::from_raw_os_error(number as i32)), failure);
            assert_eq!(failure.to_string(), name);
            let kept = Failure::from_io(&io::Error::new(failure.kind(), "as a client sees it"));
            let coarse = matches!(failure, Failure::Overflow | Failure::ShuttingDown);
            assert_eq!(kept, if coarse { Failure::Io } else { failure });
        }
        assert_eq!(Failure::from_number(4711), Failure::Invalid);
        assert_eq!(Failure::from_io(&io::ErrorKind::TimedOut.into()), Failure::Io);
        // EROFS has no number on the wire, so its kind decides.
        assert_eq!(Failure::from_io(&io::Error::from_raw_os_error(30)), Failure::NotPermitted);
    }
}
