//! The client side: many requests in flight on one connection, answered in any order.
//!
//! Here: the interface for callers. Not here: the handshake, and the task that owns the socket.

mod channel;
mod connection;
mod connector;
mod error;
mod handshake;
mod raw;
mod reconnecting;
mod replies;

use std::future::Future;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::{oneshot, watch};
use tokio::time::timeout;

use crate::command::{AnswerKind, CommandInfo, Length};
use crate::link::{Link, Transport, prepare_tcp_client};
use crate::service::{ExportInfo, Extent, Failure};
use crate::task_queue::{Stop, TaskQueue};
use crate::wire::*;
use undercroft_text::{Endpoint, Uri};

pub use channel::Channel;
pub use connector::Connector;
pub use error::ClientError;
pub use raw::RawConnection;
pub use reconnecting::{OnLoss, ReconnectId, ReconnectingClient, connect_again};

use connection::{Call, Connection, Waiter};
use handshake::Handshake;

/// Memory for a read; it is returned with the answer.
pub type Buffer = Box<dyn AsMut<[u8]> + Send>;

/// The result of a read: its memory, whose content is undefined after an error.
pub type ReadDone = (Vec<Buffer>, Result<(), ClientError>);

/// Most bytes that a request without data may cover: the largest 32-bit length in whole blocks.
const MAX_EFFECT: u64 = (1 << 32) - (64 << 10);

/// Options of a connection.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// The TLS configuration for `nbds`; see [`ClientTlsFiles`](crate::ClientTlsFiles).
    pub tls: Option<Arc<rustls::ClientConfig>>,
    /// The name that the server's certificate must have. If `None`: the host of the URI, or
    /// `localhost` for a unix socket.
    pub tls_name: Option<String>,
    /// Metadata contexts to ask for.
    pub contexts: Vec<String>,
    /// Longest time until the connection is ready.
    pub timeout: Duration,
    /// Makes connections instead of the system.
    pub connector: Option<Connector>,
}

impl Default for ClientOptions {
    /// No TLS, no contexts, a timeout of 20 s.
    fn default() -> ClientOptions {
        ClientOptions {
            tls: None,
            tls_name: None,
            contexts: Vec::new(),
            timeout: Duration::from_secs(20),
            connector: None,
        }
    }
}

/// What a server told about its export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remote {
    /// Name, size, abilities and block sizes.
    pub info: ExportInfo,
    /// The transmission flags as received; see [`wire`](crate::wire).
    pub transmission_flags: u16,
    /// Whether replies are structured (in chunks).
    pub structured: bool,
    /// Whether the connection is encrypted.
    pub encrypted: bool,
    /// Number and name of each metadata context that the server agreed to.
    pub contexts: Vec<(u32, String)>,
}

impl Remote {
    /// Whether the server offers all of these transmission flags.
    pub fn offers(&self, flags: u16) -> bool {
        self.transmission_flags & flags == flags
    }
}

/// A connection to one export. Clones share it. When the last one is dropped, it closes after
/// everything is answered.
///
/// The call itself queues a request, which is executed even if nobody awaits its answer. All
/// requests queued by the time the connection's task runs are sent in one write. Ranges must lie
/// within the export, in multiples of its smallest block. Reads and writes are limited to
/// `info.max_block` bytes, other requests to 4 GiB less 64 KiB.
#[derive(Clone, Debug)]
pub struct Client {
    handle: Arc<Handle>,
}

#[derive(Debug)]
struct Handle {
    shared: Arc<Shared>,
    remote: Remote,
}

/// State shared by callers and the connection's task.
#[derive(Debug)]
struct Shared {
    calls: TaskQueue<Call>,
    /// Why the connection ended.
    lost: OnceLock<ClientError>,
    ended: watch::Sender<bool>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.calls.stop(Stop::Drain);
    }
}

impl Client {
    /// Connects to an export, and runs the connection on the current runtime.
    ///
    /// # Errors
    /// The server cannot be reached, is no NBD server, or refuses.
    pub async fn connect(uri: &Uri, options: &ClientOptions) -> Result<Client, ClientError> {
        let (link, remote) = open(uri, options).await?;
        Ok(Client::start(link, remote))
    }

    /// Opens an export over any transport connected to a server, without TLS.
    ///
    /// # Errors
    /// The other side is no NBD server, or refuses.
    pub async fn over(
        transport: impl Transport,
        export: &str,
        options: &ClientOptions,
    ) -> Result<Client, ClientError> {
        let opened = within(options.timeout, async {
            let handshake = Handshake::greet(Link::new(Box::new(transport))).await?;
            handshake.go(export, &options.contexts).await
        });
        let (link, remote) = opened.await?;
        Ok(Client::start(link, remote))
    }

