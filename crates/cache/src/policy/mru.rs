//! MRU, fetch and discard: evict the most recently used, the one before the newcomer.

use super::neighbour::Alone;
use super::one_list::{OneList, Rule};
use super::registry::PolicyInfo;

pub(super) const INFO: PolicyInfo = PolicyInfo {
    name: "mru",
    aliases: &[],
    summary: "most recently used goes first",
    source: "Chou & DeWitt, VLDB 1985",
    parameters: &[],
    build: |_, context| Ok(Box::new(OneList::<Mru>::new(context.capacity, Alone))),
};

#[derive(Clone)]
struct Mru;

impl Rule for Mru {
    const EVICTS_NEWEST: bool = true;
}
