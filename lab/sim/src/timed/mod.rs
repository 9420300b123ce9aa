//! Clients, links and disks with a clock: the cost of placement when actions take time.
//!
//! The model (`docs/user/cooperation.md`) is a closed loop. Each client has some requests in
//! flight. After an answer it thinks for a random time, uniform between 0 and twice the mean, and
//! then issues the next block reference of its trace. Other times are those of the response-time
//! model; the disk's part of a miss is spent at a disk that serves one request at a time. Caches
//! change when a request reaches them, not when its data does.

mod disk;
mod link;
mod outcome;
mod world;

use undercroft_cache::placement::Placement;

pub use disk::ReloadTime;
pub use outcome::TimedReport;

use crate::clients;
use crate::drive::{Proceed, Stopwatch};
use crate::report::{DISK_MS, LEVEL_MS};
use crate::{ClientsConfig, Error, Outcome, Population};
use world::World;

/// The times of a simulation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timing {
    /// Requests in flight for each client, from 1 to 4096.
    pub outstanding: u32,
    /// Mean time from an answer to the next request, in microseconds.
    pub think_us: u64,
    /// Disks of each server, from 1 to 4096.
    pub disks: u32,
    /// Time of a disk to read or write a block, in microseconds, at least 1.
    pub disk_us: u64,
    /// Bandwidth of each client's link in bytes per second; `None`: no limit.
    pub link_bytes_per_s: Option<f64>,
    /// When reloads are done.
    pub reloads: ReloadTime,
    /// Size of a block in bytes.
    pub block_bytes: u32,
}

impl Timing {
    /// Time of a disk in the response-time model: the time of a request that the disk serves
    /// without waiting, minus that of a request that the server's cache serves.
    pub const DISK_US: u64 = ((DISK_MS - LEVEL_MS[1]) * 1000.0) as u64;

    /// Time of a block on a link in nanoseconds; 0 for links without a limit.
    fn link_block_ns(&self) -> u64 {
        let block_bytes = f64::from(self.block_bytes);
        self.link_bytes_per_s.map_or(0.0, |rate| block_bytes / rate * 1e9) as u64
    }

    /// Refuses simulations that could overflow the clock, or the sum of all response times. The
    /// bound assumes that each request waits in every step for all requests in flight.
    fn check_length(&self, references: u64, clients: usize) -> Result<(), Error> {
        let links_ns = 3 * u128::from(self.link_block_ns());
        let us = 2 * u128::from(self.think_us) + 2 * u128::from(self.disk_us);
        let longest_ns = us * 1000 + links_ns + 2 * u128::from(world::SERVER_NS);
        let slots = u128::from(self.outstanding) * clients as u128;
        if longest_ns * u128::from(references) * slots <= i64::MAX as u128 {
            return Ok(());
        }
        Err(Error::Request(format!(
            "{references} references with {slots} requests under way could take more than the 292 \
             years that the clock has: ask for fewer requests, or shorter times"
        )))
    }

    fn check(&self) -> Result<(), Error> {
        let range = 1..=MAX_NUMBER;
        let rate_is_right = self.link_bytes_per_s.is_none_or(|rate| rate >= 1.0);
        let times = [self.think_us, self.disk_us];
        if range.contains(&self.outstanding)
            && range.contains(&self.disks)
            && times.iter().all(|&us| us <= MAX_US)
            && self.disk_us > 0
            && rate_is_right
        {
            return Ok(());
        }
        Err(Error::Request(format!(
            "a simulation with a clock: expected 1 to {MAX_NUMBER} requests and disks, times up to \
             {MAX_US} us (a disk at least 1), and links of at least a byte a second"
        )))
    }
}

/// Most requests of a client, and most disks of a server.
const MAX_NUMBER: u32 = 4096;

/// Largest configurable time: an hour.
const MAX_US: u64 = 3_600_000_000;

/// Runs clients and servers over the whole trace with a clock. `progress` is called with the
/// references done so far.
///
/// # Errors
/// The configuration cannot be simulated, a spooled trace cannot be read back, or `progress` stops
/// the simulation.
pub fn simulate_timed<P: Proceed>(
    population: &Population,
    config: &ClientsConfig,
    timing: &Timing,
    mut progress: impl FnMut(u64) -> P,
) -> Result<Outcome, Error> {
    timing.check()?;
    timing.check_length(population.trace().len(), population.names().len())?;
    let stopwatch = Stopwatch::start();
    let warmup = population.trace().references_of(config.warmup_records)?;
    let (cluster, by_volume) = clients::build(population, config, true)?;
    let mut world = World::new(population, cluster, config, timing, warmup);
    world.run(&mut progress)?;
    let (cluster, timed) = world.finish();
    let of = (population.trace().len(), by_volume);
    let mut outcome = clients::outcome(stopwatch, &cluster, config, of);
    if let Some(cooperation) = &mut outcome.cooperation {
        cooperation.hint_bytes = timed.hints * crate::cooperation::HINT_BYTES;
    }
    outcome.timed = Some(timed);
    Ok(outcome)
}

/// These clients and servers with placement at the access, for comparison with a placement.
pub fn without_placement(config: &ClientsConfig) -> ClientsConfig {
    ClientsConfig { placement: Placement::Access, peer_fetch: false, ..config.clone() }
}
