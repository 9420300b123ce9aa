//! What a row of the tables of keys says, and the macro that makes a configuration from the rows.
//! The rows themselves are in `volume.rs`, `server.rs` and `tls.rs`; how to add one is described in
//! `docs/developer/add-an-option.md`.

use serde_json::Value;

/// A row of a table of keys: what is known of an option. The parser, the help of `serve` and `set`,
/// the comparison at a reload and the documents take it from here.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Its name in files and flags.
    pub name: &'static str,
    /// The notation of its value, for people.
    pub value: &'static str,
    /// What it says, in sentences that can be read alone, with a full stop.
    pub help: &'static str,
    /// Whether it may change while the server runs.
    pub changes: Changes,
    /// Whether volumes that do not set it take what the server has.
    pub is_inherited: bool,
    /// The defaults of all keys of the table.
    pub(super) defaults: fn() -> Value,
}

/// Whether an option may change while it is in use, and what it then belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changes {
    /// At a restart only.
    Restart,
    /// It needs no change: the size follows the store, and the like counts only when the volume is
    /// opened.
    Follows,
    /// With the cache (`volume/change.rs`).
    Cache,
    /// With the level on flash, which begins empty then (`process/flash_changes.rs`).
    Flash,
    /// With the bounds of write-back.
    WriteBack,
    /// With the rules of access and the limits of clients.
    Access,
    /// It consists of options that have rows of their own.
    Parts,
}

impl Changes {
    /// Whether SIGHUP and `undercroft set` change it while the volume is served.
    pub const fn is_live(self) -> bool {
        !matches!(self, Changes::Restart | Changes::Follows | Changes::Parts)
    }
}

impl Key {
    /// Its name in a flag: a list is one rule there, and may be repeated.
    pub fn flag(&self) -> &'static str {
        match self.name {
            "clients" => "client",
            "writers" => "writer",
            name => name,
        }
    }

    /// Its default as it stands in a file; `None` if there is none.
    pub fn default(&self) -> Option<String> {
        match &(self.defaults)()[self.name] {
            Value::Bool(is) => Some(if *is { "yes" } else { "no" }.to_owned()),
            Value::Number(number) => Some(number.to_string()),
            Value::String(text) if !text.is_empty() => Some(text.clone()),
            _ => None,
        }
    }
}

/// Makes a structure from rows: the key, the notation of its value, the field, its default, its
/// text form, when it may change, and `inherited` if volumes take it from the server. A field's
/// documentation is the help of its key. Fields without a key follow.
macro_rules! keys {
    ($(#[$about:meta])* $config:ident {
        $($(#[doc = $help:literal])* $key:literal $value:literal $field:ident: $type:ty =
            $default:expr, $form:literal, $changes:ident $($inherited:ident)?;)*
        [$($(#[doc = $own_help:literal])* $own:ident: $own_type:ty = $own_default:expr;)*]
    }) => {
        $(#[$about])*
        #[derive(Clone, Debug, Serialize, Deserialize)]
        #[serde(deny_unknown_fields, default)]
        pub struct $config {
            $($(#[doc = $help])* #[serde(rename = $key, with = $form)] pub $field: $type,)*
            $($(#[doc = $own_help])* #[serde(skip)] pub $own: $own_type,)*
        }

        impl Default for $config {
            fn default() -> Self {
                Self { $($field: $default,)* $($own: $own_default,)* }
            }
        }

        impl $config {
            /// What is known of the options.
            pub const KEYS: &'static [Key] = &[$(Key {
                name: $key,
                value: $value,
                help: concat!($($help),*).trim_ascii(),
                changes: Changes::$changes,
                is_inherited: !stringify!($($inherited)?).is_empty(),
                defaults: || serde_json::to_value(Self::default()).unwrap_or_default(),
            }),*];

            /// Takes over the options that change with `what`.
            fn take(&mut self, next: &Self, what: Changes) {
                $(if Changes::$changes == what {
                    self.$field = next.$field.clone();
                })*
            }
        }
    };
}

pub(super) use keys;
