//! What tests share: random numbers, seeds, and the letters of the worked examples.

use serde_json::Value;

/// SplitMix64.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, n: u32) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ z >> 31) % u64::from(n)) as u32
    }

    /// Skewed: small numbers come often.
    pub(crate) fn block(&mut self, n: u32) -> u32 {
        let a = self.below(n);
        if self.below(3) == 0 { a } else { self.below(a + 1) }
    }
}

/// The seed of the environment, or this many of our own.
pub(crate) fn seeds(count: u64) -> Vec<u64> {
    match std::env::var("UNDERCROFT_SEED") {
        Ok(seed) => vec![seed.parse().expect("UNDERCROFT_SEED is a number")],
        Err(_) => (1..=count).collect(),
    }
}

/// A list of letters as blocks: A = 0, B = 1, ...
pub(crate) fn letters(list: &Value) -> Vec<u32> {
    let letter = |v: &Value| u32::from(v.as_str().unwrap().as_bytes()[0] - b'A');
    list.as_array().unwrap().iter().map(letter).collect()
}
