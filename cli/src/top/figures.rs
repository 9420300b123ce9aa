//! The figures of `undercroft top`: what a server counted between two looks, for each volume and
//! client. The first look shows means since the server's start.

use std::collections::{HashMap, VecDeque};
use std::time::Instant;

use serde_json::Value;

use super::times::{KINDS, SOURCES, Times};
use crate::held::{ClientCache, Known, caches, known, shown};
use crate::saved::sentence;
use crate::status::{store_state, volumes};

/// Hit ratios that are remembered of a volume, for its curve.
const CURVE: usize = 60;

/// Where the blocks came from that clients read: shares of them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Sources {
    /// Hits, of any kind.
    pub(crate) hits: f64,
    /// Hits that had to be waited for.
    pub(crate) waited: f64,
    /// Hits of blocks that a client had sent.
    pub(crate) handed_over: f64,
    /// Hits of blocks that were read back after a client had evicted them.
    pub(crate) reloaded: f64,
    /// Hits of blocks that were, or had been, in the staging area.
    pub(crate) staged: f64,
    /// No hits: blocks that came from flash instead of from the store.
    pub(crate) flash: f64,
}

/// A volume between two looks, or all of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct VolumeFigures {
    pub(crate) name: String,
    /// Most bytes of blocks that the cache holds.
    pub(crate) cache_bytes: u64,
    /// Bytes of blocks that it holds now.
    pub(crate) resident_bytes: u64,
    /// `None`: nothing was read.
    pub(crate) sources: Option<Sources>,
    /// The last hit ratios, the latest at the end.
    pub(crate) curve: VecDeque<Option<f64>>,
    /// Requests a second.
    pub(crate) reads_s: f64,
    pub(crate) writes_s: f64,
    /// Bytes a second, in whole blocks.
    pub(crate) read_bytes_s: f64,
    pub(crate) written_bytes_s: f64,
    /// Times of reads that hit and that miss, of writes and of FLUSH.
    pub(crate) times: [Times; KINDS.len()],
    pub(crate) dirty_bytes: u64,
    pub(crate) dirty_age_s: u64,
    pub(crate) in_progress: u64,
    pub(crate) starved: u64,
    pub(crate) reloads_waiting: u64,
    /// The state of the store in a word.
    pub(crate) store: String,
    /// Why the store is not up.
    pub(crate) trouble: Option<String>,
    /// Whether it has a level on flash that is not used any more.
    pub(crate) has_lost_flash: bool,
    pub(crate) block_bytes: u64,
    /// What it knows of what its clients hold.
    pub(crate) known: Option<Known>,
    pub(crate) caches: Vec<ClientCache>,
}

/// A connection between two looks.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClientFigures {
    pub(crate) volume: String,
    pub(crate) client: String,
    pub(crate) requests_s: f64,
    pub(crate) read_bytes_s: f64,
    pub(crate) written_bytes_s: f64,
    pub(crate) delayed: u64,
}

/// All figures of a server.
#[derive(Default)]
pub(crate) struct Figures {
    before: Option<(Value, Instant)>,
    /// The volumes in the order of the configuration.
    pub(crate) volumes: Vec<VolumeFigures>,
    pub(crate) total: VolumeFigures,
    /// The busiest first.
    pub(crate) clients: Vec<ClientFigures>,
    /// What the caches saved, in words.
    pub(crate) saved: Option<String>,
    /// Sentences of the server's advice.
    pub(crate) advice: Vec<String>,
}

/// The growth of counters.
struct Growth<'a> {
    now: &'a Value,
    before: &'a Value,
    seconds: f64,
}

impl Growth<'_> {
    fn of(&self, path: &str) -> f64 {
        let at = |value: &Value| value.pointer(path).and_then(Value::as_f64).unwrap_or(0.0);
        (at(self.now) - at(self.before)).max(0.0)
    }

    fn rate(&self, path: &str) -> f64 {
        if self.seconds > 0.0 { self.of(path) / self.seconds } else { 0.0 }
    }

    /// Requests a second of a kind.
    fn requests(&self, request: &str) -> f64 {
        let paths = SOURCES.map(|source| format!("/latency_us/{request}/{source}/count"));
        paths.iter().map(|path| self.rate(path)).sum()
    }
}

