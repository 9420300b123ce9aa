//! CLOCK-Pro: LIRS with clocks. Pages are hot or cold by reuse distance; a cold page is in test
//! for a while after it was put into the list, also when it is evicted meanwhile, and becomes hot
//! if it is referenced in that time. Hits only set a bit.
//!
//! The list form: instead of three hands on a ring, "the matching page nearest the tail" of one
//! list, and what a hand passes goes to the head (a widely copied program with three hands can
//! recurse without end). Two facts keep this cheap. Hot pages and cold ones enter at the head and
//! nowhere else, so each kind has a list of its own, and the time at which a page was put there
//! tells how the two interleave. And a cold page can cease to be resident or in test where it
//! stands, but it becomes so at the head only: the hand for it passes every page once.
//!
//! `cold_target` (the paper's m_c) grows when a test is passed, and shrinks when one ends in vain.
//!
//! Invariants:
//! 1. `|HOT|` is at most the capacity - `cold_target`, hot and resident cold pages together at most
//!    the capacity; 1 <= `cold_target` <= max(1, capacity - 1);
//! 2. `state` names the list a page is in; non-resident pages are cold, in test and unreferenced;
//! 3. both lists are in ascending order of time;
//! 4. nothing between the tail of COLD and `cold_hand` is resident, nothing between the tail and
//!    `test_hand` is in test; a hand is `None` when it has passed everything.

use super::registry::PolicyInfo;
use super::{Departures, Entry, Fate, Policy};
use crate::lists::Lists;

pub(super) const INFO: PolicyInfo = PolicyInfo {
    name: "clock-pro",
    aliases: &[("clockpro", "")],
    summary: "LIRS with clocks: hits only set a bit",
    source: "Jiang, Chen & Zhang, USENIX ATC 2005",
    parameters: &[],
    build: |_, context| {
        Ok(Box::new(ClockPro {
            capacity: context.capacity,
            cold_target: 1,
            ghosts: 0,
            time: 0,
            cold_hand: None,
            test_hand: None,
            lists: Lists::new(3),
            state: Vec::new(),
        }))
    },
};

/// The lists; the front is the tail of the paper, the back its head.
const HOT: u32 = 0;
const COLD: u32 = 1;
/// Non-resident pages whose test ended in this call.
const DROPPED: u32 = 2;

/// Bits of a page's `state`; 0 is a page in no list.
const RESIDENT: u8 = 1;
const REFERENCED: u8 = 2;
const IN_TEST: u8 = 4;
const IS_HOT: u8 = 8;
const IS_DROPPED: u8 = 16;

#[derive(Clone)]
struct ClockPro {
    capacity: u32,
    cold_target: u32,
    /// Number of non-resident pages.
    ghosts: u32,
    /// Counts the pages put at the head.
    time: u64,
    /// Where to look for the resident cold page nearest the tail.
    cold_hand: Option<Entry>,
    /// Where to look for the page in test nearest the tail.
    test_hand: Option<Entry>,
    /// With the time at which a page was put at the head.
    lists: Lists<u64>,
    state: Vec<u8>,
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

    /// Puts a page that is in no list at the head.
    #[inline(always)]
    fn put(&mut self, state: u8, entry: Entry) {
        self.time += 1;
        *self.lists.data_mut(entry) = self.time;
        self.state[entry as usize] = state;
        if state & IS_HOT != 0 {
            return self.lists.push_back(HOT, entry);
        }
        self.lists.push_back(COLD, entry);
        self.cold_hand = self.cold_hand.or(Some(entry));
        if state & IN_TEST != 0 {
            self.test_hand = self.test_hand.or(Some(entry));
        }
    }

    /// Takes a page out of the list, if it is there; the hands move on.
    #[inline(always)]
    fn pull(&mut self, entry: Entry) {
        let state = std::mem::take(&mut self.state[entry as usize]);
        match state {
            0 => return,
            _ if state & IS_HOT != 0 => return self.lists.remove(HOT, entry),
            IS_DROPPED => return self.lists.remove(DROPPED, entry),
            _ => {}
        }
        self.ghosts -= u32::from(state & RESIDENT == 0);
        if self.cold_hand == Some(entry) {
            self.cold_hand = self.lists.next(entry);
        }
        if self.test_hand == Some(entry) {
            self.test_hand = self.lists.next(entry);
        }
        self.lists.remove(COLD, entry);
    }

