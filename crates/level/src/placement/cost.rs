//! Chooses by cost how evicted blocks come down: the client sends them, or the server reads them
//! from disk again. The papers compare the two on systems with a fast and a slow network. The
//! choice at run time, and its rule, are ours.
//!
//! This module has no clock: the caller reports the load of each period. Only simulations do so; a
//! server measures no link, and refuses `down=auto`.

use super::rules::DataSource;

/// The other way must cost less than this share of the current way.
const LEAD: f64 = 0.8;

/// The load of a period.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// Size of a block in bytes.
    pub block_bytes: u32,
    /// Unused bandwidth of the link from the clients, in bytes per second.
    pub free_bytes_per_s: f64,
    /// Time that a disk takes to read a block, in microseconds.
    pub reload_us: f64,
    /// Share of the period, from 0 to 1, in which the disks served no demand.
    pub idle_share: f64,
}

impl Load {
    /// The costs of a demotion and of a reload in microseconds; infinite if the link or the disks
    /// are busy.
    pub fn costs_us(&self) -> (f64, f64) {
        let demotion = f64::from(self.block_bytes) / self.free_bytes_per_s.max(0.0) * 1e6;
        let reload = self.reload_us / self.idle_share.clamp(0.0, 1.0);
        (demotion, reload)
    }
}

/// Chooses between `Demote` and `Reload` for each period.
#[derive(Clone, Copy, Debug)]
pub struct WayByCost {
    way: DataSource,
    changes: u64,
}

impl Default for WayByCost {
    /// Starts with reloads, which cost the client nothing.
    fn default() -> Self {
        Self { way: DataSource::Reload, changes: 0 }
    }
}

impl WayByCost {
    /// Chooses the way for the next period from the load of the last one. It changes only if the
    /// other way is a fifth cheaper.
    pub fn review(&mut self, load: &Load) -> DataSource {
        let (demotion, reload) = load.costs_us();
        let next = match self.way {
            DataSource::Reload if demotion < LEAD * reload => DataSource::Demote,
            DataSource::Demote if reload < LEAD * demotion => DataSource::Reload,
            same => same,
        };
        self.changes += u64::from(next != self.way);
        self.way = next;
        next
    }

    /// The current way.
    pub fn way(&self) -> DataSource {
        self.way
    }

    /// Number of changes so far.
    pub fn changes(&self) -> u64 {
        self.changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_the_cheaper_way_and_does_not_waver() {
        let mut way = WayByCost::default();
        let mut at = |free_bytes_per_s: f64, idle_share: f64| {
            way.review(&Load { block_bytes: 8000, free_bytes_per_s, reload_us: 8000.0, idle_share })
        };
        // A demotion takes 16 ms, then 1 ms; a reload 8 ms, then 80 ms.
        assert_eq!(at(0.5e6, 1.0), DataSource::Reload);
        assert_eq!(at(8e6, 1.0), DataSource::Demote);
        // 9 ms against 8 ms, 11 ms against 8 ms.
        assert_eq!(at(8e6 / 9.0, 1.0), DataSource::Demote);
        assert_eq!(at(8e6 / 11.0, 1.0), DataSource::Reload);
        assert_eq!(at(8e6 / 7.0, 1.0), DataSource::Reload);
        assert_eq!(at(8e6 / 11.0, 0.1), DataSource::Demote);
        // Neither has capacity left: no change. Then the disks have some, then the link.
        assert_eq!(at(0.0, 0.0), DataSource::Demote);
        assert_eq!(at(-1.0, 0.5), DataSource::Reload);
        assert_eq!(at(0.0, 0.0), DataSource::Reload);
        assert_eq!(at(1e6, 0.0), DataSource::Demote);
        assert_eq!(way.changes(), 5);
    }
}
