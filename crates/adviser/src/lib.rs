//! The adviser: what another policy, placement or size would be worth for the requests that a cache
//! serves right now.
//!
//! A hash selects a share of the blocks ([`Sample`]). All references to these blocks drive *cells*
//! (`cell.rs`): miniature caches, one for each policy, placement and size that is compared, with
//! the levels that simulations and servers run. A cache of `c` blocks is simulated by one of
//! `c * rate` blocks (SHARDS: Waldspurger et al., FAST 2015; miniature simulations: ATC 2017).
//! Larger sizes see a part of that sample only (`plan.rs`), for the sake of memory. Evictions that
//! clients tell are judged once for all cells (`heard.rs`). Below today's miniature lies flash of
//! several sizes (`below.rs`).
//!
//! The sample consists of [`GROUPS`] disjoint groups of blocks, and every cell counts by group. The
//! spread between the groups gives the error of each figure and of each difference of two. What the
//! cache itself counted corrects them (`control.rs`). Counts are kept for the last epochs only
//! (`window.rs`), so that a workload of the past does not speak for the present one (`change.rs`).
//!
//! What the figures show are *findings* (`advise.rs`, `between.rs`), and a sentence for people says
//! each (`sentences.rs`), so that it is the same wherever it is shown. Both are for traces too:
//! what `undercroft_sim::advise` finds there has the same type and the same writer.
//!
//! Not here: I/O, threads, the clock, and where references come from.
#![forbid(unsafe_code)]

mod advise;
mod adviser;
mod below;
mod between;
mod budget;
mod cell;
mod change;
mod control;
mod curve;
mod estimate;
mod figures;
mod finding;
mod heard;
mod plan;
mod sample;
mod sentences;
mod window;

pub use advise::advise;
pub use adviser::{Adviser, CONTENT_AWARE, NoAdvice, Options, Today, bytes_max};
pub use between::between;
pub use budget::{budget, known_blocks, level_bytes};
pub use curve::Curve;
pub use estimate::{Estimate, SMALL_IN_TRACES, Verdict, WIDENING, WIDENING_CORRECTED};
pub use figures::{Adapts, CellFigure, Figures, FlashFigure, State};
pub use finding::{Advice, Assumption, Choice, Cost, Finding, FlashGain};
pub use heard::Adapting;
pub use plan::SIZES;
pub use sample::{Event, Kind, Sample};
pub use sentences::{Measured, Words, amount};

/// Number of disjoint groups of blocks that the sample consists of.
pub const GROUPS: usize = 32;
