//! The interface between the protocol and the exports: a program implements [`Exports`], [`Export`]
//! and [`Session`], and the protocol calls them.
//!
//! Requests are checked before they arrive: the range lies within the export, the flags were
//! offered, the payload is complete and within the limits. A request is answered through its reply
//! handle, at once or later, from any thread and in any order.

use std::net::IpAddr;
use std::sync::Arc;
use std::task::Waker;

use crate::command::{Command, Flags};
use crate::reply::Reply;
use crate::tls::Identity;

/// The client at the other end of a connection.
#[derive(Clone, Debug, Default)]
pub struct Peer {
    /// Its address, for logs: `127.0.0.1:40612`, or `unix:PATH (pid 4711)`.
    pub address: String,
    /// Its address without the port, if it came over TCP. An IPv4 client is known by its IPv4
    /// address on a listener for IPv6, too.
    pub ip: Option<IpAddr>,
    /// Who connected, if it came over a unix socket.
    pub credentials: Option<Credentials>,
    /// Common name of its verified client certificate, if it showed one.
    pub certificate: Option<String>,
    /// Whether the connection is encrypted.
    pub encrypted: bool,
    /// Who it is by TLS, if the server encrypted the connection itself.
    pub identity: Option<Identity>,
}

impl Peer {
    /// Whether the server's keys, which may have changed since it connected, would still let it
    /// in; see [`Identity::is_trusted`].
    pub fn is_trusted(&self) -> bool {
        self.identity.as_ref().is_none_or(Identity::is_trusted)
    }
}

/// The user and the group of a process when it connected to a unix socket, as the kernel tells
/// them. Those of another user namespace have the overflow numbers, mostly 65534.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// Number of the effective user.
    pub user: u32,
    /// Number of the effective group; supplementary groups are not known.
    pub group: u32,
}

/// Why an export cannot be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// There is no export of this name, or none that this peer may know of.
    Unknown,
    /// This peer may not open it; the peer is sent the text.
    Denied(String),
    /// The export requires TLS.
    TlsRequired,
    /// It exists and cannot be opened now; the same peer may try again later. It is sent the text.
    Away(String),
    /// The server is shutting down.
    ShuttingDown,
}

/// The beginning of the text of [`Refusal::Away`] on the wire, by which our clients know it.
pub(crate) const AWAY: &str = "not served yet: ";

/// What a client is told about an export. FLUSH, FUA and DF are always offered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportInfo {
    /// Canonical name.
    pub name: String,
    /// A description for people; may be empty.
    pub description: String,
    /// Size in bytes.
    pub size: u64,
    /// Its abilities.
    pub flags: Flags,
    /// Smallest unit of a request in bytes: 1, or a power of two up to 64 KiB.
    pub min_block: u32,
    /// Preferred unit of requests in bytes: a power of two.
    pub preferred_block: u32,
    /// Most bytes of a payload.
    pub max_block: u32,
}

/// A metadata context that an export agreed to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Context {
    /// Its full name, as sent to the client.
    pub name: String,
    /// The export's own key for it, passed back with each BLOCK_STATUS.
    pub key: u32,
    /// A part of the query that the export needs for the session and does not send back to the
    /// client.
    pub kept: Option<u128>,
}

/// The exports of a server.
pub trait Exports: Send + Sync + 'static {
    /// Names and descriptions of the exports that this peer may list.
    fn list(&self, peer: &Peer) -> Vec<(String, String)>;

    /// The export with a name; the empty name selects the default export.
    ///
    /// # Errors
    /// Why this peer may not open it.
    fn find(&self, name: &str, peer: &Peer) -> Result<Arc<dyn Export>, Refusal>;
}

/// One export, for the handshake.
pub trait Export: Send + Sync + 'static {
    /// A number by which [`Server::hang_up`](crate::Server::hang_up) identifies the sessions that
    /// belong together, whatever export name they opened. By default all exports have the same
    /// number.
    fn owner(&self) -> u64 {
        0
    }

    /// The export's description. It may depend on the selected contexts, since an extension may
    /// change the size.
    fn info(&self, peer: &Peer, contexts: &[Context]) -> ExportInfo;

    /// The contexts that a query matches. The protocol itself passes an empty query only to list
    /// all contexts. Unknown queries match none.
    fn contexts(&self, query: &str) -> Vec<Context>;

    /// Starts a session.
    ///
    /// # Errors
    /// Why it cannot start, for example too many connections.
    fn connect(&self, peer: &Peer, contexts: &[Context]) -> Result<Box<dyn Session>, Refusal>;
}

/// One connection in transmission. It is dropped when the client is gone; answers to its requests
/// in flight are then discarded.
pub trait Session: Send + 'static {
    /// Starts requests that arrived together, and leaves `requests` empty. Must not block. Returns
    /// the work done beyond one step for each block read or written, in such steps; the connection
    /// compensates for it in its next turns.
    fn serve(&mut self, requests: &mut Vec<Request>) -> u64;

    /// How many requests it takes now; more of them stay unread with the client, so that they need
    /// no memory. After 0 it wakes `waker` when it takes some again.
    fn room(&mut self, waker: &Waker) -> usize {
        let _ = waker;
        usize::MAX
    }

    /// Called when no more requests will come: whatever waits for one must be answered without. If
    /// the client disconnected without notice (`is_gone`), requests that have not started may be
    /// dropped.
    fn no_more(&mut self, is_gone: bool) {
        let _ = is_gone;
    }
}

/// A request, with the handle to answer it.
pub struct Request {
    /// What is requested.
    pub command: Command,
    /// First byte.
    pub offset: u64,
    /// Length in bytes.
    pub length: u64,
    /// Whether it must be durable before the answer (FUA).
    pub durable: bool,
    /// The handle to answer it. Dropping it unused answers EIO.
    pub reply: Reply,
}

/// A range with a status word of a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Length in bytes, at least 1.
    pub length: u64,
    /// The status word; for `base:allocation` bit 0 is hole, bit 1 is zero.
    pub status: u32,
}

/// The errors that the protocol knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// EPERM
    NotPermitted,
    /// EIO
    Io,
    /// ENOMEM
    NoMemory,
    /// EINVAL
    Invalid,
    /// ENOSPC
    NoSpace,
    /// EOVERFLOW
    Overflow,
    /// ENOTSUP
    NotSupported,
    /// ESHUTDOWN
    ShuttingDown,
}
