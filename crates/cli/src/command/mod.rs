//! The commands, one file each: their arguments, and what they print.

pub(crate) mod advise;
mod advise_live;
pub(crate) mod attach;
pub(crate) mod bench;
pub(crate) mod characterize;
pub(crate) mod curve;
pub(crate) mod drop;
mod keys;
pub(crate) mod lists;
pub(crate) mod manual;
pub(crate) mod probe;
pub(crate) mod replay;
pub(crate) mod report;
pub(crate) mod serve;
pub(crate) mod set;
pub(crate) mod simulate;
pub(crate) mod stats;
pub(crate) mod sweep;
pub(crate) mod top;
pub(crate) mod trace;
pub(crate) mod unwritten;
