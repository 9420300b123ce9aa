//! The last events of the process, for pages and `stats --events`: what the log says of losses,
//! stores, refusals, changes and reloads, and every other warning. The log is where they are
//! written; the program passes its lines on to [`keep_event`], whatever the level that it prints.
//!
//! Bounded in number and length, since clients can cause events.

use std::collections::VecDeque;
use std::fmt::{Debug, Write};
use std::sync::Mutex;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;
use tokio::sync::watch;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata};

use crate::lock::sleep_lock;

/// Most events that are kept, and most characters of one.
const KEPT: usize = 200;
const CHARACTERS: usize = 400;

/// Kinds of events by the module that logs them, and the least level of each. Everything else that
/// is at least a warning is a `notice`.
const KINDS: [(&str, &str, Level); 10] = [
    ("undercroft_server::volume::store_health", "store", Level::WARN),
    ("undercroft_server::process::pending_volume", "store", Level::WARN),
    ("undercroft_server::process::opener", "store", Level::WARN),
    ("undercroft_nbd::client::reconnecting", "loss", Level::WARN),
    ("undercroft_nbd::server::refusals", "refusal", Level::WARN),
    ("undercroft_server::process::change", "change", Level::INFO),
    ("undercroft_server::exports::set", "change", Level::INFO),
    ("undercroft_server::process::flash_changes", "change", Level::INFO),
    ("undercroft_server::process::lending", "change", Level::WARN),
    ("undercroft_server::process::reload", "reload", Level::INFO),
];

/// Fields that say who a client is. They are for those who may see everything.
const WHO: [&str; 5] = ["client", "certificate", "user", "group", "by"];

/// An event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Kept {
    /// Milliseconds since 1970.
    time_ms: u64,
    kind: &'static str,
    /// `info`, `warning` or `error`.
    level: &'static str,
    /// The volume, if it concerns one.
    volume: Option<String>,
    text: String,
    /// The client, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    who: Option<String>,
}

/// The events of the process, as the log is the process's.
static LAST: Mutex<VecDeque<Kept>> = Mutex::new(VecDeque::new());

/// Changes with every event.
static NUMBER: std::sync::LazyLock<watch::Sender<u64>> =
    std::sync::LazyLock::new(|| watch::Sender::new(0));

fn kind(metadata: &Metadata<'_>) -> Option<&'static str> {
    let of_module = KINDS.iter().find(|(module, ..)| *module == metadata.target());
    let (kind, least) =
        of_module.map_or(("notice", Level::WARN), |(_, kind, least)| (kind, *least));
    let is_ours = metadata.target().starts_with("undercroft");
    (is_ours && *metadata.level() <= least).then_some(kind)
}

/// Whether a line of the log is an event.
pub fn is_event(metadata: &Metadata<'_>) -> bool {
    metadata.is_event() && kind(metadata).is_some()
}

/// Keeps a line of the log that [is an event](is_event); others are ignored.
pub fn keep_event(event: &Event<'_>) {
    let Some(kind) = kind(event.metadata()) else { return };
    let mut read = Read::default();
    event.record(&mut read);
    let level = match *event.metadata().level() {
        Level::ERROR => "error",
        Level::WARN => "warning",
        _ => "info",
    };
    let Read { volume, mut text, more, who } = read;
    if !more.is_empty() {
        let _ = write!(text, " ({more})");
    }
    let mut last = sleep_lock(&LAST);
    // Under the lock, so that the times are in the order of the events.
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let kept = Kept {
        time_ms: since.as_millis() as u64,
        kind,
        level,
        volume,
        text: plain(&text),
        who: (!who.is_empty()).then(|| plain(&who)),
    };
    if last.len() == KEPT {
        last.pop_front();
    }
    last.push_back(kept);
    drop(last);
    NUMBER.send_modify(|number| *number += 1);
}

/// The last events, at most so many, the latest first. With `to` only those of the volumes that it
/// admits, without what they say of clients.
pub(crate) fn last(most: usize, to: Option<&dyn Fn(&str) -> bool>) -> Vec<Kept> {
    let last = sleep_lock(&LAST);
    let admitted = last.iter().rev().filter(|event| match to {
        None => true,
        Some(admits) => event.volume.as_deref().is_some_and(admits),
    });
    let told = admitted.take(most).cloned();
    told.map(|event| if to.is_some() { Kept { who: None, ..event } } else { event }).collect()
}

/// Notified of every event from now on.
pub(crate) fn watch() -> watch::Receiver<u64> {
    NUMBER.subscribe()
}

/// A text of a line of the log, without control characters, and not too long.
fn plain(text: &str) -> String {
    cut(&text.replace(char::is_control, " "), CHARACTERS)
}

/// The beginning of a text that has more than so many characters.
pub(crate) fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most - 3).chain("...".chars()).collect()
}

