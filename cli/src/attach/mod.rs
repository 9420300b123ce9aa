//! `undercroft attach`, in parts: whether a program can be watched, whether a volume is what the
//! server says it is, and how well a tracker knows the cache that it watches.
//!
//! Not here: the command line (`command/attach.rs`), the tracker itself (`undercroft-tracker`,
//! `undercroft-preload`).

pub(crate) mod check;
pub(crate) mod program;
pub(crate) mod record;
pub(crate) mod score;
pub(crate) mod volume;
