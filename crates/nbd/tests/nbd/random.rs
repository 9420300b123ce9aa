//! Random bytes through the bodies of the fuzz targets: `UNDERCROFT_SEED` repeats a run.

#[path = "../../fuzz/bodies.rs"]
mod bodies;

use std::panic::{AssertUnwindSafe, catch_unwind};

use undercroft_nbd::wire::*;
use undercroft_random::SplitMix64;
use undercroft_random::testing::seed;

/// Runs a body on many inputs, and says which seed it was that failed.
fn drive(body: fn(&[u8]), make: fn(&mut SplitMix64) -> Vec<u8>) {
    let start = seed();
    for seed in start..start + 500 {
        let bytes = make(&mut SplitMix64::new(seed));
        let result = catch_unwind(AssertUnwindSafe(|| body(&bytes)));
        assert!(result.is_ok(), "repeat with UNDERCROFT_SEED={seed}");
    }
}

#[test]
fn handshakes() {
    drive(bodies::handshake, |random| {
        let mut out = bytes::BytesMut::new();
        for _ in 0..random.below(12) {
            let option = random.below(13) as u32;
            let data = match random.below(4) {
                0 => random.bytes(20),
                1 => Vec::new(),
                2 => b"\0\0\0\x03ram\0\x02\0\x01\0\x03".to_vec(),
                _ => ContextQuery { name: String::new(), queries: vec!["base:".to_owned()] }
                    .bytes()
                    .to_vec(),
            };
            put_option(&mut out, option, &data);
        }
        let tail = random.below(60) as usize;
        [&out[..], &random.bytes(tail)].concat()
    });
}

#[test]
fn requests() {
    drive(bodies::requests, |random| {
        let count = random.below(20_000) as usize;
        random.bytes(count)
    });
}

#[test]
fn answers() {
    drive(bodies::client, |random| {
        let mut out = vec![random.next_u64() as u8];
        for _ in 0..random.below(20) {
            // Cookies as the client gives them: place 0 to 3, used once.
            let cookie = (1 << 32) | (random.next_u64() % 5);
            if random.below(4) == 0 {
                out.extend_from_slice(&ReplyHeader::simple(random.below(3) as u32, cookie));
                continue;
            }
            let kinds = [0, 1, 1, 1, 2, 5, CHUNK_ERROR, CHUNK_ERROR_OFFSET, 9];
            let kind = kinds[random.below(kinds.len() as u64) as usize];
            let payload = match kind {
                CHUNK_DATA => {
                    let (offset, length) = (random.below(5100), 1 + random.below(5100));
                    [&offset.to_be_bytes()[..], &random.bytes(length as usize)].concat()
                }
                CHUNK_HOLE => {
                    let (offset, length) = (random.below(5100), random.below(5100) as u32);
                    [&offset.to_be_bytes()[..], &length.to_be_bytes()].concat()
                }
                _ => {
                    let length = random.below(40) as usize;
                    random.bytes(length)
                }
            };
            let flags = random.below(2) as u16;
            let header = ChunkHeader { flags, kind, cookie, length: payload.len() as u32 };
            out.extend_from_slice(&header.bytes());
            out.extend_from_slice(&payload);
        }
        out
    });
}
