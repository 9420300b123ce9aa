//! File descriptors of the server: as many as the system allows, and no more connections than they
//! are enough for. A server that has none left cannot accept, save, or reach its stores.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use undercroft_server::process::ServerConfig;

/// A connection: its socket, and a second name of it for the thread that looks at it.
const EACH: u64 = 2;

/// For stores, listeners, HTTP, threads, files that are saved, and clients that are told that there
/// is no room.
const RESERVED: u64 = 1024;

/// Raises the limit of this process to the highest that it may have: that; none if there is none.
pub(crate) fn raise() -> Option<u64> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current == maximum {
        return current;
    }
    match setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        Ok(()) => maximum,
        Err(error) => {
            tracing::warn!("the limit of file descriptors stays as it is: {error}");
            current
        }
    }
}

/// Takes the limit of connections down to what the descriptors are enough for, and says so.
pub(crate) fn fit(config: &mut ServerConfig, limit: Option<u64>) -> Option<String> {
    let limit = limit?;
    let wanted = config.limits.connections;
    let most = limit.saturating_sub(RESERVED.min(limit / 2)) / EACH;
    config.limits.connections = wanted.min(usize::try_from(most).unwrap_or(usize::MAX)).max(1);
    let fits = config.limits.connections;
    (fits < wanted).then(|| {
        format!(
            "limits.connections {wanted}: the system allows this process {limit} file descriptors \
             (ulimit -Hn, LimitNOFILE=), which are enough for {fits} connections: no more are taken"
        )
    })
}
