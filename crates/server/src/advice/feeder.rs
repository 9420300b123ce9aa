//! Takes what the taps noted to the advisers. A task of usual priority goes from volume to volume;
//! one thread of low priority, for all volumes, does the work. An adviser is at one of the two at a
//! time, so neither waits for the other: while the thread is busy with a volume, its tap goes on
//! until it is full.

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Weak};
use std::thread::Builder;
use std::time::Duration;

use rustix::process::setpriority_process;
use tokio::time::sleep;
use undercroft_adviser::{
    Adapting, Adviser, CONTENT_AWARE, Figures, NoAdvice, Options, Today, budget, bytes_max,
};
use undercroft_level::placement::Placement;
use undercroft_policy::Awareness;

use crate::advice::page::passed_over;
use crate::advice::tap::{NOTES, NOTES_BYTES, Taken};
use crate::advice::{AdviserState, Findings, Key, Stage, VolumeAdvice};
use crate::config::VolumeConfig;
use crate::counters::Stats;
use crate::exports::ExportTable;
use crate::volume::Volume;
use crate::volume::store_use::StoreUse;

/// Time between two rounds.
const PAUSE: Duration = Duration::from_millis(50);

/// The part of an adviser's memory that stays free for a share that grows.
const GROWTH: u64 = 8;

/// Priority of the thread: the least.
const NICE: i32 = 19;

/// What the thread does for a volume.
enum Work {
    Begin(Today, Options),
    /// The cache has another size.
    Resize(Box<Adviser>, Today, Options),
    Take(Box<Adviser>, Taken, Round),
}

/// What the volume says of the time since the last round.
struct Round {
    /// The share of the reads that missed.
    miss_ratio: Option<f64>,
    /// What its placement does, if it adapts.
    adapting: Option<Adapting>,
}

/// What came of it.
type Done = Result<(Box<Adviser>, Figures), NoAdvice>;

/// What it did.
enum JobResult {
    Begin,
    Resize,
    /// The memory of the notes comes back.
    Take(Taken),
}

/// Advises about all volumes of a table until it is gone.
pub(crate) async fn feed_advisers(exports: Weak<ExportTable>) {
    let (to_thread, work) = channel();
    let (done, from_thread) = channel();
    let thread = Builder::new().name("adviser".into()).spawn(move || run(&work, &done));
    let thread = match thread {
        Ok(thread) => thread,
        Err(error) => {
            tracing::error!("there is no advice: {error}");
            return;
        }
    };
    while let Some(exports) = exports.upgrade() {
        if thread.is_finished() {
            tracing::error!("there is no more advice until a restart: the adviser has failed");
            exports.all().iter().for_each(|one| one.volume().advice.end(one.volume()));
            return;
        }
        for (volume, (done, did)) in from_thread.try_iter() {
            if let Some(volume) = volume.upgrade() {
                volume.advice.take(&volume, done, did);
            }
        }
        for entry in exports.all() {
            let volume = entry.volume();
            if let Some(work) = volume.advice.work(volume) {
                // Without the thread nobody waits for an answer either.
                let _ = to_thread.send((Arc::downgrade(volume), work));
            }
        }
        drop(exports);
        sleep(PAUSE).await;
    }
}

/// The thread: works until the task has ended.
fn run(work: &Receiver<(Weak<Volume>, Work)>, done: &Sender<(Weak<Volume>, (Done, JobResult))>) {
    // Of this thread only: in Linux a priority belongs to a thread.
    if let Err(error) = setpriority_process(None, NICE) {
        tracing::debug!("the adviser has no low priority: {error}");
    }
    for (volume, work) in work {
        let result = match work {
            Work::Begin(today, options) => (begin(today, &options), JobResult::Begin),
            Work::Resize(mut adviser, today, options) => {
                match adviser.resize(today.blocks, options.budget) {
                    true => (Ok(figures(adviser)), JobResult::Resize),
                    false => {
                        // First, so that there are never two.
                        drop(adviser);
                        (begin(today, &options), JobResult::Begin)
                    }
                }
            }
            Work::Take(mut adviser, mut taken, Round { miss_ratio, adapting }) => {
                if let Some(adapting) = adapting {
                    adviser.adapts(adapting);
                }
                adviser.begin_round(miss_ratio);
                adviser.take(&taken.events);
                match taken.is_skipped {
                    true => adviser.skipped(taken.reads),
                    false => adviser.saw_reads(taken.reads),
                }
                adviser.end_round();
                taken.events.clear();
                (Ok(figures(adviser)), JobResult::Take(taken))
            }
        };
        if done.send((volume, result)).is_err() {
            return;
        }
    }
}

fn begin(today: Today, options: &Options) -> Done {
    Adviser::new(today, options).map(Box::new).map(figures)
}

fn figures(adviser: Box<Adviser>) -> (Box<Adviser>, Figures) {
    let figures = adviser.figures();
    (adviser, figures)
}

/// Why there is no advice for a volume as it is configured.
fn refusal(config: &VolumeConfig) -> Option<&'static str> {
    if config.cache_blocks == 0 {
        Some("the volume has no cache")
    } else if !config.adviser {
        Some("it is turned off (adviser=no)")
    } else if Awareness::of(&config.policy).is_some() {
        Some(CONTENT_AWARE)
    } else {
        None
    }
}

