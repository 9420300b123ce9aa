//! A server as it is to be: the settings, understood and checked. Nothing is opened here.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use undercroft_cache::movement::SchemeSpec;
use undercroft_cache::placement::Placement;
use undercroft_cache::policy::Spec;
use undercroft_nbd::ClientTlsFiles;
use undercroft_nbd::report::Report;
use undercroft_store::StoreSpec;

use super::reporting::{Reporting, reporting};
use super::settings::{Settings, TlsSettings, VolumeSettings};
use crate::config::{VolumeConfig, Write};

const DEFAULT_LISTEN: &str = "127.0.0.1:10809";
const DEFAULT_CACHE_BYTES: u64 = 256 << 20;
/// With the time that connections have to end, less than service managers wait before they kill.
const DEFAULT_CLOSE_S: u64 = 30;
/// About what it takes to wake a thread.
const DEFAULT_BUSY_POLL_US: u64 = 50;

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
        if let Some(path) = text.strip_prefix("unix:") {
            return match path {
                "" => Err(format!("address '{text}': the path is missing")),
                path => Ok(Address::Unix(PathBuf::from(path))),
            };
        }
        let port = text
            .rsplit_once(':')
            .and_then(|(host, port)| (!host.is_empty()).then_some(port)?.parse::<u16>().ok());
        match port {
            Some(_) => Ok(Address::Tcp(text.to_owned())),
            None => Err(format!(
                "address '{text}': expected HOST:PORT, as 127.0.0.1:10809 or [::1]:10809, or \
                 unix:PATH"
            )),
        }
    }
}

/// A volume to open.
#[derive(Clone, Debug)]
pub struct PlannedVolume {
    /// Where its bytes are.
    pub store: StoreSpec,
    /// Bytes, if told.
    pub size: Option<u64>,
    /// Its share of the cache in bytes; none: it gets an equal part of what is left.
    pub own_cache: Option<u64>,
    /// What the server below is told, if the store is one.
    pub report: Reporting,
    /// Whether the store runs the next level of the volume's scheme.
    pub has_level_below: bool,
    /// Everything else.
    pub config: VolumeConfig,
    /// Who may open it, and how much they may ask for.
    pub access: Access,
}

/// Who may use a volume, and how much of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// Only over TLS.
    pub tls_required: bool,
    /// Common names of the certificates that may open it; empty: all.
    pub clients: Vec<String>,
    /// Common names of those that may write; empty: all that may open it.
    pub writers: Vec<String>,
    /// Connections at a time.
    pub connections: Option<usize>,
    /// Requests a second, all connections together.
    pub requests_per_second: Option<u32>,
}

/// Whether connections are encrypted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TlsPlan {
    /// No.
    Off,
    /// If the client wants.
    Offered(TlsPaths),
    /// Always.
    Required(TlsPaths),
}

/// Where the keys are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsPaths {
    /// The server's certificates.
    pub certificates: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// Roots of clients' certificates.
    pub client_roots: Option<PathBuf>,
}

/// A server to be.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where to listen; at least one.
    pub listen: Vec<Address>,
    /// Where to listen for HTTP.
    pub http: Option<String>,
    /// The volumes; at least one.
    pub volumes: Vec<PlannedVolume>,
    /// Bytes of all caches together.
    pub cache_bytes: u64,
    /// Folder for what a restart needs.
    pub state: Option<PathBuf>,
    /// Time between two savings of it.
    pub state_interval: Duration,
    /// Folder for what stores do not take by the end.
    pub unwritten: Option<PathBuf>,
    /// How long the end of a volume waits for a store that does not take what is dirty.
    pub close_patience: Duration,
    /// TLS towards clients.
    pub tls: TlsPlan,
    /// TLS towards upstream servers.
    pub upstream_tls: Option<ClientTlsFiles>,
    /// Connections at a time.
    pub max_connections: usize,
    /// Requests in flight on a connection.
    pub max_requests: usize,
    /// Bytes in flight on a connection.
    pub max_bytes: u64,
    /// Time that a handshake may take.
    pub handshake_timeout: Duration,
    /// Longest time that a thread looks at its socket before it sleeps.
    pub busy_poll: Duration,
}

