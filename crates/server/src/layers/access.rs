//! Access: who may open a volume and who may write it, by its rules, of which one that matches is
//! enough; and the outermost layer of a session, which refuses requests when the connection has
//! lost its right, and counts them.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Waker;

use serde::Serialize;
use undercroft_nbd::{Command, Failure, Peer, Refusal, Request, Session};

use crate::config::{ClientRule, VolumeConfig};

/// What a client is told that lost its right.
pub(crate) const REVOKED: &str = "who may use the volume has changed, or it goes away";

/// Why a client is refused whose certificate new client roots do not confirm.
pub(crate) const UNTRUSTED: &str =
    "the server's client roots have changed, and do not confirm the client's certificate";

/// Whether a peer may open a volume with these rules.
pub(crate) fn admits(rules: &VolumeConfig, peer: &Peer) -> Result<(), Refusal> {
    if rules.tls_required && !peer.encrypted {
        return Err(Refusal::TlsRequired);
    }
    if !peer.is_trusted() {
        return Err(Refusal::Denied(UNTRUSTED.to_owned()));
    }
    if !is_listed(&rules.clients, peer) {
        return Err(Refusal::Denied(format!(
            "export '{}' is not open to {}",
            rules.name,
            described(peer)
        )));
    }
    Ok(())
}

/// Whether a rule of the list matches the peer; an empty list admits everybody.
pub(crate) fn is_listed(list: &[ClientRule], peer: &Peer) -> bool {
    list.is_empty() || list.iter().any(|rule| rule.admits(peer))
}

/// What rules may know of a peer, as an administrator would write it.
fn described(peer: &Peer) -> String {
    let from = peer.ip.map(|ip| format!("address {ip}"));
    let user = peer.credentials.map(|peer| format!("user {}, group {}", peer.user, peer.group));
    let certificate = match &peer.certificate {
        Some(name) => format!("with the certificate '{name}'"),
        None => "without a certificate".to_owned(),
    };
    [from.or(user), Some(certificate)].into_iter().flatten().collect::<Vec<_>>().join(" ")
}

/// One connection, with the counts of its requests.
#[derive(Default)]
pub(crate) struct Connection {
    peer: Peer,
    requests: AtomicU64,
    bytes_read: AtomicU64,
    bytes_written: AtomicU64,
    delayed: AtomicU64,
    /// Whether it has lost its right and is about to be closed; its requests are then refused.
    is_revoked: AtomicBool,
}

/// The reported counters of a connection.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ClientStats {
    /// Certificate or address.
    pub(crate) client: String,
    /// Requests of all kinds.
    pub(crate) requests: u64,
    /// Bytes requested by READ.
    pub(crate) bytes_read: u64,
    /// Bytes sent by WRITE.
    pub(crate) bytes_written: u64,
    /// Requests that were delayed by a limit of requests or bytes per second.
    pub(crate) delayed_requests: u64,
}

impl Connection {
    pub(crate) fn new(peer: &Peer) -> Self {
        Self { peer: peer.clone(), ..Self::default() }
    }

    pub(crate) fn peer(&self) -> &Peer {
        &self.peer
    }

    pub(crate) fn is_revoked(&self) -> bool {
        self.is_revoked.load(Ordering::Relaxed)
    }

    /// Refuses all further requests.
    pub(crate) fn revoke(&self) {
        self.is_revoked.store(true, Ordering::SeqCst);
    }

    /// Counts a request that a limit delays.
    pub(super) fn count_delayed(&self) {
        self.delayed.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn stats(&self) -> ClientStats {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let name = self.peer.certificate.as_ref().unwrap_or(&self.peer.address);
        ClientStats {
            client: name.clone(),
            requests: get(&self.requests),
            bytes_read: get(&self.bytes_read),
            bytes_written: get(&self.bytes_written),
            delayed_requests: get(&self.delayed),
        }
    }

    /// Counts requests that arrived together. They are summed up locally first, because changing
    /// shared counters is slow.
    fn count(&self, requests: &[Request]) {
        let (mut bytes_read, mut bytes_written) = (0, 0);
        for request in requests {
            match request.command {
                Command::Read { .. } => bytes_read += request.length,
                Command::Write { .. } => bytes_written += request.length,
                _ => {}
            }
        }
        self.requests.fetch_add(requests.len() as u64, Ordering::Relaxed);
        self.bytes_read.fetch_add(bytes_read, Ordering::Relaxed);
        self.bytes_written.fetch_add(bytes_written, Ordering::Relaxed);
    }
}

/// Refuses a request of a connection that lost its right.
pub(super) fn refuse(request: Request) {
    request.reply.fail(Failure::ShuttingDown, REVOKED.to_owned());
}

/// The layer for access.
pub(crate) struct Access<S> {
    client: Arc<Connection>,
    /// What is given back when the connection ends.
    _place: Box<dyn Any + Send>,
    next: S,
}

impl<S: Session> Access<S> {
    pub(crate) fn new(client: Arc<Connection>, place: impl Any + Send, next: S) -> Self {
        Self { client, _place: Box::new(place), next }
    }
}

impl<S: Session> Session for Access<S> {
    fn serve(&mut self, requests: &mut Vec<Request>) -> u64 {
        if self.client.is_revoked() {
            requests.drain(..).for_each(refuse);
            return 0;
        }
        // Before the answers, so that a client that has an answer finds it counted.
        self.client.count(requests);
        self.next.serve(requests)
    }

    fn room(&mut self, waker: &Waker) -> usize {
        self.next.room(waker)
    }

    fn no_more(&mut self, is_gone: bool) {
        self.next.no_more(is_gone);
    }
}

#[cfg(test)]
mod tests {
    use undercroft_nbd::Credentials;

    use super::*;

    fn rules(texts: &[&str]) -> Vec<ClientRule> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn any_rule_that_matches_admits() {
        let nobody = Peer::default();
        let db = Peer { certificate: Some("db".to_owned()), ..Peer::default() };
        let local = Credentials { user: 70, group: 71 };
        let local = Peer { credentials: Some(local), ..Peer::default() };
        assert!(is_listed(&[], &nobody));
        let list = rules(&["db", "address:192.0.2.0/24", "user:70"]);
        assert!(!is_listed(&list, &nobody) && is_listed(&list, &db) && is_listed(&list, &local));
        assert!(!is_listed(&rules(&["other", "user:71"]), &db));
    }

    #[test]
    fn a_refusal_says_as_whom_the_client_came() {
        let clients = rules(&["other"]);
        let config = VolumeConfig { name: "v".to_owned(), clients, ..VolumeConfig::default() };
        let ip = Some("192.0.2.1".parse().unwrap());
        let peer = Peer { ip, certificate: Some("db".to_owned()), ..Peer::default() };
        let why = "export 'v' is not open to address 192.0.2.1 with the certificate 'db'";
        assert_eq!(admits(&config, &peer), Err(Refusal::Denied(why.to_owned())));
        let local = Credentials { user: 70, group: 71 };
        let peer = Peer { credentials: Some(local), ..Peer::default() };
        let why = "export 'v' is not open to user 70, group 71 without a certificate";
        assert_eq!(admits(&config, &peer), Err(Refusal::Denied(why.to_owned())));
    }
}
