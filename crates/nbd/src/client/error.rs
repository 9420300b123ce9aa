//! The errors of a client.

use std::io;

use crate::link::Ended;
use crate::service::Failure;
use crate::wire::Malformed;

/// Why a request or a connection failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// The server answered with this error and text, or the client knows that it would.
    #[error("{failure}{}{text}", if text.is_empty() { "" } else { ": " })]
    Server {
        /// The error.
        failure: Failure,
        /// A text for people; may be empty.
        text: String,
    },
    /// The caller asks for what lies outside the volume; nothing was sent.
    #[error("{0}")]
    Argument(String),
    /// The server refuses the export, or something needed to open it.
    #[error("the server refuses: {0}")]
    Refused(String),
    /// The server must first end requests of an earlier connection of this client: try again.
    #[error("the server refuses: {0}")]
    Busy(String),
    /// The server cannot open the export now: try again.
    #[error("the server refuses: {0}")]
    Away(String),
    /// The server violates the protocol.
    #[error("the server breaks the protocol: {0}")]
    Malformed(#[from] Malformed),
    /// There is no connection, or it was lost.
    #[error("the connection is lost: {0}")]
    Lost(String),
    /// Result of a FLUSH: a connection was lost with changes that were answered and not flushed.
    /// The changes may be lost.
    #[error(
        "the connection was lost with changes that were not flushed; the server may have lost \
         them too"
    )]
    Unflushed,
}

impl ClientError {
    /// Whether the server is away, or about to go: the same request may succeed on a later
    /// connection.
    pub fn is_away(&self) -> bool {
        use ClientError::{Away, Busy, Lost, Server};
        let is_shutting_down = matches!(self, Server { failure: Failure::ShuttingDown, .. });
        is_shutting_down || matches!(self, Lost(_) | Busy(_) | Away(_))
    }
}

impl From<io::Error> for ClientError {
    fn from(error: io::Error) -> ClientError {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => ClientError::Lost("the server hung up".to_owned()),
            _ => ClientError::Lost(error.to_string()),
        }
    }
}

impl From<Ended> for ClientError {
    fn from(ended: Ended) -> ClientError {
        match ended {
            Ended::Io(error) => error.into(),
            Ended::Malformed(error) => error.into(),
            Ended::Refused(text) => ClientError::Refused(text),
        }
    }
}

impl From<ClientError> for io::Error {
    fn from(error: ClientError) -> io::Error {
        let kind = match &error {
            ClientError::Server { failure, .. } => failure.kind(),
            ClientError::Argument(_) => io::ErrorKind::InvalidInput,
            ClientError::Refused(_) | ClientError::Busy(_) | ClientError::Away(_) => {
                io::ErrorKind::ConnectionRefused
            }
            ClientError::Malformed(_) => io::ErrorKind::InvalidData,
            ClientError::Lost(_) => io::ErrorKind::NotConnected,
            ClientError::Unflushed => io::ErrorKind::ConnectionReset,
        };
        io::Error::new(kind, error)
    }
}
