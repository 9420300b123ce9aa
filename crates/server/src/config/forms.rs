//! The text forms of option values in files and flags: modules for serde's `with`. Each form reads
//! what it writes as an equal value, so configurations can be compared in written form. The written
//! value has the type of the file's value (text, number, switch), which the parser of flags relies
//! on.
//!
//! An error message that begins with a blank or a colon follows the option's name, which the reader
//! of the whole tree adds ([`named`]).

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};
use undercroft_level::placement::{Placement, SIMULATED};
use undercroft_text::Bytes;

use super::{Address, CacheShare, ClientRule, FlashConfig, Reporting};

/// An error message with the name of the option in front, if it needs it.
pub(super) fn named(option: &str, message: &str) -> String {
    if message.starts_with([' ', ':']) { format!("{option}{message}") } else { message.to_owned() }
}

/// Parses a size.
///
/// # Errors
/// A message that must follow the name of an option.
pub(super) fn parse_size(text: &str) -> Result<u64, String> {
    let size = text.parse().map(|Bytes(bytes)| bytes);
    size.map_err(|_| {
        format!(" '{text}': expected a size, as 64KiB, 512M or 1.5GiB (1MB is 1000000 bytes)")
    })
}

/// A size as it stands in a file: text with a unit, or a number of bytes.
pub(super) struct SizeText(pub(super) String);

impl<'de> Deserialize<'de> for SizeText {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<SizeText, D::Error> {
        from.deserialize_any(SizeVisitor)
    }
}

struct SizeVisitor;

impl Visitor<'_> for SizeVisitor {
    type Value = SizeText;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a size, as \"64KiB\", \"1.5GiB\" or a whole number of bytes")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<SizeText, E> {
        Ok(SizeText(text.to_owned()))
    }

    fn visit_u64<E: Error>(self, bytes: u64) -> Result<SizeText, E> {
        Ok(SizeText(bytes.to_string()))
    }

    fn visit_i64<E: Error>(self, bytes: i64) -> Result<SizeText, E> {
        let wrong = |_| E::invalid_value(Unexpected::Signed(bytes), &self);
        u64::try_from(bytes).map_err(wrong).and_then(|bytes| self.visit_u64(bytes))
    }
}

/// Whether the text is the second of an option's two words.
fn choice(text: &str, words: [&str; 2]) -> Result<bool, String> {
    let place = words.iter().position(|word| *word == text).map(|place| place == 1);
    place.ok_or_else(|| format!(" '{text}': expected {} or {}", words[0], words[1]))
}

