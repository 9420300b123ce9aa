//! A byte stream with the bytes already read from it, for the handshakes.

use std::io;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::wire::Malformed;

/// A byte stream in both directions: a socket, or TLS over one.
pub trait Transport: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Transport for T {}

/// Why a connection ended early.
#[derive(Debug, thiserror::Error)]
pub enum Ended {
    /// An error of the socket, or of TLS over it.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The other side violated the protocol.
    #[error("{0}")]
    Malformed(#[from] Malformed),
    /// The connection was refused.
    #[error("{0}")]
    Refused(String),
}

/// A transport, and the bytes already read from it.
pub(crate) struct Link {
    pub(crate) transport: Box<dyn Transport>,
    pub(crate) input: BytesMut,
}

/// Bytes reserved for one read of the handshake.
const READ: usize = 4096;

impl Link {
    pub(crate) fn new(transport: Box<dyn Transport>) -> Link {
        Link { transport, input: BytesMut::new() }
    }

    /// Reads until `count` bytes are buffered.
    async fn fill(&mut self, count: usize) -> io::Result<()> {
        while self.input.len() < count {
            self.input.reserve(READ);
            if self.transport.read_buf(&mut self.input).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(())
    }

    /// The next `N` bytes.
    pub(crate) async fn array<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        self.fill(N).await?;
        let mut array = [0; N];
        self.input.copy_to_slice(&mut array);
        Ok(array)
    }

    /// The next `count` bytes; memory grows only as they come.
    pub(crate) async fn bytes(&mut self, count: usize) -> io::Result<BytesMut> {
        self.fill(count).await?;
        Ok(self.input.split_to(count))
    }

    /// Discards the next `count` bytes, however many.
    pub(crate) async fn discard(&mut self, mut count: u64) -> io::Result<()> {
        while count > 0 {
            self.fill(1).await?;
            let now = self.input.len().min(usize::try_from(count).unwrap_or(usize::MAX));
            self.input.advance(now);
            count -= now as u64;
        }
        Ok(())
    }

    /// Sends all bytes.
    pub(crate) async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.transport.write_all(bytes).await?;
        self.transport.flush().await
    }
}

/// Idle time after which the system checks whether the other machine still answers.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// Interval of these checks, of which there are three.
const ASK_AGAIN: Duration = Duration::from_secs(10);

/// How long sent data may stay unacknowledged. The system's default is a quarter of an hour, and
/// requests would wait that long.
const UNANSWERED: Duration = Duration::from_secs(30);

/// Sends small packets at once, and detects vanished machines.
pub(crate) fn prepare_tcp(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(ASK_AGAIN);
    SockRef::from(stream).set_tcp_keepalive(&keepalive.with_retries(3))
}

/// Prepares a client's socket. Like [`prepare_tcp`], but with a limit for unacknowledged data.
/// Servers must not use this: it would end the connection of a suspended client with unsent
/// answers.
pub(crate) fn prepare_tcp_client(stream: &TcpStream) -> io::Result<()> {
    prepare_tcp(stream)?;
    SockRef::from(stream).set_tcp_user_timeout(Some(UNANSWERED))
}
