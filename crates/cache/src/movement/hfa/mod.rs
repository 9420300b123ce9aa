//! HFA: blocks that moved between levels lately, or are hit often, get a protected queue (Meng et
//! al., JCST 2017). Here is a cache of it, and what its variants share: receiving a block, hits,
//! what leaves, and the partition between the hot queue Q1 and the base queue Q2. What a cache does
//! about a request, an answer or a block from a neighbour is in `d_hfa.rs`, `p_hfa.rs` and
//! `h_hfa.rs`, over DEMOTE, PROMOTE and Hint-K.
//!
//! The hotness of a block at a cache is H = F/(kT) + hits/t2: F sums its moves there in the last k
//! slots of T references (`t_out.rs`), hits are those since it came t2 references ago. H is found
//! when a block comes and at each hit, and stands until then ("lazy update"), but not longer than
//! the k slots that it speaks of (`partition.rs`). The readings of the paper that are chosen here,
//! and what they are worth, are in `docs/measurements/hierarchies.md`.
//!
//! Invariants: those of [`Level`].

mod by_heat;
mod d_hfa;
mod expiry;
mod foretold;
mod h_hfa;
mod level;
mod linked;
mod options;
mod p_hfa;
mod partition;
mod queue;
mod t_out;

use std::sync::Arc;

use super::activity::Steps;
use super::link::{Left, Load, Pass, Passing, Standing};
use super::records::Block;
use super::shared::AtHand;
use crate::Entry;
use crate::policy::Arguments;
use by_heat::ByHeat;
use expiry::Expiry;
use foretold::Foretold;
use level::{Hints, Hottest, Level};
use options::Settings;
use p_hfa::Chances;
use queue::{ByRecency, Queue, WarmByActivity};
use t_out::{ENTRY_BYTES, TOut};

pub use foretold::MoveLog;
pub(super) use options::{D_HFA, H_HFA, ORACLE, P_HFA};

/// The scheme that a variant stands on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Base {
    Demote,
    Promote,
    HintK,
}

/// A variant: what it stands on, and the order of its queues.
trait Variant: Send + 'static {
    const BASE: Base;
    type Hot: Queue;
    type Base: Queue;
}

/// D-HFA.
struct OverDemote;

impl Variant for OverDemote {
    const BASE: Base = Base::Demote;
    type Hot = ByRecency;
    type Base = ByHeat;
}

/// P-HFA.
struct OverPromote;

impl Variant for OverPromote {
    const BASE: Base = Base::Promote;
    type Hot = ByHeat;
    type Base = ByRecency;
}

/// H-HFA.
struct OverHintK;

impl Variant for OverHintK {
    const BASE: Base = Base::HintK;
    type Hot = ByHeat;
    type Base = WarmByActivity;
}

/// How a block comes to a cache.
#[derive(Clone, Copy)]
struct Arrival {
    /// From another cache.
    moved: bool,
    /// What came with it.
    load: Load,
    /// Whether it may drive the hottest block of the cache below up.
    exchanges: bool,
    /// Whether the level below may remember so many moves of it that it would be hot there.
    may_be_hot_below: bool,
    owner: u16,
}

/// A cache.
struct Hfa<V: Variant> {
    /// The mark of its blocks.
    place: u8,
    settings: Settings,
    steps: Steps,
    level: Level<V>,
    /// Over PROMOTE only: with which probability blocks pass.
    chances: Chances,
    has_lower: bool,
    /// Moves of a first pass.
    log: Option<Vec<(Entry, u64)>>,
}

