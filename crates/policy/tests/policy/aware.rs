//! Content-aware policies beside those that they are made from: with nothing known, with knowledge
//! that is of no use, and with a window of one block they do the same, step by step, under every
//! operation; with knowledge they do not. That they do what they should is for the naive models to
//! say (`conformance.rs`).
//!
//! A failure prints the seed; `UNDERCROFT_SEED=n` runs that one again.

use undercroft_policy::{Awareness, Context, Eviction, Evictions, Knows, Policy, Spec};
use undercroft_random::testing::{Random, seeds};

/// Each content-aware policy with what it is made from.
const PAIRS: [(&str, &str); 5] =
    [("lru", "lru-ca"), ("clock", "clock-ca"), ("2q", "2q,ca"), ("arc", "arc,ca"), ("mq", "mq,ca")];

fn policy(text: &str, capacity: u32, blocks: u32) -> Box<dyn Policy> {
    let spec = Spec::parse(text).expect(text);
    let mut policy = spec.build(&Context::new(capacity)).expect(text);
    policy.grow(blocks);
    policy
}

/// What the policy is told before each step.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Told {
    Nothing,
    /// The neighbour holds blocks that are not here, and says in time that it does not.
    Elsewhere,
    /// The neighbour holds everything, so that every victim is as good as any.
    Everything,
    /// Anything.
    Anything,
}

/// One random call on a policy.
fn call(policy: &mut dyn Policy, random: &mut Random, blocks: u32, capacity: u32) -> Vec<Eviction> {
    let mut out = Evictions::new();
    let entry = random.block(blocks);
    match random.below(24) {
        0..=11 => _ = policy.access(entry, &mut out),
        12..=14 => policy.place(entry, &mut out),
        15..=17 if policy.contains(entry) => policy.take(entry, &mut out),
        18 | 19 if !policy.contains(entry) => policy.note(entry, &mut out),
        20 => policy.discard(entry, &mut out),
        21 => policy.resize(1 + random.below(2 * capacity), &mut out),
        _ => (),
    }
    out.iter().collect()
}

/// Whether both do the same all the time.
fn agree(base: &str, aware: &str, told: Told, seed: u64) -> bool {
    let mut random = Random(seed);
    let capacity = 1 + random.below(30);
    let blocks = capacity + 1 + random.below(3 * capacity);
    let (mut base, mut aware) = (policy(base, capacity, blocks), policy(aware, capacity, blocks));
    assert!(aware.is_content_aware() && !base.is_content_aware());
    for _ in 0..1500 {
        let entry = random.block(blocks);
        match told {
            Told::Nothing => (),
            Told::Elsewhere => (0..blocks).for_each(|e| aware.neighbour_holds(e, false)),
            Told::Everything => (0..blocks).for_each(|e| aware.neighbour_holds(e, true)),
            Told::Anything => aware.neighbour_holds(entry, random.below(3) == 0),
        }
        if told == Told::Elsewhere && !aware.contains(entry) {
            aware.neighbour_holds(entry, true);
            aware.neighbour_holds(entry, false);
        }
        let state = random.0;
        let left = call(base.as_mut(), &mut random, blocks, capacity);
        random.0 = state;
        let same = left == call(aware.as_mut(), &mut random, blocks, capacity)
            && base.residents() == aware.residents()
            && base.victim() == aware.victim();
        if !same {
            return false;
        }
    }
    true
}

#[test]
fn without_useful_knowledge_they_are_what_they_are_made_from() {
    for (base, aware) in PAIRS {
        for seed in seeds(25) {
            for told in [Told::Nothing, Told::Elsewhere, Told::Everything] {
                for alpha in ["0.5", "1"] {
                    let aware = format!("{aware},alpha={alpha}");
                    assert!(
                        agree(base, &aware, told, seed),
                        "{aware} {told:?} UNDERCROFT_SEED={seed}"
                    );
                }
            }
            let one = format!("{aware},alpha=0");
            assert!(agree(base, &one, Told::Anything, seed), "{one} UNDERCROFT_SEED={seed}");
        }
    }
}

#[test]
fn with_knowledge_they_are_not() {
    for (base, aware) in PAIRS {
        let differ = (1..=10).filter(|&seed| !agree(base, aware, Told::Anything, seed)).count();
        assert!(differ >= 8, "{aware}: {differ} of 10");
    }
}

/// A block that the neighbour holds goes as long as it is within the window, and not beyond.
#[test]
fn the_window_is_a_share_of_the_capacity_and_at_least_one() {
    for (_, aware) in PAIRS {
        for (alpha, window) in [("0", 1), ("0.05", 1), ("0.3", 3), ("0.31", 4), ("1", 10)] {
            for held in 0..10 {
                let mut policy = policy(&format!("{aware},alpha={alpha}"), 10, 20);
                let mut out = Evictions::new();
                (0..10).for_each(|e| policy.admit(e, &mut out));
                policy.neighbour_holds(held, true);
                let victim = if held < window { held } else { 0 };
                assert_eq!(policy.victim(), Some(victim), "{aware} {alpha} {held}");
                policy.admit(10, &mut out);
                assert_eq!(out.evicted().collect::<Vec<_>>(), [victim], "{aware} {alpha} {held}");
            }
        }
    }
}

/// The order goes over from one list of ARC to the other.
#[test]
fn the_order_goes_from_list_to_list() {
    let mut out = Evictions::new();
    let mut arc = policy("arc,ca,alpha=1", 4, 20);
    // T2 = {0, 1}, T1 = {2, 3}, p = 0: T1 gives all that it has first.
    [0, 1, 0, 1, 2, 3].into_iter().for_each(|e| _ = arc.access(e, &mut out));
    arc.neighbour_holds(1, true);
    assert_eq!(arc.victim(), Some(1));
    arc.neighbour_holds(3, true);
    assert_eq!(arc.victim(), Some(3));
}

#[test]
fn what_is_asked_for_can_be_read_back() {
    let of = |text: &str| Awareness::of(&Spec::parse(text).unwrap());
    assert_eq!(of("lru"), None);
    assert_eq!(of("mq"), None);
    assert_eq!(of("mq,alpha=0.1"), None);
    let exact =
        Awareness { alpha: 0.5, knows: Knows::Exact, filter_bits: 8, hashes: 4, publish: 0.01 };
    assert_eq!(of("lru-ca"), Some(exact));
    assert_eq!(of("mq,ca"), Some(exact));
    let bloom = "arc,ca,knows=bloom,filter-bits=10,hashes=7,publish=0.05,alpha=1";
    let knows = Knows::Bloom;
    let asked = Awareness { alpha: 1.0, knows, filter_bits: 10, hashes: 7, publish: 0.05 };
    assert_eq!(of(bloom), Some(asked));
    assert_eq!(Spec::parse("mq,ca").unwrap().to_string(), "mq,ca=yes");
    assert!(Spec::parse("mq,m").is_err());
}
