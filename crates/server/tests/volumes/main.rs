//! Volumes in this process, without a network: requests go in where a connection would put them, on
//! stores that a test holds back or lets fail.
//!
//! The whole program is tested in `cli/tests/server`.

mod awaited;
mod behaviour;
mod change;
mod closing;
mod common;
mod cost;
mod crash;
mod equality;
mod flash;
mod flash_restart;
mod handed_over;
mod lending;
mod losing;
mod losses;
mod pace;
mod placement;
mod random;
mod restart;
mod shadow;
mod stalled;