impl Figures {
    /// Takes over the counters that were read at some time.
    pub(crate) fn take(&mut self, stats: &Value, at: Instant) {
        let before = self.before.replace((stats.clone(), at));
        let (before, since) = before.map_or((Value::Null, None), |(stats, at)| (stats, Some(at)));
        let seconds = since.map_or(0.0, |since| at.saturating_duration_since(since).as_secs_f64());
        let curves: HashMap<String, _> =
            self.volumes.drain(..).map(|volume| (volume.name, volume.curve)).collect();
        let total_curve = std::mem::take(&mut self.total.curve);
        let (mut hits, mut reads) = (Sources::default(), 0.0);
        let mut total = VolumeFigures { name: "all".into(), ..VolumeFigures::default() };
        for (name, now) in volumes(stats) {
            let growth = Growth { now, before: &before["volumes"][name], seconds };
            let mut one = volume(name, &growth);
            let curve = curves.get(&one.name).cloned().unwrap_or_default();
            one.curve = continued(curve, one.sources);
            let read = growth.of("/reads");
            let own = one.sources.unwrap_or_default();
            hits.hits += own.hits * read;
            hits.waited += own.waited * read;
            hits.handed_over += own.handed_over * read;
            hits.reloaded += own.reloaded * read;
            hits.staged += own.staged * read;
            hits.flash += own.flash * read;
            reads += read;
            total.times.iter_mut().zip(&one.times).for_each(|(sum, own)| sum.add(own));
            total.reads_s += one.reads_s;
            total.writes_s += one.writes_s;
            total.read_bytes_s += one.read_bytes_s;
            total.written_bytes_s += one.written_bytes_s;
            total.cache_bytes += one.cache_bytes;
            total.resident_bytes += one.resident_bytes;
            total.dirty_bytes += one.dirty_bytes;
            total.dirty_age_s = total.dirty_age_s.max(one.dirty_age_s);
            total.in_progress += one.in_progress;
            total.starved += one.starved;
            total.reloads_waiting += one.reloads_waiting;
            total.store = worst(std::mem::take(&mut total.store), &one.store);
            self.volumes.push(one);
        }
        total.sources = (reads > 0.0).then(|| Sources {
            hits: hits.hits / reads,
            waited: hits.waited / reads,
            handed_over: hits.handed_over / reads,
            reloaded: hits.reloaded / reads,
            staged: hits.staged / reads,
            flash: hits.flash / reads,
        });
        total.curve = continued(total_curve, total.sources);
        self.total = total;
        self.clients = clients(stats, &before, seconds);
        self.saved = sentence(&stats["total"]);
    }

    /// Takes over the server's advice.
    pub(crate) fn advise(&mut self, advice: Option<&Value>) {
        let said = |value: &Value| -> Vec<String> {
            let all = value["sentences"].as_array().into_iter().flatten();
            all.filter_map(Value::as_str).map(shown).collect()
        };
        self.advice = advice.map_or_else(Vec::new, |advice| said(&advice["total"]));
        for (name, volume) in
            advice.and_then(|one| one["volumes"].as_object()).into_iter().flatten()
        {
            if volume["state"] != "off" {
                let sentences = said(volume).into_iter();
                self.advice.extend(sentences.map(|text| format!("{}: {text}", shown(name))));
            }
        }
    }

    /// What is not well, by volume; the second: whether the volume only waits for its store.
    pub(crate) fn troubles(&self) -> impl Iterator<Item = (String, bool)> {
        let all = self.volumes.iter();
        all.filter_map(|one| {
            let text = format!("{}: {}", one.name, one.trouble.as_ref()?);
            Some((text, one.store == "waiting"))
        })
    }
}

