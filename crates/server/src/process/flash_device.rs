//! Opens the device or file for the level on flash, and divides it among the volumes.
//!
//! What lies there from an earlier run is used if the level is to be warm after a restart
//! (`restart=warm`), and the store can tell that nobody else has changed it: then the directory of
//! parts in the device's head says where it is. Nothing is written to a device that was not
//! formatted for this, and to no file that somebody else made.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes as Data;
use rustix::fs::FallocateFlags;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use undercroft_flash::{
    DEVICE_MIN_BYTES, FirstPage, HEAD_BYTES, PAGE_BYTES, PARTS_AT, PARTS_BYTES, Part, Parts,
    Superblock,
};
use undercroft_random::SplitMix64;
use undercroft_store::{FileOptions, FileStore, Store};
use undercroft_text::Bytes;

use crate::clock;
use crate::config::{FlashConfig, VolumeConfig};
use crate::flash::{APART_NS, FlashMedium, FlashPart, FlashPlace, STAMP_MAX_NS, read};
use crate::lock::sleep_lock;
use crate::process::error::ServeError;
use crate::process::flash_regions::{Region, Regions};

/// Requests to the device at a time.
const THREADS: usize = 32;

/// How long a write of the directory of parts may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// The device, of which parts are given to volumes.
pub struct FlashDevice {
    medium: FlashMedium,
    config: FlashConfig,
    regions: Arc<Regions>,
    /// What the device's directory lists, of this run and of earlier ones.
    parts: Mutex<Parts>,
    /// Held while the directory is written: the last write of it, which may not have ended.
    writing: tokio::sync::Mutex<Option<JoinHandle<io::Result<()>>>>,
    /// Draws the identities of parts.
    random: Mutex<SplitMix64>,
}

impl FlashDevice {
    /// Opens a device. `seed`: of what clients must not be able to guess.
    ///
    /// # Errors
    /// It cannot be opened, is too small, or is something else.
    pub(crate) async fn open(config: &FlashConfig, seed: u64) -> Result<Arc<Self>, ServeError> {
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
        let device = Self::over(FlashMedium::new(Arc::new(store)), config.clone(), seed).await;
        device.map_err(|error| ServeError::Work(named(error.to_string())))
    }

    /// A device that is open, and was formatted; `seed` as for a server.
    ///
    /// # Errors
    /// It cannot be read.
    pub async fn over(
        medium: FlashMedium,
        config: FlashConfig,
        seed: u64,
    ) -> io::Result<Arc<Self>> {
        let [one, other] = PARTS_AT.map(|byte| read(&*medium.store, byte, PARTS_BYTES));
        let parts = Parts::read(&one.await?, &other.await?, config.bytes);
        Ok(Arc::new(Self {
            medium,
            regions: Regions::new(HEAD_BYTES..config.bytes),
            config,
            parts: Mutex::new(parts),
            writing: tokio::sync::Mutex::default(),
            random: Mutex::new(SplitMix64::new(undercroft_random::hash(seed))),
        }))
    }

    /// Gives a volume its part of the device, as it is configured: `None` if it has none, or if
    /// what is free is too small, or the device fails, which is logged. It comes back when the
    /// volume is gone. `store`: that of the volume.
    ///
    /// Without a part, nothing of the volume is left that a later server could believe: if that
    /// cannot be written, this waits until changes of the store will be noticed by their time.
    pub(crate) async fn part(&self, volume: &VolumeConfig, store: &dyn Store) -> Option<FlashPart> {
        let began = clock::now();
        let why = match self.try_part(volume, store).await {
            Ok(Some(part)) => return Some(part),
            Ok(None) => self.list(volume, None, None).await.err()?,
            Err(why) => why,
        };
        let name = &volume.name;
        tracing::warn!(volume = name, "gets no flash: the directory cannot be written: {why}");
        if sleep_lock(&self.parts).find(name).is_some() {
            let stamp = Duration::from_nanos(STAMP_MAX_NS + APART_NS);
            sleep(stamp.saturating_sub(clock::since(began))).await;
        }
        None
    }