/// Implements `FromStr` and `Display` for an option with a fixed set of words.
macro_rules! words {
    ($name:ident, $expected:literal, $($value:ident = $word:literal),*) => {
        impl std::str::FromStr for $name {
            type Err = String;

            fn from_str(text: &str) -> Result<$name, String> {
                match text {
                    $($word => Ok($name::$value),)*
                    other => Err(format!($expected, other)),
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(match self {
                    $($name::$value => $word,)*
                })
            }
        }
    };
}
pub(super) use words;

/// Parses a placement that a server can have: `access`, `eviction,on-hit=move` and the like. A
/// scheme of movement is none: these run in simulations.
pub(super) fn parse_placement(text: &str) -> Result<Placement, String> {
    let name = text.split(',').next().unwrap_or_default();
    if SIMULATED.contains(&name) {
        return Err(format!(
            "placement {name} is for simulations; a server learns what its clients hold: choose \
             placement=auto, and let clients, or servers above, tell what they evict"
        ));
    }
    let placement = text.parse::<Placement>().map_err(|error| error.to_string())?;
    if placement.is_auto() && text.contains(',') {
        return Err("placement auto: no options here, since it chooses itself; each client \
                    decides whether it sends what it evicts"
            .into());
    }
    if placement.is_by_cost() {
        return Err("placement: down=auto is for simulations with a clock; here each client \
                    decides whether it sends what it evicts: leave it out"
            .into());
    }
    Ok(placement)
}

/// The form of any type with `FromStr` and `Display`.
pub(super) mod text {
    use super::*;

    pub(in crate::config) fn serialize<T: fmt::Display, S: serde::Serializer>(
        value: &T,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.collect_str(value)
    }

    pub(in crate::config) fn deserialize<'de, T, D>(from: D) -> Result<T, D::Error>
    where
        T: FromStr<Err: fmt::Display>,
        D: Deserializer<'de>,
    {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}

/// The form of any type that serde knows: a text, a number, a switch.
pub(super) mod plain {
    use super::*;

    pub(in crate::config) fn serialize<T: serde::Serialize, S: serde::Serializer>(
        value: &T,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        value.serialize(to)
    }

    pub(in crate::config) fn deserialize<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
        from: D,
    ) -> Result<T, D::Error> {
        T::deserialize(from)
    }
}

/// Makes a module for each form: the type of the field, the type in the file, the conversion from
/// the file (with an error message), and the conversion back.
macro_rules! forms {
    ($($(#[$doc:meta])* $name:ident: $field:ty, $file:ty, $read:expr, $write:expr;)*) => { $(
        $(#[$doc])*
        pub(super) mod $name {
            use super::*;

            pub(in crate::config) fn serialize<S: serde::Serializer>(
                value: &$field,
                to: S,
            ) -> Result<S::Ok, S::Error> {
                let write: fn(&$field) -> _ = $write;
                serde::Serialize::serialize(&write(value), to)
            }

            pub(in crate::config) fn deserialize<'de, D: Deserializer<'de>>(
                from: D,
            ) -> Result<$field, D::Error> {
                let read: fn($file) -> Result<$field, String> = $read;
                read(<$file>::deserialize(from)?).map_err(D::Error::custom)
            }
        }
    )* };
}

forms! {
    /// Bytes: `64KiB`.
    size: u64, SizeText, |text| parse_size(&text.0), |bytes| Bytes(*bytes).to_string();
    /// A share of the cache.
    cache_share: CacheShare, SizeText, |text| text.0.parse(), |share| share.to_string();
    /// A placement.
    placement: Placement, String, |text| parse_placement(&text), |placement| placement.to_string();
    /// Bytes of a block.
    block: u32, SizeText,
        |SizeText(text)| u32::try_from(parse_size(&text)?).map_err(|_| "block: too large".to_owned()),
        |bytes| Bytes((*bytes).into()).to_string();
    /// Bytes, or nothing.
    some_size: Option<u64>, SizeText,
        |text| parse_size(&text.0).map(Some),
        |bytes| bytes.map_or(String::new(), |bytes| Bytes(bytes).to_string());
    /// A device for flash, or nothing.
    some_flash: Option<FlashConfig>, String,
        |text| text.parse().map(Some),
        |flash| flash.as_ref().map_or(String::new(), FlashConfig::to_string);
    /// A folder or file, or nothing.
    some_path: Option<PathBuf>, String,
        |text| Ok((!text.is_empty()).then(|| PathBuf::from(text))),
        |path| path.as_ref().map_or(String::new(), |path| path.display().to_string());
    /// Whole seconds.
    seconds: Duration, u64, |s| Ok(Duration::from_secs(s)), |time| time.as_secs();
    /// Whole seconds; 0: no limit.
    seconds_or_ever: Option<Duration>, u64,
        |s| Ok((s > 0).then(|| Duration::from_secs(s))),
        |time| time.map_or(0, |time| time.as_secs());
    /// Microseconds.
    microseconds: Duration, u64,
        |us| Ok(Duration::from_micros(us)),
        |time| time.as_micros() as u64;
    /// A share of 1, in whole percent.
    percent: f64, u64,
        |percent| match percent {
            1..=100 => Ok(percent as f64 / 100.0),
            _ => Err(format!(" {percent}: expected 1 to 100")),
        },
        |share| (share * 100.0).round() as u64;
    /// How evictions by clients become known: true if they are estimated.
    evictions: bool, String,
        |text| choice(&text, ["told", "estimate"]),
        |is| if *is { "estimate" } else { "told" };
    /// When evicted blocks are read back: true if at once.
    reloads: bool, String,
        |text| choice(&text, ["idle", "at-once"]),
        |is| if *is { "at-once" } else { "idle" };
    /// Whether there is advice.
    adviser: bool, String,
        |text| choice(&text, ["no", "yes"]),
        |is| if *is { "yes" } else { "no" };
    /// Whether the share of the cache moves.
    share: bool, String,
        |text| choice(&text, ["fixed", "auto"]),
        |is| if *is { "auto" } else { "fixed" };
    /// What a server below is told, or nothing.
    report: Option<Reporting>, String,
        |text| text.parse().map(Some),
        |report| report.map_or(String::new(), |report| report.to_string());
    /// Rules for clients.
    client_rules: Vec<ClientRule>, Vec<String>,
        |texts| texts.iter().map(|text| text.parse()).collect(),
        |rules| rules.iter().map(ClientRule::to_string).collect::<Vec<_>>();
    /// An address to listen on, or nothing.
    some_address: Option<Address>, String,
        |text| text.parse().map(Some),
        |address| address.as_ref().map_or(String::new(), Address::to_string);
    /// Addresses to listen on.
    addresses: Vec<Address>, Vec<String>,
        |texts| texts.iter().map(|text| text.parse()).collect(),
        |addresses| addresses.iter().map(Address::to_string).collect::<Vec<_>>();
}
