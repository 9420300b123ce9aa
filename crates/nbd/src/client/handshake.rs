//! The client's half of the handshake. Number and size of the server's answers are limited.

use std::io;
use std::sync::Arc;

use bytes::BytesMut;
use rustls::pki_types::ServerName;

use super::{ClientError, Remote};
use crate::command::Flags;
use crate::generation;
use crate::link::Link;
use crate::service::{AWAY, ExportInfo};
use crate::wire::*;

/// Most bytes of an answer to an option.
const MAX_REPLY: u32 = 16 << 10;
/// Most answers to one option: the longest list of exports.
const MAX_REPLIES: usize = 100_000;
/// Most metadata contexts.
const MAX_CONTEXTS: usize = 256;
/// Preferred block size if the server tells none.
const PREFERRED_BLOCK: u32 = 4096;

/// A connection between the greeting and transmission.
pub(super) struct Handshake {
    link: Link,
    no_zeroes: bool,
    structured: bool,
    encrypted: bool,
}

/// The last answer of a server to an option.
enum Ending {
    Acknowledged,
    Failed(u32, String),
}

impl Ending {
    fn accept(self) -> Result<(), ClientError> {
        match self {
            Ending::Acknowledged => Ok(()),
            Ending::Failed(error, text) => Err(refusal(error, text)),
        }
    }
}

fn refusal(error: u32, text: String) -> ClientError {
    if error == REP_ERR_POLICY && text.starts_with(generation::BUSY) {
        return ClientError::Busy(text);
    }
    if error == REP_ERR_POLICY && text.starts_with(AWAY) {
        return ClientError::Away(text);
    }
    if error == REP_ERR_SHUTDOWN {
        return ClientError::Lost("the server is going away".to_owned());
    }
    let what = match error {
        REP_ERR_UNSUP => "it does not know the option",
        REP_ERR_POLICY => "it does not allow that",
        REP_ERR_INVALID => "it takes the option for malformed",
        REP_ERR_TLS_REQD => "it wants TLS (nbds)",
        REP_ERR_UNKNOWN => "it has no such export",
        REP_ERR_BLOCK_SIZE_REQD => "it wants its block sizes kept",
        REP_ERR_TOO_BIG => "it finds the option too long",
        _ => "for a reason that is not known here",
    };
    let separator = if text.is_empty() { "" } else { ": " };
    ClientError::Refused(format!("{what}{separator}{text}"))
}

/// An error of the connection. One of TLS is a refusal, because trying again does not help.
fn of_tls(error: io::Error) -> ClientError {
    if is_of_tls(&error) { ClientError::Refused(format!("TLS: {error}")) } else { error.into() }
}

fn is_of_tls(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::InvalidData
}

impl Handshake {
    pub(super) async fn greet(mut link: Link) -> Result<Handshake, ClientError> {
        let greeting = Greeting::parse(&link.array().await?)?;
        if greeting.flags & FLAG_FIXED_NEWSTYLE == 0 {
            return Err(Malformed::new("it does not speak fixed newstyle").into());
        }
        let flags = greeting.flags & (FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES);
        link.send(&u32::from(flags).to_be_bytes()).await?;
        let no_zeroes = flags & FLAG_NO_ZEROES != 0;
        Ok(Handshake { link, no_zeroes, structured: false, encrypted: false })
    }

    /// Sends an option, and passes every answer except the last to `each`.
    async fn ask(
        &mut self,
        option: u32,
        data: &[u8],
        mut each: impl FnMut(u32, BytesMut) -> Result<(), Malformed>,
    ) -> Result<Ending, ClientError> {
        let mut out = BytesMut::new();
        put_option(&mut out, option, data);
        if let Err(error) = self.link.send(&out).await {
            // The server may have said why it hung up.
            let heard = self.link.array::<1>().await;
            return Err(of_tls(heard.err().filter(is_of_tls).unwrap_or(error)));
        }
        for _ in 0..MAX_REPLIES {
            let header = OptionReplyHeader::parse(&self.link.array().await.map_err(of_tls)?)?;
            if header.option != option {
                return Err(Malformed::new("an answer to an option not sent").into());
            }
            if header.length > MAX_REPLY {
                let length = header.length;
                return Err(Malformed::new(format!("an answer of {length} bytes")).into());
            }
            let data = self.link.bytes(header.length as usize).await?;
            match header.reply {
                REP_ACK => return Ok(Ending::Acknowledged),
                error if error & REP_IS_ERROR != 0 => {
                    return Ok(Ending::Failed(error, String::from_utf8_lossy(&data).into_owned()));
                }
                reply => each(reply, data)?,
            }
        }
        Err(Malformed::new("answers to an option without end").into())
    }

