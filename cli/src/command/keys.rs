//! The keys of the server and of volumes in the help of `serve` and `set`, from the tables of keys.

use undercroft_server::VolumeConfig;
use undercroft_server::process::{Key, ServerConfig};

use crate::table::wrapped;

/// The help of the flag for a key of the server, such as `limits.close-s`, or of one that volumes
/// inherit.
pub(super) fn help(path: &str) -> String {
    let inherited = VolumeConfig::KEYS.iter().filter(|key| key.is_inherited);
    let mut keys = ServerConfig::keys().chain(inherited.map(|key| (key.name.to_owned(), key)));
    keys.find(|(known, _)| known == path).map(|(_, key)| told(key)).unwrap_or_default()
}

/// What a key says, and its default.
fn told(key: &Key) -> String {
    let help = key.help.trim_end_matches('.');
    key.default().map_or(help.to_owned(), |default| format!("{help} [default: {default}]"))
}

/// The names of all keys of a volume.
pub(super) fn names() -> String {
    let names: Vec<_> = of_volume().map(Key::flag).collect();
    let names = format!("{}. --help says what they are.", names.join(", "));
    wrapped(&names, "Keys of a volume:\n  ", "  ")
}

/// All keys of a volume, each with its help.
pub(super) fn all() -> String {
    let lines: Vec<_> = of_volume().map(line).collect();
    format!("Keys of a volume:\n{}", lines.join("\n"))
}

/// The keys that change while a volume is served, each with its help.
pub(super) fn live() -> String {
    let lines: Vec<_> = of_volume().filter(|key| key.changes.is_live()).map(line).collect();
    format!("Keys:\n{}", lines.join("\n"))
}

/// The keys that may follow NAME=STORE.
fn of_volume() -> impl Iterator<Item = &'static Key> {
    VolumeConfig::KEYS.iter().filter(|key| !["name", "store"].contains(&key.name))
}

fn line(key: &Key) -> String {
    let value = if key.flag() == key.name { key.value } else { "RULE" };
    let rest = " ".repeat(10);
    format!("  {}={value}\n{}", key.flag(), wrapped(&told(key), &rest, &rest))
}
