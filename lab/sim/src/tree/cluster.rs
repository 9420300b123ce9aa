//! Several clients above one or more servers. Each client has its own cache, whose evictions are
//! known exactly. An evicted block goes to the server that it belongs to.
//!
//! From TPDS 2004, sections 6 and 9, unless marked as ours:
//! * if clients share data, a block is placed below when the *last* client that holds it evicts it;
//! * with `peer_fetch`, a read that misses at the server while another client holds the block is
//!   served by that client; of several, by the one with the smallest number (ours). Without
//!   `peer_fetch`, a hit leaves the copy at the server while another client holds the block (ours);
//! * all clients that hold a block see a write to it at once, and keep the block (ours).
//!
//! Only simulations use this. A real server has the first rule; it asks no peers, and a hit leaves
//! no copy for the sake of another client.
//!
//! [`Cluster::reference`] does a whole reference at once. Its steps are public for callers that
//! model time.

use undercroft_level::placement::{DataSource, Order, Placement, PlacementError};
use undercroft_level::{Level, PlacementCounts, PlacementStep};
use undercroft_policy::{Context, Counts, Spec, WriteMode};

use super::holders::{Holders, MAX_HOLDERS};
use super::server::{Server, ServerSpec};

/// The configuration of a client's cache.
#[derive(Clone, Debug, PartialEq)]
pub struct Client {
    /// Replacement policy.
    pub policy: Spec,
    /// Size in blocks.
    pub capacity: u32,
}

/// Rules for all clients and servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClusterRules {
    /// Whether equal block numbers of different clients are the same block.
    pub shares_data: bool,
    /// Whether clients serve each other's reads that miss at the server. Only if they share data.
    pub peer_fetch: bool,
    /// The write mode of the clients; the servers have their own.
    pub write_mode: WriteMode,
}

/// Who served a reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The client's own cache.
    Own,
    /// The server with this number.
    Server(usize),
    /// The client with this number.
    Peer(usize),
    /// The disk.
    Disk,
}

/// Where a client's reads were served below its own cache, and what happened to its evictions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClusterCounts {
    /// Reads that hit at a server.
    pub server_hits: u64,
    /// Reads that missed at the server and were served by another client.
    pub peer_hits: u64,
    /// Reads from disk.
    pub disk_reads: u64,
    /// Evicted blocks that another client held, so that they were not placed below.
    pub not_last: u64,
}

/// The server that a block belongs to.
type Home = Box<dyn Fn(u64) -> usize + Send>;

/// Clients with their caches, above servers.
pub struct Cluster {
    clients: Vec<Level>,
    servers: Vec<Server>,
    home: Home,
    rules: ClusterRules,
    /// Only if clients share data; otherwise at most one client holds a block.
    holders: Option<Holders>,
    order: Order,
    counts: Vec<ClusterCounts>,
    victims: Vec<u64>,
}

impl Cluster {
    /// Clients above servers. `home` maps a block to its server: always the same number, below the
    /// number of servers; [`rendezvous`](super::rendezvous) is such a function.
    ///
    /// # Errors
    /// There is no client, no server, or more than [`MAX_HOLDERS`] clients; a cache cannot be made;
    /// or the rules contradict each other.
    pub fn new(
        clients: &[Client],
        servers: &[ServerSpec],
        home: impl Fn(u64) -> usize + Send + 'static,
        rules: ClusterRules,
    ) -> Result<Self, PlacementError> {
        let refuse = |why: String| Err(PlacementError::new(why));
        if clients.is_empty() || servers.is_empty() || clients.len() > MAX_HOLDERS {
            let (clients, servers) = (clients.len(), servers.len());
            return refuse(format!(
                "{clients} clients above {servers} servers: expected 1 to {MAX_HOLDERS} above at \
                 least 1"
            ));
        }
        if rules.peer_fetch && !rules.shares_data {
            return refuse("clients without common data have nothing to serve each other".into());
        }
        let is_divided = |server: &ServerSpec| server.division != super::Division::Shared;
        if rules.shares_data && servers.iter().any(is_divided) {
            return refuse(
                "a server's cache cannot be divided among clients that share data: a block that \
                 two of them use would belong to neither part"
                    .into(),
            );
        }
        let order = match servers[0].placement {
            Placement::Access => Order::ReadFirst,
            Placement::Eviction(eviction) => eviction.order,
            Placement::Global(order) => order,
        };
        let build = |client: &Client| {
            servers[0].placement.check_policy(client.policy.info().name)?;
            let policy = client.policy.build(&Context::new(client.capacity));
            let policy = policy.map_err(|error| PlacementError::new(error.to_string()))?;
            Ok(Level::of_policy(policy, rules.write_mode, 0))
        };
        let servers = servers.iter().map(|spec| Server::new(spec, clients.len(), 0));
        Ok(Self {
            clients: clients.iter().map(build).collect::<Result<_, PlacementError>>()?,
            servers: servers.collect::<Result<_, _>>()?,
            home: Box::new(home),
            rules,
            holders: rules.shares_data.then(|| Holders::new(0)),
            order,
            counts: vec![ClusterCounts::default(); clients.len()],
            victims: Vec::new(),
        })
    }

    /// Declares that blocks are numbered from 0, as in a simulation: look-ups do not hash, and
    /// memory grows with the largest number. Call it before the first reference.
    pub fn number_blocks(&mut self) {
        self.clients.iter_mut().for_each(|client| client.number_blocks(None));
        self.servers.iter_mut().for_each(Server::number_blocks);
    }

