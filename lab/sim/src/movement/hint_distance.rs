//! Hint reuse distance (HFA, section 2.2): the number of distinct other blocks that a cache was
//! asked for between the demotion of a block to the cache and its next promotion.
//!
//! Every block has a mark at the time of its last reference at the cache; a Fenwick tree counts the
//! marks. When the times are used up, they are renumbered.

const NEVER: u32 = u32::MAX;

/// The hint reuse distances at one cache.
pub struct HintDistances {
    /// Times of each block's last reference and last demotion.
    referenced: Vec<u32>,
    demoted: Vec<u32>,
    /// Fenwick tree over the marks, 1-based.
    tree: Vec<u32>,
    now: u32,
    /// The sum of the distances of each block, and their number.
    sums: Vec<(u64, u32)>,
}

impl HintDistances {
    /// For blocks below `unique`.
    pub fn new(unique: u32) -> Self {
        let blocks = unique as usize;
        Self {
            referenced: vec![NEVER; blocks],
            demoted: vec![NEVER; blocks],
            tree: vec![0; 4 * blocks.max(16) + 1],
            now: 0,
            sums: vec![(0, 0); blocks],
        }
    }

    /// Notes that the cache is asked for a block.
    pub fn reference(&mut self, entry: u32) {
        let now = self.tick();
        let last = std::mem::replace(&mut self.referenced[entry as usize], now);
        if last != NEVER {
            self.add(last, u32::MAX);
        }
        self.add(now, 1);
    }

    /// Notes that a block was demoted to the cache.
    pub fn demoted(&mut self, entry: u32) {
        self.demoted[entry as usize] = self.tick();
    }

    /// Notes that a block was promoted. Returns its distance, if it had been demoted before.
    pub fn promoted(&mut self, entry: u32) -> Option<u32> {
        let since = std::mem::replace(&mut self.demoted[entry as usize], NEVER);
        if since == NEVER {
            return None;
        }
        let own = self.referenced[entry as usize];
        let is_own = u32::from(own != NEVER && own > since);
        let distance = self.before(self.now).wrapping_sub(self.before(since + 1)) - is_own;
        let (sum, count) = &mut self.sums[entry as usize];
        *sum += u64::from(distance);
        *count += 1;
        Some(distance)
    }

    /// (n, mean distance) of the blocks that were demoted and promoted n times, n from 1 to 10.
    pub fn by_frequency(&self) -> Vec<(u32, f64)> {
        let mut classes = [(0_u64, 0_u64); 10];
        for &(sum, count) in self.sums.iter().filter(|(_, count)| (1..=10).contains(count)) {
            let class = &mut classes[count as usize - 1];
            *class = (class.0 + sum, class.1 + u64::from(count));
        }
        let mean = |(i, &(sum, count)): (usize, &(u64, u64))| {
            (count > 0).then(|| (i as u32 + 1, sum as f64 / count as f64))
        };
        classes.iter().enumerate().filter_map(mean).collect()
    }

    fn tick(&mut self) -> u32 {
        if self.now as usize + 1 >= self.tree.len() {
            self.compact();
        }
        self.now += 1;
        self.now - 1
    }

    /// Adds `by` (modulo 2^32) to the marks at a time.
    fn add(&mut self, time: u32, by: u32) {
        let mut node = time as usize + 1;
        while node < self.tree.len() {
            self.tree[node] = self.tree[node].wrapping_add(by);
            node += node & node.wrapping_neg();
        }
    }

    /// Number of marks before a time.
    fn before(&self, time: u32) -> u32 {
        let (mut node, mut count) = (time as usize, 0_u32);
        while node > 0 {
            count = count.wrapping_add(self.tree[node]);
            node &= node - 1;
        }
        count
    }

    /// Renumbers the times that are still needed as 0, 1, ... in order: at most two per block, of
    /// four per block.
    fn compact(&mut self) {
        let times = self.referenced.iter().chain(&self.demoted);
        let mut times: Vec<u32> = times.copied().filter(|&time| time != NEVER).collect();
        times.sort_unstable();
        let rank = |time: u32| times.binary_search(&time).expect("it is among them") as u32;
        for time in self.referenced.iter_mut().chain(&mut self.demoted) {
            if *time != NEVER {
                *time = rank(*time);
            }
        }
        self.now = times.len() as u32;
        self.tree.fill(0);
        for i in 0..self.referenced.len() {
            let time = self.referenced[i];
            if time != NEVER {
                self.add(time, 1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::HintDistances;

    /// `hintreuse-1` of the specification.
    #[test]
    fn five_distinct_blocks_are_a_distance_of_five() {
        let mut distances = HintDistances::new(26);
        distances.demoted(23);
        [0, 1, 0, 2, 3, 4].into_iter().for_each(|block| distances.reference(block));
        distances.reference(23);
        assert_eq!(distances.promoted(23), Some(5));
        assert_eq!(distances.promoted(23), None);
        assert_eq!(distances.by_frequency(), [(1, 5.0)]);
    }

    /// Compares with a list of references that is searched from end to end, over many compactions.
    #[test]
    fn distances_are_those_of_a_naive_count() {
        let (mut state, blocks) = (7_u64, 20);
        let mut below = |n: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            ((state >> 33) % n) as u32
        };
        let mut ours = HintDistances::new(blocks);
        let mut stream: Vec<(u32, bool)> = Vec::new();
        for _ in 0..3000 {
            let block = below(blocks.into());
            match below(3) {
                0 => {
                    ours.demoted(block);
                    stream.push((block, true));
                }
                1 => {
                    ours.reference(block);
                    stream.push((block, false));
                }
                _ => {
                    let at = stream.iter().rposition(|&event| event == (block, true));
                    let expected = at.map(|at| {
                        let mut since: Vec<u32> = stream[at..]
                            .iter()
                            .filter(|&&(other, is_demotion)| !is_demotion && other != block)
                            .map(|event| event.0)
                            .collect();
                        since.sort_unstable();
                        since.dedup();
                        since.len() as u32
                    });
                    assert_eq!(ours.promoted(block), expected);
                    // A demotion counts for one promotion only.
                    stream.retain(|&event| event != (block, true));
                }
            }
        }
    }
}
