//! The synchronization primitives of the files that `tools/interleavings` checks; there a model
//! checker replaces them.

pub(crate) use std::hint::spin_loop;
pub(crate) use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
pub(crate) use std::thread::yield_now;
