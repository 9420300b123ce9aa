//! A level whose policy and placement are replaced while it runs: what is resident stays, in its
//! frames, in the old policy's order, and everything else goes on. `UNDERCROFT_SEED=n` runs one.

use std::collections::BTreeMap;

use crate::support::{Random, seeds};
use undercroft_level::placement::Placement;
use undercroft_level::{Frame, Knowledge, Level, Request};
use undercroft_policy::{Spec, WriteMode, policies};

fn names() -> Vec<&'static str> {
    let usable = policies().iter().filter(|info| info.name != "opt" && !info.is_content_aware());
    usable.map(|info| info.name).collect()
}

fn drive(level: &mut Level, random: &mut Random, requests: u32) {
    for _ in 0..requests {
        let span = if random.below(2) == 0 { 40 } else { 400 };
        let block = u64::from(random.below(span));
        let is_write = random.below(5) == 0;
        level.request(&Request { block, is_write, ..Request::default() }, || false);
        while level.next_placement().is_some() {}
    }
}

fn frames(level: &Level) -> BTreeMap<u64, Frame> {
    level.cache().residents().into_iter().collect()
}

#[test]
fn every_policy_takes_over_from_every_other_one() {
    for seed in seeds(1) {
        let mut random = Random(seed);
        for from in names() {
            for to in names() {
                let at = format!("{from} to {to}, UNDERCROFT_SEED={seed}");
                let capacity = 1 + random.below(60);
                let (from, to) = (Spec::parse(from).unwrap(), Spec::parse(to).unwrap());
                let access = Placement::Access;
                let mode = WriteMode::Allocate;
                let mut level = Level::new(&from, capacity, &access, mode, 0).unwrap();
                let requests = random.below(300);
                drive(&mut level, &mut random, requests);
                let (before, counts) = (frames(&level), *level.cache().counts());
                level.replace(&to, &access, None, 0).unwrap();
                level.validate().unwrap_or_else(|e| panic!("{at}: {e}"));
                assert_eq!(level.evicted(), [], "{at}: it has room for all");
                assert_eq!(frames(&level), before, "{at}");
                assert_eq!(*level.cache().counts(), counts, "{at}");
                // Blocks that were ghosts are unknown, and the new policy works.
                drive(&mut level, &mut random, 300);
                level.resize(1 + capacity / 2);
                level.validate().unwrap_or_else(|e| panic!("{at}, later: {e}"));
            }
        }
    }
}

#[test]
fn the_order_of_the_old_policy_goes_on() {
    let [lru, fifo] = ["lru", "fifo"].map(|name| Spec::parse(name).unwrap());
    let mut level = Level::new(&fifo, 4, &Placement::Access, WriteMode::Allocate, 0).unwrap();
    for block in [1, 2, 3, 4, 1] {
        level.reference(block, false, || false);
    }
    level.replace(&lru, &Placement::Access, None, 0).unwrap();
    let mut gone = Vec::new();
    for block in [3, 10, 11, 12] {
        level.reference(block, false, || false);
        gone.extend(level.evicted().iter().map(|one| one.block));
    }
    // FIFO would have evicted 1 first, whatever was read since; 3 was read under LRU.
    assert_eq!(gone, [1, 2, 4]);
}

#[test]
fn placements_come_and_go() {
    for seed in seeds(4) {
        let mut random = Random(seed);
        let spec = Spec::parse("mq").unwrap();
        let mut level = Level::new(&spec, 50, &Placement::Access, WriteMode::Allocate, 0).unwrap();
        let rules = ["eviction", "auto", "access", "eviction,on-hit=move", "gl", "access"];
        for rule in rules.repeat(4) {
            let placement: Placement = rule.parse().unwrap();
            let before = frames(&level);
            let cooperates = placement != Placement::Access;
            let knowledge =
                cooperates.then_some(Knowledge { estimates: true, ..Default::default() });
            level.replace(&spec, &placement, knowledge, 0).unwrap();
            assert_eq!(frames(&level), before, "{rule} UNDERCROFT_SEED={seed}");
            drive(&mut level, &mut random, 200);
            level.validate().unwrap_or_else(|e| panic!("{rule} UNDERCROFT_SEED={seed}: {e}"));
        }
    }
}

#[test]
fn what_cannot_be_replaced_is_refused() {
    let [lru, aware] = ["lru", "lru-ca"].map(|name| Spec::parse(name).unwrap());
    let mut level = Level::new(&lru, 4, &Placement::Access, WriteMode::Allocate, 0).unwrap();
    level.reference(7, false, || false);
    let refused = level.replace(&aware, &Placement::Access, None, 0).unwrap_err();
    assert!(refused.to_string().contains("content-aware"), "{refused}");
    assert_eq!(level.cache().residents(), [(7, 0)]);
}
