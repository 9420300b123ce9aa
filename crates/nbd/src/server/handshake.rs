//! The handshake: fixed newstyle, one option after another until one begins transmission.
//!
//! A client may send anything in any order until the deadline. The number of options and their
//! total length are limited, and no option longer than [`MAX_OPTION`] is kept in memory.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::BytesMut;

use super::context::Selection;
use super::offer::Offer;
use super::refusals::Refused;
use super::{Guest, Inner};
use crate::generation::ConnectionGeneration;
use crate::link::{Ended, Link};
use crate::reply::Answers;
use crate::service::{AWAY, Context, Export, ExportInfo, Peer, Refusal, Session};
use crate::tls::Tls;
use crate::wire::*;

/// Longest option that is read.
const MAX_OPTION: u32 = 64 << 10;
/// Most options of a connection.
const MAX_OPTIONS: u32 = 4096;
/// Most bytes of all options of a connection.
const MAX_BYTES: u64 = 4 << 20;

/// A connection that is ready for transmission.
pub(super) struct Opened<'a> {
    pub(super) link: Link,
    pub(super) session: Box<dyn Session>,
    pub(super) offer: Offer,
    pub(super) export: String,
    /// [`Export::owner`]
    pub(super) owner: u64,
    pub(super) peer: Peer,
    /// The queue for its answers.
    pub(super) answers: Arc<Answers>,
    pub(super) guest: Guest<'a>,
}

/// A handshake in progress.
pub(super) struct Handshake<'a, 'r> {
    server: &'a Inner,
    refused: &'r Mutex<Refused>,
    link: Link,
    peer: Peer,
    /// The export that the present option names.
    named: String,
    /// Whether 124 zero bytes follow the answer to EXPORT_NAME, as the oldest protocol demands.
    zeroes: bool,
    structured: bool,
    selection: Option<Selection>,
    options: u32,
    bytes: u64,
}

/// An error answer to an option.
pub(super) type OptionError = (u32, String);

/// The result of an option.
enum Step<'a> {
    Next,
    Begin(Began<'a>, Box<Candidate>),
    End,
}

/// A session, the queue for its answers, and its place in the limit of connections.
type Began<'a> = (Box<dyn Session>, Arc<Answers>, Guest<'a>);

/// What is sent for an option, and its result when that was sent; or why it is refused.
type Answered<'a> = Result<(BytesMut, Step<'a>), OptionError>;

impl<'a, 'r> Handshake<'a, 'r> {
    pub(super) fn new(
        server: &'a Inner,
        link: Link,
        peer: Peer,
        refused: &'r Mutex<Refused>,
    ) -> Handshake<'a, 'r> {
        Handshake {
            server,
            refused,
            link,
            peer,
            named: String::new(),
            zeroes: true,
            structured: false,
            selection: None,
            options: 0,
            bytes: 0,
        }
    }

