//! Every policy from outside, against naive models and worked examples, and what is
//! counted of it.
//!
//! What only shows inside a module is tested there.

mod auto;
mod aware;
mod conformance;
mod contract;
mod counted;
mod model;
mod own_policy;
mod variants;
mod worked_examples;
mod worked_examples_model;
