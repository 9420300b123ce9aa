//! CLOCK-Pro: LIRS with clocks. Pages are hot or cold by reuse distance. A cold page is in test for
//! a while after it was put into the list, even if it is evicted meanwhile; if it is referenced in
//! that time, it becomes hot. A hit only sets a bit.
//!
//! The list form: in place of three hands on a ring, "the matching page nearest the tail" of one
//! list; a page that a hand passes goes to the head. (A widely copied program with three hands can
//! recurse without end.) Two facts keep this cheap. Hot and cold pages enter only at the head, so
//! each kind has a list of its own, and the time at which a page was put there gives the order
//! between the lists. A cold page can stop being resident or in test anywhere, but it starts so
//! only at the head: the hand for it passes every page once.
//!
//! `cold_target` (the paper's m_c) grows when a page passes its test, and shrinks when a test
//! fails.
//!
//! Invariants:
//! 1. `|hot|` is at most the capacity - `cold_target`, hot and resident cold pages together at most
//!    the capacity; 1 <= `cold_target` <= max(1, capacity - 1);
//! 2. `state` names the list a page is in, `at` its slot there; non-resident pages are cold, in
//!    test and unreferenced;
//! 3. both lists are in ascending order of time;
//! 4. nothing between the tail of `cold` and `cold_hand` is resident, nothing between the tail and
//!    `test_hand` is in test.

use crate::containers::trail::Trail;
use crate::registry::{Footprint, PolicyInfo};
use crate::snapshot::{Snapshot, SnapshotError};
use crate::{Entry, EvictionKind, Evictions, Policy};

pub(super) const INFO: PolicyInfo = PolicyInfo {
    name: "clock-pro",
    aliases: &[("clockpro", "")],
    summary: "LIRS with clocks: hits only set a bit",
    source: "Jiang, Chen & Zhang, USENIX ATC 2005",
    parameters: &[],
    memory: Footprint::new(2, 192),
    build: |_, context| {
        Ok(Box::new(ClockPro {
            capacity: context.capacity,
            cold_target: 1,
            ghosts: 0,
            time: 0,
            cold_hand: 0,
            test_hand: 0,
            hot: Trail::new(),
            cold: Trail::new(),
            dropped: Vec::new(),
            state: Vec::new(),
            at: Vec::new(),
        }))
    },
};

/// Bits of a page's `state`; 0: an unknown page.
const RESIDENT: u8 = 1;
const REFERENCED: u8 = 2;
const IN_TEST: u8 = 4;
const IS_HOT: u8 = 8;
const IS_DROPPED: u8 = 16;

#[derive(Clone, Debug)]
struct ClockPro {
    capacity: u32,
    cold_target: u32,
    /// Number of non-resident pages.
    ghosts: u32,
    /// Number of times that a page was put at the head.
    time: u64,
    /// Position in `cold` where the search for the resident page nearest the tail begins.
    cold_hand: u64,
    /// Position in `cold` where the search for the page in test nearest the tail begins.
    test_hand: u64,
    /// The pages with the time at which they were put at the head. The front is the tail of the
    /// paper, the back its head.
    hot: Trail<u64>,
    cold: Trail<u64>,
    /// Non-resident pages whose test ended in this call.
    dropped: Vec<Entry>,
    state: Vec<u8>,
    /// The slot of a page in `hot` or `cold`.
    at: Vec<u32>,
}

impl ClockPro {
    #[inline(always)]
    fn is(&self, bit: u8, entry: Entry) -> bool {
        self.state[entry as usize] & bit != 0
    }

    fn is_ghost(&self, entry: Entry) -> bool {
        self.state[entry as usize] & (RESIDENT | IN_TEST) == IN_TEST
    }

    fn hot_limit(&self) -> u32 {
        self.capacity - self.cold_target
    }

    fn grow_cold_target(&mut self) {
        self.cold_target = (self.cold_target + 1).min(self.capacity - 1).max(1);
    }

