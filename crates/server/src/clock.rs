//! The time by which the server's ages and limits are counted.

use std::time::Instant;

/// Now, by the clock of the runtime: a test can stop that, and ages and timers then go on together.
/// In the program it is the system's clock and costs no more.
pub(crate) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}
