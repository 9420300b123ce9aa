//! What a reload is going to do. Everything that can be checked is checked first, and added volumes
//! are opened, before anything of the running server changes: so a configuration that is refused
//! changes nothing at all.
//!
//! What cannot be known before: whether a volume that goes can be written out, and whether the
//! system gives the memory that it has.

use tokio::sync::OwnedMutexGuard;
use undercroft_text::Bytes;

use crate::config::{ServerConfig, VolumeConfig};
use crate::http::token;
use crate::process::flash_changes::FlashPlan;
use crate::process::lending::States;
use crate::process::memory_limit;
use crate::process::opener::First;
use crate::process::run::{Running, open_volumes};

/// Why a configuration is refused, and because of which volume.
pub(super) struct Refusal {
    pub(super) volume: Option<String>,
    pub(super) why: String,
}

/// What a reload is going to do.
#[derive(Default)]
pub(super) struct Plan {
    /// Names of the volumes that are no longer in the configuration.
    pub(super) removed: Vec<String>,
    /// The volumes whose caches change, as they will be; the smaller ones first.
    pub(super) caches: Vec<VolumeConfig>,
    /// The volumes whose stores are away, as they will be.
    pub(super) pending: Vec<VolumeConfig>,
    /// New volumes, and what came of opening them; `None`: that has to wait until a volume is
    /// removed, which may use the same store, or until there is another device for flash.
    pub(super) added: Vec<(VolumeConfig, Option<First>)>,
    /// What becomes of the level on flash.
    pub(super) flash: FlashPlan,
    /// All volumes as they will be.
    volumes: Vec<VolumeConfig>,
    /// While this is held nothing is lent.
    nothing_is_lent: Option<OwnedMutexGuard<States>>,
}

impl Plan {
    /// Plans what a configuration asks for.
    ///
    /// # Errors
    /// All that is in the way.
    pub(super) async fn of(running: &Running, next: &ServerConfig) -> Result<Plan, Vec<Refusal>> {
        let mut refusals = Vec::new();
        let mut refuse = |volume: Option<&str>, why: String| {
            refusals.push(Refusal { volume: volume.map(str::to_owned), why });
        };
        if let Err(why) = files_are_good(&running.config, next) {
            refuse(None, why);
        }
        let open = open_volumes(running);
        let mut plan = Plan::default();
        match running.flash.planned(&running.config, next, &open).await {
            Ok(flash) => plan.flash = flash,
            Err(why) => refuse(None, why),
        }
        let (stay, go): (Vec<_>, Vec<_>) = running
            .config
            .volumes
            .iter()
            .partition(|now| next.volumes.iter().any(|next| next.name == now.name));
        let is_leaving =
            |name: &str| running.leaving.iter().any(|entry| entry.volume().config().name == *name);
        let (held, go): (Vec<_>, Vec<_>) = go.into_iter().partition(|now| is_leaving(&now.name));
        plan.removed = go.into_iter().map(|volume| volume.name.clone()).collect();
        plan.volumes = stay.into_iter().chain(held).cloned().collect();
        for next in &next.volumes {
            let name = &next.name;
            let Some(at) = running.config.volumes.iter().position(|now| now.name == *name) else {
                plan.added.push((next.clone(), None));
                continue;
            };
            if is_leaving(name) {
                continue;
            }
            let planned = match running.is_pending(name) {
                true => as_pending(&running.config.volumes[at], next).map(|v| plan.pending.push(v)),
                false => running.planned_cache(at, next).map(|after| plan.caches.extend(after)),
            };
            if let Err(why) = planned {
                refuse(Some(name), why);
            }
        }
        let grows = |after: &VolumeConfig| {
            running
                .configured(&after.name)
                .is_none_or(|now| now.cache_bytes() < after.cache_bytes())
        };
        plan.caches.sort_by_key(grows);
        let total = next.is_cache_given.then_some(next.cache_bytes);
        for after in &plan.caches {
            if let Err(why) = if grows(after) {
                memory_limit::has_room(&plan.volumes, after, total)
            } else {
                Ok(())
            } {
                refuse(Some(&after.name), why);
            }
            replace(&mut plan.volumes, after);
        }
        for after in &plan.pending {
            let total = next.cache_bytes.max(running.config.cache_bytes);
            if let Err(why) = memory_limit::has_room(&plan.volumes, after, Some(total)) {
                refuse(Some(&after.name), why);
            }
            replace(&mut plan.volumes, after);
        }
        for (new, _) in &plan.added {
            if let Err(why) = can_be_added(&plan.volumes, new, next.cache_bytes) {
                refuse(Some(&new.name), format!("is not added: {why}"));
            }
            plan.volumes.push(new.clone());
        }
        for volume in plan.volumes.iter_mut().filter(|_| !plan.flash.is_nothing()) {
            let next = next.volumes.iter().find(|next| next.name == volume.name);
            next.into_iter().for_each(|next| volume.take_flash(next));
        }
        if plan.needs_room() && refusals.is_empty() {
            plan.prepare(running, &mut refusals).await;
        }
        if refusals.is_empty() {
            return Ok(plan);
        }
        plan.give_up().await;
        Err(refusals)
    }

