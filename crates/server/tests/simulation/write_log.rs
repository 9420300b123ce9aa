//! A write log before a disk. It has a [`Disk`] of its own, which loses in a power cut what no
//! flush has covered, as the others do. No client may notice that.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use undercroft_server::process::OpeningStore;
use undercroft_store::{LogOptions, LogStore};

use crate::disk::{Disk, Habits};
use crate::random::Random;
use crate::report::Log;

/// Bytes of a log: the smallest that there can be.
const BYTES: u64 = 8 << 20;

/// What a seed draws of the logs of a run, one for each volume: most have none.
pub fn draw(random: &mut Random) -> Option<Habits> {
    let has_one = random.percent(25);
    let alignment = random.pick(&[1, 512, 4096]);
    let habits = Habits { alignment, ..Habits::of_flash(random) };
    has_one.then_some(habits)
}

/// The log of a volume.
#[derive(Clone)]
pub struct LogDisk {
    pub disk: Disk,
    openings: Arc<AtomicU64>,
}

impl LogDisk {
    pub fn new(volume: &str, habits: Habits, random: Random, log: Log) -> LogDisk {
        let disk =
            Disk::new(&format!("log-{volume}"), vec![0; BYTES as usize], habits, random, log);
        LogDisk { disk, openings: Arc::default() }
    }

    /// Puts it before a store that is being opened: whoever had it before has it no more.
    pub fn open(&self, store: OpeningStore) -> OpeningStore {
        let medium = self.disk.open(0);
        let options = LogOptions {
            bytes: BYTES,
            life: 1 + self.openings.fetch_add(1, Ordering::Relaxed),
            unmarked: true,
            name: "simulated".to_owned(),
            on_warning: None,
        };
        Box::pin(async move {
            let opened = LogStore::open(store.await?, medium.await?, options).await?;
            Ok(Arc::new(opened) as _)
        })
    }
}
