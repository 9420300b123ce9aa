//! Slots with a journal against slots without one, and what damage to the pages of a journal and
//! its table does to what is found.
//!
//! Not here: restarts at any moment (`restart.rs`).

use std::future::ready;

use undercroft_flash::{
    Directory, Evidence, Journal, NotWarm, PAGE_BYTES, Recorded, Slots, Stamp, check_of,
    metadata_bytes, recover,
};
use undercroft_random::SplitMix64;

use crate::at_once;

const ID: u64 = 5;

/// Four sets of 255 slots; the second is on two of three table pages.
const SLOTS: u32 = 1020;

fn stamp(number: u64) -> Stamp {
    Stamp { identity: 1, since_ns: number, until_ns: number }
}

fn slots() -> Slots {
    Slots::new(SLOTS, 1)
}

/// What is taken for the check of a block's data: its highest bits are set for some.
fn check(block: u64) -> u16 {
    (block * 77) as u16 >> 1
}

/// A part's metadata.
#[derive(Clone)]
struct Pages(Vec<u8>);

impl Pages {
    fn new() -> Self {
        Self(vec![0; metadata_bytes(SLOTS) as usize])
    }

    fn commit(&mut self, recorded: &mut Recorded, number: u64) {
        let commit = recorded.commit(stamp(number)).unwrap();
        for page in [&commit.journal, &commit.table] {
            self.write(page);
        }
        recorded.committed();
    }

    fn write(&mut self, (byte, page): &(u64, Vec<u8>)) {
        self.0[*byte as usize..][..PAGE_BYTES].copy_from_slice(page);
    }

    fn recover(&self, id: u64) -> Result<(Recorded, Option<Stamp>), NotWarm<String>> {
        let read = |byte: u64, length: usize| ready(Ok(self.0[byte as usize..][..length].to_vec()));
        at_once(recover(id, slots(), read))
    }

    fn page(&mut self, index: usize) -> &mut [u8] {
        &mut self.0[index * PAGE_BYTES..][..PAGE_BYTES]
    }
}

/// A part with three laps of commits, whose last is number `laps * 3 - 1`, and a copy in each slot.
fn written(laps: u64) -> (Pages, Recorded) {
    let (mut pages, mut recorded) = (Pages::new(), Recorded::new(slots(), Some(ID)));
    let mut block = 0;
    for number in 0..3 * laps {
        for _ in 0..u64::from(SLOTS).div_ceil(3 * laps) {
            let (slot, gone) = recorded.place(block, Evidence::Hit).unwrap();
            if gone.is_none() {
                recorded.set_check(slot, check(block));
                recorded.enter(slot, block);
            }
            block += 1;
        }
        pages.commit(&mut recorded, number);
    }
    (pages, recorded)
}

/// Every answer is that of the slots themselves, and no entered copy goes without a record.
#[test]
fn a_journal_changes_no_answer() {
    let mut random = SplitMix64::seeded();
    for id in [None, Some(ID)] {
        let (mut plain, mut recorded) = (slots(), Recorded::new(slots(), id));
        for step in 0..40_000 {
            let block = random.below(3000);
            assert_eq!(recorded.find(block), plain.find(block), "step {step}");
            let Some(slot) = plain.find(block) else {
                let evidence = [Evidence::Hit, Evidence::WasThere][step % 2];
                assert_eq!(recorded.place(block, evidence), plain.place(block, evidence));
                continue;
            };
            assert_eq!(recorded.block_in(slot), plain.block_in(slot));
            let is_entered = recorded.journal().is_some_and(|journal| journal.is_entered(slot));
            match random.below(5) {
                0 => assert_eq!(recorded.touch(slot), plain.touch(slot)),
                1 => {
                    recorded.keep(slot);
                    plain.keep(slot);
                }
                2 => {
                    let before = recorded.journal().map_or(0, Journal::recorded);
                    recorded.empty(slot);
                    plain.empty(slot);
                    let after = recorded.journal().map_or(0, Journal::recorded);
                    assert_eq!(after - before, u64::from(is_entered));
                }
                3 => {
                    let journal = recorded.journal();
                    if !journal.is_some_and(|journal| journal.slot_awaits(slot)) {
                        recorded.enter(slot, block);
                    }
                }
                _ => {
                    recorded.commit(stamp(0));
                    recorded.committed();
                }
            }
        }
        assert_eq!((recorded.capacity(), recorded.limit()), (plain.capacity(), plain.limit()));
        let entered = (0..plain.capacity())
            .filter(|&slot| recorded.journal().is_some_and(|journal| journal.is_entered(slot)));
        assert_eq!(entered.count() as u32, recorded.entered_count());
    }
}

