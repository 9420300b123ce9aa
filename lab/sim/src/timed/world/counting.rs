//! The measurements during and at the end of a simulation with a clock: how busy disks and links
//! were.

use crate::tree::Tree;
use undercroft_level::placement::{Load, ReloadCounts, WayByCost};

use super::{Event, World};
use crate::TimedOutcome;
use crate::timed::disk::Disk;
use crate::timed::link::Link;

/// Nanoseconds between two choices of the way down.
pub(super) const PERIOD_NS: u64 = 1_000_000_000;

impl World<'_> {
    pub(super) fn review(&mut self) {
        let timing = self.timing;
        let period = PERIOD_NS as f64;
        let carried: u64 = self.links.iter().map(|link| link.demand_ns).sum();
        let in_use = (carried - self.links_reviewed) as f64 / period / self.links.len() as f64;
        self.links_reviewed = carried;
        let free_bytes_per_s =
            timing.link_bytes_per_s.map_or(f64::INFINITY, |rate| rate * (1.0 - in_use));
        let per_server = timing.disks as usize;
        for (server, way) in self.ways.iter_mut().enumerate() {
            let disks = server * per_server..(server + 1) * per_server;
            let mut demand = 0;
            for disk in disks {
                let [reads, writes, _] = self.disks[disk].busy_ns;
                let now = reads + writes;
                demand += now - std::mem::replace(&mut self.reviewed[disk], now);
            }
            let busy = demand as f64 / period / per_server as f64;
            self.tree.set_store_busy(server, busy);
            let load = Load {
                block_bytes: self.block_bytes,
                free_bytes_per_s,
                reload_us: timing.disk_us as f64,
                idle_share: 1.0 - busy,
            };
            way.review(&load);
        }
        self.at(self.now + PERIOD_NS, Event::Review);
    }

    /// Resets the counts, at the end of the warm-up.
    pub(super) fn restart(&mut self) {
        self.write_flash();
        self.flash_written = 0;
        self.tree.restart_counts();
        self.disks.iter_mut().for_each(Disk::restart_counts);
        self.stats = TimedOutcome::default();
        self.channels.iter_mut().for_each(|channels| channels.busy_ns = [0; 2]);
        self.began = self.now;
        self.disks_before = self.disk_times();
        self.links_before = self.link_times();
    }

    fn disk_times(&self) -> [u64; 3] {
        let sum = |kind: usize| self.disks.iter().map(|disk| disk.busy_ns[kind]).sum();
        [sum(0), sum(1), sum(2)]
    }

    fn link_times(&self) -> [u64; 2] {
        let sum = |time: fn(&Link) -> u64| self.links.iter().map(time).sum();
        [sum(|link| link.demand_ns), sum(|link| link.demotions_ns)]
    }

    pub(in crate::timed) fn finish(mut self) -> (Tree, TimedOutcome) {
        let elapsed = (self.now - self.began).max(1) as f64;
        let (disks, links) = (self.disks.len() as f64, self.links.len() as f64);
        let flash_busy = self.channels.as_ref().map(|channels| channels.busy(elapsed));
        let none = ReloadCounts::default();
        let reloads = self.disks.iter().fold(none, |sum, disk| sum.plus(disk.reloads.counts()));
        let stats = TimedOutcome {
            elapsed_ns: self.now - self.began,
            disk_busy: since(self.disks_before, self.disk_times()).map(|ns| ns / elapsed / disks),
            link_busy: since(self.links_before, self.link_times()).map(|ns| ns / elapsed / links),
            flash_busy: flash_busy.unwrap_or_default(),
            reloads,
            way_changes: self.ways.iter().map(WayByCost::changes).sum(),
            ..std::mem::take(&mut self.stats)
        };
        (self.tree, stats)
    }
}

fn since<const N: usize>(before: [u64; N], now: [u64; N]) -> [f64; N] {
    std::array::from_fn(|i| (now[i] - before[i]) as f64)
}
