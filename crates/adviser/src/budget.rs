//! How large a sample may be: what miniature caches take of memory.

use undercroft_level::placement::Eviction;
use undercroft_policy::Spec;

/// Least memory for the adviser of a volume, in bytes.
const LEAST: u64 = 8 << 20;

/// The cache's memory divided by the adviser's.
const SHARE: u64 = 50;

/// Bytes of a level of any policy, whatever its size. Placement at eviction takes some more.
const LEVEL: u64 = 4 << 10;
const LEVEL_OF_EVICTION: u64 = 16 << 10;

/// Bytes of a block that the staging area remembers, and of one whose accesses are counted.
const STAGED: u64 = 112;
const ACCESSES: u64 = 64;

/// Bytes of a block on flash: 5 for where it lies, 2 for a ghost; and of all else that does not
/// grow with either size.
const FLASH: u64 = 7;
const FLASH_LEVEL: u64 = 5 << 10;

/// The adviser's memory for a cache of so many bytes: 2 %, and at least 8 MiB.
pub fn budget(cache_bytes: u64) -> u64 {
    LEAST.max(cache_bytes / SHARE)
}

/// Most blocks that a policy of its usual parameters knows at once with `blocks` blocks, resident
/// or remembered; with others it may be more. `tests/adviser/memory.rs` compares.
pub fn known_blocks(policy: &Spec, blocks: u32) -> u32 {
    // Before a block is dropped, the next one has come.
    blocks.saturating_mul(policy.info().memory.known).saturating_add(2)
}

/// Most bytes that a level of `blocks` blocks takes which
/// [made room](undercroft_level::Level::make_room) for [`known_blocks`], with its index and all
/// that the policy remembers of blocks that left. `rules`: of placement at eviction that does not
/// adapt. Measured; `tests/adviser/memory.rs` compares.
pub fn level_bytes(policy: &Spec, rules: Option<&Eviction>, blocks: u32) -> u64 {
    let memory = &policy.info().memory;
    // Parameters may make it remember more.
    let has_own = policy.to_string() != policy.info().name;
    let own = if has_own { memory.bytes.max(700) } else { memory.bytes };
    let rules = rules.map_or(0, |rules| {
        let counted = u64::from(rules.counted(blocks));
        let staged = u64::from(rules.staging.most(blocks));
        LEVEL_OF_EVICTION + ACCESSES * counted + STAGED * staged
    });
    LEVEL + own * u64::from(blocks) + (memory.tables)(blocks) + rules
}

/// Most bytes that flash of `slots` blocks takes below a miniature of `memory` blocks.
pub(crate) fn flash_bytes(slots: u32, memory: u32) -> u64 {
    FLASH_LEVEL + FLASH * u64::from(slots) + u64::from(slots / 64) + u64::from(memory)
}