    /// As [`part`](Self::part); fails if the directory cannot be written.
    async fn try_part(
        &self,
        volume: &VolumeConfig,
        store: &dyn Store,
    ) -> Result<Option<FlashPart>, String> {
        let (block, shards) = (u64::from(volume.block_bytes), u64::from(volume.shards.max(1)));
        let slots = u32::try_from(volume.flash_bytes / block).unwrap_or(u32::MAX);
        if slots == 0 || volume.cache_blocks == 0 {
            return Ok(None);
        }
        let bytes = u64::from(slots) * block;
        let known = self.known(volume, bytes);
        let region = known.as_ref().and_then(|(range, _)| self.regions.take_these(range));
        let is_known = region.is_some();
        let alignment = block.max(PAGE_BYTES as u64);
        let region = region
            .or_else(|| self.regions.take(bytes, alignment, &self.listed_beside(&volume.name)));
        let shape = |range| FlashPlace {
            range,
            block_bytes: volume.block_bytes,
            shards: volume.shards.max(1),
            id: known.as_ref().filter(|_| is_known).map(|(_, id)| *id),
        };
        let has_slots = |region: &Region| {
            let beside_journals = shape(region.range.clone()).slots();
            u64::from(slots) >= shards && (!self.config.warm || beside_journals > 0)
        };
        let Some(region) = region.filter(has_slots) else {
            tracing::warn!(
                volume = volume.name,
                "gets no flash: it is to have {}, and {} are free",
                Bytes(volume.flash_bytes),
                Bytes(self.regions.bytes())
            );
            return Ok(None);
        };
        let mut spec = self.config.spec.clone();
        let share = |bytes: u64| {
            (u128::from(bytes) * u128::from(slots) * u128::from(block)
                / u128::from(self.config.bytes)) as u64
        };
        spec.budget = spec.budget.map(share);
        let (range, region) = (region.range.clone(), Arc::new(region));
        let version = if self.config.warm { store.version().await } else { None };
        let (part, listed) = if let Some(version) = version {
            let place = shape(range);
            let new = sleep_lock(&self.random).next_u64();
            let (part, id, found) =
                FlashPart::with_journals(self.medium.clone(), spec, &place, version, new).await;
            match found {
                Ok(blocks) => tracing::warn!(volume = volume.name, blocks, "flash is warm"),
                Err(why) => tracing::warn!(volume = volume.name, "flash is cold: {why}"),
            }
            (part, Some(id))
        } else {
            (FlashPart::new(self.medium.clone(), spec, range.start, slots), None)
        };
        self.list(volume, Some(&region), listed).await?;
        Ok(Some(FlashPart { _owned: Some(region), ..part }))
    }

    /// Where a volume's part was in an earlier run, if it was as it is to be now, and its identity.
    fn known(&self, volume: &VolumeConfig, bytes: u64) -> Option<(Range<u64>, u64)> {
        let parts = sleep_lock(&self.parts);
        let part = parts.find(&volume.name).filter(|part| {
            let shape = (part.bytes, part.block_bytes, part.shards);
            self.config.warm && shape == (bytes, volume.block_bytes, volume.shards.max(1))
        })?;
        Some((part.first_byte..part.first_byte + part.bytes, part.id))
    }

    /// Where the directory lists parts of other volumes than this one.
    fn listed_beside(&self, name: &str) -> Vec<Range<u64>> {
        let parts = sleep_lock(&self.parts);
        let others = parts.all().iter().filter(|part| part.name != name);
        others.map(|part| part.first_byte..part.first_byte + part.bytes).collect()
    }