impl Plan {
    /// Understands the settings.
    ///
    /// # Errors
    /// Says what makes no sense, and what was expected.
    pub fn new(settings: &Settings) -> Result<Plan, String> {
        if settings.volumes.is_empty() {
            return Err("nothing to serve: give a volume, as --volume \
                        demo=file:./demo.img,size=1GiB"
                .to_owned());
        }
        let listen = match settings.listen.as_slice() {
            [] => vec![DEFAULT_LISTEN.parse()?],
            some => some.iter().map(|text| text.parse()).collect::<Result<_, _>>()?,
        };
        if let Some(http) = &settings.http {
            if matches!(http.parse()?, Address::Unix(_)) {
                return Err(format!("http address '{http}': expected HOST:PORT"));
            }
        }
        let cache_bytes =
            settings.cache.as_deref().map_or(Ok(DEFAULT_CACHE_BYTES), |t| bytes("cache", t))?;
        let volumes = volumes(settings, cache_bytes)?;
        let tls = tls(settings)?;
        check_access(&volumes, &tls)?;
        let limits = &settings.limits;
        let max_bytes =
            limits.bytes.as_deref().map_or(Ok(64 << 20), |t| bytes("limits.bytes", t))?;
        Ok(Plan {
            listen,
            http: settings.http.clone(),
            volumes,
            cache_bytes,
            state: settings.state.clone(),
            state_interval: Duration::from_secs(settings.state_interval_s.unwrap_or(300).max(1)),
            unwritten: settings.unwritten.clone(),
            close_patience: close_patience(settings),
            tls,
            upstream_tls: upstream_tls(&settings.tls)?,
            max_connections: limits.connections.unwrap_or(4096).max(1),
            max_requests: limits.requests.unwrap_or(1024).max(1),
            max_bytes,
            handshake_timeout: Duration::from_secs(limits.handshake_s.unwrap_or(20).max(1)),
            busy_poll: busy_poll(limits.busy_poll_us)?,
        })
    }
}

fn tls(settings: &Settings) -> Result<TlsPlan, String> {
    let tls = &settings.tls;
    let paths = match (&tls.certificate, &tls.key) {
        (Some(certificates), Some(key)) => Some(TlsPaths {
            certificates: certificates.clone(),
            key: key.clone(),
            client_roots: tls.client_roots.clone(),
        }),
        (None, None) => None,
        _ => return Err("tls: a certificate and a key belong together".to_owned()),
    };
    match (tls.mode.as_deref(), paths) {
        (None | Some("off"), None) | (Some("off"), Some(_)) => Ok(TlsPlan::Off),
        (None | Some("offered"), Some(paths)) => Ok(TlsPlan::Offered(paths)),
        (Some("required"), Some(paths)) => Ok(TlsPlan::Required(paths)),
        (Some("offered" | "required"), None) => {
            Err("tls: a certificate and a key are missing".to_owned())
        }
        (Some(other), _) => Err(format!("tls mode '{other}': expected off, offered or required")),
    }
}

/// Whom stores at `nbds://` are trusted by, and what they are shown.
fn upstream_tls(tls: &TlsSettings) -> Result<Option<ClientTlsFiles>, String> {
    let identity = match (&tls.upstream_certificate, &tls.upstream_key) {
        (Some(certificate), Some(key)) => Some((certificate.clone(), key.clone())),
        (None, None) => None,
        _ => return Err("tls: an upstream certificate and a key belong together".to_owned()),
    };
    match (tls.upstream_roots.clone(), identity) {
        (Some(roots), identity) => Ok(Some(ClientTlsFiles { roots, identity })),
        (None, None) => Ok(None),
        (None, Some(_)) => Err("tls: upstream-roots are missing".to_owned()),
    }
}

fn close_patience(settings: &Settings) -> Duration {
    Duration::from_secs(settings.limits.close_s.unwrap_or(DEFAULT_CLOSE_S))
}

