//! A queue by falling hotness, the newest ahead among equals.
//!
//! Most blocks have no hotness, and stand in a list at the tail's end. Of those that have some, the
//! ones that were not hit since they came have what a few moves are worth: such sums are few, and
//! each has a list of its own, a class. The others, and those for whose sum no class is left, are
//! in a heap.
//!
//! Invariants: a block is in the list or the heap that its record says; the marks say which classes
//! hold a block; a class holds blocks of one hotness, in the order in which they came.

use std::ops::Deref;

use undercroft_random::fibonacci;

use super::super::activity::Steps;
use super::super::records::{Block, Blocks, BlocksAtHand};
use super::queue::Queue;
use crate::Entry;
use crate::heap::{LazyHeap, Words};

/// Lists for equally hot blocks: for those without hotness, for what one move is worth over six
/// slots, halved from each to the one before, and for what is less than two of them.
const CLASSES: usize = 32;

/// `class` of a block in the heap.
const IN_HEAP: u8 = u8::MAX;

/// Where a value of hotness was found last, by a hash of it.
const FOUND: usize = 64;

pub(super) struct ByHeat {
    /// The list of those without hotness; those of the other classes follow. Front: came first.
    first: u32,
    classes: Classes,
    heap: LazyHeap<Words>,
    came: u64,
    len: u32,
}

/// Which list is for which hotness.
struct Classes {
    /// Hotness in bits and the list for it, by rising hotness: the first is that of none.
    lists: Vec<(u64, u8)>,
    /// A bit for each of them whose list is not empty.
    filled: u32,
    /// Hotness in bits, and its place among them and its list.
    found: [(u64, At); FOUND],
}

impl Classes {
    fn new() -> Self {
        let mut lists = Vec::with_capacity(CLASSES);
        lists.push((0, 0));
        Self { lists, filled: 0, found: [(0, At::default()); FOUND] }
    }

    /// Where in `found` a hotness is looked for: its bits mixed by the golden ratio.
    #[inline(always)]
    fn hash(heat: u64) -> usize {
        (fibonacci(heat) >> 58) as usize % FOUND
    }

    /// The list for a hotness; none: there is none left.
    #[inline(always)]
    fn enter(&mut self, heat: u64) -> Option<u8> {
        let At { place, list } = self.at(heat)?;
        self.filled |= 1 << place;
        Some(list)
    }

    #[inline(always)]
    fn at(&mut self, heat: u64) -> Option<At> {
        let (known, at) = self.found[Self::hash(heat)];
        if known == heat { Some(at) } else { self.find(heat) }
    }

    #[inline(never)]
    fn find(&mut self, heat: u64) -> Option<At> {
        let place = match self.lists.binary_search_by_key(&heat, |&(other, _)| other) {
            Ok(place) => place,
            Err(place) => self.add(place, heat)?,
        };
        let at = At { place: place as u8, list: self.lists[place].1 };
        self.found[Self::hash(heat)] = (heat, at);
        Some(at)
    }

    #[cold]
    fn add(&mut self, mut at: usize, heat: u64) -> Option<usize> {
        let mut list = self.lists.len() as u8;
        if self.lists.len() == CLASSES {
            // The list of no hotness stays.
            let idle = (self.filled | 1).trailing_ones() as usize;
            if idle == CLASSES {
                return None;
            }
            list = self.lists.remove(idle).1;
            self.filled = without_bit(self.filled, idle);
            at -= usize::from(idle < at);
        }
        self.lists.insert(at, (heat, list));
        let below = (1 << at) - 1;
        self.filled = self.filled & below | (self.filled & !below) << 1;
        // Places have changed.
        self.found = [(0, At::default()); FOUND];
        Some(at)
    }

    /// A list is empty now.
    fn empty(&mut self, heat: u64) {
        if let Some(at) = self.at(heat) {
            self.filled &= !(1 << at.place);
        }
    }

