//! The sockets of a server, for NBD and for HTTP, and what to do about those that cannot be had.

use std::io::{self, ErrorKind};

use tokio::net::TcpListener;
use undercroft_nbd::{Listener, UnixSocket};

use crate::config::{Address, TlsConfig, TlsMode};
use crate::http::bounds::Socket;
use crate::process::error::ServeError;

/// Listens for NBD; the text is the beginning of URIs, with the actual port.
pub(crate) async fn listen(
    address: &Address,
    tls: &TlsConfig,
) -> Result<(Listener, String), ServeError> {
    let scheme = if tls.mode == TlsMode::Required { "nbds" } else { "nbd" };
    let failed = |error| unusable("--listen", address, &error);
    match address {
        Address::Tcp(host) => {
            let listener = Listener::tcp(host.as_str()).await.map_err(failed)?;
            let local = listener.tcp_address().map_or_else(|| host.clone(), |a| a.to_string());
            Ok((listener, format!("{scheme}://{local}/")))
        }
        Address::Unix(path) => {
            let listener = Listener::unix(path).map_err(failed)?;
            Ok((listener, format!("{scheme}+unix:///?socket={}", path.display())))
        }
    }
}

/// Listens for HTTP; the address has the actual port.
pub(crate) async fn listen_http(address: &Address) -> Result<(Socket, Address), ServeError> {
    let failed = |error| unusable("--http", address, &error);
    match address {
        Address::Tcp(host) => {
            let listener = TcpListener::bind(host.as_str()).await.map_err(failed)?;
            let local = listener.local_addr().map_err(failed)?;
            Ok((Socket::Tcp(listener), Address::Tcp(local.to_string())))
        }
        Address::Unix(path) => {
            let socket = UnixSocket::bind(path).map_err(failed)?;
            Ok((Socket::Unix(socket), address.clone()))
        }
    }
}

/// An error about an address, with advice.
fn unusable(flag: &str, address: &Address, error: &io::Error) -> ServeError {
    let advice = match (address, error.kind()) {
        (Address::Tcp(_), ErrorKind::AddrInUse) => {
            ": another program listens there (`ss -ltnp` shows which): end it, or choose another \
             address"
        }
        (Address::Tcp(_), ErrorKind::AddrNotAvailable) => {
            ": this machine does not have that address"
        }
        (Address::Tcp(_), ErrorKind::PermissionDenied) => ": ports below 1024 are for root",
        // The resolver's errors have no kind of their own.
        (Address::Tcp(_), _) if error.to_string().contains("lookup address") => {
            ": no name server knows the host: check its name, or write its address, as \
             127.0.0.1:10809 or [::1]:10809"
        }
        (Address::Unix(_), ErrorKind::NotFound) => ": the folder does not exist",
        (Address::Unix(_), ErrorKind::PermissionDenied) => {
            ": this user may not make files in the folder"
        }
        (Address::Unix(_), ErrorKind::InvalidInput) => {
            ": the path of a unix socket has at most 107 bytes"
        }
        _ => "",
    };
    ServeError::Work(format!("{flag} {address}: {error}{advice}"))
}
