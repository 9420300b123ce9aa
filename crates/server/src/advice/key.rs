//! For which configuration an adviser is.

use crate::config::VolumeConfig;

/// What an adviser depends on, to compare. Only a change of the size leaves it of use.
#[derive(Clone, PartialEq)]
pub(super) struct Key {
    blocks: u32,
    pub(super) rest: String,
}

/// The key of a volume as it is configured now.
pub(super) fn key(config: &VolumeConfig) -> Key {
    let VolumeConfig { cache_blocks: blocks, policy, placement, adviser, .. } = config;
    Key { blocks: *blocks, rest: format!("{policy}|{placement}|{adviser}") }
}
