//! Changes of a volume while it is served, in one place for SIGHUP and `undercroft set`: cache
//! size, policy, placement, the bounds of write-back, access and limits.
//!
//! Memory: what a volume's cache gets is within the server's total (`cache`), if that is given, and
//! within what the machine has. What `undercroft set` has changed holds until the configuration is
//! read again.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::timeout;
use undercroft_nbd::Peer;
use undercroft_text::Bytes;

use super::memory_limit;
use super::run::Running;
use super::set::{Asked, SetError};
use crate::config::{Changes, Settings, VolumeConfig};
use crate::volume::Volume;

/// How long a change waits for a store that must take dirty blocks first. It goes on afterwards.
const PATIENCE: Duration = Duration::from_secs(10);

impl Running {
    /// Waits until an administrator asks for a change; give it to [`set`](Self::set).
    pub async fn asked(&self) -> Asked {
        self.exports.door.next().await
    }

    /// Changes a volume as an administrator asks, and answers. All that is asked for is changed, or
    /// nothing. May be dropped at any point.
    pub async fn set(&mut self, asked: Asked) {
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

    async fn set_options(&mut self, asked: &Asked) -> Result<String, SetError> {
        // A reload may have come in between.
        self.exports.door.admit(&asked.peer).map_err(SetError::Failed)?;
        let name = &asked.volume;
        let options: Vec<&str> = asked.options.lines().filter(|line| !line.is_empty()).collect();
        let found = self.config.volumes.iter().position(|volume| volume.name == *name);
        let (Some(at), Some(_)) = (found, self.served(name)) else {
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
        if options.is_empty() {
            return Err(SetError::Wrong("nothing to change: give KEY=VALUE".to_owned()));
        }
        let now = self.config.volumes[at].clone();
        let next = Settings::changed(&now, &options).map_err(SetError::Wrong)?;
        self.config.validate_access(&next).map_err(SetError::Wrong)?;
        let total = self.config.is_cache_given.then_some(self.config.cache_bytes);
        let goes_on = self.change_cache(at, &next, total).await.map_err(SetError::Failed)?;
        self.change_write_back(at, &next);
        self.change_access(at, &next).await;
        let keys = options.iter().filter_map(|option| option.split_once('=')).map(|(key, _)| key);
        let by_hand = self.set_by_hand.entry(name.clone()).or_default();
        keys.for_each(|key| by_hand.push(key.to_owned()));
        by_hand.sort();
        by_hand.dedup();
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
    /// placement, or nothing. `total`: what all caches may have together. Returns whether the
    /// change still goes on.
    pub(super) async fn change_cache(
        &mut self,
        at: usize,
        next: &VolumeConfig,
        total: Option<u64>,
    ) -> Result<bool, String> {
        let now = &self.config.volumes[at];
        if !now.has_changed(next, Changes::Cache) {
            return Ok(false);
        }
        let mut after = now.clone();
        after.take_cache(next);
        // A part of the rest is as it was divided at the start; and blocks are as large as before.
        let rest = if next.cache == now.cache { now.cache_bytes() } else { next.cache_bytes() };
        after.share_rest(rest)?;
        if let Some((option, why)) = now.fixes(&after) {
            return Err(format!("{option}: changed, which needs a restart ({why})"));
        }
        if after.cache_bytes() > now.cache_bytes() {
            self.has_room(&after, total)?;
        }
        // What others have lent must be theirs before it can be given away.
        let _nothing_is_lent = self.lending.take_back(&self.exports).await?;
        let Some(volume) = self.served(&now.name) else { return Ok(false) };
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
        let (name, cache) = (&after.name, Bytes(after.cache_bytes()));
        let (policy, placement) = (after.policy.to_string(), after.placement.to_string());
        tracing::info!(volume = name, %cache, policy, placement, "its cache has changed");
        self.config.volumes[at] = after;
        self.config.cache_bytes = self.config.cache_bytes.max(self.assigned());
        Ok(goes_on)
    }

    /// Whether there is memory for the cache of a volume as it is to be.
    pub(super) fn has_room(&self, after: &VolumeConfig, total: Option<u64>) -> Result<(), String> {
        let others = self.config.volumes.iter().filter(|volume| volume.name != after.name);
        let taken = others.clone().map(VolumeConfig::cache_bytes).sum();
        if let Some(total) = total {
            let (free, own) = (total.saturating_sub(taken), after.cache_bytes());
            if own > free {
                return Err(format!(
                    "it asks for {} of cache, and {} of {} are free for it: give the server a \
                     larger cache, or other volumes a smaller one",
                    Bytes(own),
                    Bytes(free),
                    Bytes(total)
                ));
            }
        }
        let volumes: Vec<_> = others.cloned().chain([after.clone()]).collect();
        memory_limit::check(&volumes).map_err(|error| error.to_string())
    }

    /// Changes what may be dirty in the volume at a place of the configuration.
    pub(super) fn change_write_back(&mut self, at: usize, next: &VolumeConfig) {
        let now = &mut self.config.volumes[at];
        if !now.has_changed(next, Changes::WriteBack) {
            return;
        }
        now.take_write_back(next);
        if let Some(volume) = self.served(&next.name) {
            volume.set_write_back(next);
        }
        tracing::info!(volume = next.name, "what may be dirty has changed");
    }

    /// Changes who may use the volume at a place of the configuration, and how much.
    pub(super) async fn change_access(&mut self, at: usize, next: &VolumeConfig) {
        let changed = self.config.volumes[at].take_access(next);
        let Some((before, entry)) = self.exports.change_rules(next) else { return };
        log_access(&next.name, &changed);
        let unwelcome = |peer: &Peer| entry.revokes(&before, peer);
        self.end_connections(&entry, unwelcome).await;
    }

    /// Forgets what was set by hand: the configuration was read again.
    pub(super) fn forget_what_was_set(&mut self) {
        for (volume, options) in self.set_by_hand.drain() {
            let options = options.join(", ");
            tracing::warn!(volume, options, "what was set is the configuration's again");
        }
    }
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

/// Logs if a change that goes on fails after all.
async fn tell_failure(change: JoinHandle<Result<(), String>>, volume: String) {
    if let Ok(Err(why)) = change.await {
        tracing::error!(volume, "its cache has not changed: {why}");
    }
}
