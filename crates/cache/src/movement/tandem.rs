//! Tandem, our own scheme, for two levels: the distance of its last two references decides whether
//! a block is kept at all, its frequency decides where. Almost nothing goes down.
//!
//! One directory of LIRS (`policy/lirs.rs`) stands for all blocks that the two levels keep between
//! them, and hears of every reference. The upper level is a small window, LRU, and the main area.
//! A block that is kept is in exactly one of two places: in the main area, or below. The window has
//! copies: of what was read lately and is not in the main area. So what leaves the window costs
//! nothing, since the level below has it still, or it is not worth keeping.
//!
//! Only what leaves the window may come into the main area, and only if a sketch has seen it more
//! often, by a margin, than the block used longest ago there. Those two change places: the data of
//! the one is above already, and the other goes down. That is the only demotion there is. The
//! margin is there because each costs a round trip, as much as one hit more above gains.
//!
//! The directory is the client's. It tells the level below, with each request, whether to keep the
//! block that is read and the name of the one that leaves for it.
//!
//! Invariants: the main area holds blocks of the directory only, and the window none of those; no
//! area holds more than its size; what the directory has and the main area has not fits below.

use super::info::{Build, SchemeInfo};
use super::{Gauges, Move, Scheme};
use crate::list_queues::ListQueues;
use crate::policy::sketch::Sketch;
use crate::policy::{Arguments, Context, Kind, Parameter, Policy, Spec, SpecError};
use crate::{Entry, Evictions, Reference};

pub(super) const INFO: SchemeInfo = SchemeInfo {
    name: "tandem",
    summary: "LIRS for both levels together decides what stays, a sketch where; two levels",
    source: "Undercroft",
    policies: &["lru"],
    two_passes: false,
    parameters: &[
        Parameter {
            name: "window",
            kind: Kind::Real(0.0, 1.0),
            default: "0.05",
            help: "share of the upper level for copies of what was read last, at least a block",
        },
        Parameter {
            name: "hirs",
            kind: Kind::Real(0.0, 1.0),
            default: "0.1",
            help: "share of the directory for blocks that have not come back soon yet (LIRS)",
        },
        Parameter {
            name: "margin",
            kind: Kind::Integer(0, 15),
            default: "2",
            help: "references that a block must have more than the one it changes places with",
        },
        Parameter {
            name: "sketch",
            kind: Kind::Word(&["countmin", "exact"]),
            default: "countmin",
            help: "frequencies from a sketch of 8 bytes a block, or exact ones",
        },
    ],
    build,
    level: None,
};

fn build(arguments: &Arguments, build: Build<'_>) -> Result<Box<dyn Scheme>, SpecError> {
    let [upper, lower] = build.pair("tandem")?;
    // What is read is kept above at least until the next one.
    let window = ((f64::from(upper) * arguments.real("window")) as u32).max(1);
    let main = upper - window;
    let Some(kept) = main.checked_add(lower) else {
        return Err(SpecError(
            "placement tandem: both levels together hold too many blocks".into(),
        ));
    };
    let directory = Spec::parse(&format!("lirs,hirs={}", arguments.real("hirs")))?;
    Ok(Box::new(Tandem {
        window,
        main,
        lower,
        margin: arguments.integer("margin") as u8,
        directory: directory.build(&Context::new(kept))?,
        queues: ListQueues::new(2),
        sketch: Sketch::new(arguments.word("sketch") == "exact", lower),
        out: Evictions::new(),
    }))
}

const WINDOW: u32 = 0;
const MAIN: u32 = 1;

struct Tandem {
    /// Most blocks of the window, of the main area and of the level below.
    window: u32,
    main: u32,
    lower: u32,
    margin: u8,
    /// Has what is kept in the main area or below.
    directory: Box<dyn Policy>,
    /// The upper level. Front of each list: used longest ago.
    queues: ListQueues,
    sketch: Sketch,
    out: Evictions,
}

impl Tandem {
    fn is_below(&self, entry: Entry) -> bool {
        self.directory.contains(entry) && !self.queues.is_in(MAIN, entry)
    }

    /// Tells the directory of a block that comes from below or from the disk; what it gives up for
    /// that leaves the place where it was kept.
    fn keep(&mut self, entry: Entry, moves: &mut Vec<Move>) {
        self.out.clear();
        self.directory.access(entry, &mut self.out);
        for victim in self.out.evicted() {
            if self.queues.is_in(MAIN, victim) {
                self.queues.remove(victim);
                moves.push(Move::Dropped(victim, 0));
            } else {
                moves.push(Move::Dropped(victim, 1));
            }
        }
    }

