//! SIGHUP: what changes while a server runs: certificates, sizes, added and removed volumes, and
//! what `change.rs` changes of a volume. Whatever cannot be changed is logged with the reason, and
//! stays as it was.
//!
//! Memory: a volume keeps its share of the cache until its own `cache` changes. An added volume
//! takes its share (`cache=SIZE`) from the unassigned cache; a removed volume returns its share.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::timeout;
use undercroft_nbd::Peer;
use undercroft_text::Bytes;

use super::arrivals::{Arrival, First, Opener};
use super::exports::ExportEntry;
use super::memory_limit;
use super::run::{GRACE, Running, ServeError, close, expiry, look_at_certificates, opener};
use super::set::OWNER;
use crate::clock;
use crate::config::{ServerConfig, VolumeConfig};

/// How long to wait for the last user of a removed volume, so that its file can be opened again.
const LAST_USER: Duration = Duration::from_secs(5);

/// How long a reload waits for a store to learn its size.
const ANSWERS: Duration = Duration::from_secs(10);

/// Pause between two checks for something that is about to end.
const LOOK: Duration = Duration::from_millis(10);

/// What the present reload could not do.
#[derive(Default)]
pub(super) struct Problems(Mutex<Vec<String>>);

/// Logs a problem, and keeps it for the result of the reload.
macro_rules! problem {
    ($problems:expr, $log:ident!($($field:ident = $value:expr,)* $text:literal $(,)?)) => {{
        tracing::$log!($($field = $value,)* $text);
        let fields: Vec<(&str, String)> = vec![$((stringify!($field), $value.to_string())),*];
        $problems.keep(&fields, &format!($text));
    }};
}

