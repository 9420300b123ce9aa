//! The device or file for the level on flash, divided among the volumes.
//!
//! What lies there from an earlier run is used if the level is to be warm after a restart
//! (`restart=warm`), and the store can tell that nobody else has changed it: then the directory of
//! parts in the device's head (`flash_directory.rs`) says where it is.
//!
//! Not here: how it is made and opened, and when it counts as dead (`flash_file.rs`).

use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use tokio::time::{sleep, timeout};
use undercroft_flash::{HEAD_BYTES, PAGE_BYTES};
use undercroft_random::SplitMix64;
use undercroft_store::Store;
use undercroft_text::Bytes;

use crate::clock;
use crate::config::{FlashConfig, VolumeConfig};
use crate::flash::{APART_NS, FlashMedium, FlashPart, FlashPlace, STAMP_MAX_NS};
use crate::lock::sleep_lock;
use crate::process::error::ServeError;
use crate::process::flash_directory::FlashDirectory;
use crate::process::flash_file::{failed, in_time, open_or_make};
use crate::process::flash_regions::{Region, Regions};
use crate::process::surroundings::Surroundings;
use crate::volume::Volume;

/// How long a store may take to tell its version.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long a volume that is opened waits until it is known what lies on its part. A larger one is
/// served without it at first.
const SOON: Duration = Duration::from_millis(500);

/// How long a volume waits for requests in the region that it gave back, and between two looks.
const LAST_REQUEST: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(10);

/// The device, of which parts are given to volumes.
pub(crate) struct FlashDevice {
    /// `None`: it was dead at the start, and no volume gets a part.
    medium: Option<FlashMedium>,
    config: FlashConfig,
    regions: Arc<Regions>,
    directory: FlashDirectory,
    /// The regions that volumes have, or have had, by name.
    given: Mutex<HashMap<String, Range<u64>>>,
    /// Draws the identities of parts.
    random: Mutex<SplitMix64>,
}

impl FlashDevice {
    /// Opens a device. A server goes on without one that is dead, since flash has only copies: no
    /// volume gets a part of it. `makes`: a file that is not there is made.
    ///
    /// # Errors
    /// It is too small, something else, or in use, or it cannot be opened for a reason that
    /// somebody must put right.
    pub(crate) async fn open(
        config: &FlashConfig,
        makes: bool,
        surroundings: &Surroundings,
    ) -> Result<Arc<Self>, ServeError> {
        let opened = match &surroundings.flash {
            Some(give) => give().await.map_err(|error| failed(&config.path, &error)),
            None => {
                open_or_make(config, makes).await.map(|store| FlashMedium::new(Arc::new(store)))
            }
        };
        Self::unless_dead(opened, config, surroundings.seed()).await
    }

    /// The device over what was opened, or one without parts.
    async fn unless_dead(
        opened: Result<FlashMedium, ServeError>,
        config: &FlashConfig,
        seed: u64,
    ) -> Result<Arc<Self>, ServeError> {
        let device = match opened {
            Ok(medium) => {
                let over = in_time(&config.path, Self::over(medium, config.clone(), seed)).await;
                over.and_then(|over| over.map_err(|error| failed(&config.path, &error)))
            }
            Err(error) => Err(error),
        };
        let why = match device {
            Err(ServeError::Away(why)) => why,
            other => return other,
        };
        tracing::error!(
            "{why}; the server goes on without it, and all is read from the stores: look at the \
             device and at its path, and then ask for it by `undercroft flash add`, or SIGHUP"
        );
        let directory = FlashDirectory::unknown(config.warm);
        Ok(Self::new(None, config.clone(), directory, seed))
    }

    /// A device that is open, and was formatted. `seed`: of what clients must not be able to guess.
    ///
    /// # Errors
    /// It cannot be read.
    async fn over(medium: FlashMedium, config: FlashConfig, seed: u64) -> io::Result<Arc<Self>> {
        // All that is listed, also beyond what is used now.
        let device_bytes = medium.store.facts().size;
        let directory = FlashDirectory::read(&medium.store, device_bytes).await?;
        Ok(Self::new(Some(medium), config, directory, seed))
    }

    fn new(
        medium: Option<FlashMedium>,
        config: FlashConfig,
        directory: FlashDirectory,
        seed: u64,
    ) -> Arc<Self> {
        Arc::new(Self {
            medium,
            regions: Regions::new(HEAD_BYTES..config.bytes),
            config,
            directory,
            given: Mutex::default(),
            random: Mutex::new(SplitMix64::new(undercroft_random::hash(seed))),
        })
    }

