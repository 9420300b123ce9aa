//! The commands, one file each: their arguments, and what they print.

pub(crate) mod curve;
pub(crate) mod policies;
pub(crate) mod simulate;
pub(crate) mod sweep;
pub(crate) mod trace;
