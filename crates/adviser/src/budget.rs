//! How large a sample may be: what miniature caches take of memory.

use undercroft_cache::policy::Spec;

/// Least memory for the adviser of a volume, in bytes.
const LEAST: u64 = 8 << 20;

/// The cache's memory divided by the adviser's.
const SHARE: u64 = 50;

/// Bytes of a level of any policy, whatever its size; of `auto`, which runs several, more.
const LEVEL: u64 = 12 << 10;
const LEVEL_OF_AUTO: u64 = 512 << 10;

/// Bytes of a block whose delivery is remembered, and of what else placement at eviction knows of
/// each block of the level.
const DELIVERY: u64 = 112;
const EVICTION: u64 = 500;

/// The adviser's memory for a cache of so many bytes: 2 %, and at least 8 MiB.
pub fn budget(cache_bytes: u64) -> u64 {
    LEAST.max(cache_bytes / SHARE)
}

/// Most bytes that a level of `blocks` blocks takes, with its index and all that the policy
/// remembers of blocks that left. `deliveries`: how many of them placement at eviction remembers,
/// if it is that. Measured; `tests/adviser/memory.rs` compares.
pub fn level_bytes(policy: &Spec, deliveries: Option<u32>, blocks: u32) -> u64 {
    let usual: u64 = match policy.info().name {
        "lru" | "fifo" | "clock" | "sieve" => 84,
        "2q" | "w-tinylfu" => 124,
        "s3-fifo" => 136,
        "arc" | "car" | "clock-pro" => 176,
        "lirs" => 240,
        "lfu" | "mq" | "fbr" => 520,
        "lfru" => 600,
        "auto" => 1500,
        _ => 700,
    };
    // Parameters may make it remember more.
    let has_own = policy.to_string() != policy.info().name;
    let own = if has_own { usual.max(700) } else { usual };
    let rules = deliveries
        .map_or(0, |deliveries| DELIVERY * u64::from(deliveries) + EVICTION * u64::from(blocks));
    let level = if policy.info().name == "auto" { LEVEL_OF_AUTO } else { LEVEL };
    level + own * u64::from(blocks) + rules
}