/// The state of the store of all, of which one more has another: the worst.
fn worst(all: String, one: &str) -> String {
    let place = |state: &str| {
        ["", "up", "waiting", "away", "failing", "down"].iter().position(|s| *s == state)
    };
    if place(one) > place(&all) { one.to_owned() } else { all }
}

fn continued(mut curve: VecDeque<Option<f64>>, sources: Option<Sources>) -> VecDeque<Option<f64>> {
    curve.push_back(sources.map(|sources| sources.hits));
    while curve.len() > CURVE {
        curve.pop_front();
    }
    curve
}

fn volume(name: &str, growth: &Growth<'_>) -> VolumeFigures {
    let now = |field: &str| growth.now.pointer(field).and_then(Value::as_u64).unwrap_or(0);
    let block = now("/block_bytes") as f64;
    let reads = growth.of("/reads");
    let share = |fields: &[&str]| fields.iter().map(|field| growth.of(field)).sum::<f64>() / reads;
    let sources = (reads > 0.0).then(|| Sources {
        hits: share(&["/read_hits"]),
        waited: share(&["/joined_reads"]),
        handed_over: share(&["/cooperation/demoted_hits"]),
        reloaded: share(&["/cooperation/reloaded_hits"]),
        staged: share(&["/cooperation/staged_hits", "/cooperation/restaged_hits"]),
        flash: share(&["/flash/hits"]),
    });
    let times = KINDS.map(|(request, sources)| {
        Times::of(growth.now, request, sources).since(&Times::of(growth.before, request, sources))
    });
    let store = shown(store_state(growth.now));
    let trouble = growth.now["store_trouble"].as_str().map(shown);
    VolumeFigures {
        name: shown(name),
        sources,
        reads_s: growth.requests("read"),
        writes_s: growth.requests("write"),
        read_bytes_s: growth.rate("/reads") * block,
        written_bytes_s: growth.rate("/writes") * block,
        times,
        cache_bytes: now("/capacity_blocks") * block as u64,
        resident_bytes: now("/resident") * block as u64,
        dirty_bytes: now("/dirty") * block as u64,
        dirty_age_s: now("/dirty_age_s"),
        in_progress: now("/in_progress"),
        starved: now("/starved"),
        reloads_waiting: now("/cooperation/reloads_waiting"),
        trouble: trouble.or_else(|| (store != "up").then(|| format!("its store is {store}"))),
        store,
        has_lost_flash: growth.now.pointer("/flash/up").is_some_and(|up| *up == 0),
        block_bytes: block as u64,
        known: known(growth.now),
        caches: caches(growth.now),
        ..VolumeFigures::default()
    }
}

