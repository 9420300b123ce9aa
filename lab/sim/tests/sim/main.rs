//! Simulations from outside: small cases by hand, identities that must hold on random traces, and
//! pinned counts on real ones.

mod advise;
mod aware;
mod characterize;
mod clients;
mod common;
mod cooperation;
mod curves;
mod flash;
mod hierarchy;
mod lowest;
mod movement;
mod real_traces;
mod recorded;
mod sweep;
mod timed;
