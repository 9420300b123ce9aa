//! What changes while a server runs: certificates, sizes, volumes that come and go, and who may
//! use them. Whatever cannot be done is logged, with the reason, and stays as it was.
//!
//! Memory: a volume keeps its share of the cache for as long as it is there. One that comes takes
//! its own (`cache=SIZE`) from what no volume has; one that goes gives its share back.

use std::sync::Arc;
use std::time::Duration;

use undercroft_nbd::Peer;

use super::access::Door;
use super::plan::{Plan, PlannedVolume, TlsPlan};
use super::run::{
    GRACE, Running, close, load_keys, open_volume, outdate_unwritten, upstream_options,
};
use crate::clock;

/// How long to wait for whoever still uses a volume that is closed and gone, so that its file can
/// be opened again.
const LAST_USER: Duration = Duration::from_secs(5);

/// Pause between two looks at something that is about to end.
const LOOK: Duration = Duration::from_millis(10);

impl Running {
    /// Takes over what can be changed without a restart; `Err`: why there is no plan, and what is
    /// read again is read from where it was.
    ///
    /// May be dropped half-way: [`Running::stop`] then still finds every volume.
    pub async fn reload(&mut self, plan: Result<Plan, String>) {
        match plan {
            Err(error) => tracing::error!("{error}; all settings stay as they were"),
            Ok(plan) => {
                for setting in self.plan.fixed_changes(&plan) {
                    tracing::warn!("{setting}: changed, which needs a restart; stays as it was");
                }
                let same =
                    std::mem::discriminant(&self.plan.tls) == std::mem::discriminant(&plan.tls);
                if same {
                    self.plan.tls = plan.tls.clone();
                }
                self.remove_volumes(&plan).await;
                self.change_volumes(&plan).await;
                self.add_volumes(&plan).await;
                let there = self.volumes();
                let is_there = |name: &String| there.iter().any(|v| v.config().name == *name);
                let mut names = plan.volumes.into_iter().map(|planned| planned.config.name);
                self.doors.set_default(names.find(is_there));
            }
        }
        self.reload_keys();
        self.grow_volumes().await;
    }

    fn planned(&self, name: &str) -> Option<&PlannedVolume> {
        self.plan.volumes.iter().find(|planned| planned.config.name == name)
    }

    fn reload_keys(&self) {
        let (TlsPlan::Offered(paths) | TlsPlan::Required(paths)) = &self.plan.tls else { return };
        let Some(keys) = &self.keys else { return };
        match load_keys(paths) {
            Ok(config) => {
                keys.replace(config);
                tracing::info!("certificates reloaded");
            }
            Err(error) => tracing::error!("certificates stay as they were: {error}"),
        }
    }

    async fn grow_volumes(&self) {
        for volume in self.volumes() {
            let (name, before) = (&volume.config().name, volume.size());
            match volume.grow().await {
                Ok(size) if size > before => {
                    tracing::info!(volume = name, before, size, "the volume has grown");
                }
                Ok(_) => {}
                Err(error) => tracing::error!(volume = name, "cannot look at its size: {error}"),
            }
            let told = self.planned(name).and_then(|planned| planned.size);
            if let Some(told) = told.filter(|&told| told != volume.size()) {
                let size = volume.size();
                tracing::warn!(volume = name, told, size, "the size told is not the store's");
            }
        }
    }

    /// Closes the volumes that the plan has no more, and tries again with those that could not be
    /// closed before.
    async fn remove_volumes(&mut self, plan: &Plan) {
        let stays = |name: &str| plan.volumes.iter().any(|volume| volume.config.name == name);
        let names: Vec<_> = self.plan.volumes.iter().map(|v| v.config.name.clone()).collect();
        for name in names.into_iter().filter(|name| !stays(name)) {
            // Kept where the end of the server finds it, before anything is waited for.
            self.leaving.extend(self.doors.remove(&name));
        }
        let mut at = 0;
        while let Some(door) = self.leaving.get(at).cloned() {
            let name = door.volume().config().name.clone();
            self.send_away(&door, |_| true).await;
            if let Err(error) = close(door.volume(), self.state.as_ref()).await {
                tracing::error!(
                    volume = name,
                    "cannot be removed yet: {error}; the next SIGHUP tries again"
                );
                at += 1;
                continue;
            }
            self.leaving.remove(at);
            self.plan.volumes.retain(|planned| planned.config.name != name);
            await_last_user(door).await;
            tracing::info!(volume = name, "the volume is removed");
        }
    }

    /// Applies new rules of access, and says what cannot be changed.
    async fn change_volumes(&mut self, plan: &Plan) {
        for next in &plan.volumes {
            let name = &next.config.name;
            let found = self.plan.volumes.iter_mut().find(|now| now.config.name == *name);
            let Some(now) = found else { continue };
            for setting in now.fixed_changes(next) {
                tracing::warn!(
                    volume = name,
                    "{setting}: changed, which needs a restart; stays as it was"
                );
            }
            now.size = next.size;
            if now.access == next.access {
                continue;
            }
            let before = std::mem::replace(&mut now.access, next.access.clone());
            let Some(door) = self.doors.change(name, next.access.clone()) else { continue };
            tracing::info!(volume = name, "who may use it has changed");
            let unwelcome = |peer: &Peer| door.turns_away(&before, peer);
            self.send_away(&door, unwelcome).await;
        }
    }

