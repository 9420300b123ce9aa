//! Opening what has the name of a segment in a folder where anybody may put files (`/dev/shm`): a
//! pipe or a device must not hold up whoever opens it, a link must not lead elsewhere, and what
//! somebody else can change must not be believed.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::process::geteuid;

/// Permissions of others than the owner to change the file.
const OTHERS_WRITE: u32 = 0o022;

/// To look at it: a segment of this user, or for root that of any.
///
/// # Errors
/// The system's; and what is wrong with the file.
pub(super) fn to_read(path: &Path) -> io::Result<File> {
    open(path, OpenOptions::new().read(true))
}

/// To change it.
///
/// # Errors
/// As [`to_read`].
pub(super) fn to_write(path: &Path) -> io::Result<File> {
    open(path, OpenOptions::new().read(true).write(true))
}

fn open(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let wrong = |what: String| {
        Err(io::Error::new(io::ErrorKind::InvalidData, format!("{} {what}", path.display())))
    };
    // A link is an error, and a pipe without another end is none: it is looked at below.
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