/// The connections, by name where they have one; those of one name together.
fn clients(stats: &Value, before: &Value, seconds: f64) -> Vec<ClientFigures> {
    let gathered = |stats: &Value| {
        let mut all: HashMap<(String, String), [u64; 4]> = HashMap::new();
        for (name, volume) in volumes(stats) {
            for client in volume["clients"].as_array().into_iter().flatten() {
                let id = client["client"].as_str().unwrap_or("-").to_owned();
                let sums = all.entry((name.to_owned(), id)).or_default();
                let fields = ["requests", "bytes_read", "bytes_written", "delayed_requests"];
                for (sum, field) in sums.iter_mut().zip(fields) {
                    *sum += client[field].as_u64().unwrap_or(0);
                }
            }
        }
        all
    };
    let before = gathered(before);
    let mut all: Vec<_> = gathered(stats).into_iter().collect();
    all.sort_by(|(a, [most, ..]), (b, [other, ..])| other.cmp(most).then_with(|| a.cmp(b)));
    let figures = |((volume, client), now): (_, [u64; 4])| {
        let key: (String, String) = (volume, client);
        let old = before.get(&key).copied().unwrap_or(now);
        let rate = |at: usize| {
            if seconds > 0.0 { now[at].saturating_sub(old[at]) as f64 / seconds } else { 0.0 }
        };
        ClientFigures {
            volume: shown(&key.0),
            client: shown(&key.1),
            requests_s: rate(0),
            read_bytes_s: rate(1),
            written_bytes_s: rate(2),
            delayed: now[3],
        }
    };
    all.into_iter().map(figures).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;

    fn stats(reads: u64, hits: u64, slow: u64) -> Value {
        json!({ "volumes": { "a\u{1b}[2J": {
            "position": 0, "block_bytes": 4096, "reads": reads, "read_hits": hits, "store_up": 1,
            "capacity_blocks": 9, "resident": 3, "joined_reads": 0, "dirty": 2, "dirty_age_s": 7, "store_trouble": null,
            "cooperation": { "demoted_hits": hits / 2, "reloads_waiting": 5 },
            "flash": { "hits": (reads - hits) / 2, "up": 0 },
            "latency_us": { "read": {
                "miss": { "count": reads, "buckets": [[20.0, reads - slow], [3000.0, slow]] },
            } },
            "client_caches": [{ "client": "5", "tells_evictions": true }],
            "clients": [{ "client": "c\r\n", "requests": reads, "bytes_read": 4096 * reads }],
        } } })
    }

    #[test]
    fn growth_between_two_looks() {
        let (mut figures, began) = (Figures::default(), Instant::now());
        figures.take(&stats(100, 50, 60), began);
        let first = figures.volumes[0].clone();
        assert_eq!(first.sources.unwrap().hits, 0.5);
        let of_misses =
            |volume: &VolumeFigures| [0.5, 0.99].map(|q| volume.times[1].quantile_us(q));
        assert_eq!((first.reads_s, of_misses(&first)), (0.0, [Some(3000.0); 2]));
        figures.take(&stats(300, 210, 70), began + Duration::from_secs(4));
        let [volume] = &figures.volumes[..] else { panic!("one volume") };
        let sources = volume.sources.unwrap();
        assert_eq!((sources.hits, sources.handed_over, sources.flash), (0.8, 0.4, 0.1));
        assert!(volume.has_lost_flash);
        assert_eq!((volume.reads_s, volume.read_bytes_s), (50.0, 50.0 * 4096.0));
        assert_eq!(of_misses(volume), [Some(20.0), Some(3000.0)]);
        assert_eq!(volume.times[0].quantile_us(0.5), None);
        assert_eq!(figures.total.times, volume.times);
        assert_eq!(volume.known.as_ref().unwrap().told, 0);
        assert_eq!((volume.caches.len(), volume.block_bytes), (1, 4096));
        assert_eq!((volume.cache_bytes, volume.resident_bytes), (9 * 4096, 3 * 4096));
        assert_eq!((volume.dirty_bytes, volume.dirty_age_s, volume.reloads_waiting), (8192, 7, 5));
        assert_eq!(volume.curve, [Some(0.5), Some(0.8)]);
        assert_eq!(figures.total.sources, volume.sources);
        assert_eq!(figures.clients[0].requests_s, 50.0);
        // Nothing that a terminal acts on.
        let names = [&volume.name, &figures.clients[0].client];
        assert!(names.iter().all(|name| !name.contains(char::is_control)), "{names:?}");
        // Counts that were reset are no growth; nothing read is no hit ratio.
        figures.take(&stats(0, 0, 0), began + Duration::from_secs(6));
        assert_eq!((figures.total.sources, figures.total.reads_s), (None, 0.0));
    }

    #[test]
    fn advice_of_those_that_have_some() {
        let mut figures = Figures::default();
        let volume = |state: &str, text: &str| json!({ "state": state, "sentences": [text] });
        figures.advise(Some(&json!({
            "volumes": { "a": volume("ready", "more"), "b": volume("off", "x") },
            "total": { "sentences": ["all"] },
        })));
        assert_eq!(figures.advice, ["all", "a: more"]);
        figures.advise(None);
        assert!(figures.advice.is_empty());
    }
}