    pub(super) async fn start_tls(
        mut self,
        config: Arc<rustls::ClientConfig>,
        name: &str,
    ) -> Result<Handshake, ClientError> {
        let name = ServerName::try_from(name.to_owned())
            .map_err(|_| ClientError::Refused(format!("'{name}' cannot be in a certificate")))?;
        self.ask(OPT_STARTTLS, &[], |_, _| Ok(())).await?.accept()?;
        // Data received before the keys were agreed on could come from anybody.
        if !self.link.input.is_empty() {
            return Err(Malformed::new("it went on in plain text after STARTTLS").into());
        }
        let connector = tokio_rustls::TlsConnector::from(config);
        let stream = connector.connect(name, self.link.transport).await.map_err(of_tls)?;
        let link = Link::new(Box::new(stream));
        Ok(Handshake { link, encrypted: true, ..self })
    }

    /// The names and descriptions of the exports.
    pub(super) async fn list(mut self) -> Result<Vec<(String, String)>, ClientError> {
        let mut exports = Vec::new();
        let each = |reply, data: BytesMut| {
            if reply == REP_SERVER {
                let mut fields = Fields::new(&data);
                exports.push((fields.string()?, text(fields.rest())?));
            }
            Ok(())
        };
        self.ask(OPT_LIST, &[], each).await?.accept()?;
        self.abort().await;
        Ok(exports)
    }

    /// What the server tells about an export, without opening it.
    pub(super) async fn describe(
        mut self,
        export: &str,
        contexts: &[String],
    ) -> Result<Remote, ClientError> {
        let contexts = self.prepare(export, contexts).await?;
        let mut told = Told::default();
        self.ask_info(OPT_INFO, export, &mut told).await?.accept()?;
        let remote = told.into_remote(export, &self, contexts)?;
        self.abort().await;
        Ok(remote)
    }

    /// Opens an export.
    pub(super) async fn go(
        mut self,
        export: &str,
        contexts: &[String],
    ) -> Result<(Link, Remote), ClientError> {
        let contexts = self.prepare(export, contexts).await?;
        self.begin(export, contexts).await
    }

    /// Opens an export with simple replies.
    pub(super) async fn go_simply(self, export: &str) -> Result<(Link, Remote), ClientError> {
        check_length(export)?;
        self.begin(export, Vec::new()).await
    }

    async fn begin(
        mut self,
        export: &str,
        contexts: Vec<(u32, String)>,
    ) -> Result<(Link, Remote), ClientError> {
        let mut told = Told::default();
        match self.ask_info(OPT_GO, export, &mut told).await? {
            Ending::Acknowledged => {}
            Ending::Failed(REP_ERR_UNSUP, _) => told = self.export_name(export).await?,
            Ending::Failed(error, text) => return Err(refusal(error, text)),
        }
        let remote = told.into_remote(export, &self, contexts)?;
        Ok((self.link, remote))
    }

    /// Negotiates structured replies and contexts, as far as the server supports them.
    async fn prepare(
        &mut self,
        export: &str,
        contexts: &[String],
    ) -> Result<Vec<(u32, String)>, ClientError> {
        check_length(export)?;
        for context in contexts {
            check_length(context)?;
        }
        let ending = self.ask(OPT_STRUCTURED_REPLY, &[], |_, _| Ok(())).await?;
        if let Ending::Failed(REP_ERR_SHUTDOWN, text) = ending {
            return Err(refusal(REP_ERR_SHUTDOWN, text));
        }
        self.structured = matches!(ending, Ending::Acknowledged);
        if !self.structured || contexts.is_empty() {
            return Ok(Vec::new());
        }
        let query = ContextQuery { name: export.to_owned(), queries: contexts.to_vec() };
        let mut agreed: Vec<(u32, String)> = Vec::new();
        let each = |reply, data: BytesMut| {
            if reply == REP_META_CONTEXT {
                let mut fields = Fields::new(&data);
                let context = (fields.u32()?, text(fields.rest())?);
                if agreed.len() == MAX_CONTEXTS || agreed.iter().any(|other| other.0 == context.0) {
                    return Err(Malformed::new("too many metadata contexts, or one twice"));
                }
                agreed.push(context);
            }
            Ok(())
        };
        match self.ask(OPT_SET_META_CONTEXT, &query.bytes(), each).await? {
            Ending::Acknowledged => Ok(agreed),
            Ending::Failed(..) => Ok(Vec::new()),
        }
    }

