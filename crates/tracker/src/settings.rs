//! The settings from the environment, as checked types. They are read once, before `main`, because
//! programs may overwrite their environment.

use std::path::{Path, PathBuf};

use undercroft_hints::ClientId;
use undercroft_nbd::{Endpoint, Uri};

use crate::groups;
use crate::segment::layout::VOLUMES_MAX;

/// Devices and their servers: `DEVICE=URI[;DEVICE=URI...]`.
pub const VOLUMES: &str = "UNDERCROFT_VOLUMES";
/// Patterns of tracked paths, separated by colons.
pub const TRACK: &str = "UNDERCROFT_TRACK";
/// The client's id, equal to that of its data connections, optionally followed by a colon and its
/// key.
pub const CLIENT: &str = "UNDERCROFT_CLIENT";
/// Whose memory counts as frames.
pub const FRAMES: &str = "UNDERCROFT_FRAMES";
/// Whether reads bypass the kernel's page cache.
pub const BYPASS: &str = "UNDERCROFT_BYPASS";
/// Whether the contents of evicted blocks are handed over to servers that want them.
pub const CONTENTS: &str = "UNDERCROFT_CONTENTS";
/// The folder of the segment.
pub const SEGMENT_DIR: &str = "UNDERCROFT_SEGMENT_DIR";
/// Bytes of client memory for which the table has room.
pub const POOL: &str = "UNDERCROFT_POOL";
/// The destination of log lines: a path, or `stderr`.
pub const LOG: &str = "UNDERCROFT_LOG";

/// All variables.
pub const ALL: [&str; 9] =
    [VOLUMES, TRACK, CLIENT, FRAMES, BYPASS, CONTENTS, SEGMENT_DIR, POOL, LOG];

/// Largest pool, in bytes: 1 TiB.
const POOL_MAX: u64 = 1 << 40;

/// Whose memory counts as frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Frames {
    /// The memory of every process; private memory is a separate space for each.
    #[default]
    All,
    /// Of forked processes only the memory that they share with the first process.
    Shared,
}

/// A tracked volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume {
    /// A block device, or a regular file that is the volume.
    pub device: PathBuf,
    /// Its export.
    pub uri: Uri,
}

/// The destination of log lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Log {
    /// Nowhere.
    #[default]
    Nowhere,
    /// The standard error of the program.
    Stderr,
    /// A file, to which lines are appended.
    File(PathBuf),
}

/// The settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The tracked volumes, 1 to 8.
    pub volumes: Vec<Volume>,
    /// Patterns of tracked paths (`*` any text, `?` one character); if empty, all paths are
    /// tracked.
    pub track: Vec<String>,
    /// The client as which the tracker speaks to the server. `None` speaks for all connections
    /// without an id, such as those of kernel drivers and virtual machines.
    pub client: Option<ClientId>,
    /// Whose memory counts as frames.
    pub frames: Frames,
    /// Whether reads bypass the kernel's page cache.
    pub bypass: bool,
    /// Whether the contents of evicted blocks are handed over to servers that want them.
    pub contents: bool,
    /// Folder of the segment.
    pub segment_dir: PathBuf,
    /// Bytes of client memory for which the table has room. Doubling it does not improve the table.
    pub pool: u64,
    /// The destination of log lines.
    pub log: Log,
}

/// The error of an invalid setting.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name}: {what}")]
pub struct SettingsError {
    name: &'static str,
    what: String,
}

impl Settings {
    /// The settings from the environment; `None` if nothing is tracked ([`VOLUMES`] is unset or
    /// empty).
    ///
    /// # Errors
    /// The variable that is invalid, and why.
    pub fn from_env() -> Result<Option<Settings>, SettingsError> {
        Self::parse(|name| std::env::var_os(name).map(|value| value.to_string_lossy().into()))
    }

