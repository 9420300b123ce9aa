//! Random numbers for the tests of this folder.

/// SplitMix64, from `UNDERCROFT_SEED` or the clock, which is printed: numbers below `end`.
pub(super) fn random() -> impl FnMut(u64) -> u64 {
    let clock = || std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
    let given = std::env::var("UNDERCROFT_SEED").ok();
    let mut state = given.map_or_else(clock, |seed| seed.parse().unwrap());
    println!("UNDERCROFT_SEED={state}");
    move |end| {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }
}
