//! The NBD protocol, client and server side: the handshake, the messages, one task a connection;
//! and the format of what our clients and servers say to each other over it.
//!
//! Not here: what an export holds and where from. A server gives the protocol an [`Exports`];
//! see `service.rs`.

mod client;
pub mod coop;
mod failure;
pub mod hint;
mod link;
pub mod load;
mod mailbox;
mod outbox;
mod piece;
mod reply;
pub mod report;
mod server;
mod service;
mod tls;
mod uri;
pub mod wire;

pub use client::{
    Buffer, Channel, Client, ClientError, ClientOptions, Connector, Line, ReadDone, Remote,
};
pub use link::{Ended, Transport};
pub use piece::{Piece, Pieces};
pub use reply::{Answer, Awaited, Replies, Reply};
pub use rustls::ServerConfig as ServerTlsConfig;
pub use server::{Listener, Server, ServerOptions};
pub use service::{
    Command, Context, Export, ExportInfo, Exports, Extent, Failure, Flags, Peer, Refusal, Request,
    Session,
};
pub use tls::{ClientTlsFiles, Tls, TlsError, TlsFiles, TlsKeys};
pub use uri::{Endpoint, Uri, UriError};
