//! What clients hold, and how well a server knows it, as its counters tell: for `top` and `stats`.
//!
//! Not here: how it looks (`top/view.rs`, `command/stats.rs`).

use serde_json::Value;

/// The cache of a client, as it was last described by itself or its tracker.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ClientCache {
    /// The client's number, or a name for all connections without an id.
    pub(crate) client: String,
    /// Whether the client tells what it evicts.
    pub(crate) tells_evictions: bool,
    /// The fields below are `None` if the client has not told them.
    pub(crate) policy: Option<String>,
    pub(crate) capacity_blocks: Option<u64>,
    pub(crate) reads: Option<u64>,
    pub(crate) evictions: Option<u64>,
    /// Share of its reads that hit. A cache that is observed from outside does not show it.
    pub(crate) hit_ratio: Option<f64>,
    /// Share of the evictions that were noticed too late; of a cache that is observed from outside,
    /// like the fields below.
    pub(crate) late: Option<f64>,
    /// Evictions that were not told.
    pub(crate) untold: Option<u64>,
    /// Shares, if the tracker was ever compared with the real cache: of what it believes cached,
    /// what is; of what is cached, what it knows.
    pub(crate) precision: Option<f64>,
    pub(crate) recall: Option<f64>,
}

/// The caches of a volume's clients, in the JSON of the volume.
pub(crate) fn caches(volume: &Value) -> Vec<ClientCache> {
    volume["client_caches"].as_array().into_iter().flatten().map(cache).collect()
}

fn cache(told: &Value) -> ClientCache {
    let tracking = &told["tracking"];
    let number = |field: &str| told[field].as_u64();
    let reads = number("reads").filter(|&reads| reads > 0 && tracking.is_null());
    let hits = number("read_hits").zip(reads);
    let evictions = number("evictions");
    let late = tracking["late_evictions"].as_u64();
    let text = |field: &str| told[field].as_str().map(shown);
    ClientCache {
        client: text("client").unwrap_or_else(|| "-".to_owned()),
        tells_evictions: told["tells_evictions"] == true,
        policy: text("policy"),
        capacity_blocks: number("capacity_blocks"),
        reads: number("reads"),
        evictions,
        hit_ratio: hits.map(|(hits, reads)| hits as f64 / reads as f64),
        late: late
            .map(|late| late as f64 / late.saturating_add(evictions.unwrap_or(0)).max(1) as f64),
        untold: tracking["untold_evictions"].as_u64(),
        precision: tracking["precision"].as_f64(),
        recall: tracking["recall"].as_f64(),
    }
}

/// What a volume knows of what its clients hold.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Known {
    /// Evictions that clients told; of them those told too late, and of blocks that were read again
    /// since.
    pub(crate) told: u64,
    pub(crate) late: u64,
    pub(crate) stale: u64,
    /// Evictions of blocks that another client holds.
    pub(crate) held_by_others: u64,
    /// Contents that came with evictions, and were taken or refused.
    pub(crate) taken: u64,
    pub(crate) refused: u64,
    /// Blocks that clients are believed to hold.
    pub(crate) believed_blocks: u64,
    /// Share of other blocks that a client's summary names too; `None` without summaries.
    pub(crate) false_positives: Option<f64>,
}

/// What is known, in the JSON of a volume; `None` if it does not ask.
pub(crate) fn known(volume: &Value) -> Option<Known> {
    let (coop, aware) = (&volume["cooperation"], &volume["aware"]);
    if coop.is_null() && aware.is_null() {
        return None;
    }
    let of = |group: &Value, field: &str| group[field].as_u64().unwrap_or(0);
    let both = |field: &str| of(coop, field).saturating_add(of(aware, field));
    let summaries = of(aware, "summaries") > 0;
    Some(Known {
        told: both("hints"),
        late: both("late_hints"),
        stale: both("stale_hints"),
        held_by_others: both("held_by_others"),
        taken: of(coop, "demotions_accepted"),
        refused: of(coop, "demotions_refused"),
        believed_blocks: of(coop, "estimated_client_blocks")
            .saturating_add(of(aware, "emulated_blocks")),
        false_positives: summaries.then(|| of(aware, "false_positives_ppm") as f64 / 1e6),
    })
}

/// A name or a text of the server, without what a terminal would act on.
pub(crate) fn shown(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_clients_told() {
        let own = json!({ "client": "7", "tells_evictions": true, "policy": "lru\u{1b}",
            "capacity_blocks": 10, "reads": 8, "read_hits": 2, "evictions": 5, "tracking": null });
        let tracking = json!({ "late_evictions": 1, "untold_evictions": 4, "recall": 0.5 });
        let watched = json!({ "client": "8", "reads": 8, "read_hits": 2, "evictions": 3,
            "tracking": tracking });
        let all = caches(&json!({ "client_caches": [own, watched, {}] }));
        let [own, watched, silent] = &all[..] else { panic!("{all:?}") };
        assert_eq!((own.hit_ratio, own.late, own.tells_evictions), (Some(0.25), None, true));
        assert_eq!(own.policy.as_deref(), Some("lru\u{fffd}"));
        assert_eq!((watched.hit_ratio, watched.late), (None, Some(0.25)));
        assert_eq!((watched.untold, watched.recall, watched.precision), (Some(4), Some(0.5), None));
        assert_eq!((silent.client.as_str(), silent.reads), ("-", None));
    }

    #[test]
    fn what_is_known_of_both_kinds() {
        assert_eq!(known(&json!({ "reads": 1 })), None);
        let coop = json!({ "hints": 5, "late_hints": 2, "demotions_accepted": 1 });
        let aware = json!({ "hints": 7, "emulated_blocks": 9, "summaries": 1,
            "false_positives_ppm": 10_000 });
        let told = known(&json!({ "cooperation": coop, "aware": aware })).unwrap();
        assert_eq!((told.told, told.late, told.taken, told.believed_blocks), (12, 2, 1, 9));
        assert_eq!(told.false_positives, Some(0.01));
        let told = known(&json!({ "cooperation": coop })).unwrap();
        assert_eq!((told.told, told.false_positives), (5, None));
    }
}
