//! The hashed cache counts exactly what a level counts, for every policy and write mode.
//!
//! `UNDERCROFT_SEED=n` runs one seed again.

use undercroft_level::{DenseLevel, HashedCache};
use undercroft_policy::{Context, Counts, Reference, Spec, WriteMode, policies};
use undercroft_random::SplitMix64;
use undercroft_random::testing::seed_or;

#[test]
fn hashed_cache_and_level_agree() {
    let mut random = SplitMix64::new(seed_or(20_261_121));
    let modes = [WriteMode::Allocate, WriteMode::NoAllocate, WriteMode::Invalidate];
    for info in policies().iter().filter(|info| info.name != "opt") {
        let spec = Spec::parse(info.name).unwrap();
        for mode in modes {
            for capacity in [1, 2, 7, 50] {
                agree(&spec, mode, capacity, &mut random);
            }
        }
    }
}

fn agree(spec: &Spec, mode: WriteMode, capacity: u32, random: &mut SplitMix64) {
    let build = || spec.build(&Context::new(capacity)).unwrap();
    let mut level = DenseLevel::new(build(), mode);
    let mut cache = HashedCache::new(build(), random.next_u64());
    // Blocks are numbered by first touch, as a trace's are, and lie far apart in the cache.
    let mut known = 0_u32;
    for step in 0..2_000 {
        let world = u64::from(capacity) * 3;
        let wanted = (random.next_u64() % world).min(random.next_u64() % world) as u32;
        let entry = wanted.min(known);
        let cold = entry == known;
        known += u32::from(cold);
        let is_write = random.next_u64() % 4 == 0;
        let block = u64::from(entry) * 0x1_0000_0001;
        if cold {
            level.bind(entry, [block].into_iter());
        }
        let hit = level.reference(known, Reference::new(entry, is_write));
        let frame_before = cache.frame(block);
        let served = cache.reference(block, is_write, mode, || cold);
        assert_eq!(served.hit, hit, "{spec} {mode:?} capacity {capacity} step {step}");
        assert_eq!((served.before, served.now), (frame_before, cache.frame(block)));
        let counts = Counts { known, ..*cache.counts() };
        assert_eq!(&counts, level.counts(), "{spec} {mode:?} capacity {capacity} step {step}");
        cache.validate().unwrap();
    }
}
