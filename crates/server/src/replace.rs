//! Small files for the server's own use: written completely or not at all, and opened safely. In a
//! folder where others may write, a name can be a link to somebody else's file, or a pipe that
//! never ends.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

/// Writes a file durably, under another name first, so that the file is either complete or
/// unchanged. A file that has this other name is removed, never written to.
pub(crate) fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut part = path.as_os_str().to_owned();
    part.push(".part");
    let part = PathBuf::from(part);
    match fs::remove_file(&part) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    // `create_new` also refuses a link.
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&part)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&part, path)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

/// Opens a regular file for reading. Never waits, and follows no link.
pub(crate) fn open_regular(path: &Path) -> io::Result<File> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(ErrorKind::InvalidData, "is no regular file"));
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    #[test]
    fn a_planted_link_is_replaced_and_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("victim"), "precious").unwrap();
        for name in ["state", "state.part"] {
            symlink(at("victim"), at(name)).unwrap();
        }
        replace(&at("state"), b"new").unwrap();
        assert_eq!(fs::read(at("victim")).unwrap(), b"precious");
        assert!(fs::symlink_metadata(at("state")).unwrap().is_file());
        assert_eq!(fs::read(at("state")).unwrap(), b"new");
        assert!(!at("state.part").exists());
    }

    #[test]
    fn a_pipe_or_a_link_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let mode = Mode::from_raw_mode(0o600);
        mknodat(CWD, at("pipe"), FileType::Fifo, mode, 0).unwrap();
        fs::write(at("file"), "content").unwrap();
        symlink(at("file"), at("link")).unwrap();
        // Opening the pipe in the usual way would wait for a writer for ever.
        assert!(open_regular(&at("pipe")).is_err() && open_regular(&at("link")).is_err());
        assert!(open_regular(&at("file")).is_ok());
    }
}
