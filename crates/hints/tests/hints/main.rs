//! The format of hints from outside.

#[path = "../../fuzz/bodies.rs"]
mod bodies;
mod format;
mod random;
