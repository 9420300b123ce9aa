//! A byte stream with what was read ahead of it, as the handshakes use it.

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
    /// The socket, or TLS over it.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The other side broke the protocol.
    #[error("{0}")]
    Malformed(#[from] Malformed),
    /// It was turned away.
    #[error("{0}")]
    Refused(String),
}

/// A transport, and the bytes already read from it.
pub(crate) struct Link {
    pub(crate) transport: Box<dyn Transport>,
    pub(crate) input: BytesMut,
}

/// Spare room for one read of the handshake.
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

    /// Drops the next `count` bytes, whatever their number.
    pub(crate) async fn discard(&mut self, mut count: u64) -> io::Result<()> {
        while count > 0 {
            self.fill(1).await?;
            let now = self.input.len().min(usize::try_from(count).unwrap_or(usize::MAX));
            self.input.advance(now);
            count -= now as u64;
        }
        Ok(())
    }

    /// Sends all.
    pub(crate) async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.transport.write_all(bytes).await?;
        self.transport.flush().await
    }
}

/// Silence after which the system asks whether the other machine is still there.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// How often it asks then, three times in all.
const ASK_AGAIN: Duration = Duration::from_secs(10);

/// How long what a client sends may go without an acknowledgement. Left to itself the system would
/// try for a quarter of an hour, and requests would wait for so long.
const UNANSWERED: Duration = Duration::from_secs(30);

/// Small packets at once; a machine that vanished is noticed.
pub(crate) fn prepare_tcp(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(ASK_AGAIN);
    SockRef::from(stream).set_tcp_keepalive(&keepalive.with_retries(3))
}

/// Prepares the side of a client, as [`prepare_tcp`] does. Not for that of a server: there it would
/// end the connection of a client that is suspended with answers on their way.
pub(crate) fn prepare_tcp_client(stream: &TcpStream) -> io::Result<()> {
    prepare_tcp(stream)?;
    SockRef::from(stream).set_tcp_user_timeout(Some(UNANSWERED))
}
