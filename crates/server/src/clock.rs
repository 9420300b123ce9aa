//! The clock that the server's ages and time limits use.

use std::time::Instant;

/// The current time on the runtime's clock. A test can stop that clock, and ages and timers then
/// advance together. In the program it is the system's clock, at the same cost.
pub(crate) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}
