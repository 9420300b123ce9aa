//! Random messages through the body of the fuzz target: `UNDERCROFT_SEED` repeats a run.

use crate::bodies;
use crate::format::Random;

#[test]
fn random_messages() {
    let mut random = Random::seeded();
    for _ in 0..500 {
        let mut out = Vec::new();
        for _ in 0..random.below(12) {
            let (kind, flags) = (random.below(11) as u16, random.below(8) as u16);
            let lengths = [8, 16, 24, 56, 64, random.below(80)];
            let length = lengths[random.below(6) as usize] as usize;
            out.extend_from_slice(&kind.to_be_bytes());
            out.extend_from_slice(&flags.to_be_bytes());
            out.extend_from_slice(&(length as u32).to_be_bytes());
            out.extend_from_slice(&random.bytes(length.next_multiple_of(8)));
        }
        let cut = out.len() - (random.below(3) as usize).min(out.len());
        out.truncate(cut);
        bodies::hints(&out);
    }
}
