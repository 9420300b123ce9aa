//! Placement that adapts: when it is exclusive, and that it keeps its structure.

use undercroft_cache::placement::Placement;
use undercroft_cache::policy::Spec;
use undercroft_cache::topology::Hierarchy;
use undercroft_cache::{Level, Reference};

use crate::placement::{ALLOCATE, hierarchy, names, validate};
use crate::support::{Random, seeds};

/// Of a client that tells no evictions only placement at the access gains anything; one that tells
/// them all gains from the other, too.
#[test]
fn evicted_blocks_are_of_use_unless_the_access_places_better() {
    let loops = |upper: u32, told: bool| {
        let mut levels = hierarchy(&[("lru", upper), ("lru", 64)], "eviction,on-hit=adaptive");
        if !told {
            levels.silence_client();
        }
        let begins = levels.lower()[0].places_evicted();
        (0..20_000).for_each(|n| _ = levels.reference(Reference::new(n % 50, false)));
        (begins, levels.lower()[0].places_evicted())
    };
    assert_eq!(loops(4, false), (true, false));
    assert_eq!(loops(4, true), (true, true));
    let other = |text: &str| {
        let placement = text.parse().expect(text);
        Level::new(&Spec::parse("lru").unwrap(), 64, &placement, ALLOCATE, 7).expect(text)
    };
    assert!(other("eviction,on-hit=move").places_evicted());
    assert!(!other("access").places_evicted());
}

/// Adaptive placement keeps its structure whatever happens, late evictions among it, and where
/// every eviction is known in time it foresees none.
#[test]
fn adaptive_placement_holds_together() {
    let placement: Placement = "eviction,on-hit=adaptive".parse().unwrap();
    for name in names() {
        for seed in seeds(3) {
            let mut random = Random(seed);
            let capacity = 1 + random.below(200);
            let spec = Spec::parse(name).unwrap();
            let level = Level::new(&spec, capacity, &placement, ALLOCATE, 1).unwrap();
            let mut ours = Hierarchy::below_a_client(level);
            let mut held: Vec<u32> = Vec::new();
            for step in 0..4000 {
                let block = random.block(3 * capacity + 20);
                held.retain(|&b| b != block);
                ours.reference(Reference::new(block, random.below(9) == 0));
                held.push(block);
                if held.len() > 20 {
                    let gone = held.remove(0);
                    // Some evictions never become known.
                    if gone % 4 > 0 {
                        ours.client_evicted(gone);
                    }
                }
                if step % 16 == 0 {
                    validate(&ours)
                        .unwrap_or_else(|e| panic!("{name} UNDERCROFT_SEED={seed}: {e}"));
                }
            }
        }
    }
    let mut exact = hierarchy(&[("lru", 20), ("lru", 40)], "eviction,on-hit=adaptive");
    let mut random = Random(1);
    for _ in 0..20_000 {
        exact.reference(Reference::read(random.block(200)));
    }
    assert_eq!(exact.lower()[0].placement_counts().foreseen, 0);
}
