//! Refused attempts to open an export: what a connection was refused, and the log of all of them,
//! which names some each minute and counts the others, so that a flood cannot fill a disk.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::service::Peer;

/// Most lines in a [`MINUTE`].
const LINES: u32 = 20;
const MINUTE: Duration = Duration::from_secs(60);

/// Most characters of what a client named, and of the reason, in a line.
const NAME: usize = 100;
const REASON: usize = 300;

/// What one connection was refused so far.
#[derive(Default)]
pub(super) struct Refused {
    /// Whether it was refused something that it needs.
    pub(super) is_needed: bool,
    /// Whether a rule or a limit was the reason.
    pub(super) is_denied: bool,
    /// The last refusal that is logged: by then who the client was, what it named, and why.
    pub(super) last: Option<(Peer, String, String)>,
}

/// The log of refused attempts. Clones share it.
#[derive(Clone, Default)]
pub(super) struct RefusalLog(Arc<Mutex<Window>>);

/// What was logged since a point in time.
#[derive(Default)]
struct Window {
    since: Option<Instant>,
    lines: u32,
    left_out: u64,
}

impl RefusalLog {
    /// Logs an attempt, or counts it if there were too many. Must run on a runtime.
    pub(super) fn note(&self, peer: &Peer, what: &str, why: &str) {
        let now = Instant::now();
        let mut window = self.window();
        if window.since.is_none_or(|since| now.duration_since(since) >= MINUTE) {
            window.say_left_out();
            (window.since, window.lines) = (Some(now), 0);
        }
        if window.lines == LINES {
            window.left_out += 1;
            if window.left_out == 1 {
                let (log, end) = (self.clone(), window.since.unwrap_or(now) + MINUTE);
                tokio::spawn(async move {
                    sleep_until(end).await;
                    log.window().say_left_out();
                });
            }
            return;
        }
        window.lines += 1;
        let what: String = what.chars().take(NAME).collect();
        let why: String = why.chars().take(REASON).collect();
        let (client, certificate) = (peer.address.as_str(), peer.certificate.as_deref());
        let user = peer.credentials.map(|credentials| credentials.user);
        let group = peer.credentials.map(|credentials| credentials.group);
        tracing::warn!(client, certificate, user, group, what, why, "refused");
    }

    fn window(&self) -> MutexGuard<'_, Window> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Window {
    fn say_left_out(&mut self) {
        match std::mem::take(&mut self.left_out) {
            0 => {}
            attempts => tracing::warn!(attempts, "refused, beside those named above"),
        }
    }
}

#[cfg(test)]
mod tests {
    use tracing::field::{Field, Visit};
    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Metadata, Subscriber};

    use super::*;

    /// Keeps what is logged.
    #[derive(Clone, Default)]
    struct Logged(Arc<Mutex<Vec<String>>>);

    impl Subscriber for Logged {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }

        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }

        fn record(&self, _: &Id, _: &Record<'_>) {}

        fn record_follows_from(&self, _: &Id, _: &Id) {}

        fn event(&self, event: &Event<'_>) {
            let mut line = Line(String::new());
            event.record(&mut line);
            self.0.lock().unwrap().push(line.0);
        }

        fn enter(&self, _: &Id) {}

        fn exit(&self, _: &Id) {}
    }

    struct Line(String);

    impl Visit for Line {
        fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
            self.0 += &format!("{field}={value:?} ");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_is_counted_and_not_named() {
        let logged = Logged::default();
        let _guard = tracing::subscriber::set_default(logged.clone());
        let take = || std::mem::take(&mut *logged.0.lock().unwrap());
        let (log, peer) = (RefusalLog::default(), Peer::default());
        let flood = |attempts: u32| (0..attempts).for_each(|_| log.note(&peer, "v", "no"));
        flood(LINES + 5);
        assert_eq!(take().len(), LINES as usize);
        // Without another attempt.
        tokio::time::sleep(MINUTE + Duration::from_secs(1)).await;
        let counted = take().join("\n");
        assert!(counted.contains("attempts=5 ") && !counted.contains('\n'), "{counted}");
        flood(1);
        assert_eq!(take().len(), 1);
        tokio::time::sleep(2 * MINUTE).await;
        assert!(take().is_empty());
    }
}
