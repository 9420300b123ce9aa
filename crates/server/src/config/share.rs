//! A volume's share of the server's cache, and the bounds between which its size changes by itself.
//!
//! Not here: which memory moves, and when (`process/lending`).

use std::fmt;
use std::str::FromStr;

use undercroft_text::Bytes;

use super::{VolumeConfig, forms};

/// With `share=auto` and no `cache-min`, a cache keeps at least what is configured divided by this.
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
    /// Whether memory of the cache may go to other volumes.
    pub(crate) fn lends(&self) -> bool {
        self.is_share_auto || self.cache_min.is_some()
    }

    /// Whether the cache may get memory of other volumes.
    pub(crate) fn borrows(&self) -> bool {
        self.is_share_auto || self.cache_max.is_some()
    }

    /// Bytes that the cache keeps at least, of the `configured` ones.
    pub(crate) fn least_bytes(&self, configured: u64) -> u64 {
        let usual = if self.is_share_auto { configured / KEPT } else { configured };
        let fewest = u64::from(self.shards.max(1)) * u64::from(self.block_bytes);
        let least = self.cache_min.unwrap_or(usual).max(fewest);
        least.next_multiple_of(u64::from(self.block_bytes.max(1))).min(configured)
    }

    /// Bytes that the cache gets at most, with `configured` ones.
    pub(crate) fn most_bytes(&self, configured: u64) -> u64 {
        let usual = if self.is_share_auto { u64::MAX } else { configured };
        let block = u64::from(self.block_bytes.max(1));
        // The number of blocks must fit.
        let most = self.cache_max.unwrap_or(usual).min(block << 30);
        (most / block * block).max(configured)
    }

    /// How the size of the cache changes by itself, for people; `None` if it does not.
    pub fn lending(&self) -> Option<String> {
        let bytes = self.cache_bytes();
        let (least, idle) = (Bytes(self.least_bytes(bytes)), self.cache_idle.as_secs());
        let terms = [
            self.is_share_auto.then(|| "share auto".to_owned()),
            self.lends().then(|| format!("keeps at least {least}, lends when idle for {idle} s")),
            self.cache_max.map(|_| format!("grows to {}", Bytes(self.most_bytes(bytes)))),
        ];
        let terms: Vec<_> = terms.into_iter().flatten().collect();
        (!terms.is_empty()).then(|| terms.join(", "))
    }
}