    /// The first page from `hand` toward the head that has `bit`.
    #[inline(always)]
    fn seek(&self, mut hand: Option<Entry>, bit: u8) -> Option<Entry> {
        while let Some(entry) = hand.filter(|&entry| !self.is(bit, entry)) {
            hand = self.lists.next(entry);
        }
        hand
    }

    /// RUN_COLD of the specification: evicts the resident cold page nearest the tail, or spares it
    /// because it was referenced.
    #[inline(always)]
    fn run_cold(&mut self, out: &mut Departures) {
        self.cold_hand = self.seek(self.cold_hand, RESIDENT);
        let Some(page) = self.cold_hand else { return };
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
                out.push(page, Fate::Remembered);
                self.make_ghost(page);
            }
            (false, false) => {
                self.pull(page);
                out.push(page, Fate::Evicted);
            }
        }
    }

    /// Leaves a cold page in test where it stands, non-resident. One test ends if there are too
    /// many such pages.
    fn make_ghost(&mut self, page: Entry) {
        self.state[page as usize] = IN_TEST;
        self.ghosts += 1;
        if self.ghosts > self.capacity {
            self.test_hand = self.seek(self.test_hand, IN_TEST);
            if let Some(nearest) = self.test_hand {
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
        self.lists.push_back(DROPPED, page);
        self.state[page as usize] = IS_DROPPED;
    }

    /// FIT: makes hot pages cold while there are too many. RUN_HOT takes the hot page nearest the
    /// tail, and on its way ends the tests of the cold pages that it passes.
    fn fit_hot(&mut self) {
        while self.lists.len(HOT) > self.hot_limit() {
            let Some(page) = self.lists.front(HOT) else { return };
            let put_at = self.lists.data(page);
            self.test_hand = self.seek(self.test_hand, IN_TEST);
            while let Some(passed) = self.test_hand.filter(|&p| self.lists.data(p) < put_at) {
                self.end_test(passed);
                self.test_hand = self.seek(self.test_hand, IN_TEST);
            }
            let spared = self.is(REFERENCED, page);
            self.pull(page);
            self.put(if spared { RESIDENT | IS_HOT } else { RESIDENT }, page);
        }
    }

    /// Makes a page resident. If it is found in test, `cold_target` grows if this `counts` as a
    /// reference.
    #[inline(always)]
    fn insert(&mut self, entry: Entry, counts: bool, out: &mut Departures) {
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
        } else if had_room && self.lists.len(HOT) < self.hot_limit() {
            self.put(RESIDENT | IS_HOT, entry);
        } else {
            self.put(RESIDENT | IN_TEST, entry);
        }
        self.report(out);
    }

    #[inline(always)]
    fn report(&mut self, out: &mut Departures) {
        while let Some(ghost) = self.lists.pop_front(DROPPED) {
            self.state[ghost as usize] = 0;
            out.push(ghost, Fate::Forgotten);
        }
    }

    /// Whether `list` is the right one for the state of `entry`.
    fn is_right_in(&self, list: u32, entry: Entry) -> bool {
        match self.state[entry as usize] & !REFERENCED {
            state if state == RESIDENT | IS_HOT => list == HOT,
            state => list == COLD && (state & RESIDENT != 0 || self.is_ghost(entry)),
        }
    }

    /// Lets go of the non-resident pages beyond the capacity; no test has failed by that.
    fn trim_ghosts(&mut self) {
        let mut page = self.lists.front(COLD);
        while let Some(at) = page.filter(|_| self.ghosts > self.capacity) {
            page = self.lists.next(at);
            if self.is_ghost(at) {
                self.drop_ghost(at);
            }
        }
    }
}

impl Policy for ClockPro {
    fn capacity(&self) -> u32 {
        self.capacity
    }

    #[inline(always)]
    fn len(&self) -> u32 {
        self.lists.len(HOT) + self.lists.len(COLD) - self.ghosts
    }

