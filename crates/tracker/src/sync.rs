//! The primitives of the files that `tools/interleavings` checks: there they are a model checker's.

pub(crate) use std::sync::atomic;
