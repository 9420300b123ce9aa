//! A file or device for the level on flash: made, looked at and opened; and which errors say that
//! it is dead, so that a server starts without it. Nothing is written to a device that was not
//! formatted for this, and to no file that somebody else made.
//!
//! Not here: how it is divided among the volumes (`flash_device.rs`).

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::thread;
use std::time::Duration;

use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use tokio::sync::oneshot;
use tokio::time::timeout;
use undercroft_flash::{
    DEVICE_MIN_BYTES, FirstPage, HEAD_BYTES, PARTS_AT, PARTS_BYTES, Parts, Superblock,
};
use undercroft_store::{FileOptions, FileStore, Store, os_error};
use undercroft_text::Bytes;

use crate::config::FlashConfig;
use crate::process::error::{ServeError, work};

/// Requests to the device at a time.
const THREADS: usize = 32;

/// How long a start waits for an answer of the device.
const PATIENCE: Duration = Duration::from_secs(10);

/// Opens a file or device, and makes a file that is not there.
///
/// # Errors
/// `Away` if it is dead: it fails, has vanished, or does not answer. Otherwise somebody has to put
/// something right.
pub(super) async fn open_or_make(
    config: &FlashConfig,
    makes: bool,
) -> Result<FileStore, ServeError> {
    let is_missing = |config: &FlashConfig| {
        !is_below_dev(&config.path) && matches!(config.path.try_exists(), Ok(false))
    };
    if by_thread(config, is_missing).await? {
        let (name, bytes) = (config.path.display(), config.bytes);
        if !makes {
            let what = "there is no such file; `undercroft flash add` makes it";
            return Err(ServeError::Plan(format!("flash {name}: {what}")));
        }
        let made = format(&config.path, bytes);
        made.map_err(|what| ServeError::Plan(format!("flash {name}: {what}")))?;
        tracing::warn!("flash {name}: was created, {}", Bytes(bytes));
    }
    by_thread(config, open).await?
}

/// Whether a file or device that is used now can have this size.
///
/// # Errors
/// It cannot.
pub(super) async fn check_size(config: &FlashConfig) -> Result<(), ServeError> {
    let look = |config: &FlashConfig| {
        let name = config.path.display();
        let page = read_first_page(&config.path).map_err(|error| failed(&config.path, &error))?;
        check(page, config.bytes).map_err(|what| ServeError::Plan(format!("flash {name}: {what}")))
    };
    by_thread(config, look).await?
}

/// Opens what was formatted, and changes nothing.
fn open(config: &FlashConfig) -> Result<FileStore, ServeError> {
    let (path, name) = (&config.path, config.path.display());
    let open = |direct| {
        let options =
            FileOptions { must_exist: true, direct, threads: THREADS, ..FileOptions::default() };
        FileStore::open(path, &options)
    };
    let store = open(true).or_else(|error| {
        if error.kind() != ErrorKind::InvalidInput && error.kind() != ErrorKind::Unsupported {
            return Err(error);
        }
        tracing::warn!("flash {name}: the page cache is used, too: {error}");
        open(false)
    });
    let store = store.map_err(|error| failed(path, &error))?;
    // Nobody else can change it any more.
    let page = read_first_page(path).map_err(|error| failed(path, &error))?;
    let plan = |what: String| ServeError::Plan(format!("flash {name}: {what}"));
    check(page, config.bytes).map_err(plan)?;
    let there_are = store.facts().size;
    if there_are < config.bytes {
        return Err(plan(format!("has only {} now: format it again", Bytes(there_are))));
    }
    Ok(store)
}

/// What a thread finds out about a file or device. Where nothing answers it is left behind.
async fn by_thread<T: Send + 'static>(
    config: &FlashConfig,
    job: impl FnOnce(&FlashConfig) -> T + Send + 'static,
) -> Result<T, ServeError> {
    let (sender, answer) = oneshot::channel();
    let of_thread = config.clone();
    let thread = thread::Builder::new().spawn(move || _ = sender.send(job(&of_thread)));
    thread.map_err(|error| work("flash", &error))?;
    in_time(&config.path, answer).await?.map_err(|error| work("flash", &error))
}

/// Waits for an answer of a file or device, but not for ever.
///
/// # Errors
/// `Away`: there is none.
pub(super) async fn in_time<T>(
    path: &Path,
    answer: impl Future<Output = T>,
) -> Result<T, ServeError> {
    let answer = timeout(PATIENCE, answer).await;
    let (name, limit) = (path.display(), PATIENCE.as_secs());
    answer.map_err(|_| ServeError::Away(format!("flash {name}: no answer within {limit} s")))
}

