//! What a seed draws: the servers and their volumes, what the clients do, and what befalls them.

use std::fmt;

use crate::disk::{Habits, Service};
use crate::flash::FlashDraw;
use crate::flood::Flood;
use crate::random::Random;
use crate::write_log;

/// Fewest requests of a run, and connections at a time.
pub const REQUESTS: u64 = 500;
pub const CLIENTS: u64 = 3;

#[derive(Clone, Debug)]
pub struct Scenario {
    pub volumes: Vec<VolumeDraw>,
    /// Servers, each with its stores at the next one; the last has the disks.
    pub height: usize,
    pub clients: u64,
    /// Most requests of a connection under way.
    pub depth: u64,
    /// Most milliseconds between two requests, and how many of a hundred wait much longer.
    pub pause_ms: u64,
    pub long_pauses: u64,
    /// Bytes on the way in each direction of a connection.
    pub buffer: usize,
    pub requests: u64,
    /// Of a hundred changes.
    pub durable: u64,
    /// Of a hundred requests, those of up to the whole volume.
    pub large: u64,
    /// Of a hundred READs, those that begin or end within a sector.
    pub unaligned: u64,
    pub deeds: Vec<(Deed, u64)>,
    /// Of a hundred connections, so many cooperate; of what these say, so much is untrue.
    pub hinting: u64,
    pub lying: u64,
    /// Of a hundred connections to a volume that places what clients evict, so many are of programs
    /// whose evictions somebody else tells over the control export (`attached.rs`).
    pub attached: u64,
    pub blows: Vec<(Blow, u64)>,
    pub flood: Option<Flood>,
    pub flash: Option<FlashDraw>,
    /// Of the write log that each volume has.
    pub write_log: Option<Habits>,
    /// Most milliseconds between two blows.
    pub blow_ms: u64,
}

#[derive(Clone, Debug)]
pub struct VolumeDraw {
    pub name: String,
    pub block: u64,
    pub bytes: u64,
    /// How each server serves it, the highest first.
    pub servers: Vec<Served>,
    pub habits: Habits,
}

#[derive(Clone, Debug)]
pub struct Served {
    pub write: &'static str,
    /// As a person would write it, but for name and store.
    pub options: String,
}

/// What a client does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    Read,
    Write,
    Flush,
    Trim,
    Zero,
    Cache,
    BlockStatus,
    Status,
    Evict,
    Demote,
    Promote,
    /// Takes no replies for a while.
    Hold,
    /// Leaves in good order, or from one moment to the next.
    Leave,
    HangUp,
}

/// What befalls the servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blow {
    /// Faults of a disk begin.
    BadRange,
    FailSome,
    FailNth,
    DieAfterNth,
    Full,
    Stall,
    /// It answers nothing for much longer than a volume waits.
    StallLong,
    /// They end.
    Heal,
    ReloadAsIs,
    ReloadAccess,
    ReloadRemove,
    /// Size, policy and placement of a cache change, and change back.
    ReloadCache,
    /// An administrator changes a volume, or has it drop what it has cached.
    Set,
    /// A control export is opened, and stays open.
    Control,
    Kill,
    PowerCut,
    Restart,
    /// One of the servers below is killed, it and all below it lose their power, or its link to the
    /// one above is cut.
    KillBelow,
    PowerCutBelow,
    CutLinkBelow,
}

const DEEDS: [(Deed, u64); 14] = [
    (Deed::Read, 300),
    (Deed::Write, 300),
    (Deed::Flush, 40),
    (Deed::Trim, 15),
    (Deed::Zero, 25),
    (Deed::Cache, 15),
    (Deed::BlockStatus, 10),
    (Deed::Status, 4),
    (Deed::Evict, 60),
    (Deed::Demote, 40),
    (Deed::Promote, 10),
    (Deed::Hold, 4),
    (Deed::Leave, 4),
    (Deed::HangUp, 4),
];

const BLOWS: [(Blow, u64); 17] = [
    (Blow::BadRange, 10),
    (Blow::FailSome, 10),
    (Blow::FailNth, 10),
    (Blow::DieAfterNth, 6),
    (Blow::Full, 6),
    (Blow::Stall, 8),
    (Blow::StallLong, 3),
    (Blow::Heal, 30),
    (Blow::ReloadAsIs, 4),
    (Blow::ReloadAccess, 6),
    (Blow::ReloadRemove, 6),
    (Blow::ReloadCache, 10),
    (Blow::Set, 15),
    (Blow::Control, 6),
    (Blow::Kill, 6),
    (Blow::PowerCut, 8),
    (Blow::Restart, 6),
];

const FLOODS: [Flood; 4] = [Flood::Reads, Flood::Status, Flood::Writes, Flood::Turns];

