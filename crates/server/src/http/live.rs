//! What the live page shows: one task samples the counters for all viewers, keeps the samples of
//! the last minutes, and wakes the viewers. `live/sample.rs` has what a sample says of a volume,
//! `live/state.rs` what is shown of the present beside it, `live/files.rs` the page itself.
//!
//! Not here: HTTP (`http/events.rs`).

pub(super) mod files;
mod sample;
mod state;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::sleep;

use self::sample::Sampler;
use crate::clock;
use crate::http::metrics::About;
use crate::lock::sleep_lock;

/// Time between samples while somebody watches.
const EACH: Duration = Duration::from_secs(2);

/// Least time between samples, also when something happens.
const SOON: Duration = Duration::from_millis(500);

/// Time between samples while nobody does, so that whoever comes sees what has been.
const UNWATCHED: Duration = Duration::from_secs(10);

/// How long samples are kept.
const KEEPS: Duration = Duration::from_secs(600);

/// Most bytes of samples that are kept; a server of very many volumes keeps fewer minutes.
const KEEPS_BYTES: usize = 4 << 20;

/// Most viewers at a time; further ones are refused.
const VIEWERS: usize = 32;

/// Volumes with samples of their own; the others are in the sums of all.
const VOLUMES: usize = 64;

/// The samples of the last minutes, and who watches.
pub(crate) struct Live {
    kept: Mutex<Kept>,
    /// The number of the latest sample.
    newest: watch::Sender<u64>,
    seats: Arc<Semaphore>,
    /// Notified when somebody begins to watch.
    came: Notify,
}

#[derive(Default)]
struct Kept {
    samples: VecDeque<Sample>,
    bytes: usize,
    /// The latest state, as an event; empty before the first.
    state: Bytes,
}

/// A sample that is kept.
struct Sample {
    number: u64,
    at: Instant,
    event: Bytes,
}

impl Live {
    pub(crate) fn new() -> Arc<Live> {
        Arc::new(Live {
            kept: Mutex::default(),
            newest: watch::Sender::new(0),
            seats: Arc::new(Semaphore::new(VIEWERS)),
            came: Notify::new(),
        })
    }

    /// A viewer, who gets the kept samples first; `None` if there are too many.
    pub(crate) fn watch(self: &Arc<Live>) -> Option<Viewer> {
        let seat = Arc::clone(&self.seats).try_acquire_owned().ok()?;
        let hello = json!({
            "version": env!("CARGO_PKG_VERSION"),
            "fields": sample::fields(),
            "each_s": EACH.as_secs(),
            "keeps_s": KEEPS.as_secs(),
        });
        self.came.notify_one();
        let (live, newest) = (Arc::clone(self), self.newest.subscribe());
        let waiting = VecDeque::from([event("hello", &hello)]);
        let mut viewer = Viewer { live, newest, last: 0, waiting, _seat: seat };
        viewer.refill();
        Some(viewer)
    }

    /// Samples until the server stops.
    pub(crate) async fn sample(&self, about: About, mut stop: watch::Receiver<bool>) {
        let (mut sampler, mut events) = (Sampler::default(), crate::events::watch());
        loop {
            let is_watched = self.seats.available_permits() < VIEWERS;
            let (row, state) = (sampler.sample(&about), is_watched.then(|| state::of(&about)));
            self.keep(row, state);
            let waits = async {
                sleep(SOON).await;
                if self.seats.available_permits() < VIEWERS {
                    // Something has happened: it is shown before the time.
                    let _ = tokio::time::timeout(EACH - SOON, events.changed()).await;
                    return;
                }
                sleep(EACH - SOON).await;
                if self.seats.available_permits() == VIEWERS {
                    tokio::select! {
                        () = sleep(UNWATCHED - EACH) => {}
                        () = self.came.notified() => {}
                    }
                }
            };
            tokio::select! {
                () = waits => {}
                _ = stop.wait_for(|&stop| stop) => return,
            }
        }
    }

