//! The clock that the server's ages and time limits use.

use std::time::{Duration, Instant};

/// The current time on the runtime's clock. A test can stop that clock, and ages and timers then
/// advance together. In the program it is the system's clock, at the same cost.
pub(crate) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// The time that has passed on that clock since a moment.
pub(crate) fn since(moment: Instant) -> Duration {
    now().saturating_duration_since(moment)
}
