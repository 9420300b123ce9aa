//! The synchronization primitives of the files that `tools/interleavings` checks; there a model
//! checker replaces them.

pub(crate) use std::sync::atomic;
