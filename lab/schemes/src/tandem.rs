//! Tandem, our own scheme, for two levels: the distance between a block's last two references
//! decides whether it is kept at all; its frequency decides at which level. Blocks are rarely
//! demoted.
//!
//! One LIRS directory (`undercroft_policy::Lirs`) covers all blocks that the two levels
//! keep, and sees every reference. The upper level has a small LRU window and the main area. A kept
//! block is in exactly one of two places: the main area, or the level below. The window has copies
//! of blocks that were read recently and are not in the main area. So a block can leave the window
//! at no cost: either the level below still has it, or it is not worth keeping.
//!
//! Only a block that leaves the window can enter the main area, and only if a sketch has seen it
//! more often, by a margin, than the least recently used block there. The two are then exchanged:
//! the data of the first is in the upper level already, and the second is demoted. With fixed sizes
//! there is no other demotion. The margin exists because a demotion costs a round trip, as much as
//! one more hit in the upper level gains.
//!
//! The directory is kept by the client. With each request it tells the level below whether to keep
//! the block that is read, and which block to evict for it.
//!
//! With `admit=frequent` the directory, once full, takes a block of the disk only if the sketch has
//! seen it as often as the block that it would evict. Any other block passes through the window
//! only. This is for blocks that come back after longer than the directory can remember.
//!
//! With `adapt=ghosts` this option and the sizes of the window and of the part for HIR blocks
//! change, as `tandem_ghosts.rs` finds. The border between window and main area then moves by a
//! block a reference. If the main area is to give a block up, the directory gives one up too, and
//! if that was not in the main area, the oldest one there takes its place below: a demotion.
//!
//! Invariants: every block in the main area is in the directory, and none of them is in the window;
//! no area holds more than its size; the blocks that are in the directory but not in the main area
//! fit below.

use super::info::{Build, SchemeInfo};
use super::tandem_ghosts::Ghosts;
use super::{Gauges, Move, Scheme};
use crate::list_queues::ListQueues;
use undercroft_policy::containers::sketch::Sketch;
use undercroft_policy::{
    Arguments, Entry, Evictions, Kind, Lirs, Parameter, Policy, Reference, SpecError,
};

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
            name: "admit",
            kind: Kind::Word(&["all", "frequent"]),
            default: "all",
            help: "blocks of the disk to keep: all, or those seen as often as what they replace",
        },
        Parameter {
            name: "margin",
            kind: Kind::Integer(0, 15),
            default: "2",
            help: "references that a block must have more than the one it changes places with",
        },
        Parameter {
            name: "adapt",
            kind: Kind::Word(&["ghosts", "no"]),
            default: "no",
            help: "window, hirs and admit as given, or those with which ghosts of both levels do best",
        },
        Parameter {
            name: "sketch",
            kind: Kind::Word(&["countmin", "exact"]),
            default: "countmin",
            help: "frequencies from a sketch of 8 bytes a block, or exact ones",
        },
    ],
    build,
};

fn build(arguments: &Arguments, build: Build<'_>) -> Result<Box<dyn Scheme>, SpecError> {
    let sizes = build.pair("tandem")?;
    let make = |sizes, options| Tandem::new(sizes, options, arguments);
    let mut tandem = make(
        sizes,
        Options {
            window: arguments.real("window"),
            hirs: arguments.real("hirs"),
            is_selective: arguments.word("admit") == "frequent",
        },
    )?;
    if arguments.word("adapt") == "ghosts" {
        tandem.ghosts = Some(Ghosts::new(sizes, make)?);
    }
    Ok(Box::new(tandem))
}

/// The options that ghosts may change.
#[derive(Clone, Copy)]
pub(super) struct Options {
    /// Share of the upper level for the window.
    pub(super) window: f64,
    /// Share of the directory for HIR blocks.
    pub(super) hirs: f64,
    /// Whether blocks of the disk are kept only if they are frequent.
    pub(super) is_selective: bool,
}

/// Blocks of a window: it keeps a block at least until the next read.
fn window_of(upper: u32, share: f64) -> u32 {
    ((f64::from(upper) * share) as u32).max(1)
}

const WINDOW: u32 = 0;
const MAIN: u32 = 1;

pub(super) struct Tandem {
    /// Sizes in blocks of the window, the main area and the level below.
    window: u32,
    main: u32,
    lower: u32,
    margin: u8,
    /// Whether blocks of the disk are kept only if they are frequent.
    is_selective: bool,
    /// The blocks that are kept, in the main area or below.
    directory: Lirs,
    /// The upper level. Front of each list: least recently used.
    queues: ListQueues,
    sketch: Sketch,
    out: Evictions,
    /// Size that the window is to have.
    wanted: u32,
    ghosts: Option<Ghosts>,
}

impl Tandem {
    fn new(
        [upper, lower]: [u32; 2],
        options: Options,
        arguments: &Arguments,
    ) -> Result<Self, SpecError> {
        let window = window_of(upper, options.window);
        let main = upper - window;
        let Some(kept) = main.checked_add(lower) else {
            return Err(SpecError(
                "placement tandem: both levels together hold too many blocks".into(),
            ));
        };
        Ok(Self {
            window,
            main,
            lower,
            margin: arguments.integer("margin") as u8,
            is_selective: options.is_selective,
            directory: Lirs::new(kept, options.hirs),
            queues: ListQueues::new(2),
            sketch: Sketch::new(arguments.word("sketch") == "exact", lower),
            out: Evictions::new(),
            wanted: window,
            ghosts: None,
        })
    }

