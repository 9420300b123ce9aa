//! What a server takes from around it, beside its plan: stores, the way to other servers, chance.
//! A program takes those of the system. A test that is to run the same way twice gives its own.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use undercroft_nbd::Connector;
use undercroft_store::Store;

/// Gives a volume's store by the volume's name; `None`: the one that the plan says.
pub type GiveStore = Arc<dyn Fn(&str) -> Option<Arc<dyn Store>> + Send + Sync>;

/// Whatever is not given is the system's.
#[derive(Clone, Default)]
pub struct Surroundings {
    /// Stores that are open already.
    pub stores: Option<GiveStore>,
    /// How other servers are reached.
    pub connector: Option<Connector>,
    /// What clients must not be able to guess follows from it.
    pub seed: Option<u64>,
}

impl Surroundings {
    pub(super) fn store(&self, volume: &str) -> Option<Arc<dyn Store>> {
        self.stores.as_ref().and_then(|give| give(volume))
    }

    /// A seed that clients cannot know: from the standard library's own randomness.
    pub(super) fn seed(&self) -> u64 {
        self.seed.unwrap_or_else(|| RandomState::new().hash_one(0))
    }
}

impl fmt::Debug for Surroundings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Surroundings({})", if self.seed.is_some() { "given" } else { "the system's" })
    }
}
