//! The cache engine from outside: every policy and placement against naive models and worked
//! examples, and what a cache counts, remembers and costs.
//!
//! What only shows inside a module is tested there.

mod adaptive;
mod auto;
mod aware;
mod cct;
mod clients;
mod cluster;
mod conformance;
mod content;
mod contract;
mod counted;
mod memo;
mod model;
mod own_policy;
mod parts;
mod placement;
mod reloads;
mod replaced;
mod streams;
mod support;
mod variants;
mod worked_examples;
mod worked_examples_model;