    /// Names and descriptions of a server's exports; the URI's own export does not matter.
    ///
    /// # Errors
    /// The server cannot be reached, or does not list its exports.
    pub async fn list(
        uri: &Uri,
        options: &ClientOptions,
    ) -> Result<Vec<(String, String)>, ClientError> {
        within(options.timeout, async { greet(uri, options).await?.list().await }).await
    }

    /// What a server tells about an export, without opening it.
    ///
    /// # Errors
    /// The server cannot be reached, refuses, or does not support this.
    pub async fn describe(uri: &Uri, options: &ClientOptions) -> Result<Remote, ClientError> {
        let told =
            async { greet(uri, options).await?.describe(&uri.export, &options.contexts).await };
        within(options.timeout, told).await
    }

    fn start(link: Link, remote: Remote) -> Client {
        let shared = Arc::new(Shared {
            calls: TaskQueue::new(),
            lost: OnceLock::new(),
            ended: watch::Sender::new(false),
        });
        tokio::spawn(Connection::new(link, &remote, Arc::clone(&shared)).run());
        Client { handle: Arc::new(Handle { shared, remote }) }
    }

    /// Whether the connection is lost: every further request fails.
    pub fn is_lost(&self) -> bool {
        self.handle.shared.lost.get().is_some() || *self.handle.shared.ended.borrow()
    }

    /// What the server told about the export.
    pub fn remote(&self) -> &Remote {
        &self.handle.remote
    }

    /// Reads from `offset` on into the buffers, one after another.
    pub fn read(
        &self,
        offset: u64,
        mut into: Vec<Buffer>,
    ) -> impl Future<Output = ReadDone> + Send + use<> {
        let length = into.iter_mut().map(|buffer| (**buffer).as_mut().len() as u64).sum();
        let (sender, answer) = oneshot::channel();
        let waiter = Waiter::Read { into, sender };
        self.queue(Call { command: CMD_READ, flags: 0, offset, length, data: Vec::new(), waiter });
        async { answer.await.expect("the task answers each call") }
    }

    /// Writes the pieces, one after another, from `offset` on. With `fua` the data are durable
    /// before the answer.
    pub fn write(
        &self,
        offset: u64,
        data: Vec<Bytes>,
        fua: bool,
    ) -> impl Future<Output = Result<(), ClientError>> + Send + use<> {
        let length = data.iter().map(|piece| piece.len() as u64).sum();
        self.simple(CMD_WRITE, fua_flag(fua), offset, length, data)
    }

    /// Makes everything durable that was answered before this call.
    pub fn flush(&self) -> impl Future<Output = Result<(), ClientError>> + Send + use<> {
        self.simple(CMD_FLUSH, 0, 0, 0, Vec::new())
    }

    /// Tells the server that the content of a range is no longer needed (TRIM).
    pub fn trim(
        &self,
        offset: u64,
        length: u64,
        fua: bool,
    ) -> impl Future<Output = Result<(), ClientError>> + Send + use<> {
        self.simple(CMD_TRIM, fua_flag(fua), offset, length, Vec::new())
    }

    /// Makes a range read as zeroes. `flags`: any of `CMD_FLAG_NO_HOLE`, `CMD_FLAG_FAST_ZERO`.
    pub fn write_zeroes(
        &self,
        offset: u64,
        length: u64,
        flags: u16,
        fua: bool,
    ) -> impl Future<Output = Result<(), ClientError>> + Send + use<> {
        self.simple(CMD_WRITE_ZEROES, flags | fua_flag(fua), offset, length, Vec::new())
    }

    /// Tells the server that a range will be read soon (CACHE).
    pub fn cache(
        &self,
        offset: u64,
        length: u64,
    ) -> impl Future<Output = Result<(), ClientError>> + Send + use<> {
        self.simple(CMD_CACHE, 0, offset, length, Vec::new())
    }

    /// The status of a range: for each context its number (see [`Remote::contexts`]) and extents
    /// from `offset` on, which may end before or behind the range's end.
    pub fn block_status(
        &self,
        offset: u64,
        length: u64,
        one_extent: bool,
    ) -> impl Future<Output = Result<Vec<(u32, Vec<Extent>)>, ClientError>> + Send + use<> {
        let (sender, answer) = oneshot::channel();
        let (command, flags) = (CMD_BLOCK_STATUS, if one_extent { CMD_FLAG_REQ_ONE } else { 0 });
        let waiter = Waiter::Extents { found: Vec::new(), sender };
        self.queue(Call { command, flags, offset, length, data: Vec::new(), waiter });
        async { answer.await.expect("the task answers each call") }
    }

