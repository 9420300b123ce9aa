//! What is done for many blocks at once is what happens to one after the other.

use super::*;
use crate::placement::random::random;
use crate::policy::policies;

/// What a user does about an evicted block.
fn carry_out(level: &mut LowerLevel, block: u64, down: Down) -> Down {
    if down == Down::Fetch {
        level.arrived(block, WayDown::Reload);
    }
    down
}

/// Evictions told of together: of each block what there was to do.
fn evict_together(level: &mut LowerLevel, blocks: &[u64]) -> Vec<Down> {
    let mut found = Vec::new();
    level.find_all(blocks, &mut found);
    let (mut done, mut downs) = (0, Vec::new());
    while let Some((count, down)) = level.evicted_all(&blocks[done..], &found[done..]) {
        downs.extend(std::iter::repeat_n(Down::Resident, count - 1));
        downs.push(carry_out(level, blocks[done + count - 1], down));
        done += count;
    }
    downs.extend(std::iter::repeat_n(Down::Resident, blocks.len() - done));
    downs
}

/// Two levels, of which one is told beforehand what is referenced, and of evictions together.
fn compare(policy: &str, placement: &str, random: &mut impl FnMut(u64) -> u64) {
    let placement: Placement = placement.parse().unwrap();
    let spec = Spec::parse(policy).unwrap();
    let level = || LowerLevel::new(&spec, 40, &placement, WriteMode::Allocate, 3).unwrap();
    let (mut together, mut each) = (level(), level());
    for step in 0..400 {
        let mut blocks: Vec<u64> = (0..random(12)).map(|_| random(100)).collect();
        if random(2) == 0 {
            let downs = evict_together(&mut together, &blocks);
            let expected = blocks.iter().map(|&block| {
                let down = each.evicted(block);
                carry_out(&mut each, block, down)
            });
            assert_eq!(downs, expected.collect::<Vec<_>>(), "{policy}, step {step}");
        } else {
            together.warm(&blocks, &mut Vec::new());
            // What comes may be something else.
            if random(4) == 0 {
                blocks.retain(|_| random(3) > 0);
                blocks.push(random(100));
            }
            for block in blocks {
                let how = random(8);
                let reference = |level: &mut LowerLevel| match how {
                    0 => level.write(block),
                    1 => level.access(block, false, false),
                    2 => Referred { hit: false, before: level.discard(block), now: None },
                    _ => level.read(block, false),
                };
                assert_eq!(reference(&mut together), reference(&mut each), "{policy}, step {step}");
                while let Some((block, down)) = each.foreseen() {
                    assert_eq!(together.foreseen(), Some((block, down)));
                    carry_out(&mut together, block, down);
                    carry_out(&mut each, block, down);
                }
                assert_eq!(together.foreseen(), None);
            }
        }
        assert_eq!(together.cache().residents(), each.cache().residents(), "{policy}, step {step}");
        assert_eq!(together.counts(), each.counts(), "{policy}, step {step}");
        assert_eq!(together.placement_counts(), each.placement_counts(), "{policy}, step {step}");
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
