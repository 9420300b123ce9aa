//! A connection that has opened an export, for a program that writes the requests and reads the
//! replies itself: a load generator, for example. Others use [`Client`](super::Client).

use bytes::BytesMut;

use super::{ClientError, ClientOptions, Remote, greet, open, within};
use crate::link::{Link, Transport};
use undercroft_text::Uri;

/// A connection after its handshake. Its requests and replies are the caller's: see
/// [`wire`](crate::wire).
pub struct RawConnection {
    /// The byte stream in both directions.
    pub transport: Box<dyn Transport>,
    /// Bytes that were read behind the end of the handshake: the first of the replies.
    pub read_ahead: BytesMut,
    /// What the server said of the export.
    pub remote: Remote,
}

impl RawConnection {
    /// Opens an export with the metadata contexts of the options; replies are structured.
    ///
    /// # Errors
    /// The server cannot be reached, or refuses the export.
    pub async fn open(uri: &Uri, options: &ClientOptions) -> Result<RawConnection, ClientError> {
        Ok(RawConnection::new(open(uri, options).await?))
    }

    /// Opens an export without metadata contexts; replies are simple ones.
    ///
    /// # Errors
    /// The server cannot be reached, or refuses the export.
    pub async fn open_simply(
        uri: &Uri,
        options: &ClientOptions,
    ) -> Result<RawConnection, ClientError> {
        let opened = within(options.timeout, async {
            greet(uri, options).await?.go_simply(&uri.export).await
        });
        Ok(RawConnection::new(opened.await?))
    }

    fn new((link, remote): (Link, Remote)) -> RawConnection {
        RawConnection { transport: link.transport, read_ahead: link.input, remote }
    }
}
