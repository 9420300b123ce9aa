//! The level from outside: placements and what is known of clients against naive models and worked
//! examples, and what a level remembers and costs.
//!
//! What only shows inside a module is tested there.

mod adaptive;
mod cct;
mod clients;
mod cluster;
mod content;
mod memo;
// The tests of policies use the rest of it.
#[allow(dead_code)]
#[path = "../../../policy/tests/policy/model/mod.rs"]
mod model;
mod parts;
mod placement;
mod reloads;
mod replaced;
mod streams;
mod support;
#[path = "../../../policy/tests/policy/variants.rs"]
mod variants;
