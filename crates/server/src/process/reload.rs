//! SIGHUP: what changes while a server runs: certificates, sizes, added and removed volumes, and
//! what `change.rs` changes of a volume. A new configuration is taken on wholly or not at all
//! (`reload/plan.rs`), but for options that need a restart: these are logged, and stay as they
//! were.
//!
//! Memory: a volume keeps its share of the cache until its own `cache` changes. An added volume
//! takes its share (`cache=SIZE`) from the unassigned cache; a removed volume returns its share.

/// Logs a problem, and keeps it for the result of the reload.
macro_rules! problem {
    ($running:expr, $log:ident $(, $field:ident = $value:expr)*; $text:literal) => {{
        tracing::$log!($($field = $value,)* $text);
        let fields: Vec<(&str, String)> = vec![$((stringify!($field), $value.to_string())),*];
        $running.problems.keep(&fields, &format!($text));
    }};
}

mod plan;
mod replaced;

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::timeout;
use undercroft_nbd::Peer;

use self::plan::{Plan, Refusal};
use crate::clock;
use crate::config::{ServerConfig, VolumeConfig};
use crate::exports::ExportEntry;
use crate::exports::set::OWNER;
use crate::lock::sleep_lock;
use crate::process::error::ServeError;
use crate::process::opener::{First, Opener, OpeningTask};
use crate::process::run::{GRACE, Running, close, open_volumes, opener};

/// How long to wait for the last user of a removed volume, so that its file can be opened again.
const LAST_USER: Duration = Duration::from_secs(5);

/// How long a reload waits for a store to learn its size.
const ANSWERS: Duration = Duration::from_secs(10);

/// Pause between two checks for something that is about to end.
const LOOK: Duration = Duration::from_millis(10);

/// What the present reload could not do.
#[derive(Default)]
pub(crate) struct Problems(Mutex<Vec<String>>);

