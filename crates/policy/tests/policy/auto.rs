//! AUTO where its naive model does not look: which table it uses, and what a change of it does.
//! `UNDERCROFT_SEED=n` runs one.

use undercroft_policy::{Context, Entry, Evictions, Policy, Spec};
use undercroft_random::testing::{Random, seeds};

const CAPACITY: u32 = 64;
const ENTRIES: u32 = 1 << 16;

fn made(text: &str) -> Box<dyn Policy> {
    let mut policy = Spec::parse(text).unwrap().build(&Context::new(CAPACITY)).unwrap();
    policy.grow(ENTRIES);
    policy
}

/// A reference of a loop, which the fixed table suits; or of blocks that come often, among many
/// that come twice in succession and never again, which looks like locality and is none.
fn reference(random: &mut Random, at: u32, is_loop: bool) -> Entry {
    match (is_loop, random.below(3)) {
        (true, _) => at % (CAPACITY + 20),
        (false, 0) => 100 + random.below(2 * CAPACITY),
        (false, _) => 1000 + at / 3 % 60_000,
    }
}

#[test]
fn a_change_of_the_table_evicts_nothing_and_hits_go_on() {
    for seed in seeds(5) {
        let mut random = Random(seed);
        let (mut auto, mut out) = (made("auto,review=64,miniature=32"), Evictions::new());
        let mut changes = 0;
        for at in 0..40_000 {
            let (leader, before) = (auto.leader(), auto.residents());
            let entry = reference(&mut random, at, at / 10_000 % 2 == 0);
            out.clear();
            auto.access(entry, &mut out);
            if auto.leader() != leader {
                changes += 1;
                let kept = auto.residents();
                let gone = before.iter().filter(|e| !kept.contains(e)).count();
                assert_eq!(gone, out.evicted().count(), "UNDERCROFT_SEED={seed}, {at}");
                auto.validate().unwrap();
            }
        }
        assert!(changes > 0, "UNDERCROFT_SEED={seed}: the table never changed");
    }
}

/// What is learned is worth something: blocks that are frequent are kept among those that come
/// twice and never again, and so are those that were read last if those written last do not return.
#[test]
fn what_returns_is_learned() {
    for seed in seeds(5) {
        let hits = |text: &str| {
            let (mut random, mut policy) = (Random(seed), made(text));
            let (mut out, mut hits) = (Evictions::new(), 0);
            for at in 0..40_000 {
                // Equally frequent; only those that are read come back soon.
                let block = random.below(100);
                let is_written = random.below(2) == 0;
                let entry = if is_written { 1000 + at % 60_000 } else { block };
                let hit = match is_written {
                    true => policy.write(entry, &mut out),
                    false => policy.access(entry, &mut out),
                };
                hits += u32::from(hit && !is_written);
                out.clear();
            }
            hits
        };
        let (auto, lru) = (hits("auto,review=64,miniature=32"), hits("lru"));
        assert!(auto > lru + lru / 4, "UNDERCROFT_SEED={seed}: {auto} hits, LRU {lru}");
    }
}

/// Hits of writes are no evidence for a table, and a policy that only sees writes keeps its first.
#[test]
fn writes_change_no_table() {
    for seed in seeds(5) {
        let mut random = Random(seed);
        let (mut auto, mut out) = (made("auto,review=64,miniature=32"), Evictions::new());
        for at in 0..20_000 {
            auto.write(reference(&mut random, at, at / 5000 % 2 == 0), &mut out);
            assert_eq!(auto.leader(), Some("fixed"), "UNDERCROFT_SEED={seed}, {at}");
        }
    }
}

/// Below a cache that keeps what it takes, and below one whose blocks stay here at a hit.
#[test]
fn blocks_that_come_from_above() {
    for seed in seeds(5) {
        for keeps in [false, true] {
            let mut random = Random(seed);
            let (mut auto, mut out) = (made("auto,review=64,miniature=32"), Evictions::new());
            let (mut hits, mut leaders) = (0, Vec::new());
            for at in 0..40_000 {
                let entry = reference(&mut random, at, at / 10_000 % 2 == 0);
                match (auto.contains(entry), keeps) {
                    (true, true) => auto.touch(entry, &mut out),
                    (true, false) => auto.take(entry, &mut out),
                    (false, _) => auto.note(entry, &mut out),
                }
                hits += u32::from(auto.contains(entry));
                auto.place(entry, &mut out);
                leaders.extend(auto.leader());
                out.clear();
            }
            auto.validate().unwrap();
            assert_eq!(hits > 0, keeps, "UNDERCROFT_SEED={seed}");
            leaders.dedup();
            assert!(leaders.len() > 1, "UNDERCROFT_SEED={seed}: {leaders:?}");
        }
    }
}