#[test]
fn ends_are_awaited() {
    let mut journal = Journal::new(ID, SLOTS);
    let no_slots = slots();
    journal.enter(3, 30, 1);
    journal.end(4, 40);
    assert_eq!((journal.recorded(), journal.awaits(&(0..=u64::MAX))), (1, None), "not entered");
    journal.end(3, 30);
    assert!(journal.slot_awaits(3) && !journal.slot_awaits(4));
    for blocks in [30..=30, 0..=30, 0..=u64::MAX] {
        assert_eq!(journal.awaits(&blocks), Some(2));
    }
    assert_eq!(journal.awaits(&(31..=u64::MAX)), None);
    // The block goes to another slot, and ends there too, in the commit after the next.
    journal.commit(&no_slots, stamp(0));
    assert!(journal.has_pending(), "or a commit that is given up would not be made again");
    journal.enter(5, 30, 1);
    journal.end(5, 30);
    assert_eq!(journal.awaits(&(30..=30)), Some(4));
    journal.committed();
    assert_eq!((journal.durable(), journal.awaits(&(30..=30))), (2, Some(4)));
    assert!(!journal.slot_awaits(3) && journal.slot_awaits(5));
    journal.commit(&no_slots, stamp(0));
    journal.committed();
    assert_eq!((journal.durable(), journal.awaits(&(0..=u64::MAX))), (4, None));
    assert!(!journal.slot_awaits(5) && !journal.has_pending());
}

#[test]
fn what_was_committed_is_found() {
    for laps in [2, 3, 5] {
        let (pages, recorded) = written(laps);
        let (found, last) = pages.recover(ID).unwrap();
        assert_eq!(last, Some(stamp(3 * laps - 1)));
        assert!(found.entered_count() > SLOTS * 2 / 3);
        assert_eq!(found.entered_count(), recorded.entered_count());
        for slot in 0..found.capacity() {
            let is_entered = recorded.journal().unwrap().is_entered(slot);
            let block = recorded.block_in(slot).filter(|_| is_entered);
            assert_eq!(found.block_in(slot), block);
            let is_right = |block| found.slots().check_in(slot) == check(block);
            assert!(block.is_none_or(is_right), "slot {slot}");
        }
        found.slots().validate().unwrap();
    }
    let (found, last) = Pages::new().recover(ID).unwrap();
    assert_eq!((found.entered_count(), last), (0, None), "a new part");
}

