//! The cache of one server below several clients: shared by all of them, or divided among them if
//! they share no data. Also the map from blocks to servers.
//!
//! `crates/level/src/level` has what a part does with a read, a write and an eviction;
//! `marginal.rs` computes the sizes of the parts.

use undercroft_level::placement::{DataSource, OnHit, Placement, PlacementError};
use undercroft_level::{Level, PlacementCounts, PlacementStep, Referred};
use undercroft_policy::{Counts, Spec, WriteMode};
use undercroft_random::hash;

use super::flash::BelowMemory;
use super::marginal::{Marginal, equal_parts};

/// How a server's cache is divided among the clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Division {
    /// Not divided: the replacement policy decides how much each client has.
    #[default]
    Shared,
    /// In equal parts of fixed size.
    Equal,
    /// In parts sized by marginal benefit (TPDS 2004 names the method; the rule is ours).
    Benefit,
}

/// The configuration of a server's cache.
#[derive(Clone, Debug)]
pub struct ServerSpec {
    /// Replacement policy of each part.
    pub policy: Spec,
    /// Total size of the parts in blocks.
    pub capacity: u32,
    /// When blocks enter and leave.
    pub placement: Placement,
    /// What writes do to the copy.
    pub write_mode: WriteMode,
    /// Whether each client has a part of its own.
    pub division: Division,
}

/// A server's cache below clients numbered from 0.
pub struct Server {
    /// One part for all clients, or one for each.
    parts: Vec<Level>,
    marginal: Option<Marginal>,
    is_access_based: bool,
    /// Whether placement at the access is switched on, whatever the placement is.
    is_switched: bool,
    /// Whether a write removes the copy.
    invalidates: bool,
    /// Only below a cache that is not divided.
    flash: Option<BelowMemory>,
}

impl Server {
    /// An empty cache below `clients` clients, at least 1. `seed` makes the indexes unpredictable
    /// for clients that choose the block numbers; it changes nothing else.
    ///
    /// # Errors
    /// Policy and placement do not fit together, the policy cannot be made, or there are fewer
    /// blocks than parts.
    pub fn new(spec: &ServerSpec, clients: usize, seed: u64) -> Result<Self, PlacementError> {
        let ServerSpec { capacity, write_mode, .. } = *spec;
        let is_access_based = spec.placement == Placement::Access;
        let sizes = match spec.division {
            Division::Shared => vec![capacity],
            Division::Equal | Division::Benefit => equal_parts(clients, capacity)?,
        };
        let part = |size| Level::new(&spec.policy, size, &spec.placement, write_mode, seed);
        let parts = sizes.into_iter().map(part).collect::<Result<Vec<_>, _>>()?;
        let marginal = (spec.division == Division::Benefit)
            .then(|| Marginal::new(clients, capacity, seed))
            .transpose()?;
        let invalidates = write_mode == WriteMode::Invalidate;
        Ok(Self { parts, marginal, is_access_based, is_switched: false, invalidates, flash: None })
    }

    /// A server whose cache is this level, undivided.
    pub fn of_level(level: Level) -> Self {
        let is_access_based = level.placement().is_none();
        Self {
            parts: vec![level],
            marginal: None,
            is_access_based,
            is_switched: false,
            invalidates: false,
            flash: None,
        }
    }

    /// Puts a flash level below the cache.
    pub(crate) fn set_flash(&mut self, flash: BelowMemory) {
        self.flash = Some(flash);
    }

    /// The flash level.
    pub(crate) fn flash(&self) -> Option<&BelowMemory> {
        self.flash.as_ref()
    }

    /// See [`flash`](Self::flash).
    pub(crate) fn flash_mut(&mut self) -> Option<&mut BelowMemory> {
        self.flash.as_mut()
    }

    /// See [`Tree::number_blocks`](super::Tree::number_blocks).
    pub(super) fn number_blocks(&mut self) {
        self.parts.iter_mut().for_each(|part| part.number_blocks(None));
    }

    fn at(&self, client: usize) -> usize {
        if self.parts.len() == 1 { 0 } else { client }
    }

    /// The part of a client.
    pub fn part(&self, client: usize) -> &Level {
        &self.parts[self.at(client)]
    }

    /// See [`Tree::set_access_based`](super::Tree::set_access_based).
    pub(super) fn set_access_based(&mut self, is_access_based: bool) {
        self.is_switched = is_access_based;
    }

    fn refer(&mut self, at: usize, block: u64, is_write: bool, cold: bool) -> Referred {
        let part = &mut self.parts[at];
        if self.is_switched {
            part.reference_by_access(block, is_write, cold)
        } else {
            part.reference(block, is_write, || cold)
        }
    }

    /// A client reads a block that is not in its cache. `is_shared`: another client holds the block
    /// too, so a copy here stays. `cold`: the block was never referenced before.
    pub fn read(&mut self, client: usize, block: u64, is_shared: bool, cold: bool) -> Referred {
        let at = self.at(client);
        let read = if is_shared {
            self.parts[at].read_shared(block, cold)
        } else {
            self.refer(at, block, false, cold)
        };
        if let Some(flash) = &mut self.flash {
            flash.referred(block, false, read, &self.parts[at]);
        }
        if let Some(marginal) = &mut self.marginal {
            let placement = self.parts[at].placement();
            let keeps_hits = placement.is_none_or(|it| it.rules().on_hit == OnHit::Keep);
            marginal.read(at, block, read.now.is_some() || is_shared || keeps_hits);
        }
        if read.now.is_some() {
            self.note_placed(at, block);
        }
        self.tick();
        read
    }

