//! The slots against a naive model of sets with a hand each. Which set a block belongs to is the
//! one thing that the model learns from the slots; a block must never change it.

use std::collections::HashMap;

use undercroft_flash::{Directory, Evidence, Slot, Slots, WAYS};
use undercroft_random::SplitMix64;

#[derive(Clone, Default)]
struct Set {
    /// The block of each slot, its counter, and whether memory holds it too.
    slots: Vec<Option<(u64, u8, bool)>>,
    hand: usize,
}

impl Set {
    /// Where the next block goes, and what goes for it.
    fn place(&mut self, block: u64) -> (usize, Option<u64>) {
        if let Some(free) = self.slots.iter().position(Option::is_none) {
            self.slots[free] = Some((block, 1, false));
            return (free, None);
        }
        loop {
            let at = self.hand;
            self.hand = (at + 1) % self.slots.len();
            let Some((resident, counter, is_held)) = &mut self.slots[at] else {
                panic!("no slot is free");
            };
            if *counter == 0 || (*is_held && *counter < 3) {
                let gone = *resident;
                self.slots[at] = Some((block, 0, false));
                return (at, Some(gone));
            }
            *counter -= 1;
        }
    }
}

#[test]
fn slots_are_sets_with_hands() {
    let mut random = SplitMix64::seeded();
    for (sets, blocks) in [(1, 200), (5, 2000)] {
        let mut slots = Slots::new(sets * WAYS, random.next_u64());
        let mut model = vec![Set { slots: vec![None; WAYS as usize], hand: 0 }; sets as usize];
        let mut home: HashMap<u64, usize> = HashMap::new();
        let mut at: HashMap<u64, Slot> = HashMap::new();
        for step in 0..40_000 {
            let block = random.below(blocks);
            assert_eq!(slots.find(block), at.get(&block).copied(), "step {step}, block {block}");
            let Some(&slot) = at.get(&block) else {
                let evidence = [Evidence::Hit, Evidence::WasThere][step % 2];
                let (slot, gone) = slots.place(block, evidence).unwrap();
                let set = (slot / WAYS) as usize;
                assert_eq!(*home.entry(block).or_insert(set), set, "step {step}, block {block}");
                let (place, expected) = model[set].place(block);
                assert_eq!((slot % WAYS, gone), (place as u32, expected), "step {step}");
                gone.iter().for_each(|gone| assert!(at.remove(gone).is_some()));
                at.insert(block, slot);
                continue;
            };
            let Some((_, counter, is_held)) =
                &mut model[home[&block]].slots[(slot % WAYS) as usize]
            else {
                panic!("block {block} is in its slot");
            };
            let dice = random.below(8);
            if dice < 3 {
                slots.touch(slot);
                *counter = (*counter + 1).min(3);
                *is_held = true;
            } else if dice < 6 {
                slots.keep(slot);
                *is_held = false;
            } else {
                slots.empty(slot);
                model[home[&block]].slots[(slot % WAYS) as usize] = None;
                at.remove(&block);
            }
        }
        slots.validate().unwrap();
        assert_eq!(slots.count() as usize, at.len());
    }
}

/// Numbers from all over the range come back whole when their block has to go; one beyond it has no
/// place.
#[test]
fn blocks_keep_their_numbers() {
    let mut random = SplitMix64::seeded();
    for capacity in [1, 7, 128, 300, 1000, 40_000] {
        let mut slots = Slots::new(capacity, random.next_u64());
        assert!(slots.capacity() <= capacity && slots.capacity() > 0);
        let most = slots.limit();
        let mut there = std::collections::HashSet::new();
        for _ in 0..4 * capacity {
            let block = random.below(most);
            if slots.find(block).is_some() {
                continue;
            }
            let (_, gone) = slots.place(block, Evidence::Hit).unwrap();
            assert!(gone.is_none_or(|gone| there.remove(&gone)), "{capacity}: {gone:?}");
            there.insert(block);
        }
        assert!(there.iter().all(|&block| slots.find(block).is_some()));
        assert_eq!((slots.find(most), slots.place(most, Evidence::Hit)), (None, None));
        assert_eq!(slots.find(u64::MAX), None);
    }
}

/// Blocks in a row, as disks have them, spread over the sets as chance would have it.
#[test]
fn neighbours_spread_over_the_sets() {
    let sets = 64;
    let mut slots = Slots::new(sets * WAYS, 0);
    // Half of what there is room for: a set with more than its room would evict.
    let evicted = (0..u64::from(sets * WAYS / 2))
        .filter(|&block| slots.place(block, Evidence::Hit).unwrap().1.is_some());
    assert_eq!(evicted.count(), 0);
}