    /// Waits until everything queued is answered, disconnects and closes. Later requests of other
    /// clones fail.
    pub async fn close(self) {
        self.handle.shared.calls.stop(Stop::Drain);
        let mut ended = self.handle.shared.ended.subscribe();
        // An error means that the task has ended, which is what this waits for.
        let _ = ended.wait_for(|ended| *ended).await;
    }

    fn simple(
        &self,
        command: u16,
        flags: u16,
        offset: u64,
        length: u64,
        data: Vec<Bytes>,
    ) -> impl Future<Output = Result<(), ClientError>> + Send + use<> {
        let (sender, answer) = oneshot::channel();
        self.queue(Call { command, flags, offset, length, data, waiter: Waiter::Done(sender) });
        async { answer.await.expect("the task answers each call") }
    }

    fn queue(&self, call: Call) {
        if let Err(text) = self.check(&call) {
            call.waiter.fail(ClientError::Server { failure: Failure::Invalid, text });
        } else if let Err(call) = self.handle.shared.calls.push(call) {
            call.waiter.fail(self.handle.shared.reason());
        }
    }

    /// Refuses requests that the server does not offer.
    fn check(&self, call: &Call) -> Result<(), String> {
        let remote = self.remote();
        let info = CommandInfo::of(call.command).ok_or("an unknown command")?;
        if info.answer == AnswerKind::Extents && remote.contexts.is_empty() {
            return Err("no metadata context was agreed on".to_owned());
        }
        if !remote.offers(info.needs(call.flags)) {
            return Err("the server does not offer that".to_owned());
        }
        let most = match info.length {
            Length::None => return Ok(()),
            Length::Payload => u64::from(remote.info.max_block),
            Length::Effect => MAX_EFFECT,
        };
        let (offset, length, size) = (call.offset, call.length, remote.info.size);
        if length == 0 || length > most {
            return Err(format!("{length} bytes; 1 to {most} go in one request"));
        }
        if offset.checked_add(length).is_none_or(|end| end > size) {
            return Err(format!("{length} bytes at {offset} pass the end of {size} bytes"));
        }
        if (offset | length) % u64::from(remote.info.min_block) != 0 {
            let block = remote.info.min_block;
            return Err(format!("{length} bytes at {offset}: not in whole blocks of {block}"));
        }
        Ok(())
    }
}

impl Shared {
    fn reason(&self) -> ClientError {
        self.lost.get().cloned().unwrap_or_else(|| ClientError::Lost("it was closed".to_owned()))
    }
}

fn fua_flag(fua: bool) -> u16 {
    if fua { CMD_FLAG_FUA } else { 0 }
}

/// Limits the time of a handshake.
async fn within<T>(
    limit: Duration,
    work: impl Future<Output = Result<T, ClientError>>,
) -> Result<T, ClientError> {
    let late = |_| ClientError::Lost(format!("no answer within {} s", limit.as_secs_f32()));
    timeout(limit, work).await.map_err(late)?
}

/// Opens an export with the contexts in the options.
async fn open(uri: &Uri, options: &ClientOptions) -> Result<(Link, Remote), ClientError> {
    let opened = within(options.timeout, async {
        greet(uri, options).await?.go(&uri.export, &options.contexts).await
    });
    opened.await
}

/// Connects, and starts TLS if the URI asks for it.
async fn greet(uri: &Uri, options: &ClientOptions) -> Result<Handshake, ClientError> {
    let unreachable =
        |error: std::io::Error| ClientError::Lost(format!("cannot connect to {uri}: {error}"));
    let (transport, host): (Box<dyn Transport>, &str) = match (&uri.endpoint, &options.connector) {
        (Endpoint::Tcp(host, _), Some(connector)) => {
            (connector.connect(&uri.endpoint).await.map_err(unreachable)?, host)
        }
        (Endpoint::Unix(_), Some(connector)) => {
            (connector.connect(&uri.endpoint).await.map_err(unreachable)?, "localhost")
        }
        (Endpoint::Tcp(host, port), None) => {
            let stream = TcpStream::connect((host.as_str(), *port)).await.map_err(unreachable)?;
            prepare_tcp_client(&stream).map_err(unreachable)?;
            (Box::new(stream), host)
        }
        (Endpoint::Unix(path), None) => {
            (Box::new(UnixStream::connect(path).await.map_err(unreachable)?), "localhost")
        }
    };
    let handshake = Handshake::greet(Link::new(transport)).await?;
    if !uri.tls {
        return Ok(handshake);
    }
    let Some(config) = options.tls.clone() else {
        return Err(ClientError::Refused(format!("{uri}: say which certificates to trust")));
    };
    handshake.start_tls(config, options.tls_name.as_deref().unwrap_or(host)).await
}