    /// Takes other options. The window reaches its size by a block a reference.
    fn adapt(&mut self, options: Options) {
        self.wanted = window_of(self.window + self.main, options.window);
        self.is_selective = options.is_selective;
        self.out.clear();
        self.directory.set_hirs(options.hirs, &mut self.out);
    }

    /// Moves the border between window and main area by a block.
    fn move_border(&mut self, moves: &mut Vec<Move>) {
        if self.window > self.wanted {
            (self.window, self.main) = (self.window - 1, self.main + 1);
            self.out.clear();
            self.directory.resize(self.main + self.lower, &mut self.out);
            if self.queues.len(WINDOW) > self.window {
                self.leave_window(moves);
            }
        } else if self.window < self.wanted {
            (self.window, self.main) = (self.window + 1, self.main - 1);
            self.out.clear();
            self.directory.resize(self.main + self.lower, &mut self.out);
            self.drop_evicted(moves);
            if self.queues.len(MAIN) > self.main
                && let Some(oldest) = self.queues.pop(MAIN)
            {
                moves.push(Move::Demoted(oldest, 1));
            }
        }
    }

    fn is_below(&self, entry: Entry) -> bool {
        self.directory.contains(entry) && !self.queues.is_in(MAIN, entry)
    }

    /// Whether a block that comes from the disk is kept. Until the directory is full, all are.
    fn admits(&self, entry: Entry) -> bool {
        let count = |entry: Entry| self.sketch.estimate(entry.into());
        !self.is_selective
            || self.directory.victim().is_none_or(|victim| count(entry) >= count(victim))
    }

    /// Adds to the directory a block that comes from below or from the disk.
    fn keep(&mut self, entry: Entry, moves: &mut Vec<Move>) {
        self.out.clear();
        self.directory.access(entry, &mut self.out);
        self.drop_evicted(moves);
    }

    /// What the directory has evicted leaves its place.
    fn drop_evicted(&mut self, moves: &mut Vec<Move>) {
        for victim in self.out.evicted() {
            if self.queues.is_in(MAIN, victim) {
                self.queues.remove(victim);
                moves.push(Move::Dropped(victim, 0));
            } else {
                moves.push(Move::Dropped(victim, 1));
            }
        }
    }

    /// The block becomes the newest of the window.
    fn enter_window(&mut self, entry: Entry, moves: &mut Vec<Move>) {
        self.queues.push(WINDOW, entry);
        if self.queues.len(WINDOW) > self.window {
            self.leave_window(moves);
        }
    }

    /// The oldest block of the window is dropped from it, or moves to the main area.
    fn leave_window(&mut self, moves: &mut Vec<Move>) {
        let Some(oldest) = self.queues.pop(WINDOW) else { return };
        // It stays out if there is no main area, or if the directory has evicted it.
        if self.directory.contains(oldest) && self.make_room_for(oldest, moves) {
            self.queues.push(MAIN, oldest);
        } else {
            moves.push(Move::Dropped(oldest, 0));
        }
    }

    /// Whether the main area takes a block of the window. If so, the level below gives that block
    /// up, and receives the block that it replaces.
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
        if let Some(ghosts) = &mut self.ghosts {
            ghosts.grow(entries);
        }
    }

    fn reference(
        &mut self,
        _: usize,
        reference: Reference,
        moves: &mut Vec<Move>,
    ) -> Option<usize> {
        let entry = reference.entry();
        let options = self.ghosts.as_mut().and_then(|ghosts| ghosts.reference(reference));
        if let Some(options) = options {
            self.adapt(options);
        }
        self.move_border(moves);
        self.sketch.increment(entry.into());
        let is_kept = self.directory.contains(entry);
        if let Some(list) = self.queues.list_of(entry) {
            self.queues.renew(list, entry);
            // A window copy that the directory no longer keeps is not added again.
            if is_kept {
                self.out.clear();
                self.directory.touch(entry, &mut self.out);
            }
            return Some(0);
        }
        if !is_kept && !self.admits(entry) {
            self.out.clear();
            self.directory.pass_by(entry, &mut self.out);
            moves.push(Move::Filled(entry, 0));
            self.enter_window(entry, moves);
            return None;
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
        self.enter_window(entry, moves);
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

    /// The client has the directory and the sketch: a second pair of links for each block that is
    /// kept, two pairs for each of twice as many ghosts, and 8 bytes for each block of the lower
    /// level.
    fn overhead_bytes(&self, node: usize) -> u64 {
        let kept = u64::from(self.directory.capacity());
        let sketch = 8 * u64::from(self.lower).next_power_of_two();
        let ghosts = self.ghosts.as_ref().map_or(0, Ghosts::overhead_bytes);
        if node == 0 { (8 + 2 * 16) * kept + sketch + ghosts } else { 0 }
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
        self.ghosts.as_ref().map_or(Ok(()), Ghosts::validate)?;
        self.queues.check()
    }
}
