//! The events of a simulation with a clock, in order of time. Events of equal times occur in the
//! order in which they were scheduled, so that every run is equal.

mod counting;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::tree::{Found, Seen, Tree};
use undercroft_level::PlacementStep;
use undercroft_level::placement::{DataSource, Order, Placement, WayByCost};

use undercroft_random::SplitMix64;

use super::disk::{Disk, Work};
use super::flash::Channels;
use super::link::Link;
use crate::clients::OfClient;
use crate::costs::LEVEL_MS;
use crate::drive::Proceed;
use crate::timing::SERVER_NS;
use crate::{Config, Error, Population, TimedOutcome, Timing};
use counting::PERIOD_NS;

/// Time of a request that the client's own cache serves.
const OWN_NS: u64 = (LEVEL_MS[0] * 1e6) as u64;

/// The reload queues of a server may hold its cache's capacity divided by this.
const QUEUED: u32 = 8;

/// Seed of the think times of clients.
const SEED: u64 = 42;

/// References between two reports of progress.
const PROGRESS: u64 = 1 << 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A slot issues its next request.
    Issue(usize),
    /// The request of a slot reaches the server.
    Arrive(usize),
    /// A block that a client sent has reached the server.
    Demoted(usize, u64),
    /// A disk has finished its task.
    Disk(usize),
    /// The server answers a slot.
    Reply(usize),
    /// A slot receives its answer.
    Done(usize),
    /// The way down is chosen again.
    Review,
}

/// A request in flight, with the parts of its response time.
#[derive(Clone, Debug, Default)]
struct Slot {
    client: usize,
    block: u64,
    is_write: bool,
    cold: bool,
    issued: u64,
    /// When the request was queued at the disk.
    queued: u64,
    link_ns: u64,
    wait_ns: u64,
    behind_ns: u64,
    service_ns: u64,
    flash_ns: u64,
    /// Evictions that the request reports to the server.
    hints: Vec<u64>,
}

pub(super) struct World<'a> {
    population: &'a Population,
    streams: Vec<OfClient<'a>>,
    tree: Tree,
    placement: Placement,
    timing: Timing,
    block_bytes: u32,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    foreseen: u64,
    now: u64,
    slots: Vec<Slot>,
    active: usize,
    /// Slots that wait for the end of the warm-up.
    held: Vec<usize>,
    links: Vec<Link>,
    /// The disks of the first server, then those of the second, and so on.
    disks: Vec<Disk>,
    /// Those of the flash level, and its blocks written so far.
    channels: Option<Channels>,
    flash_written: u64,
    ways: Vec<WayByCost>,
    seen: Seen,
    issued: u64,
    /// References of the warm-up, until it is over.
    warmup: Option<u64>,
    stats: TimedOutcome,
    began: u64,
    /// Busy times at the end of the warm-up; the busy times at the last choice of the way down
    /// follow.
    disks_before: [u64; 3],
    links_before: [u64; 2],
    reviewed: Vec<u64>,
    links_reviewed: u64,
    victims: Vec<u64>,
    /// Disks that got reloads from the current request.
    to_start: Vec<usize>,
    random: SplitMix64,
}

