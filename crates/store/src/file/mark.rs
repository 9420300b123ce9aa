//! The mark of a file whose content is not whole without its write log: an extended attribute,
//! which stays with the file when it is renamed, and is not copied with it by most programs.

use std::fs::File;
use std::io;

use rustix::fs::{XattrFlags, fgetxattr, fremovexattr, fsetxattr};
use rustix::io::Errno;

const NAME: &str = "user.undercroft.log";

/// Longest mark in bytes.
const MAX_BYTES: usize = 8192;

/// The mark of a file. A file that can have none has none.
pub(super) fn of(file: &File) -> io::Result<Option<String>> {
    let mut bytes = vec![0; MAX_BYTES];
    match fgetxattr(file, NAME, &mut bytes) {
        Ok(length) => {
            bytes.truncate(length);
            Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
        }
        Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::PERM) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Sets the mark of a file, or takes it off, durably.
pub(super) fn set(file: &File, mark: Option<&str>) -> io::Result<()> {
    match mark {
        Some(mark) => fsetxattr(file, NAME, mark.as_bytes(), XattrFlags::empty())?,
        None => match fremovexattr(file, NAME) {
            Ok(()) | Err(Errno::NODATA) => {}
            Err(error) => return Err(error.into()),
        },
    }
    file.sync_all()
}
