//! AUTO where its naive model does not look: writes, hits that keep their block, and what a change
//! of the votes does to the cache. `UNDERCROFT_SEED=n` runs one.

use crate::support::{Random, seeds};
use undercroft_cache::policy::{Context, Spec};
use undercroft_cache::{Entry, Evictions, Policy};

const CAPACITY: u32 = 64;
const ENTRIES: u32 = 4096;

fn made(text: &str) -> Box<dyn Policy> {
    let mut policy = Spec::parse(text).unwrap().build(&Context::new(CAPACITY)).unwrap();
    policy.grow(ENTRIES);
    policy
}

/// A reference of a workload that LIRS suits (a loop), or of one of blocks that come in pairs and
/// never again, beside some that are frequent.
fn reference(random: &mut Random, at: u32, is_loop: bool) -> Entry {
    match (is_loop, random.below(2)) {
        (true, _) => at % (CAPACITY + 20),
        (false, 0) => 100 + random.below(CAPACITY / 2),
        (false, _) => 1000 + at / 2 % 3000,
    }
}

#[test]
fn a_change_of_the_leader_evicts_nothing_and_hits_go_on() {
    for seed in seeds(5) {
        let mut random = Random(seed);
        let (mut auto, mut out) = (made("auto,memory=4"), Evictions::new());
        let mut changes = 0;
        for at in 0..20_000 {
            let (leader, before) = (auto.leader(), auto.residents());
            let entry = reference(&mut random, at, at / 4000 % 2 == 0);
            out.clear();
            auto.access(entry, &mut out);
            if auto.leader() != leader {
                changes += 1;
                let mut kept = auto.residents();
                kept.retain(|&other| other != entry);
                let gone = before.iter().filter(|e| !kept.contains(e) && **e != entry).count();
                assert!(gone <= 1, "UNDERCROFT_SEED={seed}, {at}: {gone} blocks left at once");
            }
        }
        auto.validate().unwrap();
        assert!(changes >= 2, "UNDERCROFT_SEED={seed}: the leader changed {changes} times");
    }
}

/// While one vote outweighs the others together, the cache is that member.
#[test]
fn the_first_leader_is_followed_exactly() {
    for seed in seeds(5) {
        let mut random = Random(seed);
        let (mut auto, mut lirs) = (made("auto,head=1,margin=0.0001,memory=1000"), made("lirs"));
        let (mut ours, mut theirs) = (Evictions::new(), Evictions::new());
        for at in 0..5000 {
            let entry = reference(&mut random, at, at < 2500);
            ours.clear();
            theirs.clear();
            let hits = (auto.access(entry, &mut ours), lirs.access(entry, &mut theirs));
            assert_eq!(auto.leader(), Some("lirs"));
            assert_eq!(hits.0, hits.1, "UNDERCROFT_SEED={seed}, {at}");
            assert!(ours.evicted().eq(theirs.evicted()), "UNDERCROFT_SEED={seed}, {at}");
        }
    }
}

/// Hits of writes are no evidence, whichever member has them.
#[test]
fn writes_change_no_leader() {
    for seed in seeds(5) {
        let mut random = Random(seed);
        let (mut auto, mut out) = (made("auto,head=0,margin=0.0001"), Evictions::new());
        for at in 0..10_000 {
            let entry = reference(&mut random, at, false);
            auto.write(entry, &mut out);
            assert_eq!(auto.leader(), Some("lirs"), "UNDERCROFT_SEED={seed}, {at}");
        }
        let mut read = |at| auto.access(reference(&mut random, at, false), &mut out);
        assert!((0..10_000).filter(|&at| read(at)).count() > 1000);
        assert_ne!(auto.leader(), Some("lirs"), "UNDERCROFT_SEED={seed}: another suits it better");
    }
}

/// Below a cache that keeps what it takes, and below one whose blocks stay here at a hit.
#[test]
fn blocks_that_come_from_above() {
    for seed in seeds(5) {
        for keeps in [false, true] {
            let mut random = Random(seed);
            let (mut auto, mut out) = (made("auto,memory=2"), Evictions::new());
            let (mut hits, mut leaders) = (0, Vec::new());
            for at in 0..20_000 {
                let entry = reference(&mut random, at, at / 5000 % 2 == 0);
                match (auto.contains(entry), keeps) {
                    (true, true) => auto.touch(entry, &mut out),
                    (true, false) => auto.take(entry, &mut out),
                    (false, _) => auto.note(entry, &mut out),
                }
                hits += u32::from(auto.contains(entry));
                auto.place(entry, &mut out);
                leaders.extend(auto.leader());
            }
            auto.validate().unwrap();
            assert_eq!(hits > 0, keeps, "UNDERCROFT_SEED={seed}");
            leaders.dedup();
            assert!(leaders.len() > 1, "UNDERCROFT_SEED={seed}: {leaders:?}");
        }
    }
}