    /// Lists a volume's region as its part, with this identity, or not at all, and no other part
    /// of the volume or there; durably before the region is used.
    async fn list(
        &self,
        volume: &VolumeConfig,
        region: Option<&Arc<Region>>,
        id: Option<u64>,
    ) -> Result<(), String> {
        if region.is_none() && sleep_lock(&self.parts).find(&volume.name).is_none() {
            return Ok(());
        }
        let mut writing = timeout(PATIENCE, self.writing.lock())
            .await
            .map_err(|_| "others wait for it".to_owned())?;
        if writing.as_ref().is_some_and(|before| !before.is_finished()) {
            // It goes to the same place, and must not come there later than the next one.
            return Err("an earlier write of it does not end".to_owned());
        }
        let range = region.map_or(0..0, |region| region.range.clone());
        let mut parts = sleep_lock(&self.parts).clone();
        let is_in_the_way = |part: &&Part| {
            let overlaps =
                part.first_byte < range.end && range.start < part.first_byte + part.bytes;
            overlaps || part.name == volume.name
        };
        let names: Vec<_> =
            parts.all().iter().filter(is_in_the_way).map(|part| part.name.clone()).collect();
        names.iter().for_each(|name| _ = parts.remove(name));
        if let Some(id) = id {
            parts.insert(Part {
                name: volume.name.clone(),
                first_byte: range.start,
                bytes: range.end - range.start,
                block_bytes: volume.block_bytes,
                shards: volume.shards.max(1),
                id,
            })?;
        }
        if parts == *sleep_lock(&self.parts) {
            return Ok(());
        }
        let (byte, copy) = parts.next_copy();
        let (device, region) = (Arc::clone(&self.medium.store), region.cloned());
        let write = writing.insert(tokio::spawn(async move {
            // What is written late would list a region that has become somebody else's.
            let _held = region;
            device.write(byte, vec![Data::from(copy)], false).await?;
            device.flush().await
        }));
        let written = timeout(PATIENCE, write).await.map_err(|_| "no answer".to_owned())?;
        written.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
        parts.copied();
        *sleep_lock(&self.parts) = parts;
        Ok(())
    }
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
pub(crate) fn fits(bytes: u64) -> Result<(), String> {
    let least = Bytes(DEVICE_MIN_BYTES);
    let is_enough = bytes >= DEVICE_MIN_BYTES;
    is_enough.then_some(()).ok_or_else(|| format!("flash of {}: at least {least}", Bytes(bytes)))
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
    use futures_util::future::join_all;
    use undercroft_store::{
        FailHandle, FailRule, FailStore, Failure, MemoryStore, RequestKind, Trigger,
    };

    use super::*;

    const SEED: u64 = 1;

    fn config(path: &Path, rest: &str) -> FlashConfig {
        format!("{},{rest}", path.display()).parse().unwrap()
    }

    fn volume(name: &str, flash_bytes: u64) -> VolumeConfig {
        let policy = "lru".parse().unwrap();
        VolumeConfig { flash_bytes, ..VolumeConfig::new(name, 64, policy) }
    }

    #[tokio::test]
    async fn a_new_file_is_made_and_what_is_something_else_stays_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("flash");
        let device =
            FlashDevice::open(&config(&path, "size=4MiB,budget=3MiB/day"), SEED).await.unwrap();
        assert_eq!(path.metadata().unwrap().len(), 4 << 20);
        let (one, other) = (volume("one", 1 << 20), volume("other", 2 << 20));
        let memory = MemoryStore::new(1 << 20).unwrap();
        let (first, second) = (
            device.part(&one, &memory).await.unwrap(),
            device.part(&other, &memory).await.unwrap(),
        );
        assert_eq!((first.first_byte, first.slots), (1 << 20, 256));
        assert_eq!((second.first_byte, second.slots), (2 << 20, 512));
        assert_eq!(second.spec.budget.bytes(), Some(3 << 19));
        assert!(device.part(&one, &memory).await.is_none(), "nothing is left");
        drop(first);
        let first = device.part(&one, &memory).await.unwrap();
        assert_eq!(first.first_byte, 1 << 20, "it has come back");
        let again = FlashDevice::open(&config(&path, "size=4MiB"), SEED).await;
        assert!(again.is_err_and(|error| error.to_string().contains("in use")));
        drop((device, first, second));
        FlashDevice::open(&config(&path, "size=2MiB"), SEED).await.unwrap();
        let larger = FlashDevice::open(&config(&path, "size=8MiB"), SEED).await;
        assert!(larger.is_err_and(|error| error.to_string().contains("formatted with 4MiB")));

        let disk = folder.path().join("disk.img");
        std::fs::write(&disk, vec![7; 8 << 20]).unwrap();
        let foreign = FlashDevice::open(&config(&disk, "size=4MiB"), SEED).await;
        assert!(foreign.is_err_and(|error| error.to_string().contains("holds something else")));
        assert_eq!(std::fs::read(&disk).unwrap(), vec![7; 8 << 20]);
        std::fs::write(&disk, vec![0; 8 << 20]).unwrap();
        let empty = FlashDevice::open(&config(&disk, "size=4MiB"), SEED).await;
        assert!(empty.is_err_and(|error| error.to_string().contains("not formatted")));
        let mut later = vec![0; 8 << 20];
        later[64 << 10] = 1;
        std::fs::write(&disk, &later).unwrap();
        assert_eq!(first_page(&disk), Ok(FirstPage::Foreign), "another first page, further on");
        std::fs::write(&disk, vec![0; 8 << 20]).unwrap();
        format(&disk, 8 << 20).unwrap();
        let device = FlashDevice::open(&config(&disk, "size=8MiB"), SEED).await.unwrap();
        assert!(format(&disk, 8 << 20).is_err_and(|what| what.contains("in use")));
        drop(device);
        File::options().write(true).open(&disk).unwrap().set_len(5 << 20).unwrap();
        let cut = FlashDevice::open(&config(&disk, "size=8MiB"), SEED).await;
        assert!(cut.is_err_and(|error| error.to_string().contains("has only 5MiB")));
    }