    /// The list of the least hotness that is not empty.
    #[inline(always)]
    fn first(&self) -> Option<u32> {
        (self.filled != 0).then(|| self.lists[self.filled.trailing_zeros() as usize].1.into())
    }
}

/// Where a hotness is among the classes, and which list that one has.
#[derive(Clone, Copy, Default)]
struct At {
    place: u8,
    list: u8,
}

fn without_bit(bits: u32, at: usize) -> u32 {
    let below = (1 << at) - 1;
    bits & below | bits >> 1 & !below
}

impl ByHeat {
    /// What a warm block is ordered by. Numbers that are not negative are in the order of their
    /// bits.
    fn key(block: &Block) -> Words {
        Words(block.heat.to_bits(), block.came)
    }

    /// The lists of the classes with hotness, the hottest first.
    fn warm_lists(&self) -> impl Iterator<Item = u32> + '_ {
        self.classes.lists[1..].iter().rev().map(|&(_, list)| self.first + u32::from(list))
    }
}

impl Queue for ByHeat {
    fn lists(_: &Steps) -> u32 {
        CLASSES as u32
    }

    fn new(first: u32, _: &Steps) -> Self {
        Self { first, classes: Classes::new(), heap: LazyHeap::new(), came: 0, len: 0 }
    }

    fn grow(&mut self, entries: u32) {
        self.heap.grow(entries);
    }

    #[inline(always)]
    fn len(&self) -> u32 {
        self.len
    }

    #[inline(always)]
    fn push(&mut self, blocks: &mut BlocksAtHand<'_>, entry: Entry) {
        self.len += 1;
        self.came += 1;
        let block = blocks.get_mut(entry);
        let heat = block.heat.to_bits();
        let has_class = block.hits == 0 || heat == 0;
        let class = if has_class { self.classes.enter(heat) } else { None };
        (block.came, block.class) = (self.came, class.unwrap_or(IN_HEAP));
        match class {
            Some(class) => blocks.push_back(self.first + u32::from(class), entry),
            None => self.heap.push(Words(heat, self.came), entry),
        }
    }

    fn push_last(&mut self, blocks: &mut BlocksAtHand<'_>, entry: Entry) {
        self.push(blocks, entry);
        if blocks.get(entry).heat == 0.0 {
            blocks.remove(entry);
            blocks.push_front(self.first, entry);
        }
    }

    #[inline(always)]
    fn remove(&mut self, blocks: &mut BlocksAtHand<'_>, entry: Entry) {
        self.len -= 1;
        let Block { class, heat, .. } = *blocks.get(entry);
        if class == IN_HEAP {
            return self.heap.remove(entry);
        }
        blocks.remove(entry);
        if blocks.is_empty(self.first + u32::from(class)) {
            self.classes.empty(heat.to_bits());
        }
    }

    #[inline(always)]
    fn cool(&mut self, blocks: &mut BlocksAtHand<'_>, entry: Entry) {
        self.remove(blocks, entry);
        blocks.get_mut(entry).heat = 0.0;
        self.push(blocks, entry);
    }

    #[inline(always)]
    fn tail(&mut self, blocks: &BlocksAtHand<'_>) -> Option<Entry> {
        let oldest = self.classes.first().and_then(|list| blocks.front(self.first + list));
        // Nothing in the heap is as cold as that.
        if self.classes.filled & 1 == 1 {
            return oldest;
        }
        match (oldest, self.heap.first()) {
            (Some(entry), Some((key, other))) => {
                Some(if Self::key(blocks.get(entry)) < key { entry } else { other })
            }
            (oldest, least) => oldest.or(least.map(|(_, entry)| entry)),
        }
    }

    fn warm_from_head<R>(&self, blocks: &Blocks<R>, count: usize) -> Vec<Entry>
    where
        R: Deref<Target = [Block]>,
    {
        let word = |Words(heat, came): Words, entry| (heat, came, entry);
        let classed = self.warm_lists().flat_map(|list| blocks.iter_back(list));
        let classed = classed.map(|entry| word(Self::key(blocks.get(entry)), entry)).take(count);
        let mut all: Vec<_> = classed.chain(self.heap.iter().map(|(k, e)| word(k, e))).collect();
        let colder = all.len().saturating_sub(count);
        if colder > 0 {
            all.select_nth_unstable(colder);
        }
        all[colder..].sort_unstable();
        all[colder..].iter().rev().map(|&(.., entry)| entry).collect()
    }

