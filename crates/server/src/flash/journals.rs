//! A part of a device with a journal and a table for each shard, before its slots: what an earlier
//! server left there is read when the volume is opened, or compared with its checks
//! ([`check_part`]).
//!
//! Not here: what the pages hold (`undercroft_flash`), and when they are written
//! (`volume/flash_commits.rs`).

use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::timeout;
use undercroft_flash::{
    Directory as _, FlashSpec, Part, Recorded, Slots, Stamp, check_of, metadata_bytes,
    slots_beside_journal,
};
use undercroft_store::{Store, Version};

use crate::flash::{FlashMedium, FlashPart};
use crate::lock::sleep_lock;

/// How long it may take to read what an earlier server left, and how many slots take a second more.
const PATIENCE: Duration = Duration::from_secs(30);
const SLOTS_A_SECOND: u32 = 1 << 22;

/// Slots that are read at once to be checked.
const CHECKED_AT_ONCE: u32 = 64;

/// How far ahead a stamp reaches at most, and how coarse the times of a store may be: a change that
/// is made after both is noticed by whoever reads the stamp. In nanoseconds.
pub(crate) const STAMP_MAX_NS: u64 = 12_000_000_000;
pub(crate) const APART_NS: u64 = 1_100_000_000;

/// The journals of a volume's part, and what they say at first.
pub(crate) struct FlashJournals {
    /// The first bytes of the shards' journals in the device.
    firsts: Vec<u64>,
    /// What lies on flash, for each shard until it takes it.
    directories: Mutex<Vec<Option<Recorded>>>,
    /// What the journals say of the store, so far.
    pub(crate) stamp: Stamp,
    /// The latest moment of a stamp on the device: an earlier server's, if its part goes on.
    pub(crate) may_say_until: u64,
    /// Asks for a commit at once.
    pub(crate) wanted: Arc<Notify>,
}

/// A part, as it is on the device.
#[derive(Clone, Debug)]
pub struct FlashPlace {
    /// Its bytes.
    pub range: Range<u64>,
    /// Bytes of a block.
    pub block_bytes: u32,
    /// Number of shards, at least 1.
    pub shards: u32,
    /// Its identity, if an earlier server used it.
    pub id: Option<u64>,
}

impl FlashPlace {
    /// Slots of each shard: as many as there is room for beside their journals. With none there can
    /// be no level.
    pub(crate) fn slots(&self) -> u32 {
        let share = (self.range.end - self.range.start) / u64::from(self.shards.max(1));
        slots_beside_journal(share, self.block_bytes)
    }

    /// The empty slots of a shard, and the identity of its journal, which is no other shard's.
    fn directory(&self, shard: u32, id: u64) -> (Slots, u64) {
        let id = undercroft_random::hash(id ^ u64::from(shard));
        (Slots::new(self.slots(), id), id)
    }

    /// The first byte of a shard's journal.
    fn first(&self, shard: u32, slots: u32) -> u64 {
        self.range.start + u64::from(shard) * metadata_bytes(slots)
    }
}

impl FlashPart {
    /// A part with what an earlier server left there, if the store, of this version, is as it left
    /// it; otherwise with nothing, and with another identity, `new`.
    ///
    /// Returns its identity, and how many blocks were found, or why none.
    pub async fn with_journals(
        medium: FlashMedium,
        spec: FlashSpec,
        place: &FlashPlace,
        version: Version,
        new: u64,
    ) -> (Self, u64, Result<u64, String>) {
        let slots = place.slots();
        let more = u64::from(slots) * u64::from(place.shards) / u64::from(SLOTS_A_SECOND);
        let patience = PATIENCE + Duration::from_secs(more);
        let found = match place.id {
            None => Err("nobody used it before".to_owned()),
            Some(id) => match timeout(patience, recover(&medium, place, id, version)).await {
                Ok(found) => found.map(|all| (id, all)),
                Err(_) => Err(format!("it did not answer within {} s", patience.as_secs())),
            },
        };
        let Version { identity, changed_ns } = version;
        let count = |all: &[Recorded]| all.iter().map(|one| u64::from(one.entered_count())).sum();
        let said = found.as_ref().map(|(_, (all, _))| count(all)).map_err(String::clone);
        let (id, (directories, until_ns)) = found.unwrap_or_else(|_| {
            let empty = |shard| {
                let (slots, id) = place.directory(shard, new);
                Recorded::new(slots, Some(id))
            };
            (new, ((0..place.shards).map(empty).collect(), 0))
        });
        let count = place.shards;
        let journals = FlashJournals {
            firsts: (0..count).map(|shard| place.first(shard, slots)).collect(),
            directories: Mutex::new(directories.into_iter().map(Some).collect()),
            stamp: Stamp { identity, since_ns: changed_ns, until_ns: changed_ns },
            may_say_until: until_ns.max(changed_ns),
            wanted: Arc::default(),
        };
        let first_byte = place.first(count, slots);
        let journals = Some(Arc::new(journals));
        (Self { medium, spec, first_byte, slots: slots * count, journals, _owned: None }, id, said)
    }
}