impl<'a> World<'a> {
    pub(super) fn new(
        population: &'a Population,
        tree: Tree,
        config: &Config,
        timing: &Timing,
        warmup: u64,
    ) -> Self {
        let clients = population.names().len();
        let servers = tree.servers(0).len() as u32;
        let blocks = config.levels.last().map_or(0, |server| server.capacity);
        let placement = config.placement();
        let per_client = timing.outstanding as usize;
        let slot = |i: usize| Slot { client: i / per_client, ..Slot::default() };
        let reloads = (blocks / servers / QUEUED / timing.disks).max(1);
        let disks = (servers * timing.disks) as usize;
        let disk = |_| Disk::new(timing.disk_us * 1000, timing.reloads, reloads);
        let link = |_| Link::new(timing.link_block_ns(config.block_bytes));
        let mut world = Self {
            population,
            streams: (0..clients).map(|client| population.of_client(client)).collect(),
            ways: vec![WayByCost::default(); tree.servers(0).len()],
            tree,
            placement,
            timing: *timing,
            block_bytes: config.block_bytes,
            events: BinaryHeap::new(),
            foreseen: 0,
            now: 0,
            slots: (0..clients * per_client).map(slot).collect(),
            active: clients * per_client,
            held: Vec::new(),
            links: (0..clients).map(link).collect(),
            disks: (0..disks).map(disk).collect(),
            channels: config.lowest.flash.as_ref().map(|flash| Channels::new(flash.times)),
            flash_written: 0,
            seen: Seen::new(population.unique()),
            issued: 0,
            warmup: (warmup > 0).then_some(warmup),
            stats: TimedOutcome::default(),
            began: 0,
            disks_before: [0; 3],
            links_before: [0; 2],
            reviewed: vec![0; disks],
            links_reviewed: 0,
            victims: Vec::new(),
            to_start: Vec::new(),
            random: SplitMix64::new(SEED),
        };
        // Slot by slot, so that the clients start in turn.
        for k in 0..per_client {
            (0..clients).for_each(|client| world.at(0, Event::Issue(client * per_client + k)));
        }
        if placement.is_by_cost() || placement.is_auto() {
            world.at(PERIOD_NS, Event::Review);
        }
        world
    }

    fn at(&mut self, time: u64, event: Event) {
        self.events.push(Reverse((time, self.foreseen, event)));
        self.foreseen += 1;
    }

    pub(super) fn run<P: Proceed>(
        &mut self,
        progress: &mut dyn FnMut(u64) -> P,
    ) -> Result<(), Error> {
        while let Some(Reverse((time, _, event))) = self.events.pop() {
            self.now = time;
            match event {
                Event::Issue(slot) => {
                    self.issue(slot)?;
                    if self.issued % PROGRESS == 0 {
                        progress(self.issued).proceed()?;
                    }
                }
                Event::Arrive(slot) => self.arrive(slot),
                Event::Demoted(client, block) => self.demoted(client, block),
                Event::Disk(disk) => self.disk_done(disk),
                Event::Reply(slot) => self.reply(slot),
                Event::Done(slot) => self.finish_request(slot),
                Event::Review => self.review(),
            }
            // When no client has requests left, the remaining events do not matter.
            if self.active == 0 {
                break;
            }
        }
        progress(self.issued).proceed()
    }

    // -------------------------------------------------------------- the client

    fn issue(&mut self, at: usize) -> Result<(), Error> {
        if self.warmup == Some(self.issued) {
            self.hold(at);
            return Ok(());
        }
        let client = self.slots[at].client;
        let Some(r) = self.streams[client].next()? else {
            self.active -= 1;
            return Ok(());
        };
        self.issued += 1;
        let (block, is_write) = (u64::from(r.block), r.is_write);
        let cold = self.seen.is_first(r.block);
        let mut victims = std::mem::take(&mut self.victims);
        victims.clear();
        let hit = self.tree.request(client, block, is_write, cold, &mut victims);
        let (issued, mut hints) = (self.now, std::mem::take(&mut self.slots[at].hints));
        hints.clear();
        self.slots[at] = Slot { client, block, is_write, cold, issued, hints, ..Slot::default() };
        if hit && !is_write {
            self.at(self.now + OWN_NS, Event::Done(at));
        } else if self.tree.order() == Order::DemoteFirst {
            self.send_victims(at, &victims);
            self.send_request(at);
        } else {
            self.send_request(at);
            self.send_victims(at, &victims);
        }
        self.victims = victims;
        Ok(())
    }

    /// Makes a slot wait until all requests of the warm-up are answered, so that every level
    /// counts the same requests.
    fn hold(&mut self, at: usize) {
        self.held.push(at);
        if self.held.len() == self.active {
            self.warmup = None;
            self.restart();
            let (now, held) = (self.now, std::mem::take(&mut self.held));
            held.into_iter().for_each(|at| self.at(now, Event::Issue(at)));
        }
    }