    fn medium(&self) -> Result<&FlashMedium, String> {
        self.medium.as_ref().ok_or_else(|| "the device was dead when it was opened".to_owned())
    }

    /// Whether it is used: it was not dead, and has not failed too often.
    pub(crate) fn is_used(&self) -> bool {
        self.medium.as_ref().is_some_and(|medium| !medium.is_off())
    }

    /// What it is read and written by, for as long as anybody does that.
    pub(crate) fn store(&self) -> Option<Weak<dyn Store>> {
        self.medium.as_ref().map(|medium| Arc::downgrade(&medium.store))
    }

    /// Its path.
    pub(crate) fn path(&self) -> &Path {
        &self.config.path
    }

    /// Bytes that volumes can have.
    pub(crate) fn capacity(&self) -> u64 {
        self.config.bytes.saturating_sub(HEAD_BYTES)
    }

    /// Bytes that a volume can get in one piece, if it gives back what it has. `has_part`: it has
    /// something.
    pub(crate) fn largest_for(&self, name: &str, has_part: bool) -> u64 {
        let own = sleep_lock(&self.given).get(name).filter(|_| has_part).cloned();
        self.regions.largest_with(own.unwrap_or(0..0))
    }

    /// Whether a volume that is opened is to wait until it is known what of it lies there.
    pub(crate) fn is_awaited_by(&self, volume: &VolumeConfig) -> bool {
        let has_part = volume.flash_bytes > 0 && volume.cache_blocks > 0;
        self.config.warm && has_part || self.directory.may_list(&volume.name)
    }

    /// Gives a volume that was opened just now its part; before this returns, if it is soon known
    /// what lies there.
    pub(crate) async fn give_soon(self: &Arc<Self>, volume: &Arc<Volume>) {
        let (device, volume) = (Arc::clone(self), Arc::clone(volume));
        let mut giving = Box::pin(async move { device.give(&volume, true).await });
        if timeout(SOON, &mut giving).await.is_err() {
            tokio::spawn(giving);
        }
    }

    /// Gives a volume without a level on flash its part of the device, as it is configured: none if
    /// what is free is too small, or the device fails, which is logged. The part comes back when
    /// the volume is gone. `is_new`: what an earlier server left there counts, since the store was
    /// not changed since the volume was opened. To be run to its end, for the sake of changes that
    /// wait.
    ///
    /// Without a part, nothing of the volume is left that a later server could believe: if that
    /// cannot be written, this waits until changes of the store will be noticed by their time.
    async fn give(&self, volume: &Arc<Volume>, is_new: bool) {
        let _turn = volume.flash.turn.lock().await;
        let part = self.part(&volume.now(), &*volume.store, is_new).await;
        volume.flash.take(part);
    }

    /// Gives a volume that has no part of this device one of so many bytes, or none.
    pub(crate) async fn give_bytes(&self, volume: &Arc<Volume>, bytes: u64) {
        volume.put_in_force(|now| now.flash_bytes = bytes);
        self.give(volume, false).await;
    }

    /// Takes the part of a volume back, of which nothing counts any more. To be run to its end, for
    /// the sake of changes that wait.
    pub(crate) async fn take_back(&self, volume: &Arc<Volume>) {
        let _turn = volume.flash.turn.lock().await;
        volume.put_in_force(|now| now.flash_bytes = 0);
        let Some(commits) = volume.flash.leave().await else { return };
        let (config, began) = (volume.config(), clock::now());
        if let Err(why) = self.directory.list(config, None, None).await {
            self.until_stamps_are_over(&config.name, began, &why).await;
        }
        volume.flash.forget(&commits);
    }

    /// The part of a volume, as of [`give`](Self::give).
    async fn part(
        &self,
        volume: &VolumeConfig,
        store: &dyn Store,
        is_new: bool,
    ) -> Option<FlashPart> {
        let began = clock::now();
        let why = match self.try_part(volume, store, is_new).await {
            Ok(Some(part)) => return Some(part),
            Ok(None) => self.directory.list(volume, None, None).await.err()?,
            Err(why) => why,
        };
        self.until_stamps_are_over(&volume.name, began, &why).await;
        None
    }

