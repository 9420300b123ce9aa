//! Who should have how much of the cache, and the next steps towards that: functions of what is
//! known of the volumes, without I/O, clock or memory of the past.
//!
//! [`targets`] decides, [`steps`] bounds. Another rule of division replaces `targets` alone.

/// A volume that may lend or borrow, with sizes in bytes of cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Member {
    /// What the configuration gives it.
    pub(super) share: u64,
    /// What it keeps while it is idle; its share, if it does not lend. 1 to `share`.
    pub(super) least: u64,
    /// What it may grow to; its share, if it does not borrow. At least `share`.
    pub(super) most: u64,
    /// What one block takes; sizes change by whole blocks.
    pub(super) block: u64,
    /// The size of its cache now.
    pub(super) size: u64,
    /// Memory that it gave up, and that is not free yet.
    pub(super) leaving: u64,
    pub(super) is_idle: bool,
    /// Whether it would use more room: its cache is full, and it misses.
    pub(super) wants: bool,
    /// Whether its size cannot change now.
    pub(super) is_fixed: bool,
}

/// A volume that needs its own room back gets this part of its share in a step.
const BACK: u64 = 2;

/// Otherwise a volume gets or gives this part of its cache in a step, or of its share if that is
/// larger.
const CALM: u64 = 16;

impl Member {
    /// What nobody may take from it now.
    fn floor(&self) -> u64 {
        match (self.is_idle, self.is_fixed) {
            (false, _) => self.share,
            (true, false) => self.least,
            (true, true) => self.size.clamp(self.least, self.share),
        }
    }

    /// What it may have beyond its share.
    fn demand(&self) -> u64 {
        let size = match (self.is_idle, self.wants) {
            // What cannot shrink now must be counted.
            _ if self.is_fixed => self.size,
            (true, _) => 0,
            (false, true) => self.most,
            // What it borrowed may be the reason why it has what it needs.
            (false, false) => self.size.min(self.most),
        };
        size.saturating_sub(self.share)
    }

    /// Whether it was idle, and needs the room that it lent.
    fn is_owed(&self) -> bool {
        !self.is_idle && self.size < self.share
    }

    fn whole_blocks(&self, bytes: u64) -> u64 {
        bytes / self.block * self.block
    }

    fn part(&self, part: u64) -> u64 {
        self.whole_blocks(self.share.max(self.size) / part).max(self.block)
    }
}

/// The size that each volume should have. Together they are at most the shares together; no volume
/// that is busy has less than its share, none less than its least.
///
/// What idle volumes do not keep is divided among those that want more, in proportion to their
/// shares; what nobody wants stays with the idle ones.
pub(super) fn targets(members: &[Member]) -> Vec<u64> {
    let sum = |of: fn(&Member) -> u64| members.iter().map(of).fold(0, u64::saturating_add);
    let spare = sum(|member| member.share).saturating_sub(sum(Member::floor));
    let demands = members.iter().map(|member| (member.share, member.demand()));
    let granted = divide(spare, &demands.collect::<Vec<_>>());
    let left = spare - granted.iter().sum::<u64>();
    let lent = members.iter().map(|member| member.share - member.floor());
    let kept = divide(left, &lent.map(|bytes| (bytes, bytes)).collect::<Vec<_>>());
    let all = members.iter().zip(granted.into_iter().zip(kept));
    all.map(|(member, (granted, kept))| member.whole_blocks(member.floor() + granted + kept))
        .collect()
}

/// Divides an amount by weight; nobody gets more than a most. Pairs of weight and most.
fn divide(amount: u64, shares: &[(u64, u64)]) -> Vec<u64> {
    let mut order: Vec<usize> = (0..shares.len()).filter(|&at| shares[at].1 > 0).collect();
    // Those who have enough first leave the rest to the others.
    order.sort_by(|&one, &other| {
        let ((weight, most), (other_weight, other_most)) = (shares[one], shares[other]);
        let ours = u128::from(most) * u128::from(other_weight);
        ours.cmp(&(u128::from(other_most) * u128::from(weight)))
    });
    let (mut left, mut given) = (amount, vec![0; shares.len()]);
    let mut weights: u128 = order.iter().map(|&at| u128::from(shares[at].0)).sum();
    for at in order {
        let (weight, most) = shares[at];
        let fair = u128::from(left) * u128::from(weight) / weights.max(1);
        given[at] = most.min(fair as u64);
        left -= given[at];
        weights -= u128::from(weight);
    }
    given
}

/// The sizes that change in this period: the index of a volume, and its next size. Room is free
/// before it is given to another volume: after these steps the caches take together, with what is
/// leaving, no more than the shares together, or no more than before.
pub(super) fn steps(members: &[Member], targets: &[u64]) -> Vec<(usize, u64)> {
    let sum = |of: fn(&Member) -> u64| members.iter().map(of).fold(0, u64::saturating_add);
    let total = sum(|member| member.share);
    let taken = sum(|member| member.size.saturating_add(member.leaving));
    let mut free = total.saturating_sub(taken);
    let mut steps = Vec::new();
    let mut missing = taken.saturating_sub(total);
    let mut in_order: Vec<usize> = (0..members.len()).collect();
    in_order.sort_by_key(|&at| !members[at].is_owed());
    for at in in_order {
        let (member, target) = (&members[at], targets[at]);
        if member.is_fixed || target <= member.size {
            continue;
        }
        let part = if member.is_owed() { BACK } else { CALM };
        let wanted = member.part(part).min(target - member.size);
        let given = member.whole_blocks(wanted.min(free));
        if given > 0 {
            steps.push((at, member.size + given));
        }
        free -= given;
        missing += wanted - given;
    }
    // It will be free soon.
    missing = missing.saturating_sub(sum(|member| member.leaving));
    let is_calm = !members.iter().any(Member::is_owed) && taken <= total;
    for (at, (member, &target)) in members.iter().zip(targets).enumerate() {
        if member.is_fixed || target >= member.size || missing == 0 {
            continue;
        }
        let most = if is_calm { member.part(CALM) } else { u64::MAX };
        let wanted = missing.div_ceil(member.block).saturating_mul(member.block).min(most);
        let taken = wanted.min(member.whole_blocks(member.size - target));
        if taken > 0 {
            steps.push((at, member.size - taken));
        }
        missing = missing.saturating_sub(taken);
    }
    steps
}

#[cfg(test)]
mod tests;