    /// The oldest block of the window gives up its copy there, or comes into the main area.
    fn leave_window(&mut self, moves: &mut Vec<Move>) {
        let Some(oldest) = self.queues.pop(WINDOW) else { return };
        // Without a main area, and where the directory has given it up, there is no way in.
        if self.directory.contains(oldest) && self.make_room_for(oldest, moves) {
            self.queues.push(MAIN, oldest);
        } else {
            moves.push(Move::Dropped(oldest, 0));
        }
    }

    /// Whether the main area takes a block of the window; then the level below has given it up,
    /// and has what had to leave for it.
    fn make_room_for(&mut self, entry: Entry, moves: &mut Vec<Move>) -> bool {
        if self.queues.len(MAIN) < self.main {
            moves.push(Move::Dropped(entry, 1));
            return true;
        }
        let Some(victim) = self.queues.front(MAIN) else { return false };
        let least = self.sketch.estimate(victim.into()) + self.margin;
        if self.sketch.estimate(entry.into()) <= least {
            return false;
        }
        self.queues.remove(victim);
        moves.extend([Move::Dropped(entry, 1), Move::Demoted(victim, 1)]);
        true
    }
}

impl Scheme for Tandem {
    fn grow(&mut self, entries: u32) {
        self.queues.grow(entries);
        self.directory.grow(entries);
    }

    fn reference(
        &mut self,
        _: usize,
        reference: Reference,
        moves: &mut Vec<Move>,
    ) -> Option<usize> {
        let entry = reference.entry();
        self.sketch.increment(entry.into());
        let is_kept = self.directory.contains(entry);
        if let Some(list) = self.queues.list_of(entry) {
            self.queues.renew(list, entry);
            // A copy in the window that is no longer kept is not worth sending down.
            if is_kept {
                self.out.clear();
                self.directory.touch(entry, &mut self.out);
            }
            return Some(0);
        }
        self.keep(entry, moves);
        if is_kept {
            moves.push(Move::Copied(entry, 0));
        } else {
            moves.push(Move::Filled(entry, 0));
            if self.queues.len(MAIN) < self.main {
                self.queues.push(MAIN, entry);
                return None;
            }
            moves.push(Move::Copied(entry, 1));
        }
        self.queues.push(WINDOW, entry);
        if self.queues.len(WINDOW) > self.window {
            self.leave_window(moves);
        }
        is_kept.then_some(1)
    }

    fn holds(&self, node: usize, entry: Entry) -> bool {
        if node == 0 { self.queues.list_of(entry).is_some() } else { self.is_below(entry) }
    }

    fn len(&self, node: usize) -> u32 {
        let main = self.queues.len(MAIN);
        if node == 0 { main + self.queues.len(WINDOW) } else { self.directory.len() - main }
    }

    fn gauges(&self, node: usize) -> Option<Gauges> {
        let main =
            Gauges { hot_blocks: self.queues.len(MAIN), hot_target: self.main, ..<_>::default() };
        (node == 0).then_some(main)
    }

    /// The directory and the sketch are the client's: a second pair of links for each block that is
    /// kept, two pairs for each of twice as many ghosts, and 8 bytes a block of the lower level.
    fn overhead_bytes(&self, node: usize) -> u64 {
        let kept = u64::from(self.directory.capacity());
        let sketch = 8 * u64::from(self.lower).next_power_of_two();
        if node == 0 { (8 + 2 * 16) * kept + sketch } else { 0 }
    }

    fn describe(&self, node: usize) -> Vec<(&'static str, String)> {
        if node == 0 {
            let names = [("window", WINDOW), ("main", MAIN)];
            return names.map(|(name, list)| (name, self.queues.text(list))).to_vec();
        }
        vec![("directory", format!("{:?}", self.directory))]
    }

    fn validate(&self) -> Result<(), String> {
        let len = |list| self.queues.len(list);
        if len(WINDOW) > self.window || len(MAIN) > self.main {
            return Err("an area holds more than its size".into());
        }
        if let Some(entry) = self.queues.iter(MAIN).find(|&e| !self.directory.contains(e)) {
            return Err(format!("block {entry} is in the main area and not in the directory"));
        }
        let below = self.directory.len() - len(MAIN);
        if below > self.lower {
            return Err(format!("the directory leaves {below} blocks to the level below"));
        }
        self.directory.validate()?;
        self.queues.check()
    }
}