    /// Puts a page, which is in no list, at the head.
    #[inline(always)]
    fn put(&mut self, state: u8, entry: Entry) {
        self.time += 1;
        self.state[entry as usize] = state;
        let is_hot = state & IS_HOT != 0;
        let list = if is_hot { &mut self.hot } else { &mut self.cold };
        if list.is_full() {
            let hands = &mut [&mut self.cold_hand, &mut self.test_hand];
            let marks = if is_hot { &mut [] } else { &mut hands[..] };
            list.make_room(marks, |entry, slot| self.at[entry as usize] = slot);
        }
        self.at[entry as usize] = list.push(entry, self.time);
    }

    /// Removes a page from its list, if it is in one.
    #[inline(always)]
    fn pull(&mut self, entry: Entry) {
        let slot = self.at[entry as usize];
        match std::mem::take(&mut self.state[entry as usize]) {
            0 | IS_DROPPED => {}
            state if state & IS_HOT != 0 => _ = self.hot.remove(slot),
            state => {
                self.ghosts -= u32::from(state & RESIDENT == 0);
                self.cold.remove(slot);
            }
        }
    }

    /// Moves the cold hand to the first resident page.
    #[inline(always)]
    fn seek_resident(&mut self) -> Option<Entry> {
        let found = self.cold.find(self.cold_hand, |entry| self.is(RESIDENT, entry));
        self.cold_hand = found.map_or(self.cold.end(), |(position, ..)| position);
        found.map(|(_, page, _)| page)
    }

    /// Moves the hand to the first page in test. Returns that page, and when it was put there.
    #[inline(always)]
    fn seek_test(&mut self) -> Option<(Entry, u64)> {
        let found = self.cold.find(self.test_hand, |entry| self.is(IN_TEST, entry));
        self.test_hand = found.map_or(self.cold.end(), |(position, ..)| position);
        found.map(|(_, page, put_at)| (page, put_at))
    }

    /// RUN_COLD of the specification: evicts the resident cold page nearest the tail, or spares it
    /// because it was referenced.
    #[inline(always)]
    fn run_cold(&mut self, out: &mut Evictions) {
        let Some(page) = self.seek_resident() else { return };
        let in_test = self.is(IN_TEST, page);
        match (self.is(REFERENCED, page), in_test) {
            (true, true) => {
                self.pull(page);
                self.put(RESIDENT | IS_HOT, page);
                self.grow_cold_target();
                self.fit_hot();
            }
            (true, false) => {
                self.pull(page);
                self.put(RESIDENT | IN_TEST, page);
            }
            (false, true) => {
                out.push(page, EvictionKind::Remembered);
                self.make_ghost(page);
            }
            (false, false) => {
                self.pull(page);
                out.push(page, EvictionKind::Evicted);
            }
        }
    }

    /// Makes a cold page in test non-resident, where it is. If there are too many such pages, one
    /// test ends.
    fn make_ghost(&mut self, page: Entry) {
        self.state[page as usize] = IN_TEST;
        self.ghosts += 1;
        if self.ghosts > self.capacity {
            if let Some((nearest, _)) = self.seek_test() {
                self.end_test(nearest);
            }
        }
    }

    fn end_test(&mut self, page: Entry) {
        self.cold_target = (self.cold_target - 1).max(1);
        if self.is(RESIDENT, page) {
            self.state[page as usize] &= !IN_TEST;
        } else {
            self.drop_ghost(page);
        }
    }

    fn drop_ghost(&mut self, page: Entry) {
        self.pull(page);
        self.dropped.push(page);
        self.state[page as usize] = IS_DROPPED;
    }

    /// FIT: makes hot pages cold while there are too many. RUN_HOT takes the hot page nearest the
    /// tail, and ends the tests of the cold pages that it passes.
    fn fit_hot(&mut self) {
        while self.hot.len() > self.hot_limit() {
            let Some((page, put_at)) = self.hot.front() else { return };
            while let Some((passed, _)) = self.seek_test().filter(|&(_, time)| time < put_at) {
                self.end_test(passed);
            }
            let spared = self.is(REFERENCED, page);
            self.pull(page);
            self.put(if spared { RESIDENT | IS_HOT } else { RESIDENT }, page);
        }
    }

