//! A volume that is not served yet, as clients and operators see it. `opener.rs` opens it.

use std::sync::{Arc, Mutex};

use undercroft_nbd::{Peer, Refusal};

use crate::config::VolumeConfig;
use crate::layers::access::admits;
use crate::lock::sleep_lock;

/// A volume that is not served yet.
pub(crate) struct PendingVolume {
    config: VolumeConfig,
    /// How the last attempt failed.
    why: Mutex<String>,
}

impl PendingVolume {
    pub(crate) fn new(config: &VolumeConfig, why: String) -> Arc<PendingVolume> {
        Arc::new(PendingVolume { config: config.clone(), why: Mutex::new(why) })
    }

    pub(crate) fn config(&self) -> &VolumeConfig {
        &self.config
    }

    /// Why it is not served, for the operator.
    pub(crate) fn why(&self) -> String {
        sleep_lock(&self.why).clone()
    }

    /// Notes why the last attempt failed, and logs it if that is new.
    pub(crate) fn note(&self, why: &str) {
        let name = &self.config.name;
        let why = why.strip_prefix(&format!("volume {name}: ")).unwrap_or(why);
        let mut now = sleep_lock(&self.why);
        if *now != why {
            tracing::warn!(volume = name, "is not served yet: {why}; it is tried again");
            why.clone_into(&mut now);
        }
    }

    /// The answer to a client that wants to open it.
    pub(crate) fn refusal(&self, peer: &Peer) -> Refusal {
        match admits(&self.config, peer) {
            Err(refusal) => refusal,
            Ok(()) => Refusal::Away(format!(
                "the store of volume '{}' is away; the volume is served as soon as that is there, \
                 so try again later",
                self.config.name
            )),
        }
    }
}
