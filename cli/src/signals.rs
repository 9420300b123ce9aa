//! The signals that end a program in order: SIGTERM, and SIGINT (Ctrl-C).

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

pub(crate) struct EndSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl EndSignals {
    /// From now on they do not kill the process. Within a runtime.
    ///
    /// # Errors
    /// The system refuses it.
    pub(crate) fn new() -> io::Result<Self> {
        let terminate = signal(SignalKind::terminate())?;
        Ok(Self { terminate, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Waits for one that was not returned yet. None is lost if this is given up.
    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