    async fn add_volumes(&mut self, plan: &Plan) {
        for next in &plan.volumes {
            let name = &next.config.name;
            if self.planned(name).is_some() {
                continue;
            }
            match self.add_volume(next, plan.cache_bytes).await {
                Ok(()) => {
                    let store = next.store.to_string();
                    tracing::info!(volume = name, store, "the volume is added");
                }
                Err(error) => tracing::error!(volume = name, "is not added: {error}"),
            }
        }
        let assigned = self.assigned();
        if plan.cache_bytes >= assigned {
            self.plan.cache_bytes = plan.cache_bytes;
        } else {
            let told = plan.cache_bytes;
            tracing::warn!(told, assigned, "cache: less than the volumes have needs a restart");
        }
    }

    /// Bytes of cache that volumes have.
    fn assigned(&self) -> u64 {
        let volumes = self.plan.volumes.iter().map(|planned| &planned.config);
        volumes.map(|c| u64::from(c.cache_blocks) * u64::from(c.block_bytes)).sum()
    }

    async fn add_volume(&mut self, next: &PlannedVolume, cache_bytes: u64) -> Result<(), String> {
        let Some(own) = next.own_cache else {
            return Err(
                "give it a cache of its own, cache=SIZE or cache=off: the volumes without \
                        one have divided the rest at the start"
                    .to_owned(),
            );
        };
        let free = cache_bytes.saturating_sub(self.assigned());
        if own > free {
            return Err(format!(
                "it asks for {own} bytes of cache, and {free} of {cache_bytes} belong to no \
                 volume; give the server a larger cache, or the volume a smaller one"
            ));
        }
        let upstream =
            upstream_options(&self.plan, &self.surroundings).map_err(|error| error.to_string())?;
        let opened = open_volume(next, &upstream, &self.surroundings).await;
        let volume = opened.map_err(|error| error.to_string())?;
        self.plan.volumes.push(next.clone());
        outdate_unwritten(&self.plan, next);
        if let Some(state) = &self.state {
            state.resume(&volume);
        }
        self.doors.add(volume, next.access.clone());
        Ok(())
    }

    /// Ends the connections of these peers to a volume whose door is shut for them.
    async fn send_away(&self, door: &Door, unwelcome: impl Fn(&Peer) -> bool) {
        let name = &door.volume().config().name;
        let deadline = clock::now() + GRACE;
        // One that was let in before the door was shut may still be on its way to transmission.
        while door.has_guest(&unwelcome) {
            let grace = deadline.saturating_duration_since(clock::now());
            let is_meant = |export: &str, peer: &Peer| export == name && unwelcome(peer);
            let cut = self.server.hang_up(is_meant, grace).await;
            if cut > 0 {
                tracing::warn!(volume = name, connections = cut, "closed with requests unanswered");
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}

/// Waits until nobody holds the volume any more; its store is closed then.
async fn await_last_user(door: Arc<Door>) {
    let volume = Arc::downgrade(door.volume());
    drop(door);
    let deadline = clock::now() + LAST_USER;
    while volume.strong_count() > 0 && clock::now() < deadline {
        tokio::time::sleep(LOOK).await;
    }
}

impl Plan {
    /// Settings of the server that differ and cannot be changed while it runs.
    fn fixed_changes(&self, next: &Plan) -> Vec<&'static str> {
        let mode = |plan: &Plan| std::mem::discriminant(&plan.tls);
        let limits = |plan: &Plan| {
            let each = (plan.max_requests, plan.max_bytes);
            (plan.max_connections, each, plan.handshake_timeout, plan.busy_poll)
        };
        let differ = [
            ("listen", self.listen != next.listen),
            ("http", self.http != next.http),
            ("state", self.state != next.state),
            ("unwritten", self.unwritten != next.unwritten),
            ("state-interval-s", self.state_interval != next.state_interval),
            ("tls.mode", mode(self) != mode(next)),
            ("tls.upstream", self.upstream_tls != next.upstream_tls),
            ("limits", limits(self) != limits(next)),
            ("limits.close-s", self.close_patience != next.close_patience),
        ];
        differ.into_iter().filter_map(|(name, differs)| differs.then_some(name)).collect()
    }
}

impl PlannedVolume {
    /// As for the server. The size is no such setting: it follows the store.
    fn fixed_changes(&self, next: &PlannedVolume) -> Vec<&'static str> {
        let (now, then) = (&self.config, &next.config);
        let differ = [
            ("store", self.store != next.store),
            ("cache", self.own_cache != next.own_cache),
            ("description", now.description != then.description),
            ("block", now.block_bytes != then.block_bytes),
            ("policy", now.policy.to_string() != then.policy.to_string()),
            ("placement", now.placement != then.placement || now.scheme != then.scheme),
            ("evictions", now.estimate != then.estimate),
            ("reloads", now.reload_at_once != then.reload_at_once),
            ("report", self.report != next.report),
            ("write", now.write != then.write),
            ("shards", now.shards != then.shards),
            ("read-only", now.read_only != then.read_only),
            ("read-ahead", now.read_ahead_bytes != then.read_ahead_bytes),
            ("dirty-age-s", now.dirty_age != then.dirty_age),
            ("dirty-percent", now.dirty_share != then.dirty_share),
        ];
        differ.into_iter().filter_map(|(name, differs)| differs.then_some(name)).collect()
    }
}