/// Longer than a hundredth of a second is a processor lost, and no use to anybody.
fn busy_poll(us: Option<u64>) -> Result<Duration, String> {
    match us.unwrap_or(DEFAULT_BUSY_POLL_US) {
        us @ 0..=10_000 => Ok(Duration::from_micros(us)),
        us => Err(format!("limits.busy-poll-us {us}: expected 0 (never) to 10000")),
    }
}

/// Refuses volumes that nobody could open, or write where some are meant to.
fn check_access(volumes: &[PlannedVolume], tls: &TlsPlan) -> Result<(), String> {
    let paths = match tls {
        TlsPlan::Off => None,
        TlsPlan::Offered(paths) | TlsPlan::Required(paths) => Some(paths),
    };
    for volume in volumes {
        let (name, access) = (&volume.config.name, &volume.access);
        if access.tls_required && paths.is_none() {
            return Err(format!(
                "volume '{name}': tls-required, and there is no TLS: give a certificate and a key"
            ));
        }
        let lists = !access.clients.is_empty() || !access.writers.is_empty();
        if lists && paths.is_none_or(|paths| paths.client_roots.is_none()) {
            return Err(format!(
                "volume '{name}': clients and writers are known by their certificates: give the \
                 roots of these (client-roots)"
            ));
        }
    }
    Ok(())
}

/// The volumes, with their shares of the cache.
fn volumes(settings: &Settings, cache_bytes: u64) -> Result<Vec<PlannedVolume>, String> {
    let mut fixed = 0_u64;
    let mut sharing = 0_u64;
    for volume in &settings.volumes {
        match cache_share(volume)? {
            Some(bytes) => fixed = fixed.saturating_add(bytes),
            None => sharing += 1,
        }
    }
    if fixed > cache_bytes {
        return Err(format!(
            "the volumes' shares add up to {fixed} bytes of cache, and there are {cache_bytes}"
        ));
    }
    let rest = (cache_bytes - fixed).checked_div(sharing).unwrap_or(0);
    let mut planned = Vec::<PlannedVolume>::new();
    for volume in &settings.volumes {
        let one = planned_volume(settings, volume, rest)
            .map_err(|what| format!("volume '{}': {what}", volume.name))?;
        if planned.iter().any(|other| other.config.name == volume.name) {
            return Err(format!("volume '{}' is there twice", volume.name));
        }
        planned.push(one);
    }
    Ok(planned)
}

/// The share that a volume asks for; none: an equal part of the rest.
fn cache_share(volume: &VolumeSettings) -> Result<Option<u64>, String> {
    match volume.cache.as_deref() {
        None => Ok(None),
        Some("off") => Ok(Some(0)),
        Some(text) => bytes("cache", text).map(Some),
    }
}

