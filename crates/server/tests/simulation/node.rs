//! One server of the simulation: started from its settings on its disks, or on the server below,
//! killed, stopped and started again. It is the whole server as the program runs it, but that its
//! connections are streams in memory.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{Mutex as AsyncMutex, Notify};
use tokio::time::{Instant, sleep};
use undercroft_nbd::{Connector, Transport};
use undercroft_server::process::{Running, ServerConfig, Settings, Surroundings};

use crate::disk::{Cut, Disk};
use crate::flash::FlashDisk;
use crate::report::Log;
use crate::scenario::LENDS;
use crate::tally::Tally;
use crate::wire::{Port, Wire};

/// Bytes of caches that belong to all volumes together.
const CACHE: &str = "64MiB";

/// Seconds for which an end offers a store what it does not take.
const CLOSE_S: i64 = 3;

/// Within this time volumes at a service are open, if nothing is wrong with it: a lease lasts 15 s,
/// and requests of those that had it before may be late.
pub const OPENS: Duration = Duration::from_secs(40);

pub struct Node {
    pub name: &'static str,
    pub port: Port,
    /// Names and settings of its volumes, and their disks, if it has any.
    pub volumes: Vec<(String, String)>,
    disks: Vec<Disk>,
    /// The server that has the disks otherwise.
    below: Option<Arc<Node>>,
    flash: Option<FlashDisk>,
    /// Bytes on the way in each direction of a connection to it.
    buffer: usize,
    pub running: AsyncMutex<Option<Running>>,
    /// Which start it is: a server that was killed reaches nobody any more.
    life: Arc<AtomicU64>,
    wires_below: Arc<Mutex<Vec<Wire>>>,
    /// A connection to the server below was made.
    pub connected_below: Arc<Notify>,
    /// Whether its limits of memory are.
    is_small: bool,
    seed: u64,
    /// What became of contents that were handed over, as far as it was counted.
    tally: Mutex<Tally>,
    log: Log,
}

impl Node {
    pub fn new(
        name: &'static str,
        volumes: Vec<(String, String)>,
        stores: Result<Vec<Disk>, Arc<Node>>,
        (buffer, is_small): (usize, bool),
        flash: Option<FlashDisk>,
        seed: u64,
        log: Log,
    ) -> Arc<Node> {
        let (disks, below) = match stores {
            Ok(disks) => (disks, None),
            Err(below) => (Vec::new(), Some(below)),
        };
        Arc::new(Node {
            name,
            port: Port::default(),
            volumes,
            disks,
            below,
            flash,
            buffer,
            running: AsyncMutex::default(),
            life: Arc::default(),
            wires_below: Arc::default(),
            connected_below: Arc::default(),
            is_small,
            seed,
            tally: Mutex::default(),
            log,
        })
    }

    /// The configuration with these of its volumes.
    pub fn config(&self, has: impl Fn(usize) -> bool) -> ServerConfig {
        let volumes = self.volumes.iter().enumerate().filter(|(index, _)| has(*index));
        let parsed = volumes.map(|(_, (name, options))| {
            let store = match self.below {
                Some(_) => format!("nbd://below/{name}"),
                None => "mem:".to_owned(),
            };
            let flash = self.flash.as_ref().filter(|_| !options.contains("cache=off"));
            let part = flash.map_or(String::new(), |flash| format!(",flash={}", flash.draw.part));
            Settings::volume(&format!("{name}={store},{options}{part}")).unwrap()
        });
        // One that nobody uses: without any there is no server.
        let lends = self.volumes.iter().any(|(_, options)| options.contains(LENDS));
        let cache = if lends { "1MiB,cache-min=64KiB,cache-idle-s=1" } else { "64KiB" };
        let flash = if self.flash.is_some() { ",flash=off" } else { "" };
        let idle = Settings::volume(&format!("idle=mem(64KiB):,cache={cache}{flash}")).unwrap();
        let parsed = parsed.chain([idle]);
        let settings = Settings::default().set("volume", parsed.collect::<Vec<_>>());
        let mut settings = settings.set("cache", CACHE).set("limits.close-s", CLOSE_S);
        if self.is_small {
            for (limit, bytes) in
                [("bytes", "1MiB"), ("volume-bytes", "2MiB"), ("total-bytes", "4MiB")]
            {
                settings = settings.set(&format!("limits.{limit}"), bytes);
            }
        }
        if let Some(flash) = &self.flash {
            settings = settings.set("flash", flash.draw.option(self.volumes.len()));
        }
        let mut config = settings.config().unwrap();
        config.listen.clear();
        config
    }

