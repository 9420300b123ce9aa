//! What a ready adviser says of other sizes of its volume's cache, for the server itself to act on.
//!
//! Not here: who gets memory (`process/lending/division.rs`).

use undercroft_adviser::Curve;

use crate::advice::{AdviserState, Key, Stage, VolumeAdvice};
use crate::volume::Volume;

/// What is known of the size of a cache, for its configuration of now.
#[derive(Clone, Debug)]
pub(crate) struct Ready {
    pub(crate) curve: Curve,
    /// Blocks that are read in a second: the lesser and the greater of the rate while the figures
    /// were counted, and of the rate up to now.
    pub(crate) reads_per_s: [f64; 2],
    /// How much longer a read takes that misses, in seconds, if it is known.
    pub(crate) miss_costs_s: Option<f64>,
}

impl VolumeAdvice {
    /// What the adviser of a volume says of other sizes; `None` unless its figures are ready, and
    /// of the cache as it is now.
    pub(crate) fn ready(&self, volume: &Volume) -> Option<Ready> {
        let now = Key::of(&volume.now());
        let mut inner = self.lock();
        let AdviserState { stage, checkpoints, .. } = &mut *inner;
        let known = match stage {
            Stage::Running(of, Some(known)) | Stage::Idle(of, _, known) if *of == now => known,
            _ => return None,
        };
        let block_bytes = volume.config().block_bytes;
        let curve = Curve::of(&known.figures, block_bytes)?;
        let (upto_now, _) =
            checkpoints.measure(&volume.stats(), volume.latencies(), block_bytes, &known.figures);
        let (one, other) = (known.measured.reads_per_s, upto_now.reads_per_s);
        let reads_per_s = [one.min(other), one.max(other)];
        Some(Ready { curve, reads_per_s, miss_costs_s: upto_now.miss_costs_s })
    }
}