    /// Negotiates. Returns `None` if the client ends the handshake.
    pub(super) async fn run(mut self) -> Result<Option<Opened<'a>>, Ended> {
        self.greet().await?;
        loop {
            let (option, data) = self.next_option().await?;
            match self.answer(option, data).await? {
                Step::Next => {}
                Step::End => return Ok(None),
                Step::Begin((session, answers, guest), found) => {
                    let (link, peer, owner) = (self.link, self.peer, found.export.owner());
                    let (offer, export) = (found.offer, found.info.name);
                    let opened =
                        Opened { link, session, offer, export, owner, peer, answers, guest };
                    return Ok(Some(opened));
                }
            }
        }
    }

    async fn greet(&mut self) -> Result<(), Ended> {
        let offered = FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES;
        self.link.send(&Greeting { flags: offered }.bytes()).await?;
        let flags = u32::from_be_bytes(self.link.array().await?);
        if flags & !u32::from(offered) != 0 {
            return Err(refused(format!("the client has flags that were not offered: {flags:#x}")));
        }
        self.zeroes = flags & u32::from(FLAG_NO_ZEROES) == 0;
        Ok(())
    }

    /// Reads the next option, without its data if they are too long.
    async fn next_option(&mut self) -> Result<(u32, Option<BytesMut>), Ended> {
        let header = OptionHeader::parse(&self.link.array().await?)?;
        self.named.clear();
        self.options += 1;
        self.bytes += u64::from(header.length);
        if self.options > MAX_OPTIONS || self.bytes > MAX_BYTES {
            return Err(refused("the client sends options without end".to_owned()));
        }
        if header.length > MAX_OPTION {
            self.link.discard(header.length.into()).await?;
            return Ok((header.option, None));
        }
        Ok((header.option, Some(self.link.bytes(header.length as usize).await?)))
    }

    async fn answer(&mut self, option: u32, data: Option<BytesMut>) -> Result<Step<'a>, Ended> {
        if self.server.stopping() && option != OPT_ABORT {
            self.reply_error(option, (REP_ERR_SHUTDOWN, "the server is going away".into())).await?;
            return Ok(Step::End);
        }
        // Refused early, before any work is done.
        if self.server.is_full() && option != OPT_ABORT {
            return self.fail(option, self.server.no_room()).await;
        }
        let forced = matches!(self.server.options.tls, Tls::Required(_));
        if forced && !self.peer.encrypted && !matches!(option, OPT_STARTTLS | OPT_ABORT) {
            return self.fail(option, (REP_ERR_TLS_REQD, "begin with STARTTLS".into())).await;
        }
        let Some(data) = data else {
            return self.fail(option, (REP_ERR_TOO_BIG, "the option is too long".into())).await;
        };
        let answered = match option {
            OPT_EXPORT_NAME => self.export_name(&text(&data)?).await,
            OPT_ABORT => {
                // The client may have disconnected already.
                let _ = self.reply(option, REP_ACK, &[]).await;
                return Ok(Step::End);
            }
            OPT_LIST => self.list(&data),
            OPT_STARTTLS => return self.start_tls(&data).await,
            OPT_INFO | OPT_GO => self.info(option, &data).await,
            OPT_STRUCTURED_REPLY if data.is_empty() => {
                self.structured = true;
                let mut out = BytesMut::new();
                put_option_reply(&mut out, option, REP_ACK, &[]);
                Ok((out, Step::Next))
            }
            OPT_STRUCTURED_REPLY => Err(no_data()),
            OPT_LIST_META_CONTEXT | OPT_SET_META_CONTEXT => self.contexts(option, &data),
            unknown => Err((REP_ERR_UNSUP, format!("option {unknown} is not supported"))),
        };
        match answered {
            Ok((out, step)) => {
                self.link.send(&out).await?;
                Ok(step)
            }
            Err(error) => self.fail(option, error).await,
        }
    }

    async fn reply(&mut self, option: u32, reply: u32, data: &[u8]) -> Result<(), Ended> {
        let mut out = BytesMut::new();
        put_option_reply(&mut out, option, reply, data);
        Ok(self.link.send(&out).await?)
    }

    async fn reply_error(&mut self, option: u32, error: OptionError) -> Result<(), Ended> {
        self.note(&error);
        self.reply(option, error.0, error.1.as_bytes()).await
    }

    /// Notes a refusal, if it is of something that the client needs.
    fn note(&self, (code, why): &OptionError) {
        if matches!(*code, REP_ERR_POLICY | REP_ERR_TLS_REQD | REP_ERR_UNKNOWN) {
            let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
            refused.is_needed = true;
            // Who waits for a store that is away asks again and again, and is welcome.
            if !why.starts_with(AWAY) {
                refused.is_denied |= *code == REP_ERR_POLICY;
                refused.last = Some((self.peer.clone(), self.named.clone(), why.clone()));
            }
        }
    }

    /// Refuses an option, and continues. EXPORT_NAME can only be refused by disconnecting.
    async fn fail(&mut self, option: u32, error: OptionError) -> Result<Step<'a>, Ended> {
        if option == OPT_EXPORT_NAME {
            self.note(&error);
            return Err(refused(error.1));
        }
        self.reply_error(option, error).await?;
        Ok(Step::Next)
    }

    fn list(&self, data: &[u8]) -> Answered<'a> {
        if !data.is_empty() {
            return Err(no_data());
        }
        let mut out = BytesMut::new();
        for (name, description) in self.server.exports.list(&self.peer) {
            if name.len() > MAX_STRING || description.len() > MAX_STRING {
                continue;
            }
            let mut entry = BytesMut::new();
            put_string(&mut entry, &name);
            entry.extend_from_slice(description.as_bytes());
            put_option_reply(&mut out, OPT_LIST, REP_SERVER, &entry);
        }
        put_option_reply(&mut out, OPT_LIST, REP_ACK, &[]);
        Ok((out, Step::Next))
    }

    async fn start_tls(&mut self, data: &[u8]) -> Result<Step<'a>, Ended> {
        if !data.is_empty() {
            return self.fail(OPT_STARTTLS, no_data()).await;
        }
        if self.peer.encrypted {
            let text = "the connection is encrypted already".to_owned();
            return self.fail(OPT_STARTTLS, (REP_ERR_INVALID, text)).await;
        }
        let Some(keys) = self.server.options.tls.keys().cloned() else {
            let text = "TLS is not configured here".to_owned();
            return self.fail(OPT_STARTTLS, (REP_ERR_POLICY, text)).await;
        };
        // Data received before the keys were agreed on could come from anybody.
        if !self.link.input.is_empty() {
            return Err(refused("the client went on in plain text after STARTTLS".to_owned()));
        }
        self.reply(OPT_STARTTLS, REP_ACK, &[]).await?;
        let plain = std::mem::replace(&mut self.link.transport, Box::new(tokio::io::empty()));
        let (stream, identity) = keys.accept(plain).await?;
        self.peer.certificate = identity.name();
        self.peer.identity = Some(identity);
        self.peer.encrypted = true;
        self.link.transport = Box::new(stream);
        self.structured = false;
        self.selection = None;
        Ok(Step::Next)
    }

    fn contexts(&mut self, option: u32, data: &[u8]) -> Answered<'a> {
        let set = option == OPT_SET_META_CONTEXT;
        if set {
            // Even a SET that fails discards the previous selection.
            self.selection = None;
        }
        if !self.structured {
            return Err((REP_ERR_INVALID, "needs structured replies first".to_owned()));
        }
        let query = ContextQuery::parse(data).map_err(invalid)?;
        let export = self.find(&query.name)?;
        let selection = Selection::new(export.as_ref(), query, set)?;
        let mut out = BytesMut::new();
        selection.put(&mut out, option);
        put_option_reply(&mut out, option, REP_ACK, &[]);
        if set {
            self.selection = Some(selection);
        }
        Ok((out, Step::Next))
    }

    fn find(&mut self, name: &str) -> Result<Arc<dyn Export>, OptionError> {
        name.clone_into(&mut self.named);
        self.server.exports.find(name, &self.peer).map_err(|refusal| refusal_reply(name, refusal))
    }

    /// The export with a name, and what a session of this connection would be offered.
    fn open(&mut self, name: &str) -> Result<Candidate, OptionError> {
        let export = self.find(name)?;
        let selection = self.selection.as_ref().filter(|selection| selection.export == name);
        let generation = selection.and_then(Selection::generation);
        let contexts = selection.map(|selection| selection.contexts.clone()).unwrap_or_default();
        let info = export.info(&self.peer, &contexts);
        let keys = contexts.iter().map(|context| context.key).collect();
        let offer = Offer::new(&info, self.structured, keys).map_err(|error| {
            tracing::error!(export = name, "the export cannot be served: {error}");
            (REP_ERR_POLICY, "the export is not configured well".to_owned())
        })?;
        Ok(Candidate { export, contexts, info, offer, generation })
    }

    async fn connect(&mut self, name: &str, found: &Candidate) -> Result<Began<'a>, OptionError> {
        let guest = Guest::enter(self.server).ok_or_else(|| self.server.no_room())?;
        let answers = Arc::new(Answers::new(self.server.budget.share(&found.info.name)));
        if let Some(generation) = found.generation {
            self.server.lines.begin(&found.info.name, generation, &answers).await?;
        }
        let session = found.export.connect(&self.peer, &found.contexts);
        Ok((session.map_err(|refusal| refusal_reply(name, refusal))?, answers, guest))
    }

    async fn info(&mut self, option: u32, data: &[u8]) -> Answered<'a> {
        let request = InfoRequest::parse(data).map_err(invalid)?;
        let found = self.open(&request.name)?;
        let asked = |info| request.wanted.contains(&info);
        let info = &found.info;
        if !asked(INFO_BLOCK_SIZE) && (info.min_block > 1 || info.max_block < DEFAULT_MAX_PAYLOAD) {
            let text = "ask for the block sizes, and keep to them".to_owned();
            return Err((REP_ERR_BLOCK_SIZE_REQD, text));
        }
        let mut out = BytesMut::new();
        for info in info_replies(&found, &request.wanted) {
            put_option_reply(&mut out, option, REP_INFO, &info.bytes());
        }
        put_option_reply(&mut out, option, REP_ACK, &[]);
        if option == OPT_INFO {
            return Ok((out, Step::Next));
        }
        let session = self.connect(&request.name, &found).await?;
        Ok((out, Step::Begin(session, Box::new(found))))
    }

    async fn export_name(&mut self, name: &str) -> Answered<'a> {
        let found = self.open(name)?;
        let session = self.connect(name, &found).await?;
        let mut out = BytesMut::new();
        out.extend_from_slice(&found.offer.size.to_be_bytes());
        out.extend_from_slice(&found.offer.flags.to_be_bytes());
        if self.zeroes {
            out.extend_from_slice(&[0; 124]);
        }
        Ok((out, Step::Begin(session, Box::new(found))))
    }
}

