//! What a run says of itself: a log, of which only a hash is kept unless somebody reads it, and
//! what was wrong.

use std::fmt::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use crate::tally::Tally;

/// The log of a run. Clones are the same.
#[derive(Clone)]
pub struct Log(Arc<Mutex<State>>);

struct State {
    began: Instant,
    hasher: crc32fast::Hasher,
    line: String,
    /// If somebody reads it.
    is_shown: bool,
}

impl Log {
    pub fn new(is_shown: bool) -> Log {
        let (hasher, line) = (crc32fast::Hasher::new(), String::new());
        Log(Arc::new(Mutex::new(State { began: Instant::now(), hasher, line, is_shown })))
    }

    pub fn line(&self, text: impl FnOnce() -> String) {
        let mut state = self.0.lock().unwrap();
        let State { began, hasher, line, is_shown } = &mut *state;
        line.clear();
        let _ = write!(line, "{:9.3} {}", began.elapsed().as_secs_f64(), text());
        hasher.update(line.as_bytes());
        if *is_shown {
            println!("{line}");
        }
    }

    /// A number that is another one if anything went otherwise.
    pub fn hash(&self) -> u32 {
        self.0.lock().unwrap().hasher.clone().finalize()
    }
}

/// How a run went.
#[derive(Debug, Default)]
pub struct Report {
    pub seed: u64,
    pub requests: u64,
    /// Time that passed in the simulation.
    pub simulated: Duration,
    /// Most bytes that were allocated at a time, the simulation's own included.
    pub peak_bytes: u64,
    pub hash: u32,
    /// What became of contents that were handed over, if all were over control exports, and what a
    /// level on flash did.
    pub tally: Tally,
    /// What was drawn, in a line.
    pub scenario: String,
    /// What was wrong.
    pub faults: Vec<String>,
}

impl Report {
    /// What to look at, and how.
    pub fn explain(&self) -> String {
        let mut text = format!("seed {}: {}\n", self.seed, self.scenario);
        for fault in self.faults.iter().take(5) {
            let _ = writeln!(text, "  {fault}");
        }
        let more = self.faults.len().saturating_sub(5);
        if more > 0 {
            let _ = writeln!(text, "  and {more} more");
        }
        let _ = write!(
            text,
            "  its log: UNDERCROFT_SEED={} cargo test -p undercroft-server --test simulation \
             replay -- --nocapture",
            self.seed
        );
        text
    }
}
