//! Numbering against a hash map, and its limits.

use std::collections::HashMap;

use super::*;
use crate::blocks::tests::seed;
use undercroft_random::SplitMix64;

/// Blocks with every shape that the table treats specially: runs, strides, random, and numbers
/// beyond 32 bits that differ in their high half only.
fn block(random: &mut SplitMix64, last: u64) -> u64 {
    match random.below(6) {
        0..3 => last.wrapping_add(1),
        3 => random.below(5000),
        4 => random.below(1000) << 16,
        _ => random.below(40) << 32 | random.below(3),
    }
}

#[test]
fn numbers_equal_those_of_a_hash_map() {
    let mut random = SplitMix64::new(seed());
    for _ in 0..20 {
        let mut numbering = Renumbering::new();
        let mut model: HashMap<(u32, u64), u32> = HashMap::new();
        let mut last = 0;
        for _ in 0..20 {
            let touched: Vec<(u32, u64)> = (0..random.below(2000))
                .map(|_| {
                    last = block(&mut random, last);
                    ([0, 1, 70_000][random.below(3) as usize], last)
                })
                .collect();
            let keys: Vec<Key> = touched.iter().map(|&(s, b)| numbering.key(s, b)).collect();
            let flags = touched.iter().map(|&(_, b)| Ref::new(0, b % 2 == 1));
            let mut refs: Vec<Ref> = flags.collect();
            numbering.assign(&keys, &mut refs).unwrap();
            for (&(space, block), r) in touched.iter().zip(refs) {
                let next = model.len() as u32;
                let expected = *model.entry((space, block)).or_insert(next);
                assert_eq!((r.block(), r.is_write()), (expected, block % 2 == 1));
                assert_eq!(numbering.names().block(expected), Some((space, block)));
            }
        }
        assert_eq!(numbering.len() as usize, model.len());
        for (&(space, block), &number) in &model {
            assert_eq!(numbering.number(space, block).unwrap(), number);
        }
        assert_eq!(numbering.names().block(numbering.len()), None);
    }
}

#[test]
fn numbers_survive_growth() {
    let mut numbering = Renumbering::new();
    for number in 0..300_000_u32 {
        assert_eq!(numbering.number(0, mix(number.into())).unwrap(), number);
    }
    for number in (0..300_000_u32).step_by(7) {
        assert_eq!(numbering.number(0, mix(number.into())).unwrap(), number);
    }
    assert!(numbering.slots.len() <= 1 << 19, "at most 18.3 bytes of slots a block");
}

#[test]
fn one_block_too_many_is_an_error() {
    let mut numbering = Renumbering::with_limit(3);
    for block in [5, 6, 5, 9] {
        numbering.number(0, block).unwrap();
    }
    let error = numbering.number(1, 5).unwrap_err();
    assert!(error.to_string().contains("more than 3 distinct blocks"), "{error}");
    assert_eq!(numbering.number(0, 9).unwrap(), 2, "known blocks are still found");
}

#[test]
fn names_are_block_numbers_and_tell_spaces_apart() {
    let mut numbering = Renumbering::new();
    let mut names = std::collections::HashSet::new();
    for space in [0, 1, 2, 70_000] {
        for block in [0, 1, 5, 1 << 40] {
            let number = numbering.number(space, block).unwrap();
            let name = numbering.names().name(number);
            assert!(space > 0 || name == block);
            assert!(names.insert(name), "{space}, {block}");
        }
    }
    assert_eq!(numbering.names().name(16), 0, "never given out");
}
