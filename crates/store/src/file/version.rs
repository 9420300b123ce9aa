//! What tells whether somebody else has changed a file.

use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags, fstat, fstatfs};
use undercroft_random::hash;

use crate::store::Version;

/// File systems whose times another machine's clock sets: NFS, SMB (two), 9P, Ceph, AFS, and what
/// FUSE brings.
const REMOTE: [u32; 7] =
    [0x6969, 0xff53_4d42, 0xfe53_4d42, 0x0102_1997, 0x00c3_6400, 0x5346_414f, 0x6573_5546];

/// The time of the last change of a file's data or attributes (ctime), which nobody can set; and
/// its path, inode and size. A device has none, and nor has a file that lies elsewhere.
pub(super) fn of(file: &File, path: &Path) -> Option<Version> {
    let open = fstat(file).ok()?;
    if FileType::from_raw_mode(open.st_mode) != FileType::RegularFile {
        return None;
    }
    if REMOTE.contains(&(fstatfs(file).ok()?.f_type as u32)) {
        return None;
    }
    let bytes = path.as_os_str().as_bytes().iter();
    let named = bytes.fold(0, |sum, &byte| hash(sum ^ u64::from(byte)));
    let identity = hash(hash(named ^ open.st_ino) ^ open.st_size as u64);
    let (s, ns) = (u64::try_from(open.st_ctime).ok()?, open.st_ctime_nsec as u64);
    Some(Version { identity, changed_ns: s.checked_mul(1_000_000_000)?.checked_add(ns)? })
}

/// A file without a name on the file system of another one: what is tried with it leaves the other
/// file's version as it is.
pub(super) fn nameless_beside(path: &Path) -> io::Result<File> {
    let path = path.canonicalize()?;
    let (folder, flags) = (path.parent().unwrap_or(&path), OFlags::TMPFILE | OFlags::RDWR);
    Ok(rustix::fs::open(folder, flags, Mode::RUSR | Mode::WUSR)?.into())
}
