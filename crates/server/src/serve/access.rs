//! Who may open a volume, by its rules.

use undercroft_nbd::{Peer, Refusal};

use crate::config::VolumeConfig;

/// Whether a peer may open a volume with these rules.
pub(super) fn admits(rules: &VolumeConfig, peer: &Peer) -> Result<(), Refusal> {
    if rules.tls_required && !peer.encrypted {
        return Err(Refusal::TlsRequired);
    }
    if !is_listed(&rules.clients, peer) {
        return Err(Refusal::Denied("this certificate may not open the export".to_owned()));
    }
    Ok(())
}

/// Whether the peer's certificate is in the list; an empty list admits everybody.
pub(super) fn is_listed(list: &[String], peer: &Peer) -> bool {
    list.is_empty() || peer.certificate.as_ref().is_some_and(|name| list.contains(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_of_certificates() {
        let nobody = Peer::default();
        let db = Peer { certificate: Some("db".to_owned()), ..Peer::default() };
        assert!(is_listed(&[], &nobody));
        assert!(!is_listed(&["db".to_owned()], &nobody));
        assert!(is_listed(&["db".to_owned()], &db));
    }
}
