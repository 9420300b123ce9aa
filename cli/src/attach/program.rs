//! A program that is to be watched: where it is, and whether a preloaded library can see its I/O.

use std::fs;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// What programs that the Go linker made contain: they make system calls without the C library.
const GO_MARK: &[u8] = b"\xff Go buildinf:";

/// Most of a program that is searched for what tells its origin.
const SEARCHED_BYTES: u64 = 256 << 20;

/// Finds a program as a shell would.
///
/// # Errors
/// Says where it was looked for.
pub(crate) fn find(name: &str) -> Result<PathBuf, String> {
    if name.contains('/') {
        let path = PathBuf::from(name);
        return if path.is_file() { Ok(path) } else { Err(format!("{name}: no such program")) };
    }
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&folders).map(|folder| folder.join(name)).find(|path| {
        path.metadata()
            .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    });
    found.ok_or_else(|| format!("{name}: not in any folder of PATH"))
}

/// Whether the I/O of a program can be seen by a library that is loaded into it.
///
/// # Errors
/// Says why not.
pub(crate) fn can_be_watched(path: &Path) -> Result<(), String> {
    let shown = path.display();
    let failed = |error| format!("{shown}: {error}");
    let metadata = path.metadata().map_err(failed)?;
    let other = metadata.uid() != rustix::process::geteuid().as_raw();
    if metadata.mode() & 0o4000 != 0 && other || metadata.mode() & 0o2000 != 0 {
        return Err(format!(
            "{shown} runs as another user (set-uid or set-gid): the system loads no library of \
             ours into it; start it as that user instead"
        ));
    }
    let mut program = Vec::new();
    let file = fs::File::open(path).map_err(failed)?;
    file.take(SEARCHED_BYTES).read_to_end(&mut program).map_err(failed)?;
    if program.starts_with(b"#!") {
        return Ok(());
    }
    if !program.starts_with(b"\x7fELF") {
        return Err(format!("{shown}: neither a program nor a script"));
    }
    if program.windows(GO_MARK.len()).any(|window| window == GO_MARK) {
        return Err(format!(
            "{shown} is a Go program: it calls the kernel itself, past the C library, where \
             nothing of it can be seen"
        ));
    }
    if has_interpreter(&program) == Some(false) {
        return Err(format!(
            "{shown} is linked statically: no library of ours is loaded into it; use one that is \
             linked with the C library of the system"
        ));
    }
    Ok(())
}

/// Whether a 64-bit ELF program has its libraries loaded at the start; none if it cannot be told.
fn has_interpreter(program: &[u8]) -> Option<bool> {
    const LITTLE_ENDIAN_64: [u8; 2] = [2, 1];
    const INTERPRETER: u32 = 3;
    if program.get(4..6)? != LITTLE_ENDIAN_64 {
        return None;
    }
    let number = |at: usize, length: usize| {
        let bytes = program.get(at..at.checked_add(length)?)?;
        let value = bytes.iter().rev().fold(0_u64, |value, &byte| value << 8 | u64::from(byte));
        usize::try_from(value).ok()
    };
    let (table, entry, entries) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
    for index in 0..entries {
        let at = table.checked_add(index.checked_mul(entry)?)?;
        if number(at, 4)? == INTERPRETER as usize {
            return Some(true);
        }
    }
    Some(false)
}

#[cfg(test)]
mod tests {
    use super::{can_be_watched, find, has_interpreter};

    #[test]
    fn programs_of_the_system_can_be_watched() {
        let shell = find("sh").unwrap();
        assert_eq!(can_be_watched(&shell), Ok(()));
        assert!(find("no-such-program").unwrap_err().contains("PATH"));
        assert!(find("/no/such/program").is_err());
        let error = can_be_watched(std::path::Path::new("/etc/passwd")).unwrap_err();
        assert!(error.contains("neither a program nor a script"), "{error}");
    }

    #[test]
    fn a_damaged_program_is_no_reason_to_fail() {
        let shell = std::fs::read(find("sh").unwrap()).unwrap();
        assert_eq!(has_interpreter(&shell), Some(true));
        for length in 0..shell.len().min(1000) {
            has_interpreter(&shell[..length]);
        }
        let mut far = shell;
        far[32..40].fill(0xff);
        assert_eq!(has_interpreter(&far), None);
    }
}
