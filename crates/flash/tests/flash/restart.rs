//! Restarts and power failures: what is found on flash is what the store has, at whatever moment a
//! process ends or the power fails, if its rules are kept (`src/journal.rs`); and if any one of
//! them is not, this test notices.
//!
//! Not here: the simulated device and store (`devices.rs`).

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::future::ready;
use std::ops::RangeInclusive;

use undercroft_flash::{
    Directory, Evidence, Flash, FlashSpec, Journal, PAGE_BYTES, Recorded, Slot, Slots, Stamp,
    metadata_bytes, recover,
};
use undercroft_random::{SplitMix64, testing::seed};

use crate::at_once;
use crate::devices::{Device, Ending, Store};

/// Blocks have every so-manieth number, so that a few of them are in a range that is long.
const STRIDE: u64 = 7;

/// A rule that the driver does not keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Broken {
    None,
    ChangesBeforeTheEndIsDurable,
    ChangesBeforeTheSweepEnds,
    WritesOverWhatIsNotEnded,
    EntersBeforeASync,
    EntersWhatTheStoreMayLose,
    CommitsWithoutASync,
    StartsWithoutASync,
}

/// What is to be written to a slot, and how far that is.
struct Job {
    block: u64,
    version: u64,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Waits,
    /// By this write of the device.
    Written(u64),
    Durable,
}

/// What a run found.
#[derive(Clone, Copy, Debug, Default)]
struct Outcome {
    lives: u32,
    /// Lives that a loss of power ended.
    cuts: usize,
    /// Copies that counted when processes ended, and those that were found again.
    counted: [usize; 2],
    found: [usize; 2],
}

/// A server's life, from one start to its end.
struct Life<'a> {
    broken: Broken,
    device: &'a mut Device,
    store: &'a mut Store,
    random: &'a mut SplitMix64,
    flash: Flash<Recorded>,
    jobs: BTreeMap<Slot, Job>,
    /// The last write of each slot.
    slot_writes: BTreeMap<Slot, u64>,
    /// The number of the record that entered the copy of each slot in this life.
    numbers: BTreeMap<Slot, u64>,
    /// Slots whose copies counted when an earlier life ended, but for an end that was lost: they
    /// may be lost, too.
    unsure: &'a BTreeSet<Slot>,
    /// Changes of blocks that the store has not got yet.
    changes: Vec<RangeInclusive<u64>>,
    /// The writes that the sync under way makes durable.
    sync: Option<Vec<u64>>,
    commit: Option<[u64; 2]>,
    /// Whether few requests come between commits.
    is_hurried: bool,
    /// How seldom the store is flushed.
    flushes: u64,
    /// Whether no commit begins for a while, so that more records wait than a page has room for.
    has_backlog: bool,
    /// The stamps of the last commits that began, and that are durable.
    stamps: [u64; 2],
}

