//! The reload queue against a plain list, step by step. `UNDERCROFT_SEED=n` runs one seed again.

use std::collections::VecDeque;

use crate::support::{Random, seeds};
use undercroft_level::placement::{ReloadCounts, ReloadQueue};

#[test]
fn agrees_with_a_list() {
    for seed in seeds(20) {
        let mut random = Random(seed);
        let max = random.below(6);
        let mut ours = ReloadQueue::new(max, seed);
        let (mut list, mut counts) = (VecDeque::new(), ReloadCounts::default());
        for step in 0..2000 {
            let block = u64::from(random.below(10));
            let remove = |list: &mut VecDeque<u64>| {
                let before = list.len();
                list.retain(|&b| b != block);
                (before - list.len()) as u64
            };
            match random.below(8) {
                0 => {
                    let oldest = list.pop_front();
                    counts.issued += u64::from(oldest.is_some());
                    assert_eq!(ours.pop(), oldest, "UNDERCROFT_SEED={seed} step {step}");
                }
                1 => {
                    counts.demanded += remove(&mut list);
                    ours.drop_demanded(block);
                }
                2 => {
                    counts.written += remove(&mut list);
                    ours.drop_written(block);
                }
                3 => {
                    counts.discarded += remove(&mut list);
                    ours.discard_within(&(block..=block));
                }
                _ if list.contains(&block) => {
                    counts.duplicates += 1;
                    ours.push(block);
                }
                _ => {
                    counts.queued += 1;
                    list.push_back(block);
                    if list.len() > max as usize {
                        counts.overflowed += 1;
                        list.pop_front();
                    }
                    ours.push(block);
                }
            }
            assert_eq!(*ours.counts(), counts, "UNDERCROFT_SEED={seed} step {step}");
            assert_eq!((ours.len() as usize, ours.is_empty()), (list.len(), list.is_empty()));
            ours.validate().unwrap_or_else(|e| panic!("UNDERCROFT_SEED={seed} step {step}: {e}"));
        }
    }
}

#[test]
fn counts_anew_what_still_waits() {
    let mut queue = ReloadQueue::new(3, 1);
    (0..5).for_each(|block| queue.push(block));
    queue.restart_counts(0);
    assert_eq!(*queue.counts(), ReloadCounts { queued: 3, ..ReloadCounts::default() });
    assert_eq!(queue.pop(), Some(2));
    queue.validate().unwrap();
}
