//! Levels that cooperate: a first level, whose evictions are known exactly, above one or more
//! [`Level`]s; or a single lower level, told of evictions from outside. This is the order in
//! which the global operations of TPDS 2004, section 6, take place; blocks are entries, numbered
//! densely, and everything that a level asks for happens at once.

use crate::level::{Down, Level, Referred};
use crate::placement::{Order, PlacementError, WayDown};
use crate::policy::{Entry, Policy};
use crate::reference::{Reference, WriteMode};

/// A block that came to a lower level or left it, or did not come. Levels count from 0, the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    /// The level above evicted it, and this level took it, with the data that was sent.
    Demoted(Entry, usize),
    /// This level read it from disk.
    Reloaded(Entry, usize),
    /// This level had its data in the staging area.
    Staged(Entry, usize),
    /// This level did not think it worth a reload.
    Skipped(Entry, usize),
    /// The level drove it out, to nowhere.
    Dropped(Entry, usize),
}

impl Move {
    /// The block that moved, or did not.
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
    /// Whether the first level says what it evicts.
    tells: bool,
    /// Whether the first level says to the one below it what it holds.
    informs: bool,
    /// Whether the lower levels place at the access for the time being.
    access_based: bool,
    /// Blocks met so far: a block is cold exactly if its number is not below.
    known: Entry,
    moves: Vec<Move>,
    victims: Vec<Entry>,
    /// Blocks that came to a lower level or went in the last call, where the first level asks.
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
        let Some(rules) = lower.first().and_then(Level::rules).copied() else {
            let why = "blocks that are evicted need a level below the first to go to: add one";
            return Err(PlacementError(why.into()));
        };
        if lower.len() > 1 && rules.down == WayDown::Reload {
            return Err(PlacementError(
                "placement eviction is one server below clients, which reloads from disk what \
                 they evicted; for more levels use gl"
                    .into(),
            ));
        }
        let order = rules.order;
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

    /// The first level does not say what it evicts: see [`client_evicted`](Self::client_evicted).
    pub fn silence_client(&mut self) {
        self.tells = false;
    }

    /// The level below the first one, which is content-aware, learns exactly what that holds.
    pub fn inform_lower(&mut self) {
        self.informs = true;
    }

    /// From now on the lower levels place at the access, or no longer: what is to be done where the
    /// client's evictions are not known well enough.
    pub fn set_access_based(&mut self, access_based: bool) {
        self.access_based = access_based;
    }

    /// Serves one reference: the level that had the block, if any did.
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

    /// Says to a content-aware first level what the levels below hold now.
    fn tell_top(&mut self) {
        let Some(top) = self.top.as_mut().filter(|top| top.is_content_aware()) else {
            self.changed.clear();
            return;
        };
        self.changed.extend(self.moves.iter().map(|moved| moved.entry()));
        for entry in self.changed.drain(..) {
            let holds = self.lower.iter().any(|level| level.frame(entry.into()).is_some());
            if let Some(cache) = top.cache_mut() {
                cache.neighbour_holds(entry.into(), holds);
            }
        }
    }

    /// The first level holds a block now, or does not: the level below learns it if it is to.
    fn inform(&mut self, entry: Entry, holds: bool) {
        if let (true, Some(cache)) = (self.informs, self.lower[0].cache_mut()) {
            cache.neighbour_holds(entry.into(), holds);
        }
    }

    /// Sends a read down to the level that has the block, a write to all: the first that had it.
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

    /// It became known that the client above the first lower level evicted a block.
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

    /// Places a block that left the level above the first lower one, and what that drives out in
    /// the levels below. A level drives out one block at most for one that it places.
    fn descend(&mut self, entry: Entry) {
        let above = usize::from(self.top.is_some());
        let mut coming = Some(entry);
        for (i, level) in self.lower.iter_mut().enumerate() {
            let Some(entry) = coming.take() else { return };
            let down = level.client_evicted(entry.into());
            let Some(came) = carry_out(level, entry, i + above, down, &mut self.moves) else {
                return;
            };
            coming = came;
        }
        if let Some(gone) = coming {
            self.moves.push(Move::Dropped(gone, self.lower.len() + above - 1));
        }
    }

    /// Places what the lower level takes to have been evicted. Only one that reloads does so, and
    /// that is the last.
    fn place_foreseen(&mut self) {
        let depth = usize::from(self.top.is_some());
        let level = &mut self.lower[0];
        while let Some((block, down)) = level.next_placement() {
            let gone = carry_out(level, block as Entry, depth, down, &mut self.moves).flatten();
            self.moves.extend(gone.map(|gone| Move::Dropped(gone, depth)));
        }
    }

    /// What the last call moved, in order.
    pub fn moves(&self) -> &[Move] {
        &self.moves
    }

    /// Forgets the counts, not the content: the end of a warm-up.
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

/// Does at once what a level wants done about an evicted block: what that drove out, if anything.
/// `None`: the block did not come.
fn carry_out(
    level: &mut Level,
    entry: Entry,
    depth: usize,
    down: Down,
    moves: &mut Vec<Move>,
) -> Option<Option<Entry>> {
    let came = match down {
        Down::Resident => return None,
        Down::Skip => {
            moves.push(Move::Skipped(entry, depth));
            return None;
        }
        Down::Staged(_) => Move::Staged(entry, depth),
        Down::Fetch => {
            let way = level.rules().map_or(WayDown::Reload, |rules| rules.down);
            level.arrived(entry.into(), way);
            match way {
                WayDown::Reload => Move::Reloaded(entry, depth),
                WayDown::Demote => Move::Demoted(entry, depth),
            }
        }
    };
    moves.push(came);
    Some(level.evicted().first().map(|gone| gone.block as Entry))
}