/// What there is to advise about. `seed`: of the sample.
fn to_advise(config: &VolumeConfig, seed: u64) -> (Today, Options) {
    // One miniature stands for all shards.
    let whole = VolumeConfig { shards: 1, ..config.clone() };
    let placement: Placement = whole.shard_placement();
    let today = Today {
        policy: config.policy.clone(),
        placement,
        blocks: config.cache_blocks,
        mode: config.mode(),
    };
    let budget = budget(config.cache_bytes());
    let options = Options {
        budget,
        reserved: NOTES_BYTES,
        room: if config.is_share_auto { budget / GROWTH } else { 0 },
        seed,
        ..Options::default()
    };
    (today, options)
}

/// Most bytes that advice for volumes takes, from their first requests on. Many volumes are alike,
/// and planning for one takes milliseconds.
#[derive(Default)]
pub(crate) struct AdviceBytes(HashMap<(u64, bool, String), u64>);

impl AdviceBytes {
    /// Most bytes that advice for a volume takes.
    pub(crate) fn of(&mut self, config: &VolumeConfig) -> u64 {
        if refusal(config).is_some() {
            return 0;
        }
        let VolumeConfig { policy, placement, block_bytes, .. } = config;
        let rest = format!("{policy}|{placement}|{block_bytes}|{:?}", config.mode());
        let key = (config.cache_bytes(), config.is_share_auto, rest);
        *self.0.entry(key).or_insert_with(|| {
            let (today, options) = to_advise(config, 0);
            bytes_max(&today, &options)
        })
    }
}

impl VolumeAdvice {
    /// What is to be done for this volume's adviser now.
    fn work(&self, volume: &Volume) -> Option<Work> {
        let config = volume.now();
        let mut inner = self.lock();
        let AdviserState { stage, spare, checkpoints } = &mut *inner;
        let now = Key::of(&config);
        match stage {
            Stage::Running(..) => return None,
            Stage::Disabled(of, _) if *of == now => return None,
            Stage::Idle(of, ..) if *of == now => {}
            Stage::Idle(of, ..) if of.rest == now.rest && refusal(&config).is_none() => {
                let (today, options) = to_advise(&config, self.tap.seed());
                let Stage::Idle(_, adviser, _) =
                    std::mem::replace(stage, Stage::Running(now, None))
                else {
                    return None;
                };
                return Some(Work::Resize(adviser, today, options));
            }
            _ => {
                self.tap.close();
                if let Some(why) = refusal(&config) {
                    *stage = Stage::Disabled(now, why.to_owned());
                    return None;
                }
                if !self.tap.was_used() {
                    // Its tables would take memory and time, for nobody.
                    *stage = Stage::New;
                    return None;
                }
                *stage = Stage::Running(now, None);
                let (today, options) = to_advise(&config, self.tap.seed());
                return Some(Work::Begin(today, options));
            }
        }
        let memory = std::mem::take(spare);
        let taken = self.tap.take(memory);
        if taken.events.is_empty() && taken.reads == 0 {
            *spare = taken.events;
            return None;
        }
        // Miniatures that leave out what the cache does would be corrected by something else.
        let is_alike = passed_over(&config).next().is_none();
        let stats = volume.stats();
        let miss_ratio = checkpoints.miss_ratio(&stats).filter(|_| is_alike);
        let round = Round { miss_ratio, adapting: adapting(volume, &stats) };
        match std::mem::replace(stage, Stage::New) {
            Stage::Idle(of, adviser, known) => {
                *stage = Stage::Running(of, Some(known));
                Some(Work::Take(adviser, taken, round))
            }
            _ => None,
        }
    }

    /// Gives no more advice, since nobody is there who would work it out.
    fn end(&self, volume: &Volume) {
        self.tap.close();
        let why = "it has failed; the server's log says why".to_owned();
        self.lock().stage = Stage::Disabled(Key::of(&volume.now()), why);
    }

    /// Takes back what the thread worked with.
    fn take(&self, volume: &Volume, done: Done, did: JobResult) {
        let mut inner = self.lock();
        let AdviserState { stage, spare, checkpoints } = &mut *inner;
        let Stage::Running(of, before) = std::mem::replace(stage, Stage::New) else { return };
        let (adviser, figures) = match done {
            Ok(done) => done,
            Err(NoAdvice(why)) => {
                *stage = Stage::Disabled(of, why);
                return;
            }
        };
        match did {
            JobResult::Take(taken) => *spare = taken.events,
            JobResult::Resize => {}
            JobResult::Begin => {
                *checkpoints = Default::default();
                *spare = Vec::with_capacity(NOTES);
                self.tap.open(adviser.sample(), Vec::with_capacity(NOTES));
            }
        }
        let known = match before {
            Some(known) if known.figures.epochs == figures.epochs => Findings { figures, ..known },
            _ => {
                let (stats, block_bytes) = (volume.stats(), volume.config().block_bytes);
                let (measured, read_hit_ratio) =
                    checkpoints.measure(&stats, volume.latencies(), block_bytes, &figures);
                Findings { figures, measured, read_hit_ratio }
            }
        };
        *stage = Stage::Idle(of, adviser, known);
    }
}

/// What the volume's placement does, and by what means; `None` without knowledge of clients.
fn adapting(volume: &Volume, stats: &Stats) -> Option<Adapting> {
    let counts = stats.cooperation.as_ref()?;
    let parts = volume.shards.len().max(1) as f64;
    Some(Adapting {
        by_eviction: counts.shards_by_eviction as f64 / parts,
        contents: counts.contents_percent_sum as f64 / 100.0 / parts,
        busy: volume.demand.store_use.get().map_or(1.0, StoreUse::share),
    })
}
