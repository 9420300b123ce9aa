//! Caches that work together in one process: those of clients, if clients are simulated, above
//! those of servers, at one depth or several. Simulations drive a [`Tree`]; tests compare servers
//! and clients with it.
//!
//! From TPDS 2004, sections 6 and 9, unless marked as ours:
//! * a block that a client evicts goes to the cache below, and what that evicts for it to the next;
//! * if clients share data, a block is placed below when the *last* client that holds it evicts it;
//! * with `peer_fetch`, a read that misses at the server while another client holds the block is
//!   served by that client; of several, by the one with the smallest number (ours). Without
//!   `peer_fetch`, a hit leaves the copy at the server while another client holds the block (ours);
//! * all clients that hold a block see a write to it at once, and keep the block (ours).
//!
//! Only simulations use this. A real server has the second rule; it asks no peers, and a hit leaves
//! no copy for the sake of another client.
//!
//! [`Tree::reference`] does a whole reference at once. Its steps are public for callers that model
//! time. Not here: the [levels](Level) themselves, two content-aware levels
//! ([`Pair`](undercroft_level::content::Pair)), the caches of a scheme of movement (`lab/schemes`),
//! and which configuration makes which tree (`run.rs`).

mod estimate;
mod flash;
mod holders;
mod marginal;
mod run;
mod server;

use undercroft_level::placement::{DataSource, Order, PlacementError};
use undercroft_level::{Level, PlacementCounts, PlacementStep};
use undercroft_policy::{Counts, Policy, Reference, WriteMode};

use flash::BelowMemory;
pub use holders::{Holders, MAX_HOLDERS};
pub use marginal::{Marginal, Shift};
pub(crate) use run::{
    HINT_BYTES, Seen, SoFar, add_flash, build, counts_in_parts, outcome, simulate_tree,
};
pub use server::{Division, Server, ServerSpec, rendezvous};

/// What clients have in common.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TreeRules {
    /// Whether equal block numbers of different clients are the same block.
    pub shares_data: bool,
    /// Whether clients serve each other's reads that miss at the server. Only if they share data.
    pub peer_fetch: bool,
}

/// Who served a reference. Caches are numbered: the clients first, if they are simulated, then the
/// servers from the top.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// The cache with this number.
    Cache(usize),
    /// The flash level below the last cache.
    Flash,
    /// The client with this number, for another one.
    Peer(usize),
    /// The disk.
    Disk,
}

/// A move of a block to or from a server's cache, or a decision against it, with the block and the
/// number of the cache ([`Found`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    /// The cache above evicted the block, and this one took it with the data that was sent.
    Demoted(u64, usize),
    /// This cache read the block from disk.
    Reloaded(u64, usize),
    /// This cache had the block's data in the staging area.
    Staged(u64, usize),
    /// This cache found the block not worth a reload.
    Skipped(u64, usize),
    /// This cache evicted the block, and none took it.
    Dropped(u64, usize),
}

impl Move {
    fn block(self) -> u64 {
        let (Self::Demoted(block, _)
        | Self::Reloaded(block, _)
        | Self::Staged(block, _)
        | Self::Skipped(block, _)
        | Self::Dropped(block, _)) = self;
        block
    }
}

/// Where a client's reads were served below its own cache, and what happened to its evictions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BelowCounts {
    /// Reads that hit at a server, or on its flash.
    pub server_hits: u64,
    /// Reads that missed at the server and were served by another client.
    pub peer_hits: u64,
    /// Reads from disk.
    pub disk_reads: u64,
    /// Evicted blocks that another client held, so that they were not placed below.
    pub not_last: u64,
}

/// The server of the first depth that a block belongs to.
type Home = Box<dyn Fn(u64) -> usize + Send>;

/// Clients' caches above those of servers.
pub struct Tree {
    clients: Vec<Level>,
    /// The servers of each depth, from the top. Only the first depth may have several.
    below: Vec<Vec<Server>>,
    home: Home,
    edge: Edge,
    /// Only if clients share data; otherwise at most one client holds a block.
    holders: Option<Holders>,
    /// By client; one if none is simulated.
    counts: Vec<BelowCounts>,
    /// For [`refer`](Self::refer): a block is cold if its number is not below this.
    known: u64,
    moves: Vec<Move>,
    victims: Vec<u64>,
    /// Blocks that entered or left a server in the last call, for a content-aware client.
    changed: Vec<u64>,
}