fn planned_volume(
    settings: &Settings,
    volume: &VolumeSettings,
    rest: u64,
) -> Result<PlannedVolume, String> {
    let name = &volume.name;
    if name.is_empty() || name.len() > 255 || name.starts_with('@') || name.contains(['/', '\0']) {
        return Err("expected a name of 1 to 255 bytes without '/', not beginning with '@'".into());
    }
    let store = volume.store.parse::<StoreSpec>().map_err(|error| error.to_string())?;
    let or = |own: &Option<String>, all: &Option<String>, default: &str| {
        own.as_ref().or(all.as_ref()).map_or(default, String::as_str).to_owned()
    };
    let block = bytes("block", &or(&volume.block, &settings.block, "4KiB"))?;
    let block = u32::try_from(block).map_err(|_| "block: too large".to_owned())?;
    let placement = or(&volume.placement, &settings.placement, "access");
    let scheme = scheme(&placement)?;
    let usual = if scheme.is_some() { "lru" } else { "mq" };
    let policy = or(&volume.policy, &settings.policy, usual);
    if let (Some(scheme), true) = (&scheme, policy != usual) {
        let name = scheme.info().name;
        return Err(format!(
            "placement {name}, policy {policy}: the scheme itself decides what is kept; leave \
             policy= out"
        ));
    }
    let policy = policy.parse::<Spec>().map_err(|error| error.to_string())?;
    let placement = if scheme.is_some() { "access" } else { placement.as_str() };
    let placement = placement.parse::<Placement>().map_err(|error| error.to_string())?;
    if placement.is_by_cost() {
        return Err(
            "placement: down=auto is for simulations with a clock; here each client decides \
                    whether it sends what it evicts: leave it out"
                .into(),
        );
    }
    let cache_bytes = cache_share(volume)?.unwrap_or(rest);
    let blocks = cache_bytes / u64::from(block.max(1));
    let is_off = volume.cache.as_deref() == Some("off");
    if blocks == 0 && !is_off {
        return Err(format!(
            "{cache_bytes} bytes of cache hold no block of {block} bytes: give it more, or \
             cache=off"
        ));
    }
    let blocks = u32::try_from(blocks).ok().filter(|&blocks| blocks < 1 << 31);
    let blocks = blocks.ok_or("cache: more than 2147483647 blocks; choose larger blocks")?;
    let mut config = VolumeConfig::new(name, blocks, policy);
    config.block_bytes = block;
    config.description = volume.description.clone().unwrap_or_default();
    config.write = match or(&volume.write, &settings.write, "through").as_str() {
        "through" => Write::Through,
        "back" => Write::Back,
        "around" => Write::Around,
        other => return Err(format!("write '{other}': expected through, back or around")),
    };
    config.placement = placement;
    config.scheme = scheme;
    config.close_patience = close_patience(settings);
    config.estimate = choice("evictions", &volume.evictions, ["told", "estimate"])?;
    let client =
        volume.client_cache.as_deref().map(|text| bytes("client-cache", text)).transpose()?;
    let client = client.map(|bytes| (bytes / u64::from(block.max(1))).clamp(1, 1 << 30) as u32);
    config.client_blocks = client;
    config.reload_at_once = choice("reloads", &volume.reloads, ["idle", "at-once"])?;
    if placement == Placement::Access && (config.estimate || config.reload_at_once) {
        let why = "with placement access nobody asks what clients evict, and nothing is reloaded";
        return Err(format!("evictions, reloads: {why}; choose placement=eviction, or leave them"));
    }
    config.shards = volume.shards.or(settings.shards).unwrap_or(1).max(1);
    config.read_only = volume.read_only;
    config.read_ahead_bytes =
        volume.read_ahead.as_deref().map_or(Ok(0), |text| bytes("read-ahead", text))?;
    if let Some(age) = volume.dirty_age_s {
        config.dirty_age = Duration::from_secs(age.max(1));
    }
    if let Some(percent) = volume.dirty_percent {
        if !(1..=100).contains(&percent) {
            return Err(format!("dirty-percent {percent}: expected 1 to 100"));
        }
        config.dirty_share = f64::from(percent) / 100.0;
    }
    let access = Access {
        tls_required: volume.tls_required,
        clients: volume.clients.clone(),
        writers: volume.writers.clone(),
        connections: volume.connections,
        requests_per_second: volume.requests_per_second,
    };
    let size = volume.size.as_deref().map(|text| bytes("size", text)).transpose()?;
    let is_level = config.scheme.is_some();
    let report = reporting(volume, &store, is_off)?;
    let says_nothing = volume.report.is_some() && report.report == Report::Nothing;
    if is_level && report.report != Report::Nothing {
        return Err(format!(
            "report={report}: a level of a scheme says more than that to the next one by itself; \
             leave report= out, or report=nothing where the store runs none"
        ));
    }
    let has_level_below = is_level && !says_nothing && matches!(store, StoreSpec::Upstream(_));
    let own_cache = cache_share(volume)?;
    Ok(PlannedVolume { store, size, own_cache, report, has_level_below, config, access })
}

/// The scheme of movement that a placement is, if it is one.
fn scheme(placement: &str) -> Result<Option<SchemeSpec>, String> {
    let name = placement.split(',').next().unwrap_or_default();
    if !SchemeSpec::is_known(name) {
        return Ok(None);
    }
    let scheme = placement.parse::<SchemeSpec>().map_err(|error| error.to_string())?;
    if !scheme.is_linked() {
        return Err(format!(
            "placement {name} runs in simulations only; here d-hfa, p-hfa, h-hfa and hint-k do"
        ));
    }
    Ok(Some(scheme))
}

