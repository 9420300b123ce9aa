//! Batches of evictions must have the effect of single ones.

use crate::hashed::Referred;
use crate::level::{ClientEviction, Knowledge, Level, PlacementStep, Sender, WriteMode};
use crate::placement::random::random;
use crate::placement::{DataSource, Placement};
use undercroft_policy::{Spec, policies};

/// Does what a caller does about an evicted block.
fn carry_out(level: &mut Level, block: u64, step: PlacementStep) -> PlacementStep {
    if step == PlacementStep::Fetch {
        level.arrived(block, DataSource::Reload);
    }
    step
}

/// Reports evictions together. Returns what there was to do.
fn evict_together(level: &mut Level, blocks: &[u64]) -> Vec<PlacementStep> {
    let sender = Sender { client: 0, arrived_us: 0, connected: 1 };
    let gone = |&block: &u64| ClientEviction { block, evicted_us: 0 };
    level.told_evicted(&blocks.iter().map(gone).collect::<Vec<_>>(), sender);
    let mut steps = Vec::new();
    while let Some((block, step)) = level.next_placement() {
        steps.push(carry_out(level, block, step));
    }
    steps.retain(|step| *step != PlacementStep::Resident);
    steps
}

/// Compares two levels: one prefetches and receives evictions in batches, the other does neither.
fn compare(policy: &str, placement: &str, random: &mut impl FnMut(u64) -> u64) {
    let placement: Placement = placement.parse().unwrap();
    let spec = Spec::parse(policy).unwrap();
    let level = || Level::new(&spec, 40, &placement, WriteMode::Allocate, 3).unwrap();
    let mut together = level().knowing_clients(None, Knowledge::default(), 3);
    let mut each = level();
    for step in 0..400 {
        let mut blocks: Vec<u64> = (0..random(12)).map(|_| random(100)).collect();
        if random(2) == 0 {
            let steps = evict_together(&mut together, &blocks);
            let expected = blocks.iter().map(|&block| {
                let step = each.client_evicted(block);
                carry_out(&mut each, block, step)
            });
            let expected: Vec<_> =
                expected.filter(|step| *step != PlacementStep::Resident).collect();
            assert_eq!(steps, expected, "{policy}, step {step}");
        } else {
            together.prefetch(&blocks, &mut Vec::new());
            // The event that follows may concern another block.
            if random(4) == 0 {
                blocks.retain(|_| random(3) > 0);
                blocks.push(random(100));
            }
            for block in blocks {
                let how = random(8);
                let reference = |level: &mut Level| match how {
                    0 => level.reference(block, true, || false),
                    1 => level.reference_by_access(block, false, false),
                    2 => Referred { hit: false, before: level.discard(block), now: None },
                    _ => level.reference(block, false, || false),
                };
                assert_eq!(reference(&mut together), reference(&mut each), "{policy}, step {step}");
                while let Some((block, step)) = each.next_placement() {
                    assert_eq!(together.next_placement(), Some((block, step)));
                    carry_out(&mut together, block, step);
                    carry_out(&mut each, block, step);
                }
                assert_eq!(together.next_placement(), None);
            }
        }
        assert_eq!(together.cache().residents(), each.cache().residents(), "{policy}, step {step}");
        assert_eq!(together.cache().counts(), each.cache().counts(), "{policy}, step {step}");
        assert_eq!(
            together.placement().unwrap().counts(),
            each.placement().unwrap().counts(),
            "{policy}, step {step}"
        );
        together.validate().unwrap();
    }
}

#[test]
fn many_blocks_together_are_one_after_the_other() {
    let mut random = random();
    for info in policies().iter().filter(|info| info.name != "opt") {
        for placement in [
            "eviction,on-hit=keep",
            "eviction,on-hit=keep,threshold=2,staging=8",
            "eviction,on-hit=move",
            "eviction",
        ] {
            compare(info.name, placement, &mut random);
        }
    }
}
