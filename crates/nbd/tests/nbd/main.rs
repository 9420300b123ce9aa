//! The protocol from outside: our server and our client against each other, against bytes that a
//! test says, and against programs that others wrote.

#[path = "../../examples/ram/export.rs"]
mod export;

mod budgets;
mod client;
mod handshake;
mod peers;
mod random;
mod support;
mod tls;
mod transmission;
