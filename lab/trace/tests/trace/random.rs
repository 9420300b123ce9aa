//! Random bytes through the body of the fuzz target: `UNDERCROFT_SEED` repeats a run.

#[path = "../../fuzz/bodies.rs"]
mod bodies;

use std::panic::{AssertUnwindSafe, catch_unwind};

use undercroft_random::SplitMix64;
use undercroft_random::testing::seed;
use undercroft_trace::formats;

/// Beginnings of traces in each kind of format, to be damaged.
const SAMPLES: [&[u8]; 8] = [
    b"0,1234,4096,r,0.5\n0,1240,8192,W,0.6\n1,0,512,r,0.7\n",
    b"128166372003061629,hm,0,Read,383496192,32768,413\n128166372016382155,hm,1,Write,1,512,9\n",
    b"8,0 3 1 0.000000000 697 Q W 223490 + 8 [kjournald]\n8,0 3 2 0.1 697 D R 22 + 16 [x]\n",
    b"1\n2\n3\n1\n18446744073709551615\n",
    b"10 4 0 0\n14 1 0 1\n",
    b"0.0 0 100 8 1\n1.5 1 200 16 0\n",
    b"time,id,size\n1,2,3\n4,5,6\n",
    b"UCTRACE1\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
];

#[test]
fn whatever_a_trace_is_reading_it_ends() {
    let start = seed();
    let count = formats().count() as u64 + 1;
    for seed in start..start + 2000 {
        let mut random = SplitMix64::new(seed);
        let mut below = |end: u64| random.next_u64() % end;
        let sample = SAMPLES[below(SAMPLES.len() as u64) as usize];
        let mut bytes = vec![below(count) as u8];
        match below(3) {
            0 => bytes.extend((0..below(300)).map(|_| below(256) as u8).collect::<Vec<_>>()),
            _ => bytes.extend_from_slice(sample),
        }
        for _ in 0..below(6) {
            let at = 1 + below(bytes.len() as u64) as usize;
            match below(4) {
                0 if at < bytes.len() => bytes[at] = below(256) as u8,
                1 if at < bytes.len() => bytes[at] ^= 1 << below(8),
                2 => bytes.truncate(at),
                _ => bytes.extend_from_slice(sample),
            }
        }
        let result = catch_unwind(AssertUnwindSafe(|| bodies::readers(&bytes)));
        assert!(result.is_ok(), "repeat with UNDERCROFT_SEED={seed}");
    }
}
