//! What can go wrong for a client.

use std::io;

use crate::link::Ended;
use crate::service::Failure;
use crate::wire::Malformed;

/// Why a request failed, or a connection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// The server answered with this error (or would have, if it had been asked), and this text.
    #[error("{failure}{}{text}", if text.is_empty() { "" } else { ": " })]
    Server {
        /// The error.
        failure: Failure,
        /// For people; may be empty.
        text: String,
    },
    /// The server refuses the export, or something that it cannot be opened without.
    #[error("the server refuses: {0}")]
    Refused(String),
    /// The server has requests of an earlier connection of the same client to end first: to be
    /// tried again.
    #[error("the server refuses: {0}")]
    Busy(String),
    /// The server breaks the protocol.
    #[error("the server breaks the protocol: {0}")]
    Malformed(#[from] Malformed),
    /// There is no connection, or none any more.
    #[error("the connection is lost: {0}")]
    Lost(String),
    /// Of a FLUSH: a connection was lost with changes that were answered and not flushed. They may
    /// be lost, or not.
    #[error(
        "the connection was lost with changes that were not flushed; the server may have lost \
         them too"
    )]
    Unflushed,
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
            ClientError::Refused(_) | ClientError::Busy(_) => io::ErrorKind::ConnectionRefused,
            ClientError::Malformed(_) => io::ErrorKind::InvalidData,
            ClientError::Lost(_) => io::ErrorKind::NotConnected,
            ClientError::Unflushed => io::ErrorKind::ConnectionReset,
        };
        io::Error::new(kind, error)
    }
}