impl Life<'_> {
    fn journal(&self) -> &Journal {
        self.flash.directory().journal().unwrap()
    }

    fn step(&mut self) {
        let first = if self.is_hurried && !self.random.one_in(4) { 11 } else { 0 };
        match self.random.between(first, 19) {
            0..8 if self.has_backlog => (0..40).for_each(|_| self.read()),
            0..8 => self.read(),
            8..10 => self.write(),
            10 => self.discard(),
            11..14 => self.device.end_writes(self.random),
            14 => self.start_writes(),
            15 if self.has_backlog => self.has_backlog = !self.random.one_in(8),
            15 => self.begin_commit(),
            16 => match self.sync.take() {
                None => self.sync = Some(self.device.ended()),
                Some(writes) => self.sync_ended(&writes),
            },
            17 => {
                self.flash.sweep();
            }
            18 => self.change(),
            _ if self.random.one_in(self.flushes) => self.store.flush(),
            _ => self.enter(),
        }
    }

    /// The slots whose copies must be found again, unless a page of a commit is lost.
    fn durable_copies(&self) -> Vec<Slot> {
        let journal = self.journal();
        let is_durable = |slot: &Slot| match self.numbers.get(slot) {
            Some(&number) => journal.is_entered(*slot) && number <= journal.durable(),
            None => journal.is_entered(*slot) && !self.unsure.contains(slot),
        };
        (0..self.flash.directory().capacity()).filter(is_durable).collect()
    }

    fn is_busy(&self, blocks: &RangeInclusive<u64>) -> bool {
        self.changes.iter().any(|it| it.start() <= blocks.end() && blocks.start() <= it.end())
    }

    fn any_block(&mut self) -> Option<u64> {
        let count = self.store.now.len() as u64;
        let block = self.random.below(count) * STRIDE;
        (!self.is_busy(&(block..=block))).then_some(block)
    }

    /// A block is read, and leaves memory.
    fn read(&mut self) {
        let Some(block) = self.any_block() else { return };
        let version = self.store.now[(block / STRIDE) as usize];
        if let Some(slot) = self.flash.read(block, false).slot {
            if !self.jobs.contains_key(&slot) {
                assert_eq!(self.device.copy_in(slot), Some((block, version)));
            }
        }
        if let Some(slot) = self.flash.left(block, Evidence::Hit) {
            self.jobs.insert(slot, Job { block, version, state: State::Waits });
        }
    }

    fn write(&mut self) {
        let Some(block) = self.any_block() else { return };
        self.flash.write(block, None, false);
        self.changes.push(block..=block);
    }

    fn discard(&mut self) {
        let Some(first) = self.any_block() else { return };
        let blocks = match self.random.below(200) {
            0 => 0..=u64::MAX,
            1..10 => first..=first + 1024 + self.random.below(2000),
            _ => first..=first + self.random.below(60),
        };
        if !self.is_busy(&blocks) {
            self.flash.discard_all(&blocks);
            self.changes.push(blocks);
        }
    }

    /// The store gets what it may get.
    fn change(&mut self) {
        let (broken, flash) = (self.broken, &self.flash);
        let journal = flash.directory().journal().unwrap();
        let may_not = |blocks: &RangeInclusive<u64>| {
            (flash.is_void(blocks) && broken != Broken::ChangesBeforeTheSweepEnds)
                || (journal.awaits(blocks).is_some_and(|number| journal.durable() < number)
                    && broken != Broken::ChangesBeforeTheEndIsDurable)
        };
        let (wait, go) = std::mem::take(&mut self.changes).into_iter().partition(may_not);
        self.changes = wait;
        for blocks in go {
            let (first, last) = (blocks.start().div_ceil(STRIDE), blocks.end() / STRIDE);
            let last = last.min(self.store.now.len() as u64 - 1);
            (first..=last).for_each(|index| self.store.change(index as usize));
        }
    }

    /// Writes of slots that may begin, do.
    fn start_writes(&mut self) {
        let recorded = self.flash.directory_mut();
        self.jobs.retain(|&slot, job| recorded.block_in(slot) == Some(job.block));
        for (&slot, job) in &mut self.jobs {
            let waits = recorded.journal().unwrap().slot_awaits(slot);
            let is_busy = self.slot_writes.get(&slot).is_some_and(|&id| self.device.is_writing(id));
            let may = !is_busy && (!waits || self.broken == Broken::WritesOverWhatIsNotEnded);
            if job.state == State::Waits && may && self.random.one_in(2) {
                let id = self.device.write_copy(slot, job.block, job.version);
                recorded.set_check(slot, job.version as u16 >> 1);
                self.slot_writes.insert(slot, id);
                job.state = State::Written(id);
            }
        }
    }

    fn sync_ended(&mut self, writes: &[u64]) {
        self.device.synced(writes);
        for job in self.jobs.values_mut() {
            if matches!(job.state, State::Written(id) if writes.contains(&id)) {
                job.state = State::Durable;
            }
        }
        if self.commit.is_some_and(|pages| pages.iter().all(|id| writes.contains(id))) {
            self.committed();
        }
        self.enter();
    }

    fn committed(&mut self) {
        self.commit = None;
        self.stamps[1] = self.stamps[0];
        self.flash.directory_mut().committed();
    }

    /// Copies count that may.
    fn enter(&mut self) {
        let recorded = self.flash.directory_mut();
        self.jobs.retain(|&slot, job| {
            let is_written = match job.state {
                State::Waits => false,
                State::Written(id) => {
                    self.broken == Broken::EntersBeforeASync && !self.device.is_writing(id)
                }
                State::Durable => true,
            };
            let is_durable = self.store.is_durable((job.block / STRIDE) as usize)
                || self.broken == Broken::EntersWhatTheStoreMayLose;
            let may = is_written && is_durable && !recorded.journal().unwrap().slot_awaits(slot);
            if may {
                recorded.enter(slot, job.block);
                self.numbers.insert(slot, recorded.journal().unwrap().recorded());
            }
            !may && recorded.block_in(slot) == Some(job.block)
        });
        if self.broken == Broken::CommitsWithoutASync
            && self.commit.is_some_and(|pages| !pages.iter().any(|&id| self.device.is_writing(id)))
        {
            self.committed();
        }
    }

    fn begin_commit(&mut self) {
        let may = match self.commit {
            None => self.journal().has_pending() || self.random.one_in(4),
            // As if one had failed.
            Some(pages) => {
                self.random.one_in(4) && !pages.iter().any(|&id| self.device.is_writing(id))
            }
        };
        if may {
            self.stamps[0] += 1;
            let stamp = Stamp { identity: 1, since_ns: self.stamps[0], until_ns: u64::MAX };
            let pages = self.flash.directory_mut().commit(stamp).unwrap();
            self.commit = Some(
                [pages.journal, pages.table].map(|(byte, page)| self.device.write(byte, page)),
            );
        }
    }
}

