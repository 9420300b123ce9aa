//! LRU: evict the least recently used.

use super::neighbour::Alone;
use super::one_list::{OneList, Rule};
use super::registry::PolicyInfo;

pub(super) const INFO: PolicyInfo = PolicyInfo {
    name: "lru",
    aliases: &[],
    summary: "least recently used",
    source: "Mattson, Gecsei, Slutz & Traiger, IBM Systems Journal 1970",
    parameters: &[],
    build: |_, context| Ok(Box::new(OneList::<Lru>::new(context.capacity, Alone))),
};

#[derive(Clone)]
pub(super) struct Lru;

impl Rule for Lru {
    const EVICTS_NEWEST: bool = false;
}