const BLOWS_BELOW: [(Blow, u64); 3] =
    [(Blow::KillBelow, 8), (Blow::PowerCutBelow, 12), (Blow::CutLinkBelow, 8)];

impl Scenario {
    pub fn draw(random: &mut Random) -> Scenario {
        let height = random.weighted(&[(1, 70), (2, 20), (3, 10)]);
        let count = if random.percent(20) { 2 } else { 1 };
        let mut volumes: Vec<_> =
            (0..count).map(|index| VolumeDraw::draw(index, height, random)).collect();
        let mut blows = BLOWS.to_vec();
        if height > 1 {
            blows.extend(BLOWS_BELOW);
        }
        let mut deeds = random.swarm(&DEEDS);
        // A run that changes nothing, or looks at nothing, shows nothing.
        for needed in [Deed::Read, Deed::Write] {
            deeds
                .iter_mut()
                .filter(|(deed, _)| *deed == needed)
                .for_each(|(_, w)| *w = 100.max(*w));
        }
        let mut blows = random.swarm(&blows);
        // By themselves, so that nothing else that a seed draws depends on them.
        let attached = random.clone().fork().pick(&[0, 50, 100, 100]);
        if random.clone().fork().fork().percent(40) {
            volumes.iter_mut().for_each(VolumeDraw::lend);
        }
        let mut slow = random.clone().fork().fork().fork();
        if slow.percent(40) {
            let at_a_time = slow.pick(&[1, 1, 4]);
            volumes.iter_mut().for_each(|volume| volume.habits.at_a_time = Some(at_a_time));
        }
        let mut told = slow.clone().fork();
        volumes.iter_mut().for_each(|volume| volume.report(&mut told));
        let mut sizes = told.fork();
        let mut services = sizes.clone().fork();
        // Not below others: a server above may show for long what a late PUT has replaced.
        if height == 1 && services.percent(25) {
            let service = Service::draw(&mut services);
            volumes.iter_mut().for_each(|volume| volume.habits.service = Some(service.clone()));
        }
        let mut above = services.clone().fork();
        let flash = FlashDraw::draw(height, &mut above);
        // Below another server the checker expects to hear of what a disk has lost, log or not.
        let can_log = height == 1 && volumes.iter().all(|volume| volume.habits.service.is_none());
        let write_log = write_log::draw(&mut above).filter(|_| can_log);
        let burst = slow.percent(20).then_some(Flood::Bursts);
        // To see what else there is.
        let without = std::env::var("SIMULATE_WITHOUT").unwrap_or_default();
        let is_out = |name: String| without.split(',').any(|out| out == name);
        deeds.retain(|(deed, _)| !is_out(format!("{deed:?}")));
        blows.retain(|(blow, _)| !is_out(format!("{blow:?}")));
        let flash = flash.filter(|_| !is_out("Flash".to_owned()));
        let write_log = write_log.filter(|_| !is_out("Log".to_owned()));
        Scenario {
            volumes,
            height,
            clients: random.between(CLIENTS, CLIENTS + 3),
            depth: random.pick(&[1, 2, 4, 8, 16]),
            pause_ms: random.pick(&[0, 2, 10, 40]),
            long_pauses: random.pick(&[0, 0, 1, 3]),
            buffer: random.pick(&[600, 4096, 65_536, 262_144]),
            requests: random.between(REQUESTS, REQUESTS + 200),
            durable: random.pick(&[0, 5, 20]),
            large: sizes.weighted(&[(0, 6), (2, 2), (8, 1)]),
            unaligned: sizes.pick(&[0, 0, 10]),
            deeds,
            hinting: random.pick(&[0, 50, 100]),
            lying: random.pick(&[0, 10, 50]),
            attached,
            blows,
            flood: random.percent(10).then(|| random.pick(&FLOODS)).or(burst),
            flash,
            write_log,
            blow_ms: random.pick(&[30, 150, 600]),
        }
    }
}

impl Scenario {
    /// Whether evictions are told over control exports only.
    pub fn has_only_attached(&self) -> bool {
        self.attached == 100 || self.attached == 50 && self.hinting == 0
    }
}

impl VolumeDraw {
    /// Whether contents that clients evict are of use.
    pub fn places_evicted(&self) -> bool {
        self.servers[0].options.contains("placement=")
    }

    /// Lends idle room of its cache, and borrows from others, among them from the volume that
    /// nobody uses (`node.rs`).
    fn lend(&mut self) {
        if self.is_cached() {
            let least = 2 * self.block;
            let terms = format!(",{LENDS}8MiB,cache-min={least},cache-idle-s=2");
            self.servers[0].options.push_str(&terms);
        }
    }

