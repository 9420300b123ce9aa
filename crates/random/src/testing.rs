//! What random tests share: their seeds, which `UNDERCROFT_SEED` sets so that a run can be
//! repeated, and a generator of small numbers. Not for programs.

use crate::SplitMix64;

/// The seed of a test: that of `UNDERCROFT_SEED`, or a new one from the clock. It is printed, which
/// the test runner shows when the test fails.
///
/// # Panics
/// `UNDERCROFT_SEED` is not a number.
pub fn seed() -> u64 {
    printed(|| std::time::UNIX_EPOCH.elapsed().map_or(1, |since| since.as_nanos() as u64))
}

/// The seed of a test: that of `UNDERCROFT_SEED`, or the given one. It is printed.
///
/// # Panics
/// `UNDERCROFT_SEED` is not a number.
pub fn seed_or(usual: u64) -> u64 {
    printed(|| usual)
}

/// The seeds of a test that runs with several: that of `UNDERCROFT_SEED`, or `1..=count`.
///
/// # Panics
/// `UNDERCROFT_SEED` is not a number.
pub fn seeds(count: u64) -> Vec<u64> {
    given().map_or_else(|| (1..=count).collect(), |seed| vec![seed])
}

fn printed(usual: impl FnOnce() -> u64) -> u64 {
    let seed = given().unwrap_or_else(usual);
    println!("UNDERCROFT_SEED={seed}");
    seed
}

fn given() -> Option<u64> {
    let text = std::env::var("UNDERCROFT_SEED").ok()?;
    Some(text.parse().expect("UNDERCROFT_SEED is a number"))
}

impl SplitMix64 {
    /// The generator of a random test, which starts from [`seed`].
    pub fn seeded() -> Self {
        Self::new(seed())
    }
}

/// A generator of numbers of 32 bits, as the handles of blocks are. Its field is the seed.
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    /// The next number in `0..n`.
    pub fn below(&mut self, n: u32) -> u32 {
        let mut random = SplitMix64::new(self.0);
        let drawn = random.next_u64();
        *self = Self(random.state);
        (drawn % u64::from(n)) as u32
    }

    /// The next number in `0..n`, skewed: small numbers come often.
    pub fn block(&mut self, n: u32) -> u32 {
        let a = self.below(n);
        if self.below(3) == 0 { a } else { self.below(a + 1) }
    }

    /// True once in `n` draws.
    pub fn one_in(&mut self, n: u32) -> bool {
        self.below(n) == 0
    }
}
