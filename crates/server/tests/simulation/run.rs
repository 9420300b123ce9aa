//! One seed: the clock, the thread, and what is looked at when it is over.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

use tokio::runtime::Builder;
use tokio::time::Instant;

use crate::checker;
use crate::random::Random;
use crate::report::{Log, Report};
use crate::scenario::Scenario;
use crate::world::World;

/// Most bytes of a run, frames not counted: what a server may hold with these clients, and what
/// the simulation itself remembers.
const PEAK_BYTES: u64 = 96 << 20;

thread_local! {
    /// Panics of this thread: the runtime takes those of tasks for itself.
    static PANICS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Runs a seed; with a log for people, or without.
pub fn seed(seed: u64, is_shown: bool) -> Report {
    static NOTES_PANICS: Once = Once::new();
    NOTES_PANICS.call_once(|| {
        std::panic::set_hook(Box::new(|info| {
            let text = format!("panic: {info}");
            let is_ours = PANICS.with_borrow_mut(|panics| {
                panics.push(text.clone());
                panics.len() > 1
            });
            if !is_ours {
                eprintln!("{text}");
            }
        }));
    });
    PANICS.take();
    let mut report = None;
    let memory = allocation_counter::measure(|| report = Some(run(seed, is_shown)));
    let mut report = report.expect("it was run");
    report.peak_bytes = memory.bytes_max;
    if memory.bytes_max > PEAK_BYTES {
        report.faults.push(format!("{} bytes were held at a time", memory.bytes_max));
    }
    report.faults.extend(PANICS.take());
    report
}

fn run(seed: u64, is_shown: bool) -> Report {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.expect("a runtime of one thread");
    let mut random = Random::new(seed);
    let scenario = Scenario::draw(&mut random);
    let text = scenario.to_string();
    let mut report = Report {
        seed,
        requests: 0,
        simulated: Default::default(),
        peak_bytes: 0,
        hash: 0,
        scenario: text,
        faults: Vec::new(),
    };
    let ran = catch_unwind(AssertUnwindSafe(|| {
        runtime.block_on(async {
            let (log, began) = (Log::new(is_shown), Instant::now());
            let world = World::new(scenario, &mut random, log.clone());
            report.faults = std::sync::Arc::clone(&world).run(&mut random).await;
            report.simulated = began.elapsed();
            report.requests = world.history.requests();
            report.faults.extend(checker::check(&world.history.lock()));
            report.hash = log.hash();
        });
    }));
    if ran.is_err() {
        report.faults.push("it broke off".to_owned());
    }
    report
}