/// What an error of a file or device means: `Away` if that is dead.
pub(super) fn failed(path: &Path, error: &io::Error) -> ServeError {
    let name = path.display();
    // A device that goes takes its name along.
    if error.kind() == ErrorKind::NotFound && is_below_dev(path) {
        return ServeError::Away(format!("flash {name}: there is no such device"));
    }
    let kind: fn(String) -> ServeError = match os_error(error).map(Errno::from_raw_os_error) {
        Some(Errno::IO | Errno::NXIO | Errno::NODEV | Errno::NOMEDIUM) => ServeError::Away,
        // Linux has these for some errors of block devices, if the page cache is not used.
        Some(Errno::REMOTEIO | Errno::TIMEDOUT | Errno::NOLINK | Errno::NODATA) => ServeError::Away,
        // ext4 and btrfs become read-only when their device fails, and say no more than that.
        Some(Errno::ROFS) => ServeError::Away,
        _ => ServeError::Work,
    };
    kind(format!("flash {name}: {error}"))
}

/// Whether a path is a device's, so that no file is made there; /dev/shm has files.
pub(super) fn is_below_dev(path: &Path) -> bool {
    path.starts_with("/dev") && !path.starts_with("/dev/shm")
}

/// The directory of parts of a device with so many bytes.
///
/// # Errors
/// It cannot be read.
pub fn parts(path: &Path, device_bytes: u64) -> Result<Parts, String> {
    let read = |byte| {
        let mut copy = vec![0; PARTS_BYTES];
        File::open(path)?.read_exact_at(&mut copy, byte)?;
        io::Result::Ok(copy)
    };
    let [one, other] = PARTS_AT.map(read);
    let one = one.map_err(|error| error.to_string())?;
    Ok(Parts::read(&one, &other.map_err(|error| error.to_string())?, device_bytes))
}

/// Makes a file of so many bytes for flash, or prepares a device; what is there is lost.
///
/// # Errors
/// It cannot be made, or has no room.
pub fn format(path: &Path, bytes: u64) -> Result<(), String> {
    fits(bytes)?;
    // Nobody else may use it: it is locked, and a device is not mounted.
    let is_new = !path.exists();
    let size = is_new.then_some(bytes);
    let options = FileOptions { size, must_exist: !is_new, ..FileOptions::default() };
    let locked = FileStore::open(path, &options).map_err(|error| error.to_string())?;
    let made = || -> io::Result<()> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        if locked.is_new() {
            // It gets what files have that others may not read.
            file.set_permissions(Permissions::from_mode(0o600))?;
        }
        let there_are = locked.facts().size;
        if file.metadata()?.is_file() {
            // A hole would find the file system full later.
            rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes)?;
        } else if there_are < bytes {
            let what = format!("the device has only {}", Bytes(there_are));
            return Err(io::Error::new(ErrorKind::InvalidInput, what));
        }
        let id = undercroft_random::hash(std::process::id().into())
            ^ std::time::UNIX_EPOCH.elapsed().map_or(0, |time| time.as_nanos() as u64);
        // What an earlier format listed lies there no more.
        PARTS_AT.into_iter().try_for_each(|byte| file.write_all_at(&vec![0; PARTS_BYTES], byte))?;
        file.sync_all()?;
        file.write_all_at(&Superblock { bytes, id }.page(), 0)?;
        file.sync_all()
    };
    made().map_err(|error| {
        if locked.is_new() {
            // Half a file would be taken for somebody else's.
            drop(std::fs::remove_file(path));
        }
        error.to_string()
    })
}

/// Whether a device can have so many bytes.
pub(super) fn fits(bytes: u64) -> Result<(), String> {
    let least = Bytes(DEVICE_MIN_BYTES);
    let is_enough = bytes >= DEVICE_MIN_BYTES;
    is_enough.then_some(()).ok_or_else(|| format!("flash of {}: at least {least}", Bytes(bytes)))
}

/// What the first page of a device says. One that begins with zeroes is foreign if anything follows
/// where a file system may have its own first page.
///
/// # Errors
/// It cannot be read.
pub fn first_page(path: &Path) -> Result<FirstPage, String> {
    read_first_page(path).map_err(|error| error.to_string())
}

fn read_first_page(path: &Path) -> io::Result<FirstPage> {
    let mut head = vec![0; HEAD_BYTES as usize];
    let read = File::open(path).and_then(|file| file.read_exact_at(&mut head, 0));
    match read {
        Ok(()) => Ok(Superblock::read(&head)),
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(FirstPage::Foreign),
        Err(error) => Err(error),
    }
}

