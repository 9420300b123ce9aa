//! What a server takes from its environment, beside its configuration: stores, connections to other
//! servers, randomness. A program uses the system's. A test that must be reproducible gives its
//! own.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::Arc;

use undercroft_nbd::Connector;
use undercroft_store::{Answer, Store};

use crate::flash::FlashMedium;

/// Opens a volume's store by the volume's name; `None`: open the configured one.
pub type GiveStore = Arc<dyn Fn(&str) -> Option<OpeningStore> + Send + Sync>;

/// A store that is being opened.
pub type OpeningStore = Answer<io::Result<Arc<dyn Store>>>;

/// Opens the device for the level on flash.
pub type GiveFlash = Arc<dyn Fn() -> Answer<io::Result<FlashMedium>> + Send + Sync>;

/// Whatever is not given is taken from the system.
#[derive(Clone, Default)]
pub struct Surroundings {
    /// How stores are opened.
    pub stores: Option<GiveStore>,
    /// How other servers are reached.
    pub connector: Option<Connector>,
    /// How the device for the level on flash is opened, if one is configured.
    pub flash: Option<GiveFlash>,
    /// Seed of everything that clients must not be able to guess.
    pub seed: Option<u64>,
}

impl Surroundings {
    /// A seed that clients cannot know, from the standard library's randomness.
    pub(crate) fn seed(&self) -> u64 {
        self.seed.unwrap_or_else(|| RandomState::new().hash_one(0))
    }
}

impl fmt::Debug for Surroundings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Surroundings({})", if self.seed.is_some() { "given" } else { "the system's" })
    }
}