    /// Each server tells the one below what leaves its cache, if that one places what its clients
    /// evict.
    fn report(&mut self, random: &mut Random) {
        for upper in 1..self.servers.len() {
            let [above, below] = &mut self.servers[upper - 1..=upper] else { continue };
            if below.options.contains("placement=") && !above.options.contains("cache=off") {
                let reports =
                    ["", ",report=evictions", ",report=demotions", ",report=demotions,batch=1"];
                above.options.push_str(random.pick(&reports));
            }
        }
    }

    /// Whether the highest server keeps anything.
    pub fn is_cached(&self) -> bool {
        !self.servers[0].options.contains("cache=off")
    }

    /// Whether requests are answered within some seconds, whatever the store does.
    pub fn has_short_timeout(&self) -> bool {
        self.servers[0].options.contains(SHORT_TIMEOUT)
    }

    fn draw(index: usize, height: usize, random: &mut Random) -> VolumeDraw {
        let block = random.weighted(&[(4096, 4), (8192, 1)]);
        let blocks = random.pick(&[16, 40, 100]);
        // The last block may be short.
        let bytes = blocks * block + if random.percent(20) { 1024 } else { 0 };
        let servers = (0..height).map(|_| Served::draw(block, blocks, random)).collect();
        VolumeDraw {
            name: format!("v{index}"),
            block,
            bytes,
            servers,
            habits: Habits {
                alignment: random.pick(&[1, 512]),
                zeroes_fast: random.percent(50),
                at_once: random.pick(&[0, 50, 95]),
                slow_ms: random.pick(&[1, 5, 30]),
                at_a_time: None,
                takes_many: random.percent(50),
                trim_zeroes: random.percent(50),
                service: None,
            },
        }
    }
}

/// The option of a volume that takes part in lending.
pub const LENDS: &str = "cache-max=";

/// The option of a volume that does not wait long for its store.
const SHORT_TIMEOUT: &str = ",store-timeout-s=5";

impl Served {
    fn draw(block: u64, blocks: u64, random: &mut Random) -> Served {
        let write = random.weighted(&[("through", 4), ("back", 5), ("around", 1)]);
        let placement = random.weighted(&[("access", 6), ("eviction", 3), ("gl", 1)]);
        let policy = random.pick(&["lru", "mq", "arc", "2q", "lfu"]);
        let cache = blocks * random.pick(&[10, 30, 120]) / 100;
        let mut options = format!("block={block},write={write}");
        if random.percent(5) {
            // Nothing is kept, so there is nothing to write back.
            options.push_str(",cache=off");
            return Served { write: "through", options };
        }
        // Its adviser would work on a thread of its own, and be done sooner or later.
        options.push_str(&format!(",cache={},policy={policy},adviser=no", cache.max(2) * block));
        if placement != "access" {
            let mut chosen = placement.to_owned();
            if placement == "eviction" {
                chosen.push_str(random.pick(&["", ",on-hit=move", ",on-hit=keep"]));
                chosen.push_str(random.pick(&["", ",staging=4"]));
            }
            if chosen == "eviction" {
                chosen = "auto".to_owned();
            }
            options.push_str(&format!(",placement={chosen}"));
            if random.percent(30) {
                options.push_str(",reloads=at-once");
            }
        }
        if random.percent(30) {
            options.push_str(",shards=2");
        }
        if random.percent(20) {
            options.push_str(",read-ahead=64KiB");
        }
        if random.percent(30) {
            options.push_str(SHORT_TIMEOUT);
        }
        // Tasks of a killed server outlive it here until they give up, and hold its memory.
        options.push_str(if blocks == 16 { ",reconnect-s=0" } else { ",reconnect-s=1" });
        let (age, share) = (random.pick(&[1, 5, 600]), random.pick(&[10, 50, 100]));
        options.push_str(&format!(",dirty-age-s={age},dirty-percent={share}"));
        if random.percent(50) {
            let (most, oldest) = (random.pick(&[share, 100]), random.pick(&[0, age + 1]));
            options.push_str(&format!(",dirty-max-percent={most},dirty-max-age-s={oldest}"));
        }
        Served { write, options }
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for volume in &self.volumes {
            let servers: Vec<_> = volume.servers.iter().map(|s| s.options.as_str()).collect();
            let servers = servers.join(" above ");
            write!(f, "{} of {} bytes: {servers}; ", volume.name, volume.bytes)?;
            if let Some(service) = &volume.habits.service {
                write!(f, "{service:?}; ")?;
            }
        }
        if let Some(log) = &self.write_log {
            write!(f, "write log {log:?}; ")?;
        }
        if let Some(flash) = &self.flash {
            write!(f, "{flash:?}; ")?;
        }
        let Scenario { clients, depth, requests, buffer, .. } = self;
        if let Some(flood) = &self.flood {
            write!(f, "a flood of {flood:?}, ")?;
        }
        write!(f, "{clients} clients, depth {depth}, {requests} requests, buffers of {buffer}")
    }
}