    /// The settings from any source of variables; `None` if nothing is tracked.
    ///
    /// # Errors
    /// As for [`Settings::from_env`].
    pub fn parse(
        value: impl Fn(&'static str) -> Option<String>,
    ) -> Result<Option<Settings>, SettingsError> {
        let of = |name| value(name).filter(|text| !text.is_empty());
        let Some(volumes) = of(VOLUMES) else { return Ok(None) };
        let wrong = |name, what: &str| SettingsError { name, what: what.to_owned() };
        let frames = match of(FRAMES).as_deref() {
            None | Some("all") => Frames::All,
            Some("shared") => Frames::Shared,
            Some(_) => return Err(wrong(FRAMES, "expected all or shared")),
        };
        let switch = |name, default| match of(name).as_deref() {
            None => Ok(default),
            Some("0") => Ok(false),
            Some("1") => Ok(true),
            Some(_) => Err(wrong(name, "expected 0 or 1")),
        };
        let (bypass, contents) = (switch(BYPASS, false)?, switch(CONTENTS, true)?);
        let client = of(CLIENT)
            .map(|id| id.parse::<ClientId>().map_err(|error| wrong(CLIENT, &error.to_string())));
        let pool = of(POOL).map(|bytes| {
            let bytes = bytes.parse().ok().filter(|bytes| (1..=POOL_MAX).contains(bytes));
            bytes.ok_or_else(|| wrong(POOL, "expected a number of bytes, 1 TiB at most"))
        });
        Ok(Some(Settings {
            volumes: volumes_of(&volumes).map_err(|what| SettingsError { name: VOLUMES, what })?,
            track: of(TRACK).iter().flat_map(|list| list.split(':')).map(str::to_owned).collect(),
            client: client.transpose()?,
            frames,
            bypass,
            contents,
            segment_dir: of(SEGMENT_DIR).map_or_else(|| "/dev/shm".into(), PathBuf::from),
            pool: pool.transpose()?.unwrap_or_else(default_pool),
            log: match of(LOG) {
                None => Log::Nowhere,
                Some(text) if text == "stderr" => Log::Stderr,
                Some(path) => Log::File(path.into()),
            },
        }))
    }

    /// Whether a path is tracked.
    pub fn counts(&self, path: &[u8]) -> bool {
        self.track.is_empty() || self.track.iter().any(|p| matches(p.as_bytes(), path))
    }
}

/// A quarter of the machine's memory, or of the control groups' limit.
fn default_pool() -> u64 {
    let system = rustix::system::sysinfo();
    let bytes = (system.totalram as u64).saturating_mul(system.mem_unit.into());
    let bytes = bytes.min(groups::memory_limit().unwrap_or(bytes));
    (bytes / 4).clamp(64 << 20, POOL_MAX)
}

fn volumes_of(list: &str) -> Result<Vec<Volume>, String> {
    let mut volumes = Vec::new();
    for part in list.split(';').filter(|part| !part.is_empty()) {
        let (device, uri) = part
            .split_once("=nbd")
            .ok_or_else(|| format!("'{part}': expected DEVICE=URI, the URI beginning with nbd"))?;
        let uri: Uri = format!("nbd{uri}").parse().map_err(|error| format!("{error}"))?;
        if uri.tls {
            let what = "TLS is not spoken from within a program: use a Unix socket, or a tunnel";
            return Err(format!("'{uri}': {what}"));
        }
        if let Endpoint::Unix(path) = &uri.endpoint {
            if !path.is_absolute() {
                return Err(format!("'{uri}': the path of the socket must begin with '/'"));
            }
        }
        if !Path::new(device).is_absolute() {
            return Err(format!("'{device}': the path of a device must begin with '/'"));
        }
        volumes.push(Volume { device: device.into(), uri });
    }
    match volumes.len() {
        1..=VOLUMES_MAX => Ok(volumes),
        count => Err(format!("{count} volumes: 1 to {VOLUMES_MAX} are possible")),
    }
}

/// Whether a text matches a pattern. `*` also matches slashes.
fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    // Where to resume if the text behind the last star does not match.
    let mut again: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                again = Some((p, t));
                p += 1;
            }
            Some(byte) if *byte == b'?' || *byte == text[t] => {
                p += 1;
                t += 1;
            }
            _ => {
                let Some((star, from)) = again else { return false };
                again = Some((star, from + 1));
                (p, t) = (star + 1, from + 1);
            }
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(pairs: &[(&'static str, &str)]) -> Result<Option<Settings>, SettingsError> {
        Settings::parse(|name| {
            pairs.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn nothing_is_tracked_unless_volumes_are_named() {
        assert_eq!(parse(&[]), Ok(None));
        assert_eq!(parse(&[(VOLUMES, ""), (FRAMES, "nonsense")]), Ok(None));
    }

    #[test]
    fn all_settings_are_understood() {
        let list = "/dev/sda=nbd://host/a;/img=nbd+unix:///b?socket=/run/s=1";
        let settings = parse(&[
            (VOLUMES, list),
            (TRACK, "*/base/*:*.ibd"),
            (CLIENT, "Ff:a0"),
            (FRAMES, "shared"),
            (BYPASS, "1"),
            (CONTENTS, "0"),
            (SEGMENT_DIR, "/tmp"),
            (POOL, "1048576"),
            (LOG, "stderr"),
        ]);
        let settings = settings.unwrap().unwrap();
        let client = ClientId { number: 255, key: Some(160) };
        assert_eq!(settings.volumes[0].device, Path::new("/dev/sda"));
        assert_eq!(settings.volumes[1].uri.endpoint, Endpoint::Unix("/run/s=1".into()));
        assert_eq!((settings.client, settings.frames), (Some(client), Frames::Shared));
        assert_eq!((settings.bypass, settings.contents, settings.pool), (true, false, 1 << 20));
        assert!(settings.counts(b"/data/base/1/2") && settings.counts(b"x.ibd"));
        assert!(!settings.counts(b"/data/pg_wal/1"));
    }

    #[test]
    fn nonsense_is_refused_in_words() {
        let good = (VOLUMES, "/dev/sda=nbd://host/a");
        for (pairs, part) in [
            (vec![(VOLUMES, "/dev/sda")], "expected DEVICE=URI"),
            (vec![(VOLUMES, "sda=nbd://host/a")], "must begin with '/'"),
            (vec![(VOLUMES, "/dev/sda=nbds://host/a")], "TLS"),
            (vec![(VOLUMES, "/dev/sda=nbd:///a")], "host is missing"),
            (vec![(VOLUMES, "/dev/sda=nbd+unix:///a?socket=s")], "path of the socket"),
            (vec![(VOLUMES, ";")], "0 volumes"),
            (vec![good, (CLIENT, "+1")], "hexadecimal"),
            (vec![good, (CLIENT, "1:")], "hexadecimal"),
            (vec![good, (FRAMES, "none")], "all or shared"),
            (vec![good, (BYPASS, "yes")], "0 or 1"),
            (vec![good, (CONTENTS, "yes")], "0 or 1"),
            (vec![good, (POOL, "1GiB")], "number of bytes"),
        ] {
            let error = parse(&pairs).unwrap_err().to_string();
            assert!(error.contains(part), "{pairs:?}: {error}");
        }
    }

    #[test]
    fn patterns_match_as_a_naive_matcher_says() {
        fn naive(pattern: &[u8], text: &[u8]) -> bool {
            match pattern.split_first() {
                None => text.is_empty(),
                Some((b'*', rest)) => (0..=text.len()).any(|from| naive(rest, &text[from..])),
                Some((b'?', rest)) => !text.is_empty() && naive(rest, &text[1..]),
                Some((byte, rest)) => text.first() == Some(byte) && naive(rest, &text[1..]),
            }
        }
        let words = |letters: &'static [u8], length: u32| {
            (0..=length).flat_map(move |length| {
                let base = letters.len() as u32;
                (0..base.pow(length)).map(move |number| {
                    let letter = |place| letters[(number / base.pow(place) % base) as usize];
                    (0..length).map(letter).collect::<Vec<u8>>()
                })
            })
        };
        for pattern in words(b"ab*?", 4) {
            for text in words(b"ab/", 4) {
                assert_eq!(
                    matches(&pattern, &text),
                    naive(&pattern, &text),
                    "{pattern:?} {text:?}"
                );
            }
        }
    }
}
