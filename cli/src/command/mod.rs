//! The commands that run beside somebody's data, one file each: their arguments, and what they
//! print.

pub(crate) mod advise;
pub(crate) mod attach;
pub(crate) mod drop;
pub(crate) mod flash;
mod keys;
pub(crate) mod lists;
pub(crate) mod manual;
pub(crate) mod serve;
pub(crate) mod set;
pub(crate) mod stats;
pub(crate) mod top;
pub(crate) mod unwritten;
