//! Opens files with a segment's name in a folder where anybody may create files (`/dev/shm`).
//! Opening must not block on a pipe or device, must not follow a link, and must not trust a file
//! that others can change.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::process::geteuid;

/// Permission bits by which users other than the owner may write the file.
const OTHERS_WRITE: u32 = 0o022;

/// Opens a segment for reading: one of this user; root may open any.
///
/// # Errors
/// The error of the system, or what is wrong with the file.
pub(super) fn to_read(path: &Path) -> io::Result<File> {
    open(path, OpenOptions::new().read(true))
}

/// Opens a segment for writing.
///
/// # Errors
/// As for [`to_read`].
pub(super) fn to_write(path: &Path) -> io::Result<File> {
    open(path, OpenOptions::new().read(true).write(true))
}

fn open(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let wrong = |what: String| {
        Err(io::Error::new(io::ErrorKind::InvalidData, format!("{} {what}", path.display())))
    };
    // Opening a link fails. Opening a pipe without another end succeeds; the check below refuses
    // it.
    let file =
        options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY).open(path)?;
    let (found, user) = (file.metadata()?, geteuid());
    if !found.is_file() {
        return wrong("is no regular file: somebody else put it there".to_owned());
    }
    if found.uid() != user.as_raw() && !user.is_root() {
        return wrong(format!("belongs to user {}, who is somebody else", found.uid()));
    }
    if found.mode() & OTHERS_WRITE != 0 {
        let mode = found.mode() & 0o7777;
        return wrong(format!("can be changed by others (mode {mode:o}): not made by a tracker"));
    }
    Ok(file)
}