/// What the clients and the servers below them know of each other.
struct Edge {
    /// Whether victims are placed before or after the read that evicted them is served.
    order: Order,
    /// Whether clients report their evictions.
    tells: bool,
    /// Whether a client tells the server what it holds.
    informs: bool,
    /// Whether a client is content-aware, so that it is told what the servers hold.
    is_aware: bool,
    peer_fetch: bool,
}

impl Tree {
    /// Clients above the servers of one depth or several. `home` maps a block to its server of the
    /// first depth: always the same number, below the number of servers; [`rendezvous`] is such a
    /// function.
    ///
    /// # Errors
    /// A depth has no server, one but the first has several, there are more than [`MAX_HOLDERS`]
    /// clients, or the rules contradict each other.
    pub fn new(
        clients: Vec<Level>,
        below: Vec<Vec<Server>>,
        home: impl Fn(u64) -> usize + Send + 'static,
        rules: TreeRules,
    ) -> Result<Self, PlacementError> {
        let refuse = |why: &str| Err(PlacementError::new(why));
        let servers = below.first().map_or(0, Vec::len);
        if servers == 0 || below[1..].iter().any(|depth| depth.len() != 1) {
            return refuse(
                "each depth below the clients needs a server, and only the first several",
            );
        }
        if clients.len() > MAX_HOLDERS {
            let many = clients.len();
            return refuse(&format!("{many} clients: expected at most {MAX_HOLDERS}"));
        }
        if rules.peer_fetch && !rules.shares_data {
            return refuse("clients without common data have nothing to serve each other");
        }
        if rules.shares_data && below[0].iter().any(|server| server.parts().len() > 1) {
            return refuse(
                "a server's cache cannot be divided among clients that share data: a block that \
                 two of them use would belong to neither part",
            );
        }
        let placement = below[0][0].parts()[0].placement();
        let order = placement.map_or(Order::ReadFirst, |it| it.rules().order);
        let is_aware = clients.iter().any(|client| client.cache().is_aware());
        let peer_fetch = rules.peer_fetch;
        Ok(Self {
            counts: vec![BelowCounts::default(); clients.len().max(1)],
            clients,
            below,
            home: Box::new(home),
            edge: Edge { order, tells: true, informs: false, is_aware, peer_fetch },
            holders: rules.shares_data.then(|| Holders::new(0)),
            known: 0,
            moves: Vec::new(),
            victims: Vec::new(),
            changed: Vec::new(),
        })
    }

    /// Levels one below the other, whose blocks are numbered densely. Without a first level its
    /// evictions are told: [`client_evicted`](Self::client_evicted).
    ///
    /// # Errors
    /// There is no level below the first one, or one of several reloads.
    pub fn line(
        first: Option<(Box<dyn Policy>, WriteMode)>,
        lower: Vec<Level>,
    ) -> Result<Self, PlacementError> {
        let Some(second) = lower.first() else {
            let why = "blocks that are evicted need a level below the first to go to: add one";
            return Err(PlacementError::new(why));
        };
        let reloads = second.placement().is_some_and(|it| it.rules().down == DataSource::Reload);
        if lower.len() > 1 && reloads {
            return Err(PlacementError::new(
                "placement eviction is one server below clients, which reloads from disk what \
                 they evicted; for more levels use gl",
            ));
        }
        let first = first.map(|(policy, mode)| {
            let mut level = Level::of_policy(policy, mode, 0);
            level.number_blocks(None);
            level
        });
        let below = lower.into_iter().map(|level| vec![Server::of_level(level)]).collect();
        Self::new(first.into_iter().collect(), below, |_| 0, TreeRules::default())
    }

    /// Declares that blocks are numbered from 0, as in a simulation: look-ups do not hash, and
    /// memory grows with the largest number. Call it before the first reference.
    pub fn number_blocks(&mut self) {
        self.clients.iter_mut().for_each(|client| client.number_blocks(None));
        self.below.iter_mut().flatten().for_each(Server::number_blocks);
    }

    /// Stops the only client from reporting its evictions: see
    /// [`client_evicted`](Self::client_evicted).
    pub fn silence_client(&mut self) {
        self.edge.tells = false;
    }

    /// Puts a flash level below the last server.
    pub(crate) fn set_flash(&mut self, flash: BelowMemory) {
        if let Some(server) = self.below.last_mut().and_then(|servers| servers.first_mut()) {
            server.set_flash(flash);
        }
    }

