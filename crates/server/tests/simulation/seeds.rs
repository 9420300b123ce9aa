//! Many seeds, on all processors; and those that once found something.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::run;
use crate::tally::Tally;

/// A seed that has not ended after so many seconds goes round in circles without a pause.
/// `SIMULATE_SEED_MAX` says otherwise.
const SEED_MAX_S: u64 = 900;

/// Seeds beyond the first thousand that found a fault, and what it was.
pub const FOUND: &[(u64, &str)] = &[
    (1525, "the checker: a clean end makes durable what no FLUSH had covered"),
    (29147, "the checker: a service does late what it refused, after a TRIM has dropped it"),
    (30194, "the checker: as 29147, while a write is under way"),
    (31932, "the checker: as 38269, with a write under way that still failed"),
    (38269, "the checker: a FLUSH that fails for want of space does not tell of a loss below"),
    (42502, "the checker: as 38269, without a flood"),
    (59776, "the checker: what a power cut leaves cannot be lost with the server below"),
    (71133, "the checker: the FLUSH of a server's start made durable what came just after"),
    (89665, "the checker: a read from below may take no time, and is not a cached one"),
    (90862, "the simulated disk: it kept whole writes that no flush ever covered"),
    (1882931198952408, "without a cache, a repeated write replaced one that was answered since"),
];

/// Seeds that found a fault with a level on flash, and what it was.
pub const FOUND_WITH_FLASH: &[(u64, &str)] = &[
    (2292, "an end gave up what waited for the last stamp of a journal that had failed"),
    (3794, "a drop waited for writes, and these for a stamp that was not made before its end"),
    (5842, "a volume that got no flash changed its store within the stamp of the part before"),
];

/// Whether a seed is run without a level on flash: it found something before there was any.
pub fn is_without_flash(seed: u64) -> bool {
    FOUND.iter().any(|(found, _)| *found == seed)
}

/// Whether a seed is run without a write log: likewise.
pub fn is_without_log(seed: u64) -> bool {
    FOUND.iter().chain(FOUND_WITH_FLASH).any(|(found, _)| *found == seed)
}

/// Runs them, until a moment if there is one; fails with what is wrong.
pub fn all(seeds: impl Iterator<Item = u64> + Send, until: Option<Instant>) {
    let began = Instant::now();
    let seeds = Mutex::new(seeds);
    let (count, requests, simulated) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let peak = AtomicU64::new(0);
    let tally = Mutex::new(Tally::default());
    let wrong = Mutex::new(Vec::new());
    let workers = thread::available_parallelism().map_or(1, usize::from);
    let most_wrong = std::env::var("SIMULATE_FAULTS").map_or(1, |text| text.parse().unwrap());
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while until.is_none_or(|until| Instant::now() < until) {
                    if wrong.lock().unwrap().len() >= most_wrong {
                        return;
                    }
                    let Some(seed) = seeds.lock().unwrap().next() else { return };
                    let _watched = Watched::new(seed);
                    let report = run::seed(seed, false);
                    count.fetch_add(1, Ordering::Relaxed);
                    requests.fetch_add(report.requests, Ordering::Relaxed);
                    simulated.fetch_add(report.simulated.as_secs(), Ordering::Relaxed);
                    peak.fetch_max(report.peak_bytes, Ordering::Relaxed);
                    tally.lock().unwrap().add(report.tally);
                    if !report.faults.is_empty() {
                        wrong.lock().unwrap().push((seed, report.explain()));
                    }
                }
            });
        }
    });
    let get = |number: &AtomicU64| number.load(Ordering::Relaxed);
    println!(
        "{} seeds, {} requests, {} simulated hours, at most {} KiB, in {:.1} s",
        get(&count),
        get(&requests),
        get(&simulated) / 3600,
        get(&peak) / 1024,
        began.elapsed().as_secs_f64()
    );
    let tally = tally.into_inner().unwrap();
    println!("contents over control exports, flash and write logs: {tally}");
    let mut wrong = wrong.into_inner().unwrap();
    wrong.sort();
    let texts: Vec<_> = wrong.into_iter().map(|(_, text)| text).collect();
    assert!(texts.is_empty(), "\n{}\n", texts.join("\n"));
    let missing = tally.missing(get(&count));
    assert!(
        missing.is_empty(),
        "of contents over control exports, on flash or in a write log, none were {missing:?}"
    );
}

/// Ends the process if a seed does not end: nothing else could.
struct Watched {
    _ends: std::sync::mpsc::Sender<()>,
}

impl Watched {
    fn new(seed: u64) -> Watched {
        let (ends, ended) = std::sync::mpsc::channel::<()>();
        let most = std::env::var("SIMULATE_SEED_MAX");
        let most = Duration::from_secs(most.map_or(SEED_MAX_S, |text| text.parse().unwrap()));
        thread::spawn(move || {
            if ended.recv_timeout(most) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
                // Not through eprintln!, which the test harness would keep to itself.
                let text = format!("seed {seed}: does not end: somebody works without waiting\n");
                let _ = std::io::Write::write_all(&mut std::io::stderr(), text.as_bytes());
                std::process::exit(1);
            }
        });
        Watched { _ends: ends }
    }
}
