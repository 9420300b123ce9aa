//! What a policy remembers survives a restart: a cache that is saved and loaded goes on exactly as
//! one that was not interrupted, for every policy and every operation; and bytes that no cache
//! saved are refused, or make a cache whose invariants hold.
//!
//! `UNDERCROFT_SEED=n` runs one seed again.

use crate::variants::VARIANTS;
use undercroft_level::{HashedCache, KnownBlocks};
use undercroft_policy::{Context, Spec, policies};

/// Every policy that can be saved with its defaults, then the variants.
fn specs() -> Vec<Spec> {
    let defaults = policies().iter().map(|info| info.name).filter(|&name| name != "opt");
    let more = ["arc,step=whole", "w-tinylfu,sketch=exact", "w-tinylfu,window=0.3,sketch=exact"];
    let texts = defaults.chain(VARIANTS.iter().copied()).chain(more);
    texts.map(|text| Spec::parse(text).expect(text)).collect()
}

/// SplitMix64.
struct Random(u64);

impl Random {
    /// The seed of the environment, or a fixed one; printed either way.
    fn seeded() -> Self {
        let given = std::env::var("UNDERCROFT_SEED").ok();
        let seed =
            given.map_or(20_261_121, |text| text.parse().expect("UNDERCROFT_SEED: a number"));
        println!("UNDERCROFT_SEED={seed}");
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    /// Skewed: small numbers come often.
    fn block(&mut self, n: u64) -> u64 {
        let a = self.below(n);
        if self.below(3) == 0 { a } else { self.below(a + 1) }
    }

    fn call(&mut self, blocks: u64, capacity: u32) -> Call {
        // Some next to each other, some far apart.
        let block = self.block(blocks).wrapping_mul(0x4000_0000_0000_0001);
        match self.below(24) {
            0..=11 => Call::Access(block),
            12..=14 => Call::Place(block),
            15..=17 => Call::Take(block),
            18 | 19 => Call::Note(block),
            20 => Call::Discard(block),
            21 | 22 => Call::Touch(block),
            _ if self.below(4) == 0 => Call::Resize(1 + self.below(2 * u64::from(capacity)) as u32),
            _ => Call::Access(block),
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Call {
    Access(u64),
    Touch(u64),
    Take(u64),
    Note(u64),
    Place(u64),
    Discard(u64),
    Resize(u32),
}

/// Whether the block was found, and everything that left.
fn step(cache: &mut HashedCache, call: Call) -> (bool, Vec<u64>) {
    let found = match call {
        Call::Access(block) => cache.access(block).hit,
        Call::Touch(block) => cache.touch(block).is_some(),
        Call::Take(block) => cache.take(block).is_some(),
        Call::Note(block) => {
            cache.note(block);
            false
        }
        Call::Place(block) => cache.place(block).hit,
        Call::Discard(block) => cache.discard(block).is_some(),
        Call::Resize(capacity) => {
            cache.resize(capacity);
            false
        }
    };
    (found, cache.evicted().iter().map(|evicted| evicted.block).collect())
}

fn fresh(spec: &Spec, capacity: u32) -> HashedCache {
    HashedCache::new(spec.build(&Context::new(capacity)).expect("a policy"), 1)
}

fn load(spec: &Spec, capacity: u32, bytes: &[u8]) -> Result<HashedCache, String> {
    let policy = spec.build(&Context::new(capacity)).expect("a policy");
    HashedCache::load(policy, 2, bytes).map_err(|refused| refused.to_string())
}

fn restarted(spec: &Spec, cache: &mut HashedCache) -> HashedCache {
    let capacity = cache.policy().capacity();
    let bytes = cache.save().unwrap_or_else(|e| panic!("{spec}: {e}"));
    let again = load(spec, capacity, &bytes).unwrap_or_else(|e| panic!("{spec}: {e}"));
    let blocks = |cache: &HashedCache| {
        let mut blocks: Vec<_> = cache.residents().into_iter().map(|(block, _)| block).collect();
        blocks.sort_unstable();
        blocks
    };
    assert_eq!(blocks(&again), blocks(cache), "{spec}");
    let mut listed = KnownBlocks::residents_of(&bytes).expect("a list");
    listed.sort_unstable();
    assert_eq!(listed, blocks(cache), "{spec}");
    again
}

/// Two caches, of which one is restarted now and then, must not be told apart.
fn compare(
    spec: &Spec,
    capacity: u32,
    calls: &[Call],
    mut restart_before: impl FnMut(usize) -> bool,
) {
    let (mut steady, mut twin) = (fresh(spec, capacity), fresh(spec, capacity));
    for (i, &call) in calls.iter().enumerate() {
        if restart_before(i) {
            twin = restarted(spec, &mut twin);
        }
        let what = || format!("{spec}, capacity {capacity}, call {i} of {:?}", &calls[..=i]);
        assert_eq!(twin.victim(), steady.victim(), "{}", what());
        assert_eq!(step(&mut twin, call), step(&mut steady, call), "{}", what());
        twin.validate().unwrap_or_else(|e| panic!("{}: {e}", what()));
        let known = |cache: &HashedCache| {
            let mut known: Vec<_> = cache.known().blocks().collect();
            known.sort_unstable();
            known
        };
        assert_eq!(known(&twin), known(&steady), "{}", what());
    }
}

#[test]
fn a_restarted_cache_goes_on_as_if_nothing_had_happened() {
    let mut random = Random::seeded();
    for spec in specs() {
        for round in 0..60 {
            let capacity = 1 + random.below(if round % 2 == 0 { 6 } else { 40 }) as u32;
            let blocks = u64::from(capacity) + 1 + random.below(3 * u64::from(capacity));
            let calls: Vec<_> = (0..500).map(|_| random.call(blocks, capacity)).collect();
            // Often, seldom, once.
            let every = [3, 40, 250][round % 3];
            compare(&spec, capacity, &calls, |_| random.below(every) == 0);
        }
    }
}

/// References alone, many of them: clocks, halvings and adaptation go far.
#[test]
fn nor_does_a_long_life_make_a_difference() {
    let mut random = Random::seeded();
    for spec in specs() {
        for capacity in [20, 100] {
            let calls = (0..6000).map(|_| Call::Access(random.block(4 * u64::from(capacity))));
            let calls: Vec<_> = calls.collect();
            compare(&spec, capacity, &calls, |i| i % 1500 == 1100);
        }
    }
}

/// Every string of a few calls in a small world, with a restart before each call. Strings are equal
/// up to the names of blocks: only those that meet the blocks in order of their names are run.
#[test]
fn every_short_string() {
    const CALLS: [fn(u64) -> Call; 5] =
        [Call::Access, Call::Take, Call::Note, Call::Place, Call::Discard];
    fn extend(string: &mut Vec<Call>, met: u64, run: &mut dyn FnMut(&[Call])) {
        if string.len() == 4 {
            return run(string);
        }
        for block in 0..=met.min(2) {
            for call in CALLS {
                string.push(call(block));
                extend(string, met.max(block + 1), run);
                string.pop();
            }
        }
    }
    for spec in specs() {
        for capacity in [1, 2] {
            let mut run = |string: &[Call]| compare(&spec, capacity, string, |_| true);
            extend(&mut Vec::new(), 0, &mut run);
        }
    }
}

/// Saves of caches in all kinds of states.
fn saves(spec: &Spec, random: &mut Random) -> Vec<(u32, Vec<u8>)> {
    let mut saves = Vec::new();
    for capacity in [1, 2, 5, 30] {
        let mut cache = fresh(spec, capacity);
        for length in [0, 3, 40, 400] {
            for _ in 0..length {
                let call = random.call(3 * u64::from(capacity) + 1, capacity);
                step(&mut cache, call);
            }
            saves.push((cache.policy().capacity(), cache.save().expect("a save")));
        }
    }
    saves
}

/// A cache that was made of doubtful bytes must stand whatever comes: true if there is one.
fn try_out(spec: &Spec, capacity: u32, bytes: &[u8], random: &mut Random) -> bool {
    let Ok(mut cache) = load(spec, capacity, bytes) else { return false };
    assert_eq!(cache.policy().capacity(), capacity);
    for _ in 0..60 {
        cache.victim();
        let call = random.call(3 * u64::from(capacity) + 1, capacity);
        step(&mut cache, call);
        let right = cache.validate();
        right.unwrap_or_else(|e| panic!("{spec}, capacity {capacity}, {bytes:?}: {e}"));
    }
    true
}

fn mutated(bytes: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..1 + random.below(3) {
        let at = random.below(bytes.len() as u64 + 1) as usize;
        match random.below(6) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, [0, 1, 2, 0x7f, 0x80, 0xff][random.below(6) as usize]),
            2 if at < bytes.len() => drop(bytes.remove(at)),
            3 => {
                let other = random.below(bytes.len() as u64 + 1) as usize;
                let (from, to) = (at.min(other), at.max(other));
                bytes[from..to].reverse();
            }
            4 if at < bytes.len() => bytes[at] = bytes[at].wrapping_add(1),
            _ if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
            _ => {}
        }
    }
    bytes
}

#[test]
fn damaged_bytes_are_refused_or_make_a_sound_cache() {
    let mut random = Random::seeded();
    let (mut taken, mut refused) = (0, 0);
    for spec in specs() {
        for (capacity, bytes) in saves(&spec, &mut random) {
            assert!(try_out(&spec, capacity, &bytes, &mut random), "{spec}: undamaged");
            assert!(!try_out(&spec, capacity + 1, &bytes, &mut random), "another capacity");
            for _ in 0..120 {
                let damaged = mutated(&bytes, &mut random);
                let is_taken = try_out(&spec, capacity, &damaged, &mut random);
                *(if is_taken { &mut taken } else { &mut refused }) += 1;
            }
            for length in 0..bytes.len().min(200) {
                assert!(!try_out(&spec, capacity, &bytes[..length], &mut random), "{spec}: cut");
            }
        }
    }
    println!("{taken} damaged saves were taken, {refused} refused");
    assert!(taken > 0 && refused > taken, "the damage is too little or too much");
}

/// Nobody but the policy that saved them is promised anything; nobody breaks.
#[test]
fn bytes_of_another_policy_do_no_harm() {
    let mut random = Random::seeded();
    for from in specs() {
        for (capacity, bytes) in saves(&from, &mut random) {
            for to in specs() {
                try_out(&to, capacity, &bytes, &mut random);
            }
        }
    }
}

#[test]
fn large_claims_cost_nothing() {
    for spec in specs() {
        for capacity in [1, 1000, u32::MAX >> 1] {
            // The capacity, so many residents, and as many blocks known.
            let mut bytes = Vec::new();
            for mut number in [capacity, capacity, capacity] {
                while number >= 0x80 {
                    bytes.push(number as u8 | 0x80);
                    number >>= 7;
                }
                bytes.push(number as u8);
            }
            bytes.extend([0; 40]);
            // A policy of a small cache: that of a large one takes memory itself.
            assert!(load(&spec, 1, &bytes).is_err(), "{spec}");
        }
    }
    for bytes in [&[][..], &[0xff; 40], &[0x80; 40], &[1, 1, 0xff, 0xff, 0xff, 0x7f, 0, 0]] {
        assert!(specs().iter().all(|spec| load(spec, 1, bytes).is_err()), "{bytes:?}");
    }
}