    /// Makes a page resident. If it is found in test, `cold_target` grows if this `counts` as a
    /// reference.
    #[inline(always)]
    fn insert(&mut self, entry: Entry, counts: bool, out: &mut Evictions) {
        let had_room = self.len() < self.capacity;
        while self.len() >= self.capacity {
            self.run_cold(out);
        }
        let in_test = self.is(IN_TEST, entry);
        self.pull(entry);
        if in_test {
            if counts {
                self.grow_cold_target();
            }
            self.put(RESIDENT | IS_HOT, entry);
            self.fit_hot();
        } else if had_room && self.hot.len() < self.hot_limit() {
            self.put(RESIDENT | IS_HOT, entry);
        } else {
            self.put(RESIDENT | IN_TEST, entry);
        }
        self.report(out);
    }

    /// Reports the dropped pages that did not become resident again.
    #[inline(always)]
    fn report(&mut self, out: &mut Evictions) {
        for ghost in self.dropped.drain(..) {
            if self.state[ghost as usize] == IS_DROPPED {
                self.state[ghost as usize] = 0;
                out.push(ghost, EvictionKind::Forgotten);
            }
        }
    }

    /// Drops the non-resident pages beyond the capacity; that is not a failed test.
    fn trim_ghosts(&mut self) {
        let mut position = 0;
        while self.ghosts > self.capacity {
            let ghost = self.cold.find(position, |entry| self.is_ghost(entry));
            let Some((at, page, _)) = ghost else { return };
            self.drop_ghost(page);
            position = at + 1;
        }
    }
}

impl Policy for ClockPro {
    fn capacity(&self) -> u32 {
        self.capacity
    }

    #[inline(always)]
    fn len(&self) -> u32 {
        self.hot.len() + self.cold.len() - self.ghosts
    }

    fn grow(&mut self, entries: u32) {
        let entries = self.state.len().max(entries as usize);
        self.state.resize(entries, 0);
        self.at.resize(entries, 0);
    }

    #[inline(always)]
    fn contains(&self, entry: Entry) -> bool {
        self.is(RESIDENT, entry)
    }

    #[inline(always)]
    fn remembers(&self, entry: Entry) -> bool {
        self.is_ghost(entry)
    }

    #[inline(always)]
    fn touch(&mut self, entry: Entry, _: &mut Evictions) {
        self.state[entry as usize] |= REFERENCED;
    }

    #[inline(always)]
    fn admit(&mut self, entry: Entry, out: &mut Evictions) {
        self.insert(entry, true, out);
    }

    fn take(&mut self, entry: Entry, out: &mut Evictions) {
        if !self.contains(entry) {
            return;
        }
        if self.is(IN_TEST, entry) {
            self.make_ghost(entry);
            if self.is(IS_DROPPED, entry) {
                self.pull(entry);
            }
        } else {
            self.pull(entry);
        }
        self.report(out);
    }

    fn place(&mut self, entry: Entry, out: &mut Evictions) {
        if !self.contains(entry) {
            self.insert(entry, false, out);
        }
    }

    fn discard(&mut self, entry: Entry, _: &mut Evictions) {
        self.pull(entry);
    }

    /// The first unreferenced page at the cold hand. Without one it continues on a copy, since the
    /// spared pages may first turn others cold: O(entries), and rare.
    fn victim(&self) -> Option<Entry> {
        if self.len() < self.capacity {
            return None;
        }
        let would_go = |e| self.is(RESIDENT, e) && !self.is(REFERENCED, e);
        if let Some((_, page, _)) = self.cold.find(self.cold_hand, would_go) {
            return Some(page);
        }
        let (mut copy, mut out) = (self.clone(), Evictions::new());
        while copy.len() == self.capacity {
            copy.run_cold(&mut out);
        }
        out.evicted().next()
    }

