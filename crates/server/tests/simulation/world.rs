//! A run: the servers, the clients and what befalls them, from the first start to the last look.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use undercroft_server::process::Running;

use crate::blows;
use crate::client;
use crate::disk::{Cut, Disk, SECTOR};
use crate::flash::{self, FlashDisk};
use crate::flood;
use crate::history::{Event, History, INITIAL, contents};
use crate::node::Node;
use crate::random::Random;
use crate::report::Log;
use crate::scenario::Scenario;
use crate::wire::{End, Wire};
use crate::write_log::LogDisk;

/// Time within which everything has to be answered and every end reached, once no fault stands in
/// the way.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// Names of the servers, the highest first.
const NAMES: [&str; 3] = ["top", "second", "third"];

/// Within this time a server has flushed what was there when it was started.
const STARTS: Duration = Duration::from_millis(50);

/// Within this time the lease on a volume is renewed, whatever came before.
const RENEWS: Duration = Duration::from_secs(30);

/// Time that a run may take with its faults.
const RUN: Duration = Duration::from_secs(3600);

pub struct World {
    pub scenario: Scenario,
    pub history: History,
    pub log: Log,
    /// The server that clients know, those below it, and the one that has the disks.
    pub nodes: Vec<Arc<Node>>,
    pub flash: Option<FlashDisk>,
    over: AtomicBool,
}

impl World {
    pub fn new(scenario: Scenario, random: &mut Random, log: Log) -> Arc<World> {
        let disks = scenario.volumes.iter().map(|volume| {
            let image = contents(INITIAL, 0..volume.bytes / SECTOR);
            let habits = volume.habits.clone();
            let disk = Disk::new(&volume.name, image, habits, random.fork(), log.clone());
            let Some(habits) = scenario.write_log.clone() else { return disk };
            // From a copy, so that all else is what it would be without.
            let random = random.clone().fork();
            disk.behind(LogDisk::new(&volume.name, habits, random, log.clone()))
        });
        let disks: Vec<_> = disks.collect();
        let (limits, seed) = ((scenario.buffer, scenario.flood.is_some()), random.next() >> 8);
        let count = scenario.volumes.len();
        let flash = scenario
            .flash
            .as_ref()
            .map(|draw| FlashDisk::new(draw, count, random.clone().fork(), log.clone()));
        let mut nodes = Vec::new();
        let mut stores = Ok(disks);
        for level in (0..scenario.height).rev() {
            let volumes = scenario.volumes.iter();
            let volumes = volumes.map(|v| (v.name.clone(), v.servers[level].options.clone()));
            let own = flash.clone().filter(|flash| flash.draw.level == level);
            let node =
                Node::new(NAMES[level], volumes.collect(), stores, limits, own, seed, log.clone());
            stores = Err(Arc::clone(&node));
            nodes.insert(0, node);
        }
        let history = History::new(log.clone());
        Arc::new(World { scenario, history, log, nodes, flash, over: AtomicBool::new(false) })
    }

    /// The server that clients know.
    pub fn top(&self) -> &Arc<Node> {
        &self.nodes[0]
    }

    /// The server that has the disks.
    pub fn lowest(&self) -> &Arc<Node> {
        &self.nodes[self.nodes.len() - 1]
    }

    pub fn connect(&self, client: u64, buffer: usize) -> std::io::Result<(End, Wire)> {
        self.top().port.connect(&format!("client-{client}"), buffer)
    }

    /// Clients are to leave.
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    /// All of it; what was wrong beside what the history says.
    pub async fn run(self: Arc<World>, random: &mut Random) -> Vec<String> {
        let mut faults = Vec::new();
        if let Err(error) = self.start().await {
            return vec![format!("cannot start: {error}")];
        }
        let mut clients = JoinSet::new();
        for number in 0..self.scenario.clients {
            clients.spawn(client::run(Arc::clone(&self), number, random.fork()));
        }
        let flood = self
            .scenario
            .flood
            .map(|flood| tokio::spawn(flood::run(Arc::clone(&self), flood, random.fork())));
        if let Some(flash) = &self.flash {
            // From a copy, so that clients and blows are what they would be without.
            let random = random.clone().fork().fork();
            tokio::spawn(flash::befall(Arc::clone(&self), flash.clone(), random));
        }
        let mut blows = tokio::spawn(blows::run(Arc::clone(&self), random.fork()));
        let all = async { while clients.join_next().await.is_some() {} };
        if timeout(RUN, all).await.is_err() {
            faults.push("the clients have not ended while faults come and go".to_owned());
        }
        if let Some(flood) = flood {
            faults.extend(flood.await.unwrap_or_default());
        }
        self.over.store(true, Ordering::SeqCst);
        match timeout(PATIENCE, &mut blows).await {
            Ok(Ok(wrong)) => faults.extend(wrong),
            Ok(Err(error)) => faults.push(format!("the blows ended: {error}")),
            Err(_) => faults.push("a start, an end or a reload has not ended".to_owned()),
        }
        blows.abort();
        if faults.is_empty() {
            faults.extend(self.last_look().await);
        }
        let disks = self.lowest().disks();
        let mut all = disks.iter().chain(self.flash.iter().map(|flash| &flash.disk));
        if all.any(Disk::is_overrun) {
            faults.push("a disk is asked again and again, without end".to_owned());
        }
        faults.extend(disks.iter().flat_map(Disk::warnings));
        faults
    }

    /// The servers, the lowest first.
    pub async fn start(&self) -> Result<(), String> {
        self.start_some(0..self.nodes.len()).await
    }

