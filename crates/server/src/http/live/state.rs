//! What the live page shows of the present beside its curves: the volumes, what is wrong with them,
//! their clients, and what is known of what these hold. Bounded, whatever the number and the names
//! of volumes and clients.

use std::sync::atomic::Ordering;

use serde_json::{Map, Value, json};

use super::VOLUMES;
use crate::clock;
use crate::counters::Stats;
use crate::events::{self, cut};
use crate::exports::ExportEntry;
use crate::http::metrics::About;
use crate::http::{all_troubles, not_served, trouble};
use crate::savings::Savings;
use crate::volume::store_state::StoreState;

/// Most volumes that are named as not healthy.
const TROUBLES: usize = 20;

/// Most clients that are shown of a volume, and of all: the busiest.
const CLIENTS: (usize, usize) = (12, 200);

/// Most events that are shown.
const EVENTS: usize = 60;

/// Most characters of a name or a reason.
const CHARACTERS: usize = 200;

/// The state of the server now.
pub(super) fn of(about: &About) -> Value {
    let (entries, pending) = (about.exports.all(), about.exports.pending());
    let count = entries.len() + pending.len();
    let all_troubles = all_troubles(&about.exports);
    let mut troubles: Vec<_> = all_troubles
        .iter()
        .map(|trouble| {
            (cut(&trouble.volume, CHARACTERS), cut(&trouble.why, CHARACTERS), trouble.waits)
        })
        .collect();
    // What only waits comes last.
    troubles.sort_by_key(|(.., waits)| *waits);
    let mut saved = Savings::default();
    let (mut volumes, mut clients, mut caches) = (Map::new(), Vec::new(), Vec::new());
    let mut connections = 0;
    let order = about.exports.order();
    let position = |name: &str| order.iter().position(|other| other == name);
    for entry in &entries {
        let name = &entry.volume().config().name;
        let mut all = entry.clients();
        connections += all.len();
        all.truncate(CLIENTS.0);
        let own = entry.volume().savings(&entry.volume().stats());
        saved.sum(&own);
        if position(name).is_none_or(|position| position >= VOLUMES) {
            continue;
        }
        let mut one = volume(entry);
        one["saved"] = json!(own);
        volumes.insert(name.clone(), one);
        for client in all {
            let mut one = json!(client);
            one["volume"] = json!(name);
            one["client"] = json!(cut(&client.client, CHARACTERS));
            clients.push(one);
        }
        let told = entry.volume().clients.told().unwrap_or_default();
        for cache in told.into_iter().take(CLIENTS.0) {
            let mut one = json!(cache);
            one["volume"] = json!(name);
            caches.push(one);
        }
    }
    for away in &pending {
        let name = &away.config().name;
        if position(name).is_some_and(|position| position < VOLUMES) {
            let why = cut(&not_served(away), CHARACTERS);
            volumes.insert(name.clone(), json!({ "state": StoreState::Away, "trouble": why }));
        }
    }
    clients.sort_by_key(|client| std::cmp::Reverse(client["requests"].as_u64()));
    clients.truncate(CLIENTS.1);
    caches.truncate(CLIENTS.1);
    let waiting = troubles.iter().filter(|(.., waits)| *waits).count();
    let troubled = troubles.len() - waiting;
    troubles.truncate(TROUBLES);
    let uptime = clock::now().saturating_duration_since(about.began).as_secs();
    let order: Vec<_> = order.iter().take(VOLUMES).collect();
    json!({
        "uptime_s": uptime,
        "certificate_expiry_s": about.expiry.load(Ordering::Relaxed),
        "refused_connections": about.server.refused(),
        "volume_count": count,
        "troubled": troubled,
        "waiting": waiting,
        "troubles": troubles,
        "order": order,
        "volumes": volumes,
        "connections": connections,
        "clients": clients,
        "caches": caches,
        "saved": saved,
        "events": events::last(EVENTS, None),
    })
}

/// What is configured for a volume, and what it knows of its clients.
fn volume(entry: &ExportEntry) -> Value {
    let (volume, stats) = (entry.volume(), entry.volume().stats());
    let config = volume.now();
    json!({
        "policy": config.policy.to_string(),
        "placement": config.placement.to_string(),
        "write": config.write.to_string(),
        "block_bytes": config.block_bytes,
        "size_bytes": volume.size(),
        "state": volume.store_health.look().state,
        "trouble": trouble(entry).map(|trouble| cut(&trouble.why, CHARACTERS)),
        "reads": stats.reads,
        "read_hits": stats.read_hits,
        "known": known(&stats),
        "flash": stats.flash.map(|flash| json!({
            "bytes": flash.capacity_blocks.saturating_mul(config.block_bytes.into()),
            "is_used": flash.up > 0,
        })),
    })
}

/// What a volume knows of what its clients hold; null if it does not ask.
fn known(stats: &Stats) -> Value {
    let (coop, aware) = (stats.cooperation, stats.aware);
    if coop.is_none() && aware.is_none() {
        return Value::Null;
    }
    let (coop, aware) = (coop.unwrap_or_default(), aware.unwrap_or_default());
    json!({
        "believed_blocks": coop.estimated_client_blocks + aware.emulated_blocks,
        "told_evictions": coop.hints + aware.hints,
        "late": coop.late_hints + aware.late_hints,
        "stale": coop.stale_hints + aware.stale_hints,
        "held_by_others": coop.held_by_others + aware.held_by_others,
        "contents_taken": coop.demotions_accepted,
        "contents_refused": coop.demotions_refused,
        "mistaken": aware.mistaken,
        "summaries": aware.summaries,
        "false_positives_ppm": aware.false_positives_ppm,
    })
}
