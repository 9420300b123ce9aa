//! The load generator and the replay of traces against servers in this process: what a replay meets
//! is what the simulator predicts.

#[path = "../../../../crates/nbd/examples/ram/export.rs"]
mod export;
#[path = "../../../../crates/client/tests/client/support.rs"]
mod support;

mod aware;
mod cooperation;
mod equality;
mod hinted_load;
mod load;
mod recording;
mod serving;
mod telling;
mod traces;
