//! The table against a list of frames that is searched from end to end, and against the table of
//! the engine where both follow the same rules.

use undercroft_level::{Cct, Frames};
use undercroft_tracker::GRANULE;
use undercroft_tracker::segment::Segment;
use undercroft_tracker::table::{Key, Place, Sink, Table};

use crate::Random;

/// What was told, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Told {
    evicted: Vec<(u64, bool)>,
    late: u64,
    made: u64,
    no_frame: u64,
    overflowed: u64,
}

impl Sink for Told {
    fn evicted(&mut self, block: Key) {
        self.evicted.push((block.granule(), block.is_dirty()));
    }

    fn late(&mut self, _: Key) {
        self.late += 1;
    }

    fn made(&mut self) {
        self.made += 1;
    }

    fn no_frame(&mut self) {
        self.no_frame += 1;
    }

    fn overflowed(&mut self) {
        self.overflowed += 1;
    }
}

#[derive(Clone, Copy, Debug)]
enum Call {
    Read { space: u16, address: u64, block: u64 },
    Write { space: u16, address: u64, block: u64, in_pool: bool },
    Clear { space: u16, address: u64, bytes: u64 },
}

type Frame = (u16, u64, Option<(u64, bool)>);

/// Straight from the rules.
#[derive(Default)]
struct Naive {
    /// Space, address, and the block with whether it was written.
    frames: Vec<Frame>,
    told: Told,
}

impl Naive {
    fn overwrite(&mut self, space: u16, start: u64, end: u64) {
        let frames = std::mem::take(&mut self.frames);
        for frame in frames {
            if frame.0 == space && frame.1 < end && start < frame.1 + GRANULE {
                self.told.evicted.extend(frame.2);
            } else {
                self.frames.push(frame);
            }
        }
    }

    fn holder(&self, block: u64) -> Option<usize> {
        self.frames.iter().position(|frame| frame.2.is_some_and(|held| held.0 == block))
    }

    fn call(&mut self, call: Call) {
        match call {
            Call::Clear { space, address, bytes } => {
                self.overwrite(space, address, address + bytes)
            }
            Call::Read { space, address, block } => {
                if let Some(holder) = self.holder(block) {
                    self.told.late += 1;
                    self.frames[holder].2 = None;
                }
                let same = |frame: &&mut (u16, u64, _)| (frame.0, frame.1) == (space, address);
                match self.frames.iter_mut().find(same) {
                    Some(frame) => {
                        self.told.evicted.extend(frame.2);
                        frame.2 = Some((block, false));
                    }
                    None => {
                        self.overwrite(space, address, address + GRANULE);
                        self.frames.push((space, address, Some((block, false))));
                    }
                }
            }
            Call::Write { space, address, block, in_pool } => {
                let holder = self.holder(block);
                let at = self.frames.iter().position(|f| (f.0, f.1) == (space, address));
                let Some(at) = at else {
                    if in_pool {
                        if let Some(holder) = holder {
                            self.frames[holder].2 = None;
                        }
                        self.overwrite(space, address, address + GRANULE);
                        self.frames.push((space, address, Some((block, true))));
                        self.told.made += 1;
                        return;
                    }
                    self.told.no_frame += 1;
                    if let Some(holder) = holder {
                        self.frames[holder].2 = Some((block, true));
                    }
                    return;
                };
                if let Some(holder) = holder {
                    self.frames[holder].2 = None;
                }
                self.told.evicted.extend(self.frames[at].2);
                self.frames[at].2 = Some((block, true));
            }
        }
    }

    fn content(&self) -> Vec<(u16, u64, u64, bool)> {
        let held = |frame: &Frame| frame.2.map(|(block, dirty)| (frame.0, frame.1, block, dirty));
        let mut content: Vec<_> = self.frames.iter().filter_map(held).collect();
        content.sort_unstable();
        content
    }
}

fn key(block: u64) -> Key {
    Key::new(257, block).unwrap()
}

fn call(table: Table<'_>, call: Call, told: &mut Told) {
    match call {
        Call::Read { space, address, block } => {
            table.read(Place::new(space, address).unwrap(), key(block), told);
        }
        Call::Write { space, address, block, in_pool } => {
            table.write(Place::new(space, address).unwrap(), key(block), in_pool, told);
        }
        Call::Clear { space, address, bytes } => table.clear(space, address, bytes, told),
    }
}

fn content(table: Table<'_>) -> Vec<(u16, u64, u64, bool)> {
    let mut content: Vec<_> = table
        .content()
        .map(|(place, key)| (place.space(), place.address(), key.granule(), key.is_dirty()))
        .collect();
    content.sort_unstable();
    content
}

