//! The NBD protocol, client and server side: the handshake, the messages, one task a connection.
//!
//! Not here: what an export holds and where from. A server gives the protocol an [`Exports`];
//! see `service.rs`.

mod service;

pub use service::{
    Command, Context, Export, ExportInfo, Exports, Extent, Failure, Flags, Peer, Refusal, Reply,
    Request, Session,
};
