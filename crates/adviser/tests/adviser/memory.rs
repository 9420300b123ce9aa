//! The adviser keeps its budget.

use undercroft_adviser::{Adviser, Options, budget, known_blocks, level_bytes};
use undercroft_level::Level;
use undercroft_level::placement::Placement;
use undercroft_policy::{Spec, WriteMode, policies};
use undercroft_random::SplitMix64;

use crate::support::{feed, skewed, today};

/// Most bytes at a time, and most known blocks, while a level of a policy sees many blocks, a part
/// of them often.
fn measured(policy: &undercroft_policy::Spec, placement: &str, blocks: u32) -> (u64, u32) {
    let placement: Placement = placement.parse().unwrap();
    let (mut random, mut known) = (SplitMix64::new(1), 0);
    let work = || {
        let mut level = Level::new(policy, blocks, &placement, WriteMode::Allocate, 1).unwrap();
        level.make_room(known_blocks(policy, blocks));
        for distinct in 0..u64::from(blocks) * 30 {
            let (popular, _) = skewed(&mut random, u64::from(blocks) * 8);
            level.reference(popular, distinct % 5 == 0, || false);
            level.reference((1 << 40) + distinct, false, || false);
            if placement != Placement::Access {
                let down = level.client_evicted(popular);
                if down == undercroft_level::PlacementStep::Fetch {
                    level.arrived(popular, undercroft_level::placement::DataSource::Reload);
                }
            }
        }
        known = level.cache().known().most();
    };
    let bytes = allocation_counter::measure(work).bytes_max;
    (bytes, known)
}

#[test]
fn levels_take_no_more_than_is_reckoned_with() {
    let mut wrong = Vec::new();
    let of_servers =
        policies().iter().filter(|info| !info.is_content_aware() && info.name != "opt");
    for policy in of_servers.map(|info| Spec::parse(info.name).unwrap()) {
        let mut nearest: f64 = 0.0;
        for placement in ["access", "eviction,on-hit=move", "eviction,on-hit=move,threshold=2"] {
            for blocks in [100, 700, 1000, 1300, 1800, 2200, 2400] {
                let rules = match placement.parse() {
                    Ok(Placement::Eviction(rules)) => Some(rules),
                    _ => None,
                };
                let most = level_bytes(&policy, rules.as_ref(), blocks);
                let (bytes, known) = measured(&policy, placement, blocks);
                let each = bytes / u64::from(blocks);
                println!("{policy} {placement} {blocks}: {each} a block, {known} known");
                if placement == "access" {
                    nearest = nearest.max(bytes as f64 / most as f64);
                }
                if bytes > most {
                    wrong.push(format!("{policy} {placement} {blocks}: {bytes} > {most}"));
                }
                if known > known_blocks(&policy, blocks) {
                    wrong.push(format!("{policy} {placement} {blocks}: {known} blocks"));
                }
            }
        }
        // A policy that is reckoned with too much gets too small a sample.
        if nearest < 0.6 {
            wrong.push(format!("{policy}: at most {nearest:.2} of what is reckoned with"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn an_adviser_keeps_its_budget() {
    for (cache_mib, placement) in [(64, "access"), (1024, "access"), (64, "eviction"), (64, "auto")]
    {
        let cache_bytes = cache_mib << 20;
        let budget = budget(cache_bytes);
        let options = Options { budget, room: budget / 8, ..Options::default() };
        let blocks = (cache_bytes / 4096) as u32;
        let mut today = today("lru", blocks);
        today.placement = placement.parse().unwrap();
        let mut random = SplitMix64::new(7);
        let memory = allocation_counter::measure(|| {
            let mut adviser = Adviser::new(today.clone(), &options).unwrap();
            assert!(adviser.figures().bytes <= options.budget);
            let mut distinct = 0;
            let mut stream = std::iter::repeat_with(|| {
                distinct += 1;
                match distinct % 2 {
                    0 => skewed(&mut random, u64::from(blocks) * 6),
                    _ => crate::support::read((1 << 40) + distinct),
                }
            });
            // Enough for many exchanges of policies.
            feed(&mut adviser, stream.by_ref().take(blocks as usize * 20));
            // It grows by as much as there is room for, and once more is too much.
            assert!(adviser.resize(blocks + blocks / 10, budget));
            feed(&mut adviser, stream.take(blocks as usize * 10));
            assert!(!adviser.resize(blocks + blocks / 4, budget));
            println!("{cache_mib} MiB {placement}: rate {:.4}", adviser.sample().rate());
        });
        // The events that the test feeds, a thousand at a time, are not the adviser's.
        let most = budget + (64 << 10);
        assert!(memory.bytes_max <= most, "{} of {most} for {cache_mib} MiB", memory.bytes_max);
        // 2 % of the cache is not to be had for less than what the sizes and policies take.
        assert!(memory.bytes_max > options.budget / 6, "{} is hardly used", memory.bytes_max);
    }
}
