//! The parts of the tracker: the table against a naive model, invariants after every step; the
//! ring; several processes at work on one segment, some of them killed.

mod contents;
mod files;
mod places;
mod pools;
mod processes;
mod ring;
mod strangers;
mod strays;
mod table;

use undercroft_random::SplitMix64 as Random;
