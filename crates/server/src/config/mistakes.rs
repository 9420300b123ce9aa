//! What is wrong with single options of the settings, each by itself, so that all mistakes can be
//! said at once; and where the options of a file stand. What does not fit together is found by
//! `validate.rs`.

use serde::de::DeserializeOwned;
use toml::de::{DeTable, DeValue};
use toml::{Table, Value};

use super::{ServerConfig, VolumeConfig, forms};

/// What is wrong with an option.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Mistake {
    pub(super) path: String,
    pub(super) what: String,
}

/// What is wrong with single options, in their order.
pub(super) fn mistakes(options: &Table) -> Vec<Mistake> {
    let mut wrong = Vec::new();
    for (key, value) in options {
        match value {
            Value::Array(volumes) if key == "volume" => {
                for (at, volume) in volumes.iter().enumerate() {
                    let name = volume.get("name").and_then(Value::as_str).unwrap_or_default();
                    for (option, value) in volume.as_table().into_iter().flatten() {
                        let path = format!("volume.{at}.{option}");
                        let what = wrong_in::<VolumeConfig>(None, option, value);
                        let what = what.map(|what| match is_of_shape(&what) {
                            true => what,
                            false => format!("volume '{name}': {what}"),
                        });
                        wrong.extend(what.map(|what| Mistake { path, what }));
                    }
                }
            }
            Value::Table(part) if key != "volume" => {
                for (option, value) in part {
                    let path = format!("{key}.{option}");
                    let what = wrong_in::<ServerConfig>(Some(key), option, value);
                    wrong.extend(what.map(|what| Mistake { path, what }));
                }
            }
            _ if VolumeConfig::KEYS.iter().any(|one| one.is_inherited && one.name == key) => {
                let what = wrong_in::<VolumeConfig>(None, key, value);
                wrong.extend(what.map(|what| Mistake { path: key.clone(), what }));
            }
            _ => {
                let what = wrong_in::<ServerConfig>(None, key, value).map(|what| {
                    let inherited = VolumeConfig::KEYS.iter().filter(|key| key.is_inherited);
                    let inherited: String =
                        inherited.map(|key| format!(", `{}`", key.name)).collect();
                    let is_unknown = what.starts_with("unknown field");
                    what + if is_unknown { &inherited } else { "" }
                });
                wrong.extend(what.map(|what| Mistake { path: key.clone(), what }));
            }
        }
    }
    wrong
}

/// What is wrong with one option of a configuration, or of a part of it.
fn wrong_in<T: DeserializeOwned>(part: Option<&str>, key: &str, value: &Value) -> Option<String> {
    let mut table = Table::from_iter([(key.to_owned(), value.clone())]);
    if let Some(part) = part {
        table = Table::from_iter([(part.to_owned(), table.into())]);
    }
    let (option, what) = read::<T>(table).err()?;
    Some(forms::named(&option, &what))
}

/// Calls `note` with the path of each option of a file, and where it stands.
pub(super) fn note_places(table: &DeTable<'_>, before: &str, note: &mut impl FnMut(String, usize)) {
    for (key, value) in table {
        let path = format!("{before}{}", key.get_ref());
        note(path.clone(), key.span().start);
        match value.get_ref() {
            DeValue::Table(part) => note_places(part, &format!("{path}."), note),
            DeValue::Array(all) => {
                for (at, one) in all.iter().enumerate() {
                    if let DeValue::Table(part) = one.get_ref() {
                        note(format!("{path}.{at}"), one.span().start);
                        note_places(part, &format!("{path}.{at}."), note);
                    }
                }
            }
            _ => {}
        }
    }
}

/// Whether serde itself found the error: a wrong option name, or a value of the wrong type.
pub(super) fn is_of_shape(message: &str) -> bool {
    ["unknown field", "invalid type", "invalid value", "duplicate field"]
        .iter()
        .any(|begin| message.starts_with(begin))
}

/// Deserializes a table. An error is the path of the option, and the message.
pub(super) fn read<T: DeserializeOwned>(table: Table) -> Result<T, (String, String)> {
    let read = serde_path_to_error::deserialize(Value::Table(table));
    read.map_err(|error| (error.path().to_string(), error.inner().message().to_owned()))
}
