//! The level on flash of a server, which changes while that runs: by SIGHUP, `undercroft set` and
//! `undercroft flash` its device comes, goes, or becomes another one, and volumes get other parts.
//! A level that comes so begins empty.
//!
//! Not here: how a device is divided (`flash_device.rs`), and how a volume takes a level on and
//! leaves it (`volume/flash.rs`).

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::sleep;
use undercroft_text::Bytes;

use crate::clock;
use crate::config::{CacheShare, Changes, FlashConfig, ServerConfig, VolumeConfig};
use crate::process::error::ServeError;
use crate::process::flash_device::FlashDevice;
use crate::process::flash_file::check_size;
use crate::process::memory_limit;
use crate::process::surroundings::Surroundings;
use crate::volume::Volume;

/// How long to wait until nobody uses a device any more that was removed, and the pause between two
/// looks for that.
const LAST_USER: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(10);

/// What makes one piece of what is free.
const LAY_ANEW: &str =
    "give others less, or have all parts laid anew, empty: `undercroft flash remove`, then `add`";

/// The level on flash of a running server.
pub(crate) struct ServerFlash {
    /// The device, while there is one.
    device: Option<Arc<FlashDevice>>,
    surroundings: Surroundings,
}

impl ServerFlash {
    /// Opens the device that is configured, if one is.
    ///
    /// # Errors
    /// Somebody must put something right.
    pub(crate) async fn open(
        config: Option<&FlashConfig>,
        surroundings: &Surroundings,
    ) -> Result<Self, ServeError> {
        let device = match config {
            Some(config) => Some(FlashDevice::open(config, true, surroundings).await?),
            None => None,
        };
        Ok(Self { device, surroundings: surroundings.clone() })
    }

    /// The device.
    pub(crate) fn device(&self) -> Option<&Arc<FlashDevice>> {
        self.device.as_ref()
    }

    fn is_used(&self) -> bool {
        self.device.as_ref().is_some_and(|device| device.is_used())
    }

    /// What a reload changes: the device if it is another one, or is used no more; otherwise the
    /// parts of volumes whose own options say something else.
    ///
    /// # Errors
    /// There is no room for the parts, or the other device cannot be used.
    pub(crate) async fn planned(
        &self,
        now: &ServerConfig,
        next: &ServerConfig,
        volumes: &[Arc<Volume>],
    ) -> Result<FlashPlan, String> {
        let Some(device) = self.device.as_ref().filter(|device| device.is_used()) else {
            let is_there = now.flash.is_some() || next.flash.is_some();
            return Ok(if is_there { FlashPlan::Device(None) } else { FlashPlan::Nothing });
        };
        if now.flash != next.flash {
            return self.planned_device(now, next).await;
        }
        let (mut parts, mut asked, mut kept) = (Vec::new(), 0, 0);
        for next in &next.volumes {
            let Some(now) = now.volumes.iter().find(|now| now.name == next.name) else { continue };
            let open = volumes.iter().find(|volume| volume.config().name == next.name);
            let lacks = open.is_some_and(|volume| volume.flash.is_lacking());
            // What did not fit before is tried again.
            if now.flash != next.flash || lacks && next.flash_bytes > 0 {
                parts.push(next.name.clone());
                asked += open.map_or(0, |_| next.flash_bytes);
            } else {
                kept += open.map_or(0, |volume| volume.now().flash_bytes);
            }
        }
        // Not what is free now: requests may be there still, and end.
        let room = device.capacity().saturating_sub(kept);
        if asked > room {
            let (asked, free) = (Bytes(asked), Bytes(room));
            return Err(format!("flash: volumes ask for {asked}, and {free} are free for them"));
        }
        Ok(if parts.is_empty() { FlashPlan::Nothing } else { FlashPlan::Parts(parts) })
    }

    /// Another device, or another size of the same one: what can be found out before the one that
    /// is used is given up.
    async fn planned_device(
        &self,
        now: &ServerConfig,
        next: &ServerConfig,
    ) -> Result<FlashPlan, String> {
        let Some(config) = &next.flash else { return Ok(FlashPlan::Device(None)) };
        let is_same = now.flash.as_ref().is_some_and(|now| now.path == config.path);
        let opened = match is_same {
            true => check_size(config).await.map(|()| None),
            false => FlashDevice::open(config, true, &self.surroundings).await.map(Some),
        };
        match opened.map_err(|error| error.to_string())? {
            Some(device) if !device.is_used() => Err(does_not_work(config)),
            opened => Ok(FlashPlan::Device(opened)),
        }
    }

