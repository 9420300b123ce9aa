//! One seed: the clock, the thread, and what is looked at when it is over.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Once};

use tokio::runtime::Builder;
use tokio::time::Instant;

use crate::checker;
use crate::random::Random;
use crate::report::{Log, Report};
use crate::scenario::Scenario;
use crate::seeds;
use crate::world::World;

/// Most bytes of a run, frames not counted: what a server may hold with these clients, and what
/// the simulation itself remembers.
const PEAK_BYTES: u64 = 96 << 20;

thread_local! {
    /// Panics of this thread during a run: the runtime takes those of tasks for itself.
    static PANICS: RefCell<Option<Vec<String>>> = const { RefCell::new(None) };
}

/// Runs a seed; with a log for people, or without.
pub fn seed(seed: u64, is_shown: bool) -> Report {
    static NOTES_PANICS: Once = Once::new();
    NOTES_PANICS.call_once(|| {
        std::panic::set_hook(Box::new(|info| {
            let text = format!("panic: {info}");
            PANICS.with_borrow_mut(|panics| match panics {
                Some(panics) => panics.push(text),
                None => eprintln!("{text}"),
            });
        }));
    });
    PANICS.set(Some(Vec::new()));
    let report = run(seed, is_shown);
    PANICS.set(None);
    report
}

fn run(seed: u64, is_shown: bool) -> Report {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.expect("a runtime of one thread");
    let mut random = Random::new(seed);
    let mut scenario = Scenario::draw(&mut random);
    scenario.flash = scenario.flash.filter(|_| !seeds::is_without_flash(seed));
    scenario.write_log = scenario.write_log.filter(|_| !seeds::is_without_log(seed));
    let mut report = Report { seed, scenario: scenario.to_string(), ..Report::default() };
    let log = runtime.block_on(async { Log::new(is_shown) });
    let world = runtime.block_on(async { World::new(scenario, &mut random, log.clone()) });
    let memory = allocation_counter::measure(|| {
        let ran = catch_unwind(AssertUnwindSafe(|| {
            runtime.block_on(async {
                let began = Instant::now();
                report.faults = Arc::clone(&world).run(&mut random).await;
                report.simulated = began.elapsed();
            });
        }));
        if ran.is_err() {
            report.faults.push("it broke off".to_owned());
        }
    });
    (report.peak_bytes, report.hash) = (memory.bytes_max, log.hash());
    world.nodes.iter().for_each(|node| report.tally.add(node.tally()));
    if !world.scenario.has_only_attached() {
        report.tally.forget_contents();
    }
    report.requests = world.history.requests();
    if memory.bytes_max > PEAK_BYTES {
        report.faults.push(format!("{} bytes were held at a time", memory.bytes_max));
    }
    let volumes = world.scenario.volumes.iter();
    let are_late: Vec<_> = volumes.map(|volume| volume.habits.service.is_some()).collect();
    report.faults.extend(checker::check(&world.history.lock(), &are_late));
    report
        .faults
        .extend(PANICS.with_borrow_mut(|panics| panics.replace(Vec::new())).unwrap_or_default());
    // What was under way ends somehow: nobody is left to see it.
    drop(runtime);
    report
}
