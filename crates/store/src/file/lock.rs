//! The lock on a backing file or folder, and the holder's name if the lock is refused.
//!
//! It is an `flock`, which belongs to the open file and not to the process: two stores of one
//! process exclude each other, and closing another descriptor does not release it. Also the
//! kernel's list of locks shows the holder's process id, which it does not for
//! open-file-description locks.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;

use rustix::fs::FlockOperation;
use rustix::io::Errno;

/// Locks a file for one writer or several readers, until the file is closed.
pub(crate) fn lock(file: &File, shared: bool) -> io::Result<()> {
    let how = if shared {
        FlockOperation::NonBlockingLockShared
    } else {
        FlockOperation::NonBlockingLockExclusive
    };
    match rustix::fs::flock(file, how) {
        Ok(()) => Ok(()),
        Err(Errno::WOULDBLOCK) => Err(io::Error::new(ErrorKind::ResourceBusy, holder(file))),
        Err(error) => Err(error.into()),
    }
}

/// The holder of the lock, in words.
fn holder(file: &File) -> String {
    let locks = std::fs::read_to_string("/proc/locks").unwrap_or_default();
    let Ok(metadata) = file.metadata() else { return unknown() };
    let Some(pid) = find(&locks, metadata.dev(), metadata.ino()) else { return unknown() };
    match std::fs::read_to_string(format!("/proc/{pid}/comm")) {
        Ok(command) => format!("in use by process {pid} ({})", command.trim_end()),
        Err(_) => format!("in use by process {pid}"),
    }
}

fn unknown() -> String {
    "in use by another process, which the system does not name here; `lsof` may".to_owned()
}

/// The first holder of a lock on this file according to the text of `/proc/locks`. Its lines look
/// like `3: FLOCK  ADVISORY  WRITE 4711 fe:00:123456 0 EOF`.
fn find(locks: &str, device: u64, inode: u64) -> Option<u32> {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let place = format!("{major:02x}:{minor:02x}:{inode}");
    locks.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        // A waiting request has an arrow as its second word, which shifts the others.
        let [_, "FLOCK", _, _, pid, at, ..] = words[..] else { return None };
        if at == place { pid.parse().ok().filter(|pid| *pid > 0) } else { None }
    })
}

#[cfg(test)]
mod tests {
    use super::find;

    #[test]
    fn the_holder_is_found_in_the_kernels_list() {
        let locks = "1: POSIX  ADVISORY  WRITE 11 fe:00:77 0 EOF\n\
                     2: FLOCK  ADVISORY  WRITE 12 fe:01:77 0 EOF\n\
                     3: FLOCK  ADVISORY  WRITE 13 fe:00:77 0 EOF\n\
                     3: -> FLOCK  ADVISORY  WRITE 14 fe:00:78 0 EOF\n";
        let device = rustix::fs::makedev(0xfe, 0);
        assert_eq!(find(locks, device, 77), Some(13));
        assert_eq!(find(locks, device, 78), None);
        assert_eq!(find("nonsense", device, 77), None);
    }
}