    fn grow(&mut self, entries: u32) {
        self.lists.grow(entries);
        self.state.resize(self.lists.entries() as usize, 0);
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
    fn touch(&mut self, entry: Entry, _: &mut Departures) {
        self.state[entry as usize] |= REFERENCED;
    }

    #[inline(always)]
    fn admit(&mut self, entry: Entry, out: &mut Departures) {
        self.insert(entry, true, out);
    }

    fn take(&mut self, entry: Entry, out: &mut Departures) {
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

    fn place(&mut self, entry: Entry, out: &mut Departures) {
        if !self.contains(entry) {
            self.insert(entry, false, out);
        }
    }

    fn discard(&mut self, entry: Entry, _: &mut Departures) {
        self.pull(entry);
    }

    /// The first unreferenced page at the cold hand. If there is none a copy is played on, since
    /// the pages that are spared may make others cold first: O(entries), and rare.
    fn victim(&self) -> Option<Entry> {
        if self.len() < self.capacity {
            return None;
        }
        let mut hand = self.seek(self.cold_hand, RESIDENT);
        while let Some(page) = hand {
            if !self.is(REFERENCED, page) {
                return Some(page);
            }
            hand = self.seek(self.lists.next(page), RESIDENT);
        }
        let (mut copy, mut out) = (self.clone(), Departures::new());
        while copy.len() == self.capacity {
            copy.run_cold(&mut out);
        }
        out.evicted().next()
    }

    fn resize(&mut self, capacity: u32, out: &mut Departures) {
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

    /// Cold pages, then hot ones, from the tail.
    fn residents(&self) -> Vec<Entry> {
        let cold = self.lists.iter(COLD).filter(|&e| self.contains(e));
        cold.chain(self.lists.iter(HOT)).collect()
    }

    #[inline(always)]
    fn warm(&self, entry: Entry) -> u32 {
        self.lists.warm(entry) ^ u32::from(self.state[entry as usize])
    }

    fn validate(&self) -> Result<(), String> {
        let c = self.capacity;
        if self.len() > c || self.lists.len(HOT) > self.hot_limit() {
            return Err("more resident or hot than allowed".into());
        }
        if !(1..=1.max(c - 1)).contains(&self.cold_target) {
            return Err(format!("target {} for a capacity of {c}", self.cold_target));
        }
        if self.lists.iter(COLD).filter(|&e| self.is_ghost(e)).count() as u32 != self.ghosts {
            return Err(format!("{} ghosts are counted", self.ghosts));
        }
        for list in [HOT, COLD] {
            let times = self.lists.iter(list).map(|e| self.lists.data(e));
            if !times.is_sorted() {
                return Err(format!("list {list} is out of order"));
            }
            if let Some(entry) = self.lists.iter(list).find(|&e| !self.is_right_in(list, e)) {
                return Err(format!("entry {entry} is in list {list} by mistake"));
            }
        }
        for (hand, bit) in [(self.cold_hand, RESIDENT), (self.test_hand, IN_TEST)] {
            if self.seek(hand, bit) != self.seek(self.lists.front(COLD), bit) {
                return Err(format!("hand {hand:?} has passed a page it looks for"));
            }
        }
        let known = self.state.iter().filter(|&&state| state != 0).count() as u32;
        if known != self.lists.len(HOT) + self.lists.len(COLD) {
            return Err("a page has a state and is in no list".into());
        }
        self.lists.check()
    }

    fn describe(&self) -> Vec<(&'static str, String)> {
        let mut pages: Vec<_> = self.lists.iter(HOT).chain(self.lists.iter(COLD)).collect();
        pages.sort_by_key(|&e| self.lists.data(e));
        let text = |e| {
            (
                e,
                if self.is(IS_HOT, e) { "hot" } else { "cold" },
                if self.is(RESIDENT, e) { "res" } else { "nonres" },
                if self.is(IN_TEST, e) { "test" } else { "-" },
                u8::from(self.is(REFERENCED, e)),
            )
        };
        let list: Vec<_> = pages.into_iter().map(text).collect();
        vec![("list_tail_to_head", format!("{list:?}")), ("m_c", self.cold_target.to_string())]
    }
}
