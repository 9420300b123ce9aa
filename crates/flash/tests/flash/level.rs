//! What the level answers: by example, and against a naive record of what lies in which slot.

use std::collections::HashMap;

use undercroft_flash::{Evidence, Flash, FlashSpec, Slot, Slots};
use undercroft_random::SplitMix64;

fn flash(blocks: u32, rules: &str) -> Flash<Slots> {
    let spec: FlashSpec = format!("{blocks}blk{rules}").parse().unwrap();
    Flash::new(Slots::new(blocks, 7), &spec, 4096)
}

/// A block lies in a slot from the answer that says so to the write that ends its copy, the
/// discard, or the answer that gives its slot to another. This is what keeps a server from serving
/// a copy that is out of date.
#[test]
fn a_copy_is_found_until_it_ends() {
    let mut random = SplitMix64::seeded();
    for rules in ["", ",rule=access", ",rule=second-miss", ",budget=40MiB/day"] {
        let mut level = flash(300, rules);
        let mut in_slot: HashMap<Slot, u64> = HashMap::new();
        let mut slot_of: HashMap<u64, Slot> = HashMap::new();
        let mut evidence: HashMap<u64, Evidence> = HashMap::new();
        for step in 0..60_000 {
            level.advance(step * 1_000_000);
            let block = random.below(700);
            let there = slot_of.get(&block).copied();
            assert_eq!(level.has(block), there.is_some(), "{rules} step {step}");
            let mut end = |slot: Option<Slot>| {
                assert_eq!(slot, there, "{rules} step {step}");
                if let Some(slot) = slot {
                    in_slot.remove(&slot);
                    slot_of.remove(&block);
                }
            };
            let placed = match (random.below(10), evidence.get(&block).copied()) {
                (0, _) => {
                    end(level.discard(block));
                    evidence.remove(&block);
                    None
                }
                (1..=2, before) => {
                    let changed = level.write(block, before, step % 50 == 1);
                    end(changed.ended);
                    evidence.insert(block, changed.evidence);
                    changed.write_to
                }
                (3..=6, Some(before)) => {
                    evidence.remove(&block);
                    level.left(block, before)
                }
                (_, Some(before)) => {
                    evidence.insert(block, before.hit());
                    None
                }
                (_, None) => {
                    let found = level.read(block, step % 50 == 0);
                    assert_eq!(found.slot, there, "{rules} step {step}");
                    evidence.insert(block, found.evidence);
                    found.write_to
                }
            };
            if let Some(slot) = placed {
                if let Some(gone) = in_slot.insert(slot, block) {
                    slot_of.remove(&gone);
                }
                slot_of.insert(block, slot);
            }
        }
        level.directory().validate().unwrap();
        assert_eq!(level.directory().count() as usize, slot_of.len());
        let counts = level.counts();
        assert!(counts.written > 1000 && counts.hits > 100, "{counts:?}");
        let left = counts.written - counts.evicted - counts.ended;
        assert_eq!(left, slot_of.len() as u64, "{rules}: what was written is there or went");
    }
}

#[test]
fn evidence_takes_a_block_to_flash() {
    let mut level = flash(1000, "");
    // Once read and gone: nothing speaks for it. Hit in memory: it goes.
    assert_eq!(level.read(1, false).evidence, Evidence::None);
    assert_eq!(level.left(1, Evidence::None), None);
    assert!(level.left(2, Evidence::None.hit()).is_some());
    // It came back while its ghost was known, once.
    assert_eq!(level.read(1, false).evidence, Evidence::Returned);
    assert_eq!(level.discard(1), None);
    assert_eq!(level.read(1, false).evidence, Evidence::None);
    // A good copy is not written again; after a write it is.
    assert_eq!(level.read(2, false).evidence, Evidence::WasThere);
    assert_eq!(level.left(2, Evidence::WasThere), None);
    let changed = level.write(2, Some(Evidence::WasThere), false);
    assert_eq!((changed.ended.is_some(), changed.evidence), (true, Evidence::Changed));
    assert!(level.left(2, changed.evidence).is_some());
    // Blocks of a stream do not go, even if they come back; those on flash are found all the same.
    assert_eq!(level.left(3, Evidence::None), None);
    assert_eq!(level.read(3, true).evidence, Evidence::Streamed);
    assert_eq!(level.left(3, Evidence::Streamed), None);
    assert_eq!(Evidence::Streamed.hit(), Evidence::Hit);
    assert!(level.read(2, true).slot.is_some());
    // What a client hands over needs its ghost as well.
    assert_eq!(level.arrived(4), (None, Evidence::None));
    assert_eq!(level.left(4, Evidence::None), None);
    assert_eq!(level.arrived(4), (None, Evidence::Returned));
    assert_eq!(level.arrived(2).1, Evidence::WasThere);
    let counts = level.counts();
    assert_eq!((counts.written, counts.rewritten, counts.kept, counts.ended), (2, 1, 1, 1));
    assert_eq!((counts.without_evidence, counts.sequential), (3, 1));
}