    /// A client writes a block. Returns whether there was a copy.
    pub fn write(&mut self, client: usize, block: u64, cold: bool) -> bool {
        let at = self.at(client);
        let written = self.refer(at, block, true, cold);
        if let Some(flash) = &mut self.flash {
            flash.referred(block, true, written, &self.parts[at]);
        }
        let Referred { hit, now, .. } = written;
        if self.is_access_based && now.is_some() {
            self.note_placed(at, block);
        }
        if let Some(marginal) = self.marginal.as_mut().filter(|_| self.invalidates) {
            marginal.discard(at, block);
        }
        self.tick();
        hit
    }

    /// To be called after a read: the next block whose eviction is predicted, though it is not
    /// known; see [`Level::next_placement`].
    pub fn foreseen(&mut self, client: usize) -> Option<(u64, PlacementStep)> {
        let at = self.at(client);
        let (block, step) = self.parts[at].next_placement()?;
        self.note_step(at, block, step);
        Some((block, step))
    }

    /// A client evicted a block that no other client has. Returns what to do.
    pub fn evicted(&mut self, client: usize, block: u64) -> PlacementStep {
        if self.is_access_based {
            return PlacementStep::Skip;
        }
        let at = self.at(client);
        let step = self.parts[at].client_evicted(block);
        self.note_step(at, block, step);
        step
    }

    /// Places an evicted block, whose data is here. Returns where that came from. Do not call it if
    /// a client has read or written the block since [`PlacementStep::Fetch`].
    pub fn arrived(&mut self, client: usize, block: u64) -> DataSource {
        let at = self.at(client);
        let way = self.parts[at].placement().map_or(DataSource::Reload, |it| it.rules().down);
        self.parts[at].arrived(block, way);
        if let Some(flash) = &mut self.flash {
            flash.arrived(block, way == DataSource::Reload, &self.parts[at]);
        }
        self.note_placed(at, block);
        way
    }

    /// Tells a content-aware part whether its client holds a block.
    pub(super) fn neighbour_holds(&mut self, client: usize, block: u64, holds: bool) {
        let at = self.at(client);
        self.parts[at].neighbour_holds(block, holds);
    }

    fn note_step(&mut self, at: usize, block: u64, step: PlacementStep) {
        if let (Some(flash), PlacementStep::Staged(_)) = (&mut self.flash, step) {
            flash.arrived(block, false, &self.parts[at]);
        }
        if matches!(step, PlacementStep::Resident | PlacementStep::Staged(_)) {
            self.note_placed(at, block);
        }
    }

    fn note_placed(&mut self, at: usize, block: u64) {
        if let Some(marginal) = &mut self.marginal {
            marginal.placed(at, block);
        }
    }

    /// Moves blocks between parts when it is time. The part that shrinks goes first, so that the
    /// total never exceeds the capacity.
    fn tick(&mut self) {
        let Some(marginal) = &mut self.marginal else { return };
        let Some(shift) = marginal.tick() else { return };
        let sizes: Vec<u32> = marginal.sizes().collect();
        for at in [shift.from, shift.to] {
            self.parts[at].resize(sizes[at]);
        }
    }

    /// Sets how evicted blocks come down.
    pub fn set_way_down(&mut self, down: DataSource) {
        let placements = self.parts.iter_mut().filter_map(Level::placement_mut);
        placements.for_each(|placement| placement.set_way_down(down));
    }

    /// Sets the share of time, from 0 to 1, in which clients keep the store busy.
    pub fn set_store_busy(&mut self, share: f64) {
        let placements = self.parts.iter_mut().filter_map(Level::placement_mut);
        placements.for_each(|placement| placement.set_store_busy(share));
    }

    /// Resets the counts but not the content, at the end of a warm-up.
    pub fn restart_counts(&mut self) {
        self.parts.iter_mut().for_each(Level::restart_counts);
        self.flash.iter_mut().for_each(BelowMemory::restart_counts);
    }

    /// The summed counts of all parts.
    pub fn counts(&self) -> Counts {
        self.parts.iter().fold(Counts::default(), |sum, part| sum.plus(part.cache().counts()))
    }

    /// The summed placement counts of all parts.
    pub fn placement_counts(&self) -> PlacementCounts {
        let none = PlacementCounts::default();
        let placements = self.parts.iter().filter_map(Level::placement);
        placements.fold(none, |sum, placement| sum.plus(&placement.counts()))
    }

    /// The parts: one for all clients, or one for each client.
    pub fn parts(&self) -> &[Level] {
        &self.parts
    }

    /// Blocks moved between parts so far.
    pub fn moved(&self) -> u64 {
        self.marginal.as_ref().map_or(0, Marginal::moved)
    }

    /// Recounts everything.
    ///
    /// # Errors
    /// Says which invariant does not hold.
    pub fn validate(&self) -> Result<(), String> {
        self.parts.iter().try_for_each(Level::validate)?;
        let Some(marginal) = &self.marginal else { return Ok(()) };
        let is_same = |(part, size): (&Level, u32)| part.policy().capacity() == size;
        if !self.parts.iter().zip(marginal.sizes()).all(is_same) {
            return Err("a part has not the size that was found for it".into());
        }
        marginal.validate()
    }
}

/// The server of a block by rendezvous hashing, for at least 1 server: the one whose hash with the
/// block is the largest. An added server takes blocks from the others, and no block moves between
/// those. The result is equal on every machine.
pub fn rendezvous(block: u64, servers: usize) -> usize {
    let weight = |server: usize| hash(block ^ hash(server as u64 + 1));
    (0..servers).max_by_key(|&server| weight(server)).unwrap_or(0)
}
