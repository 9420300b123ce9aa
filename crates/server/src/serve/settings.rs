//! What a person sets, as text, from three places: flags before the file `undercroft.toml` before
//! the environment. Here the places are read and joined; what the texts mean is in `plan.rs`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

/// Settings of a server. What is not set falls to the next place, at last to the default.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Settings {
    /// Addresses: `127.0.0.1:10809`, `[::1]:10809`, `unix:PATH`.
    pub listen: Vec<String>,
    /// The volumes.
    #[serde(rename = "volume")]
    pub volumes: Vec<VolumeSettings>,
    /// Size of all caches together.
    pub cache: Option<String>,
    /// Replacement policy of volumes that do not say.
    pub policy: Option<String>,
    /// Placement of volumes that do not say.
    pub placement: Option<String>,
    /// `through`, `back` or `around`, of volumes that do not say.
    pub write: Option<String>,
    /// Block size of volumes that do not say.
    pub block: Option<String>,
    /// Parts of each cache with a lock of their own.
    pub shards: Option<u32>,
    /// Address of the HTTP listener.
    pub http: Option<String>,
    /// Folder for what a restart needs.
    pub state: Option<PathBuf>,
    /// Seconds between two savings of it.
    pub state_interval_s: Option<u64>,
    /// Folder that keeps what a store did not take by the end.
    pub unwritten: Option<PathBuf>,
    /// TLS.
    pub tls: TlsSettings,
    /// Limits of the protocol.
    pub limits: LimitSettings,
}

/// Whether connections are encrypted, with what.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct TlsSettings {
    /// `off`, `offered` or `required`; with `client_roots` it is `required` unless set.
    pub mode: Option<String>,
    /// The server's certificates, PEM.
    pub certificate: Option<PathBuf>,
    /// Its private key, PEM.
    pub key: Option<PathBuf>,
    /// Roots of the clients' certificates, PEM: with it, clients that use TLS must show one.
    pub client_roots: Option<PathBuf>,
    /// Roots that upstream servers (`nbds://`) are trusted by, PEM.
    pub upstream_roots: Option<PathBuf>,
    /// Certificate to show to them, PEM.
    pub upstream_certificate: Option<PathBuf>,
    /// Its private key, PEM.
    pub upstream_key: Option<PathBuf>,
}

/// What a client may take.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct LimitSettings {
    /// Connections at a time.
    pub connections: Option<usize>,
    /// Connections that have not opened an export.
    pub negotiating: Option<usize>,
    /// Requests in flight on a connection.
    pub requests: Option<usize>,
    /// Bytes that requests of a connection pin.
    pub bytes: Option<String>,
    /// Bytes that requests of all connections to a volume pin.
    pub volume_bytes: Option<String>,
    /// And of all connections.
    pub total_bytes: Option<String>,
    /// Seconds that a client may stall while others wait for the memory kept for it.
    pub stall_s: Option<u64>,
    /// Seconds that a handshake may take.
    pub handshake_s: Option<u64>,
    /// Seconds that the end of a volume waits for a store that does not take what is dirty.
    pub close_s: Option<u64>,
    /// Microseconds that a thread may look at its socket before it sleeps.
    pub busy_poll_us: Option<u64>,
}

