//! The program where it does its work and ends: simulations, sweeps, conversions, and what is
//! refused.
//!
//! The program as a server is in `server`.

mod adding;
mod advise;
mod characterize;
mod clients;
mod commands;
mod golden;
mod house;
mod lists;
mod manual;
mod placements;
mod prices;
mod report;
mod sweeps;
mod tables;
mod targets;
mod tidy;
mod traces;