/// Whether so many bytes can be used of what has this first page.
fn check(page: FirstPage, bytes: u64) -> Result<(), String> {
    let again = "`undercroft flash format` prepares it, and what it has is lost";
    match page {
        FirstPage::Ours(own) if own.bytes >= bytes => Ok(()),
        FirstPage::Ours(own) => Err(format!(
            "was formatted with {}, fewer than size={}: give it less, or format it again",
            Bytes(own.bytes),
            Bytes(bytes)
        )),
        FirstPage::OtherVersion(version) => {
            Err(format!("has layout {version}, which this version does not know; {again}"))
        }
        FirstPage::Damaged => Err(format!("its first page is damaged; {again}")),
        FirstPage::Empty => Err(format!("is not formatted; {again}")),
        FirstPage::Foreign => Err(format!("holds something else; {again}")),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;
    use std::sync::mpsc;

    use undercroft_flash::PAGE_BYTES;
    use xxhash_rust::xxh3::xxh3_64;

    use super::*;

    #[test]
    fn what_says_that_a_device_is_dead_and_what_somebody_must_put_right() {
        let is_dead = |path: &str, errno: Errno| {
            matches!(failed(Path::new(path), &errno.into()), ServeError::Away(_))
        };
        let dead = [Errno::IO, Errno::NXIO, Errno::NODEV, Errno::NOMEDIUM, Errno::NODATA];
        for errno in dead.into_iter().chain([Errno::REMOTEIO, Errno::TIMEDOUT, Errno::ROFS]) {
            assert!(is_dead("/nvme/flash", errno) && is_dead("/dev/nvme0n1", errno), "{errno}");
        }
        for errno in [Errno::ACCESS, Errno::PERM, Errno::BUSY, Errno::NOSPC, Errno::NOTDIR] {
            assert!(!is_dead("/nvme/flash", errno) && !is_dead("/dev/nvme0n1", errno), "{errno}");
        }
        assert!(is_dead("/dev/disk/by-id/nvme", Errno::NOENT));
        assert!(!is_dead("/nvme/flash", Errno::NOENT) && !is_dead("/dev/shm/flash", Errno::NOENT));
    }

    #[tokio::test]
    async fn a_device_that_is_missing_is_away_and_a_wrong_path_is_not() {
        let open = async |path: &str| {
            let config: FlashConfig = format!("{path},size=4MiB").parse().unwrap();
            open_or_make(&config, true).await.err().unwrap()
        };
        let missing = open("/dev/undercroft-nothing").await;
        assert!(matches!(&missing, ServeError::Away(why) if why.contains("no such device")));
        let wrong = open("/nowhere/flash").await;
        assert!(matches!(wrong, ServeError::Plan(_)), "{wrong}");
        let wrong = open("/dev/null").await;
        assert!(matches!(wrong, ServeError::Work(_)), "{wrong}");
    }

    /// What is not as it was formatted is refused, and says why; a file that has grown is not.
    #[tokio::test]
    async fn what_was_formatted_is_looked_at_before_it_is_used() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("flash");
        let config: FlashConfig = format!("{},size=4MiB", path.display()).parse().unwrap();
        drop(open_or_make(&config, true).await.unwrap());
        assert!(path.metadata().unwrap().blocks() * 512 >= 4 << 20, "it has holes");
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let mut page = vec![0; PAGE_BYTES];
        file.read_exact_at(&mut page, 0).unwrap();
        let mut later = page.clone();
        later[16] = 9;
        let check = xxh3_64(&later[..PAGE_BYTES - 8]);
        later[PAGE_BYTES - 8..].copy_from_slice(&check.to_le_bytes());
        let flipped = |at: usize| {
            let mut page = page.clone();
            page[at] ^= 4;
            page
        };
        let torn = [&page[..512], &[0; PAGE_BYTES - 512]].concat();
        for (page, why) in [
            (flipped(3), "holds something else"),
            (flipped(30), "its first page is damaged"),
            // As a crash leaves it while it is made, or prepared.
            (torn, "its first page is damaged"),
            (vec![0; PAGE_BYTES], "is not formatted"),
            (later, "has layout 9"),
        ] {
            file.write_all_at(&page, 0).unwrap();
            let refused = open_or_make(&config, true).await.err().unwrap();
            let said = matches!(&refused, ServeError::Plan(what)
                if what.contains(why) && what.contains("`undercroft flash format`"));
            assert!(said, "{refused}");
        }
        file.write_all_at(&page, 0).unwrap();
        file.set_len(8 << 20).unwrap();
        assert!(open_or_make(&config, false).await.is_ok());
    }

    /// A file system in memory says at once that it has no room.
    #[test]
    fn a_full_file_system_keeps_no_half_of_a_file() {
        let Ok(folder) = tempfile::tempdir_in("/dev/shm") else {
            println!("skipped: no file system in memory here");
            return;
        };
        let room = rustix::fs::statvfs(folder.path()).unwrap();
        let path = folder.path().join("flash");
        let why = format(&path, room.f_blocks * room.f_frsize + (1 << 30)).unwrap_err();
        assert!(why.contains("No space left on device"), "{why}");
        assert!(!path.exists());
        assert_eq!(format(&path, 4 << 20), Ok(()));
    }

    /// The clock stands still until nothing else can go on, so this takes no time.
    #[tokio::test(start_paused = true)]
    async fn a_thread_that_hangs_is_left_behind() {
        let config: FlashConfig = "/nvme/flash,size=4MiB".parse().unwrap();
        let (ends, end) = mpsc::channel::<()>();
        let hangs = by_thread(&config, move |_| _ = end.recv()).await;
        assert!(matches!(hangs, Err(ServeError::Away(why)) if why.contains("within 10 s")));
        drop(ends);
    }
}