    /// Sends a request; a write includes its data.
    fn send_request(&mut self, at: usize) {
        let (now, slot) = (self.now, &mut self.slots[at]);
        let link = &mut self.links[slot.client];
        let arrives = if slot.is_write { link.send_demand(now) } else { link.send_small(now) };
        slot.link_ns += arrives - now;
        self.at(arrives, Event::Arrive(at));
    }

    /// Sends the blocks that a request evicted, or reports them with the request.
    fn send_victims(&mut self, at: usize, victims: &[u64]) {
        if self.placement == Placement::Access {
            return;
        }
        let client = self.slots[at].client;
        for &victim in victims {
            let server = self.tree.home(victim);
            let is_of_use = self.tree.asks_for_contents(server, client);
            match self.way(server) {
                DataSource::Demote if !is_of_use => self.slots[at].hints.push(victim),
                DataSource::Reload => self.slots[at].hints.push(victim),
                DataSource::Demote => {
                    let arrives = self.links[client].send_demotion(self.now);
                    self.at(arrives, Event::Demoted(client, victim));
                }
            }
        }
    }

    fn way(&self, server: usize) -> DataSource {
        match self.placement {
            Placement::Eviction(eviction) if eviction.by_cost => self.ways[server].way(),
            Placement::Eviction(eviction) => eviction.down,
            Placement::Access | Placement::Global(_) => DataSource::Demote,
        }
    }

    fn reply(&mut self, at: usize) {
        let (now, slot) = (self.now, &mut self.slots[at]);
        let link = &mut self.links[slot.client];
        let arrives = if slot.is_write { link.send_small(now) } else { link.send_demand(now) };
        slot.link_ns += arrives - now;
        self.at(arrives, Event::Done(at));
    }

    fn finish_request(&mut self, at: usize) {
        let slot = &self.slots[at];
        self.stats.requests += 1;
        if !slot.is_write {
            let stats = &mut self.stats;
            stats.reads += 1;
            stats.response_ns += self.now - slot.issued;
            stats.link_ns += slot.link_ns;
            stats.wait_ns += slot.wait_ns;
            stats.behind_reloads_ns += slot.behind_ns;
            stats.service_ns += slot.service_ns;
            stats.flash_ns += slot.flash_ns;
        }
        let think_ns = self.think_ns();
        self.at(self.now + think_ns, Event::Issue(at));
    }

    /// A random think time, uniform between 0 and twice the mean. With constant times every request
    /// would find the disks in the same state.
    fn think_ns(&mut self) -> u64 {
        match self.timing.think_us {
            0 => 0,
            mean => self.random.below(2 * mean * 1000 + 1),
        }
    }

    // -------------------------------------------------------------- the servers

    fn arrive(&mut self, at: usize) {
        let Slot { client, block, is_write, cold, .. } = self.slots[at];
        let is_demote_first = self.tree.order() == Order::DemoteFirst;
        if is_demote_first {
            self.take_hints(at);
        }
        let now_us = self.now / 1000;
        self.tree.flash_mut().into_iter().for_each(|flash| flash.advance(now_us));
        let found = self.tree.serve(client, block, is_write, cold);
        let disk = self.disk_of(block);
        if is_write {
            self.disks[disk].drop_written(block);
            self.ask_disk(disk, Work::Write(at));
        } else {
            self.disks[disk].drop_demanded(block);
            match found {
                Found::Flash => {
                    let read = self.read_flash(block);
                    self.slots[at].flash_ns = read - self.now;
                    self.at(read + SERVER_NS, Event::Reply(at));
                }
                Found::Disk if self.disks[disk].join(block, at) => {
                    self.slots[at].queued = self.now;
                    self.stats.joined += 1;
                }
                Found::Disk => self.ask_disk(disk, Work::Read(at)),
                _ => self.at(self.now + SERVER_NS, Event::Reply(at)),
            }
        }
        let server = self.tree.home(block);
        while let Some((block, step)) = self.tree.foreseen(server, client) {
            self.fetch(block, step);
        }
        if !is_demote_first {
            self.take_hints(at);
        }
        let mut to_start = std::mem::take(&mut self.to_start);
        to_start.drain(..).for_each(|disk| self.start_disk(disk));
        self.to_start = to_start;
        self.write_flash();
    }

