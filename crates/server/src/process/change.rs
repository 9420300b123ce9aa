//! Changes of a volume while it is served, in one place for SIGHUP and `undercroft set`: cache
//! size, policy, placement, the bounds of write-back, access and limits. (Its part of flash is in
//! `flash_changes.rs`.)
//!
//! Memory: what a volume's cache gets is within the server's total (`cache`), if that is given, and
//! within what the machine has. What `undercroft set` has changed holds until the configuration is
//! read again.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use undercroft_nbd::Peer;
use undercroft_text::Bytes;

use crate::config::{Changes, Settings, VolumeConfig};
use crate::exports::set::{AdminRequest, DROP, FLASH_ADD, FLASH_REMOVE, SetError};
use crate::process::memory_limit;
use crate::process::opener::OpeningTask;
use crate::process::run::{Running, open_volumes};
use crate::volume::Volume;
use crate::volume::change::Change;

/// How long a change waits for a store that must take dirty blocks first. It goes on afterwards.
const PATIENCE: Duration = Duration::from_secs(10);

impl Running {
    /// Waits until an administrator asks for a change; give it to [`set`](Self::set).
    pub async fn asked(&self) -> AdminRequest {
        self.exports.admin.next().await
    }

    /// Changes a volume as an administrator asks, and answers. All that is asked for is changed, or
    /// nothing. May be dropped at any point.
    pub async fn set(&mut self, asked: AdminRequest) {
        let result = self.set_options(&asked).await;
        match &result {
            Ok(told) => {
                let told = told.lines().next().unwrap_or_default().to_owned();
                tracing::warn!(volume = asked.volume, by = asked.by, told, "set");
            }
            Err(why) => {
                tracing::warn!(volume = asked.volume, by = asked.by, "not set: {why}");
            }
        }
        asked.answer(result);
    }

    async fn set_options(&mut self, asked: &AdminRequest) -> Result<String, SetError> {
        // A reload may have come in between.
        self.exports.admin.admit(&asked.peer).map_err(SetError::Failed)?;
        if [FLASH_ADD, FLASH_REMOVE].contains(&asked.options.trim()) {
            let told = set_flash(self, asked.options.trim() == FLASH_ADD).await;
            return told.map_err(SetError::Failed);
        }
        let name = Some(asked.volume.clone()).filter(|name| !name.is_empty());
        let name = &name.or_else(|| self.exports.default_name()).unwrap_or_default();
        let options: Vec<&str> = asked.options.lines().filter(|line| !line.is_empty()).collect();
        let found = self.config.volumes.iter().position(|volume| volume.name == *name);
        let (Some(at), Some(volume)) = (found, self.served(name)) else {
            let served = self.volumes();
            let served = served.iter().map(|volume| volume.config().name.as_str());
            let served = served.collect::<Vec<_>>().join(", ");
            return Err(SetError::Wrong(match found {
                None => format!("there is no volume '{name}'; served are: {served}"),
                Some(_) => format!(
                    "volume '{name}' is not served yet, since its store is away: change the \
                     configuration, and send SIGHUP"
                ),
            }));
        };
        if options == [DROP] {
            return drop_cached(&volume).await.map_err(SetError::Failed);
        }
        if options.is_empty() {
            return Err(SetError::Wrong("nothing to change: give KEY=VALUE".to_owned()));
        }
        let now = self.config.volumes[at].clone();
        let next = Settings::changed(&now, &options).map_err(SetError::Wrong)?;
        self.config.validate_access(&next).map_err(SetError::Wrong)?;
        let is_about_flash = options.iter().any(|option| option.starts_with("flash="));
        let part = match is_about_flash {
            true => self.flash.planned_part(&self.config, at, &next, &volume),
            false => Ok(None),
        };
        let part = part.map_err(SetError::Failed)?;
        let goes_on = self.set_cache(at, &next).await.map_err(SetError::Failed)?;
        self.change_write_back(at, &next);
        self.change_access(at, &next).await;
        let keys = options.iter().filter_map(|option| option.split_once('=')).map(|(key, _)| key);
        let by_hand = self.set_by_hand.entry(name.clone()).or_default();
        keys.for_each(|key| by_hand.push(key.to_owned()));
        by_hand.sort();
        by_hand.dedup();
        if let Some(after) = part {
            let changed = self.flash.change_part(&mut self.config, at, &after, &volume).await;
            changed.map_err(|why| SetError::Failed(format!("{why}; all else is changed")))?;
        }
        let mut told = format!("volume '{name}': {}", options.join(", "));
        if goes_on {
            told += "\nits store takes what must leave the cache; the rest follows by itself";
        }
        told += "\nuntil the next restart or reload: to keep it, put it into the configuration";
        Ok(told)
    }

