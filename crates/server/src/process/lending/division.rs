//! How the caches of volumes divide their memory, and what moves next: [`next`] is a function of
//! what is known of the volumes, without I/O, clock or memory of the past.
//!
//! Each volume has a share, and memory moves if it is worth more elsewhere. A volume that is idle
//! loses nothing: it lends at once to those that could use more, and its share stays. What busy
//! volumes would lose and gain, their advisers know: there, a part of a share goes to another one.
//! Sizes follow both in bounded steps.
//!
//! Not here: how a cache changes its size (`volume/change.rs`).

use undercroft_adviser::Estimate;

use crate::advice::ready::Ready;

/// A volume whose memory may move, with sizes in bytes of cache.
#[derive(Clone, Debug)]
pub(super) struct Member {
    /// What the configuration gives it.
    pub(super) configured: u64,
    /// What of all memory is its own: as much as is configured, until a part moves.
    pub(super) share: u64,
    /// Bounds of its share and of its size. `least` is at most the share, `most` at least.
    pub(super) least: u64,
    pub(super) most: u64,
    /// What one block takes, a power of two; sizes change by whole blocks.
    pub(super) block: u64,
    /// The size of its cache now, or to which it grows.
    pub(super) size: u64,
    /// Memory that it gave up, and that is not free yet.
    pub(super) leaving: u64,
    pub(super) is_idle: bool,
    /// Whether it would use more room: its cache is full, and it misses.
    pub(super) wants: bool,
    /// Whether its size cannot change now. Such a volume is not idle, and wants nothing.
    pub(super) is_fixed: bool,
    /// What other sizes are worth; `None`: its share stays.
    pub(super) worth: Option<Ready>,
}

/// What changes in this period.
#[derive(Debug)]
pub(super) struct Moves {
    /// The size that each volume is to have in the end; one that is idle, if all is lent.
    pub(super) targets: Vec<u64>,
    /// Sizes that change now: the index of a volume, and its next size.
    pub(super) sizes: Vec<(usize, u64)>,
    pub(super) transfer: Option<Transfer>,
}

/// A part of a share that goes from one volume to another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Transfer {
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

/// A volume that needs its own room back gets this part of its share in a step.
const BACK: u64 = 2;

/// Otherwise a step is this part of a cache, or of its share if that is larger; of the smaller
/// cache of both, if a share changes.
const CALM: u64 = 16;

/// A difference is certain if it exceeds its error by this factor: by chance, that is so about once
/// in a thousand times.
const CERTAIN: f64 = 2.0;

/// What is gained is so many times what is lost: a transfer changes both by an eighth, so that it
/// is never worth taking back at once.
const MORE: f64 = 1.25;

/// The difference is worth a transfer from this share of both volumes' reads on.
const WORTH_IT: f64 = 1.0 / 2000.0;

impl Member {
    /// What nobody may borrow of it now.
    fn floor(&self) -> u64 {
        if self.is_idle { self.least } else { self.share }
    }

    /// What it may have beyond its share.
    fn demand(&self) -> u64 {
        let size = match (self.is_idle, self.wants) {
            (true, _) => 0,
            (false, true) => self.most,
            // What it borrowed may be the reason why it has what it needs, or cannot shrink now.
            (false, false) => self.size.min(self.most),
        };
        size.saturating_sub(self.share)
    }

    /// Whether it needs the room that it lent, or that it got of another one's share.
    fn is_owed(&self) -> bool {
        !self.is_idle && !self.is_fixed && self.size < self.share
    }

    fn whole_blocks(&self, bytes: u64) -> u64 {
        bytes / self.block * self.block
    }

    fn part(&self, part: u64) -> u64 {
        self.whole_blocks(self.share.max(self.size) / part).max(self.block)
    }

    /// What other sizes are worth, if it has the size of its target.
    fn worth_at(&self, target: u64) -> Option<&Ready> {
        let is_settled = self.size == target && self.leaving == 0 && !self.is_fixed;
        if is_settled && !self.is_idle { self.worth.as_ref() } else { None }
    }
}

/// What moves next.
pub(super) fn next(members: &[Member]) -> Moves {
    let targets = targets(members);
    Moves { sizes: steps(members, &targets), transfer: transfer(members, &targets), targets }
}

/// The size that each volume is to have. Those of busy volumes are at least their shares, none is
/// below the least; what one that is idle has beyond its target, it keeps until somebody needs it.
///
/// What idle volumes can lend is divided among those that want more, in proportion to their shares.
fn targets(members: &[Member]) -> Vec<u64> {
    let spare = sum(members, |one| one.share).saturating_sub(sum(members, Member::floor));
    let demands: Vec<_> = members.iter().map(|one| (one.share, one.demand())).collect();
    let granted = divide(spare, &demands);
    members.iter().zip(granted).map(|(one, more)| one.whole_blocks(one.floor() + more)).collect()
}

fn sum(members: &[Member], of: impl Fn(&Member) -> u64) -> u64 {
    members.iter().map(of).sum()
}

