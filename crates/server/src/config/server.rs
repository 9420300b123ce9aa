//! The options of a server: its addresses, its limits, and its volumes.

use std::fmt;
use std::net::Ipv6Addr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{TlsConfig, VolumeConfig, forms};

/// An address to listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// `HOST:PORT`.
    Tcp(String),
    /// `unix:PATH`.
    Unix(PathBuf),
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Address, String> {
        // The message follows the name of an option.
        let wrong = |what: &str| {
            Err(format!(
                " '{text}': {what}; expected HOST:PORT, as 127.0.0.1:10809 or [::1]:10809, or \
                 unix:PATH"
            ))
        };
        match (text.strip_prefix("unix:"), text.rsplit_once(':')) {
            (Some(""), _) => wrong("the path is missing"),
            (Some(path), _) => Ok(Address::Unix(PathBuf::from(path))),
            (None, None) if text.parse::<u16>().is_ok() => wrong("the host is missing"),
            (None, None) => wrong("the port is missing"),
            (None, Some(("", _))) => wrong("the host is missing"),
            (None, Some(_)) if text.parse::<Ipv6Addr>().is_ok() => {
                wrong("the port is missing, and brackets around the host")
            }
            (None, Some((host, _))) if host.contains(':') && !host.starts_with('[') => {
                wrong("an IPv6 address stands in brackets")
            }
            (None, Some((_, port))) => match port.parse::<u16>() {
                Ok(_) => Ok(Address::Tcp(text.to_owned())),
                Err(_) if text.ends_with(']') => wrong("the port is missing"),
                Err(_) => wrong("the port is not a number from 0 to 65535"),
            },
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(address) => f.write_str(address),
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// The limits on resources for clients.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Limits {
    /// Most connections at a time.
    pub connections: usize,
    /// Most connections that have not opened an export.
    pub negotiating: usize,
    /// Most requests in flight on a connection.
    pub requests: usize,
    /// Most bytes that the requests of a connection hold.
    #[serde(with = "forms::size")]
    pub bytes: u64,
    /// Most bytes that the requests of all connections to a volume hold.
    #[serde(with = "forms::size")]
    pub volume_bytes: u64,
    /// Most bytes that all requests hold.
    #[serde(with = "forms::size")]
    pub total_bytes: u64,
    /// How long a client may stall while others wait for the memory that it holds.
    #[serde(rename = "stall-s", with = "forms::seconds")]
    pub stall: Duration,
    /// Longest duration of a handshake.
    #[serde(rename = "handshake-s", with = "forms::seconds")]
    pub handshake: Duration,
    /// How long closing a volume waits for a store that does not take the dirty blocks.
    #[serde(rename = "close-s", with = "forms::seconds")]
    pub close: Duration,
    /// Longest time that a thread polls its socket before it sleeps.
    #[serde(rename = "busy-poll-us", with = "forms::microseconds")]
    pub busy_poll: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 4096,
            negotiating: 256,
            requests: 1024,
            bytes: 32 << 20,
            volume_bytes: 64 << 20,
            total_bytes: 128 << 20,
            stall: Duration::from_secs(5),
            handshake: Duration::from_secs(20),
            // Together with the time that connections have to end, this is less than service
            // managers wait before they kill a process.
            close: Duration::from_secs(30),
            // About the time to wake a thread.
            busy_poll: Duration::from_micros(50),
        }
    }
}

/// The configuration of a server, without the keys that its volumes inherit
/// ([`Key::is_inherited`](super::Key)). A server runs with a [valid](Self::validate) one only.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct ServerConfig {
    /// Addresses to listen on.
    #[serde(with = "forms::addresses")]
    pub listen: Vec<Address>,
    /// The volumes; the first is the default export.
    #[serde(rename = "volume", skip_serializing)]
    pub volumes: Vec<VolumeConfig>,
    /// Whether `cache_bytes` is a bound that somebody gave, and not what the volumes add up to.
    #[serde(skip)]
    pub is_cache_given: bool,
    /// Common names of the client certificates that may change volumes over TLS, by `undercroft
    /// set`; over a unix socket the server's own user may, and root.
    pub administrators: Vec<String>,
    /// Bytes of all caches together.
    #[serde(rename = "cache", with = "forms::size", skip_serializing)]
    pub cache_bytes: u64,
    /// Address of the HTTP listener.
    #[serde(with = "forms::some_address")]
    pub http: Option<Address>,
    /// A file with the token that the HTTP listener demands; none: it demands nothing.
    #[serde(with = "forms::some_path")]
    pub http_token_file: Option<PathBuf>,
    /// Names under which the HTTP listener answers while it demands no token, beside its address,
    /// other addresses, and `localhost`.
    pub http_hosts: Vec<String>,
    /// Folder for the state that a restart needs.
    pub state: Option<PathBuf>,
    /// Time between two savings of that state.
    #[serde(rename = "state-interval-s", with = "forms::seconds")]
    pub state_interval: Duration,
    /// Folder for blocks that a store has not taken when the server ends.
    pub unwritten: Option<PathBuf>,
    /// TLS towards clients and other servers.
    pub tls: TlsConfig,
    /// The limits on resources for clients.
    pub limits: Limits,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            listen: Vec::new(),
            volumes: Vec::new(),
            is_cache_given: false,
            administrators: Vec::new(),
            cache_bytes: 256 << 20,
            http: None,
            http_token_file: None,
            http_hosts: Vec::new(),
            state: None,
            state_interval: Duration::from_secs(300),
            unwritten: None,
            tls: TlsConfig::default(),
            limits: Limits::default(),
        }
    }
}

impl ServerConfig {
    /// Bytes that the caches of all volumes have together.
    pub(crate) fn assigned(&self) -> u64 {
        self.volumes.iter().map(VolumeConfig::cache_bytes).sum()
    }

    /// Names of the options that differ from `next` and cannot change while the server runs.
    /// Options that belong together share one name.
    pub fn fixed_changes(&self, next: &ServerConfig) -> Vec<String> {
        let (now, next) = (leaves(self), leaves(next));
        let changed = next.iter().zip(&now).filter(|(next, now)| next != now);
        let mut names: Vec<_> = changed.filter_map(|((path, _), _)| reported(path)).collect();
        names.sort();
        names.dedup();
        names
    }
}

/// The values of a configuration with their paths, such as `limits.close-s`, in a fixed order.
fn leaves(config: &ServerConfig) -> Vec<(String, serde_json::Value)> {
    let tree = serde_json::to_value(config).unwrap_or_default();
    let mut leaves = Vec::new();
    for (name, value) in tree.as_object().into_iter().flatten() {
        match value.as_object() {
            None => leaves.push((name.clone(), value.clone())),
            Some(part) => {
                let part = part.iter().map(|(key, value)| (format!("{name}.{key}"), value.clone()));
                leaves.extend(part);
            }
        }
    }
    leaves
}

/// The name by which a change of an option is reported; `None` if it needs no restart.
fn reported(path: &str) -> Option<String> {
    let name = match path {
        "tls.mode" | "limits.close-s" => path,
        "administrators" => return None,
        _ if path.starts_with("tls.upstream-") => "tls.upstream",
        "http-token-file" | "http-hosts" => return None,
        _ if path.starts_with("tls.") => return None,
        _ if path.starts_with("limits.") => "limits",
        _ => path,
    };
    Some(name.to_owned())
}