    /// Serves one reference at once. Returns who had the block. `cold`: the block was never
    /// referenced before.
    pub fn reference(&mut self, client: usize, block: u64, is_write: bool, cold: bool) -> Source {
        let mut victims = std::mem::take(&mut self.victims);
        victims.clear();
        let hit = self.request(client, block, is_write, cold, &mut victims);
        if self.order == Order::DemoteFirst {
            victims.iter().for_each(|&victim| self.descend(client, victim));
        }
        let mut source = Source::Own;
        if is_write || !hit {
            let below = self.serve(client, block, is_write, cold);
            source = if hit { Source::Own } else { below };
            let server = self.home(block);
            while let Some((block, step)) = self.foreseen(server, client) {
                self.carry_out(client, block, step);
            }
        }
        if self.order == Order::ReadFirst {
            victims.iter().for_each(|&victim| self.descend(client, victim));
        }
        self.victims = victims;
        source
    }

    fn descend(&mut self, client: usize, victim: u64) {
        let step = self.evicted(client, victim);
        self.carry_out(client, victim, step);
    }

    fn carry_out(&mut self, client: usize, block: u64, step: PlacementStep) {
        if step == PlacementStep::Fetch {
            self.arrived(client, block);
        }
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
        let cache = &mut self.clients[client];
        let referred = cache.reference(block, is_write, || cold);
        let Some(holders) = &mut self.holders else {
            victims.extend(cache.evicted().iter().map(|gone| gone.block));
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

    /// Step 2, for every write and for a read that missed: the servers and the peers. Never returns
    /// [`Source::Own`].
    pub fn serve(&mut self, client: usize, block: u64, is_write: bool, cold: bool) -> Source {
        let home = self.home(block);
        let server = &mut self.servers[home];
        if is_write {
            let hit = server.write(client, block, cold);
            return if hit { Source::Server(home) } else { Source::Disk };
        }
        let peer = self.holders.as_ref().and_then(|holders| holders.peer(client, block));
        let keeps = peer.is_some() && !self.rules.peer_fetch;
        let hit = server.read(client, block, keeps, cold).hit;
        let counts = &mut self.counts[client];
        match peer {
            _ if hit => {
                counts.server_hits += 1;
                Source::Server(home)
            }
            Some(peer) if self.rules.peer_fetch => {
                counts.peer_hits += 1;
                Source::Peer(peer)
            }
            _ => {
                counts.disk_reads += 1;
                Source::Disk
            }
        }
    }

    /// Step 3, for each victim: returns what its server asks for.
    pub fn evicted(&mut self, client: usize, victim: u64) -> PlacementStep {
        let home = self.home(victim);
        self.servers[home].evicted(client, victim)
    }

    /// Along with step 3: an eviction that a server predicts; see [`Server::foreseen`].
    pub fn foreseen(&mut self, server: usize, client: usize) -> Option<(u64, PlacementStep)> {
        self.servers[server].foreseen(client)
    }

    /// Step 4, for a block to be fetched: its data is here, and no client asked for it in the
    /// meantime.
    pub fn arrived(&mut self, client: usize, block: u64) {
        let home = self.home(block);
        self.servers[home].arrived(client, block);
    }

    /// Whether any client holds a block. If clients do not share data, only `client` is asked.
    pub fn is_held(&self, client: usize, block: u64) -> bool {
        match &self.holders {
            Some(holders) => holders.is_held(block),
            None => self.clients[client].frame(block).is_some(),
        }
    }

    /// The server that a block belongs to.
    pub fn home(&self, block: u64) -> usize {
        (self.home)(block)
    }

    /// Whether victims are placed before or after the read that evicted them is served.
    pub fn order(&self) -> Order {
        self.order
    }

    /// Sets how evicted blocks come down to a server.
    pub fn set_way_down(&mut self, server: usize, down: DataSource) {
        self.servers[server].set_way_down(down);
    }

    /// Sets the share of time, from 0 to 1, in which clients keep a server's store busy.
    pub fn set_store_busy(&mut self, server: usize, share: f64) {
        self.servers[server].set_store_busy(share);
    }

    /// Whether a server has a use for the contents of blocks that this client evicts.
    pub fn asks_for_contents(&self, server: usize, client: usize) -> bool {
        self.servers[server].asks_for_contents(client)
    }

    /// Resets the counts but not the content, at the end of a warm-up.
    pub fn restart_counts(&mut self) {
        self.clients.iter_mut().for_each(Level::restart_counts);
        self.servers.iter_mut().for_each(Server::restart_counts);
        self.counts.fill(ClusterCounts::default());
    }

    /// The clients' caches.
    pub fn clients(&self) -> &[Level] {
        &self.clients
    }

    /// The servers.
    pub fn servers(&self) -> &[Server] {
        &self.servers
    }

    /// The counts of each client, below its own cache.
    pub fn counts(&self) -> &[ClusterCounts] {
        &self.counts
    }

    /// The summed counts of all clients' caches, and of all servers.
    pub fn level_counts(&self) -> (Counts, Counts) {
        let clients = self.clients.iter().map(|client| *client.cache().counts());
        let servers = self.servers.iter().map(Server::counts);
        let add = |sum: Counts, counts: Counts| sum.plus(&counts);
        (clients.fold(Counts::default(), add), servers.fold(Counts::default(), add))
    }

    /// The summed placement counts of all servers.
    pub fn placement_counts(&self) -> PlacementCounts {
        let none = PlacementCounts::default();
        self.servers.iter().fold(none, |sum, server| sum.plus(&server.placement_counts()))
    }

    /// Recounts everything.
    ///
    /// # Errors
    /// Says which invariant does not hold.
    pub fn validate(&self) -> Result<(), String> {
        self.servers.iter().try_for_each(Server::validate)?;
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
