//! Levels that cooperate: a first level, whose evictions are known exactly, above one or more
//! [`Level`]s; or a single lower level that is told of evictions from outside. The order of steps
//! is that of the global operations of TPDS 2004, section 6. Blocks are entries, numbered densely.
//! Everything that a level asks for happens at once.

use undercroft_level::placement::{DataSource, Order, PlacementError};
use undercroft_level::{Level, PlacementStep, Referred};
use undercroft_policy::{Entry, Policy, Reference, WriteMode};

/// A move of a block to or from a lower level, or a decision against it. Level 0 is the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    /// The level above evicted the block, and this level took it with the data that was sent.
    Demoted(Entry, usize),
    /// This level read the block from disk.
    Reloaded(Entry, usize),
    /// This level had the block's data in the staging area.
    Staged(Entry, usize),
    /// This level found the block not worth a reload.
    Skipped(Entry, usize),
    /// This level evicted the block, and no level took it.
    Dropped(Entry, usize),
}

impl Move {
    /// The block of the move.
    fn entry(self) -> Entry {
        let (Self::Demoted(entry, _)
        | Self::Reloaded(entry, _)
        | Self::Staged(entry, _)
        | Self::Skipped(entry, _)
        | Self::Dropped(entry, _)) = self;
        entry
    }
}

/// A hierarchy of cooperating levels.
pub struct Hierarchy {
    /// The level that the application sees.
    top: Option<Level>,
    lower: Vec<Level>,
    order: Order,
    /// Whether the first level reports its evictions.
    tells: bool,
    /// Whether the first level tells the level below what it holds.
    informs: bool,
    /// Whether the lower levels currently place at the access.
    access_based: bool,
    /// Blocks seen so far. A block is cold if its number is not below this.
    known: Entry,
    moves: Vec<Move>,
    victims: Vec<Entry>,
    /// Blocks that entered or left a lower level in the last call, for a content-aware first level.
    changed: Vec<Entry>,
}

impl Hierarchy {
    /// A first level above at least one lower one.
    ///
    /// # Errors
    /// There is no lower level, or more than one that reloads.
    pub fn new(
        top: Box<dyn Policy>,
        mode: WriteMode,
        lower: Vec<Level>,
    ) -> Result<Self, PlacementError> {
        let mut top = Level::of_policy(top, mode, 0);
        top.number_blocks(None);
        Self::build(Some(top), lower)
    }

    /// A single lower level whose client is not simulated: see
    /// [`client_evicted`](Self::client_evicted).
    pub fn below_a_client(level: Level) -> Self {
        Self::build(None, vec![level]).expect("one level is right for every placement")
    }

    fn build(top: Option<Level>, lower: Vec<Level>) -> Result<Self, PlacementError> {
        let Some(placement) = lower.first().and_then(Level::placement) else {
            let why = "blocks that are evicted need a level below the first to go to: add one";
            return Err(PlacementError::new(why));
        };
        if lower.len() > 1 && placement.rules().down == DataSource::Reload {
            return Err(PlacementError::new(
                "placement eviction is one server below clients, which reloads from disk what \
                 they evicted; for more levels use gl",
            ));
        }
        let order = placement.rules().order;
        Ok(Self {
            top,
            lower,
            order,
            tells: true,
            informs: false,
            access_based: false,
            known: 0,
            moves: Vec::new(),
            victims: Vec::new(),
            changed: Vec::new(),
        })
    }

    /// Stops the first level from reporting its evictions: see
    /// [`client_evicted`](Self::client_evicted).
    pub fn silence_client(&mut self) {
        self.tells = false;
    }

    /// Sets the share of time, from 0 to 1, in which clients keep the store below busy.
    pub fn set_store_busy(&mut self, share: f64) {
        let placements = self.lower.iter_mut().filter_map(Level::placement_mut);
        placements.for_each(|placement| placement.set_store_busy(share));
    }

    /// Tells the level below the first one, which is content-aware, exactly what the first one
    /// holds.
    pub fn inform_lower(&mut self) {
        self.informs = true;
    }

    /// Switches placement at the access on or off for the lower levels. Use it while the client's
    /// evictions are not known well enough.
    pub fn set_access_based(&mut self, access_based: bool) {
        self.access_based = access_based;
    }

    /// Serves one reference. Returns the level that had the block, if any.
    pub fn reference(&mut self, reference: Reference) -> Option<usize> {
        self.moves.clear();
        let entry = reference.entry();
        let cold = entry >= self.known;
        self.known = self.known.max(entry + 1);
        self.victims.clear();
        let mut found = None;
        if let Some(top) = &mut self.top {
            if top.reference(entry.into(), reference.is_write(), || cold).hit {
                found = Some(0);
            }
            if self.tells {
                self.victims.extend(top.evicted().iter().map(|gone| gone.block as Entry));
            }
        }
        if self.order == Order::DemoteFirst {
            self.place_victims();
        }
        if reference.is_write() || found.is_none() {
            found = found.or(self.refer_below(reference, cold));
            let holds = self.top.as_ref().is_some_and(|top| top.frame(entry.into()).is_some());
            self.inform(entry, holds);
        }
        self.place_foreseen();
        if self.order == Order::ReadFirst {
            self.place_victims();
        }
        self.changed.push(entry);
        self.tell_top();
        found
    }

