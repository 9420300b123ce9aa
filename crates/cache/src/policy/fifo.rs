//! FIFO: evict the oldest; a hit changes nothing.

use super::one_list::{OneList, Rule};
use super::registry::PolicyInfo;

pub(super) const INFO: PolicyInfo = PolicyInfo {
    name: "fifo",
    aliases: &[],
    summary: "first in, first out",
    source: "Belady, IBM Systems Journal 1966",
    parameters: &[],
    build: |_, context| Ok(Box::new(OneList::<Fifo>::new(context.capacity))),
};

struct Fifo;

impl Rule for Fifo {
    const MOVES: bool = false;
    const EVICTS_NEWEST: bool = false;
}
