//! `shuttle`'s primitives under the names that the checked files use.

pub(crate) use shuttle::hint::spin_loop;
pub(crate) use shuttle::sync::{Mutex, MutexGuard, atomic};
pub(crate) use shuttle::thread::yield_now;
// A plain reference count, whose raw pointers the pool keeps.
pub(crate) use std::sync::{Arc, PoisonError, TryLockError};
