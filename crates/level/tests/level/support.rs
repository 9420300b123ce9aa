//! What tests share: random numbers, seeds, and the letters of the worked examples.

use serde_json::Value;

pub(crate) use undercroft_random::testing::{Random, seeds};

/// A list of letters as blocks: A = 0, B = 1, ...
pub(crate) fn letters(list: &Value) -> Vec<u32> {
    let letter = |v: &Value| u32::from(v.as_str().unwrap().as_bytes()[0] - b'A');
    list.as_array().unwrap().iter().map(letter).collect()
}