    /// The last steps of a plan: memory, opening, and taking back what is lent.
    async fn prepare(&mut self, running: &Running, refusals: &mut Vec<Refusal>) {
        if let Err(error) = memory_limit::check(&self.volumes) {
            return refusals.push(Refusal { volume: None, why: error.to_string() });
        }
        // Opened later, they get the parts that there are then.
        if self.flash.is_nothing() {
            self.open_added(running, self.removed.is_empty(), refusals).await;
        }
        if refusals.is_empty() {
            match running.lending.take_back(&running.exports).await {
                Ok(guard) => self.nothing_is_lent = Some(guard),
                Err(why) => refusals.push(Refusal { volume: None, why }),
            }
        }
    }

    /// Opens the new volumes that are not open. `must`: one that cannot be opened is refused.
    async fn open_added(&mut self, running: &Running, must: bool, refusals: &mut Vec<Refusal>) {
        let waiting: Vec<_> = self.added.iter_mut().filter(|(_, first)| first.is_none()).collect();
        if waiting.is_empty() {
            return;
        }
        let opener = match running.opener() {
            Ok(opener) => opener,
            Err(error) => {
                return refusals.push(Refusal { volume: None, why: error.to_string() });
            }
        };
        for (config, first) in waiting {
            match opener.open(config).await {
                Ok(opened) => *first = Some(opened),
                Err(_) if !must => {}
                Err(error) => refusals.push(Refusal {
                    volume: Some(config.name.clone()),
                    why: format!("is not added: {error}"),
                }),
            }
        }
    }

    /// What has to wait until the volumes are removed that go: whether their memory is free, and
    /// opening what could not be opened before.
    ///
    /// # Errors
    /// The first reason why the rest of the plan cannot be carried out.
    pub(super) async fn make_room(
        &mut self,
        running: &Running,
        next: &ServerConfig,
    ) -> Result<(), Refusal> {
        if !self.needs_room() {
            return Ok(());
        }
        let is_held = |name: &String| running.configured(name).is_some();
        let held = self.removed.iter().filter(|name| is_held(name));
        let held: Vec<_> = held.filter_map(|name| running.configured(name)).cloned().collect();
        if !held.is_empty() {
            let all = [&self.volumes[..], &held].concat();
            let bytes: u64 = all.iter().map(VolumeConfig::cache_bytes).sum();
            if next.is_cache_given && bytes > next.cache_bytes {
                let why = format!(
                    "still holds its cache, and with it the caches would have {} of {}",
                    Bytes(bytes),
                    Bytes(next.cache_bytes)
                );
                return Err(Refusal { volume: Some(held[0].name.clone()), why });
            }
            memory_limit::check(&all)
                .map_err(|error| Refusal { volume: None, why: error.to_string() })?;
        }
        let mut refusals = Vec::new();
        self.open_added(running, true, &mut refusals).await;
        refusals.into_iter().next().map_or(Ok(()), Err)
    }

    fn needs_room(&self) -> bool {
        !self.flash.is_nothing() || !self.caches.is_empty() || !self.added.is_empty()
    }

    /// Closes what was opened and is not served.
    pub(super) async fn give_up(self) {
        for (config, first) in self.added {
            if let Some(First::Open(volume)) = first {
                if let Err(error) = volume.close().await {
                    tracing::warn!(volume = config.name, "{error}");
                }
            }
        }
    }
}

fn replace(volumes: &mut [VolumeConfig], after: &VolumeConfig) {
    let found = volumes.iter_mut().find(|volume| volume.name == after.name);
    found.into_iter().for_each(|volume| *volume = after.clone());
}

/// Whether the files that a configuration names can be read: certificates and the token.
fn files_are_good(now: &ServerConfig, next: &ServerConfig) -> Result<(), String> {
    if let Some(files) = next.tls.files().filter(|_| now.tls.mode == next.tls.mode) {
        files.load().map_err(|error| format!("tls: {error}"))?;
    }
    next.http_token_file.as_deref().map(token::read).transpose().map(drop)
}

/// A volume that is not open, with its new configuration. It keeps its part of the rest of the
/// cache.
fn as_pending(before: &VolumeConfig, next: &VolumeConfig) -> Result<VolumeConfig, String> {
    let mut changed = next.clone();
    if next.cache.own().is_none() {
        changed.validate(before.cache_bytes())?;
    }
    Ok(changed)
}

/// Whether a new volume gets its cache beside these volumes.
fn can_be_added(
    volumes: &[VolumeConfig],
    new: &VolumeConfig,
    cache_bytes: u64,
) -> Result<(), String> {
    let Some(own) = new.cache.own() else {
        let why = "give it a cache of its own, cache=SIZE or cache=off: the volumes without one \
                   have divided the rest at the start";
        return Err(why.to_owned());
    };
    let assigned = volumes.iter().map(VolumeConfig::cache_bytes).sum();
    let free = cache_bytes.saturating_sub(assigned);
    if own <= free {
        return Ok(());
    }
    Err(format!(
        "it asks for {} of cache, and {} of {} belong to no volume; give the server a larger \
         cache, or the volume a smaller one",
        Bytes(own),
        Bytes(free),
        Bytes(cache_bytes)
    ))
}