/// Settings of a volume; in the file a table `[[volume]]`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct VolumeSettings {
    /// Its name.
    pub name: String,
    /// Its store, as text.
    pub store: String,
    /// A line for people.
    pub description: Option<String>,
    /// Bytes; a file is made with it.
    pub size: Option<String>,
    /// Share of the cache, or `off`.
    pub cache: Option<String>,
    /// Replacement policy.
    pub policy: Option<String>,
    /// Placement.
    pub placement: Option<String>,
    /// Where evictions are known from: `told` by clients, or `estimate` for those that tell none.
    pub evictions: Option<String>,
    /// Bytes of the clients' caches together, where a policy emulates them.
    pub client_cache: Option<String>,
    /// When evicted blocks are read back: `idle` or `at-once`.
    pub reloads: Option<String>,
    /// What the server below is told of blocks that leave: `nothing`, `evictions`, `demotions`.
    pub report: Option<String>,
    /// `through`, `back` or `around`.
    pub write: Option<String>,
    /// Block size.
    pub block: Option<String>,
    /// Parts of the cache with a lock of their own.
    pub shards: Option<u32>,
    /// Bytes to fetch ahead of sequential reads.
    pub read_ahead: Option<String>,
    /// Refuse changes.
    pub read_only: bool,
    /// Only over TLS.
    pub tls_required: bool,
    /// Certificates (common names) that may open it; empty: all.
    pub clients: Vec<String>,
    /// Those of them that may write; empty: all.
    pub writers: Vec<String>,
    /// Connections at a time.
    pub connections: Option<usize>,
    /// Requests a second, all connections together.
    pub requests_per_second: Option<u32>,
    /// Write-back: seconds that a change may wait.
    pub dirty_age_s: Option<u64>,
    /// Write-back: percent of the cache that may be dirty before that.
    pub dirty_percent: Option<u8>,
    /// Seconds that a client waits for the store before it is told EIO; 0: for ever.
    pub store_timeout_s: Option<u64>,
}

/// The options after `NAME=STORE`, each with what it does to the settings.
type Setter = fn(&mut VolumeSettings, &str) -> Result<(), String>;
const OPTIONS: [(&str, Setter); 23] = [
    ("size", |v, t| text(&mut v.size, t)),
    ("cache", |v, t| text(&mut v.cache, t)),
    ("policy", |v, t| text(&mut v.policy, t)),
    ("placement", |v, t| text(&mut v.placement, t)),
    ("evictions", |v, t| text(&mut v.evictions, t)),
    ("client-cache", |v, t| text(&mut v.client_cache, t)),
    ("reloads", |v, t| text(&mut v.reloads, t)),
    ("report", |v, t| text(&mut v.report, t)),
    ("write", |v, t| text(&mut v.write, t)),
    ("block", |v, t| text(&mut v.block, t)),
    ("read-ahead", |v, t| text(&mut v.read_ahead, t)),
    ("description", |v, t| text(&mut v.description, t)),
    ("shards", |v, t| number(&mut v.shards, t)),
    ("connections", |v, t| number(&mut v.connections, t)),
    ("requests-per-second", |v, t| number(&mut v.requests_per_second, t)),
    ("dirty-age-s", |v, t| number(&mut v.dirty_age_s, t)),
    ("dirty-percent", |v, t| number(&mut v.dirty_percent, t)),
    ("store-timeout-s", |v, t| number(&mut v.store_timeout_s, t)),
    ("read-only", |v, t| flag(&mut v.read_only, t)),
    ("tls-required", |v, t| flag(&mut v.tls_required, t)),
    ("client", |v, t| list(&mut v.clients, t)),
    ("writer", |v, t| list(&mut v.writers, t)),
    ("name", |_, _| Err("stands before the store".to_owned())),
];

/// The pieces between the commas that are in no parentheses.
fn outside_parentheses(text: &str) -> Vec<&str> {
    let (mut pieces, mut start, mut depth) = (Vec::new(), 0, 0_u32);
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                pieces.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    pieces.push(&text[start..]);
    pieces
}

fn text(to: &mut Option<String>, value: &str) -> Result<(), String> {
    *to = Some(value.to_owned());
    Ok(())
}

fn number<T: std::str::FromStr>(to: &mut Option<T>, value: &str) -> Result<(), String> {
    *to = Some(value.parse().map_err(|_| format!("'{value}' is no number that fits"))?);
    Ok(())
}

fn flag(to: &mut bool, value: &str) -> Result<(), String> {
    match value {
        "" | "true" => *to = true,
        "false" => *to = false,
        other => return Err(format!("'{other}': expected true or false")),
    }
    Ok(())
}

