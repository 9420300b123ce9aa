//! The options of a server: its addresses, its limits, and its volumes.

use std::fmt;
use std::net::Ipv6Addr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::keys::{Changes, Key, keys};
use super::{FlashConfig, TlsConfig, VolumeConfig, forms};

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

keys! {
/// The limits on resources for clients.
Limits {
    /// Most connections at a time that have opened a volume; further ones are refused.
    "connections" "N" connections: usize = 4096, "forms::plain", Restart;
    /// Most connections that have not opened a volume; beyond that the oldest is closed.
    "negotiating" "N" negotiating: usize = 256, "forms::plain", Restart;
    /// Most requests in flight on a connection; a TRIM or WRITE_ZEROES counts for 64, a
    /// BLOCK_STATUS for 16.
    "requests" "N" requests: usize = 1024, "forms::plain", Restart;
    /// Most bytes that the requests of a connection hold.
    "bytes" "SIZE" bytes: u64 = 32 << 20, "forms::size", Restart;
    /// Most bytes that the requests of all connections to a volume hold.
    "volume-bytes" "SIZE" volume_bytes: u64 = 64 << 20, "forms::size", Restart;
    /// Most bytes that all requests hold.
    "total-bytes" "SIZE" total_bytes: u64 = 128 << 20, "forms::size", Restart;
    /// Seconds that a client may stall while others wait for the memory that it holds.
    "stall-s" "N" stall: Duration = Duration::from_secs(5), "forms::seconds", Restart;
    /// Seconds within which a connection must open a volume.
    "handshake-s" "N" handshake: Duration = Duration::from_secs(20), "forms::seconds", Restart;
    // Together with the time that connections have to end, this is less than service managers wait
    // before they kill a process.
    /// Seconds that closing a volume waits for a store that does not take the dirty blocks.
    "close-s" "N" close: Duration = Duration::from_secs(30), "forms::seconds", Restart;
    // About the time to wake a thread.
    /// Microseconds, up to 10000, that a thread polls its socket before it sleeps; 0: none.
    "busy-poll-us" "N" busy_poll: Duration = Duration::from_micros(50), "forms::microseconds",
        Restart;
    []
}
}

keys! {
/// The configuration of a server, without the keys that its volumes inherit
/// ([`Key::is_inherited`](super::Key)). A server runs with a [valid](Self::validate) one only.
ServerConfig {
    /// Where to listen, as 127.0.0.1:10809 or unix:PATH; without it, at 127.0.0.1:10809. A flag may
    /// be repeated.
    "listen" "ADDR" listen: Vec<Address> = Vec::new(), "forms::addresses", Restart;
    /// The volumes; the first is the default export.
    "volume" "VOLUME" volumes: Vec<VolumeConfig> = Vec::new(), "forms::plain", Parts;
    /// Bytes of all caches together; without it, what the volumes' own add up to if that is more.
    "cache" "SIZE" cache_bytes: u64 = 256 << 20, "forms::size", Cache;
    /// A file or device for a cache on flash, below the caches in memory, its size, and what may be
    /// written there: PATH,size=SIZE[,budget=SIZE/day|off][,rule=RULE][,restart=warm]; without it,
    /// there is none.
    "flash" "FLASH" flash: Option<FlashConfig> = None, "forms::some_flash", Flash;
    /// Where to serve the live page, /stats, /advice, /metrics and /healthz, as 127.0.0.1:10880 or
    /// unix:PATH; without it, nowhere.
    "http" "ADDR" http: Option<Address> = None, "forms::some_address", Restart;
    /// A file with the token that the pages demand, as `Authorization: Bearer ...`; without it,
    /// they demand nothing.
    "http-token-file" "FILE" http_token_file: Option<PathBuf> = None, "forms::some_path", Access;
    /// Names for which the pages are given without a token, beside addresses and localhost. A flag
    /// has one, and may be repeated.
    "http-hosts" "NAMES" http_hosts: Vec<String> = Vec::new(), "forms::plain", Access;
    /// The folder for what makes a restart warm; without it, restarts are cold.
    "state" "DIR" state: Option<PathBuf> = None, "forms::some_path", Restart;
    /// Seconds between two savings of that state.
    "state-interval-s" "N" state_interval: Duration = Duration::from_secs(300), "forms::seconds",
        Restart;
    /// The folder for what a store has not taken by the end, for `undercroft unwritten`; without
    /// it, that is named and lost.
    "unwritten" "DIR" unwritten: Option<PathBuf> = None, "forms::some_path", Restart;
    /// Common names of the client certificates that may change volumes over TLS, by `undercroft
    /// set`; over a unix socket the server's own user may, and root.
    "administrators" "NAMES" administrators: Vec<String> = Vec::new(), "forms::plain", Access;
    /// TLS towards clients and other servers.
    "tls" "KEYS" tls: TlsConfig = TlsConfig::default(), "forms::plain", Parts;
    /// The limits on resources for clients.
    "limits" "KEYS" limits: Limits = Limits::default(), "forms::plain", Parts;

    [
    /// Whether `cache_bytes` is a bound that somebody gave, and not what the volumes add up to.
    is_cache_given: bool = false;
    ]
}
}

impl ServerConfig {
    /// Bytes that the caches of all volumes have together.
    pub(crate) fn assigned(&self) -> u64 {
        self.volumes.iter().map(VolumeConfig::cache_bytes).sum()
    }

    /// The keys of the server and of its parts with their paths, such as `limits.close-s`.
    pub fn keys() -> impl Iterator<Item = (String, &'static Key)> {
        let parts = [("", Self::KEYS), ("tls.", TlsConfig::KEYS), ("limits.", Limits::KEYS)];
        parts.into_iter().flat_map(|(part, keys)| {
            keys.iter().map(move |key| (format!("{part}{}", key.name), key))
        })
    }

    /// Paths of the options that differ from `next` and cannot change while the server runs,
    /// without those of volumes.
    pub fn fixed_changes(&self, next: &ServerConfig) -> Vec<String> {
        let [now, next] = [self, next].map(|it| serde_json::to_value(it).unwrap_or_default());
        let fixed = Self::keys().filter(|(_, key)| key.changes == Changes::Restart);
        let paths = fixed.map(|(path, _)| path);
        let place = |path: &str| format!("/{}", path.replace('.', "/"));
        paths.filter(|path| now.pointer(&place(path)) != next.pointer(&place(path))).collect()
    }

    /// Takes over the options that change while the server runs, without the cache and volumes.
    pub(crate) fn take_access(&mut self, next: &ServerConfig) {
        self.take(next, Changes::Access);
        self.limits.take(&next.limits, Changes::Access);
        self.tls.take_keys(&next.tls);
    }
}
