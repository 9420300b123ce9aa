//! What it costs to hold a frame for a reply and to let it go. Prints the figure; fails only when
//! it is out of all proportion, since machines differ.

use std::hint::black_box;
use std::time::Instant;

use undercroft_frames::Memory;

#[test]
fn a_pin_costs_little() {
    let rounds = if cfg!(debug_assertions) { 100_000 } else { 10_000_000_u32 };
    let pool = Memory::new(1).unwrap().pool(64, 4096).unwrap();
    let frames: Vec<_> = std::iter::from_fn(|| pool.take()).map(|f| f.freeze()).collect();
    let start = Instant::now();
    for round in 0..rounds {
        drop(black_box(frames[round as usize % 64].clone()));
    }
    let ns = start.elapsed().as_nanos() as f64 / f64::from(rounds);
    println!("pin and unpin: {ns:.1} ns");
    assert!(ns < 5_000.0, "{ns} ns");
}
