//! The directory of parts in the head of a device for the level on flash: where each volume's part
//! lies, of this run and of earlier ones, so that a restart finds it.
//!
//! Not here: what it looks like on the device (`undercroft_flash`), and which part a volume gets
//! (`flash_device.rs`).

use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use undercroft_flash::{PARTS_AT, PARTS_BYTES, Part, Parts};
use undercroft_store::Store;

use crate::config::VolumeConfig;
use crate::flash::read;
use crate::lock::sleep_lock;
use crate::process::flash_regions::Region;

/// How long a write of it may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// The directory of a device.
pub(super) struct FlashDirectory {
    /// `None`: the device is dead, and it is not known what is listed there.
    store: Option<Arc<dyn Store>>,
    /// Whether parts of a device that is dead may be listed.
    may_list_any: bool,
    parts: Mutex<Parts>,
    /// Held while it is written: the last write, which may not have ended.
    writing: tokio::sync::Mutex<Option<JoinHandle<io::Result<()>>>>,
}

impl FlashDirectory {
    /// Reads that of a device with so many bytes.
    ///
    /// # Errors
    /// It cannot be read.
    pub(super) async fn read(store: &Arc<dyn Store>, device_bytes: u64) -> io::Result<Self> {
        // What the process before had written may not be durable yet.
        store.flush().await?;
        let [one, other] = PARTS_AT.map(|byte| read(&**store, byte, PARTS_BYTES));
        let parts = Mutex::new(Parts::read(&one.await?, &other.await?, device_bytes));
        let (store, writing) = (Some(Arc::clone(store)), tokio::sync::Mutex::default());
        Ok(Self { store, may_list_any: false, parts, writing })
    }

    /// That of a device that is dead. `may_list_any`: whether it may have one.
    pub(super) fn unknown(may_list_any: bool) -> Self {
        let writing = tokio::sync::Mutex::default();
        Self { store: None, may_list_any, parts: Mutex::default(), writing }
    }

    /// Whether it may list a part of a volume.
    pub(super) fn may_list(&self, name: &str) -> bool {
        self.may_list_any || sleep_lock(&self.parts).find(name).is_some()
    }

    /// Where a volume's part was in an earlier run, if it was as it is to be now, and its identity.
    pub(super) fn known(&self, volume: &VolumeConfig, bytes: u64) -> Option<(Range<u64>, u64)> {
        let parts = sleep_lock(&self.parts);
        let part = parts.find(&volume.name).filter(|part| {
            let shape = (part.bytes, part.block_bytes, part.shards);
            shape == (bytes, volume.block_bytes, volume.shards.max(1))
        })?;
        Some((part.first_byte..part.first_byte + part.bytes, part.id))
    }

    /// Where the directory lists parts of other volumes than this one.
    pub(super) fn listed_beside(&self, name: &str) -> Vec<Range<u64>> {
        let parts = sleep_lock(&self.parts);
        let others = parts.all().iter().filter(|part| part.name != name);
        others.map(|part| part.first_byte..part.first_byte + part.bytes).collect()
    }

    /// Lists a volume's region as its part, with this identity, or not at all, and no other part
    /// of the volume or there; durably before the region is used.
    pub(super) async fn list(
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
        let (device, region) =
            (Arc::clone(self.store.as_ref().ok_or("the device is dead")?), region.cloned());
        let write = writing.insert(tokio::spawn(async move {
            // What is written late would list a region that has become somebody else's.
            let _held = region;
            device.write(byte, vec![Bytes::from(copy)], false).await?;
            device.flush().await
        }));
        let written = timeout(PATIENCE, write).await.map_err(|_| "no answer".to_owned())?;
        written.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
        parts.copied();
        *sleep_lock(&self.parts) = parts;
        Ok(())
    }
}