    /// Starts it; the server below must be there.
    pub async fn start(self: &Arc<Node>) -> Result<(), String> {
        let mut running = self.running.lock().await;
        let life = self.life.load(Ordering::SeqCst);
        let is_alive = |node: &Node| node.life.load(Ordering::SeqCst) == life;
        let disks: Vec<_> =
            self.volumes.iter().map(|(name, _)| name.clone()).zip(self.disks.clone()).collect();
        let (config, seed) = (self.config(|_| true), self.seed + life);
        let surroundings = Surroundings {
            stores: Some(Arc::new(move |volume| {
                let found = disks.iter().find(|(name, _)| name == volume);
                found.map(|(_, disk)| disk.open(life))
            })),
            connector: self.connector(life),
            flash: self.flash.clone().map(|flash| flash.opened(life)),
            seed: Some(seed),
        };
        let started = Running::start_in(&config, surroundings).await;
        let started = started.map_err(|error| error.to_string())?;
        self.wait_for_services(&started).await?;
        self.count(Tally::found(&started.volumes()));
        if is_alive(self) {
            self.port.open(started.server().clone());
            *running = Some(started);
            self.log.line(|| format!("== {} is up", self.name));
        }
        Ok(())
    }

    /// A volume at a service may have to wait for a lease.
    async fn wait_for_services(&self, started: &Running) -> Result<(), String> {
        let began = Instant::now();
        while self.disks.iter().any(Disk::is_service) && !started.pending_volumes().is_empty() {
            if began.elapsed() > OPENS {
                return Err(format!("{:?} cannot be opened", started.pending_volumes()));
            }
            sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    }

    fn connector(&self, life: u64) -> Option<Connector> {
        let below = self.below.clone()?;
        let (lives, wires, buffer) = (self.life.clone(), self.wires_below.clone(), self.buffer);
        let (connected, name) = (self.connected_below.clone(), self.name);
        Some(Connector::new(move |_| {
            let made = match lives.load(Ordering::SeqCst) == life {
                true => below.port.connect(name, buffer),
                false => Err(io::ErrorKind::NotConnected.into()),
            };
            let made = made.map(|(end, wire)| {
                wires.lock().unwrap().push(wire);
                connected.notify_waiters();
                Box::new(end) as Box<dyn Transport>
            });
            std::future::ready(made)
        }))
    }

    /// It is gone from one moment to the next. What its disks do with that is theirs.
    pub async fn kill(&self) {
        self.life.fetch_add(1, Ordering::SeqCst);
        self.port.kill();
        self.cut_link();
        // Half of a reload may be under way: it is dropped.
        let running = self.running.lock().await.take();
        running.iter().for_each(|running| self.count(Tally::of(&running.volumes())));
        drop(running);
        self.flash.iter().for_each(|flash| flash.disk.abandon());
        self.log.line(|| format!("== {} is killed", self.name));
    }

    /// After a kill: its level on flash was without power, too.
    pub fn cut_flash(&self, cut: Cut) {
        self.flash.iter().for_each(|flash| drop(flash.disk.cut(cut)));
    }

    /// Its connections to the server below are lost.
    pub fn cut_link(&self) {
        self.wires_below.lock().unwrap().drain(..).for_each(|wire| wire.cut());
    }

    /// Ends it as it should: what it could not save is said.
    pub async fn stop(&self) -> Option<Result<(), String>> {
        self.port.close();
        let running = self.running.lock().await.take()?;
        self.count(Tally::of(&running.volumes()));
        let stopped = running.stop().await.map_err(|error| error.to_string());
        self.life.fetch_add(1, Ordering::SeqCst);
        self.port.kill();
        self.cut_link();
        self.log.line(|| format!("== {} has ended: {stopped:?}", self.name));
        Some(stopped)
    }

    /// Volumes are about to end: their counts end with them.
    pub fn count(&self, counted: Tally) {
        self.tally.lock().unwrap().add(counted);
    }

    pub fn tally(&self) -> Tally {
        *self.tally.lock().unwrap()
    }

    pub fn disk(&self, volume: usize) -> Option<&Disk> {
        self.disks.get(volume)
    }

    pub fn disks(&self) -> &[Disk] {
        &self.disks
    }
}