    /// Some of the servers, the lowest first.
    pub async fn start_some(&self, levels: Range<usize>) -> Result<(), String> {
        let (history, number) = (self.history.clone(), self.history.start(levels.clone()));
        for node in self.nodes[levels].iter().rev() {
            node.start().await?;
        }
        tokio::spawn(async move {
            sleep(STARTS).await;
            history.has_started(number);
        });
        Ok(())
    }

    /// With no fault left but what is for ever: everything is read; then it ends, and the power is
    /// cut; then it is read again, and must be as it was.
    async fn last_look(self: &Arc<World>) -> Vec<String> {
        let mut faults = Vec::new();
        self.lowest().disks().iter().for_each(Disk::heal);
        self.flash.iter().for_each(|flash| flash.disk.repair());
        if timeout(PATIENCE, self.calm()).await.is_err() {
            return vec!["a volume at a service does not come back".to_owned()];
        }
        if timeout(PATIENCE, self.reload()).await.is_err() {
            return vec!["the last reload has not ended".to_owned()];
        }
        let pinned = timeout(PATIENCE, self.nothing_is_pinned());
        if pinned.await.is_err() {
            faults.push("memory is charged to nobody".to_owned());
        }
        for round in ["after the faults", "after the end"] {
            for volume in 0..self.scenario.volumes.len() {
                if self.is_away(volume).await {
                    continue;
                }
                match timeout(PATIENCE, client::audit(self, volume)).await {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => faults.push(format!("{round}: {error}")),
                    Err(_) => faults.push(format!("{round}: the last reads are not answered")),
                }
            }
            if round == "after the end" {
                break;
            }
            if timeout(PATIENCE, self.end()).await.is_err() {
                faults.push("the last end has not ended".to_owned());
                return faults;
            }
            self.nodes.iter().for_each(|node| node.cut_flash(Cut::All));
            for (volume, disk) in self.lowest().disks().iter().enumerate() {
                disk.cut(Cut::All);
                self.history.event(volume, Event::Lost);
            }
            if let Err(error) = self.start().await {
                faults.push(format!("cannot start again: {error}"));
                return faults;
            }
        }
        if timeout(PATIENCE, self.end()).await.is_err() {
            faults.push("the last end has not ended".to_owned());
        }
        faults
    }

    /// Services are well again, and flash. Waits until each volume is there, and can have renewed
    /// its lease.
    async fn calm(&self) {
        let disks = self.lowest().disks();
        disks.iter().for_each(Disk::calm);
        let has_trouble = self.flash.as_ref().is_some_and(|flash| flash.draw.has_trouble);
        while has_trouble || disks.iter().any(Disk::is_service) {
            sleep(RENEWS).await;
            let mut are_open = true;
            for node in &self.nodes {
                let running = node.running.lock().await;
                let pending = |running: &Running| !running.pending_volumes().is_empty();
                are_open &= !running.as_ref().is_some_and(pending);
            }
            if are_open {
                break;
            }
        }
    }

    /// Waits until the requests of clients that have gone have ended, too.
    async fn nothing_is_pinned(&self) {
        loop {
            let mut pinned = 0;
            for node in &self.nodes {
                let running = node.running.lock().await;
                pinned += running.as_ref().map_or(0, |running| running.server().pinned_bytes());
            }
            if pinned == 0 {
                return;
            }
            sleep(Duration::from_millis(100)).await;
        }
    }

    /// A volume that was taken away while it had blocks that its disk never takes: it is not
    /// closed, and nobody can use it.
    async fn is_away(&self, volume: usize) -> bool {
        let name = &self.scenario.volumes[volume].name;
        let running = self.top().running.lock().await;
        let is_there = |running: &undercroft_server::process::Running| {
            running.volumes().iter().any(|volume| volume.config().name == *name)
        };
        let bad = self.lowest().disk(volume).is_some_and(|disk| !disk.bad_writes().is_empty());
        bad && !running.as_ref().is_some_and(is_there)
    }

    /// Whether the disk of a volume never takes something of its write log: when that is full,
    /// writes wait, and so do reads of their blocks, until they are given up.
    pub fn fills_its_log(&self, volume: usize) -> bool {
        self.lowest().disk(volume).is_some_and(|disk| disk.fills_its_log())
    }

    /// A volume that could not be taken away before may be given back now.
    async fn reload(&self) {
        if let Some(running) = self.top().running.lock().await.as_mut() {
            running.reload(Ok(self.top().config(|_| true))).await;
        }
    }

    /// A clean end of all servers, the highest first. What the disks would have taken must be
    /// there.
    pub async fn end(&self) {
        let mut all_well = true;
        for node in &self.nodes {
            all_well &= !matches!(node.stop().await, Some(Err(_)));
        }
        for (volume, disk) in self.lowest().disks().iter().enumerate() {
            let event = if all_well {
                Event::Closed
            } else if disk.takes_writes() {
                let bytes = disk.bad_writes().into_iter();
                // A block that has a bad sector is written as a whole, or not.
                let block = self.scenario.volumes[volume].block.max(8192) / SECTOR;
                let sectors = bytes.map(|bad| {
                    let end = bad.end.div_ceil(SECTOR).div_ceil(block) * block;
                    bad.start / SECTOR / block * block..end
                });
                Event::LostWithin(sectors.collect())
            } else {
                Event::CacheLost
            };
            self.history.event(volume, event);
        }
    }

    pub async fn pause(&self, random: &mut Random) {
        sleep(Duration::from_millis(random.between(1, self.scenario.blow_ms))).await;
    }
}