fn list(to: &mut Vec<String>, value: &str) -> Result<(), String> {
    to.push(value.to_owned());
    Ok(())
}

impl VolumeSettings {
    /// Reads `NAME=STORE[,key=value]...`. A comma that no known key follows belongs to what stands
    /// before it: to the store's path, or to a policy's parameters.
    ///
    /// # Errors
    /// Names the part that is not understood.
    pub fn parse(text: &str) -> Result<VolumeSettings, String> {
        let wrong = |what: String| format!("volume '{text}': {what}");
        let (name, rest) = text
            .split_once('=')
            .ok_or_else(|| wrong("expected NAME=STORE, as demo=file:./demo.img".to_owned()))?;
        let mut parts = Vec::<(Option<Setter>, &str, String)>::new();
        for piece in outside_parentheses(rest) {
            let (key, value) = piece.split_once('=').unwrap_or((piece, ""));
            let known = OPTIONS.iter().find(|(name, _)| *name == key);
            match (known, parts.last_mut()) {
                (Some((_, set)), Some(_)) => parts.push((Some(*set), key, value.to_owned())),
                (_, Some((_, _, before))) => {
                    before.push(',');
                    before.push_str(piece);
                }
                (_, None) => parts.push((None, "store", piece.to_owned())),
            }
        }
        let mut volume = VolumeSettings { name: name.to_owned(), ..VolumeSettings::default() };
        for (set, key, value) in parts {
            match set {
                None => volume.store = value,
                Some(set) => {
                    set(&mut volume, &value).map_err(|what| wrong(format!("{key}: {what}")))?;
                }
            }
        }
        Ok(volume)
    }
}

impl Settings {
    /// The file's settings. Paths of stores in it are as they stand: from the folder that the
    /// server runs in.
    ///
    /// # Errors
    /// The file cannot be read, or the line of what is not understood.
    pub fn from_file(path: &Path) -> Result<Settings, String> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| format!("configuration {}: {error}", path.display()))?;
        toml::from_str(&text).map_err(|error| {
            let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
            let line = 1 + before.matches('\n').count();
            let what = error.message().lines().collect::<Vec<_>>().join("; ");
            format!("{}, line {line}: {what}", path.display())
        })
    }

    /// The environment's settings: `UNDERCROFT_LISTEN` and `UNDERCROFT_VOLUME` (several separated
    /// by blanks), `UNDERCROFT_CACHE`, `_POLICY`, `_PLACEMENT`, `_WRITE`, `_BLOCK`, `_SHARDS`,
    /// `_HTTP`, `_STATE`, `_UNWRITTEN`.
    ///
    /// # Errors
    /// Names the variable that is not understood.
    pub fn from_environment(
        variables: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Settings, String> {
        let all: BTreeMap<String, String> = variables.into_iter().collect();
        let get = |name: &str| {
            all.get(&format!("UNDERCROFT_{name}")).filter(|value| !value.is_empty()).cloned()
        };
        let words = |name: &str| {
            let value = get(name).unwrap_or_default();
            value.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
        };
        let shards = get("SHARDS").map(|value| {
            value.parse().map_err(|_| format!("UNDERCROFT_SHARDS: '{value}' is no number"))
        });
        let volumes = words("VOLUME").iter().map(|text| VolumeSettings::parse(text)).collect();
        Ok(Settings {
            listen: words("LISTEN"),
            volumes: volumes_or(volumes, "UNDERCROFT_VOLUME")?,
            cache: get("CACHE"),
            policy: get("POLICY"),
            placement: get("PLACEMENT"),
            write: get("WRITE"),
            block: get("BLOCK"),
            shards: shards.transpose()?,
            http: get("HTTP"),
            state: get("STATE").map(PathBuf::from),
            unwritten: get("UNWRITTEN").map(PathBuf::from),
            ..Settings::default()
        })
    }

    /// These settings, and where they do not say, those.
    pub fn or(self, then: Settings) -> Settings {
        let first = |a: Vec<String>, b| if a.is_empty() { b } else { a };
        Settings {
            listen: first(self.listen, then.listen),
            volumes: if self.volumes.is_empty() { then.volumes } else { self.volumes },
            cache: self.cache.or(then.cache),
            policy: self.policy.or(then.policy),
            placement: self.placement.or(then.placement),
            write: self.write.or(then.write),
            block: self.block.or(then.block),
            shards: self.shards.or(then.shards),
            http: self.http.or(then.http),
            state: self.state.or(then.state),
            state_interval_s: self.state_interval_s.or(then.state_interval_s),
            unwritten: self.unwritten.or(then.unwritten),
            tls: TlsSettings {
                mode: self.tls.mode.or(then.tls.mode),
                certificate: self.tls.certificate.or(then.tls.certificate),
                key: self.tls.key.or(then.tls.key),
                client_roots: self.tls.client_roots.or(then.tls.client_roots),
                upstream_roots: self.tls.upstream_roots.or(then.tls.upstream_roots),
                upstream_certificate: self
                    .tls
                    .upstream_certificate
                    .or(then.tls.upstream_certificate),
                upstream_key: self.tls.upstream_key.or(then.tls.upstream_key),
            },
            limits: LimitSettings {
                connections: self.limits.connections.or(then.limits.connections),
                negotiating: self.limits.negotiating.or(then.limits.negotiating),
                requests: self.limits.requests.or(then.limits.requests),
                bytes: self.limits.bytes.or(then.limits.bytes),
                volume_bytes: self.limits.volume_bytes.or(then.limits.volume_bytes),
                total_bytes: self.limits.total_bytes.or(then.limits.total_bytes),
                stall_s: self.limits.stall_s.or(then.limits.stall_s),
                handshake_s: self.limits.handshake_s.or(then.limits.handshake_s),
                close_s: self.limits.close_s.or(then.limits.close_s),
                busy_poll_us: self.limits.busy_poll_us.or(then.limits.busy_poll_us),
            },
        }
    }
}