    /// The flash level.
    pub(crate) fn flash(&self) -> Option<&BelowMemory> {
        self.below.last()?.first()?.flash()
    }

    /// See [`flash`](Self::flash).
    pub(crate) fn flash_mut(&mut self) -> Option<&mut BelowMemory> {
        self.below.last_mut()?.first_mut()?.flash_mut()
    }

    /// From now on a client tells the server below it, which is content-aware, exactly what it
    /// holds.
    pub fn inform_server(&mut self) {
        self.edge.informs = true;
    }

    /// Switches placement at the access on or off for all servers. Use it while the client's
    /// evictions are not known well enough.
    pub fn set_access_based(&mut self, is_access_based: bool) {
        let servers = self.below.iter_mut().flatten();
        servers.for_each(|server| server.set_access_based(is_access_based));
    }

    /// Serves a reference of the only client at once; its blocks are numbered in the order in which
    /// they are first referenced. Returns the number of the cache that had the block, if any.
    pub fn refer(&mut self, reference: Reference) -> Option<usize> {
        let block = reference.entry().into();
        let cold = block >= self.known;
        self.known = self.known.max(block + 1);
        match self.reference(0, block, reference.is_write(), cold) {
            Found::Cache(number) => Some(number),
            Found::Flash | Found::Peer(_) | Found::Disk => None,
        }
    }

    /// Serves one reference at once. Returns who had the block. `cold`: the block was never
    /// referenced before.
    pub fn reference(&mut self, client: usize, block: u64, is_write: bool, cold: bool) -> Found {
        self.moves.clear();
        let mut victims = std::mem::take(&mut self.victims);
        victims.clear();
        let hit = self.request(client, block, is_write, cold, &mut victims);
        if self.edge.order == Order::DemoteFirst {
            self.place(client, &victims);
        }
        let mut found = Found::Cache(client);
        if is_write || !hit {
            let below = self.serve(client, block, is_write, cold);
            found = if hit { found } else { below };
            self.inform(client, block);
            let server = self.server_of(0, block);
            while let Some((block, step)) = self.foreseen(server.0, client) {
                let gone = self.carry_out(client, 0, server, block, step);
                self.moves.extend(gone.map(|gone| Move::Dropped(gone, server.1)));
            }
        }
        if self.edge.order == Order::ReadFirst {
            self.place(client, &victims);
        }
        self.victims = victims;
        if self.edge.is_aware {
            self.changed.push(block);
            self.tell_client(client);
        }
        found
    }

    /// Step 1 of a reference: the client's own cache. Returns whether it hit. Evicted blocks that
    /// no other client has are appended to `victims`.
    pub fn request(
        &mut self,
        client: usize,
        block: u64,
        is_write: bool,
        cold: bool,
        victims: &mut Vec<u64>,
    ) -> bool {
        self.changed.clear();
        let Some(cache) = self.clients.get_mut(client) else { return false };
        let referred = cache.reference(block, is_write, || cold);
        let Some(holders) = &mut self.holders else {
            let gone = cache.evicted().iter().filter(|_| self.edge.tells);
            victims.extend(gone.map(|gone| gone.block));
            return referred.hit;
        };
        for gone in cache.evicted() {
            if holders.remove(client, gone.block) {
                victims.push(gone.block);
            } else {
                self.counts[client].not_last += 1;
            }
        }
        if referred.now.is_some() {
            holders.add(client, block);
        } else {
            holders.remove(client, block);
        }
        referred.hit
    }

    /// Step 2, for every write and for a read that missed: a write goes to all depths, a read to
    /// the first server that has the block, then to the peers.
    pub fn serve(&mut self, client: usize, block: u64, is_write: bool, cold: bool) -> Found {
        let holders = self.holders.as_ref().filter(|_| !is_write);
        let peer = holders.and_then(|holders| holders.peer(client, block));
        let keeps = peer.is_some() && !self.edge.peer_fetch;
        let mut found = Found::Disk;
        for depth in 0..self.below.len() {
            let (at, number) = self.server_of(depth, block);
            let server = &mut self.below[depth][at];
            let hit = if is_write {
                server.write(client, block, cold)
            } else {
                server.read(client, block, keeps, cold).hit
            };
            if self.edge.is_aware {
                self.changed.extend(server.part(client).evicted().iter().map(|gone| gone.block));
            }
            if hit && found == Found::Disk {
                found = Found::Cache(number);
            }
            if hit && !is_write {
                break;
            }
            if !is_write && server.flash().is_some_and(BelowMemory::was_here) {
                found = Found::Flash;
            }
        }
        if is_write {
            return found;
        }
        let counts = &mut self.counts[client];
        match (found, peer.filter(|_| self.edge.peer_fetch)) {
            (Found::Disk, Some(peer)) => {
                counts.peer_hits += 1;
                return Found::Peer(peer);
            }
            (Found::Disk, None) => counts.disk_reads += 1,
            _ => counts.server_hits += 1,
        }
        found
    }

