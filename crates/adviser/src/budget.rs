//! How large a sample may be: what miniature caches take of memory.

use undercroft_cache::placement::Eviction;
use undercroft_cache::policy::Spec;

/// Least memory for the adviser of a volume, in bytes.
const LEAST: u64 = 8 << 20;

/// The cache's memory divided by the adviser's.
const SHARE: u64 = 50;

/// Bytes of a level of any policy, whatever its size. Placement at eviction takes some more.
const LEVEL: u64 = 4 << 10;
const LEVEL_OF_EVICTION: u64 = 16 << 10;

/// Bytes of the tables of `auto`, and of a block that its own miniatures know: some 1,024, and from
/// 16,384 blocks on one in 16, which the bytes of a block contain.
const TABLES: u64 = 108 << 10;
const SAMPLED: u64 = 400;
const SAMPLED_MOST: u32 = 1024;

/// Bytes of a block that the staging area remembers, and of one whose accesses are counted.
const STAGED: u64 = 112;
const ACCESSES: u64 = 64;

/// The adviser's memory for a cache of so many bytes: 2 %, and at least 8 MiB.
pub fn budget(cache_bytes: u64) -> u64 {
    LEAST.max(cache_bytes / SHARE)
}

/// Most blocks that a policy of its usual parameters knows at once with `blocks` blocks, resident
/// or remembered; with others it may be more. `tests/adviser/memory.rs` compares.
pub fn known_blocks(policy: &Spec, blocks: u32) -> u32 {
    let times = match policy.info().name {
        "lru" | "fifo" | "clock" | "sieve" | "w-tinylfu" => 1,
        "2q" | "s3-fifo" | "arc" | "car" | "clock-pro" => 2,
        "lirs" => 3,
        _ => 5,
    };
    // Before a block is dropped, the next one has come.
    blocks.saturating_mul(times).saturating_add(2)
}

/// Most bytes that a level of `blocks` blocks takes which
/// [made room](undercroft_cache::Level::make_room) for [`known_blocks`], with its index and all
/// that the policy remembers of blocks that left. `rules`: of placement at eviction that does not
/// adapt. Measured; `tests/adviser/memory.rs` compares.
pub fn level_bytes(policy: &Spec, rules: Option<&Eviction>, blocks: u32) -> u64 {
    let usual: u64 = match policy.info().name {
        "fifo" | "clock" => 80,
        "lru" => 84,
        "sieve" => 86,
        "w-tinylfu" => 110,
        "s3-fifo" => 124,
        "2q" => 129,
        "car" => 140,
        "arc" => 154,
        "clock-pro" | "lirs" => 192,
        "fbr" => 340,
        "mq" => 472,
        "lfru" => 450,
        "lfu" => 490,
        "lru-k" => 496,
        "auto" => 240,
        _ => 700,
    };
    // Parameters may make it remember more.
    let has_own = policy.to_string() != policy.info().name;
    let own = if has_own { usual.max(700) } else { usual };
    let rules = rules.map_or(0, |rules| {
        let counted = u64::from(rules.counted(blocks));
        let staged = u64::from(rules.staging.most(blocks));
        LEVEL_OF_EVICTION + ACCESSES * counted + STAGED * staged
    });
    let learns = policy.info().name == "auto";
    let learned = if learns { TABLES + SAMPLED * u64::from(blocks.min(SAMPLED_MOST)) } else { 0 };
    LEVEL + own * u64::from(blocks) + learned + rules
}