    /// Waits, for a volume of which something may be listed, since `why`, until changes of its
    /// store will be noticed.
    async fn until_stamps_are_over(&self, name: &str, began: Instant, why: &str) {
        // A stamp says until when changes are those of the server that made it, at most so far
        // ahead. The store is open here, so nobody else makes one for it any more. A change after
        // that time is later than every stamp on the device, and the next server, which compares
        // them, finds nothing of the volume. Volumes that are opened at once wait together.
        let stamp = Duration::from_nanos(if self.directory.may_list(name) {
            STAMP_MAX_NS + APART_NS
        } else {
            0
        });
        let wait = stamp.saturating_sub(clock::since(began));
        tracing::warn!(
            volume = name,
            wait_s = wait.as_secs(),
            "has no flash: {why}; if old copies may be listed there, writes to the store wait so \
             long, lest the next start takes them for good"
        );
        sleep(wait).await;
    }

    /// As [`part`](Self::part); fails if the directory cannot be written.
    async fn try_part(
        &self,
        volume: &VolumeConfig,
        store: &dyn Store,
        is_new: bool,
    ) -> Result<Option<FlashPart>, String> {
        let medium = self.medium()?;
        let (block, shards) = (u64::from(volume.block_bytes), u64::from(volume.shards.max(1)));
        let slots = u32::try_from(volume.flash_bytes / block).unwrap_or(u32::MAX);
        if slots == 0 || volume.cache_blocks == 0 {
            return Ok(None);
        }
        let bytes = u64::from(slots) * block;
        let is_warm = self.config.warm && volume.awaits_flash;
        let known = if is_warm && is_new { self.directory.known(volume, bytes) } else { None };
        let was_other = is_new && known.is_none() && self.directory.may_list(&volume.name);
        let region = known.as_ref().and_then(|(range, _)| self.regions.take_these(range));
        let is_known = region.is_some();
        let alignment = block.max(PAGE_BYTES as u64);
        let region = match region {
            None => self.take_region(bytes, alignment, &volume.name, is_new).await,
            known => known,
        };
        let shape = |range| FlashPlace {
            range,
            block_bytes: volume.block_bytes,
            shards: volume.shards.max(1),
            id: known.as_ref().filter(|_| is_known).map(|(_, id)| *id),
        };
        let has_slots = |region: &Region| {
            let beside_journals = shape(region.range.clone()).slots();
            u64::from(slots) >= shards && (!is_warm || beside_journals > 0)
        };
        let Some(region) = region.filter(has_slots) else {
            tracing::warn!(
                volume = volume.name,
                "gets no flash: it is to have {} in one piece, and of {} that are free the largest \
                 piece has {}",
                Bytes(volume.flash_bytes),
                Bytes(self.regions.bytes()),
                Bytes(self.regions.largest_with(0..0))
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
        sleep_lock(&self.given).insert(volume.name.clone(), range.clone());
        let version = match is_warm {
            true => timeout(PATIENCE, store.version()).await.ok().flatten(),
            false => None,
        };
        if self.config.warm && version.is_none() {
            let why = match is_warm {
                true => "is cold after each start: its store cannot tell who has changed it",
                false => "is cold at the next start, since it was added while the volume is served",
            };
            tracing::warn!(volume = volume.name, "flash {why}");
        }
        let (part, listed) = if let Some(version) = version {
            let place = shape(range);
            // Never one of before, even if the seed is.
            let new = sleep_lock(&self.random).next_u64() ^ (medium.clock)();
            let (part, id, found) =
                FlashPart::with_journals(medium.clone(), spec, &place, version, new).await;
            match found {
                Ok(blocks) => tracing::warn!(volume = volume.name, blocks, "flash is warm"),
                Err(_) if was_other => tracing::warn!(
                    volume = volume.name,
                    "flash is cold: its part had another size, or other blocks or shards"
                ),
                Err(why) => tracing::warn!(volume = volume.name, "flash is cold: {why}"),
            }
            (part, Some(id))
        } else {
            (FlashPart::new(medium.clone(), spec, range.start, slots), None)
        };
        self.directory.list(volume, Some(&region), listed).await?;
        Ok(Some(FlashPart { _owned: Some(region), ..part }))
    }

    /// A free region for a volume. One that is open may have given it back just now (`is_new` is
    /// false), and requests may be there still: then they are awaited, for some seconds.
    async fn take_region(
        &self,
        bytes: u64,
        alignment: u64,
        name: &str,
        is_new: bool,
    ) -> Option<Region> {
        let began = clock::now();
        loop {
            let region = self.regions.take(bytes, alignment, &self.directory.listed_beside(name));
            if region.is_some() || is_new || clock::since(began) > LAST_REQUEST {
                return region;
            }
            sleep(LOOK).await;
        }
    }
}

#[cfg(test)]
mod tests;
