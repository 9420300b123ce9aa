//! DEMOTE: a client sends the clean blocks that it evicts to the array below it (Wong & Wilkes,
//! USENIX 2002). The array's variants and the order of steps are those of the authors' simulator,
//! fscachesim.
//!
//! The first cache is LRU. A cache below it also keeps blocks that are read through it, either at
//! the eviction end (`mrulru`, the paper's DEMOTE) or as the newest (`lru`). So the caches are
//! nearly but not strictly exclusive. More than two levels are ours: a block that a middle cache
//! evicts is demoted further if it had been demoted to that cache; if it was only read through, the
//! client has it.
//!
//! Invariants: no cache holds more than its capacity; a block is in one list of a cache at most.

use super::info::{Build, SchemeInfo};
use super::segments::{Kind, Segments, Shape};
use super::{Move, Scheme, Topology};
use undercroft_policy::containers::lists::Lists;
use undercroft_policy::{Arguments, Entry, Kind as Values, Parameter, Reference, SpecError};

pub(super) const INFO: SchemeInfo = SchemeInfo {
    name: "demote",
    summary: "what a level gives up goes one level down",
    source: "Wong & Wilkes, USENIX 2002",
    policies: &["lru"],
    two_passes: false,
    parameters: &[
        Parameter {
            name: "array",
            kind: Values::Word(&["mrulru", "lru", "seg"]),
            default: "mrulru",
            help: "where blocks enter below the first level: read ones next to be ejected and \
                   demoted ones last; all last; or where two ghost caches say (seg)",
        },
        Parameter {
            name: "order",
            kind: Values::Word(&["read-first", "demote-first"]),
            default: "read-first",
            help: "whether a miss is served before what it drives out goes down, or after",
        },
        Parameter {
            name: "segments",
            kind: Values::Word(&["exponential", "uniform"]),
            default: "exponential",
            help: "sizes of the ten segments of array=seg",
        },
        Parameter {
            name: "entrance",
            kind: Values::Word(&["raw", "normalised"]),
            default: "raw",
            help: "how ghost hits name a segment of array=seg: by their share, or by the larger",
        },
    ],
    build,
};

fn build(arguments: &Arguments, build: Build<'_>) -> Result<Box<dyn Scheme>, SpecError> {
    let topology = build.topology.clone();
    let shape = Shape {
        exponential: arguments.word("segments") == "exponential",
        normalised: arguments.word("entrance") == "normalised",
    };
    let array = |node: usize| match arguments.word("array") {
        "seg" => Array::Adaptive(Segments::new(topology.capacity(node), shape)),
        word => Array::Queue { queue: Lists::new(1), reads_leave_next: word == "mrulru" },
    };
    // The first cache of a client is its own, and LRU.
    let is_first = |node| (0..topology.clients()).any(|c| topology.path(c)[0] == node);
    let caches = (0..topology.nodes()).map(|node| Cache {
        capacity: topology.capacity(node),
        is_last: topology.below(node).is_none(),
        came_down: Vec::new(),
        array: if is_first(node) {
            Array::Queue { queue: Lists::new(1), reads_leave_next: false }
        } else {
            array(node)
        },
    });
    let caches = caches.collect();
    let demote_first = arguments.word("order") == "demote-first";
    Ok(Box::new(Demote { topology, caches, demote_first, ejected: Vec::new() }))
}

enum Array {
    /// Front: next to be evicted.
    Queue {
        queue: Lists,
        reads_leave_next: bool,
    },
    Adaptive(Segments),
}

struct Cache {
    capacity: u32,
    is_last: bool,
    array: Array,
    /// Whether each block was demoted to this cache and not read since.
    came_down: Vec<bool>,
}

struct Demote {
    topology: Topology,
    caches: Vec<Cache>,
    demote_first: bool,
    /// Blocks that the current reference evicted, each with the position of its cache on the way.
    ejected: Vec<(usize, Entry)>,
}

impl Cache {
    fn contains(&self, entry: Entry) -> bool {
        match &self.array {
            Array::Queue { queue, .. } => queue.linked(entry),
            Array::Adaptive(segments) => segments.contains(entry),
        }
    }

    fn len(&self) -> u32 {
        match &self.array {
            Array::Queue { queue, .. } => queue.len(0),
            Array::Adaptive(segments) => segments.len(),
        }
    }

    /// A block is read through this cache, or is demoted to it. Returns the block that is evicted
    /// for it, and whether that one is to be demoted.
    fn bring(&mut self, entry: Entry, kind: Kind) -> Option<(Entry, bool)> {
        let ejected = match &mut self.array {
            Array::Queue { queue, reads_leave_next } => {
                let mut ejected = None;
                if queue.linked(entry) {
                    queue.remove(0, entry);
                } else if queue.len(0) == self.capacity {
                    ejected = queue.pop_front(0);
                }
                if kind == Kind::Read && *reads_leave_next {
                    queue.push_front(0, entry);
                } else {
                    queue.push_back(0, entry);
                }
                ejected
            }
            Array::Adaptive(segments) => segments.bring(entry, kind),
        };
        self.came_down[entry as usize] = kind == Kind::Demotion;
        ejected.map(|entry| (entry, !self.is_last && self.came_down[entry as usize]))
    }

