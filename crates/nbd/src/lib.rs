//! The NBD protocol, client and server side: the handshake, the messages, one task per connection.
//!
//! Not here: what an export contains. A server gives the protocol an [`Exports`]; see `service.rs`.
//! Hints about caches travel in ordinary commands, and are in `undercroft-hints`.
//!
//! A server of a disk of zeroes, and a client:
//!
//! ```
//! use std::sync::Arc;
//!
//! use bytes::Bytes;
//! use undercroft_nbd::{
//!     Client, ClientOptions, Command, Context, Export, ExportInfo, Exports, Failure, Flags, Peer,
//!     Refusal, Request, Server, ServerOptions, Session,
//! };
//!
//! #[derive(Clone)]
//! struct Zeroes;
//!
//! impl Exports for Zeroes {
//!     fn list(&self, _: &Peer) -> Vec<(String, String)> {
//!         vec![("zeroes".to_owned(), "nothing but zeroes".to_owned())]
//!     }
//!
//!     fn find(&self, _: &str, _: &Peer) -> Result<Arc<dyn Export>, Refusal> {
//!         Ok(Arc::new(Zeroes))
//!     }
//! }
//!
//! impl Export for Zeroes {
//!     fn info(&self, _: &Peer, _: &[Context]) -> ExportInfo {
//!         ExportInfo {
//!             name: "zeroes".to_owned(),
//!             description: String::new(),
//!             size: 1 << 20,
//!             flags: Flags { read_only: true, ..Flags::default() },
//!             min_block: 1,
//!             preferred_block: 4096,
//!             max_block: 1 << 20,
//!         }
//!     }
//!
//!     fn contexts(&self, _: &str) -> Vec<Context> {
//!         Vec::new()
//!     }
//!
//!     fn connect(&self, _: &Peer, _: &[Context]) -> Result<Box<dyn Session>, Refusal> {
//!         Ok(Box::new(Zeroes))
//!     }
//! }
//!
//! impl Session for Zeroes {
//!     fn serve(&mut self, requests: &mut Vec<Request>) -> u64 {
//!         requests.drain(..).for_each(|request| self.start(request));
//!         0
//!     }
//! }
//!
//! impl Zeroes {
//!     fn start(&mut self, request: Request) {
//!         match request.command {
//!             Command::Read { .. } => {
//!                 request.reply.data(Bytes::from(vec![0; request.length as usize]));
//!             }
//!             Command::Flush => request.reply.done(),
//!             _ => request.reply.fail(Failure::NotSupported, "only zeroes".to_owned()),
//!         }
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! let server = Server::new(Arc::new(Zeroes), ServerOptions::default());
//! let (ours, theirs) = tokio::io::duplex(1 << 16);
//! tokio::spawn(async move { server.attend(theirs, Peer::default()).await });
//! let client = Client::over(ours, "zeroes", &ClientOptions::default()).await.unwrap();
//! assert_eq!(client.remote().info.size, 1 << 20);
//! let (buffers, result) = client.read(4096, vec![Box::new(vec![1; 512])]).await;
//! assert!(result.is_ok() && buffers.len() == 1);
//! # }
//! ```

mod budget;
mod client;
mod command;
mod failure;
mod generation;
mod link;
mod outbox;
mod piece;
mod reply;
mod server;
mod service;
mod task_queue;
mod tls;
pub mod wire;

pub use client::{
    Buffer, Channel, Client, ClientError, ClientOptions, Connector, OnLoss, RawConnection,
    ReadDone, ReconnectId, ReconnectingClient, Remote, connect_again,
};
pub use command::{AnswerKind, COMMANDS, Command, CommandInfo, CommandKind, Cost, Flags, Length};
pub use link::{Ended, Transport};
pub use piece::{Piece, Pieces};
pub use reply::{Answer, Awaited, Replies, Reply};
pub use server::{Alone, Listener, Server, ServerOptions, UnixSocket, while_others_wait};
pub use service::{
    Context, Credentials, Export, ExportInfo, Exports, Extent, Failure, Peer, Refusal, Request,
    Session,
};
pub use tls::{ClientTlsFiles, Identity, ServerTls, Tls, TlsError, TlsFiles, TlsKeys};
pub use undercroft_text::{Endpoint, Uri, UriError};