    /// Parts are where they were, unless they are to be others; and what is somebody else's now is
    /// nobody's any more.
    #[tokio::test]
    async fn volumes_find_their_parts_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("flash");
        let options = FileOptions { size: Some(1 << 20), ..FileOptions::default() };
        let store = FileStore::open(&folder.path().join("store"), &options).unwrap();
        let warm = config(&path, "size=8MiB,restart=warm");
        let listed = || {
            let parts = parts(&path, 8 << 20).unwrap();
            let of = |part: &Part| (part.name.clone(), part.first_byte, part.id);
            parts.all().iter().map(of).collect::<Vec<_>>()
        };
        let (one, other) = (volume("one", 2 << 20), volume("other", 3 << 20));
        let device = FlashDevice::open(&warm, SEED).await.unwrap();
        let first = device.part(&one, &store).await.unwrap();
        let second = device.part(&other, &store).await.unwrap();
        assert!(first.journals.is_some() && first.slots < 512 && first.slots > 500);
        let both = listed();
        assert_eq!(both.len(), 2);
        drop((device, first, second));
        // In another order, and beside one that was not there.
        let device = FlashDevice::open(&warm, SEED).await.unwrap();
        let third = device.part(&volume("third", 1 << 20), &store).await.unwrap();
        let second = device.part(&other, &store).await.unwrap();
        let first = device.part(&one, &store).await.unwrap();
        assert!(both.iter().all(|part| listed().contains(part)), "{both:?}, {:?}", listed());
        // Where a shard has room for its journal alone there is no level.
        let small = VolumeConfig { shards: 4, ..volume("small", 64 << 10) };
        assert!(device.part(&small, &store).await.is_none());
        drop((device, first, second, third));
        // A larger one has room only where others were, and a store without a version is not
        // listed.
        let device = FlashDevice::open(&warm, SEED).await.unwrap();
        let second = device.part(&volume("other", 4 << 20), &store).await.unwrap();
        let first = device.part(&one, &MemoryStore::new(1 << 20).unwrap()).await.unwrap();
        let names: Vec<_> = listed().into_iter().map(|(name, ..)| name).collect();
        assert!(first.journals.is_none() && names == ["other"], "{names:?}");
        drop((device, first, second));
        // A volume that has no flash any more is taken off, since nothing tells of its changes.
        let device = FlashDevice::open(&warm, SEED).await.unwrap();
        let second = device.part(&volume("other", 3 << 20), &store).await.unwrap();
        assert_eq!(listed().len(), 1);
        drop(second);
        assert!(device.part(&volume("other", 0), &store).await.is_none() && listed().is_empty());
        drop(device);
        let device = FlashDevice::open(&config(&path, "size=8MiB"), SEED).await.unwrap();
        let second = device.part(&volume("other", 4 << 20), &store).await.unwrap();
        assert!(second.journals.is_none() && listed().is_empty(), "cold");
    }

    /// A cold device whose directory lists parts of eight volumes, `v0` to `v7`; what it is over;
    /// and what releases writes that stall.
    async fn with_eight_parts(stalls: Trigger) -> (Arc<FlashDevice>, Arc<MemoryStore>, FailHandle) {
        const BYTES: u64 = 16 << 20;
        let mut parts = Parts::read(&[0; PARTS_BYTES], &[0; PARTS_BYTES], BYTES);
        for number in 0..8 {
            let (first_byte, bytes) = ((number + 1) << 20, 1 << 20);
            let (name, block_bytes) = (format!("v{number}"), 4096);
            parts.insert(Part { name, first_byte, bytes, block_bytes, shards: 1, id: 1 }).unwrap();
        }
        let memory = Arc::new(MemoryStore::new(BYTES).unwrap());
        let (byte, copy) = parts.next_copy();
        memory.write(byte, vec![Data::from(copy)], false).await.unwrap();
        let (kind, failure) = (Some(RequestKind::Write), Failure::Stall(None));
        let rule = FailRule { kind, trigger: stalls, failure };
        let failing = FailStore::new(Arc::<MemoryStore>::clone(&memory), Some(rule));
        let handle = failing.handle();
        let cold = config(Path::new("flash"), "size=16MiB");
        let device = FlashDevice::over(FlashMedium::new(Arc::new(failing)), cold, SEED).await;
        (device.unwrap(), memory, handle)
    }

    /// A write of the directory that was given up does not undo a later one.
    #[tokio::test(start_paused = true)]
    async fn a_late_write_of_the_directory_undoes_nothing() {
        let (device, memory, handle) = with_eight_parts(Trigger::Nth(1)).await;
        let store = MemoryStore::new(1 << 20).unwrap();
        let listed = async || {
            let [one, other] = PARTS_AT.map(|byte| read(&*memory, byte, PARTS_BYTES));
            let parts = Parts::read(&one.await.unwrap(), &other.await.unwrap(), 16 << 20);
            parts.all().iter().map(|part| part.name.clone()).collect::<Vec<_>>()
        };
        let (first, second) = (volume("v0", 1 << 20), volume("v1", 1 << 20));
        assert!(device.part(&first, &store).await.is_none(), "it stalls");
        let early = device.part(&second, &store).await;
        handle.release();
        sleep(Duration::from_secs(1)).await;
        let is_listed = listed().await.contains(&second.name);
        assert!(early.is_none() || !is_listed, "it is used, and listed as another one");
        let later = device.part(&second, &store).await;
        assert!(later.is_some() && !listed().await.contains(&second.name));
    }

    /// Volumes whose old parts are listed on a device that hangs are served all the same, when the
    /// stamps there are over; others wait for nothing.
    #[tokio::test(start_paused = true)]
    async fn a_device_that_hangs_at_a_start_holds_nobody_up_for_long() {
        let (device, _, _) = with_eight_parts(Trigger::From(1)).await;
        let store = MemoryStore::new(1 << 20).unwrap();
        let began = clock::now();
        assert!(device.part(&volume("without", 0), &store).await.is_none());
        assert_eq!(clock::since(began), Duration::ZERO);
        let volumes = (0..8).map(|number| volume(&format!("v{number}"), 1 << 20));
        let volumes = volumes.collect::<Vec<_>>();
        let given = join_all(volumes.iter().map(|volume| device.part(volume, &store))).await;
        let took = clock::since(began);
        assert!(given.iter().all(Option::is_none), "{given:?}");
        assert!((14..=61).contains(&took.as_secs()), "{took:?}");
    }

    #[tokio::test]
    async fn a_file_without_room_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("flash");
        assert!(FlashDevice::open(&config(&path, "size=1000000TiB"), SEED).await.is_err());
        assert!(FlashDevice::open(&config(&path, "size=1MiB"), SEED).await.is_err());
        assert!(!path.exists());
    }
}