    /// Step 3, for each victim: returns what its server asks for.
    pub fn evicted(&mut self, client: usize, victim: u64) -> PlacementStep {
        let home = self.home(victim);
        self.below[0][home].evicted(client, victim)
    }

    /// Along with step 3: an eviction that a server predicts; see [`Server::foreseen`].
    pub fn foreseen(&mut self, server: usize, client: usize) -> Option<(u64, PlacementStep)> {
        self.below[0][server].foreseen(client)
    }

    /// Step 4, for a block to be fetched: its data is here, and no client asked for it in the
    /// meantime.
    pub fn arrived(&mut self, client: usize, block: u64) {
        let home = self.home(block);
        self.below[0][home].arrived(client, block);
    }

    /// Places a block whose eviction by the only client became known.
    pub fn client_evicted(&mut self, block: u64) {
        self.moves.clear();
        self.descend(0, block);
        if self.edge.is_aware {
            self.tell_client(0);
        }
    }

    fn place(&mut self, client: usize, victims: &[u64]) {
        for &victim in victims {
            self.inform(client, victim);
            self.descend(client, victim);
        }
    }

    /// Places a block that left a client, and what a server evicts for it, further down. A server
    /// evicts at most one block for one that it places.
    fn descend(&mut self, client: usize, block: u64) {
        let (mut coming, mut from) = (block, 0);
        for depth in 0..self.below.len() {
            let server = self.server_of(depth, coming);
            let step = self.below[depth][server.0].evicted(client, coming);
            let gone = self.carry_out(client, depth, server, coming, step);
            let Some(gone) = gone else { return };
            (coming, from) = (gone, server.1);
        }
        self.moves.push(Move::Dropped(coming, from));
    }

    /// Does at once what a server asks for about a block. Returns the block that it evicted for
    /// that, if any.
    fn carry_out(
        &mut self,
        client: usize,
        depth: usize,
        (at, number): (usize, usize),
        block: u64,
        step: PlacementStep,
    ) -> Option<u64> {
        let server = &mut self.below[depth][at];
        let came = match step {
            PlacementStep::Resident => return None,
            PlacementStep::Skip => {
                self.moves.push(Move::Skipped(block, number));
                return None;
            }
            PlacementStep::Staged(_) => Move::Staged(block, number),
            PlacementStep::Fetch => match server.arrived(client, block) {
                DataSource::Reload => Move::Reloaded(block, number),
                DataSource::Demote => Move::Demoted(block, number),
            },
        };
        self.moves.push(came);
        server.part(client).evicted().first().map(|gone| gone.block)
    }

    /// Tells the server, if it is informed, whether the client holds a block.
    fn inform(&mut self, client: usize, block: u64) {
        if self.edge.informs {
            let holds = self.clients.get(client).is_some_and(|own| own.frame(block).is_some());
            let home = self.home(block);
            self.below[0][home].neighbour_holds(client, block, holds);
        }
    }

    /// Tells a content-aware client what the servers hold now of the blocks that came or went.
    fn tell_client(&mut self, client: usize) {
        self.changed.extend(self.moves.iter().map(|moved| moved.block()));
        for block in self.changed.drain(..) {
            let mut servers = self.below.iter().flatten();
            let holds = servers.any(|server| server.part(client).frame(block).is_some());
            self.clients[client].neighbour_holds(block, holds);
        }
    }

    /// Whether any client holds a block. If clients do not share data, only `client` is asked.
    pub fn is_held(&self, client: usize, block: u64) -> bool {
        match &self.holders {
            Some(holders) => holders.is_held(block),
            None => self.clients.get(client).is_some_and(|own| own.frame(block).is_some()),
        }
    }

