//! Evictions that a trace tells: as its recorded clients told them, or derived from the addresses
//! of their buffers. Not here: those of simulated clients, and those inferred by an emulated
//! client (`crate::tree`).

mod derived;
mod known;

pub use derived::DerivedEvictions;
pub(crate) use derived::EvictionSource;
pub use known::EvictionsFrom;
