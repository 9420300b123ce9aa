//! A set of positions in a trace with fast access to its largest member, used by OPT: one bit for
//! each position, and summary levels above with one bit for each word.

/// A set over `0..len`. Inserting, removing and finding the largest cost a few word operations.
#[derive(Clone, Debug)]
pub(crate) struct Positions {
    /// Level 0 has one bit for each position. A bit of a higher level says that a word below is not
    /// zero. The last level is a single word.
    levels: Vec<Vec<u64>>,
}

impl Positions {
    /// The empty set over `0..len`.
    pub(crate) fn new(len: u32) -> Self {
        let mut levels = Vec::new();
        let mut words = len as usize;
        loop {
            words = words.div_ceil(64).max(1);
            levels.push(vec![0; words]);
            if words == 1 {
                return Self { levels };
            }
        }
    }

    #[inline(always)]
    pub(crate) fn insert(&mut self, position: u32) {
        let mut bit = position as usize;
        for level in &mut self.levels {
            let word = &mut level[bit / 64];
            let was_empty = *word == 0;
            *word |= 1 << (bit % 64);
            if !was_empty {
                return;
            }
            bit /= 64;
        }
    }

    #[inline(always)]
    pub(crate) fn remove(&mut self, position: u32) {
        let mut bit = position as usize;
        for level in &mut self.levels {
            let word = &mut level[bit / 64];
            *word &= !(1 << (bit % 64));
            if *word != 0 {
                return;
            }
            bit /= 64;
        }
    }

    /// The largest member.
    #[inline(always)]
    pub(crate) fn last(&self) -> Option<u32> {
        let mut word = 0;
        for level in self.levels.iter().rev() {
            let top = level[word].checked_ilog2()?;
            word = word * 64 + top as usize;
        }
        Some(word as u32)
    }

    /// The members, ascending. For tests and dumps.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        let bits = |word: u64| (0..64).filter(move |bit| word >> bit & 1 == 1);
        let words = self.levels[0].iter().enumerate();
        words.flat_map(move |(at, &word)| bits(word).map(move |bit| at as u32 * 64 + bit))
    }
}

#[cfg(test)]
mod tests {
    use super::Positions;

    #[test]
    fn agrees_with_an_ordered_set() {
        for len in [1, 63, 64, 65, 4097, 300_000] {
            let mut ours = Positions::new(len);
            let mut model = std::collections::BTreeSet::new();
            let mut x = u64::from(len);
            for _ in 0..20_000 {
                x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                let position = (x >> 33) as u32 % len;
                if x & 2 == 0 {
                    ours.insert(position);
                    model.insert(position);
                } else {
                    ours.remove(position);
                    model.remove(&position);
                }
                assert_eq!(ours.last(), model.last().copied(), "len {len}");
            }
            assert!(ours.iter().eq(model.iter().copied()));
        }
    }
}