    /// The server of the first depth that a block belongs to.
    pub fn home(&self, block: u64) -> usize {
        (self.home)(block)
    }

    /// The server of a block at a depth, and the number of that cache.
    fn server_of(&self, depth: usize, block: u64) -> (usize, usize) {
        let at = if depth == 0 { self.home(block) } else { 0 };
        let above: usize = self.below[..depth].iter().map(Vec::len).sum();
        (at, self.clients.len() + above + at)
    }

    /// Whether victims are placed before or after the read that evicted them is served.
    pub fn order(&self) -> Order {
        self.edge.order
    }

    /// Sets how evicted blocks come down to a server of the first depth.
    pub fn set_way_down(&mut self, server: usize, down: DataSource) {
        self.below[0][server].set_way_down(down);
    }

    /// Sets the share of time, from 0 to 1, in which clients keep the store of a server of the
    /// first depth busy.
    pub fn set_store_busy(&mut self, server: usize, share: f64) {
        self.below[0][server].set_store_busy(share);
    }

    /// Whether a server of the first depth has a use for the contents of blocks that this client
    /// evicts.
    pub fn asks_for_contents(&self, server: usize, client: usize) -> bool {
        self.below[0][server].part(client).placement().is_some_and(|it| it.asks_for_contents())
    }

    /// The moves of the last call, in order.
    pub fn moves(&self) -> &[Move] {
        &self.moves
    }

    /// Resets the counts but not the content, at the end of a warm-up.
    pub fn restart_counts(&mut self) {
        self.clients.iter_mut().for_each(Level::restart_counts);
        self.below.iter_mut().flatten().for_each(Server::restart_counts);
        self.counts.fill(BelowCounts::default());
    }

    /// The clients' caches.
    pub fn clients(&self) -> &[Level] {
        &self.clients
    }

    /// The servers of a depth below the clients, counted from 0.
    pub fn servers(&self, depth: usize) -> &[Server] {
        &self.below[depth]
    }

    /// The first part of the first server of each depth: the lower levels, where each is one cache.
    pub fn lower(&self) -> Vec<&Level> {
        self.below.iter().map(|servers| &servers[0].parts()[0]).collect()
    }

    /// The counts of each client, below its own cache.
    pub fn counts(&self) -> &[BelowCounts] {
        &self.counts
    }

    /// The counts of the clients together, if they are simulated, and of the servers of each depth.
    pub fn level_counts(&self) -> Vec<Counts> {
        let add = |sum: Counts, counts: Counts| sum.plus(&counts);
        let clients = self.clients.iter().map(|client| *client.cache().counts()).reduce(add);
        let servers =
            |depth: &Vec<Server>| depth.iter().map(Server::counts).fold(Counts::default(), add);
        clients.into_iter().chain(self.below.iter().map(servers)).collect()
    }

    /// The placement counts by depth, as [`level_counts`](Self::level_counts); those of clients
    /// are 0.
    pub fn placement_counts(&self) -> Vec<PlacementCounts> {
        let none = PlacementCounts::default();
        let servers = |depth: &Vec<Server>| {
            depth.iter().fold(none, |sum, server| sum.plus(&server.placement_counts()))
        };
        let clients = self.clients.first().map(|_| none);
        clients.into_iter().chain(self.below.iter().map(servers)).collect()
    }

    /// Recounts everything.
    ///
    /// # Errors
    /// Says which invariant does not hold.
    pub fn validate(&self) -> Result<(), String> {
        self.below.iter().flatten().try_for_each(Server::validate)?;
        self.clients.iter().try_for_each(Level::validate)?;
        let Some(holders) = &self.holders else { return Ok(()) };
        let mut held = 0;
        for (number, client) in self.clients.iter().enumerate() {
            for (block, _) in client.cache().residents() {
                let first = (0..number).all(|other| self.clients[other].frame(block).is_none());
                held += usize::from(first);
                let others = self.clients.iter().enumerate();
                let peer = others
                    .filter(|&(other, cache)| other != number && cache.frame(block).is_some())
                    .map(|(other, _)| other)
                    .next();
                if holders.peer(number, block) != peer {
                    return Err(format!("client {number}, block {block}: its holders are wrong"));
                }
            }
        }
        if held == holders.len() {
            return Ok(());
        }
        Err(format!("clients hold {held} blocks, {} are known", holders.len()))
    }
}