fn compare(calls: impl Iterator<Item = Call>, every: usize) {
    let segment = Segment::anonymous(16 << 20).unwrap();
    let table = Table::new(&segment);
    let mut naive = Naive::default();
    let mut done = Vec::new();
    for (number, one) in calls.enumerate() {
        done.push(one);
        let mut told = Told::default();
        naive.told = Told::default();
        naive.call(one);
        call(table, one, &mut told);
        // Of several that leave at once each order is right.
        told.evicted.sort_unstable();
        naive.told.evicted.sort_unstable();
        let history = &done[done.len().saturating_sub(8)..];
        assert_eq!(told, naive.told, "{history:x?}");
        if number % every == 0 {
            table.check().unwrap_or_else(|wrong| panic!("{wrong}: {history:x?}"));
            assert_eq!(content(table), naive.content(), "{history:x?}");
        }
        for block in 0..4 {
            assert_eq!(table.holds(key(block)), naive.holder(block).is_some(), "{history:x?}");
        }
    }
}

#[test]
fn random_calls_do_what_the_naive_table_does() {
    let mut random = Random::seeded();
    for round in 0..40 {
        let steps = [64, 256, 512, 4096][round % 4];
        let (places, blocks) = (1 + random.below(200), 1 + random.below(300));
        let mut calls = Vec::new();
        for _ in 0..2000 {
            let space = random.below(2) as u16 * 7;
            let address = 0x7f00_0000_0000 + random.below(places) * steps;
            let block = random.below(blocks);
            calls.push(match random.below(10) {
                0..6 => Call::Read { space, address, block },
                6..9 => Call::Write { space, address, block, in_pool: random.below(2) == 0 },
                _ => Call::Clear { space, address, bytes: 1 + random.below(20_000) },
            });
        }
        compare(calls.into_iter(), 20);
    }
}

#[test]
fn every_short_history_is_as_the_naive_table_says() {
    // Two addresses that overlap and one that does not; two blocks; reads, writes, a clearing.
    let mut alphabet = Vec::new();
    for address in [0x1000_0000, 0x1000_0800, 0x1000_2000] {
        for block in 0..2 {
            alphabet.push(Call::Read { space: 0, address, block });
            for in_pool in [false, true] {
                alphabet.push(Call::Write { space: 0, address, block, in_pool });
            }
        }
    }
    alphabet.push(Call::Clear { space: 0, address: 0x1000_0fff, bytes: 1 });
    let size = alphabet.len();
    for number in 0..size.pow(4) {
        let nth = |place: u32| alphabet[number / size.pow(place) % size];
        if number % size == 0 {
            // The segment is made anew for each: one of so many is enough of a check of all.
            compare((0..4).map(nth), 1);
        } else {
            let (mut naive, mut told) = (Naive::default(), Told::default());
            (0..4).for_each(|place| naive.call(nth(place)));
            thread_table(|table| {
                (0..4).for_each(|place| call(table, nth(place), &mut told));
                table.check().unwrap();
                assert_eq!(content(table), naive.content());
                table.forget(|_, _| true);
                assert_eq!(content(table), []);
            });
            told.evicted.sort_unstable();
            naive.told.evicted.sort_unstable();
            assert_eq!(told, naive.told);
        }
    }
}

fn thread_table(with: impl FnOnce(Table<'_>)) {
    thread_local! {
        static SEGMENT: Segment = Segment::anonymous(1 << 20).unwrap();
    }
    SEGMENT.with(|segment| with(Table::new(segment)));
}

#[test]
fn it_says_what_the_table_of_the_engine_says() {
    let mut random = Random::seeded();
    let segment = Segment::anonymous(16 << 20).unwrap();
    let table = Table::new(&segment);
    let mut cct = Cct::new(GRANULE as u32, Frames::Read, 1 << 20, 1);
    for _ in 0..50_000 {
        let address = 0x5000_0000 + random.below(300) * 2048;
        let block = random.below(500);
        let (mut told, mut evicted) = (Told::default(), Vec::new());
        let late = cct.counts().late;
        if random.below(3) > 0 {
            cct.read(0, address, [block].into_iter(), &mut evicted);
            call(table, Call::Read { space: 0, address, block }, &mut told);
        } else {
            cct.write(0, address, [block].into_iter(), &mut evicted);
            let write = Call::Write { space: 0, address, block, in_pool: false };
            call(table, write, &mut told);
        }
        let mut blocks: Vec<_> = told.evicted.iter().map(|(block, _)| *block).collect();
        blocks.sort_unstable();
        evicted.sort_unstable();
        assert_eq!((blocks, told.late), (evicted, cct.counts().late - late));
    }
    let held: Vec<_> = content(table).iter().map(|(_, place, block, _)| (*place, *block)).collect();
    assert_eq!(held, cct.content(0));
}

#[test]
fn a_full_table_forgets_and_stays_right() {
    let mut random = Random::seeded();
    let segment = Segment::anonymous(1).unwrap();
    let table = Table::new(&segment);
    let mut told = Told::default();
    for _ in 0..20_000 {
        let address = 0x1000_0000 + random.below(1 << 14) * GRANULE;
        call(table, Call::Read { space: 0, address, block: random.below(1 << 16) }, &mut told);
    }
    assert!(told.overflowed > 0);
    // Links may be lost now; frames may not overlap, and no address may have two of them.
    let content = content(table);
    let mut places: Vec<_> = content.iter().map(|held| held.1).collect();
    places.dedup();
    assert_eq!(places.len(), content.len());
    assert!(content.len() <= 1024 && content.len() > 200, "{}", content.len());
}
