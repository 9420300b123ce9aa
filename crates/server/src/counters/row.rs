//! What a row of the table of counters says, and the macro that makes the groups of numbers from
//! their rows. The rows themselves are in `counters.rs`; how to add one is described in
//! `docs/developer/add-a-counter.md`.

use prometheus_client::metrics::MetricType;

use super::Stats;

/// A row of the table of counters: what is known of a number beside its value. Everything that
/// shows numbers takes names, units and help from here.
#[derive(Clone, Copy, Debug)]
pub struct Counter {
    /// Its name in JSON.
    pub name: &'static str,
    /// What it says, in sentences that can be read alone, with a full stop.
    pub help: &'static str,
    /// Whether it only grows, and what it is of several volumes.
    pub kind: Kind,
    /// What is counted.
    pub unit: Unit,
    /// Its name in `/metrics` between the prefix of its group and `_total`: ends in the unit.
    pub metric: &'static str,
    /// Its heading in the tables of `undercroft stats`, if it is shown there.
    pub heading: Option<&'static str>,
    /// How the live page gets it.
    pub page: Page,
}

/// Whether a number only grows, and what it is of several volumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Counts since the start; of several volumes the sum.
    Counter,
    /// What is at present; of several volumes the sum.
    Gauge,
    /// What is at present; of several volumes the largest.
    Largest,
}

/// What a number counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Blocks of the volume.
    Blocks,
    /// Bytes.
    Bytes,
    /// Seconds.
    Seconds,
    /// Parts of a million; `/metrics` has the share, from 0 to 1.
    Millionths,
    /// Parts of a hundred; `/metrics` has the share, from 0 to 1.
    Percent,
    /// Things of another kind, named in the plural.
    Of(&'static str),
    /// 1 for yes, 0 for no.
    YesOrNo,
}

/// How the live page gets a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Page {
    /// Not at all.
    No,
    /// In its own unit.
    Plain,
    /// In bytes; its unit is blocks.
    Bytes,
    /// In both.
    PlainAndBytes,
}

impl Kind {
    /// What Prometheus calls it.
    pub(crate) fn metric(self) -> MetricType {
        match self {
            Kind::Counter => MetricType::Counter,
            Kind::Gauge | Kind::Largest => MetricType::Gauge,
        }
    }

    /// Adds the number of another volume.
    pub(crate) fn add(self, own: &mut u64, other: u64) {
        *own = match self {
            Kind::Largest => other.max(*own),
            Kind::Counter | Kind::Gauge => own.saturating_add(other),
        };
    }
}

impl Unit {
    /// How it is called at the end of a metric's name; empty for `YesOrNo`.
    pub const fn suffix(self) -> &'static str {
        match self {
            Unit::Blocks => "blocks",
            Unit::Bytes => "bytes",
            Unit::Seconds => "seconds",
            Unit::Millionths | Unit::Percent => "ratio",
            Unit::Of(things) => things,
            Unit::YesOrNo => "",
        }
    }

    /// How many of it are one of what `/metrics` has.
    pub const fn scale(self) -> u32 {
        match self {
            Unit::Millionths => 1_000_000,
            Unit::Percent => 100,
            _ => 1,
        }
    }
}

/// A row of a number that only grows.
pub(super) const fn counter(unit: Unit, metric: &'static str) -> Counter {
    let (kind, page) = (Kind::Counter, Page::No);
    Counter { name: "", help: "", kind, unit, metric, heading: None, page }
}

/// A row of a number that is summed over volumes, and may fall.
pub(super) const fn gauge(unit: Unit, metric: &'static str) -> Counter {
    Counter { kind: Kind::Gauge, ..counter(unit, metric) }
}

/// A row of a number of which several volumes have the largest.
pub(super) const fn largest(unit: Unit, metric: &'static str) -> Counter {
    Counter { kind: Kind::Largest, ..counter(unit, metric) }
}

impl Counter {
    /// Shown in the tables of `undercroft stats`.
    pub(super) const fn stats(self, heading: &'static str) -> Counter {
        Counter { heading: Some(heading), ..self }
    }

    /// Sent to the live page.
    pub(super) const fn page(self, page: Page) -> Counter {
        Counter { page, ..self }
    }

    /// As it stands in a group: with the name of its field, and the field's documentation.
    pub(super) const fn of_field(self, name: &'static str, help: &'static str) -> Counter {
        Counter { name, help: help.trim_ascii(), ..self }
    }
}

/// A group of counters of a volume.
pub struct Group {
    /// Where its numbers are in the JSON of a volume; empty if they stand there themselves.
    pub json: &'static str,
    /// What follows `undercroft_` in its metrics: empty, or ends in `_`.
    pub prefix: &'static str,
    /// Its rows.
    pub rows: &'static [Counter],
    /// The numbers of a volume in the order of the rows; `None` if it has no such group.
    pub values: fn(&Stats) -> Option<Vec<u64>>,
}

impl Group {
    /// The full name of a metric of the group, as `/metrics` has it in its samples.
    pub fn metric(&self, row: &Counter) -> String {
        let total = if row.kind == Kind::Counter { "_total" } else { "" };
        format!("undercroft_{}{}{total}", self.prefix, row.metric)
    }
}

/// Makes a structure of numbers from rows. A field's documentation is the help of its row. Groups
/// may follow that not every volume has: what their metrics begin with, and their structure.
macro_rules! counters {
    ($(#[$about:meta])* $stats:ident {
        $($(#[doc = $help:literal])* $name:ident: $row:expr;)*
        $([$($(#[$group_about:meta])* $prefix:literal $field:ident: $group:ident;)*])?
    }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
        pub struct $stats {
            $($(#[doc = $help])* pub $name: u64,)*
            $($($(#[$group_about])*
                #[serde(skip_serializing_if = "Option::is_none")]
                pub $field: Option<$group>,
            )*)?
        }

        impl $stats {
            /// What is known of the numbers.
            pub const ROWS: &'static [Counter] =
                &[$($row.of_field(stringify!($name), concat!($($help),*))),*];

            /// The numbers, in the order of the rows.
            pub fn values(&self) -> Vec<u64> {
                vec![$(self.$name),*]
            }

            /// Adds the numbers of another shard or volume.
            pub fn sum(&mut self, other: &Self) {
                $(const { $row.kind }.add(&mut self.$name, other.$name);)*
                $($(if let Some(other) = &other.$field {
                    self.$field.get_or_insert_default().sum(other);
                })*)?
            }
        }

        $(/// All counters of a volume, by group.
        pub static COUNTERS: &[Group] = &[
            Group {
                json: "",
                prefix: "",
                rows: $stats::ROWS,
                values: |stats| Some(stats.values()),
            },
            $(Group {
                json: stringify!($field),
                prefix: $prefix,
                rows: $group::ROWS,
                values: |stats| stats.$field.map(|group| group.values()),
            },)*
        ];)?
    };
}

pub(super) use counters;