    /// Reads a block from flash. Returns when it is there.
    fn read_flash(&mut self, block: u64) -> u64 {
        let now = self.now;
        self.channels.as_mut().map_or(now, |channels| channels.read(block, now))
    }

    /// Hands to the channels what goes to flash since the last call.
    fn write_flash(&mut self) {
        let (Some(channels), Some(flash)) = (&mut self.channels, self.tree.flash()) else { return };
        let written = flash.outcome().counts.written;
        channels.write(written - self.flash_written, self.now);
        self.flash_written = written;
    }

    fn take_hints(&mut self, at: usize) {
        let hints = std::mem::take(&mut self.slots[at].hints);
        let client = self.slots[at].client;
        for &victim in &hints {
            self.stats.hints += 1;
            // A client may have requested the block again, in a request behind this one.
            if self.tree.is_held(client, victim) {
                self.stats.stale += 1;
                continue;
            }
            self.go_this_way(victim, DataSource::Reload);
            let step = self.tree.evicted(client, victim);
            self.fetch(victim, step);
        }
        self.slots[at].hints = hints;
    }

    fn demoted(&mut self, client: usize, block: u64) {
        self.go_this_way(block, DataSource::Demote);
        if self.tree.evicted(client, block) == PlacementStep::Fetch {
            self.tree.arrived(client, block);
        }
    }

    /// If the way down can change, tells the server how this block comes.
    fn go_this_way(&mut self, block: u64, way: DataSource) {
        if self.placement.is_by_cost() || self.placement.is_auto() {
            let server = self.tree.home(block);
            self.tree.set_way_down(server, way);
        }
    }

    /// Queues a reload. Reloads start only after everything that came with a request has been
    /// handled, so that demand goes first.
    fn fetch(&mut self, block: u64, step: PlacementStep) {
        if step == PlacementStep::Fetch {
            if self.tree.flash().is_some_and(|flash| flash.has(block)) {
                // It is there at once, so it must not keep a channel from anything else.
                let now = self.now;
                if self.channels.as_mut().is_some_and(|all| all.read_when_idle(block, now)) {
                    self.tree.arrived(self.population.owner(block), block);
                }
                return;
            }
            let disk = self.disk_of(block);
            self.disks[disk].push_reload(block);
            self.to_start.push(disk);
        }
    }

    // -------------------------------------------------------------- the disks

    fn disk_of(&self, block: u64) -> usize {
        let disks = u64::from(self.timing.disks);
        self.tree.home(block) * disks as usize + (block % disks) as usize
    }

    fn ask_disk(&mut self, disk: usize, work: Work) {
        let behind_ns = self.disks[disk].push(work, self.now);
        if let Work::Read(at) | Work::Write(at) = work {
            self.slots[at].queued = self.now;
            self.slots[at].behind_ns = behind_ns;
        }
        self.start_disk(disk);
    }

    fn start_disk(&mut self, disk: usize) {
        if let Some(done) = self.disks[disk].start(self.now) {
            self.at(done, Event::Disk(disk));
        }
    }

    fn disk_done(&mut self, disk: usize) {
        let service_ns = self.timing.disk_us * 1000;
        match self.disks[disk].done() {
            Some(Work::Read(at) | Work::Write(at)) => {
                let slot = &mut self.slots[at];
                slot.service_ns = service_ns;
                slot.wait_ns = self.now - slot.queued - service_ns;
                self.at(self.now + SERVER_NS, Event::Reply(at));
            }
            Some(Work::Reload(block)) => self.reloaded(disk, block),
            None => (),
        }
        self.start_disk(disk);
    }

    fn reloaded(&mut self, disk: usize, block: u64) {
        let reloaded = self.disks[disk].reloaded(block);
        if reloaded.is_wanted {
            self.go_this_way(block, DataSource::Reload);
            self.tree.arrived(self.population.owner(block), block);
        } else {
            self.stats.unwanted += 1;
        }
        for at in reloaded.waiting {
            let slot = &mut self.slots[at];
            slot.wait_ns = self.now - slot.queued;
            slot.behind_ns = slot.wait_ns;
            self.at(self.now + SERVER_NS, Event::Reply(at));
        }
    }
}
