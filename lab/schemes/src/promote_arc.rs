//! PROMOTE over levels of ARC (Gill, FAST 2008, the section "PROMOTE-ARC"). Request and reply carry
//! a second bit, T2hint: a cache on the way knows the block, as a resident or as a ghost. The owner
//! puts the block into T2 if the bit is set, else into T1.
//!
//! A block bound for T1 is passed up with the probability that the sizes give. A block bound for T2
//! is passed up with the adapted probability, which compares the lives of T2, each divided by T2's
//! share of its cache. Ours, where the paper is silent: a cache that has the block as a ghost
//! adapts its target when the request passes, whether it becomes the owner or not; the ghost is
//! removed when the block comes back to that cache.
//!
//! Invariants: those of each directory; a block is resident in at most one cache.

use super::chances::Chances;
use super::{Gauges, Move, Scheme, Topology};
use undercroft_policy::containers::directory::{B1, B2, Directory, T1, T2, ghosts_of};
use undercroft_policy::{Entry, Evictions, Reference};

pub(super) struct PromoteArc {
    topology: Topology,
    directories: Vec<Directory>,
    last: Vec<u64>,
    /// The probabilities of each cache.
    chances: Vec<Chances>,
    now: u64,
    out: Evictions,
}

impl PromoteArc {
    pub(super) fn new(topology: Topology, chances: Vec<Chances>) -> Self {
        let directories =
            (0..topology.nodes()).map(|node| Directory::new(topology.capacity(node))).collect();
        Self { topology, directories, last: Vec::new(), chances, now: 0, out: Evictions::new() }
    }

    /// The life of T2 divided by its share of the cache: an estimate for the whole cache.
    fn life(&mut self, node: usize) -> f64 {
        let directory = &mut self.directories[node];
        if !directory.is_full() {
            return 0.0;
        }
        let used = |entry: Option<Entry>| entry.map_or(0, |entry| self.last[entry as usize]);
        let lists = &mut directory.lists;
        let life = used(lists.back(T2)) - used(lists.front(T2));
        let share = f64::from(lists.len(T2)) / f64::from(directory.capacity);
        if life == 0 { 0.0 } else { life as f64 / share }
    }

    /// A request goes down through the first `asked` caches on a client's way. Each reports its
    /// life to the next.
    fn tell_lives(&mut self, client: usize, asked: usize) {
        for i in 1..asked {
            let (above, node) = (self.topology.path(client)[i - 1], self.topology.path(client)[i]);
            let lives = [self.life(above), self.life(node)];
            self.chances[node].hear(above as u16, self.now, lives);
        }
    }

    /// Draws whether the `i`-th cache of a client keeps a block that it may own.
    fn keeps(&mut self, client: usize, i: usize, is_known: bool) -> bool {
        if i == 0 {
            return true;
        }
        let (above, node) = (self.topology.path(client)[i - 1], self.topology.path(client)[i]);
        let (chances, above) = (&mut self.chances[node], above as u16);
        let passes = if is_known { chances.passes(above) } else { chances.passes_by_size(above) };
        !passes
    }

    /// Makes a block resident in T1 or T2, following ARC's cases II to IV.
    fn own(&mut self, node: usize, entry: Entry, list: u32, moves: &mut Vec<Move>) {
        let directory = &mut self.directories[node];
        let ghosts = directory.lists.list_of(entry);
        self.out.clear();
        if ghosts.is_some() {
            directory.lists.remove(entry);
        } else if directory.lists.len(T1) == directory.capacity {
            // T1 fills the whole cache, so its victim leaves no ghost.
            let victim = directory.lists.pop(T1);
            moves.extend(victim.map(|victim| Move::Dropped(victim, node)));
        } else {
            directory.make_room_for_unknown(&mut self.out);
        }
        if directory.is_full() {
            let t1 = f64::from(directory.lists.len(T1));
            let is_over = t1 > directory.p || (ghosts == Some(B2) && t1 == directory.p);
            let gives = if t1 > 0.0 && (is_over || directory.lists.len(T2) == 0) { T1 } else { T2 };
            directory.lists.evict(gives, ghosts_of(gives), &mut self.out);
        }
        directory.lists.push(list, entry);
        self.last[entry as usize] = self.now;
        moves.extend(self.out.evicted().map(|victim| Move::Dropped(victim, node)));
    }