    fn tail_first(&self, blocks: &Blocks) -> Vec<Entry> {
        let mut warm = self.warm_from_head(blocks, self.len as usize);
        warm.reverse();
        blocks.iter(self.first).chain(warm).collect()
    }

    fn check(&self, blocks: &Blocks) -> Result<(), String> {
        let mut held = self.heap.len();
        for (at, &(heat, class)) in self.classes.lists.iter().enumerate() {
            let list = self.first + u32::from(class);
            let keys: Vec<_> =
                blocks.iter(list).map(|entry| Self::key(blocks.get(entry))).collect();
            held += keys.len() as u32;
            let is_right = keys.iter().all(|key| key.0 == heat);
            // One without hotness may have been put in front.
            let is_sorted = at == 0 || keys.is_sorted();
            if !is_right || !is_sorted || keys.is_empty() == (self.classes.filled >> at & 1 == 1) {
                return Err(format!("blocks of hotness {}: not in order", f64::from_bits(heat)));
            }
        }
        if held != self.len || self.classes.lists[0] != (0, 0) || !self.classes.lists.is_sorted() {
            return Err(format!("a queue by hotness of {held} counts {}", self.len));
        }
        self.heap.check()
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::activity::Steps;
    use super::super::super::records::Blocks;
    use super::{ByHeat, CLASSES, Queue};
    use crate::Entry;

    /// More values of hotness than there are classes, so that classes run out, are used again for
    /// another value, and some blocks of a value are in the heap while others are in its class.
    #[test]
    fn agrees_with_a_sorted_list() {
        let steps = Steps::new(1);
        let mut blocks = Blocks::new(ByHeat::lists(&steps));
        let mut ours = ByHeat::new(0, &steps);
        blocks.grow(200);
        ours.grow(200);
        // From the tail on.
        let mut model: Vec<(u64, Entry)> = Vec::new();
        let (mut x, mut most_classes) = (5_u64, 0);
        for step in 0..30_000 {
            x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let (entry, heat) = ((x >> 33) as u32 % 200, (x >> 43) % 45);
            if let Some(at) = model.iter().position(|m| m.1 == entry) {
                ours.remove(&mut blocks.at_hand(), entry);
                model.remove(at);
            } else {
                let block = blocks.get_mut(entry);
                (block.heat, block.hits) = (heat as f64, u16::from(x >> 61 == 0));
                let is_last = x >> 59 & 3 == 0;
                if is_last {
                    ours.push_last(&mut blocks.at_hand(), entry);
                } else {
                    ours.push(&mut blocks.at_hand(), entry);
                }
                let is_first_of_cold = is_last && heat == 0;
                let ahead = |m: &(u64, Entry)| m.0 < heat || (m.0 == heat && !is_first_of_cold);
                let at = model.partition_point(ahead);
                model.insert(at, (heat, entry));
            }
            most_classes = most_classes.max(ours.classes.filled.count_ones());
            assert_eq!(ours.tail(&blocks.at_hand()), model.first().map(|m| m.1), "step {step}");
            if step % 50 == 0 {
                let all: Vec<Entry> = model.iter().map(|m| m.1).collect();
                assert_eq!(ours.tail_first(&blocks), all, "step {step}");
                let warm = model.iter().rev().filter(|m| m.0 > 0).map(|m| m.1);
                assert_eq!(ours.warm_from_head(&blocks, 7), warm.take(7).collect::<Vec<_>>());
                ours.check(&blocks).unwrap();
                blocks.check().unwrap();
            }
        }
        assert_eq!(most_classes as usize, CLASSES, "they ran out");
    }
}
