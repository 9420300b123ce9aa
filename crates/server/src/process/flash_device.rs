//! Opens the device or file for the level on flash, and divides it among the volumes.
//!
//! What lies there from an earlier run is not used: the level is cold after each start. Nothing is
//! written to a device that was not formatted for this, and to no file that somebody else made.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::FallocateFlags;
use undercroft_flash::{FirstPage, HEAD_BYTES, Superblock};
use undercroft_store::{FileOptions, FileStore, Store as _};
use undercroft_text::Bytes;

use crate::config::{FlashConfig, VolumeConfig};
use crate::flash::{FlashMedium, FlashPart};
use crate::process::error::ServeError;
use crate::process::flash_regions::Regions;

/// Requests to the device at a time.
const THREADS: usize = 32;

/// The device, of which parts are given to volumes.
pub struct FlashDevice {
    medium: FlashMedium,
    config: FlashConfig,
    regions: Arc<Regions>,
}

impl FlashDevice {
    /// Opens a device.
    ///
    /// # Errors
    /// It cannot be opened, is too small, or is something else.
    pub(crate) fn open(config: &FlashConfig) -> Result<Arc<Self>, ServeError> {
        let named = |what: String| format!("flash {}: {what}", config.path.display());
        let is_new = !config.path.exists();
        if is_new {
            let made = format(&config.path, config.bytes);
            made.map_err(|what| ServeError::Plan(named(what)))?;
            tracing::warn!("{}", named(format!("was created, {}", Bytes(config.bytes))));
        }
        let store = open(&config.path, true).or_else(|error| {
            if error.kind() != ErrorKind::InvalidInput && error.kind() != ErrorKind::Unsupported {
                return Err(error);
            }
            tracing::warn!("{}", named(format!("the page cache is used, too: {error}")));
            open(&config.path, false)
        });
        let store = store.map_err(|error| ServeError::Work(format!("flash {error}")))?;
        // Nobody else can change it any more.
        check(config).map_err(|what| ServeError::Plan(named(what)))?;
        let there_are = store.facts().size;
        if there_are < config.bytes {
            let what = format!("has only {} now: format it again", Bytes(there_are));
            return Err(ServeError::Plan(named(what)));
        }
        let regions = Regions::new(HEAD_BYTES..config.bytes);
        let medium = FlashMedium::new(Arc::new(store));
        Ok(Arc::new(Self { medium, config: config.clone(), regions }))
    }

    /// Gives a volume its part of the device, as it is configured: `None` if it has none, or if
    /// what is free is too small, which is logged. It comes back when the volume is gone.
    pub(crate) fn part(&self, volume: &VolumeConfig) -> Option<FlashPart> {
        let (block, shards) = (u64::from(volume.block_bytes), u64::from(volume.shards.max(1)));
        let slots = u32::try_from(volume.flash_bytes / block).unwrap_or(u32::MAX);
        if slots == 0 || volume.cache_blocks == 0 {
            return None;
        }
        let region = self.regions.take(u64::from(slots) * block, block);
        let Some(region) = region.filter(|_| u64::from(slots) >= shards) else {
            tracing::warn!(
                volume = volume.name,
                "gets no flash: it is to have {}, and {} are free",
                Bytes(volume.flash_bytes),
                Bytes(self.regions.bytes())
            );
            return None;
        };
        let mut spec = self.config.spec.clone();
        let share = |bytes: u64| {
            (u128::from(bytes) * u128::from(slots) * u128::from(block)
                / u128::from(self.config.bytes)) as u64
        };
        spec.budget = spec.budget.map(share);
        let first = region.range.start;
        let part = FlashPart::new(self.medium.clone(), spec, first, slots);
        Some(FlashPart { _owned: Some(Arc::new(region)), ..part })
    }
}

/// Makes a file of so many bytes for flash, or prepares a device; what is there is lost.
///
/// # Errors
/// It cannot be made, or has no room.
pub fn format(path: &Path, bytes: u64) -> Result<(), String> {
    let is_new = !path.exists();
    let made = || -> io::Result<()> {
        // Nobody else may use it: it is locked, and a device is not mounted.
        let _locked = (!is_new).then(|| open(path, false)).transpose()?;
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        if file.metadata()?.is_file() {
            // A hole would find the file system full later.
            rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes)?;
        }
        let id = undercroft_random::hash(std::process::id().into())
            ^ std::time::UNIX_EPOCH.elapsed().map_or(0, |time| time.as_nanos() as u64);
        file.write_all_at(&Superblock { bytes, id }.page(), 0)?;
        file.sync_all()
    };
    if bytes < 2 * HEAD_BYTES {
        return Err(format!("size {}: expected at least {}", Bytes(bytes), Bytes(2 * HEAD_BYTES)));
    }
    made().map_err(|error| {
        if is_new {
            // Half a file would be taken for somebody else's.
            drop(std::fs::remove_file(path));
        }
        error.to_string()
    })
}