/// Two pages may be lost at a time, those that were being written. What else is damaged is said.
#[test]
fn damage_is_noticed() {
    let all = written(5).1.entered_count();
    let found = |damage: &dyn Fn(&mut Pages)| {
        let mut pages = written(5).0;
        damage(&mut pages);
        let number = |last: Option<Stamp>| last.map_or(99, |stamp| stamp.since_ns);
        pages.recover(ID).map(|(found, last)| (found.entered_count(), number(last)))
    };
    let cold = |damage: &dyn Fn(&mut Pages), what: &str| match found(damage) {
        Err(NotWarm::Cold(why)) => assert!(why.contains(what), "{why}"),
        other => panic!("{what}: {other:?}"),
    };
    let damages: [fn(&mut [u8]); 3] =
        [|page| page.fill(0), |page| page[PAGE_BYTES / 2..].fill(1), |page| page[40] ^= 1];
    for damage in damages {
        // Of the ring: the next page, the newest one, and one between.
        for (index, newest) in [(0, 14), (2, 13)] {
            let (left, last) = found(&|pages| damage(pages.page(index))).unwrap();
            assert!(last == newest && left >= all - 508, "{left} of {all}");
        }
        cold(&|pages| damage(pages.page(1)), "page 13 of 15");
        // Of the table.
        for index in 3..6 {
            let (left, last) = found(&|pages| damage(pages.page(index))).unwrap();
            // The last page has few slots, and the journal knows of them.
            assert!(last == 14 && (left < all || index == 5), "{left} of {all}");
            assert!(left >= all - 508);
        }
        // The whole ring: there is nothing.
        assert_eq!(found(&|pages| (0..3).for_each(|at| damage(pages.page(at)))), Ok((0, 99)));
    }
    // Pages in each other's places.
    let swap = |a: usize, b: usize| {
        move |pages: &mut Pages| {
            let page = pages.page(a).to_vec();
            pages.0.copy_within(b * PAGE_BYTES..(b + 1) * PAGE_BYTES, a * PAGE_BYTES);
            pages.page(b).copy_from_slice(&page);
        }
    };
    cold(&swap(0, 1), "page 13 of 15");
    // A page was kept, and those before it were lost.
    let lost = |pages: &mut Pages| {
        *pages = written(1).0;
        pages.page(0).copy_from_slice(written(2).0.page(0));
        pages.page(1).copy_from_slice(written(3).0.page(1));
    };
    cold(&lost, "page 1 of 4");
    assert!(found(&swap(3, 4)).unwrap().0 < all);
    // A page of the table of the lap before counts as none.
    let mut old = written(5).0;
    let (mut pages, mut recorded) = written(5);
    (15..18).for_each(|number| pages.commit(&mut recorded, number));
    pages.page(4).copy_from_slice(old.page(4));
    assert!(pages.recover(ID).unwrap().0.entered_count() < all);
    // One of the journal is missing.
    pages.page(1).copy_from_slice(old.page(1));
    assert!(matches!(pages.recover(ID), Err(NotWarm::Cold(_))));
    // Another part's pages are none, and an error of reading is what it was.
    let (found, last) = old.recover(ID + 1).unwrap();
    assert_eq!((found.entered_count(), last), (0, None));
    let failed = at_once(recover(ID, slots(), |_, _| ready(Err("broken")))).err();
    assert_eq!(failed, Some(NotWarm::Read("broken")));
}

/// A block went from one slot to another, and the first of the two is in the records, but only the
/// second in the table: it is found in both, and stays in one.
#[test]
fn a_block_stays_in_one_slot() {
    let (mut pages, mut recorded) = (Pages::new(), full());
    let block = recorded.block_in(300).unwrap();
    recorded.enter(300, block);
    pages.commit(&mut recorded, 0);
    for slot in (0..300).chain(301..508).chain(600..700) {
        let other = recorded.block_in(slot).unwrap();
        recorded.enter(slot, other);
    }
    // Another block takes its slot, and it takes another one.
    recorded.empty(300);
    let in_300 = (1 << 20..)
        .find(|&other| recorded.place(other, Evidence::Hit).is_some_and(|(slot, _)| slot == 300));
    assert!(in_300.is_some());
    recorded.empty(509);
    let (slot, _) = recorded.place(block, Evidence::Hit).unwrap();
    assert_eq!(slot, 509);
    recorded.enter(slot, block);
    pages.commit(&mut recorded, 1);
    assert!(recorded.journal().unwrap().slot_awaits(300));

    let (found, _) = pages.recover(ID).unwrap();
    found.slots().validate().unwrap();
    assert_eq!((found.find(block), found.block_in(509)), (Some(300), None));
    let journal = found.journal().unwrap();
    assert!(journal.slot_awaits(509) && journal.awaits(&(block..=block)).is_some());
}

