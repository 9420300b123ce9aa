//! LRU-CA: LRU, but of the blocks used longest ago the first goes that the neighbouring cache holds
//! too. Where it holds none of them, or nothing is known, it is LRU.
//!
//! The poster says "replacement prefers the block in both level buffer caches", which is `alpha=1`.
//! With so wide a search the newest blocks are at risk, which the level below has just read for
//! this one and which it holds therefore: so the search stops half way by default (ours).

use super::awareness::{ALPHA, FILTER_BITS, HASHES, KNOWS, PUBLISH};
use super::neighbour::Held;
use super::one_list::{OneList, Rule};
use super::registry::PolicyInfo;

pub(super) const INFO: PolicyInfo = PolicyInfo {
    name: "lru-ca",
    aliases: &[],
    summary: "content-aware LRU: evicts first what the neighbouring cache holds too",
    source: "Collaborative buffer caches in data centers (poster)",
    parameters: &[ALPHA, KNOWS, FILTER_BITS, HASHES, PUBLISH],
    build: |arguments, context| {
        let held = Held::new(arguments.real("alpha"), context.capacity);
        Ok(Box::new(OneList::<LruCa, Held>::new(context.capacity, held)))
    },
};

#[derive(Clone)]
struct LruCa;

impl Rule for LruCa {
    const EVICTS_NEWEST: bool = false;
}