/// Divides an amount by weight; nobody gets more than a most. Pairs of weight and most.
fn divide(amount: u64, shares: &[(u64, u64)]) -> Vec<u64> {
    let mut order: Vec<usize> = (0..shares.len()).collect();
    // Those who have enough first leave the rest to the others.
    let enough_at = |at: usize| shares[at].1 as f64 / shares[at].0 as f64;
    order.sort_by(|&one, &other| enough_at(one).total_cmp(&enough_at(other)));
    let (mut left, mut given) = (amount, vec![0; shares.len()]);
    let mut weights: u128 = shares.iter().map(|&(weight, _)| u128::from(weight)).sum();
    for at in order {
        let (weight, most) = (u128::from(shares[at].0), shares[at].1);
        given[at] = most.min((u128::from(left) * weight / weights.max(1)) as u64);
        left -= given[at];
        weights -= weight;
    }
    given
}

/// The sizes that change in this period: the index of a volume, and its next size. Room is free
/// before it is given to another volume: after these steps the caches take together, with what is
/// leaving, no more than is configured for all, or no more than before.
fn steps(members: &[Member], targets: &[u64]) -> Vec<(usize, u64)> {
    let total = sum(members, |one| one.configured);
    let taken = sum(members, |one| one.size + one.leaving);
    let (mut free, mut missing) = (total.saturating_sub(taken), taken.saturating_sub(total));
    let is_calm = missing == 0 && !members.iter().any(Member::is_owed);
    let mut steps = Vec::new();
    let mut in_order: Vec<_> = members.iter().zip(targets).enumerate().collect();
    in_order.retain(|(_, (one, _))| !one.is_fixed);
    in_order.sort_by_key(|(_, (one, _))| !one.is_owed());
    for &(at, (one, &target)) in in_order.iter().filter(|(_, (one, target))| **target > one.size) {
        let part = if one.is_owed() { BACK } else { CALM };
        let wanted = one.part(part).min(target - one.size);
        let given = one.whole_blocks(wanted.min(free));
        if given > 0 {
            steps.push((at, one.size + given));
        }
        free -= given;
        missing += wanted - given;
    }
    // It will be free soon.
    missing = missing.saturating_sub(sum(members, |one| one.leaving));
    for (at, (one, &target)) in in_order {
        let most = if is_calm { one.part(CALM) } else { u64::MAX };
        let needed = missing.div_ceil(one.block).saturating_mul(one.block).min(most);
        let taken = needed.min(one.whole_blocks(one.size.saturating_sub(target)));
        if taken > 0 {
            steps.push((at, one.size - taken));
        }
        missing = missing.saturating_sub(taken);
    }
    steps
}

/// The transfer that saves most, if there is one that is certain and worth it.
fn transfer(members: &[Member], targets: &[u64]) -> Option<Transfer> {
    let worth: Vec<_> =
        members.iter().zip(targets).map(|(one, &target)| one.worth_at(target)).collect();
    let all = 0..members.len();
    let pairs = all.clone().flat_map(|from| all.clone().map(move |to| (from, to)));
    let all = pairs.filter(|(from, to)| from != to).filter_map(|(from, to)| {
        let bytes = transfer_bytes(&members[from], &members[to])?;
        compare(worth[from]?, worth[to]?, bytes).map(|(gain, loss, unit)| Transfer {
            from,
            to,
            bytes,
            gain,
            loss,
            unit,
        })
    });
    // Seconds and reads cannot be compared: those that are known better come first.
    let net = |one: &Transfer| (one.unit == Unit::Time, one.gain.value - one.loss.value);
    all.max_by(|one, other| {
        let ((one, its), (other, others)) = (net(one), net(other));
        one.cmp(&other).then(its.total_cmp(&others))
    })
}

/// What one volume gains by so many bytes and another one loses, unless the difference is not
/// certain or not worth it. What a volume would lose counts as much as what it could gain itself,
/// so that equals do not take from each other.
fn compare(giver: &Ready, taker: &Ready, bytes: u64) -> Option<(Estimate, Estimate, Unit)> {
    let (unit, [miss_here, miss_there]) = match (giver.miss_costs_s, taker.miss_costs_s) {
        (Some(here), Some(there)) if here > 0.0 && there > 0.0 => (Unit::Time, [here, there]),
        _ => (Unit::Reads, [1.0, 1.0]),
    };
    let ([_, reads_here], [reads_there, _]) = (giver.reads_per_s, taker.reads_per_s);
    let (weight_here, weight_there) = (reads_here * miss_here, reads_there * miss_there);
    let gain = taker.curve.slope_upward().times(bytes as f64 * weight_there);
    let loss = giver.curve.slope().times(bytes as f64 * weight_here);
    // A larger cache that serves less is noise.
    let loss = Estimate { value: loss.value.max(0.0), ..loss };
    let net = gain.minus(&loss);
    let is_certain = net.value > CERTAIN * net.error && gain.value >= MORE * loss.value;
    let is_worth_it = net.value > 0.0 && net.value >= WORTH_IT * (weight_here + weight_there);
    (is_certain && is_worth_it).then_some((gain, loss, unit))
}

/// The bytes of a transfer, in whole blocks of both; `None` if a volume is at its bound, or has
/// borrowed enough.
fn transfer_bytes(giver: &Member, taker: &Member) -> Option<u64> {
    let block = giver.block.max(taker.block);
    let part = (giver.size.min(taker.size) / CALM).max(block);
    let room = giver.share.saturating_sub(giver.least);
    let room = taker.most.saturating_sub(taker.share.max(taker.size)).min(room);
    // What it borrowed would become its share, and its size stay as it is.
    let has_enough = taker.size > taker.share && !taker.wants;
    Some(part.min(room) / block * block).filter(|&bytes| bytes > 0 && !has_enough)
}

#[cfg(test)]
mod tests;
