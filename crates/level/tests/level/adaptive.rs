//! Placement that adapts: when it is exclusive, and that it keeps its structure.

use undercroft_level::placement::Placement;
use undercroft_level::{Asker, Knowledge, Level, Request};
use undercroft_policy::{Reference, Spec, WriteMode};
use undercroft_sim::tree::Tree;

use crate::placement::{ALLOCATE, hierarchy, names, validate};
use crate::support::{Random, seeds};

/// Of a client that tells no evictions only placement at the access gains anything. One that tells
/// them all gains from the other where both caches are needed to hold the loop; where this one
/// holds it alone, the store is not asked to read what is placed again.
#[test]
fn evicted_blocks_are_of_use_unless_the_access_places_better() {
    let loops = |lower: u32, told: bool| {
        let mut levels = hierarchy(&[("lru", 4), ("lru", lower)], "eviction,on-hit=adaptive");
        if !told {
            levels.silence_client();
        }
        let begins = levels.lower()[0].placement().unwrap().places_evicted();
        (0..20_000).for_each(|n| _ = levels.refer(Reference::new(n % 50, false)));
        (begins, levels.lower()[0].placement().unwrap().places_evicted())
    };
    assert_eq!(loops(64, false), (true, false));
    assert_eq!(loops(64, true), (true, false));
    assert_eq!(loops(48, true), (true, true));
    let other = |text: &str| {
        let placement = text.parse().expect(text);
        Level::new(&Spec::parse("lru").unwrap(), 64, &placement, ALLOCATE, 7).expect(text)
    };
    assert!(other("eviction,on-hit=move").placement().unwrap().places_evicted());
    assert!(other("access").placement().is_none());
}

/// Adaptive placement keeps its structure whatever happens, late evictions among it, and where
/// every eviction is known in time it foresees none.
#[test]
fn adaptive_placement_holds_together() {
    let placements = ["eviction,on-hit=adaptive", "auto", "auto,down=reload"];
    for (name, text) in names().into_iter().flat_map(|name| placements.map(|text| (name, text))) {
        let placement: Placement = text.parse().unwrap();
        for seed in seeds(3) {
            let mut random = Random(seed);
            let capacity = 1 + random.below(200);
            let spec = Spec::parse(name).unwrap();
            let level = Level::new(&spec, capacity, &placement, ALLOCATE, 1).unwrap();
            let mut ours = Tree::line(None, vec![level]).unwrap();
            ours.set_store_busy(0, 0.3);
            let mut held: Vec<u32> = Vec::new();
            for step in 0..4000 {
                let block = random.block(3 * capacity + 20);
                held.retain(|&b| b != block);
                ours.refer(Reference::new(block, random.below(9) == 0));
                held.push(block);
                if held.len() > 20 {
                    let gone = held.remove(0);
                    // Some evictions never become known.
                    if gone % 4 > 0 {
                        ours.client_evicted(gone.into());
                    }
                }
                if step % 16 == 0 {
                    validate(&ours)
                        .unwrap_or_else(|e| panic!("{name} {text} UNDERCROFT_SEED={seed}: {e}"));
                }
            }
        }
    }
    let mut exact = hierarchy(&[("lru", 20), ("lru", 40)], "eviction,on-hit=adaptive");
    let mut random = Random(1);
    for _ in 0..20_000 {
        exact.refer(Reference::read(random.block(200)));
    }
    assert_eq!(exact.lower()[0].placement().unwrap().counts().foreseen, 0);
}

/// A client that tells nothing is served as with placement at the access, count for count and block
/// for block.
#[test]
fn auto_below_a_silent_client_is_placement_at_the_access() {
    for name in names() {
        for mode in [WriteMode::Allocate, WriteMode::NoAllocate, WriteMode::Invalidate] {
            for seed in seeds(2) {
                let mut random = Random(seed);
                let capacity = 1 + random.below(200);
                let spec = Spec::parse(name).unwrap();
                let level = |placement: &str| {
                    let placement = placement.parse().unwrap();
                    let level = Level::new(&spec, capacity, &placement, mode, 7).unwrap();
                    level.knowing_clients(None, Knowledge::default(), 7)
                };
                let (mut auto, mut access) = (level("auto"), level("access"));
                for _ in 0..4000 {
                    let block = random.block(3 * capacity + 20).into();
                    let is_write = random.below(3) == 0;
                    let asker = Asker { tells: false, connected: 1, ..Asker::default() };
                    let request =
                        Request { block, is_write, is_whole: true, is_streamed: false, asker };
                    let served = auto.request(&request, || false);
                    assert_eq!(
                        served,
                        access.request(&request, || false),
                        "{name} {mode:?} {seed}"
                    );
                    assert_eq!(auto.evicted(), access.evicted(), "{name} {mode:?} {seed}");
                    assert_eq!(auto.next_placement(), None);
                }
                assert_eq!(
                    auto.cache().counts(),
                    access.cache().counts(),
                    "{name} {mode:?} {seed}"
                );
                auto.validate().unwrap();
            }
        }
    }
}

/// `auto` begins with placement at the access. It changes when contents come with evictions, or
/// when the store has time for reloads, and if that saves reads.
#[test]
fn auto_places_at_eviction_on_evidence() {
    let loops = |upper: u32, blocks: u32, placement: &str, busy: f64| {
        let mut levels = hierarchy(&[("lru", upper), ("lru", 64)], placement);
        levels.set_store_busy(0, busy);
        assert!(!levels.lower()[0].placement().unwrap().places_evicted());
        assert!(
            levels.lower()[0].placement().unwrap().asks_for_contents(),
            "to learn who hands any over"
        );
        (0..20_000).for_each(|n| _ = levels.refer(Reference::new(n % blocks, false)));
        validate(&levels).unwrap();
        let lower = &levels.lower()[0];
        let placed = lower.placement().unwrap().counts();
        (
            lower.placement().unwrap().places_evicted(),
            lower.cache().counts().read_hits,
            placed.reloads,
            placed.demotions_in,
        )
    };
    // A loop that fits both caches together, and neither alone.
    let (exclusive, hits, reloads, contents) = loops(40, 90, "auto", 1.0);
    assert!(exclusive && hits > 19_000 && reloads == 0 && contents > 19_000, "{hits} {contents}");
    // Without contents: a reload for each hit gains nothing, unless the store is idle.
    let (exclusive, hits, reloads, _) = loops(40, 90, "auto,down=reload", 1.0);
    assert!(!exclusive && hits == 0 && reloads == 0, "{hits} {reloads}");
    let (exclusive, hits, reloads, _) = loops(40, 90, "auto,down=reload", 0.1);
    assert!(exclusive && hits > 19_000 && reloads > 19_000, "{hits} {reloads}");
    // The lower cache holds the whole loop anyway: nothing is to be gained.
    for down in ["auto", "auto,down=reload"] {
        let (exclusive, hits, reloads, contents) = loops(4, 50, down, 0.1);
        assert!(!exclusive && hits > 19_000 && reloads + contents == 0, "{down}: {hits}");
    }
}
