//! The program as a storage server: real processes, real sockets, real clients.
//!
//! What is inside a server is tested where it lives (`crates/server`, `crates/nbd`,
//! `crates/store`); here is what only shows when all of it runs as one process that can be
//! killed, told to stop, and talked to by programs that know nothing of it.

mod access;
mod advice;
mod again;
mod ahead;
mod arrivals;
mod attached_volume;
mod check;
mod clean;
mod clients;
mod cooperation;
mod dashboards;
mod databases;
mod descriptors;
mod disk;
mod documents;
mod doors;
mod faults;
mod flash;
mod health;
mod kill;
mod late_objects;
mod limits;
mod live;
mod losses;
mod memory;
mod metrics;
mod oracle;
mod outside;
mod package;
mod power;
mod product;
mod recording;
mod reload;
mod removed;
mod restarted;
mod service;
mod set;
mod share;
mod soak;
mod stack;
mod stalled;
mod support;
mod tls;
mod top;
mod unwritten;
mod upstream;
mod vanished;
mod words;
mod write_log;
