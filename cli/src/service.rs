//! What the service manager is told, if it has started this program with `NOTIFY_SOCKET`
//! (sd_notify(3)): when the server is ready, reloads, stops, and how it is.

use sd_notify::NotifyState;
use undercroft_server::process::Running;

/// What is told; nothing where nobody listens.
#[derive(Default)]
pub(crate) struct Service {
    status: String,
    /// How the last reload ended.
    reload: String,
}

impl Service {
    /// The server accepts connections, or has reloaded its configuration.
    pub(crate) fn ready(&mut self, running: &Running) {
        self.status = self.status_of(running);
        tell(&[NotifyState::Ready, NotifyState::Status(&self.status)]);
    }

    /// A reload begins.
    pub(crate) fn reloading(&self) {
        // systemd compares the time with that of the signal.
        match NotifyState::monotonic_usec_now() {
            Ok(now) => tell(&[NotifyState::Reloading, now, NotifyState::Status("reloading")]),
            Err(error) => tracing::warn!("the clock cannot be read: {error}"),
        }
    }

    /// A reload has ended with these problems.
    pub(crate) fn reloaded(&mut self, running: &Running, problems: &[String]) {
        self.reload = match problems {
            [] => "; reloaded".to_owned(),
            [only] => format!("; reloaded, except: {only}"),
            [first, others @ ..] => {
                format!("; reloaded, except: {first}, and {} more in the log", others.len())
            }
        };
        self.ready(running);
    }

    /// Something may have changed.
    pub(crate) fn look(&mut self, running: &Running) {
        let status = self.status_of(running);
        if status != self.status {
            tell(&[NotifyState::Status(&status)]);
            self.status = status;
        }
    }

    fn status_of(&self, running: &Running) -> String {
        let (served, pending) = (running.volumes().len(), running.pending_volumes());
        let away: Vec<_> = pending.iter().map(|(name, _)| name.as_str()).collect();
        let away =
            if away.is_empty() { String::new() } else { format!(", away: {}", away.join(" ")) };
        let text = format!("volumes served: {served}{away}{}", self.reload);
        // A line of the protocol.
        text.replace('\n', " ")
    }

    /// The server takes no new connections, and writes out what is dirty.
    pub(crate) fn stopping(&self) {
        tell(&[NotifyState::Stopping, NotifyState::Status("answering and writing out")]);
    }
}

fn tell(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::warn!("the service manager is not told: {error}");
    }
}