    /// Keeps a sample, drops those that are too old or too many, and wakes the viewers. Without a
    /// row there was nothing to compare with yet.
    fn keep(&self, row: Option<Value>, state: Option<Value>) {
        let number = *self.newest.borrow() + 1;
        let mut kept = sleep_lock(&self.kept);
        kept.state = state.map_or_else(Bytes::new, |state| event("state", &state));
        if let Some(mut row) = row {
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            row["t"] = json!(since.as_millis() as u64);
            let sample = Sample { number, at: clock::now(), event: event("sample", &row) };
            kept.bytes += sample.event.len();
            kept.samples.push_back(sample);
        }
        let oldest = clock::now().checked_sub(KEEPS);
        while kept.samples.front().is_some_and(|sample| {
            kept.bytes > KEEPS_BYTES || oldest.is_some_and(|oldest| sample.at < oldest)
        }) {
            let gone = kept.samples.pop_front().map_or(0, |sample| sample.event.len());
            kept.bytes -= gone;
        }
        drop(kept);
        self.newest.send_replace(number);
    }
}

/// Somebody who watches, until dropped. One that reads slowly gets the samples that are still kept
/// when it reads.
pub(crate) struct Viewer {
    live: Arc<Live>,
    newest: watch::Receiver<u64>,
    /// The number of the last sample that it got.
    last: u64,
    waiting: VecDeque<Bytes>,
    _seat: OwnedSemaphorePermit,
}

impl Viewer {
    /// The next event; waits until there is one.
    pub(crate) async fn next(&mut self) -> Option<Bytes> {
        while self.waiting.is_empty() {
            self.newest.changed().await.ok()?;
            self.refill();
        }
        self.waiting.pop_front()
    }

    /// Takes over the events that it did not get yet.
    fn refill(&mut self) {
        let kept = sleep_lock(&self.live.kept);
        let fresh = kept.samples.iter().filter(|sample| sample.number > self.last);
        self.waiting.extend(fresh.map(|sample| sample.event.clone()));
        self.last = kept.samples.back().map_or(self.last, |sample| sample.number);
        self.waiting.extend(Some(kept.state.clone()).filter(|state| !state.is_empty()));
    }
}

/// A server-sent event. JSON has no line breaks.
fn event(name: &str, data: &Value) -> Bytes {
    Bytes::from(format!("event: {name}\ndata: {data}\n\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_kept_is_bounded_and_seats_are_given_back() {
        let live = Live::new();
        let large = "x".repeat(KEEPS_BYTES / 10);
        for number in 0..50 {
            live.keep(Some(json!({ "number": number, "text": large })), None);
        }
        {
            let kept = sleep_lock(&live.kept);
            let bytes: usize = kept.samples.iter().map(|sample| sample.event.len()).sum();
            assert!(kept.bytes == bytes && bytes <= KEEPS_BYTES, "{bytes}");
            assert_eq!(kept.samples.len(), 9);
        }
        let mut viewers: Vec<_> = (0..VIEWERS).map(|_| live.watch().unwrap()).collect();
        assert!(live.watch().is_none());
        let first = &mut viewers[0];
        let text = |event: Option<Bytes>| String::from_utf8(event.unwrap().to_vec()).unwrap();
        assert!(text(first.next().await).starts_with("event: hello\ndata: {"));
        for number in 41..50 {
            assert!(text(first.next().await).contains(&format!("\"number\":{number},")));
        }
        assert!(first.waiting.is_empty());
        // Two at once: each is given once, and the state once, after them.
        live.keep(Some(json!({ "number": 50 })), Some(json!({ "volumes": [] })));
        live.keep(Some(json!({ "number": 51 })), Some(json!({ "volumes": ["\n\n"] })));
        assert!(text(first.next().await).contains("\"number\":50"));
        assert!(text(first.next().await).contains("\"number\":51"));
        let state = text(first.next().await);
        assert!(state.starts_with("event: state\n") && state.matches("\n\n").count() == 1);
        assert!(first.waiting.is_empty());
        viewers.clear();
        assert!(live.watch().is_some());
    }
}
