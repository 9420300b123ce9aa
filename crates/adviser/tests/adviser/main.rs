//! The adviser against full simulations of the same references, within its budget, and fed by
//! hostile clients; and what is said of traces.

mod adapting;
mod against_full_runs;
mod flash;
mod hostile;
mod memory;
mod sentences;
mod support;
