//! Two levels on block numbers from standard input, one a line, for counting instructions: under
//! `valgrind --tool=callgrind --toggle-collect='*Pair::reference*'` nothing else is counted.
//!
//! Usage: content_cost UPPER LOWER BLOCKS

use std::collections::HashMap;
use std::io::Read;

use undercroft_level::content::Pair;
use undercroft_policy::{Reference, Spec, WriteMode};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, upper, lower, blocks] = &arguments[..] else {
        return Err("usage: content_cost UPPER LOWER BLOCKS".into());
    };
    let (upper, lower, blocks): (Spec, Spec, u32) =
        (upper.parse()?, lower.parse()?, blocks.parse()?);
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text)?;
    let mut numbers = HashMap::new();
    let refs: Vec<u32> = text
        .split_ascii_whitespace()
        .map(|word| {
            let next = numbers.len() as u32;
            *numbers.entry(word).or_insert(next)
        })
        .collect();
    let names = (0..numbers.len() as u32).map(u64::from);
    let mut pair = Pair::new([(&upper, blocks), (&lower, blocks)], WriteMode::Allocate, names)?;
    let found = refs.iter().filter(|&&r| pair.reference(Reference::read(r)).is_some()).count();
    println!("{} requests, {found} served", refs.len());
    Ok(())
}
