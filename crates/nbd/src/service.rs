//! The seam between the protocol and what it serves: a program implements [`Exports`], [`Export`]
//! and [`Session`], and the protocol calls them.
//!
//! Requests arrive checked: the range lies within the export, flags were offered, the payload is
//! complete and within the limits. A request is answered through its reply handle, at once or
//! later, from any thread and in any order.

use std::sync::Arc;

use crate::command::{Command, Flags};
use crate::reply::Reply;

/// Who is at the other end of a connection.
#[derive(Clone, Debug, Default)]
pub struct Peer {
    /// Its address, for logs: `127.0.0.1:40612`, or `unix:PATH (pid 4711)`.
    pub address: String,
    /// Common name of its verified client certificate, if it showed one.
    pub certificate: Option<String>,
    /// Whether the connection is encrypted.
    pub encrypted: bool,
}

/// Why an export cannot be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No export of this name (that this peer may know of).
    Unknown,
    /// Not for this peer; the text goes to it.
    Denied(String),
    /// Only over TLS.
    TlsRequired,
    /// The server is going away.
    ShuttingDown,
}

/// What a client is told of an export. FLUSH, FUA and DF are always offered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportInfo {
    /// Canonical name.
    pub name: String,
    /// A line for people; may be empty.
    pub description: String,
    /// Bytes.
    pub size: u64,
    /// What it can do.
    pub flags: Flags,
    /// Smallest unit of a request in bytes: 1, or a power of two up to 64 KiB.
    pub min_block: u32,
    /// Unit that works best, in bytes: a power of two.
    pub preferred_block: u32,
    /// Most bytes of a payload.
    pub max_block: u32,
}

/// A metadata context that an export agreed to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Context {
    /// Its full name, as the client is told.
    pub name: String,
    /// The export's own number for it, given back with each BLOCK_STATUS.
    pub key: u32,
    /// What the export keeps of the query for the session that begins, and the client is not told.
    pub kept: Option<u128>,
}

/// The set of exports of a server.
pub trait Exports: Send + Sync + 'static {
    /// Name and description of the exports that this peer may see listed.
    fn list(&self, peer: &Peer) -> Vec<(String, String)>;

    /// The export of a name; the empty name asks for the default one.
    ///
    /// # Errors
    /// Says why this peer cannot have it.
    fn find(&self, name: &str, peer: &Peer) -> Result<Arc<dyn Export>, Refusal>;
}

/// One export, as seen by the handshake.
pub trait Export: Send + Sync + 'static {
    /// What the export is a part of: a number by which [`Server::hang_up`](crate::Server::hang_up)
    /// knows its sessions, whatever name they asked for. Exports that do not say are one whole.
    fn owner(&self) -> u64 {
        0
    }

    /// What it is; with contexts selected, since an extension may change the size that a session
    /// is told.
    fn info(&self, peer: &Peer, contexts: &[Context]) -> ExportInfo;

    /// The contexts that a query names. The protocol itself never calls this with an empty query
    /// except to list all; unknown queries give nothing.
    fn contexts(&self, query: &str) -> Vec<Context>;

    /// Begins a session.
    ///
    /// # Errors
    /// Says why not: too many connections, for example.
    fn connect(&self, peer: &Peer, contexts: &[Context]) -> Result<Box<dyn Session>, Refusal>;
}

/// One connection in transmission. Dropped when the client is gone; requests in flight may still
/// be answered then, into the void.
pub trait Session: Send + 'static {
    /// Begins one request. Must not block.
    fn submit(&mut self, request: Request);

    /// All requests that had arrived together were submitted.
    fn end_of_batch(&mut self) {}

    /// Begins requests that arrived together, and leaves `requests` empty. For sessions that do
    /// better with all of them than with one after another.
    fn serve(&mut self, requests: &mut Vec<Request>) {
        requests.drain(..).for_each(|request| self.submit(request));
        self.end_of_batch();
    }

    /// What was done since this was last asked beyond one step for each block read or written, in
    /// such steps. The connection pays for it with its next turns.
    fn owed(&mut self) -> u64 {
        0
    }

    /// No more requests will come: what waits for one must be answered without. If the client
    /// `is_gone`, without a good-bye, what was not begun need not be.
    fn no_more(&mut self, is_gone: bool) {
        let _ = is_gone;
    }
}

/// A request, with the handle to answer it.
pub struct Request {
    /// What is asked.
    pub command: Command,
    /// First byte.
    pub offset: u64,
    /// Bytes concerned.
    pub length: u64,
    /// Durable before the answer (FUA).
    pub durable: bool,
    /// How to answer. Dropping it unused answers EIO.
    pub reply: Reply,
}

/// A range with the status words of a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Bytes, at least 1.
    pub length: u64,
    /// The context's word: for `base:allocation` bit 0 hole, bit 1 zero.
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
