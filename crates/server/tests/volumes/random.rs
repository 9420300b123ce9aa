//! Random bytes through the bodies of the fuzz targets: `UNDERCROFT_SEED` repeats a run.

#[path = "../../fuzz/bodies.rs"]
mod bodies;

use std::panic::{AssertUnwindSafe, catch_unwind};

use bytes::BytesMut;
use undercroft_hints::{BlockRun, EvictFlags, Hint};

use crate::common::{Random, seed};

/// Runs a body on many inputs, and says which seed it was that failed.
fn drive(rounds: u64, body: fn(&[u8]), make: impl Fn(&mut Random) -> Vec<u8>) {
    let start = seed();
    for seed in start..start + rounds {
        let bytes = make(&mut Random::new(seed));
        let result = catch_unwind(AssertUnwindSafe(|| body(&bytes)));
        assert!(result.is_ok(), "repeat with UNDERCROFT_SEED={seed}");
    }
}

fn noise(random: &mut Random, most: u64) -> Vec<u8> {
    (0..random.below(most)).map(|_| random.next_u64() as u8).collect()
}

fn hint(random: &mut Random) -> Hint {
    let runs = |random: &mut Random| {
        let count = 1 + random.below(6);
        let run = |_| BlockRun::new(random.below(80), 1 + random.below(4) as u32);
        (0..count).filter_map(run).collect::<Vec<_>>()
    };
    match random.below(4) {
        0 => Hint::Promote(runs(random)),
        1 => Hint::Hold(runs(random)),
        2 => {
            let (block, rides) = (random.below(70), random.one_in(2));
            Hint::Demote { block, data: vec![random.next_u64() as u8; 4096].into(), rides }
        }
        _ => {
            let flags = EvictFlags { rides: random.one_in(2), ..EvictFlags::default() };
            Hint::Evict { age_us: 0, sequence: 0, flags, runs: runs(random) }
        }
    }
}

/// Requests and messages that are mostly as they should be.
#[test]
fn clients_that_hint_and_lie() {
    drive(60, bodies::hinted, |random| {
        let mut out = vec![random.next_u64() as u8];
        for _ in 0..random.below(60) {
            let is_message = random.one_in(3);
            let mut payload = BytesMut::new();
            if is_message {
                (0..random.below(4)).for_each(|_| hint(random).put(&mut payload));
                if random.one_in(4) && !payload.is_empty() {
                    let at = random.below(payload.len() as u64) as usize;
                    payload[at] ^= 1 << random.below(8);
                }
            }
            let command = if is_message { 1 } else { random.below(9) as u8 };
            if command == 1 && !is_message {
                payload.extend_from_slice(&noise(random, 9000));
            }
            let length = if command == 1 { payload.len() as u32 } else { random.next_u64() as u32 };
            let mut header = [0_u8; 28];
            header[7] = command;
            header[16] = u8::from(!is_message);
            let place = if is_message { 0 } else { random.next_u64() as u16 };
            header[22..24].copy_from_slice(&place.to_be_bytes());
            header[24..28].copy_from_slice(&length.to_be_bytes());
            out.extend_from_slice(&header);
            out.extend_from_slice(&payload);
        }
        out
    });
}

#[test]
fn noise_from_clients_that_hint() {
    drive(60, bodies::hinted, |random| noise(random, 2000));
}

/// What policies saved, damaged.
#[test]
fn damaged_state_files() {
    let saved: Vec<Vec<u8>> = bodies::POLICIES
        .iter()
        .map(|policy| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
            runtime.unwrap().block_on(async {
                let volume = bodies::open(policy).await;
                for block in (0..64).chain(20..40) {
                    bodies::read(&volume, block * 4096).await;
                }
                undercroft_server::SavedContent::of(&volume).unwrap().shards.remove(0)
            })
        })
        .collect();
    drive(400, bodies::state, |random| {
        let choice = random.below(saved.len() as u64);
        let mut bytes = [&[choice as u8], &saved[choice as usize][..]].concat();
        for _ in 0..random.below(5) {
            let at = 1 + random.below(bytes.len() as u64 - 1) as usize;
            match random.below(3) {
                0 => bytes[at] = random.next_u64() as u8,
                1 => bytes[at] ^= 1 << random.below(8),
                _ => bytes.truncate(at + 1),
            }
        }
        bytes
    });
}