    /// Does what a reload has planned. `volumes`: those that are open.
    ///
    /// # Errors
    /// What of that could not be done. All else is.
    pub(crate) async fn change(
        &mut self,
        plan: FlashPlan,
        now: &mut ServerConfig,
        next: &ServerConfig,
        volumes: &[Arc<Volume>],
    ) -> Result<(), String> {
        let is_meant = |name: &String| match &plan {
            FlashPlan::Nothing => false,
            FlashPlan::Device(_) => true,
            FlashPlan::Parts(parts) => parts.contains(name),
        };
        for now in now.volumes.iter_mut().filter(|now| is_meant(&now.name)) {
            let next = next.volumes.iter().find(|next| next.name == now.name);
            next.into_iter().for_each(|next| now.take_flash(next));
        }
        match &plan {
            FlashPlan::Nothing => Ok(()),
            FlashPlan::Device(opened) => {
                // One that was removed may have been below a mount point that is empty now.
                let makes = now.flash != next.flash;
                now.flash.clone_from(&next.flash);
                self.add(now, opened.clone(), makes, volumes).await
            }
            FlashPlan::Parts(_) => {
                let meant = volumes.iter().filter(|volume| is_meant(&volume.config().name));
                self.give_anew(now, &meant.cloned().collect::<Vec<_>>()).await
            }
        }
    }

    /// Removes the device: volumes use it no more, and it is closed. Returns whether it is, or
    /// there was none; otherwise it has not answered all requests.
    pub(crate) async fn remove(&mut self, volumes: &[Arc<Volume>]) -> bool {
        let Some(device) = self.device.take() else { return true };
        take_back(&device, volumes).await;
        let (store, name) = (device.store(), device.path().display().to_string());
        drop(device);
        let is_open = || store.as_ref().is_some_and(|store| store.strong_count() > 0);
        let deadline = clock::now() + LAST_USER;
        while is_open() && clock::now() < deadline {
            sleep(LOOK).await;
        }
        tracing::warn!("flash {name}: is used no more");
        !is_open()
    }

    /// Opens the configured device, after one that there may be was removed, and gives the volumes
    /// their parts. `opened`: it is open already; `makes`: a file that is not there is made.
    ///
    /// # Errors
    /// It cannot be opened, is dead, needs more memory than there is, or has no part for a volume.
    pub(crate) async fn add(
        &mut self,
        now: &ServerConfig,
        opened: Option<Arc<FlashDevice>>,
        makes: bool,
        volumes: &[Arc<Volume>],
    ) -> Result<(), String> {
        self.remove(volumes).await;
        for volume in volumes {
            // Also if it does not get that, so that this is seen.
            volume.put_in_force(|it| it.flash_bytes = bytes_of(now, volume));
        }
        let Some(config) = &now.flash else { return Ok(()) };
        memory_limit::check(&now.volumes).map_err(|error| error.to_string())?;
        let device = match opened {
            Some(device) => device,
            None => FlashDevice::open(config, makes, &self.surroundings)
                .await
                .map_err(|error| error.to_string())?,
        };
        self.device = Some(device);
        if !self.is_used() {
            return Err(does_not_work(config));
        }
        tracing::warn!("flash {}: is used from now on", config.path.display());
        self.give_anew(now, volumes).await
    }

    /// Gives volumes the parts that they are configured with, empty, for those that they have.
    async fn give_anew(&self, now: &ServerConfig, volumes: &[Arc<Volume>]) -> Result<(), String> {
        let Some(device) = &self.device else { return Ok(()) };
        // All first: one may get what another one gives back.
        take_back(device, volumes).await;
        for_each(volumes, |volume| {
            let (device, bytes) = (Arc::clone(device), bytes_of(now, &volume));
            async move { device.give_bytes(&volume, bytes).await }
        })
        .await;
        let lacks = |volume: &&Arc<Volume>| bytes_of(now, volume) > 0 && !volume.flash.is_there();
        let without: Vec<_> =
            volumes.iter().filter(lacks).map(|volume| volume.config().name.as_str()).collect();
        match without.is_empty() {
            true => Ok(()),
            false => {
                let names = without.join(", ");
                Err(format!(
                    "no flash for {names}, as the log says; if there is no room: {LAY_ANEW}"
                ))
            }
        }
    }