    /// The volume with a name, if it is served.
    fn served(&self, name: &str) -> Option<Arc<Volume>> {
        self.volumes().into_iter().find(|volume| volume.config().name == name)
    }

    /// Changes the cache of the volume at a place of the configuration: all of size, policy and
    /// placement, or nothing. Returns whether the change still goes on.
    async fn set_cache(&mut self, at: usize, next: &VolumeConfig) -> Result<bool, String> {
        let Some(after) = self.planned_cache(at, next)? else { return Ok(false) };
        let now = &self.config.volumes[at];
        if after.cache_bytes() > now.cache_bytes() {
            let total = self.config.is_cache_given.then_some(self.config.cache_bytes);
            memory_limit::has_room(&self.config.volumes, &after, total)?;
            let others = self.config.volumes.iter().filter(|volume| volume.name != after.name);
            let volumes: Vec<_> = others.cloned().chain([after.clone()]).collect();
            memory_limit::check(&volumes).map_err(|error| error.to_string())?;
        }
        // What others have lent must be theirs before it can be given away.
        let _nothing_is_lent = self.lending.take_back(&self.exports).await?;
        self.change_cache(after).await
    }

    /// The volume at a place of the configuration as it is with the cache of `next`; `None` if that
    /// is the same. Whether there is memory is another question.
    pub(crate) fn planned_cache(
        &self,
        at: usize,
        next: &VolumeConfig,
    ) -> Result<Option<VolumeConfig>, String> {
        let now = &self.config.volumes[at];
        if !now.has_changed(next, Changes::Cache) {
            return Ok(None);
        }
        let mut after = now.clone();
        after.take_cache(next);
        // A part of the rest is as it was divided at the start; and blocks are as large as before.
        let rest = if next.cache == now.cache { now.cache_bytes() } else { next.cache_bytes() };
        after.validate(rest)?;
        if let Some((option, why)) = now.fixes(&after) {
            return Err(format!("{option}: changed, which needs a restart ({why})"));
        }
        if let Some(volume) = self.served(&now.name) {
            Change::of(&volume, &after)?;
        }
        Ok(Some(after))
    }

    /// Changes the cache of a volume as [planned](Self::planned_cache), or not at all. Nothing may
    /// be lent meanwhile. Returns whether the change still goes on.
    pub(crate) async fn change_cache(&mut self, after: VolumeConfig) -> Result<bool, String> {
        let Some(volume) = self.served(&after.name) else { return Ok(false) };
        // A task of its own, because it must run to its end.
        let (changes, wanted) = (Arc::clone(&volume), after.clone());
        let mut change = tokio::spawn(async move { changes.change(&wanted).await });
        let goes_on = match timeout(PATIENCE, &mut change).await {
            Ok(Ok(result)) => result.map(|()| false)?,
            Ok(Err(error)) => return Err(error.to_string()),
            Err(_) => {
                tokio::spawn(tell_failure(change, after.name.clone()));
                true
            }
        };
        let (name, cache) = (after.name.clone(), Bytes(after.cache_bytes()));
        let (policy, placement) = (after.policy.to_string(), after.placement.to_string());
        tracing::info!(volume = name, %cache, policy, placement, "its cache has changed");
        let now = self.config.volumes.iter_mut().find(|now| now.name == after.name);
        now.into_iter().for_each(|now| now.take_cache(&after));
        self.config.cache_bytes = self.config.cache_bytes.max(self.config.assigned());
        Ok(goes_on)
    }