    fn use_at(&mut self, node: usize, entry: Entry) {
        self.directories[node].lists.shift(T2, entry);
        self.last[entry as usize] = self.now;
    }

    /// Returns the position, on a client's way, of the cache that has a block, and whether any
    /// cache down to it knows the block. Caches that have it as a ghost adapt their targets.
    fn look(&mut self, client: usize, entry: Entry) -> (Option<usize>, bool) {
        let mut is_known = false;
        for (i, &node) in self.topology.path(client).iter().enumerate() {
            let directory = &mut self.directories[node];
            match directory.lists.list_of(entry) {
                Some(T1 | T2) => return (Some(i), true),
                Some(ghosts) => {
                    debug_assert!(ghosts == B1 || ghosts == B2);
                    directory.adapt(ghosts, false);
                    is_known = true;
                }
                None => (),
            }
        }
        (None, is_known)
    }
}

impl Scheme for PromoteArc {
    fn grow(&mut self, entries: u32) {
        self.directories.iter_mut().for_each(|directory| directory.lists.grow(entries));
        self.last.resize(self.last.len().max(entries as usize), 0);
    }

    fn reference(
        &mut self,
        client: usize,
        reference: Reference,
        moves: &mut Vec<Move>,
    ) -> Option<usize> {
        self.now += 1;
        let entry = reference.entry();
        let (at, is_known) = self.look(client, entry);
        let levels = self.topology.path(client).len();
        self.tell_lives(client, at.map_or(levels, |at| at + 1));
        let list = if is_known { T2 } else { T1 };
        let found = at.map(|i| self.topology.path(client)[i]);
        let mut i = levels;
        if let (Some(place), Some(node)) = (at, found) {
            if reference.is_write() || self.keeps(client, place, is_known) {
                self.use_at(node, entry);
                return found;
            }
            self.directories[node].lists.remove(entry);
            i = place;
        } else if reference.is_write() {
            i = 1;
        }
        while i > 0 {
            i -= 1;
            if self.keeps(client, i, is_known) {
                let node = self.topology.path(client)[i];
                self.own(node, entry, list, moves);
                let came = if found.is_some() { Move::Promoted } else { Move::Filled };
                moves.push(came(entry, node));
                break;
            }
        }
        found
    }

    fn holds(&self, node: usize, entry: Entry) -> bool {
        self.directories[node].contains(entry)
    }

    fn len(&self, node: usize) -> u32 {
        self.directories[node].resident()
    }

    fn gauges(&self, node: usize) -> Option<Gauges> {
        self.topology.uppers(node).next()?;
        Some(Gauges { probability: self.chances[node].first(), ..Gauges::default() })
    }

    /// One ghost of 16 bytes and one time of 4 bytes for each block.
    fn overhead_bytes(&self, node: usize) -> u64 {
        (16 + 4) * u64::from(self.topology.capacity(node))
    }

    fn describe(&self, node: usize) -> Vec<(&'static str, String)> {
        let lists = &self.directories[node].lists;
        let names = [("T1", T1), ("T2", T2), ("B1", B1), ("B2", B2)];
        let text = |list| format!("{:?}", lists.iter(list).collect::<Vec<_>>());
        names.into_iter().map(|(name, list)| (name, text(list))).collect()
    }

    fn validate(&self) -> Result<(), String> {
        self.chances.iter().try_for_each(Chances::validate)?;
        self.directories.iter().try_for_each(Directory::validate)
    }
}