    /// A volume, as it is configured at this place, with the part of flash that `next` says; `None`
    /// if that is its own.
    ///
    /// # Errors
    /// Why it cannot have it.
    pub(crate) fn planned_part(
        &self,
        config: &ServerConfig,
        at: usize,
        next: &VolumeConfig,
        volume: &Volume,
    ) -> Result<Option<VolumeConfig>, String> {
        let now = &config.volumes[at];
        let bytes = match next.flash {
            CacheShare::Off => 0,
            CacheShare::Bytes(bytes) if (1..64 << 10).contains(&bytes) => {
                return Err("flash: at least 64KiB, or off".to_owned());
            }
            CacheShare::Bytes(bytes) => VolumeConfig::whole_flash_bytes(bytes),
            CacheShare::Rest => {
                return Err("flash: a size, or off; only a reload divides what is left".to_owned());
            }
        };
        let own = if volume.flash.is_lacking() { 0 } else { volume.now().flash_bytes };
        if now.flash == next.flash && bytes == own {
            return Ok(None);
        }
        let after = VolumeConfig { flash_bytes: bytes, ..next.clone() };
        if bytes == 0 {
            return Ok(Some(after));
        }
        if now.cache_blocks == 0 {
            return Err("flash lies below a cache, and there is none (cache=off)".to_owned());
        }
        let Some(device) = self.device.as_ref().filter(|device| device.is_used()) else {
            return Err("the server uses no device for flash now".to_owned());
        };
        let largest = device.largest_for(&now.name, own > 0);
        if bytes > largest {
            let (asked, largest) = (Bytes(bytes), Bytes(largest));
            return Err(format!(
                "it asks for {asked} of flash, and the largest piece for it has {largest}: {LAY_ANEW}"
            ));
        }
        let others = config.volumes.iter().filter(|volume| volume.name != after.name);
        let volumes: Vec<_> = others.cloned().chain([after.clone()]).collect();
        memory_limit::check(&volumes).map_err(|error| error.to_string())?;
        Ok(Some(after))
    }

    /// Gives the volume at a place of the configuration the part that was planned for it, empty.
    ///
    /// # Errors
    /// It has none now.
    pub(crate) async fn change_part(
        &self,
        config: &mut ServerConfig,
        at: usize,
        after: &VolumeConfig,
        volume: &Arc<Volume>,
    ) -> Result<(), String> {
        config.volumes[at].take_flash(after);
        self.give_anew(config, std::slice::from_ref(volume)).await
    }
}

/// What a reload changes of the level on flash.
#[derive(Default)]
pub(crate) enum FlashPlan {
    #[default]
    Nothing,
    /// The parts of these volumes.
    Parts(Vec<String>),
    /// The device, and so all parts; the new one if it could be opened before.
    Device(Option<Arc<FlashDevice>>),
}

impl FlashPlan {
    /// Whether nothing changes.
    pub(crate) fn is_nothing(&self) -> bool {
        matches!(self, FlashPlan::Nothing)
    }
}

fn does_not_work(config: &FlashConfig) -> String {
    format!("flash {}: does not work, as the log says", config.path.display())
}

/// Bytes of flash that a volume is configured with; none if it is being closed.
fn bytes_of(config: &ServerConfig, volume: &Volume) -> u64 {
    if volume.answers.is_closing() {
        return 0;
    }
    let found = config.volumes.iter().find(|it| it.name == volume.config().name);
    found.map_or(0, |found| found.flash_bytes)
}

async fn take_back(device: &Arc<FlashDevice>, volumes: &[Arc<Volume>]) {
    for_each(volumes, |volume| {
        let device = Arc::clone(device);
        async move { device.take_back(&volume).await }
    })
    .await;
}

/// Does something with all volumes at once, to its end even if nobody waits for it any more.
async fn for_each<F: Future<Output = ()> + Send + 'static>(
    volumes: &[Arc<Volume>],
    what: impl Fn(Arc<Volume>) -> F,
) {
    let all = volumes.iter().map(|volume| tokio::spawn(what(Arc::clone(volume))));
    join_all(all.collect::<Vec<_>>()).await;
}

impl VolumeConfig {
    /// Takes over what it is to have of flash.
    pub(crate) fn take_flash(&mut self, next: &VolumeConfig) {
        self.take_given(next, Changes::Flash);
        self.flash_bytes = next.flash_bytes;
    }

    /// Bytes of a part that may have so many: it begins with a block of any size.
    pub(crate) fn whole_flash_bytes(bytes: u64) -> u64 {
        bytes / (64 << 10) * (64 << 10)
    }
}
