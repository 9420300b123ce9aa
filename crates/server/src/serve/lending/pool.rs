//! The volumes whose shares move (`share=auto`): looks at them once a period, asks whether there is
//! a step worth making (`sharing.rs`), and moves a part of a share. The shares together stay what
//! the configuration gives; the sizes follow as they do for lending (`division.rs`).
//!
//! Not here: what the advisers know (`advice`).

use std::collections::HashMap;
use std::sync::Arc;

use undercroft_adviser::{Estimate, amount};
use undercroft_text::Bytes;

use super::sharing::{Party, Step, Unit, next_step};
use crate::volume::Volume;

/// Fewest periods between two steps. Mostly it takes longer until the advice is ready again.
const REST: u32 = 2;

/// The volumes whose shares move.
#[derive(Default)]
pub(super) struct Pool {
    /// Blocks that the configuration gives them, by name.
    configured: HashMap<String, u32>,
    /// Periods to go without a step.
    rest: u32,
}

impl Pool {
    /// Moves a part of a share if that is worth it. A change of the volumes begins anew.
    pub(super) fn pass(&mut self, volumes: &[Arc<Volume>]) {
        let members: Vec<_> =
            volumes.iter().filter(|volume| volume.now().is_share_auto).cloned().collect();
        if !self.is_of(&members) {
            self.reset(volumes);
            let blocks =
                |volume: &Arc<Volume>| (volume.config().name.clone(), volume.share_blocks());
            self.configured = members.iter().map(blocks).collect();
            return;
        }
        self.rest = self.rest.saturating_sub(1);
        if self.rest > 0 || members.len() < 2 {
            return;
        }
        let parties: Vec<_> = members.iter().map(|volume| self.party(volume)).collect();
        let Some(step) = next_step(&parties) else { return };
        self.rest = REST;
        let (from, to) = (&members[step.from], &members[step.to]);
        let of = |party: &Party| (step.bytes / party.block) as u32;
        from.set_share(from.share_blocks() - of(&parties[step.from]));
        to.set_share(to.share_blocks() + of(&parties[step.to]));
        tell(&step, from, to);
    }

    /// Gives all shares back as they are configured.
    pub(super) fn reset(&mut self, volumes: &[Arc<Volume>]) {
        for volume in volumes {
            if let Some(&blocks) = self.configured.get(&volume.config().name) {
                volume.set_share(blocks);
            }
        }
        self.configured.clear();
    }

    /// Whether these are the volumes that are known, and have together what is configured.
    fn is_of(&self, members: &[Arc<Volume>]) -> bool {
        let bytes = |volume: &Volume, blocks: u32| {
            u64::from(blocks) * u64::from(volume.config().block_bytes)
        };
        let (mut known, mut now) = (0, 0);
        for volume in members {
            let Some(&blocks) = self.configured.get(&volume.config().name) else { return false };
            known += bytes(volume, blocks);
            now += bytes(volume, volume.share_blocks());
        }
        members.len() == self.configured.len() && known == now
    }

    /// What is known of a volume.
    fn party(&self, volume: &Arc<Volume>) -> Party {
        let now = volume.now();
        let block = u64::from(now.block_bytes);
        let configured = self.configured.get(&now.name).copied().unwrap_or_default();
        let is_settled = now.cache_blocks == volume.share_blocks()
            && volume.surplus_frames() == 0
            && !volume.is_changing()
            && volume.stats().store_up == 1;
        Party {
            size: u64::from(volume.share_blocks()) * block,
            least: now.least_share(u64::from(configured) * block),
            most: now.most_share(),
            block,
            worth: if is_settled { volume.ready_advice() } else { None },
        }
    }
}

/// Logs a step with its reason.
fn tell(step: &Step, from: &Volume, to: &Volume) {
    let said = |what: &Estimate| match step.unit {
        Unit::Reads => format!("{} disk reads a second", amount(what)),
        Unit::Time => format!("{} ms of waiting a second", amount(&what.times(1e3))),
    };
    let share = |volume: &Volume| {
        Bytes(u64::from(volume.share_blocks()) * u64::from(volume.config().block_bytes))
    };
    tracing::info!(
        volume = to.config().name,
        from = from.config().name,
        cache = %Bytes(step.bytes),
        share = %share(to),
        from_share = %share(from),
        "gets a part of another volume's share: that saves {} here; there it would save at most {}",
        said(&step.gain),
        said(&step.loss)
    );
}