impl<V: Variant> Hfa<V> {
    /// `foretold`: the moves of a first pass, and the number of the cache in it. `logs`: whether
    /// this is such a pass.
    fn new(
        arguments: &Arguments,
        standing: Standing,
        draws: &[f64],
        foretold: Option<(&Arc<MoveLog>, usize)>,
        logs: bool,
    ) -> Self {
        let Standing { number, capacity, block_bytes, way_blocks, has_lower, .. } = standing;
        let settings = Settings::new(V::BASE, arguments, way_blocks);
        let steps = Steps::new(settings.steps);
        let first = u32::from(number) * Self::lists_with(&steps);
        let queues =
            (V::Hot::new(first, &steps), V::Base::new(first + V::Hot::lists(&steps), &steps));
        let bytes = f64::from(capacity) * f64::from(block_bytes) * settings.table_share;
        let entries = settings.entries.unwrap_or((bytes / ENTRY_BYTES as f64).max(1.0) as u32);
        let hints = match foretold {
            Some((log, node)) => {
                Hints::Foretold(Foretold::new(log, node, settings.k, settings.decay))
            }
            None => Hints::Table(TOut::new(1 << number, entries, settings.k, settings.decay)),
        };
        let place = number + 1;
        let expiry = Expiry::new(place, settings.expires);
        let mut level =
            Level::new(capacity, settings.first_target(capacity), queues, hints, expiry);
        // Only blocks with a cache above can be exchanged.
        level.hottest = (V::BASE == Base::Demote && standing.has_upper).then(Hottest::new);
        let chances = Chances::new(arguments, V::BASE, standing, draws);
        let log = logs.then(Vec::new);
        Self { place, settings, steps, level, chances, has_lower, log }
    }

    /// Lists that a cache needs.
    fn lists_with(steps: &Steps) -> u32 {
        V::Hot::lists(steps) + V::Base::lists(steps)
    }

    /// Takes out what Q2, or Q1 where Q2 has nothing, gives up.
    #[inline(always)]
    fn pull_victim(&mut self, shared: &mut AtHand<'_>) -> Option<Entry> {
        let level = &mut self.level;
        let victim = match level.base.tail(&shared.blocks) {
            Some(tail) => tail,
            None => level.hot.tail(&shared.blocks)?,
        };
        level.pull(shared, victim);
        Some(victim)
    }

    /// As [`pull_victim`](Self::pull_victim), if the cache is full.
    #[inline(always)]
    fn make_room(&mut self, shared: &mut AtHand<'_>) -> Option<Entry> {
        if self.level.is_full() { self.pull_victim(shared) } else { None }
    }

    #[inline(always)]
    fn frequency(&mut self, shared: &AtHand<'_>, entry: Entry) -> f64 {
        self.level.hints.frequency(shared.blocks.get(entry), entry, shared.slot())
    }

    /// H at the cache, found anew.
    #[inline(always)]
    fn find_heat(&mut self, shared: &mut AtHand<'_>, entry: Entry) {
        self.level.expiry.make_ready(&mut shared.blocks);
        let f = self.frequency(shared, entry);
        let now = shared.now();
        let block = shared.blocks.get_mut(entry);
        let stay = (now - block.loaded).max(1);
        let heat = self.settings.heat(f, block.hits, stay);
        (block.heat, block.updated) = (heat, now);
        block.noted = self.level.expiry.note(entry, heat > 0.0);
    }

    /// A block comes to the cache.
    #[inline(always)]
    fn receive(
        &mut self,
        shared: &mut AtHand<'_>,
        entry: Entry,
        arrival: Arrival,
        left: &mut Option<Left>,
    ) {
        let Arrival { moved, load, exchanges, may_be_hot_below, owner } = arrival;
        self.level.expiry.make_ready(&mut shared.blocks);
        let (now, slot) = (shared.now(), shared.slot());
        let block = shared.blocks.get_mut(entry);
        let hints = &mut self.level.hints;
        let own = hints.frequency(block, entry, slot);
        let f = if own < load.frequency { load.frequency } else { own };
        let is_hot = self.level.target > 0
            && match V::BASE {
                Base::Demote | Base::Promote => f > self.settings.least,
                Base::HintK => hints.remembers(block, entry, slot),
            };
        let heat = self.settings.heat_of_moves(f);
        (block.place, block.owner) = (self.place, owner);
        if V::BASE == Base::HintK {
            block.history = self.steps.within(load.history);
        }
        (block.heat, block.hits, block.noted) =
            (heat, 0, self.level.expiry.note(entry, heat > 0.0));
        (block.loaded, block.updated) = (now, now);
        (block.moved, block.may_be_hot_below) = (moved, may_be_hot_below);
        let victim = if is_hot {
            self.insert_hot(shared, entry)
        } else {
            let victim = self.make_room(shared);
            self.level.push_base(shared, entry);
            victim
        };
        self.leave(shared, victim, exchanges, left);
    }