/// Whether the second of two words was chosen; the first is the default.
fn choice(what: &str, given: &Option<String>, words: [&str; 2]) -> Result<bool, String> {
    match given.as_deref() {
        None => Ok(false),
        Some(word) if words.contains(&word) => Ok(word == words[1]),
        Some(other) => Err(format!("{what} '{other}': expected {} or {}", words[0], words[1])),
    }
}

/// A size in bytes: `4096`, `64KiB`, `512MiB`, `2GiB`, `1TiB`.
fn bytes(what: &str, text: &str) -> Result<u64, String> {
    let units = [("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("TiB", 1_u64 << 40)];
    let unit = units.iter().find_map(|&(unit, factor)| Some((text.strip_suffix(unit)?, factor)));
    let (number, factor) = unit.unwrap_or((text, 1));
    let number = number.trim().parse::<u64>().ok().and_then(|number| number.checked_mul(factor));
    number.ok_or_else(|| format!("{what} '{text}': expected a size, as 4096, 64KiB or 2GiB"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(volumes: &[&str], cache: &str) -> Result<Plan, String> {
        let volumes = volumes.iter().map(|text| VolumeSettings::parse(text)).collect();
        let cache = Some(cache.to_owned());
        Plan::new(&Settings { volumes: volumes_ok(volumes), cache, ..Settings::default() })
    }

    fn volumes_ok(volumes: Result<Vec<VolumeSettings>, String>) -> Vec<VolumeSettings> {
        volumes.unwrap()
    }

    #[test]
    fn shares_of_the_cache() {
        let plan = plan(
            &["a=mem:,cache=1MiB", "b=mem:", "c=mem:,block=64KiB", "d=mem:,cache=off"],
            "3MiB",
        )
        .unwrap();
        let blocks: Vec<_> = plan.volumes.iter().map(|v| v.config.cache_blocks).collect();
        assert_eq!(blocks, [256, 256, 16, 0]);
    }

    #[test]
    fn busy_polling_is_bounded() {
        let with = |us| {
            let limits = crate::serve::LimitSettings { busy_poll_us: us, ..Default::default() };
            let volumes =
                volumes_ok(vec![VolumeSettings::parse("a=mem:,size=1MiB")].into_iter().collect());
            Plan::new(&Settings { volumes, limits, ..Settings::default() }).map(|p| p.busy_poll)
        };
        assert_eq!(with(None), Ok(Duration::from_micros(50)));
        assert_eq!(with(Some(0)), Ok(Duration::ZERO));
        assert!(with(Some(10_001)).is_err_and(|text| text.contains("busy-poll-us 10001")));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for volume in [
            "a=mem:,cache=2MiB",
            "a=mem:,block=3",
            "a=mem:,write=sideways",
            "a=mem:,policy=fancy",
            "a=mem:,placement=sideways",
            "a=mem:,placement=eviction,down=auto",
            "a=mem:,placement=access,reloads=at-once",
            "a=mem:,placement=eviction,evictions=guessed",
            "a=nothing:",
            "@a=mem:",
            "a=mem:,dirty-percent=0",
            "a=mem:,report=evictions",
            "a=delay(1ms):nbd://h/d,report=evictions",
            "a=nbd://h/d,report=sideways",
            "a=nbd://h/d,report=demotions,batch=65",
            "a=nbd://h/d,report=demotions,cache=off",
        ] {
            let refused = plan(&[volume], "1MiB").err();
            // A block size is checked where the volume is opened.
            assert!(refused.is_some() || volume.contains("block"), "{volume}");
        }
        let reports = ["a=mem:,report=nothing", "b=nbd://h/d,report=demotions,batch=64"];
        assert!(reports.iter().all(|volume| plan(&[volume], "1MiB").is_ok()));
        assert!(plan(&[], "1MiB").is_err());
        assert!(plan(&["a=mem:", "a=mem:"], "1MiB").is_err());
        for address in ["10809", ":10809", "unix:", "host:99999"] {
            assert!(address.parse::<Address>().is_err(), "{address}");
        }
    }
}
