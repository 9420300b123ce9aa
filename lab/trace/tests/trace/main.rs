//! Traces from outside: several as one, and real ones.
//!
//! The formats are tested where they are read and written (`src`).

mod merge;
mod own_format;
mod random;
mod real_traces;