impl Problems {
    fn keep(&self, fields: &[(&str, String)], text: &str) {
        let fields: Vec<_> = fields.iter().map(|(name, value)| format!("{name} {value}")).collect();
        let fields = if fields.is_empty() { String::new() } else { fields.join(", ") + ": " };
        let mut all = sleep_lock(&self.0);
        all.push(fields + text);
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *sleep_lock(&self.0))
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
                problem!(self, error; "{error}; all settings stay as they were")
            }
            Ok(next) => self.take(next).await,
        }
        self.reload_keys();
        self.end_the_removed().await;
        self.open_replaced().await;
        self.grow_volumes().await;
        let problems = self.problems.take();
        match problems.len() {
            0 => tracing::info!("reloaded"),
            problems => tracing::warn!(problems, "reloaded, except for what the log says above"),
        }
        problems
    }

    pub(crate) fn configured(&self, name: &str) -> Option<&VolumeConfig> {
        self.config.volumes.iter().find(|volume| volume.name == name)
    }

    /// Ends the connections of clients that new client roots do not confirm, and those by which
    /// changes are asked for of peers that are no administrators any more.
    async fn end_the_removed(&self) {
        let admin = &self.exports.admin;
        admin.refuse_the_removed();
        let is_untrusted = |peer: &Peer| !peer.is_trusted();
        let mut entries = self.exports.all();
        entries.extend(self.leaving.iter().cloned());
        // All are refused at once, and end together.
        join_all(entries.iter().map(|entry| self.end_connections(entry, is_untrusted))).await;
        let is_removed = |owner: u64, peer: &Peer| owner == OWNER && admin.admit(peer).is_err();
        let is_meant = |owner: u64, peer: &Peer| is_untrusted(peer) || is_removed(owner, peer);
        let cut = self.server.hang_up(is_meant, GRACE).await;
        if cut > 0 {
            problem!(self, warn, connections = cut; "closed with requests unanswered");
        }
    }

    fn reload_keys(&self) {
        if let Err(error) = self.rights.token.load(self.config.http_token_file.as_deref()) {
            problem!(self, error; "{error}; the token stays as it was");
        }
        let (Some(files), Some(keys)) = (self.config.tls.files(), &self.keys) else { return };
        match files.load() {
            Ok(config) => {
                keys.replace(config);
                self.config.tls.warn_of_dates();
                self.expiry.store(self.config.tls.expiry(), Ordering::Relaxed);
                tracing::info!("certificates reloaded");
            }
            Err(error) => {
                problem!(self, error; "certificates stay as they were: {error}")
            }
        }
    }

    async fn grow_volumes(&mut self) {
        for volume in self.volumes() {
            let (name, before) = (&volume.config().name, volume.size());
            if self.growing.get(name).is_some_and(|growing| !growing.is_finished()) {
                problem!(self, error, volume = name;
                    "its store has still not said how large it is"
                );
                continue;
            }
            // A separate task, because a started store request must run to its end.
            let grows = Arc::clone(&volume);
            let mut growing = tokio::spawn(async move { grows.grow().await });
            let Ok(Ok(grown)) = timeout(ANSWERS, &mut growing).await else {
                let limit_s = ANSWERS.as_secs();
                problem!(self, error, volume = name, limit_s = limit_s;
                    "its store does not say how large it is; the size is as it was until it does"
                );
                self.growing.insert(name.clone(), growing);
                continue;
            };
            match grown {
                Ok(size) if size > before => {
                    tracing::info!(volume = name, before, size, "the volume has grown");
                }
                Ok(_) => {}
                Err(error) => problem!(self, error, volume = name;
                    "cannot look at its size: {error}"
                ),
            }
            let told = self.configured(name).and_then(|volume| volume.size);
            if let Some(told) = told.filter(|&told| told != volume.size()) {
                let size = volume.size();
                problem!(self, warn, volume = name, told = told, size = size;
                    "the size told is not the store's"
                );
            }
        }
    }

    /// Takes on a new configuration wholly, or not at all. Options that need a restart stay as they
    /// were in any case.
    async fn take(&mut self, next: ServerConfig) {
        // Until they are tried again, no volume arrives.
        join_all(self.opening.values().map(OpeningTask::end)).await;
        self.opening.clear();
        self.close_leaving().await;
        self.warn_of_restarts(&next);
        match Plan::of(self, &next).await {
            Ok(plan) => self.apply(&next, plan).await,
            Err(refusals) => {
                for Refusal { volume, why } in refusals {
                    match volume {
                        Some(volume) => problem!(self, error, volume = volume; "{why}"),
                        None => problem!(self, error; "{why}"),
                    }
                }
                problem!(self, error;
                    "for that reason nothing of the new configuration is applied"
                );
            }
        }
        self.wait_again();
    }

    fn warn_of_restarts(&self, next: &ServerConfig) {
        for option in self.config.fixed_changes(next) {
            problem!(self, warn; "{option}: changed, which needs a restart; stays as it was");
        }
        for next in &next.volumes {
            let name = &next.name;
            if self.is_pending(name) {
                continue;
            }
            let now = self.configured(name);
            for option in now.map(|now| now.fixed_changes(next)).unwrap_or_default() {
                problem!(self, warn, volume = name;
                    "{option}: changed, which needs a restart; stays as it was"
                );
            }
        }
    }

    /// Does what was planned. Only what the plan cannot know can still fail: then the caches get
    /// their sizes back.
    async fn apply(&mut self, next: &ServerConfig, mut plan: Plan) {
        self.remove_volumes(&plan.removed).await;
        let (open, flash) = (open_volumes(self), std::mem::take(&mut plan.flash));
        let changes_flash = !flash.is_nothing();
        let changed = self.flash.change(flash, &mut self.config, next, &open).await;
        if let Err(why) = changed {
            problem!(self, error; "{why}");
        }
        let made = match plan.make_room(self, next).await {
            Ok(()) => self.change_caches(std::mem::take(&mut plan.caches)).await,
            Err(refusal) => Err(refusal),
        };
        if let Err(Refusal { volume, why }) = made {
            let volume = volume.unwrap_or_default();
            let rest = match changes_flash {
                false => "nothing else has changed",
                true => "of the rest, only flash has changed",
            };
            problem!(self, error, volume = volume; "{why}; {rest}");
            return plan.give_up().await;
        }
        self.config.take_access(next);
        self.rights.hosts.set(&self.config);
        self.forget_what_was_set();
        self.exports.admin.set_administrators(&next.administrators);
        self.config.is_cache_given = next.is_cache_given;
        for pending in std::mem::take(&mut plan.pending) {
            self.replace_config(pending);
        }
        for next in &next.volumes {
            let found = self.config.volumes.iter().position(|now| now.name == next.name);
            let Some(at) = found.filter(|_| !self.is_pending(&next.name)) else { continue };
            self.config.volumes[at].size = next.size;
            self.change_write_back(at, next);
            self.change_access(at, next).await;
        }
        self.add_volumes(next, plan).await;
        let mut there: Vec<_> =
            self.volumes().iter().map(|volume| volume.config().name.clone()).collect();
        there.extend(self.pending_volumes().into_iter().map(|(name, _)| name));
        let names = next.volumes.iter().map(|volume| volume.name.clone());
        self.exports.set_order(names.filter(|name| there.contains(name)).collect());
    }

    pub(crate) fn is_pending(&self, name: &str) -> bool {
        self.exports.pending().iter().any(|pending| pending.config().name == name)
    }

    pub(crate) fn replace_config(&mut self, config: VolumeConfig) {
        let found = self.config.volumes.iter_mut().find(|now| now.name == config.name);
        found.into_iter().for_each(|now| *now = config.clone());
    }

    /// Closes the volumes that are no longer in the configuration.
    async fn remove_volumes(&mut self, removed: &[String]) {
        for name in removed {
            if self.exports.forget(name) {
                self.config.volumes.retain(|volume| volume.name != *name);
                tracing::info!(volume = name, "the volume is removed, which was not served yet");
                continue;
            }
            // Kept where `stop` finds it, before the first wait.
            self.leaving.extend(self.exports.remove(name));
        }
        if !removed.is_empty() {
            self.close_leaving().await;
        }
    }

    /// Closes the removed volumes that are still open, as far as their stores allow it.
    async fn close_leaving(&mut self) {
        let mut at = 0;
        while let Some(entry) = self.leaving.get(at).cloned() {
            let name = entry.volume().config().name.clone();
            self.end_connections(&entry, |_| true).await;
            if let Err(error) = close(entry.volume(), self.state.as_ref()).await {
                problem!(self, error, volume = name;
                    "cannot be removed yet: {error}; the next SIGHUP tries again"
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

    /// Changes the caches as planned: all, or none.
    async fn change_caches(&mut self, caches: Vec<VolumeConfig>) -> Result<(), Refusal> {
        let mut changed = Vec::new();
        for after in caches {
            let name = after.name.clone();
            let Some(before) = self.configured(&name).cloned() else { continue };
            match self.change_cache(after).await {
                Ok(goes_on) => {
                    changed.push(before);
                    if goes_on {
                        tracing::warn!(
                            volume = name,
                            "its store takes what must leave the cache; the rest follows by itself"
                        );
                    }
                }
                Err(why) => {
                    for before in changed.into_iter().rev() {
                        let name = before.name.clone();
                        if let Err(error) = self.change_cache(before).await {
                            tracing::error!(volume = name, "its cache is not as before: {error}");
                        }
                    }
                    return Err(Refusal { volume: Some(name), why });
                }
            }
        }
        Ok(())
    }

    /// Waits again for the volumes whose stores are away, as they are configured now.
    pub(crate) fn wait_again(&mut self) {
        for pending in self.exports.pending() {
            let name = &pending.config().name;
            let Some(config) = self.configured(name) else { continue };
            if self.opening.contains_key(name) {
                continue;
            }
            match self.opener() {
                Ok(opener) => {
                    self.opening.insert(name.clone(), opener.wait_for(config));
                }
                Err(error) => problem!(self, error, volume = name;
                    "the next SIGHUP tries it: {error}"
                ),
            }
        }
    }

    /// What opens volumes from now on.
    pub(crate) fn opener(&self) -> Result<Opener, ServeError> {
        let (flash, state) = (&self.flash, self.state.as_ref());
        opener(&self.config, &self.surroundings, flash, &self.exports, state)
    }

    /// Serves the volumes that the plan has opened.
    async fn add_volumes(&mut self, next: &ServerConfig, mut plan: Plan) {
        for entry in &self.leaving {
            let name = &entry.volume().config().name;
            if next.volumes.iter().any(|volume| volume.name == *name) {
                problem!(self, error, volume = name;
                    "is not served: it was removed, and what it holds is not all written; the next \
                     SIGHUP tries to close it and to open it again"
                );
            }
        }
        if !plan.added.is_empty() {
            match self.opener() {
                Ok(opener) => {
                    for (volume, first) in std::mem::take(&mut plan.added) {
                        self.serve_added(&opener, volume, first);
                    }
                }
                Err(error) => problem!(self, error; "no volume is added: {error}"),
            }
        }
        plan.give_up().await;
        let assigned = self.config.assigned();
        if next.cache_bytes >= assigned {
            self.config.cache_bytes = next.cache_bytes;
        } else {
            let told = next.cache_bytes;
            problem!(self, warn, told = told, assigned = assigned;
                "cache: less than the volumes have needs a restart"
            );
        }
    }

    fn serve_added(&mut self, opener: &Opener, config: VolumeConfig, first: Option<First>) {
        let (name, store) = (config.name.clone(), config.store.to_string());
        match first {
            Some(First::Open(volume)) => {
                opener.serve(volume, &config);
                tracing::info!(volume = name, store, "the volume is added");
            }
            // Its task says why.
            Some(First::Away(waiting)) => {
                self.opening.insert(name, opener.wait(waiting));
            }
            None => return,
        }
        self.config.volumes.push(config);
    }

    /// Ends the connections of some peers to a volume and to its control export, after the entry
    /// was closed for them. Takes at most [`GRACE`]; requests are refused at once.
    pub(crate) async fn end_connections(
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
                problem!(self, error, volume = name, connections = connections;
                    "not closed yet; they are refused all"
                );
                return;
            }
            let is_meant = |of: u64, peer: &Peer| of == owner && unwelcome(peer);
            let cut = self.server.hang_up(is_meant, grace).await;
            if cut > 0 {
                problem!(self, warn, volume = name, connections = cut;
                    "closed with requests unanswered"
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
