//! The options of HFA's variants by value, and what follows from them alone. Names, defaults and
//! help of the options are in `options.rs`.

use undercroft_policy::Arguments;

/// The options by value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    pub(super) k: u64,
    pub(super) period: u64,
    pub(super) decay: f64,
    pub(super) least: f64,
    pub(super) table_share: f64,
    pub(super) entries: Option<u32>,
    pub(super) is_dynamic: bool,
    pub(super) is_hard: bool,
    pub(super) expires: bool,
    pub(super) rises_by_hits: bool,
    hot_share: f64,
    /// References for which a move counts: kT of the paper; infinite if no move counts.
    span: f64,
}

/// Without the option `period` a slot has one reference for each `PERIOD_BLOCKS` blocks of the
/// caches on a client's way, at most `PERIOD_MAX`.
const PERIOD_MAX: u64 = 1000;
const PERIOD_BLOCKS: u64 = 10;

fn auto_period(way_blocks: u64) -> u64 {
    (way_blocks / PERIOD_BLOCKS).clamp(1, PERIOD_MAX)
}

impl Settings {
    /// `way_blocks`: blocks of all caches on a client's way.
    pub(super) fn new(arguments: &Arguments, way_blocks: u64) -> Self {
        let k = arguments.integer("k");
        let period = arguments.integer_or_word("period");
        let period = period.unwrap_or_else(|| auto_period(way_blocks));
        let span = if k == 0 { f64::INFINITY } else { (k * period) as f64 };
        Self {
            k,
            period,
            decay: arguments.real("decay"),
            least: arguments.real("fmin"),
            table_share: arguments.real("tout") / 100.0,
            entries: arguments.integer_or_word("entries").map(|entries| entries as u32),
            is_dynamic: arguments.word("partition") == "dynamic",
            is_hard: arguments.word("queues") == "hard",
            expires: k > 0 && arguments.word("hotness") == "expires",
            hot_share: arguments.real("hot"),
            rises_by_hits: arguments.word("rise") == "hit",
            span,
        }
    }

    /// The initial limit of Q1 in blocks.
    pub(super) fn first_q1_max(&self, capacity: u32) -> u32 {
        if self.k == 0 || capacity < 2 || self.hot_share == 0.0 {
            return 0;
        }
        ((f64::from(capacity) * self.hot_share) as u32).clamp(1, capacity - 1)
    }

    /// H of the paper, equation 3; 0 without a hot queue.
    #[inline(always)]
    pub(super) fn hotness(&self, frequency: f64, hits: u16, stay: u64) -> f64 {
        let moves = frequency / self.span;
        if self.k == 0 { moves } else { moves + f64::from(hits) / stay as f64 }
    }
}
