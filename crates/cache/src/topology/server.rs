//! The cache of one server below several clients: one for all of them, or divided among them where
//! they have no data in common. And which of several servers a block belongs to.
//!
//! What each part does with a read, a write and an eviction is in `level/`; how the sizes of the
//! parts are found in `marginal.rs`.

use undercroft_random::hash;

use super::marginal::{Marginal, equal_parts};
use crate::counts::Counts;
use crate::level::{Down, Level, PlacementCounts, Referred};
use crate::placement::{OnHit, Placement, PlacementError, WayDown};
use crate::policy::Spec;
use crate::reference::WriteMode;

/// How a server's cache is divided among the clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Division {
    /// Not at all: replacement decides who has how much.
    #[default]
    Shared,
    /// In equal parts that stay.
    Equal,
    /// In parts that follow the marginal benefit (TPDS 2004 names the method; the rule is ours).
    Benefit,
}

/// What a server's cache is to be like.
#[derive(Clone, Debug)]
pub struct ServerSpec {
    /// Replacement policy, of each part.
    pub policy: Spec,
    /// Size in blocks, of all parts together.
    pub capacity: u32,
    /// When blocks come and go.
    pub placement: Placement,
    /// What writes do.
    pub write_mode: WriteMode,
    /// Whether each client has a part of its own.
    pub division: Division,
}

/// A server's cache below clients numbered from 0.
pub struct Server {
    /// One for all clients, or one for each.
    parts: Vec<Level>,
    marginal: Option<Marginal>,
    is_access_based: bool,
    /// Whether a write gives a copy up.
    invalidates: bool,
}

impl Server {
    /// An empty cache below so many clients, at least 1. `seed` makes the indexes unpredictable
    /// for clients that choose the block numbers; it changes nothing else.
    ///
    /// # Errors
    /// Policy and placement do not go together, the policy cannot be had, or there are fewer
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
        Ok(Self { parts, marginal, is_access_based, invalidates })
    }

    /// See [`Cluster::number_blocks`](super::Cluster::number_blocks).
    pub(super) fn number_blocks(&mut self) {
        self.parts.iter_mut().for_each(|part| part.number_blocks(None));
    }

    fn part(&self, client: usize) -> usize {
        if self.parts.len() == 1 { 0 } else { client }
    }

    /// A client asks for a block that it does not have. `is_shared`: another client holds it too,
    /// so that a copy that is here stays. `cold`: it is known that nobody referenced it before.
    pub fn read(&mut self, client: usize, block: u64, is_shared: bool, cold: bool) -> Referred {
        let at = self.part(client);
        let part = &mut self.parts[at];
        let read = if is_shared {
            part.read_shared(block, cold)
        } else {
            part.reference(block, false, || cold)
        };
        let keeps_hits = part.rules().is_none_or(|rules| rules.on_hit == OnHit::Keep);
        let keeps = read.now.is_some() || is_shared || keeps_hits;
        if let Some(marginal) = &mut self.marginal {
            marginal.read(at, block, keeps);
        }
        if read.now.is_some() {
            self.note_placed(at, block);
        }
        self.tick();
        read
    }

    /// A client writes a block: whether there was a copy.
    pub fn write(&mut self, client: usize, block: u64, cold: bool) -> bool {
        let at = self.part(client);
        let part = &mut self.parts[at];
        let Referred { hit, now, .. } = part.reference(block, true, || cold);
        if self.is_access_based && now.is_some() {
            self.note_placed(at, block);
        }
        if let Some(marginal) = self.marginal.as_mut().filter(|_| self.invalidates) {
            marginal.discard(at, block);
        }
        self.tick();
        hit
    }

    /// After a read: the next block that is taken to have been evicted though nothing says so; see
    /// [`Level::next_placement`].
    pub fn foreseen(&mut self, client: usize) -> Option<(u64, Down)> {
        let at = self.part(client);
        let (block, down) = self.parts[at].next_placement()?;
        self.note_down(at, block, down);
        Some((block, down))
    }

    /// It became known that a client evicted a block, and that no other has it: what to do.
    pub fn evicted(&mut self, client: usize, block: u64) -> Down {
        if self.is_access_based {
            return Down::Skip;
        }
        let at = self.part(client);
        let down = self.parts[at].client_evicted(block);
        self.note_down(at, block, down);
        down
    }

    /// The data of an evicted block is here: places it. Not to be called if a client has asked for
    /// the block again, or written it, since [`Down::Fetch`].
    pub fn arrived(&mut self, client: usize, block: u64) {
        let at = self.part(client);
        let way = self.parts[at].rules().map_or(WayDown::Reload, |rules| rules.down);
        self.parts[at].arrived(block, way);
        self.note_placed(at, block);
    }

    fn note_down(&mut self, at: usize, block: u64, down: Down) {
        if matches!(down, Down::Resident | Down::Staged(_)) {
            self.note_placed(at, block);
        }
    }

    fn note_placed(&mut self, at: usize, block: u64) {
        if let Some(marginal) = &mut self.marginal {
            marginal.placed(at, block);
        }
    }

    /// Moves blocks from part to part when it is time. The one that shrinks goes first, so that
    /// there are never more blocks than the capacity.
    fn tick(&mut self) {
        let Some(marginal) = &mut self.marginal else { return };
        let Some(shift) = marginal.tick() else { return };
        let sizes: Vec<u32> = marginal.sizes().collect();
        for at in [shift.from, shift.to] {
            self.parts[at].resize(sizes[at]);
        }
    }

    /// From now on evicted blocks come this way.
    pub fn set_way_down(&mut self, down: WayDown) {
        self.parts.iter_mut().for_each(|part| part.set_way_down(down));
    }

    /// Forgets the counts, not the content: the end of a warm-up.
    pub fn restart_counts(&mut self) {
        self.parts.iter_mut().for_each(Level::restart_counts);
    }

    /// What was counted as at every level, by all parts.
    pub fn counts(&self) -> Counts {
        self.parts.iter().fold(Counts::default(), |sum, part| sum.plus(part.counts()))
    }

    /// What the placement counted, in all parts.
    pub fn placement_counts(&self) -> PlacementCounts {
        let none = PlacementCounts::default();
        self.parts.iter().fold(none, |sum, part| sum.plus(&part.placement_counts()))
    }

    /// The parts: one for all clients, or one for each.
    pub fn parts(&self) -> &[Level] {
        &self.parts
    }

    /// Blocks moved from part to part so far.
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
        let is_same = |(part, size): (&Level, u32)| part.capacity() == size;
        if !self.parts.iter().zip(marginal.sizes()).all(is_same) {
            return Err("a part has not the size that was found for it".into());
        }
        marginal.validate()
    }
}

/// Which of so many servers, at least 1, a block belongs to where nothing else says it: the one
/// whose hash with the block is the largest, so that one server more takes blocks from the others
/// and moves none between them. The same on every machine.
pub fn rendezvous(block: u64, servers: usize) -> usize {
    let weight = |server: usize| hash(block ^ hash(server as u64 + 1));
    (0..servers).max_by_key(|&server| weight(server)).unwrap_or(0)
}
