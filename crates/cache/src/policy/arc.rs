//! ARC: two LRU lists, of blocks referenced once (T1) and more often (T2) lately, with a ghost list
//! behind each (B1, B2). A reference to a ghost says which of the two should have been larger, and
//! moves the target size `p` of T1.
//!
//! The paper's `p` is a real number, and so is ours. Many implementations, among them those that
//! published comparisons use, cut the step |B2|/|B1| to a whole number: `step=whole`.
//!
//! Content-aware (`ca=yes`): the victims are looked at in the order in which REPLACE would choose
//! them with `p` as it is. Whichever goes, it becomes a ghost of the list that it was in.
//!
//! Deviations: nothing is replaced while there is room (`take` and `discard` leave some, the paper
//! knows neither); where T2 has nothing to give, T1 gives.
//!
//! Invariants: those of the directory.

use super::awareness::{ALPHA, CA, FILTER_BITS, HASHES, KNOWS, PUBLISH, held};
use super::directory::{B1, B2, Directory, T1, T2, ghosts_of};
use super::logs::Logs;
use super::neighbour::Alone;
use super::queues::{Orders, Queues};
use super::registry::{Kind, Parameter, PolicyInfo};
use super::{Departures, Entry, Fate, Policy};
use crate::memo::{Carried, Memo};

pub(super) const INFO: PolicyInfo = PolicyInfo {
    name: "arc",
    aliases: &[],
    summary: "recency and frequency lists balanced by hits in their ghosts",
    source: "Megiddo & Modha, FAST 2003",
    parameters: &[
        Parameter {
            name: "step",
            kind: Kind::Word(&["real", "whole"]),
            default: "real",
            help: "step of the target at a hit in a ghost list: as published, or cut to a whole \
                   number",
        },
        CA,
        ALPHA,
        KNOWS,
        FILTER_BITS,
        HASHES,
        PUBLISH,
    ],
    build: |arguments, context| {
        let (whole_steps, c) = (arguments.word("step") == "whole", context.capacity);
        Ok(match held(arguments, c) {
            Some(held) => {
                let lists = Queues::new(4, held);
                Box::new(Arc { whole_steps, directory: Directory::new(c, lists) })
            }
            None if Logs::have_room_for(c.into()) => {
                let lists = Logs::new([4, 4, 2, 2]);
                Box::new(Arc { whole_steps, directory: Directory::new(c, lists) })
            }
            None => {
                let lists = Queues::new(4, Alone);
                Box::new(Arc { whole_steps, directory: Directory::new(c, lists) })
            }
        })
    },
};

#[derive(Clone)]
struct Arc<L> {
    whole_steps: bool,
    /// Front of each list: least recently used.
    directory: Directory<L>,
}

impl<L: Orders> Arc<L> {
    /// The list that REPLACE takes from.
    #[inline(always)]
    fn victim_list(&self, for_b2: bool) -> u32 {
        let Directory { p, lists, .. } = &self.directory;
        let t1 = f64::from(lists.len(T1));
        let t1_is_over = t1 > *p || (for_b2 && t1 == *p);
        let t1_gives = t1 > 0.0 && (t1_is_over || lists.len(T2) == 0);
        if t1_gives { T1 } else { T2 }
    }

    /// How many T1 would give, one after another, before T2 would.
    fn too_much(&self, for_b2: bool) -> u32 {
        let Directory { p, lists, .. } = &self.directory;
        let keeps = p.floor() as u32;
        let meets_p = for_b2 && f64::from(keeps) == *p && keeps > 0;
        (lists.len(T1) + u32::from(meets_p)).saturating_sub(keeps)
    }

    /// REPLACE of the paper.
    #[inline(always)]
    fn replace(&mut self, for_b2: bool, out: &mut Departures) {
        if L::IS_AWARE {
            let too_much = self.too_much(for_b2);
            let lists = &mut self.directory.lists;
            if let Some(victim) = lists.prefer(T1, too_much, T2) {
                let ghosts = if lists.is_in(T1, victim) { B1 } else { B2 };
                lists.evict_this(victim, ghosts, out);
                return;
            }
        }
        // Which of the two it is cannot be foretold: better an index than a branch.
        let list = self.victim_list(for_b2);
        self.directory.lists.evict(list, ghosts_of(list), out);
    }