/// What an earlier server left, for each shard, and the latest moment of its stamps.
///
/// # Errors
/// Why that is not to be used.
async fn recover(
    medium: &FlashMedium,
    place: &FlashPlace,
    id: u64,
    version: Version,
) -> Result<(Vec<Recorded>, u64), String> {
    // What the server before had written may not be durable.
    medium.store.flush().await.map_err(|error| error.to_string())?;
    let slots = place.slots();
    let (mut all, mut has_stamp, mut until_ns) = (Vec::new(), false, 0);
    for shard in 0..place.shards {
        let (first, (empty, id)) = (place.first(shard, slots), place.directory(shard, id));
        // Each in a task, so that one goes on while the pages before it are looked at.
        let read_page = |byte, length| {
            let store = Arc::clone(&medium.store);
            let task = tokio::spawn(async move { read(&*store, first + byte, length).await });
            async move { task.await.map_err(io::Error::other)? }
        };
        let recovered = undercroft_flash::recover(id, empty, read_page).await;
        let (recorded, stamp) = recovered.map_err(|error| error.to_string())?;
        // The first shard has it, when any has something; those of others may be older.
        let admits = |stamp: Stamp| stamp.admits(version.identity, version.changed_ns);
        if shard == 0 && !stamp.is_none_or(admits) {
            return Err("the store was changed since".to_owned());
        }
        has_stamp |= stamp.is_some() && shard == 0;
        until_ns = stamp.map_or(until_ns, |stamp| stamp.until_ns.max(until_ns));
        if recorded.entered_count() > 0 && !has_stamp {
            return Err("nothing says which store it belongs to".to_owned());
        }
        all.push(recorded);
    }
    Ok((all, until_ns))
}

/// Reads all blocks of a part that a start would find if the store is as it was, and compares them
/// with their checks. Returns how many there are, and how many of them are damaged.
///
/// # Errors
/// The device cannot be read, or what its journal says cannot be believed.
pub async fn check_part(device: &dyn Store, part: &Part) -> Result<(u64, u64), String> {
    let range = part.first_byte..part.first_byte + part.bytes;
    let (block_bytes, shards, id) = (part.block_bytes, part.shards.max(1), part.id);
    let place = FlashPlace { range, block_bytes, shards, id: Some(id) };
    let (slots, length) = (place.slots(), u64::from(block_bytes));
    let (mut found, mut damaged) = (0, 0);
    for shard in 0..shards {
        let (first, (empty, id)) = (place.first(shard, slots), place.directory(shard, id));
        let read_page = |byte, length| read(device, first + byte, length);
        let recovered = undercroft_flash::recover(id, empty, read_page).await;
        let (recorded, _) = recovered.map_err(|error| error.to_string())?;
        let first = place.first(shards, slots) + u64::from(shard) * u64::from(slots) * length;
        let capacity = recorded.capacity();
        for from in (0..capacity).step_by(CHECKED_AT_ONCE as usize) {
            let these = from..capacity.min(from + CHECKED_AT_ONCE);
            if these.clone().all(|slot| recorded.block_in(slot).is_none()) {
                continue;
            }
            let bytes = u64::from(these.end - these.start) * length;
            let data = read(device, first + u64::from(from) * length, bytes as usize).await;
            let data = data.map_err(|error| error.to_string())?;
            for (slot, data) in these.zip(data.chunks_exact(block_bytes as usize)) {
                let Some(block) = recorded.block_in(slot) else { continue };
                found += 1;
                damaged += u64::from(check_of(block, data) != recorded.slots().check_in(slot));
            }
        }
    }
    Ok((found, damaged))
}

/// Reads so many bytes of a device from a byte on.
pub(crate) async fn read(store: &dyn Store, byte: u64, length: usize) -> io::Result<Vec<u8>> {
    let (mut buffers, result) = store.read(byte, vec![Box::new(vec![0; length])]).await;
    result?;
    Ok((*buffers[0]).as_mut().to_vec())
}

impl FlashJournals {
    /// The first byte of a shard's journal, and its directory, which it takes.
    pub(crate) fn of_shard(&self, index: u32) -> (u64, Recorded) {
        let directory = sleep_lock(&self.directories)[index as usize].take();
        (self.firsts[index as usize], directory.expect("a shard is built once"))
    }
}