/// An export that a client requested.
struct Candidate {
    export: Arc<dyn Export>,
    contexts: Vec<Context>,
    info: ExportInfo,
    offer: Offer,
    /// The connection's place in the client's series.
    generation: Option<ConnectionGeneration>,
}

fn info_replies(found: &Candidate, wanted: &[u16]) -> Vec<InfoReply> {
    let Candidate { info, offer, .. } = found;
    let mut replies = vec![InfoReply::Export { size: offer.size, flags: offer.flags }];
    if wanted.contains(&INFO_NAME) {
        replies.push(InfoReply::Name(info.name.clone()));
    }
    if wanted.contains(&INFO_DESCRIPTION) && !info.description.is_empty() {
        replies.push(InfoReply::Description(info.description.clone()));
    }
    if wanted.contains(&INFO_BLOCK_SIZE) {
        let (min, preferred, max) = (info.min_block, info.preferred_block, info.max_block);
        replies.push(InfoReply::BlockSize { min, preferred, max });
    }
    replies
}

fn refused(text: String) -> Ended {
    Ended::Refused(text)
}

fn no_data() -> OptionError {
    (REP_ERR_INVALID, "the option has no data".to_owned())
}

fn invalid(error: Malformed) -> OptionError {
    (REP_ERR_INVALID, error.to_string())
}

fn refusal_reply(name: &str, refusal: Refusal) -> OptionError {
    match refusal {
        Refusal::Unknown => (REP_ERR_UNKNOWN, format!("there is no export '{name}'")),
        Refusal::Denied(text) => (REP_ERR_POLICY, text),
        Refusal::Away(text) => (REP_ERR_POLICY, format!("{AWAY}{text}")),
        Refusal::TlsRequired => (REP_ERR_TLS_REQD, format!("export '{name}' needs TLS")),
        Refusal::ShuttingDown => (REP_ERR_SHUTDOWN, "the server is going away".to_owned()),
    }
}
