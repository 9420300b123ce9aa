//! What others put into the folder of the segments: nobody waits for it, believes it, or is led
//! elsewhere by it.

use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use undercroft_tracker::segment::Segment;

/// No process has it.
const NOBODY: u32 = i32::MAX as u32;

fn pipe(path: &Path) {
    mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o666), 0).unwrap();
}

fn said(folder: &Path, pid: u32) -> String {
    Segment::of_process(folder, pid).err().expect("an error").to_string()
}

/// To open a pipe in the usual way waits for its other end, for ever.
#[test]
fn a_pipe_holds_up_neither_a_check_nor_a_start() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().join(format!("undercroft-cct.{NOBODY}"));
    pipe(&at);
    let said = said(folder.path(), NOBODY);
    assert!(said.contains("no regular file") && said.contains("undercroft-cct"), "{said}");
    // A program that starts looks for what is left of others.
    let segment = Segment::create(folder.path(), 16 << 20).unwrap();
    assert!(segment.path().exists() && at.exists());
    // And one that is there already may find a pipe in the place of its own.
    std::fs::remove_file(segment.path()).unwrap();
    pipe(segment.path());
    assert!(segment.fill().is_err() && segment.set_score(1.0, 1.0).is_err());
}

/// Containers that share the folder have processes of the same number.
#[test]
fn another_file_of_its_name_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let segment = Segment::create(folder.path(), 16 << 20).unwrap();
    std::fs::remove_file(segment.path()).unwrap();
    std::fs::write(segment.path(), "another's").unwrap();
    segment.fill().unwrap();
    segment.fill_contents().unwrap();
    assert_eq!(std::fs::read(segment.path()).unwrap(), b"another's");
}

#[test]
fn a_link_is_not_followed() {
    let (folder, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let segment = Segment::create(elsewhere.path(), 16 << 20).unwrap();
    let link = folder.path().join(format!("undercroft-cct.{NOBODY}"));
    symlink(segment.path(), &link).unwrap();
    assert!(Segment::open(segment.path()).is_ok());
    assert!(Segment::open(&link).is_err());
    said(folder.path(), NOBODY);
}

#[test]
fn what_others_can_change_is_not_believed() {
    let folder = tempfile::tempdir().unwrap();
    let segment = Segment::create(folder.path(), 16 << 20).unwrap();
    std::fs::set_permissions(segment.path(), Permissions::from_mode(0o666)).unwrap();
    let said = said(folder.path(), std::process::id());
    assert!(said.contains("can be changed by others (mode 666)"), "{said}");
    std::fs::set_permissions(segment.path(), Permissions::from_mode(0o644)).unwrap();
    assert!(Segment::of_process(folder.path(), std::process::id()).is_ok());
    if !rustix::process::geteuid().is_root() {
        return println!("skipped: only root can make a file somebody else's");
    }
    // Nor is root told by a stranger what a process of somebody else does.
    std::os::unix::fs::chown(segment.path(), Some(12_345), None).unwrap();
    assert!(Segment::of_process(folder.path(), std::process::id()).is_err());
}

/// As of a database that is started by root, opens a file of the volume, and then becomes another
/// user, who may not open root's files.
#[test]
fn a_program_may_change_its_user_before_its_memory_is_there() {
    if !rustix::process::geteuid().is_root() {
        return println!("skipped: only root may become another user");
    }
    let folder = tempfile::tempdir().unwrap();
    let segment = Segment::create(folder.path(), 16 << 20).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // SAFETY: it takes numbers only. Without the C library it is for this thread alone.
            let changed = unsafe { libc::syscall(libc::SYS_setresuid, 65_534, 65_534, 65_534) };
            assert_eq!(changed, 0);
            assert!(std::fs::File::open(segment.path()).is_err());
            segment.fill().unwrap();
            segment.fill_contents().unwrap();
        });
    });
    let has = std::fs::metadata(segment.path()).unwrap().blocks() * 512;
    assert!(has >= segment.layout().heads().end as u64 * 8, "{has}");
}