impl Problems {
    fn keep(&self, fields: &[(&str, String)], text: &str) {
        let fields: Vec<_> = fields.iter().map(|(name, value)| format!("{name} {value}")).collect();
        let fields = if fields.is_empty() { String::new() } else { fields.join(", ") + ": " };
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(fields + text);
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Running {
    /// Applies what can be changed without a restart. `Err`: why there is no new configuration; the
    /// files named by the old one are then read again.
    ///
    /// The result is what could not be applied; the log has that too.
    ///
    /// May be dropped at any point: [`Running::stop`] then still finds every volume.
    pub async fn reload(&mut self, config: Result<ServerConfig, String>) -> Vec<String> {
        self.problems.take();
        match config {
            Err(error) => {
                // One line an event.
                let error = error.replacen("mistakes:\n  ", "mistakes: ", 1).replace("\n  ", "; ");
                problem!(self.problems, error!("{error}; all settings stay as they were"))
            }
            Ok(next) => {
                for option in self.config.fixed_changes(&next) {
                    problem!(
                        self.problems,
                        warn!("{option}: changed, which needs a restart; stays as it was")
                    );
                }
                self.config.tls.take_keys(&next.tls);
                self.config.http_token_file.clone_from(&next.http_token_file);
                self.config.http_hosts.clone_from(&next.http_hosts);
                self.rights.hosts.set(&self.config);
                // Until they are tried again, no volume arrives.
                join_all(self.arrivals.values().map(Arrival::end)).await;
                self.arrivals.clear();
                self.remove_volumes(&next).await;
                self.change_volumes(&next).await;
                self.try_again(&next);
                self.add_volumes(&next).await;
                let mut there: Vec<_> =
                    self.volumes().iter().map(|volume| volume.config().name.clone()).collect();
                there.extend(self.absent().into_iter().map(|(name, _)| name));
                let is_there = |name: &String| there.contains(name);
                let names = next.volumes.into_iter().map(|volume| volume.name);
                self.exports.set_order(names.filter(is_there).collect());
            }
        }
        self.reload_keys();
        self.end_the_removed().await;
        self.grow_volumes().await;
        let problems = self.problems.take();
        match problems.len() {
            0 => tracing::info!("reloaded"),
            problems => tracing::warn!(problems, "reloaded, except for what the log says above"),
        }
        problems
    }

    fn configured(&self, name: &str) -> Option<&VolumeConfig> {
        self.config.volumes.iter().find(|volume| volume.name == name)
    }

    /// Ends the connections of clients that new client roots do not confirm, and those by which
    /// changes are asked for of peers that are no administrators any more.
    async fn end_the_removed(&self) {
        let door = &self.exports.door;
        door.refuse_the_removed();
        let is_untrusted = |peer: &Peer| !peer.is_trusted();
        let mut entries = self.exports.all();
        entries.extend(self.leaving.iter().cloned());
        // All are refused at once, and end together.
        join_all(entries.iter().map(|entry| self.end_connections(entry, is_untrusted))).await;
        let is_removed = |owner: u64, peer: &Peer| owner == OWNER && door.admit(peer).is_err();
        let is_meant = |owner: u64, peer: &Peer| is_untrusted(peer) || is_removed(owner, peer);
        let cut = self.server.hang_up(is_meant, GRACE).await;
        if cut > 0 {
            problem!(self.problems, warn!(connections = cut, "closed with requests unanswered"));
        }
    }

    fn reload_keys(&self) {
        if let Err(error) = self.rights.token.load(self.config.http_token_file.as_deref()) {
            problem!(self.problems, error!("{error}; the token stays as it was"));
        }
        let (Some(files), Some(keys)) = (self.config.tls.files(), &self.keys) else { return };
        match files.load() {
            Ok(config) => {
                keys.replace(config);
                look_at_certificates(&self.config.tls);
                self.expiry.store(expiry(&self.config.tls), Ordering::Relaxed);
                tracing::info!("certificates reloaded");
            }
            Err(error) => {
                problem!(self.problems, error!("certificates stay as they were: {error}"))
            }
        }
    }

    async fn grow_volumes(&mut self) {
        for volume in self.volumes() {
            let (name, before) = (&volume.config().name, volume.size());
            if self.growing.get(name).is_some_and(|growing| !growing.is_finished()) {
                problem!(
                    self.problems,
                    error!(volume = name, "its store has still not said how large it is")
                );
                continue;
            }
            // A separate task, because a started store request must run to its end.
            let grows = Arc::clone(&volume);
            let mut growing = tokio::spawn(async move { grows.grow().await });
            let Ok(Ok(grown)) = timeout(ANSWERS, &mut growing).await else {
                let limit_s = ANSWERS.as_secs();
                problem!(
                    self.problems,
                    error!(
                        volume = name,
                        limit_s = limit_s,
                        "its store does not say how large it is; the size is as it was until it does"
                    )
                );
                self.growing.insert(name.clone(), growing);
                continue;
            };
            match grown {
                Ok(size) if size > before => {
                    tracing::info!(volume = name, before, size, "the volume has grown");
                }
                Ok(_) => {}
                Err(error) => problem!(
                    self.problems,
                    error!(volume = name, "cannot look at its size: {error}")
                ),
            }
            let told = self.configured(name).and_then(|volume| volume.size);
            if let Some(told) = told.filter(|&told| told != volume.size()) {
                let size = volume.size();
                problem!(
                    self.problems,
                    warn!(
                        volume = name,
                        told = told,
                        size = size,
                        "the size told is not the store's"
                    )
                );
            }
        }
    }

    /// Closes the volumes that are no longer in the configuration, and retries those that could not
    /// be closed before.
    async fn remove_volumes(&mut self, next: &ServerConfig) {
        let stays = |name: &str| next.volumes.iter().any(|volume| volume.name == name);
        let names: Vec<_> = self.config.volumes.iter().map(|v| v.name.clone()).collect();
        for name in names.into_iter().filter(|name| !stays(name)) {
            if self.exports.forget(&name) {
                self.config.volumes.retain(|volume| volume.name != name);
                tracing::info!(volume = name, "the volume is removed, which was not served yet");
                continue;
            }
            // Kept where `stop` finds it, before the first wait.
            self.leaving.extend(self.exports.remove(&name));
        }
        let mut at = 0;
        while let Some(entry) = self.leaving.get(at).cloned() {
            let name = entry.volume().config().name.clone();
            self.end_connections(&entry, |_| true).await;
            if let Err(error) = close(entry.volume(), self.state.as_ref()).await {
                problem!(
                    self.problems,
                    error!(
                        volume = name,
                        "cannot be removed yet: {error}; the next SIGHUP tries again"
                    )
                );
                at += 1;
                continue;
            }
            self.leaving.remove(at);
            self.config.volumes.retain(|volume| volume.name != name);
            await_last_user(entry).await;
            tracing::info!(volume = name, "the volume is removed");
        }
    }

    /// Changes what can change, smaller caches first, and logs what cannot.
    async fn change_volumes(&mut self, config: &ServerConfig) {
        self.forget_what_was_set();
        self.exports.door.set_administrators(&config.administrators);
        self.config.administrators = config.administrators.clone();
        self.config.is_cache_given = config.is_cache_given;
        let absent = self.exports.absent();
        let is_absent = |name: &str| absent.iter().any(|absent| absent.config().name == name);
        let grows = |next: &&VolumeConfig| {
            self.configured(&next.name).is_some_and(|now| now.cache_bytes() < next.cache_bytes())
        };
        let (growing, others): (Vec<_>, Vec<_>) = config.volumes.iter().partition(grows);
        let total = config.is_cache_given.then_some(config.cache_bytes);
        for next in others.into_iter().chain(growing) {
            let name = &next.name;
            let found = self.config.volumes.iter().position(|now| now.name == *name);
            let Some(at) = found.filter(|_| !is_absent(name)) else { continue };
            for option in self.config.volumes[at].fixed_changes(next) {
                problem!(
                    self.problems,
                    warn!(
                        volume = name,
                        "{option}: changed, which needs a restart; stays as it was"
                    )
                );
            }
            self.config.volumes[at].size = next.size;
            match self.change_cache(at, next, total).await {
                Ok(false) => {}
                Ok(true) => tracing::warn!(
                    volume = name,
                    "its store takes what must leave the cache; the rest follows by itself"
                ),
                Err(why) => problem!(
                    self.problems,
                    warn!(volume = name, "{why}; cache, policy and placement stay as they were")
                ),
            }
            self.change_write_back(at, next);
            self.change_access(at, next).await;
        }
    }

    /// Tries again to open the volumes whose stores are away, as they are configured now: nothing
    /// of them is open, so everything can change.
    fn try_again(&mut self, config: &ServerConfig) {
        for absent in self.exports.absent() {
            let name = &absent.config().name;
            let now = self.config.volumes.iter().position(|now| now.name == *name);
            let next = config.volumes.iter().find(|next| next.name == *name);
            let (Some(now), Some(next)) = (now, next) else { continue };
            match self.changed(&self.config.volumes[now], next, config.cache_bytes) {
                Ok(changed) => self.config.volumes[now] = changed,
                Err(error) => {
                    self.config.volumes[now].take_access(next);
                    problem!(
                        self.problems,
                        error!(volume = name, "stays as it was, except for access: {error}")
                    );
                }
            }
            match self.opener() {
                Ok(opener) => {
                    let arrival = opener.wait_for(&self.config.volumes[now]);
                    self.arrivals.insert(name.clone(), arrival);
                }
                Err(error) => problem!(
                    self.problems,
                    error!(volume = name, "the next SIGHUP tries it: {error}")
                ),
            }
        }
    }

    /// A volume that is not open, with its new configuration. It keeps its part of the rest of the
    /// cache.
    fn changed(
        &self,
        before: &VolumeConfig,
        next: &VolumeConfig,
        cache_bytes: u64,
    ) -> Result<VolumeConfig, String> {
        let mut changed = next.clone();
        if next.cache.own().is_none() {
            changed.share_rest(before.cache_bytes())?;
        }
        self.has_room(&changed, Some(cache_bytes.max(self.config.cache_bytes)))?;
        Ok(changed)
    }

    /// What opens volumes from now on.
    fn opener(&self) -> Result<Opener, ServeError> {
        opener(&self.config, &self.surroundings, &self.exports, self.state.as_ref())
    }

    async fn add_volumes(&mut self, config: &ServerConfig) {
        for next in &config.volumes {
            let name = &next.name;
            if self.configured(name).is_some() {
                if self.leaving.iter().any(|entry| entry.volume().config().name == *name) {
                    problem!(
                        self.problems,
                        error!(
                            volume = name,
                            "is not served: it was removed, and what it holds is not all written; the \
                         next SIGHUP tries to close it and to open it again"
                        )
                    );
                }
                continue;
            }
            match self.add_volume(next, config.cache_bytes).await {
                Ok(true) => {
                    let store = next.store.to_string();
                    tracing::info!(volume = name, store, "the volume is added");
                }
                // Its task says why.
                Ok(false) => {}
                Err(error) => {
                    problem!(self.problems, error!(volume = name, "is not added: {error}"))
                }
            }
        }
        let assigned = self.assigned();
        if config.cache_bytes >= assigned {
            self.config.cache_bytes = config.cache_bytes;
        } else {
            let told = config.cache_bytes;
            problem!(
                self.problems,
                warn!(
                    told = told,
                    assigned = assigned,
                    "cache: less than the volumes have needs a restart"
                )
            );
        }
    }

    /// Bytes of cache assigned to volumes.
    pub(super) fn assigned(&self) -> u64 {
        self.config.volumes.iter().map(VolumeConfig::cache_bytes).sum()
    }

    /// Adds a volume; returns whether it is served already, and not waited for.
    async fn add_volume(&mut self, next: &VolumeConfig, cache_bytes: u64) -> Result<bool, String> {
        let Some(own) = next.cache.own() else {
            return Err(
                "give it a cache of its own, cache=SIZE or cache=off: the volumes without \
                        one have divided the rest at the start"
                    .to_owned(),
            );
        };
        let free = cache_bytes.saturating_sub(self.assigned());
        if own > free {
            return Err(format!(
                "it asks for {} of cache, and {} of {} belong to no volume; give the server a \
                 larger cache, or the volume a smaller one",
                Bytes(own),
                Bytes(free),
                Bytes(cache_bytes)
            ));
        }
        let volumes = [&self.config.volumes[..], std::slice::from_ref(next)].concat();
        memory_limit::check(&volumes).map_err(|error| error.to_string())?;
        let _nothing_is_lent = self.lending.take_back(&self.exports).await?;
        let opener = self.opener().map_err(|error| error.to_string())?;
        let first = opener.open(next).await.map_err(|error| error.to_string())?;
        self.config.volumes.push(next.clone());
        let is_open = matches!(first, First::Open(_));
        match first {
            First::Open(volume) => opener.serve(volume, next),
            First::Away(waiting) => {
                self.arrivals.insert(next.name.clone(), opener.wait(waiting));
            }
        }
        Ok(is_open)
    }

    /// Ends the connections of some peers to a volume, its control export and its advice, after the
    /// entry was closed for them. Takes at most [`GRACE`]; requests are refused at once.
    pub(super) async fn end_connections(
        &self,
        entry: &ExportEntry,
        unwelcome: impl Fn(&Peer) -> bool,
    ) {
        let (name, owner) = (&entry.volume().config().name, entry.owner());
        let deadline = clock::now() + GRACE;
        // A connection that began before the entry was closed may still be in its handshake.
        loop {
            let connections = entry.revoke(&unwelcome);
            let grace = deadline.saturating_duration_since(clock::now());
            if connections > 0 && grace.is_zero() {
                problem!(
                    self.problems,
                    error!(
                        volume = name,
                        connections = connections,
                        "not closed yet; they are refused all"
                    )
                );
                return;
            }
            let is_meant = |of: u64, peer: &Peer| of == owner && unwelcome(peer);
            let cut = self.server.hang_up(is_meant, grace).await;
            if cut > 0 {
                problem!(
                    self.problems,
                    warn!(volume = name, connections = cut, "closed with requests unanswered")
                );
            }
            if connections == 0 {
                return;
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}

/// Waits until nobody holds the volume, whose store is then closed.
async fn await_last_user(entry: Arc<ExportEntry>) {
    let volume = Arc::downgrade(entry.volume());
    drop(entry);
    let deadline = clock::now() + LAST_USER;
    while volume.strong_count() > 0 && clock::now() < deadline {
        tokio::time::sleep(LOOK).await;
    }
}
