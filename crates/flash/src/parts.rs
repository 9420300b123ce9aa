//! The parts of a device for flash, and the directory in the device's head that lists them, so that
//! a volume finds its own after a restart.
//!
//! There are two copies of the directory, written in turn with a number that grows, so that one is
//! whole whenever the power fails. The whole one with the higher number counts.
//!
//! Not here: what lies in a part (`journal.rs`), and reading and writing the device.

use xxhash_rust::xxh3::xxh3_64;

use crate::pages::number;
use crate::superblock::HEAD_BYTES;

/// The first bytes of the two copies in the device.
pub const PARTS_AT: [u64; 2] = [64 << 10, 128 << 10];

/// Bytes of a copy.
pub const PARTS_BYTES: usize = 64 << 10;

const MAGIC: &[u8; 16] = b"undercroft parts";

/// The layout that is written here. One of another number counts as none.
const VERSION: u64 = 2;

/// Where the things in a copy lie, and what a part takes beside its name.
const VERSION_AT: usize = 16;
const COUNT_AT: usize = 20;
const NUMBER_AT: usize = 24;
const LIST_AT: usize = 32;
const PART_BYTES: usize = 36;
const CHECK_AT: usize = PARTS_BYTES - 8;

/// A part of a device: slots and metadata of one volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The volume's name.
    pub name: String,
    /// Its first byte in the device.
    pub first_byte: u64,
    /// Its bytes.
    pub bytes: u64,
    /// Bytes of a block, and of a slot.
    pub block_bytes: u32,
    /// The shards among which it is divided.
    pub shards: u32,
    /// Its identity, and that of its metadata: another one each time that it is made.
    pub id: u64,
}

/// The directory of a device's parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parts {
    number: u64,
    device_bytes: u64,
    parts: Vec<Part>,
}

impl Parts {
    /// Reads the two copies of a device with so many bytes. None of its parts counts if neither is
    /// whole, or if parts of the one that counts overlap or are not within the device.
    pub fn read(copy_a: &[u8], copy_b: &[u8], device_bytes: u64) -> Self {
        let copies = [copy_a, copy_b].into_iter().filter_map(read_copy);
        let (number, listed) = copies.max_by_key(|copy| copy.0).unwrap_or_default();
        let none = Self { number, device_bytes, parts: Vec::new() };
        let mut all = none.clone();
        match listed.into_iter().try_for_each(|part| all.insert(part)) {
            Ok(()) => all,
            Err(_) => none,
        }
    }

    /// The next copy to be written: its first byte in the device, and the copy.
    pub fn next_copy(&self) -> (u64, Vec<u8>) {
        let number = self.number + 1;
        let mut copy = vec![0; LIST_AT];
        copy[..MAGIC.len()].copy_from_slice(MAGIC);
        copy[VERSION_AT..COUNT_AT].copy_from_slice(&(VERSION as u32).to_le_bytes());
        copy[COUNT_AT..NUMBER_AT].copy_from_slice(&(self.parts.len() as u32).to_le_bytes());
        copy[NUMBER_AT..LIST_AT].copy_from_slice(&number.to_le_bytes());
        for part in &self.parts {
            for value in [part.first_byte, part.bytes, part.id] {
                copy.extend_from_slice(&value.to_le_bytes());
            }
            for value in [part.block_bytes, part.shards, part.name.len() as u32] {
                copy.extend_from_slice(&value.to_le_bytes());
            }
            copy.extend_from_slice(part.name.as_bytes());
        }
        copy.resize(CHECK_AT, 0);
        let check = xxh3_64(&copy);
        copy.extend_from_slice(&check.to_le_bytes());
        (PARTS_AT[(number % 2) as usize], copy)
    }

    /// The next copy is durable. Until then it is written to the same place.
    pub fn copied(&mut self) {
        self.number += 1;
    }

    /// The parts.
    pub fn all(&self) -> &[Part] {
        &self.parts
    }

    /// The part of a volume.
    pub fn find(&self, name: &str) -> Option<&Part> {
        self.parts.iter().find(|part| part.name == name)
    }

    /// Removes the part of a volume.
    pub fn remove(&mut self, name: &str) -> Option<Part> {
        let at = self.parts.iter().position(|part| part.name == name)?;
        Some(self.parts.remove(at))
    }

    /// Adds a part.
    ///
    /// # Errors
    /// It is not within the device, overlaps another one or has its name, or there is no room for
    /// it in the directory.
    pub fn insert(&mut self, part: Part) -> Result<(), String> {
        let end = |part: &Part| part.first_byte.checked_add(part.bytes);
        let is_within = part.first_byte >= HEAD_BYTES && part.bytes > 0;
        let Some(part_end) = end(&part).filter(|&end| is_within && end <= self.device_bytes) else {
            return Err(format!("the part of {:?} is not within the device", part.name));
        };
        if self.find(&part.name).is_some() {
            return Err(format!("{:?} has a part already", part.name));
        }
        let overlaps = |other: &&Part| {
            part.first_byte < other.first_byte + other.bytes && other.first_byte < part_end
        };
        if let Some(other) = self.parts.iter().find(overlaps) {
            return Err(format!("the parts of {:?} and {:?} overlap", part.name, other.name));
        }
        let bytes = |part: &Part| PART_BYTES + part.name.len();
        if LIST_AT + self.parts.iter().map(bytes).sum::<usize>() + bytes(&part) > CHECK_AT {
            return Err(format!("no room for {:?} in the directory of parts", part.name));
        }
        self.parts.push(part);
        Ok(())
    }
}

/// The number of a copy, and what it lists. `None`: it is damaged, or none.
fn read_copy(copy: &[u8]) -> Option<(u64, Vec<Part>)> {
    let is_good = copy.len() == PARTS_BYTES
        && copy[..MAGIC.len()] == *MAGIC
        && number(copy, VERSION_AT, 4) == VERSION
        && number(copy, NUMBER_AT, 8) < u64::MAX
        && number(copy, CHECK_AT, 8) == xxh3_64(&copy[..CHECK_AT]);
    if !is_good {
        return None;
    }
    let mut rest = &copy[LIST_AT..CHECK_AT];
    let parts = (0..number(copy, COUNT_AT, 4)).map(|_| {
        let (fixed, tail) = rest.split_at_checked(PART_BYTES)?;
        let (name, tail) = tail.split_at_checked(number(fixed, 32, 4) as usize)?;
        rest = tail;
        Some(Part {
            name: String::from_utf8(name.to_vec()).ok()?,
            first_byte: number(fixed, 0, 8),
            bytes: number(fixed, 8, 8),
            id: number(fixed, 16, 8),
            block_bytes: number(fixed, 24, 4) as u32,
            shards: number(fixed, 28, 4) as u32,
        })
    });
    Some((number(copy, NUMBER_AT, 8), parts.collect::<Option<_>>()?))
}
