//! Clients, links and disks with a clock: the cost of placement when actions take time.
//!
//! The model (`docs/user/cooperation.md`) is a closed loop. Each client has some requests in
//! flight. After an answer it thinks for a random time, uniform between 0 and twice the mean, and
//! then issues the next block reference of its trace. Other times are those of the response-time
//! model; the disk's part of a miss is spent at a disk that serves one request at a time. Caches
//! change when a request reaches them, not when its data does.

mod disk;
mod flash;
mod link;
mod outcome;
mod world;

pub use outcome::TimedReport;

use crate::drive::Proceed;
use crate::{Config, Error, Outcome, Population, Timing, tree};
use world::World;

/// Runs clients and servers over the whole trace with a clock, with a warm-up of so many
/// references. `progress` is called with the references done so far.
///
/// # Errors
/// The configuration cannot be simulated, a spooled trace cannot be read back, or `progress` stops
/// the simulation.
pub(crate) fn simulate_timed<P: Proceed>(
    population: &Population,
    config: &Config,
    timing: &Timing,
    warmup: u64,
    progress: &mut dyn FnMut(u64) -> P,
) -> Result<Outcome, Error> {
    let (references, clients) = (population.trace().len(), population.names().len());
    timing.check()?;
    let flash = config.lowest.flash.as_ref().map(|flash| flash.times);
    timing.check_length((references, clients), config.block_bytes, flash)?;
    let (mut tree, by_volume) = tree::build(population, config)?;
    let names = config.sharing.is_none().then(|| population.trace().names());
    tree::add_flash(&mut tree, config, population.unique(), names)?;
    let mut world = World::new(population, tree, config, timing, warmup);
    world.run(progress)?;
    let (tree, timed) = world.finish();
    let mut outcome = tree::outcome(&tree, config, by_volume);
    if let Some(cooperation) = &mut outcome.cooperation {
        cooperation.hint_bytes = timed.hints * tree::HINT_BYTES;
    }
    if let Some(flash) = &mut outcome.flash {
        flash.timed = Some((timed.flash_ns, timed.flash_busy));
    }
    Ok(Outcome { timed: Some(timed), ..outcome })
}
