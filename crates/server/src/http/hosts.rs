//! The names under which the HTTP listener answers while it demands no token.
//!
//! A browser lets the page of a site read the answers of that site's own name. Its owner may point
//! this name at the address of a server that only the browser reaches (DNS rebinding), and the page
//! then reads what the server shows. Such requests give the name as their host. So only names are
//! answered that nobody else can point anywhere: addresses, `localhost`, and those of the
//! configuration. A token protects by itself, since the browser sends it to no other site; and no
//! browser reaches a unix socket.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, PoisonError, RwLock};

use axum::http::{HeaderMap, Uri, header};
use undercroft_nbd::Peer;

use crate::config::{Address, ServerConfig};

/// The names of the configuration, in lower case. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct Hosts(Arc<RwLock<Vec<String>>>);

impl Hosts {
    /// Takes over the names that a configuration lists, and the one of its HTTP address.
    pub(crate) fn set(&self, config: &ServerConfig) {
        let mut names: Vec<_> = config.http_hosts.iter().map(|name| of(name)).collect();
        if let Some(Address::Tcp(address)) = &config.http {
            names.push(of(address));
        }
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = names;
    }

    /// The first host that a request of a client names and that is not answered.
    pub(super) fn unknown(
        &self,
        client: &Peer,
        target: &Uri,
        headers: &HeaderMap,
    ) -> Option<String> {
        // A client over TCP has an address. One without a host is no browser.
        client.ip?;
        let of_target = target.authority().map(|authority| authority.as_str().to_owned());
        let headers = headers.get_all(header::HOST).into_iter();
        let of_headers = headers.map(|host| String::from_utf8_lossy(host.as_bytes()).into_owned());
        let names = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let is_unknown = |host: &String| {
            let host = of(host);
            let is_address = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
                Some(inner) => inner.parse::<Ipv6Addr>().is_ok(),
                None => host.parse::<Ipv4Addr>().is_ok(),
            };
            !(is_address || host == "localhost" || names.contains(&host))
        };
        of_target.into_iter().chain(of_headers).find(is_unknown)
    }
}

/// A host without its port and the dot of a complete name, in lower case.
fn of(text: &str) -> String {
    let port = text.rsplit_once(':').filter(|(_, port)| port.bytes().all(|b| b.is_ascii_digit()));
    let host = port.map_or(text, |(host, _)| host);
    host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_others_are_unknown() {
        let hosts = Hosts::default();
        let http = Some("Storage-1:10880".parse().unwrap());
        let http_hosts = vec!["status.example".to_owned()];
        hosts.set(&ServerConfig { http, http_hosts, ..ServerConfig::default() });
        let ip = Some("192.0.2.1".parse().unwrap());
        let client = Peer { ip, ..Peer::default() };
        let asked = |client: &Peer, target: &str, names: &[&str]| {
            let names = names.iter().map(|name| (header::HOST, name.parse().unwrap()));
            let mut headers = HeaderMap::new();
            names.for_each(|(key, name)| _ = headers.append(key, name));
            hosts.unknown(client, &target.parse().unwrap(), &headers)
        };
        let known = |host: &str| asked(&client, "/stats", &[host]).is_none();
        for host in ["127.0.0.1", "192.0.2.7:10880", "[::1]", "[2001:db8::1]:80", "localhost:1"] {
            assert!(known(host), "{host}");
        }
        for host in ["LOCALHOST", "localhost.", "storage-1:10880", "Status.Example:443"] {
            assert!(known(host), "{host}");
        }
        for host in ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "::1"] {
            assert!(!known(host), "{host}");
        }
        for host in ["", "x", "[::1", "[evil]", "evil.example:80", "status.example.evil"] {
            assert!(!known(host), "{host}");
        }
        let unknown =
            |target: &str, names: &[&str]| asked(&client, target, names).unwrap_or_default();
        assert_eq!(unknown("/", &["localhost", "evil.example"]), "evil.example");
        assert_eq!(unknown("http://evil.example/", &["localhost"]), "evil.example");
        assert_eq!(unknown("/", &[]), "", "programs of HTTP/1.0");
        let local = Peer::default();
        assert!(asked(&local, "/", &["evil.example"]).is_none(), "a socket");
        hosts.set(&ServerConfig::default());
        assert_eq!(unknown("/", &["status.example"]), "status.example");
    }
}
