//! Parts of which policies are made, over entry handles: orders, queues, ghosts, counts of use.

pub mod directory;
pub(crate) mod ghosts;
pub mod heap;
pub mod lists;
pub(crate) mod log;
pub(crate) mod lru_order;
pub(crate) mod memory;
pub(crate) mod period;
pub(crate) mod positions;
pub mod queues;
pub(crate) mod ranking;
pub(crate) mod ring;
pub mod sketch;
pub(crate) mod trail;
