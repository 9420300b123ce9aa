//! Frames that are no cache, against the rule as it is written, and by examples.

use undercroft_tracker::GRANULE;
use undercroft_tracker::segment::Segment;
use undercroft_tracker::table::{Key, Place, Strays, Table};

use crate::{Nobody, Random};

const MIB: u64 = 1 << 20;
const CACHE: u64 = 0x7f00_0000_0000;
const HEAP: u64 = 0x5500_0000_0000;

fn read(table: Table<'_>, space: u16, address: u64, block: u64) {
    table.read(Place::new(space, address).unwrap(), Key::new(300, block).unwrap(), &mut Nobody);
}

/// Frames of a cache, one behind the other.
fn fill(table: Table<'_>, frames: u64) {
    (0..frames).for_each(|n| read(table, 0, CACHE + n * GRANULE, n));
}

fn held(table: Table<'_>, space: u16, address: u64) -> bool {
    table.content().any(|(place, _)| Some(place) == Place::new(space, address))
}

#[test]
fn pages_in_passing_memory_are_forgotten_once_nothing_happens_there() {
    let segment = Segment::anonymous(16 << 20).unwrap();
    let table = Table::new(&segment);
    fill(table, 1024);
    (0..31).for_each(|n| read(table, 0, HEAP + n * 4 * GRANULE, 5000 + n));
    let mut strays = Strays::default();
    assert_eq!(strays.forget(table), 0, "seen for the first time");
    read(table, 0, HEAP, 6000);
    assert_eq!(strays.forget(table), 0, "something happened since");
    assert_eq!(strays.forget(table), 31);
    assert!(!held(table, 0, HEAP));
    assert_eq!(table.content().count(), 1024);
    table.check().unwrap();
    // It may come back, and is then known again.
    read(table, 0, HEAP, 6000);
    assert!(held(table, 0, HEAP));
}

#[test]
fn a_cache_stays_known() {
    let looks = |table: Table<'_>| {
        let mut strays = Strays::default();
        (0..3).map(|_| strays.forget(table)).sum::<u64>()
    };
    let segment = Segment::anonymous(16 << 20).unwrap();
    let table = Table::new(&segment);
    // One that is small, or has only begun: nothing to compare with.
    read(table, 0, HEAP, 5000);
    fill(table, 1023);
    assert_eq!(looks(table), 0);
    // The end of one that reaches a little into the next MiB.
    fill(table, 1024 + 5);
    assert_eq!(looks(table), 1, "the one in the heap");
    assert!(held(table, 0, CACHE + 1028 * GRANULE));
    // One of 4 KiB pages with something between them, in memory of a process of its own.
    (0..32).for_each(|n| read(table, 7, HEAP + n * 9000, 7000 + n));
    assert_eq!(looks(table), 0);
    // Elsewhere its last page would be lonely.
    read(table, 8, HEAP + 32 * 9000, 8000);
    assert_eq!(looks(table), 1);
}

/// The rule, as it is written: frames with a block, of a region of 1 MiB that has, with the two
/// beside it, fewer than 32, and was like that and had the same content at the last look, if at
/// least 1024 frames are not so.
#[test]
fn it_is_the_rule() {
    type Frame = (u16, u64, u64);
    let mut random = Random::seeded();
    let segment = Segment::anonymous(64 << 20).unwrap();
    let table = Table::new(&segment);
    let (mut strays, mut before) = (Strays::default(), Vec::<Frame>::new());
    let mut forgotten = 0;
    for round in 0..60 {
        for _ in 0..random.below(if round < 10 { 400 } else { 60 }) {
            // Dense in the first MiBs, ever thinner behind.
            let space = random.below(2) as u16;
            let farthest = random.below(40);
            let region = random.below(1 + farthest);
            let address = CACHE + region * MIB + random.below(256) * GRANULE;
            read(table, space, address, random.below(1 << 20));
        }
        let frames = |table: Table<'_>| {
            let frames = table.content();
            let frames =
                frames.map(|(place, block)| (place.space(), place.address(), block.word()));
            let mut frames: Vec<Frame> = frames.collect();
            frames.sort_unstable();
            frames
        };
        let now = frames(table);
        let region = |frame: &Frame| (frame.0, frame.1 / MIB);
        let is_lonely = |frame: &Frame| {
            let near = now.iter().filter(|other| {
                other.0 == frame.0 && region(other).1.abs_diff(region(frame).1) <= 1
            });
            near.count() < 32
        };
        let of = |list: &[Frame], wanted: (u16, u64)| -> Vec<Frame> {
            list.iter().filter(|frame| region(frame) == wanted).copied().collect()
        };
        let is_stray = |frame: &Frame| {
            is_lonely(frame) && of(&now, region(frame)) == of(&before, region(frame))
        };
        let in_company = now.iter().filter(|frame| !is_lonely(frame)).count();
        let (gone, kept): (Vec<Frame>, Vec<Frame>) =
            now.iter().copied().partition(|frame| in_company >= 1024 && is_stray(frame));
        assert_eq!(strays.forget(table), gone.len() as u64, "round {round}");
        assert_eq!(frames(table), kept, "round {round}");
        table.check().unwrap();
        forgotten += gone.len();
        before = now.iter().copied().filter(is_lonely).collect();
    }
    assert!(forgotten > 100, "{forgotten}");
}