    /// Makes `entry` resident as cases II to IV of the paper do, without moving `p`.
    #[inline(always)]
    fn insert(&mut self, entry: Entry, out: &mut Departures) {
        let ghosts = self.directory.lists.list_of(entry);
        if ghosts.is_some() {
            self.directory.lists.remove(entry);
        } else if self.directory.lists.len(T1) == self.directory.capacity {
            self.drop_from_t1(out);
        } else {
            self.directory.make_room_for_unknown(out);
        }
        if self.directory.is_full() {
            self.replace(ghosts == Some(B2), out);
        }
        self.directory.lists.push(if ghosts.is_some() { T2 } else { T1 }, entry);
    }

    /// T1 alone fills the cache and B1 is empty: its victim is not remembered.
    fn drop_from_t1(&mut self, out: &mut Departures) {
        let lists = &mut self.directory.lists;
        // T2 is empty.
        let preferred = lists.prefer(T1, 0, T2);
        preferred.into_iter().for_each(|victim| lists.remove(victim));
        if let Some(victim) = preferred.or_else(|| lists.pop(T1)) {
            out.push(victim, Fate::Evicted);
        }
    }
}

impl<L: Orders> Policy for Arc<L> {
    fn capacity(&self) -> u32 {
        self.directory.capacity
    }

    #[inline(always)]
    fn len(&self) -> u32 {
        self.directory.resident()
    }

    fn grow(&mut self, entries: u32) {
        self.directory.lists.grow(entries);
    }

    #[inline(always)]
    fn contains(&self, entry: Entry) -> bool {
        self.directory.contains(entry)
    }

    #[inline(always)]
    fn remembers(&self, entry: Entry) -> bool {
        self.directory.remembers(entry)
    }

    #[inline(always)]
    fn touch(&mut self, entry: Entry, _: &mut Departures) {
        self.directory.lists.shift(T2, entry);
    }

    #[inline(always)]
    fn admit(&mut self, entry: Entry, out: &mut Departures) {
        if let Some(ghosts) = self.directory.lists.list_of(entry) {
            self.directory.adapt(ghosts, self.whole_steps);
        }
        self.insert(entry, out);
    }

    fn take(&mut self, entry: Entry, _: &mut Departures) {
        self.directory.take(entry);
    }

    fn place(&mut self, entry: Entry, out: &mut Departures) {
        match self.directory.lists.list_of(entry) {
            Some(list @ (T1 | T2)) => self.directory.lists.renew(list, entry),
            _ => self.insert(entry, out),
        }
    }

    fn discard(&mut self, entry: Entry, _: &mut Departures) {
        self.directory.lists.remove(entry);
    }

    fn victim(&self) -> Option<Entry> {
        if !self.directory.is_full() {
            return None;
        }
        let lists = &self.directory.lists;
        let preferred = lists.would_prefer(T1, self.too_much(false), T2);
        preferred.or_else(|| lists.front(self.victim_list(false)))
    }

    fn resize(&mut self, capacity: u32, out: &mut Departures) {
        self.directory.resize(capacity, out);
        while self.len() > capacity {
            self.replace(false, out);
            self.directory.fit(out);
        }
    }

    /// T1, then T2, least recently used first.
    fn residents(&self) -> Vec<Entry> {
        self.directory.residents()
    }

    fn asks_neighbour(&self) -> bool {
        L::IS_AWARE
    }

    fn neighbour_holds(&mut self, entry: Entry, holds: bool) {
        self.directory.lists.learn(entry, holds);
    }

    fn neighbour_has(&self, entry: Entry) -> bool {
        self.directory.lists.neighbour_has(entry)
    }

    #[inline(always)]
    fn warm(&self, entry: Entry) -> u32 {
        self.directory.lists.warm(entry)
    }

    fn warm_further(&self, entry: Entry) -> u32 {
        self.directory.lists.warm_further(entry)
    }

    fn carry(&mut self, memo: &mut Memo<'_>) -> Carried {
        self.directory.carry(memo, |lists, list, memo| lists.carry(list, memo))
    }

    fn validate(&self) -> Result<(), String> {
        self.directory.validate()
    }

    fn describe(&self) -> Vec<(&'static str, String)> {
        let lists = &self.directory.lists;
        vec![
            ("T1", lists.text(T1)),
            ("T2", lists.text(T2)),
            ("B1", lists.text(B1)),
            ("B2", lists.text(B2)),
            ("p", format!("{:?}", self.directory.p)),
        ]
    }
}