/// What a line of the log says.
#[derive(Default)]
struct Read {
    volume: Option<String>,
    text: String,
    /// The other fields.
    more: String,
    who: String,
}

impl Read {
    fn take(&mut self, name: &str, value: &str) {
        match name {
            "message" => value.clone_into(&mut self.text),
            "volume" => self.volume = Some(plain(value)),
            // The text says it.
            "state" => {}
            _ => {
                let to = if WHO.contains(&name) { &mut self.who } else { &mut self.more };
                let comma = if to.is_empty() { "" } else { ", " };
                let _ = write!(to, "{comma}{name} {value}");
            }
        }
    }
}

impl Visit for Read {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.take(field.name(), value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.take(field.name(), &format!("{value:?}"));
    }
}

#[cfg(test)]
mod tests {
    use tracing::Subscriber;
    use tracing::span::{Attributes, Id, Record};
    use tracing::subscriber::with_default;

    use super::*;

    #[test]
    fn the_modules_of_all_kinds_exist() {
        for (module, ..) in KINDS {
            let (library, path) =
                module.strip_prefix("undercroft_").unwrap().split_once("::").unwrap();
            let file = format!("../{library}/src/{}", path.replace("::", "/"));
            let exists = ["", "/mod"].iter().any(|end| {
                std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
                    .join(format!("{file}{end}.rs"))
                    .exists()
            });
            assert!(exists, "{module}");
        }
    }

    #[test]
    fn long_texts_are_cut() {
        assert_eq!(cut("short", 200), "short");
        let long = "\u{e4}".repeat(1000);
        assert_eq!(cut(&long, 200).chars().count(), 200);
        assert!(cut(&long, 200).ends_with("..."));
    }

    struct Keeps;

    impl Subscriber for Keeps {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            is_event(metadata)
        }

        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }

        fn record(&self, _: &Id, _: &Record<'_>) {}

        fn record_follows_from(&self, _: &Id, _: &Id) {}

        fn event(&self, event: &Event<'_>) {
            keep_event(event);
        }

        fn enter(&self, _: &Id) {}

        fn exit(&self, _: &Id) {}
    }

    #[test]
    fn events_are_kept_bounded_and_told_without_clients() {
        with_default(Keeps, || {
            tracing::info!(volume = "v", "no event");
            tracing::info!(target: "hyper", "of another");
            let change = "undercroft_server::process::change";
            tracing::info!(target: "undercroft_server::process::change", volume = "v", by = "10.0.0.1:3", told = "cache=1MiB", "set");
            tracing::warn!(target: "undercroft_nbd::server::refusals", client = "10.0.0.2", what = "v", "refused");
            let all = last(10, None);
            let [refused, set] = &all[..] else { panic!("{change}: {all:?}") };
            assert_eq!((refused.kind, refused.text.as_str()), ("refusal", "refused (what v)"));
            assert_eq!(refused.who.as_deref(), Some("client 10.0.0.2"));
            assert_eq!((set.kind, set.level, set.volume.as_deref()), ("change", "info", Some("v")));
            assert_eq!(
                (set.text.as_str(), set.who.as_deref()),
                ("set (told cache=1MiB)", Some("by 10.0.0.1:3"))
            );
            let told = last(10, Some(&|volume| volume == "v"));
            assert_eq!(told, [Kept { who: None, ..set.clone() }]);
            assert_eq!(last(10, Some(&|_| false)), []);
            for number in 0..2 * KEPT {
                tracing::warn!(number, "{}", "\u{1b}x\u{e4}".repeat(CHARACTERS));
            }
            let all = last(usize::MAX, None);
            assert_eq!(all.len(), KEPT);
            assert!(all.iter().all(|one| one.text.chars().count() == CHARACTERS));
            assert!(!all[0].text.contains('\u{1b}'));
        });
    }
}