    /// All blocks, the next to be evicted first.
    fn order(&self) -> Vec<Entry> {
        match &self.array {
            Array::Queue { queue, .. } => queue.iter(0).collect(),
            Array::Adaptive(segments) => segments.order(),
        }
    }
}

impl Demote {
    /// Reads a block through the caches below the first. Returns the cache that had it. The blocks
    /// that it evicts on its way are demoted after the read, so that they cannot evict it.
    fn read_below(
        &mut self,
        client: usize,
        entry: Entry,
        is_write: bool,
        moves: &mut Vec<Move>,
    ) -> Option<usize> {
        let mut found = None;
        let mut ejected = std::mem::take(&mut self.ejected);
        for (i, &node) in self.topology.path(client).iter().enumerate().skip(1) {
            let had = self.caches[node].contains(entry);
            // A client's write does not pass through this cache.
            if had || !is_write {
                match self.caches[node].bring(entry, Kind::Read) {
                    Some((gone, true)) => ejected.push((i, gone)),
                    Some((gone, false)) => moves.push(Move::Dropped(gone, node)),
                    None => (),
                }
                if !had {
                    moves.push(Move::Copied(entry, node));
                }
            }
            if had {
                found = Some(node);
                break;
            }
        }
        for &(i, gone) in &ejected {
            self.descend(client, i + 1, gone, moves);
        }
        ejected.clear();
        self.ejected = ejected;
        found
    }

    /// Demotes a block to the `i`-th cache of a client.
    fn descend(&mut self, client: usize, i: usize, entry: Entry, moves: &mut Vec<Move>) {
        let node = self.topology.path(client)[i];
        let had = self.caches[node].contains(entry);
        match self.caches[node].bring(entry, Kind::Demotion) {
            Some((gone, true)) => self.descend(client, i + 1, gone, moves),
            Some((gone, false)) => moves.push(Move::Dropped(gone, node)),
            None => (),
        }
        moves.push(if had { Move::Resent(entry, node) } else { Move::Demoted(entry, node) });
    }
}

impl Scheme for Demote {
    fn grow(&mut self, entries: u32) {
        for cache in &mut self.caches {
            cache.came_down.resize(cache.came_down.len().max(entries as usize), false);
            match &mut cache.array {
                Array::Queue { queue, .. } => queue.grow(entries),
                Array::Adaptive(segments) => segments.grow(entries),
            }
        }
    }

    fn reference(
        &mut self,
        client: usize,
        reference: Reference,
        moves: &mut Vec<Move>,
    ) -> Option<usize> {
        let (entry, is_write) = (reference.entry(), reference.is_write());
        let first = self.topology.path(client)[0];
        let hit = self.caches[first].contains(entry);
        let ejected = self.caches[first].bring(entry, Kind::Demotion).map(|(entry, _)| entry);
        if hit {
            return Some(first);
        }
        if let (true, Some(entry)) = (self.demote_first, ejected) {
            self.descend(client, 1, entry, moves);
        }
        let found = self.read_below(client, entry, is_write, moves);
        // The cache that had the block keeps it, so the first cache gets a copy.
        let came = if found.is_some() { Move::Copied } else { Move::Filled };
        moves.push(came(entry, first));
        if let (false, Some(entry)) = (self.demote_first, ejected) {
            self.descend(client, 1, entry, moves);
        }
        found
    }

    fn holds(&self, node: usize, entry: Entry) -> bool {
        self.caches[node].contains(entry)
    }

    fn len(&self, node: usize) -> u32 {
        self.caches[node].len()
    }

    /// The ghosts of an adaptive array take two links and a block number each.
    fn overhead_bytes(&self, node: usize) -> u64 {
        match &self.caches[node].array {
            Array::Queue { .. } => 0,
            Array::Adaptive(_) => 2 * 16 * u64::from(self.caches[node].capacity),
        }
    }

    fn describe(&self, node: usize) -> Vec<(&'static str, String)> {
        let mut all = vec![("queue", format!("{:?}", self.caches[node].order()))];
        if let Array::Adaptive(segments) = &self.caches[node].array {
            all.push(("ghost hits", format!("{:?}", segments.ghost_hits())));
        }
        all
    }

    fn validate(&self) -> Result<(), String> {
        for cache in &self.caches {
            if cache.len() > cache.capacity {
                return Err(format!("{} held, capacity {}", cache.len(), cache.capacity));
            }
            match &cache.array {
                Array::Queue { queue, .. } => queue.check()?,
                Array::Adaptive(segments) => segments.validate()?,
            }
        }
        Ok(())
    }
}