/// Some lives with one device. `Err`: what is wrong with what was found on flash.
fn run(seed: u64, broken: Broken) -> Result<Outcome, String> {
    let mut random = SplitMix64::new(seed);
    // Two to five pages of the journal.
    let count = if random.one_in(2) { random.between(40, 600) } else { random.between(1017, 2500) };
    let slots = || Slots::new(count as u32, seed);
    let capacity = slots().capacity();
    let mut device = Device::new(capacity, metadata_bytes(capacity));
    let blocks = random.between(u64::from(capacity) / 2, 2 * u64::from(capacity));
    let mut store = Store::new(blocks as usize);
    let spec: FlashSpec = "1blk".parse().unwrap();
    let mut outcome = Outcome::default();
    let mut recorded = Recorded::new(slots(), Some(seed));
    let mut stamps = [0, 0];
    // Whether no commit was cut short so far.
    let mut is_whole = true;
    let mut waiting: Vec<RangeInclusive<u64>> = Vec::new();
    let mut unsure = BTreeSet::new();
    let is_hurried = random.one_in(2);
    let (lives, longest) = if is_hurried { (40, 9) } else { (8, 12) };
    for _ in 0..lives {
        let most = 1 << random.between(2, longest);
        let flushes = [1, 4, 40][random.below(3) as usize];
        let has_backlog = random.one_in(3);
        let steps = random.below(most);
        let mut life = Life {
            broken,
            device: &mut device,
            store: &mut store,
            random: &mut random,
            flash: Flash::new(recorded, &spec, PAGE_BYTES as u32),
            jobs: BTreeMap::new(),
            slot_writes: BTreeMap::new(),
            numbers: BTreeMap::new(),
            unsure: &unsure,
            changes: Vec::new(),
            sync: None,
            commit: None,
            is_hurried,
            flushes,
            has_backlog,
            stamps,
        };
        // Clients ask again for what was not done.
        for blocks in waiting {
            life.flash.discard_all(&blocks);
            life.changes.push(blocks);
        }
        (0..steps).for_each(|_| life.step());
        let counted = life.durable_copies();
        is_whole &= life.commit.is_none();
        let ending: Vec<_> =
            (0..capacity).filter(|&slot| life.journal().slot_awaits(slot)).collect();
        let numbers = life.numbers;
        (stamps, waiting) = (life.stamps, life.changes);
        unsure.retain(|slot| !numbers.contains_key(slot));
        unsure.extend(ending);
        let ending = if random.one_in(2) { Ending::Kill } else { Ending::PowerCut };
        outcome.cuts += usize::from(ending == Ending::PowerCut);
        device.restart(ending, &mut random);
        store.restart(ending, &mut random);

        if broken != Broken::StartsWithoutASync {
            device.synced(&device.ended());
        }
        store.flush();
        let read = |byte, length| {
            let mut read = vec![0; length];
            device.read(byte, &mut read);
            ready(Ok::<_, Infallible>(read))
        };
        let (found, stamp) = match at_once(recover(seed, slots(), read)) {
            Ok(found) => found,
            Err(_) if broken != Broken::None => return Ok(outcome),
            Err(why) => return Err(why.to_string()),
        };
        found.slots().validate()?;
        for slot in 0..capacity {
            let Some(block) = found.block_in(slot) else { continue };
            let copy = device.copy_in(slot);
            let version = store.now[(block / STRIDE) as usize];
            if copy != Some((block, version)) {
                return Err(format!("slot {slot} has {copy:?}, block {block} is {version}"));
            }
            if found.slots().check_in(slot) != version as u16 >> 1 {
                return Err(format!("slot {slot} has the check of another version"));
            }
        }
        let stamp = stamp.map_or(0, |stamp| stamp.since_ns);
        if broken == Broken::None && !(stamps[1]..=stamps[0]).contains(&stamp) {
            return Err(format!("stamp {stamp}, not in {stamps:?}"));
        }
        stamps = [stamp; 2];
        outcome.lives += 1;
        let again = counted.iter().filter(|&&slot| found.block_in(slot).is_some()).count();
        if broken == Broken::None && is_whole && again < counted.len() {
            return Err(format!("{again} copies of {} are found", counted.len()));
        }
        outcome.counted[ending as usize] += counted.len();
        outcome.found[ending as usize] += again;
        recorded = found;
    }
    Ok(outcome)
}

