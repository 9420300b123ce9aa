//! Cache levels driven by traces: one simulation, a sweep of many, miss ratio curves, and what a
//! trace asks for.
//!
//! The levels and policies are those of `undercroft-cache`, the schemes of movement those of
//! `undercroft-schemes`; the traces come from `undercroft-trace`. The program displays the results.
#![forbid(unsafe_code)]

pub mod advise;
mod aware;
pub mod characterize;
mod clients;
mod combinations;
mod config;
mod cooperation;
mod costs;
pub mod curve;
mod drive;
mod error;
mod filter;
mod hierarchy;
mod input;
mod lowest;
mod movement;
mod outcome;
mod report;
mod setup;
mod size;
mod stack;
mod sweep;
mod timed;
pub mod tree;

pub use clients::{ClientReport, ClientsReport, Data, Population, simulate_clients};
pub use config::{ClientsConfig, Config, Evictions, LevelConfig, MovementConfig};
pub use cooperation::{DerivedEvictions, EvictionsFrom};
pub use costs::{CostSpec, Costs, DemotionCost};
pub use drive::Proceed;
pub use error::Error;
pub use filter::Filter;
pub use hierarchy::simulate;
pub use input::{TraceInput, Warmup, load};
pub use lowest::{Lowest, WriteBack};
pub use movement::{
    Bound, BoundReport, Bounds, HintDistances, MovementReport, NodeReport, SampleReport, bounds,
    simulate_movement,
};
pub use outcome::{
    AwareReport, ClientOutcome, ClientsOutcome, CooperationOutcome, EstimateOutcome,
    MovementOutcome, NodeCounts, Outcome, Sample, TimedOutcome, WriteBackCounts,
};
pub use report::{
    AggregateReport, CooperationReport, DiskReport, LevelReport, Report, TraceReport, trace_report,
};
pub use setup::{Looks, Prepared, Setup, Sharing};
pub use size::{LevelSpec, Ratio, Size};
pub use sweep::{
    Journal, Plan, Progress, Row, Rule, Run, Source, Times, about_file, parse_policies, sweep,
};
pub use timed::{ReloadTime, TimedReport, Timing, simulate_timed, without_placement};
