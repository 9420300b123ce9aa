//! Random numbers for the tests of this folder.

/// Numbers below `end`, from `UNDERCROFT_SEED` or the clock, which is printed.
pub(crate) fn random() -> impl FnMut(u64) -> u64 {
    let mut random = undercroft_random::SplitMix64::new(undercroft_random::testing::seed());
    move |end| random.below(end)
}
