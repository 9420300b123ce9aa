//! What another policy, placement or size would be worth for the requests that a volume serves now
//! (`GET /advice`, `undercroft advise URI`).
//!
//! * `tap.rs`: where requests pass, the blocks of a small sample are noted.
//! * `feeder.rs`: a task takes these notes, and one thread of low priority for all volumes runs the
//!   miniature caches of `undercroft-adviser`. What it has no time for is left out, and counted.
//! * `checkpoints.rs`: what the volume itself counted meanwhile.
//! * `page.rs`: the JSON.
//! * `ready.rs`: what the server itself acts on.
//!
//! No request waits for any of it: the thread of low priority holds no lock that a request needs.
//!
//! Not here: the simulation, its errors and the sentences (`undercroft-adviser`).

mod checkpoints;
pub(crate) mod feeder;
pub(crate) mod page;
pub(crate) mod ready;
pub(crate) mod tap;

use std::sync::{Mutex, MutexGuard};

use undercroft_adviser::{Adviser, Event, Figures, Measured};

use crate::advice::checkpoints::Checkpoints;
use crate::advice::tap::Tap;
use crate::config::VolumeConfig;
use crate::lock::sleep_lock;

/// The adviser of one volume.
pub(crate) struct VolumeAdvice {
    pub(crate) tap: Tap,
    inner: Mutex<AdviserState>,
}

/// What only the feeder and the pages use.
struct AdviserState {
    stage: Stage,
    /// Memory for the next notes.
    spare: Vec<Event>,
    checkpoints: Checkpoints,
}

/// How far it is.
enum Stage {
    /// No adviser has been made yet.
    New,
    /// The adviser is at the thread; the configuration that it is for, and what it knew last.
    Running(Key, Option<Findings>),
    /// The adviser waits for more notes.
    Idle(Key, Box<Adviser>, Findings),
    /// There is no advice for this configuration, and why.
    Disabled(Key, String),
}

/// What an adviser depends on, to compare. Only a change of the size leaves it of use.
#[derive(Clone, PartialEq)]
struct Key {
    blocks: u32,
    rest: String,
}

impl Key {
    /// The key of a volume as it is configured now.
    fn of(config: &VolumeConfig) -> Self {
        let VolumeConfig { cache_blocks: blocks, policy, placement, adviser, .. } = config;
        Self { blocks: *blocks, rest: format!("{policy}|{placement}|{adviser}") }
    }
}

/// What is known of a volume.
#[derive(Clone)]
struct Findings {
    figures: Figures,
    measured: Measured,
    /// The hit ratio that the volume itself counted, over about the same time.
    read_hit_ratio: f64,
}

impl VolumeAdvice {
    /// An adviser that has nothing to do until a feeder begins. For the parameters see
    /// [`Tap::new`].
    pub(crate) fn new(seed: u64, is_read_only: bool) -> Self {
        let (spare, checkpoints) = Default::default();
        let inner = Mutex::new(AdviserState { stage: Stage::New, spare, checkpoints });
        Self { tap: Tap::new(seed, is_read_only), inner }
    }

    fn lock(&self) -> MutexGuard<'_, AdviserState> {
        sleep_lock(&self.inner)
    }
}