    /// Tells a content-aware first level what the levels below hold now.
    fn tell_top(&mut self) {
        let Some(top) = self.top.as_mut().filter(|top| top.cache().is_aware()) else {
            self.changed.clear();
            return;
        };
        self.changed.extend(self.moves.iter().map(|moved| moved.entry()));
        for entry in self.changed.drain(..) {
            let holds = self.lower.iter().any(|level| level.frame(entry.into()).is_some());
            top.neighbour_holds(entry.into(), holds);
        }
    }

    /// Tells the level below, if it is informed, whether the first level holds a block.
    fn inform(&mut self, entry: Entry, holds: bool) {
        if self.informs {
            self.lower[0].neighbour_holds(entry.into(), holds);
        }
    }

    /// Sends a read down to the first level that has the block, a write to all levels. Returns the
    /// first level that had it.
    fn refer_below(&mut self, reference: Reference, cold: bool) -> Option<usize> {
        let (block, is_write) = (reference.entry().into(), reference.is_write());
        let mut found = None;
        for (depth, level) in self.lower.iter_mut().enumerate() {
            let Referred { hit, .. } = if self.access_based {
                level.reference_by_access(block, is_write, cold)
            } else {
                level.reference(block, is_write, || cold)
            };
            self.changed.extend(level.evicted().iter().map(|gone| gone.block as Entry));
            if hit && found.is_none() {
                found = Some(depth + usize::from(self.top.is_some()));
            }
            if hit && !is_write {
                break;
            }
        }
        found
    }

    /// Places a block whose eviction by the client above became known.
    pub fn client_evicted(&mut self, entry: Entry) {
        self.moves.clear();
        self.descend(entry);
        self.tell_top();
    }

    fn place_victims(&mut self) {
        let victims = std::mem::take(&mut self.victims);
        for &victim in &victims {
            self.inform(victim, false);
            self.descend(victim);
        }
        self.victims = victims;
    }

    /// Places a block that left the level above the first lower one, and then its victims in the
    /// levels below. A level evicts at most one block for one that it places.
    fn descend(&mut self, entry: Entry) {
        let above = usize::from(self.top.is_some());
        let mut coming = Some(entry);
        for (i, level) in self.lower.iter_mut().enumerate() {
            let Some(entry) = coming.take() else { return };
            let step = level.client_evicted(entry.into());
            let Some(came) = carry_out(level, entry, i + above, step, &mut self.moves) else {
                return;
            };
            coming = came;
        }
        if let Some(gone) = coming {
            self.moves.push(Move::Dropped(gone, self.lower.len() + above - 1));
        }
    }

    /// Places the blocks whose eviction the lower level predicts. Only a level that reloads
    /// predicts, and it is the last one.
    fn place_foreseen(&mut self) {
        let depth = usize::from(self.top.is_some());
        let level = &mut self.lower[0];
        while let Some((block, step)) = level.next_placement() {
            let gone = carry_out(level, block as Entry, depth, step, &mut self.moves).flatten();
            self.moves.extend(gone.map(|gone| Move::Dropped(gone, depth)));
        }
    }

    /// The moves of the last call, in order.
    pub fn moves(&self) -> &[Move] {
        &self.moves
    }

    /// Resets the counts but not the content, at the end of a warm-up.
    pub fn restart_counts(&mut self) {
        self.top.iter_mut().chain(&mut self.lower).for_each(Level::restart_counts);
    }

    /// The first level, if it is simulated.
    pub fn top(&self) -> Option<&Level> {
        self.top.as_ref()
    }

    /// The levels below, from the top.
    pub fn lower(&self) -> &[Level] {
        &self.lower
    }
}

/// Does at once what a level asks for about an evicted block. Returns the block that was evicted
/// for it, if any; the outer `None`: the block was not placed.
fn carry_out(
    level: &mut Level,
    entry: Entry,
    depth: usize,
    step: PlacementStep,
    moves: &mut Vec<Move>,
) -> Option<Option<Entry>> {
    let came = match step {
        PlacementStep::Resident => return None,
        PlacementStep::Skip => {
            moves.push(Move::Skipped(entry, depth));
            return None;
        }
        PlacementStep::Staged(_) => Move::Staged(entry, depth),
        PlacementStep::Fetch => {
            let way = level.placement().map_or(DataSource::Reload, |it| it.rules().down);
            level.arrived(entry.into(), way);
            match way {
                DataSource::Reload => Move::Reloaded(entry, depth),
                DataSource::Demote => Move::Demoted(entry, depth),
            }
        }
    };
    moves.push(came);
    Some(level.evicted().first().map(|gone| gone.block as Entry))
}
