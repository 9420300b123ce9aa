//! Whether memory should go from one volume to another for good, by what their advisers say: a
//! function of what is known of the volumes, without I/O, clock or memory of the past.
//!
//! A step is small, and made only if the difference is certain and worth it. What a volume would
//! lose counts as much as what it could gain itself, so that equals do not take from each other.
//!
//! Not here: how caches get their sizes (`division.rs`), and when a step may follow another
//! (`pool.rs`).

use undercroft_adviser::Estimate;

use crate::advice::ready::Ready;

/// A volume whose share moves, with sizes in bytes of cache.
#[derive(Clone, Debug)]
pub(super) struct Party {
    /// Its share now.
    pub(super) size: u64,
    /// Bounds of the share.
    pub(super) least: u64,
    pub(super) most: u64,
    /// What one block takes: a power of two.
    pub(super) block: u64,
    /// What other sizes are worth; `None`: it neither gives nor takes now.
    pub(super) worth: Option<Ready>,
}

/// A step: bytes that go from one volume to another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Step {
    /// Index of the volume that gives.
    pub(super) from: usize,
    /// Index of the volume that gets.
    pub(super) to: usize,
    pub(super) bytes: u64,
    /// What is saved in a second at the one that gets, and what it is worth more to the one that
    /// gives, at most.
    pub(super) gain: Estimate,
    pub(super) loss: Estimate,
    pub(super) unit: Unit,
}

/// What is saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    /// Disk reads a second.
    Reads,
    /// Seconds a second that reads take less, all together: disk reads, each with what a miss costs
    /// on its volume.
    Time,
}

/// A step is this part of the smaller cache of both.
const PART: u64 = 16;

/// The difference is certain if it exceeds its error by this factor: by chance, that is so about
/// once in a thousand times.
const CERTAIN: f64 = 2.0;

/// What is gained is so many times what is lost: a step changes both by an eighth, so that it is
/// never worth taking back at once.
const MORE: f64 = 1.25;

/// The difference is worth a step from this share of both volumes' reads on.
const WORTH_IT: f64 = 1.0 / 2000.0;

/// The step that saves most, if there is one that is certain and worth it.
pub(super) fn next_step(parties: &[Party]) -> Option<Step> {
    let all = 0..parties.len();
    let pairs = all.clone().flat_map(|from| all.clone().map(move |to| (from, to)));
    let steps = pairs.filter(|(from, to)| from != to).filter_map(|pair| step(parties, pair));
    // Seconds and reads cannot be compared: those that are known better come first.
    let net = |step: &Step| (step.unit == Unit::Time, step.gain.value - step.loss.value);
    steps.max_by(|one, other| {
        let ((one, its), (other, others)) = (net(one), net(other));
        one.cmp(&other).then(its.total_cmp(&others))
    })
}

/// The step from a volume to another, unless it is not worth it.
fn step(parties: &[Party], (from, to): (usize, usize)) -> Option<Step> {
    let (giver, taker) = (&parties[from], &parties[to]);
    let (its, others) = (giver.worth.as_ref()?, taker.worth.as_ref()?);
    let bytes = step_bytes(giver, taker).filter(|&bytes| bytes > 0)?;
    let (unit, [miss_here, miss_there]) = match (its.miss_costs_s, others.miss_costs_s) {
        (Some(here), Some(there)) if here > 0.0 && there > 0.0 => (Unit::Time, [here, there]),
        _ => (Unit::Reads, [1.0, 1.0]),
    };
    let ([_, reads_here], [reads_there, _]) = (its.reads_per_s, others.reads_per_s);
    let (weight_here, weight_there) = (reads_here * miss_here, reads_there * miss_there);
    let gain = others.curve.slope_upward().times(bytes as f64 * weight_there);
    let loss = its.curve.slope().times(bytes as f64 * weight_here);
    // A larger cache that serves less is noise.
    let loss = Estimate { value: loss.value.max(0.0), ..loss };
    let net = gain.minus(&loss);
    let is_certain = net.value > CERTAIN * net.error && gain.value >= MORE * loss.value;
    let is_worth_it = net.value > 0.0 && net.value >= WORTH_IT * (weight_here + weight_there);
    (is_certain && is_worth_it).then_some(Step { from, to, bytes, gain, loss, unit })
}

/// The bytes of a step, in whole blocks of both; `None` if a volume is at its bound.
fn step_bytes(giver: &Party, taker: &Party) -> Option<u64> {
    let block = giver.block.max(taker.block);
    let part = (giver.size.min(taker.size) / PART).max(block);
    let room = giver.size.checked_sub(giver.least)?.min(taker.most.checked_sub(taker.size)?);
    Some(part.min(room) / block * block)
}

#[cfg(test)]
mod tests;