    /// A block comes up to stay.
    #[inline(always)]
    fn take(
        &mut self,
        shared: &mut AtHand<'_>,
        passing: Passing,
        pass: Pass,
        left: &mut Option<Left>,
    ) {
        let Passing { entry, owner, .. } = passing;
        let (moved, load, below) = match pass {
            Pass::Moved { load, nearest } => (true, load, nearest),
            Pass::Fresh { nearest } => (false, Load::default(), nearest),
            Pass::Kept => return,
        };
        let is_foretold = matches!(self.level.hints, Hints::Foretold(_));
        let may_be_hot_below = is_foretold || below > self.settings.least;
        let arrival = Arrival { moved, load, exchanges: true, may_be_hot_below, owner };
        self.receive(shared, entry, arrival, left);
    }

    /// Puts a block, which is in no queue, into Q1: who has to leave the cache for it.
    fn insert_hot(&mut self, shared: &mut AtHand<'_>, entry: Entry) -> Option<Entry> {
        if self.level.hot.len() < self.level.target {
            let victim = self.make_room(shared);
            self.level.push_hot(shared, entry, true);
            return victim;
        }
        let level = &mut self.level;
        let tail = level.hot.tail(&shared.blocks).expect("Q1 has room for a block");
        level.pull(shared, tail);
        level.push_hot(shared, entry, true);
        if !level.is_full() {
            level.push_base(shared, tail);
            return None;
        }
        if shared.blocks.get(tail).hits <= level.least_base_hits() {
            return Some(tail);
        }
        let victim = self.pull_victim(shared);
        self.level.push_base(shared, tail);
        victim
    }

    /// A block, taken out of its queue, leaves the cache downwards, or for good.
    #[inline(always)]
    fn leave(
        &mut self,
        shared: &mut AtHand<'_>,
        victim: Option<Entry>,
        exchanges: bool,
        left: &mut Option<Left>,
    ) {
        let Some(entry) = victim else { return };
        let block = shared.blocks.get_mut(entry);
        block.place = 0;
        let Block { owner, history, may_be_hot_below, moved, .. } = *block;
        let goes_down = self.has_lower && V::BASE != Base::Promote;
        let mut load = Load { frequency: 0.0, history };
        if goes_down {
            load.frequency = self.depart(shared, entry, moved);
            if V::BASE == Base::HintK {
                load.history = self.steps.push(history, false);
            }
        }
        let exchanges = exchanges && V::BASE == Base::Demote && goes_down;
        let load = goes_down.then_some(load);
        *left = Some(Left { entry, load, exchanges, may_be_hot_below, owner });
    }

    /// A block leaves the cache for another one: F, which goes with it. A stay that began with a
    /// move is a move of the slot in which it ends.
    #[inline(always)]
    fn depart(&mut self, shared: &mut AtHand<'_>, entry: Entry, moved: bool) -> f64 {
        if moved { self.count_move(shared, entry) } else { self.frequency(shared, entry) }
    }

    /// A block has moved: F with that.
    #[inline(always)]
    fn count_move(&mut self, shared: &mut AtHand<'_>, entry: Entry) -> f64 {
        let slot = shared.slot();
        if let Some(log) = &mut self.log {
            log.push((entry, slot));
        }
        self.level.hints.count(&mut shared.blocks, entry, slot)
    }

    /// The cache gives a block up to one above it: what goes with it.
    #[inline(always)]
    fn give_up(&mut self, shared: &mut AtHand<'_>, entry: Entry) -> Load {
        self.level.pull(shared, entry);
        let block = shared.blocks.get_mut(entry);
        block.place = 0;
        let Block { moved, history, .. } = *block;
        Load { frequency: self.depart(shared, entry, moved), history }
    }

    /// A hit, after which the block stays.
    #[inline(always)]
    fn hit(&mut self, shared: &mut AtHand<'_>, entry: Entry, left: &mut Option<Left>) {
        self.level.pull(shared, entry);
        let block = shared.blocks.get_mut(entry);
        block.hits = block.hits.saturating_add(1);
        let was_hot = block.is_hot;
        self.find_heat(shared, entry);
        if was_hot {
            self.level.push_hot(shared, entry, true);
        } else if self.level.target > 0 && self.settings.rises_by_hits {
            let victim = self.insert_hot(shared, entry);
            self.leave(shared, victim, true, left);
        } else {
            self.level.push_base(shared, entry);
        }
    }
}