/// After a restart, a block is to be changed in the store, and is found no more from then on,
/// whichever page of a later commit is lost.
fn assert_it_can_change(pages: &mut Pages, block: u64) {
    let mut recorded = pages.recover(ID).unwrap().0;
    recorded.find(block).into_iter().for_each(|slot| recorded.empty(slot));
    while recorded.journal().unwrap().awaits(&(block..=block)).is_some() {
        pages.commit(&mut recorded, 98);
    }
    for number in 0..7 {
        let commit = recorded.commit(stamp(99)).unwrap();
        for page in [&commit.table, &commit.journal] {
            let mut cut_short = pages.clone();
            cut_short.write(page);
            let found = cut_short.recover(ID).unwrap().0;
            assert_eq!(found.find(block), None, "{number} commits later");
        }
        pages.commit(&mut recorded, 99);
        assert_eq!(pages.recover(ID).unwrap().0.find(block), None, "{number} commits later");
    }
}

/// A full part, of whose slots 400 are entered but for the tenth. More than a page has room for.
fn with_many_records(recorded: &mut Recorded) {
    for slot in (0..10).chain(11..400) {
        let block = recorded.block_in(slot).unwrap();
        recorded.enter(slot, block);
    }
}

fn full() -> Recorded {
    let mut recorded = Recorded::new(slots(), Some(ID));
    let capacity = u64::from(recorded.capacity());
    (0..4 * capacity).for_each(|block| _ = recorded.place(block, Evidence::Hit));
    recorded
}

/// A table page that knows of an end whose record is lost, though an older one has the copy.
#[test]
fn an_end_that_is_lost_is_made_again() {
    let (mut pages, mut recorded) = (Pages::new(), full());
    let block = recorded.block_in(10).unwrap();
    recorded.enter(10, block);
    with_many_records(&mut recorded);
    recorded.empty(10);
    pages.commit(&mut recorded, 0);
    assert_it_can_change(&mut pages, block);
}

/// A table page that knows of a copy whose record is lost, though an older one has the end of what
/// was in its slot before.
#[test]
fn a_copy_after_an_end_is_not_forgotten() {
    let (mut pages, mut recorded) = (Pages::new(), full());
    let before = recorded.block_in(10).unwrap();
    recorded.enter(10, before);
    pages.commit(&mut recorded, 0);
    recorded.empty(10);
    pages.commit(&mut recorded, 1);
    pages.commit(&mut recorded, 2);
    let block = (1 << 20..)
        .find(|&other| recorded.place(other, Evidence::Hit).is_some_and(|(slot, _)| slot == 10))
        .unwrap();
    with_many_records(&mut recorded);
    recorded.enter(10, block);
    pages.commit(&mut recorded, 3);
    assert_it_can_change(&mut pages, block);
}

/// A copy whose end was lost counts until its record is written over, and is not found after that.
#[test]
fn a_copy_whose_end_was_lost_does_not_come_back() {
    let (mut pages, mut recorded) = (Pages::new(), full());
    let block = recorded.block_in(10).unwrap();
    (0..2).for_each(|number| pages.commit(&mut recorded, number));
    recorded.enter(10, block);
    pages.commit(&mut recorded, 2);
    with_many_records(&mut recorded);
    recorded.empty(10);
    pages.commit(&mut recorded, 3);
    let mut recorded = pages.recover(ID).unwrap().0;
    assert_eq!(recorded.find(block), Some(10));
    (4..6).for_each(|number| pages.commit(&mut recorded, number));
    assert!(recorded.journal().unwrap().is_entered(10));
    assert_eq!(pages.recover(ID).unwrap().0.find(block), None);
    assert_it_can_change(&mut pages, block);
}