    async fn ask_info(
        &mut self,
        option: u32,
        export: &str,
        told: &mut Told,
    ) -> Result<Ending, ClientError> {
        let wanted = vec![INFO_NAME, INFO_DESCRIPTION, INFO_BLOCK_SIZE];
        let request = InfoRequest { name: export.to_owned(), wanted };
        let each = |reply, data: BytesMut| {
            if reply == REP_INFO {
                told.hear(InfoReply::parse(&data)?);
            }
            Ok(())
        };
        self.ask(option, &request.bytes(), each).await
    }

    /// Opens an export by EXPORT_NAME, the old way. A server that refuses can only disconnect.
    async fn export_name(&mut self, export: &str) -> Result<Told, ClientError> {
        let mut out = BytesMut::new();
        put_option(&mut out, OPT_EXPORT_NAME, export.as_bytes());
        self.link.send(&out).await?;
        let size = u64::from_be_bytes(self.link.array().await?);
        let flags = u16::from_be_bytes(self.link.array().await?);
        if !self.no_zeroes {
            self.link.discard(124).await?;
        }
        Ok(Told { export: Some((size, flags)), ..Told::default() })
    }

    /// Ends the handshake; the server may have disconnected already.
    async fn abort(mut self) {
        let _ = self.ask(OPT_ABORT, &[], |_, _| Ok(())).await;
    }
}

fn check_length(name: &str) -> Result<(), ClientError> {
    if name.len() <= MAX_STRING {
        return Ok(());
    }
    Err(ClientError::Refused(format!("a name is longer than {MAX_STRING} bytes")))
}

/// The unchecked answers to INFO or GO.
#[derive(Default)]
struct Told {
    export: Option<(u64, u16)>,
    name: Option<String>,
    description: Option<String>,
    blocks: Option<(u32, u32, u32)>,
}

impl Told {
    fn hear(&mut self, info: InfoReply) {
        match info {
            InfoReply::Export { size, flags } => self.export = Some((size, flags)),
            InfoReply::Name(name) => self.name = Some(name),
            InfoReply::Description(line) => self.description = Some(line),
            InfoReply::BlockSize { min, preferred, max } => {
                self.blocks = Some((min, preferred, max));
            }
            InfoReply::Unknown(_) => {}
        }
    }

    /// Checks the answers.
    fn into_remote(
        self,
        asked: &str,
        handshake: &Handshake,
        contexts: Vec<(u32, String)>,
    ) -> Result<Remote, ClientError> {
        let (size, told) = self.export.ok_or_else(|| Malformed::new("it told no size"))?;
        if i64::try_from(size).is_err() {
            return Err(Malformed::new(format!("an export of {size} bytes")).into());
        }
        // Without this flag the others are undefined.
        let transmission_flags = if told & HAS_FLAGS == 0 { 0 } else { told };
        let default = (1, PREFERRED_BLOCK, DEFAULT_MAX_PAYLOAD);
        let (min_block, preferred_block, max_block) = self.blocks.unwrap_or(default);
        if !min_block.is_power_of_two() || min_block > 64 << 10 || max_block < min_block {
            let what = format!("block sizes {min_block} to {max_block}");
            return Err(Malformed::new(what).into());
        }
        let flags = Flags::from_wire(transmission_flags);
        let name = self.name.unwrap_or_else(|| asked.to_owned());
        let description = self.description.unwrap_or_default();
        let info =
            ExportInfo { name, description, size, flags, min_block, preferred_block, max_block };
        let (structured, encrypted) = (handshake.structured, handshake.encrypted);
        Ok(Remote { info, transmission_flags, structured, encrypted, contexts })
    }
}
