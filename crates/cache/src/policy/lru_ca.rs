//! LRU-CA: LRU, but of the blocks used longest ago the first goes that the neighbouring cache holds
//! too. Where it holds none of them, or nothing is known, it is LRU (`lru.rs`).
//!
//! The poster says "replacement prefers the block in both level buffer caches", which is `alpha=1`.
//! With so wide a search the newest blocks are at risk, which the level below has just read for
//! this one and which it holds therefore: so the search stops half way by default (ours).

use super::content_aware::{ALPHA, FILTER_BITS, HASHES, KNOWS, Neighbour, PUBLISH};
use super::lru::Lru;
use super::registry::PolicyInfo;

pub(super) const INFO: PolicyInfo = PolicyInfo {
    name: "lru-ca",
    aliases: &[],
    summary: "content-aware LRU: evicts first what the neighbouring cache holds too",
    source: "Collaborative buffer caches in data centers (poster)",
    parameters: &[ALPHA, KNOWS, FILTER_BITS, HASHES, PUBLISH],
    build: |arguments, context| {
        let neighbour = Neighbour::new(arguments.real("alpha"), context.capacity);
        Ok(Box::new(Lru::new(context.capacity, Some(neighbour))))
    },
};
