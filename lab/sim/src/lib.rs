//! Cache levels driven by traces: one simulation, a sweep of many, miss ratio curves, and what a
//! trace asks for.
//!
//! The levels are those of `undercroft-level`, the policies of `undercroft-policy`, the schemes of
//! movement of `undercroft-schemes`; the traces come from `undercroft-trace`. The program displays
//! the results.
#![forbid(unsafe_code)]

pub mod advise;
mod aware;
mod cache_tree;
mod chain;
pub mod characterize;
mod clients;
mod combinations;
mod config;
mod costs;
pub mod curve;
mod drive;
mod error;
mod evictions;
mod filter;
mod flash;
mod input;
mod lowest;
mod movement;
mod outcome;
mod report;
mod rule;
mod run;
mod setup;
mod size;
mod stack;
mod sweep;
mod timed;
mod timing;
pub mod tree;

pub use cache_tree::CacheTree;
pub use clients::{ClientReport, ClientsReport, Data, Population};
pub use config::{Config, Evictions, Looks, Sharing};
pub use costs::{CostSpec, Costs, DemotionCost, Times};
pub use drive::Proceed;
pub use error::Error;
pub use evictions::{DerivedEvictions, EvictionsFrom};
pub use filter::Filter;
pub use flash::{FlashLevel, FlashOutcome, FlashReport, FlashTimes};
pub use input::{TraceInput, Warmup, load};
pub use lowest::{Lowest, WriteBack};
pub use movement::{HintDistances, MovementReport, NodeReport, bounds};
pub use outcome::{
    AwareReport, BoundReport, Bounds, ClientOutcome, ClientsOutcome, CooperationOutcome,
    EstimateOutcome, MovementOutcome, NodeCounts, Outcome, SampleReport, TimedOutcome,
    WriteBackCounts,
};
pub use report::{
    AggregateReport, CooperationReport, DiskReport, LevelReport, Report, TraceReport,
};
pub use rule::Rule;
pub use run::{Input, simulate};
pub use setup::{Prepared, Setup};
pub use size::{LevelConfig, LevelSpec, Ratio, Size};
pub use sweep::{Journal, Plan, Progress, Row, Run, Source, about_file, parse_policies, sweep};
pub use timed::TimedReport;
pub use timing::{ReloadTime, Timing};
