//! A simulated device and a simulated store, and what a kill or a power failure leaves of them.
//!
//! Not here: who uses them, and what is checked (`restart.rs`).

use undercroft_flash::{PAGE_BYTES, Slot};
use undercroft_random::SplitMix64;

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// It was killed: what it had written stays.
    Kill,
    /// The power failed: of what was not synced, anything may be lost or torn.
    PowerCut,
}

/// A device: a page for each slot, which is short here, and then the pages of metadata.
pub(crate) struct Device {
    slots: usize,
    /// What is durable.
    pages: Vec<Vec<u8>>,
    /// What is not, in the order in which the writes began.
    writes: Vec<Write>,
    last_id: u64,
}

struct Write {
    id: u64,
    page: usize,
    data: Vec<u8>,
    has_ended: bool,
}

impl Device {
    pub(crate) fn new(slots: u32, metadata_bytes: u64) -> Self {
        let slots = slots as usize;
        let mut pages = vec![vec![0; 32]; slots];
        pages.resize(slots + metadata_bytes as usize / PAGE_BYTES, vec![0; PAGE_BYTES]);
        Self { slots, pages, writes: Vec::new(), last_id: 0 }
    }

    fn begin(&mut self, page: usize, data: Vec<u8>) -> u64 {
        assert_eq!(data.len(), self.pages[page].len());
        self.last_id += 1;
        self.writes.push(Write { id: self.last_id, page, data, has_ended: false });
        self.last_id
    }

    /// Begins to write a page of metadata. Returns the number of the write.
    pub(crate) fn write(&mut self, byte: u64, data: Vec<u8>) -> u64 {
        self.begin(self.slots + byte as usize / PAGE_BYTES, data)
    }

    /// Begins to write a version of a block to a slot.
    pub(crate) fn write_copy(&mut self, slot: Slot, block: u64, version: u64) -> u64 {
        let words = [block, version, block, version];
        self.begin(slot as usize, words.iter().flat_map(|word| word.to_le_bytes()).collect())
    }

    pub(crate) fn is_writing(&self, id: u64) -> bool {
        self.writes.iter().any(|write| write.id == id && !write.has_ended)
    }

    /// Some of the writes end.
    pub(crate) fn end_writes(&mut self, random: &mut SplitMix64) {
        for write in &mut self.writes {
            write.has_ended |= random.one_in(2);
        }
    }

    /// The writes that have ended: a sync that begins now makes them durable.
    pub(crate) fn ended(&self) -> Vec<u64> {
        self.writes.iter().filter(|write| write.has_ended).map(|write| write.id).collect()
    }

    pub(crate) fn synced(&mut self, ids: &[u64]) {
        let (synced, rest) = self.writes.drain(..).partition(|write| ids.contains(&write.id));
        self.writes = rest;
        let synced: Vec<Write> = synced;
        synced.into_iter().for_each(|write| self.pages[write.page] = write.data);
    }

    fn page(&self, page: usize) -> &[u8] {
        let mut ended = self.writes.iter().rev().filter(|write| write.has_ended);
        ended.find(|write| write.page == page).map_or(&self.pages[page], |write| &write.data)
    }

    /// Reads metadata.
    pub(crate) fn read(&self, byte: u64, buffer: &mut [u8]) {
        for (page, buffer) in (byte as usize / PAGE_BYTES..).zip(buffer.chunks_mut(PAGE_BYTES)) {
            buffer.copy_from_slice(self.page(self.slots + page));
        }
    }

    /// The block and the version that a slot has, if it has one and not parts of two.
    pub(crate) fn copy_in(&self, slot: Slot) -> Option<(u64, u64)> {
        let page = self.page(slot as usize);
        let word = |at: usize| u64::from_le_bytes(page[8 * at..8 * at + 8].try_into().unwrap());
        (page[..16] == page[16..]).then(|| (word(0), word(1)))
    }

    /// A kill leaves what had ended, and any part of the rest; a power failure any part of all.
    pub(crate) fn restart(&mut self, ending: Ending, random: &mut SplitMix64) {
        let kept = [0.1, 0.5, 0.9][random.below(3) as usize];
        let writes = std::mem::take(&mut self.writes);
        for mut write in writes {
            if ending == Ending::PowerCut || !write.has_ended {
                if !random.chance(kept) {
                    continue;
                }
                if random.one_in(4) {
                    // Half of it.
                    let half = write.data.len() / 2;
                    let range = if random.one_in(2) { 0..half } else { half..2 * half };
                    let old = self.page(write.page)[range.clone()].to_vec();
                    write.data[range].copy_from_slice(&old);
                }
            }
            write.has_ended = true;
            self.writes.push(write);
        }
        if ending == Ending::PowerCut {
            self.synced(&self.ended());
        }
    }
}

/// A store: a version of each block.
pub(crate) struct Store {
    pub(crate) now: Vec<u64>,
    durable: Vec<u64>,
    /// Changes that are not durable, in their order.
    volatile: Vec<(usize, u64)>,
    last_version: u64,
}

impl Store {
    pub(crate) fn new(blocks: usize) -> Self {
        Self { now: vec![0; blocks], durable: vec![0; blocks], volatile: vec![], last_version: 0 }
    }

    pub(crate) fn change(&mut self, block: usize) {
        self.last_version += 1;
        self.now[block] = self.last_version;
        self.volatile.push((block, self.last_version));
    }

    pub(crate) fn flush(&mut self) {
        self.durable.copy_from_slice(&self.now);
        self.volatile.clear();
    }

    pub(crate) fn is_durable(&self, block: usize) -> bool {
        self.now[block] == self.durable[block]
    }

    /// A power failure leaves any of the changes that were not durable.
    pub(crate) fn restart(&mut self, ending: Ending, random: &mut SplitMix64) {
        if ending == Ending::PowerCut {
            for (block, version) in std::mem::take(&mut self.volatile) {
                if random.one_in(2) {
                    self.durable[block] = version;
                }
            }
            self.now.copy_from_slice(&self.durable);
        }
    }
}