fn volumes_or(
    volumes: Result<Vec<VolumeSettings>, String>,
    place: &str,
) -> Result<Vec<VolumeSettings>, String> {
    volumes.map_err(|what| format!("{place}: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_belong_to_what_stands_before_them() {
        let volume = VolumeSettings::parse(
            "db=delay(2ms,queue=4):file(direct,size=1GiB):/srv/a,b.img,size=1GiB,policy=mq,m=4,qout=2,read-only",
        )
        .unwrap();
        assert_eq!(volume.name, "db");
        assert_eq!(volume.store, "delay(2ms,queue=4):file(direct,size=1GiB):/srv/a,b.img");
        assert_eq!(volume.size.as_deref(), Some("1GiB"));
        assert_eq!(volume.policy.as_deref(), Some("mq,m=4,qout=2"));
        assert!(volume.read_only);
        assert!(VolumeSettings::parse("demo").is_err());
        assert!(VolumeSettings::parse("demo=mem:,shards=many").is_err());
    }

    #[test]
    fn flags_go_before_the_file_and_the_file_before_the_environment() {
        let file: Settings = toml::from_str(
            "cache = '1GiB'\nlisten = ['[::1]:1']\n[[volume]]\nname = 'a'\nstore = 'mem:'\n",
        )
        .unwrap();
        let variables = [("UNDERCROFT_CACHE", "2GiB"), ("UNDERCROFT_POLICY", "arc")];
        let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let environment = Settings::from_environment(variables).unwrap();
        let flags = Settings { listen: vec!["unix:x".to_owned()], ..Settings::default() };
        let all = flags.or(file).or(environment);
        assert_eq!(all.listen, ["unix:x"]);
        assert_eq!(all.cache.as_deref(), Some("1GiB"));
        assert_eq!(all.policy.as_deref(), Some("arc"));
        assert_eq!(all.volumes[0].store, "mem:");
        assert!(toml::from_str::<Settings>("chache = '1GiB'").is_err());
    }
}
