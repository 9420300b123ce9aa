//! Streams of references, and what tests do with an adviser.

use undercroft_adviser::{Adviser, Event, Figures, Kind, Options, Today};
use undercroft_level::placement::Placement;
use undercroft_policy::{Spec, WriteMode};
use undercroft_random::SplitMix64;

/// A cache of so many blocks with placement at the access.
pub(crate) fn today(policy: &str, blocks: u32) -> Today {
    let policy = Spec::parse(policy).unwrap();
    Today { policy, placement: Placement::Access, blocks, mode: WriteMode::Allocate }
}

/// Options with a rate in place of a budget.
pub(crate) fn with_rate(rate: f64, seed: u64) -> Options {
    Options { rate: Some(rate), seed, ..Options::default() }
}

/// A read of a whole block.
pub(crate) fn read(block: u64) -> (u64, Kind) {
    (block, Kind::Read { is_whole: true, tells: false })
}

/// Feeds an adviser as a tap does: it is told of blocks of its sample only, and of the number of
/// all reads. A round is so many events as a tap would have in a moment.
pub(crate) fn feed(adviser: &mut Adviser, stream: impl IntoIterator<Item = (u64, Kind)>) {
    feed_round(adviser, stream, None);
}

/// Feeds an adviser, and says which share of the reads missed.
pub(crate) fn feed_round(
    adviser: &mut Adviser,
    stream: impl IntoIterator<Item = (u64, Kind)>,
    miss_ratio: Option<f64>,
) {
    let sample = adviser.sample();
    adviser.begin_round(miss_ratio);
    let (mut reads, mut events) = (0, Vec::new());
    for (block, kind) in stream {
        reads += u32::from(matches!(kind, Kind::Read { .. }));
        if sample.takes(block) {
            events.push(Event { block, at_us: 0, reads, kind, client: 0 });
            reads = 0;
        }
        if events.len() == 64 {
            adviser.take(&events);
            adviser.end_round();
            events.clear();
        }
    }
    adviser.take(&events);
    adviser.saw_reads(reads.into());
    adviser.end_round();
}

/// The read hit ratio and the gain of a policy with a size in blocks.
pub(crate) fn cell(figures: &Figures, policy: &str, blocks: u32) -> (f64, f64, f64) {
    let cell = figures.cells.iter().find(|cell| cell.policy == policy && cell.blocks == blocks);
    let cell = cell.unwrap_or_else(|| panic!("no cell {policy} {blocks}: {figures:?}"));
    (cell.hits.value, cell.gain.value, cell.gain.error)
}

/// Reads of blocks `0..blocks`, the lower ones much more often.
pub(crate) fn skewed(random: &mut SplitMix64, blocks: u64) -> (u64, Kind) {
    let share = random.next_f64();
    read((share * share * share * blocks as f64) as u64)
}