    fn resize(&mut self, capacity: u32, out: &mut Evictions) {
        let shrinks = capacity < self.capacity;
        self.capacity = capacity;
        if shrinks {
            self.cold_target = self.cold_target.min(capacity - 1).max(1);
            self.fit_hot();
            self.trim_ghosts();
            while self.len() > capacity {
                self.run_cold(out);
            }
        }
        self.report(out);
    }

    /// Cold pages, then hot ones, each from the tail.
    fn residents(&self) -> Vec<Entry> {
        let pages = self.cold.iter().chain(self.hot.iter()).map(|(entry, _)| entry);
        pages.filter(|&entry| self.contains(entry)).collect()
    }

    #[inline(always)]
    fn prefetch(&self, entry: Entry) -> u32 {
        self.at[entry as usize] ^ u32::from(self.state[entry as usize])
    }

    /// The hands restart: the pages that they have passed do not match anyway.
    fn save_load(&mut self, snapshot: &mut Snapshot<'_>) -> Result<(), SnapshotError> {
        snapshot.number(&mut self.cold_target, 1..=self.capacity)?;
        snapshot.clock(&mut self.time)?;
        let now = self.time;
        for is_hot in [true, false] {
            let list = if is_hot { &self.hot } else { &self.cold };
            let saved = list.iter().map(|(entry, at)| (entry, (at, self.state[entry as usize])));
            for (entry, (put_at, state)) in
                snapshot.entries_with(list.len(), saved, |snapshot, it| {
                    snapshot.number(&mut it.0, 1..=now)?;
                    snapshot.number(&mut it.1, RESIDENT..=RESIDENT | REFERENCED | IS_HOT)
                })?
            {
                let kind = state & !(RESIDENT | REFERENCED);
                let right = match state & RESIDENT {
                    0 => !is_hot && state == IN_TEST,
                    _ if is_hot => kind == IS_HOT,
                    _ => kind & !IN_TEST == 0,
                };
                if !right || self.state[entry as usize] != 0 {
                    return Err(SnapshotError::new(format!(
                        "entry {entry} cannot be in state {state} here"
                    )));
                }
                self.time = put_at - 1;
                self.put(state, entry);
                self.ghosts += u32::from(state & RESIDENT == 0);
            }
        }
        self.time = now;
        Ok(())
    }

    fn validate(&self) -> Result<(), String> {
        let c = self.capacity;
        if self.len() > c || self.hot.len() > self.hot_limit() {
            return Err("more resident or hot than allowed".into());
        }
        if !(1..=1.max(c - 1)).contains(&self.cold_target) {
            return Err(format!("target {} for a capacity of {c}", self.cold_target));
        }
        if self.cold.iter().filter(|&(e, _)| self.is_ghost(e)).count() as u32 != self.ghosts {
            return Err(format!("{} ghosts are counted", self.ghosts));
        }
        let is_hot = |e: Entry| self.state[e as usize] & !REFERENCED == RESIDENT | IS_HOT;
        let is_cold = |e: Entry| {
            let state = self.state[e as usize];
            self.is_ghost(e) || state & (RESIDENT | IS_HOT | IS_DROPPED) == RESIDENT
        };
        if !self.hot.iter().all(|(e, _)| is_hot(e)) || !self.cold.iter().all(|(e, _)| is_cold(e)) {
            return Err("a page is in a list by mistake".into());
        }
        for (hand, bit) in [(self.cold_hand, RESIDENT), (self.test_hand, IN_TEST)] {
            let found = |from| self.cold.find(from, |e| self.is(bit, e)).map(|(_, page, _)| page);
            if found(hand) != found(0) {
                return Err(format!("hand {hand:?} has passed a page it looks for"));
            }
        }
        let known = self.state.iter().filter(|&&state| state != 0).count() as u32;
        if known != self.hot.len() + self.cold.len() {
            return Err("a page has a state and is in no list".into());
        }
        for list in [&self.hot, &self.cold] {
            if !list.iter().is_sorted_by_key(|(_, put_at)| put_at) {
                return Err("a list is out of order".into());
            }
            list.check(|entry| Some(self.at[entry as usize]))?;
        }
        Ok(())
    }
}
