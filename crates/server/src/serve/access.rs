//! Who may open a volume and who may write it, by its rules: one that matches is enough.

use undercroft_nbd::{Peer, Refusal};

use crate::config::{ClientRule, VolumeConfig};

/// What a client is told that lost its right.
pub(super) const REVOKED: &str = "who may use the volume has changed, or it goes away";

/// Why a client is refused whose certificate new client roots do not confirm.
pub(super) const UNTRUSTED: &str =
    "the server's client roots have changed, and do not confirm the client's certificate";

/// Whether a peer may open a volume with these rules.
pub(super) fn admits(rules: &VolumeConfig, peer: &Peer) -> Result<(), Refusal> {
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
pub(super) fn is_listed(list: &[ClientRule], peer: &Peer) -> bool {
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