    /// Changes what may be dirty in the volume at a place of the configuration.
    pub(crate) fn change_write_back(&mut self, at: usize, next: &VolumeConfig) {
        let now = &mut self.config.volumes[at];
        if !now.has_changed(next, Changes::WriteBack) {
            return;
        }
        now.take_given(next, Changes::WriteBack);
        if let Some(volume) = self.served(&next.name) {
            volume.put_in_force(|now| now.take_given(next, Changes::WriteBack));
        }
        tracing::info!(volume = next.name, "what may be dirty has changed");
    }

    /// Changes who may use the volume at a place of the configuration, and how much.
    pub(crate) async fn change_access(&mut self, at: usize, next: &VolumeConfig) {
        let changed = self.config.volumes[at].take_access(next);
        let Some((before, entry)) = self.exports.change_rules(next) else { return };
        log_access(&next.name, &changed);
        let unwelcome = |peer: &Peer| entry.revokes(&before, peer);
        self.end_connections(&entry, unwelcome).await;
    }

    /// Forgets what was set by hand: the configuration was read again.
    pub(crate) fn forget_what_was_set(&mut self) {
        for (volume, options) in self.set_by_hand.drain() {
            let options = options.join(", ");
            tracing::warn!(volume, options, "what was set is the configuration's again");
        }
    }
}

/// Has the configured device for the level on flash come, or go. Returns what is to be said.
async fn set_flash(running: &mut Running, comes: bool) -> Result<String, String> {
    let Some(flash) = &running.config.flash else {
        let why = "no level on flash is configured: put one into the configuration \
                   (flash=PATH,size=SIZE), and send SIGHUP";
        return Err(why.to_owned());
    };
    let name = format!("flash {}", flash.path.display());
    let device = running.flash.device();
    let what = match comes {
        true if device.is_some_and(|device| device.is_used()) => {
            return Err(format!("{name} is used already; to begin anew, remove it first"));
        }
        false if device.is_none() => {
            return Err(format!(
                "{name} is not used now; `undercroft flash add` has it used again"
            ));
        }
        _ => {
            // Those that wait for their stores are opened with what there is then.
            join_all(running.opening.values().map(OpeningTask::end)).await;
            running.opening.clear();
            let volumes = open_volumes(running);
            let done = match comes {
                true => running
                    .flash
                    .add(&running.config, None, true, &volumes)
                    .await
                    .map(|()| "added, and empty"),
                false if running.flash.remove(&volumes).await => Ok("removed, and closed"),
                false => Ok("removed; it stays open until it has answered all requests"),
            };
            running.wait_again();
            done?
        }
    };
    let until = "\na restart or a reload uses it again, unless the configuration is changed";
    Ok(format!("{name}: {what}{}", if comes { "" } else { until }))
}

/// Logs which rules of access, or which limits, have changed. The members of a group change without
/// a key.
fn log_access(volume: &str, keys: &[&str]) {
    let are_limits =
        |key: &&str| !["tls-required", "clients", "writers", "connections"].contains(key);
    let (only_limits, keys) = (!keys.is_empty() && keys.iter().all(are_limits), keys.join(" "));
    if only_limits {
        tracing::info!(volume, keys, "its limits have changed");
    } else {
        tracing::info!(volume, keys, "who may use it has changed");
    }
}

/// Drops what a volume has cached. Returns what is to be said of that.
async fn drop_cached(volume: &Arc<Volume>) -> Result<String, String> {
    let (name, drops) = (&volume.config().name, Arc::clone(volume));
    // A task of its own, because a range that is registered must be ended.
    let dropping = tokio::spawn(async move { drops.drop_cached().await });
    match timeout(PATIENCE, dropping).await {
        Ok(Ok(dropped)) => {
            let blocks = dropped?;
            Ok(format!("volume '{name}': {blocks} blocks dropped from the cache"))
        }
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!(
            "volume '{name}' waits for requests that its store or flash has not answered; what is \
             cached is dropped as soon as they are, unless blocks are dirty by then"
        )),
    }
}

/// Logs if a change that goes on fails after all.
async fn tell_failure(change: JoinHandle<Result<(), String>>, volume: String) {
    if let Ok(Err(why)) = change.await {
        tracing::error!(volume, "its cache has not changed: {why}");
    }
}
