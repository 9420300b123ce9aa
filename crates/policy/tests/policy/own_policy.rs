//! The example of a policy that is written outside of the crate: it runs where others do, against a
//! naive model, in a simulation, and through a restart.

#[path = "../../examples/own_policy.rs"]
mod example;

use example::{Lip, hit_ratio, survives_a_restart};
use undercroft_policy::{Context, Evictions, Policy, Spec};
use undercroft_random::testing::{Random, seeds};

#[test]
fn it_agrees_with_a_naive_model() {
    for seed in seeds(20) {
        let mut random = Random(seed);
        let mut capacity = 1 + random.below(12);
        let mut ours: Box<dyn Policy> = Box::new(Lip::new(capacity));
        ours.grow(40);
        let mut model: Vec<u32> = Vec::new();
        for step in 0..2000 {
            let entry = random.block(40);
            let at = model.iter().position(|&e| e == entry);
            let (mut out, mut evicted) = (Evictions::new(), Vec::new());
            let is_full = model.len() == capacity as usize;
            assert_eq!(ours.victim(), model.first().copied().filter(|_| is_full));
            match random.below(12) {
                0 => {
                    ours.discard(entry, &mut out);
                    at.map(|at| model.remove(at));
                }
                1 => {
                    capacity = 1 + random.below(12);
                    ours.resize(capacity, &mut out);
                    evicted.extend(model.drain(..model.len().saturating_sub(capacity as usize)));
                }
                _ => {
                    assert_eq!(ours.access(entry, &mut out), at.is_some());
                    if let Some(at) = at {
                        let entry = model.remove(at);
                        model.push(entry);
                    } else {
                        evicted.extend(is_full.then(|| model.remove(0)));
                        model.insert(0, entry);
                    }
                }
            }
            ours.validate().unwrap_or_else(|e| panic!("UNDERCROFT_SEED={seed} step {step}: {e}"));
            assert_eq!(ours.residents(), model, "UNDERCROFT_SEED={seed} step {step}");
            assert_eq!(out.evicted().collect::<Vec<_>>(), evicted);
        }
    }
}

/// A loop of which LRU keeps nothing: LIP keeps all but one block of what fits in.
#[test]
fn it_is_simulated_as_others_are() {
    let lru = Spec::parse("lru").unwrap().build(&Context::new(90)).unwrap();
    assert_eq!(hit_ratio(lru, 100), 0.0);
    let lip = hit_ratio(Box::new(Lip::new(90)), 100);
    assert!((0.79..0.82).contains(&lip), "{lip}");
}

#[test]
fn it_goes_on_after_a_restart() {
    assert!(survives_a_restart().unwrap());
}
