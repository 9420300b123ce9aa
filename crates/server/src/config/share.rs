//! A volume's share of the server's cache, between which bounds it moves, and what of it is lent
//! while the volume is idle.
//!
//! Not here: who gets what is moved or lent (`serve/lending`).

use std::fmt;
use std::str::FromStr;

use undercroft_text::Bytes;

use super::{VolumeConfig, forms};

/// The configured share divided by the least that a share that moves keeps, where `cache-min` is
/// not given.
const KEPT: u64 = 4;

/// A volume's share of the server's cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CacheShare {
    /// An equal part of what the volumes with a share of their own leave over.
    #[default]
    Rest,
    /// This many bytes.
    Bytes(u64),
    /// No cache: all requests go directly to the store.
    Off,
}

impl CacheShare {
    /// The requested bytes; `None`: a part of the rest.
    pub fn own(self) -> Option<u64> {
        match self {
            Self::Rest => None,
            Self::Bytes(bytes) => Some(bytes),
            Self::Off => Some(0),
        }
    }
}

impl FromStr for CacheShare {
    type Err = String;

    fn from_str(text: &str) -> Result<CacheShare, String> {
        match text {
            "off" => Ok(CacheShare::Off),
            text => forms::parse_size(text).map(CacheShare::Bytes),
        }
    }
}

impl fmt::Display for CacheShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rest => f.write_str("rest"),
            Self::Bytes(bytes) => bytes.fmt(f),
            Self::Off => f.write_str("off"),
        }
    }
}

impl VolumeConfig {
    /// Bytes of the cache that the volume keeps while it is idle: all, unless it lends.
    pub(crate) fn least_bytes(&self, share_bytes: u64) -> u64 {
        self.cache_min.map_or(share_bytes, |bytes| self.cache_of(bytes))
    }

    /// Bytes that a share keeps which moves, of the `configured` ones.
    pub(crate) fn least_share(&self, configured: u64) -> u64 {
        self.cache_of(self.cache_min.unwrap_or(configured / KEPT)).min(configured)
    }

    /// The least possible bytes of a cache that has at least these.
    fn cache_of(&self, bytes: u64) -> u64 {
        let fewest = u64::from(self.shards.max(1)) * u64::from(self.block_bytes);
        bytes.max(fewest).next_multiple_of(u64::from(self.block_bytes.max(1)))
    }

    /// Bytes to which a share grows that moves.
    pub(crate) fn most_share(&self) -> u64 {
        self.cache_max.map_or(u64::MAX, |_| self.most_bytes(0))
    }

    /// Bytes that the cache has at most with what it borrows: its share, unless it borrows.
    pub(crate) fn most_bytes(&self, share_bytes: u64) -> u64 {
        let block = u64::from(self.block_bytes.max(1));
        // The number of blocks must fit.
        let most = self.cache_max.map(|bytes| bytes.min(block << 30) / block * block);
        most.unwrap_or(share_bytes).max(share_bytes)
    }

    /// Whether its share moves, and what the volume lends and borrows, for people; `None` for a
    /// fixed share.
    pub fn lending(&self) -> Option<String> {
        let idle = self.cache_idle.as_secs();
        let lends = |least| format!("lends all but {} when idle for {idle} s", Bytes(least));
        let borrows = |most| format!("borrows up to {}", Bytes(most));
        let moves = self.is_share_auto.then(|| {
            let least = Bytes(self.least_share(self.cache_bytes()));
            let most = self.cache_max.map(|most| format!(" and at most {}", Bytes(most)));
            format!("share auto: keeps at least {least}{}", most.unwrap_or_default())
        });
        let terms = [moves, self.cache_min.map(lends), self.cache_max.map(borrows)];
        let terms: Vec<_> = terms.into_iter().flatten().collect();
        (!terms.is_empty()).then(|| terms.join(", "))
    }
}