/// Over ten thousand power failures.
#[test]
fn what_is_found_after_a_restart_is_what_the_store_has() {
    let first = seed();
    let mut all = Outcome::default();
    for seed in first.. {
        let one =
            run(seed, Broken::None).unwrap_or_else(|why| panic!("UNDERCROFT_SEED={seed}: {why}"));
        all.lives += one.lives;
        all.cuts += one.cuts;
        for ending in [0, 1] {
            all.counted[ending] += one.counted[ending];
            all.found[ending] += one.found[ending];
        }
        if all.cuts >= 10_000 {
            break;
        }
    }
    println!("{all:?}");
    let [killed, cut] = [0, 1].map(|ending| 100 * all.found[ending] / all.counted[ending]);
    assert!(all.counted[0] > 10_000 && killed > 90 && cut > 80, "{all:?}");
}

#[test]
fn every_rule_is_needed() {
    for broken in [
        Broken::ChangesBeforeTheEndIsDurable,
        Broken::ChangesBeforeTheSweepEnds,
        Broken::WritesOverWhatIsNotEnded,
        Broken::EntersBeforeASync,
        Broken::EntersWhatTheStoreMayLose,
        Broken::CommitsWithoutASync,
        Broken::StartsWithoutASync,
    ] {
        let found = (1..=200).find_map(|seed| Some((seed, run(seed, broken).err()?)));
        let (seed, what) = found.unwrap_or_else(|| panic!("{broken:?} is not noticed"));
        println!("{broken:?}: seed {seed}: {what}");
    }
}
