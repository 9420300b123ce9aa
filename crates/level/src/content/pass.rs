//! A pass through all resident blocks, to set their marks anew. It goes on a few blocks at a time,
//! so that nobody waits for a large cache: first [`AT_ONCE`], then [`EACH`] with each request. A
//! block that comes meanwhile gets its mark when it comes. A mark that is not right yet only makes
//! the policy choose another victim.

use crate::marks::Marks;

/// Handles visited when a pass begins; smaller caches need no more.
pub const AT_ONCE: u32 = 4096;

/// Handles visited with each later request.
pub(crate) const EACH: u32 = 16;

/// What is left of a pass.
#[derive(Debug, Default)]
pub(crate) struct Pass {
    /// The next handle.
    at: u32,
    left: u32,
    /// Number of handles when that was last looked at.
    end: u32,
}

impl Pass {
    /// Begins a pass. One that is in progress visits all blocks from where it is, and none at once.
    pub(crate) fn begin(&mut self, cache: &mut impl Marks, holds: impl Fn(u64) -> bool) {
        let is_new = self.left == 0;
        self.end = cache.handles();
        self.left = self.end;
        if is_new {
            self.at = 0;
            self.go_on(AT_ONCE, cache, holds);
        }
    }

    #[cfg(test)]
    pub(crate) fn is_over(&self) -> bool {
        self.left == 0
    }

    /// Visits the next handles, at most so many.
    #[inline]
    pub(crate) fn go_on(&mut self, most: u32, cache: &mut impl Marks, holds: impl Fn(u64) -> bool) {
        if self.left > 0 {
            self.visit(most, cache, holds);
        }
    }

    #[cold]
    fn visit(&mut self, most: u32, cache: &mut impl Marks, holds: impl Fn(u64) -> bool) {
        let end = cache.handles();
        // Blocks at new handles are right already, but lie between the others.
        self.left = self.left.saturating_add(end.saturating_sub(self.end));
        self.end = end;
        let mut most = most.min(self.left);
        while most > 0 && end > 0 {
            self.at = if self.at < end { self.at } else { 0 };
            let to = self.at.saturating_add(most).min(end);
            for block in cache.blocks_within(self.at..to) {
                cache.mark(block, holds(block));
            }
            most -= to - self.at;
            self.left -= to - self.at;
            self.at = to;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::ops::Range;

    use super::*;

    /// Each handle has the block of its number.
    struct Cache {
        handles: u32,
        visited: BTreeSet<u64>,
        visits: u32,
    }

    impl Marks for Cache {
        fn mark(&mut self, block: u64, _: bool) {
            self.visits += 1;
            self.visited.insert(block);
        }

        fn blocks(&self) -> Vec<u64> {
            unreachable!("nothing asks for all blocks")
        }

        fn handles(&self) -> u32 {
            self.handles
        }

        fn blocks_within(&self, handles: Range<u32>) -> Vec<u64> {
            handles.map(u64::from).collect()
        }
    }

    #[test]
    fn a_pass_visits_all_blocks_a_few_at_a_time() {
        let mut pass = Pass::default();
        let mut cache = Cache { handles: 100_000, visited: BTreeSet::new(), visits: 0 };
        let visits_of = |cache: &mut Cache| std::mem::take(&mut cache.visits);
        pass.begin(&mut cache, |_| true);
        assert_eq!(visits_of(&mut cache), AT_ONCE);
        for _ in 0..100_000 {
            pass.begin(&mut cache, |_| true);
        }
        assert_eq!(visits_of(&mut cache), 0, "whatever is published, it costs no more");
        cache.visited.clear();
        let mut most = 0;
        while pass.left > 0 {
            cache.handles += u32::from(cache.handles < 101_000);
            pass.go_on(EACH, &mut cache, |_| true);
            most = most.max(visits_of(&mut cache));
        }
        assert_eq!(most, EACH);
        assert!((0..100_000).all(|block| cache.visited.contains(&block)));
        cache.handles = 0;
        pass.begin(&mut cache, |_| true);
        pass.go_on(EACH, &mut cache, |_| true);
    }
}
