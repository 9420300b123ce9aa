//! A connection that has opened an export, for programs that write requests and read replies
//! themselves, such as a load generator. Other programs use [`Client`](super::Client).

use bytes::BytesMut;

use super::{ClientError, ClientOptions, Remote, greet, open, within};
use crate::link::{Link, Transport};
use undercroft_text::Uri;

/// A connection after its handshake. The caller encodes requests and decodes replies; see
/// [`wire`](crate::wire).
pub struct RawConnection {
    /// The byte stream in both directions.
    pub transport: Box<dyn Transport>,
    /// Bytes already read behind the end of the handshake: the beginning of the replies.
    pub read_ahead: BytesMut,
    /// What the server told about the export.
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

    /// Opens an export without metadata contexts; replies are simple.
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
