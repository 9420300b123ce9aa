//! Listening sockets.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream, ToSocketAddrs, UnixListener, UnixStream};

use super::Server;
use super::busy_poll::Watched;
use crate::link::{Transport, prepare_tcp};
use crate::service::{Credentials, Peer};
use crate::task_queue::Stop;

/// Pause after accepting a connection failed, for example for lack of file descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// A socket that clients connect to.
#[derive(Debug)]
pub struct Listener {
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Tcp(TcpListener),
    Unix(UnixSocket),
}

/// A listening unix socket, whose file is removed with it.
#[derive(Debug)]
pub struct UnixSocket {
    listener: UnixListener,
    file: SocketFile,
}

/// The file of a unix socket; removed with the listener if it is still the same file.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if let Ok(found) = fs::symlink_metadata(&self.path) {
            if (found.dev(), found.ino()) == (self.device, self.inode) {
                let _ = fs::remove_file(&self.path);
            }
        }
    }
}

impl Listener {
    /// A TCP socket, IPv4 or IPv6: `("127.0.0.1", 10809)`, `"[::1]:10809"`. Port 0 selects a free
    /// one.
    ///
    /// # Errors
    /// The address is not of this machine, or already in use.
    pub async fn tcp(address: impl ToSocketAddrs) -> io::Result<Listener> {
        Ok(Listener { kind: Kind::Tcp(TcpListener::bind(address).await?) })
    }

    /// A unix socket.
    ///
    /// # Errors
    /// As for [`UnixSocket::bind`].
    pub fn unix(path: impl AsRef<Path>) -> io::Result<Listener> {
        Ok(Listener { kind: Kind::Unix(UnixSocket::bind(path)?) })
    }

    /// The address of a TCP listener, with the actual port.
    pub fn tcp_address(&self) -> Option<SocketAddr> {
        match &self.kind {
            Kind::Tcp(listener) => listener.local_addr().ok(),
            Kind::Unix(_) => None,
        }
    }

    async fn accept(&self) -> io::Result<(Accepted, Peer)> {
        match &self.kind {
            Kind::Tcp(listener) => {
                let (stream, address) = listener.accept().await?;
                prepare_tcp(&stream)?;
                let ip = Some(address.ip().to_canonical());
                let peer = Peer { address: address.to_string(), ip, ..Peer::default() };
                Ok((Accepted::Tcp(stream.into_std()?), peer))
            }
            Kind::Unix(socket) => {
                let (stream, peer) = socket.accept().await?;
                Ok((Accepted::Unix(stream.into_std()?), peer))
            }
        }
    }
}

impl UnixSocket {
    /// Listens at a path. The socket file of a server that no longer runs is replaced.
    ///
    /// # Errors
    /// A server listens there, the file is not a socket, or the folder does not permit it.
    pub fn bind(path: impl AsRef<Path>) -> io::Result<UnixSocket> {
        let path = path.as_ref();
        let listener = match UnixListener::bind(path) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                remove_stale(path)?;
                UnixListener::bind(path)?
            }
            result => result?,
        };
        let made = fs::symlink_metadata(path)?;
        let path = std::path::absolute(path)?;
        let file = SocketFile { path, device: made.dev(), inode: made.ino() };
        Ok(UnixSocket { listener, file })
    }

    /// The path of its file.
    pub fn path(&self) -> &Path {
        &self.file.path
    }

    /// Waits for the next client.
    ///
    /// # Errors
    /// As for accepting on any socket, for example too few file descriptors.
    pub async fn accept(&self) -> io::Result<(UnixStream, Peer)> {
        let (stream, _) = self.listener.accept().await?;
        let found = stream.peer_cred().ok();
        let pid = found.and_then(|found| found.pid()).map(|pid| format!(" (pid {pid})"));
        let address = format!("unix:{}{}", self.file.path.display(), pid.unwrap_or_default());
        let credentials = found.map(|found| Credentials { user: found.uid(), group: found.gid() });
        Ok((stream, Peer { address, credentials, ..Peer::default() }))
    }
}

/// An accepted connection, before it is given to its thread.
enum Accepted {
    Tcp(std::net::TcpStream),
    Unix(std::os::unix::net::UnixStream),
}

impl Accepted {
    /// Makes this thread poll the socket before it sleeps; not if file descriptors are short.
    fn watch(&self) -> Option<Watched> {
        let again = match self {
            Accepted::Tcp(stream) => stream.as_fd().try_clone_to_owned(),
            Accepted::Unix(stream) => stream.as_fd().try_clone_to_owned(),
        };
        again.ok().map(Watched::new)
    }

    /// Registers the socket with the reactor of this thread.
    fn attach(self) -> io::Result<Box<dyn Transport>> {
        Ok(match self {
            Accepted::Tcp(stream) => Box::new(TcpStream::from_std(stream)?),
            Accepted::Unix(stream) => Box::new(UnixStream::from_std(stream)?),
        })
    }
}

/// Removes the socket file of a server that no longer runs.
fn remove_stale(path: &Path) -> io::Result<()> {
    let refuse = |what: &str| {
        let text = format!("{}: {what}", path.display());
        Err(io::Error::new(io::ErrorKind::AddrInUse, text))
    };
    if !fs::symlink_metadata(path)?.file_type().is_socket() {
        return refuse("there is a file of this name, and it is no socket");
    }
    match std::os::unix::net::UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path),
        _ => refuse("another server listens here"),
    }
}

/// Whether accepting failed because of the client, and not for lack of resources.
fn is_of_the_client(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, NotConnected};
    matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | NotConnected)
}

impl Server {
    /// Accepts clients until the server shuts down; each is served on one of the server's threads.
    pub async fn listen(&self, listener: Listener) {
        let mut stop = self.inner.stop.subscribe();
        let mut is_short = false;
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                _ = stop.wait_for(|stop| *stop != Stop::No) => return,
            };
            match accepted {
                Ok((accepted, peer)) => {
                    is_short = false;
                    self.begin(accepted, peer);
                }
                // The client has disconnected; the next one may be waiting.
                Err(error) if is_of_the_client(&error) => {}
                Err(error) => {
                    // Logged once, not for every attempt.
                    if !std::mem::replace(&mut is_short, true) {
                        tracing::warn!("cannot accept connections: {error}");
                    }
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    fn begin(&self, accepted: Accepted, peer: Peer) {
        let server = self.clone();
        self.inner.threads.run(async move {
            let address = peer.address.clone();
            let _watched = accepted.watch();
            let ended = match accepted.attach() {
                Ok(transport) => server.attend(transport, peer).await,
                Err(error) => Err(error.into()),
            };
            if let Err(error) = ended {
                tracing::info!(peer = address, "connection ended: {error}");
            }
        });
    }
}
