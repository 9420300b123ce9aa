//! LRU-CA: LRU that evicts, of the least recently used blocks, the first that the neighbouring
//! cache holds too. If it holds none of them, or nothing is known, the policy is LRU (`lru.rs`).
//!
//! The poster says "replacement prefers the block in both level buffer caches", which is `alpha=1`.
//! So wide a search puts the newest blocks at risk: the level below has just read them for this
//! one, and therefore holds them. So by default the search covers only half of the cache (ours).

use super::lru::Lru;
use crate::content_aware::{ALPHA, FILTER_BITS, HASHES, KNOWS, Neighbour, PUBLISH};
use crate::registry::{Footprint, PolicyInfo};

pub(super) const INFO: PolicyInfo = PolicyInfo {
    name: "lru-ca",
    aliases: &[],
    summary: "content-aware LRU: evicts first what the neighbouring cache holds too",
    source: "Collaborative buffer caches in data centers (poster)",
    parameters: &[ALPHA, KNOWS, FILTER_BITS, HASHES, PUBLISH],
    memory: Footprint::new(5, 700),
    build: |arguments, context| {
        let neighbour = Neighbour::new(arguments.real("alpha"), context.capacity);
        Ok(Box::new(Lru::new(context.capacity, Some(neighbour))))
    },
};
