//! The times of a simulation with a clock, as they are configured.

use crate::Error;
use crate::costs::{DISK_MS, LEVEL_MS};
use crate::flash::FlashTimes;

/// Time of a request that a server serves.
pub(crate) const SERVER_NS: u64 = (LEVEL_MS[1] * 1e6) as u64;

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
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            outstanding: 1,
            think_us: 0,
            disks: 1,
            disk_us: Self::DISK_US,
            link_bytes_per_s: None,
            reloads: ReloadTime::Idle,
        }
    }
}

impl Timing {
    /// Time of a disk in the response-time model: the time of a request that the disk serves
    /// without waiting, minus that of a request that the server's cache serves.
    pub const DISK_US: u64 = ((DISK_MS - LEVEL_MS[1]) * 1000.0) as u64;

    /// Time of a block of so many bytes on a link in nanoseconds; 0 for links without a limit.
    pub(crate) fn link_block_ns(&self, block_bytes: u32) -> u64 {
        let block_bytes = f64::from(block_bytes);
        self.link_bytes_per_s.map_or(0.0, |rate| block_bytes / rate * 1e9) as u64
    }

    /// Refuses simulations that could overflow the clock, or the sum of all response times. The
    /// bound assumes that each request waits in every step for all requests in flight.
    pub(crate) fn check_length(
        &self,
        (references, clients): (u64, usize),
        block_bytes: u32,
        flash: Option<FlashTimes>,
    ) -> Result<(), Error> {
        let links_ns = 3 * u128::from(self.link_block_ns(block_bytes));
        let flash_us = flash.map_or(0, |times| times.read_us + times.write_us);
        let us = 2 * (u128::from(self.think_us) + u128::from(self.disk_us) + u128::from(flash_us));
        let longest_ns = us * 1000 + links_ns + 2 * u128::from(SERVER_NS);
        let slots = u128::from(self.outstanding) * clients as u128;
        if longest_ns * u128::from(references) * slots <= i64::MAX as u128 {
            return Ok(());
        }
        Err(Error::Request(format!(
            "{references} references with {slots} requests under way could take more than the 292 \
             years that the clock has: ask for fewer requests, or shorter times"
        )))
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
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

/// When reloads are done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReloadTime {
    /// When the disk is idle, one at a time (USENIX 2003).
    #[default]
    Idle,
    /// In order of arrival, like demand.
    Demand,
}

/// Most requests of a client, and most disks of a server.
const MAX_NUMBER: u32 = 4096;

/// Largest configurable time: an hour.
const MAX_US: u64 = 3_600_000_000;