/// Whatever is in the pages, even under a good checksum, is refused or leaves slots that are valid.
#[test]
fn no_page_is_too_strange_to_be_read() {
    let mut random = SplitMix64::seeded();
    let good = written(5).0;
    let (mut warm, mut refused) = (0, 0);
    for _ in 0..400 {
        let mut pages = Pages(good.0.clone());
        for _ in 0..=random.below(3) {
            let index = random.below(6) as usize;
            let page = pages.page(index);
            if random.one_in(8) {
                page.copy_from_slice(&random.bytes(PAGE_BYTES));
            }
            for _ in 0..random.below(4) {
                let most = [PAGE_BYTES as u64, 80][random.below(2) as usize];
                page[random.below(most) as usize] =
                    [0, 0xff, random.next_u64() as u8][random.below(3) as usize];
            }
            let check = xxhash_rust::xxh3::xxh3_64(&page[8..]).to_le_bytes();
            page[..8].copy_from_slice(&check);
        }
        match pages.recover(ID) {
            Ok((found, _)) => {
                found.slots().validate().unwrap();
                assert!(found.entered_count() >= found.slots().count());
                warm += 1;
            }
            Err(NotWarm::Cold(_)) => refused += 1,
            Err(NotWarm::Read(why)) => panic!("{why}"),
        }
    }
    assert!(warm > 20 && refused > 20, "{warm} warm, {refused} refused");
}

/// A bit that changed is always noticed, other data but for once in 16,384.
#[test]
fn damage_to_data_is_noticed() {
    let mut random = SplitMix64::seeded();
    for length in [512, 4096, 65_536] {
        let mut data = random.bytes(length);
        let good = check_of(7, &data);
        for _ in 0..200 {
            let (at, bit) = (random.below(length as u64) as usize, 1 << random.below(8));
            data[at] ^= bit;
            assert_ne!(check_of(7, &data), good, "byte {at}, bit {bit}");
            data[at] ^= bit;
        }
    }
    let data: Vec<_> = (0..100_000).map(|_| random.bytes(512)).collect();
    let same_data = (0..100_000).filter(|&block| check_of(block, &data[0]) == 0);
    let same_block = data.iter().filter(|data| check_of(7, data) == 0);
    let (same_data, same_block) = (same_data.count(), same_block.count());
    assert!(same_data < 30 && same_block < 20, "{same_data}, {same_block}");
}

#[test]
fn a_stamp_admits_what_may_be() {
    let stamp = Stamp { identity: 7, since_ns: 10, until_ns: 20 };
    for (identity, changed_ns, is_admitted) in
        [(7, 10, true), (7, 20, true), (7, 9, false), (7, 21, false), (8, 15, false)]
    {
        assert_eq!(stamp.admits(identity, changed_ns), is_admitted);
    }
}

/// A block that is restored is where it was put, as one that was there; not in a set that is not
/// its own.
#[test]
fn a_slot_is_restored() {
    let mut random = SplitMix64::seeded();
    let mut before = slots();
    (0..5000).for_each(|block| _ = before.place(block, Evidence::Hit));
    let mut after = slots();
    for slot in 0..before.capacity() {
        let block = before.block_in(slot).unwrap();
        assert!(after.restore(slot, block, check(block)));
        assert_eq!(after.check_in(slot), check(block));
        assert_eq!((after.find(block), after.block_in(slot)), (Some(slot), Some(block)));
        let other = random.below(u64::from(after.capacity())) as u32;
        if before.block_in(other).is_some_and(|it| after.restore(slot, it, 0)) {
            assert!(other.abs_diff(slot) < 255, "of the same set");
            assert!(after.restore(slot, block, 0));
        }
    }
    assert!(!after.restore(0, u64::MAX, 0) && !after.restore(0, after.limit(), 0));
    assert!(after.doubles(0..u32::MAX).is_empty());
    assert_eq!(after.touch(0), Evidence::WasThere);
    let block = after.block_in(0).unwrap();
    assert!(after.restore(9, block, 0));
    assert_eq!(after.doubles(0..u32::MAX), [9]);
    after.validate().unwrap_err();
}