fn open(path: &Path, direct: bool) -> io::Result<FileStore> {
    let options =
        FileOptions { must_exist: true, direct, threads: THREADS, ..FileOptions::default() };
    FileStore::open(path, &options)
}

/// What the first page of a device says. One that begins with zeroes is foreign if anything follows
/// where a file system may have its own first page.
///
/// # Errors
/// It cannot be read.
pub fn first_page(path: &Path) -> Result<FirstPage, String> {
    let mut head = vec![0; HEAD_BYTES as usize];
    let read = File::open(path).and_then(|file| file.read_exact_at(&mut head, 0));
    match read {
        Ok(()) => Ok(Superblock::read(&head)),
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(FirstPage::Foreign),
        Err(error) => Err(error.to_string()),
    }
}

fn check(config: &FlashConfig) -> Result<(), String> {
    let again = "`undercroft flash format` prepares it, and what it has is lost";
    match first_page(&config.path)? {
        FirstPage::Ours(own) if own.bytes >= config.bytes => Ok(()),
        FirstPage::Ours(own) => Err(format!(
            "was formatted with {}, fewer than size={}: give it less, or format it again",
            Bytes(own.bytes),
            Bytes(config.bytes)
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
    use super::*;

    fn config(path: &Path, rest: &str) -> FlashConfig {
        format!("{},{rest}", path.display()).parse().unwrap()
    }

    fn volume(name: &str, flash_bytes: u64) -> VolumeConfig {
        let policy = "lru".parse().unwrap();
        VolumeConfig { flash_bytes, ..VolumeConfig::new(name, 64, policy) }
    }

    #[test]
    fn a_new_file_is_made_and_what_is_something_else_stays_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("flash");
        let device = FlashDevice::open(&config(&path, "size=4MiB,budget=3MiB/day")).unwrap();
        assert_eq!(path.metadata().unwrap().len(), 4 << 20);
        let (one, other) = (volume("one", 1 << 20), volume("other", 2 << 20));
        let (first, second) = (device.part(&one).unwrap(), device.part(&other).unwrap());
        assert_eq!((first.first_byte, first.slots), (1 << 20, 256));
        assert_eq!((second.first_byte, second.slots), (2 << 20, 512));
        assert_eq!(second.spec.budget.bytes(), Some(3 << 19));
        assert!(device.part(&one).is_none(), "nothing is left");
        drop(first);
        let first = device.part(&one).unwrap();
        assert_eq!(first.first_byte, 1 << 20, "it has come back");
        let again = FlashDevice::open(&config(&path, "size=4MiB"));
        assert!(again.is_err_and(|error| error.to_string().contains("in use")));
        drop((device, first, second));
        FlashDevice::open(&config(&path, "size=2MiB")).unwrap();
        let larger = FlashDevice::open(&config(&path, "size=8MiB"));
        assert!(larger.is_err_and(|error| error.to_string().contains("formatted with 4MiB")));

        let disk = folder.path().join("disk.img");
        std::fs::write(&disk, vec![7; 8 << 20]).unwrap();
        let foreign = FlashDevice::open(&config(&disk, "size=4MiB"));
        assert!(foreign.is_err_and(|error| error.to_string().contains("holds something else")));
        assert_eq!(std::fs::read(&disk).unwrap(), vec![7; 8 << 20]);
        std::fs::write(&disk, vec![0; 8 << 20]).unwrap();
        let empty = FlashDevice::open(&config(&disk, "size=4MiB"));
        assert!(empty.is_err_and(|error| error.to_string().contains("not formatted")));
        let mut later = vec![0; 8 << 20];
        later[64 << 10] = 1;
        std::fs::write(&disk, &later).unwrap();
        assert_eq!(first_page(&disk), Ok(FirstPage::Foreign), "another first page, further on");
        std::fs::write(&disk, vec![0; 8 << 20]).unwrap();
        format(&disk, 8 << 20).unwrap();
        let device = FlashDevice::open(&config(&disk, "size=8MiB")).unwrap();
        assert!(format(&disk, 8 << 20).is_err_and(|what| what.contains("in use")));
        drop(device);
        File::options().write(true).open(&disk).unwrap().set_len(5 << 20).unwrap();
        let cut = FlashDevice::open(&config(&disk, "size=8MiB"));
        assert!(cut.is_err_and(|error| error.to_string().contains("has only 5MiB")));
    }

    #[test]
    fn a_file_without_room_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("flash");
        assert!(FlashDevice::open(&config(&path, "size=1000000TiB")).is_err());
        assert!(FlashDevice::open(&config(&path, "size=1MiB")).is_err());
        assert!(!path.exists());
    }
}