#[test]
fn access_and_second_miss_write_at_the_miss() {
    let mut level = flash(1000, ",rule=access");
    assert!(level.read(1, false).write_to.is_some());
    assert!(
        level.write(1, Some(Evidence::None), false).write_to.is_some(),
        "a copy is brought up to date"
    );
    assert!(level.write(2, None, false).write_to.is_some());
    assert_eq!(level.left(3, Evidence::Hit), None);
    let mut level = flash(1000, ",rule=second-miss");
    assert_eq!(level.read(1, false).write_to, None);
    assert!(level.read(1, false).write_to.is_some());
    assert!(level.read(1, false).slot.is_some());
}

/// What cannot be written now is given up, and takes no room from what lies there.
#[test]
fn nothing_leaves_for_what_cannot_be_written() {
    for rules in [",rule=evidence", ",rule=access", ",rule=second-miss"] {
        let mut flash = flash(64, rules);
        let all = |flash: &mut Flash<Slots>, blocks: std::ops::Range<u64>| {
            for block in blocks {
                // Twice, so that each rule takes it.
                for _ in 0..2 {
                    flash.read(block, false);
                    flash.left(block, Evidence::Hit);
                }
            }
        };
        all(&mut flash, 0..64);
        let (before, had) = (*flash.counts(), (0..64).filter(|&block| flash.has(block)).count());
        assert!(before.written >= 40 && before.given_up == 0, "{rules}: {before:?}");
        flash.set_busy(true);
        all(&mut flash, 100..200);
        let now = *flash.counts();
        assert_eq!((now.written, now.evicted), (before.written, before.evicted), "{rules}");
        assert!(now.given_up >= 100, "{rules}: {now:?}");
        assert_eq!((0..64).filter(|&block| flash.has(block)).count(), had, "{rules}");
        flash.set_busy(false);
        all(&mut flash, 200..300);
        assert!(flash.counts().evicted > before.evicted, "{rules}");
    }
}

/// Ghosts are forgotten as others come: at the start a fifth of the slots counts, and hits keep
/// it there.
#[test]
fn ghosts_have_a_window() {
    let mut level = flash(12_800, "");
    (0..12_800 * 4).for_each(|block| assert_eq!(level.left(block, Evidence::None), None));
    let is_known = |level: &mut Flash<Slots>, block| level.arrived(block).1 == Evidence::Returned;
    let last = |n: u64, count: u64| 12_800 * 4 - n..12_800 * 4 - n + count;
    let known = last(1000, 1000).filter(|&block| is_known(&mut level, block)).count();
    assert!(known > 950, "{known} of the last 1,000");
    let known = last(12_000, 1000).filter(|&block| is_known(&mut level, block)).count();
    assert!(known < 50, "{known} of 1,000 that left before 12,000 others");
}

#[test]
fn configurations_are_written_as_they_are_read() {
    for text in
        ["64GiB", "10%,rule=access", "1000blk,rule=second-miss,budget=1TiB/day,sequential=4MiB"]
    {
        let spec: FlashSpec = text.parse().unwrap();
        assert_eq!(spec.to_string().parse::<FlashSpec>().unwrap(), spec, "{text}");
    }
    for (text, word) in [
        ("1GiB,rule=best", "rule=best"),
        ("1GiB,budget=1TiB", "budget=1TiB"),
        ("1GiB,budget=0/day", "budget=0/day"),
        ("1GiB,order=lru", "order=lru"),
        ("1GiB,fast", "fast"),
    ] {
        let why = text.parse::<FlashSpec>().unwrap_err().to_string();
        assert!(why.contains(word), "{why}");
    }
}

/// Whatever the rule, no more is written than the budget of the time that has passed, and a
/// hundredth of a day's.
#[test]
fn no_rule_exceeds_a_budget() {
    let mut random = SplitMix64::seeded();
    for rules in ["", ",rule=access", ",rule=second-miss"] {
        let mut level = flash(1000, &format!("{rules},budget=4000KiB/day"));
        for minute in 0..3 * 24 * 60 {
            level.advance(minute * 60_000_000);
            for _ in 0..20 {
                let block = random.below(900);
                level.write(block, Some(Evidence::Hit), false);
                level.read(block, false);
                level.left(block, Evidence::Hit);
            }
            let most = 1000 * minute / (24 * 60) + 10;
            assert!(level.counts().written <= most, "{rules}: minute {minute}");
        }
        assert!(level.counts().written > 2900, "{rules}: {:?}", level.counts());
        assert!(level.counts().over_budget > 0);
    }
    let mut level = flash(1000, ",budget=400KiB/day");
    level.advance(86_400_000_000);
    assert_eq!(level.left(1 << 50, Evidence::Hit), None, "there is no such place");
    assert!(level.left(7, Evidence::Hit).is_some(), "and nothing was paid for it");
}
