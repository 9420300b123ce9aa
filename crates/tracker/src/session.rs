//! A connection to the control export of a volume, with blocking calls and time limits. The
//! messages are those of `undercroft_nbd`; this file has their order, without a runtime.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use bytes::BytesMut;
use undercroft_hints::{Abilities, Grant, MESSAGE_BYTES_MAX, Query, WANTS_CONTENTS};
use undercroft_nbd::wire::*;
use undercroft_nbd::{Endpoint, Uri};

use crate::settings::Settings;

/// Longest wait for a server.
const PATIENCE: Duration = Duration::from_secs(2);
/// Most bytes of an answer that is read or skipped.
const ANSWER_MAX: u32 = 64 << 10;
/// Most answers to an option.
const ANSWERS_MAX: usize = 64;
/// Prefix of a control export's name.
const CONTROL: &str = "@coop/";

trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

/// An open connection.
pub(crate) struct Session {
    stream: Box<dyn Stream>,
    grant: Grant,
    bytes_max: usize,
    min_block: usize,
    can_flush: bool,
    cookie: u64,
}

fn wrong(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
}

impl Session {
    /// Connects, and opts in to report evictions as a client, and to hand over contents unless the
    /// settings forbid it.
    pub(crate) fn connect(uri: &Uri, settings: &Settings) -> io::Result<Session> {
        let stream: Box<dyn Stream> = match &uri.endpoint {
            Endpoint::Unix(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_read_timeout(Some(PATIENCE))?;
                stream.set_write_timeout(Some(PATIENCE))?;
                Box::new(stream)
            }
            Endpoint::Tcp(host, port) => {
                let address = (host.as_str(), *port).to_socket_addrs()?.next();
                let address = address.ok_or_else(|| wrong("the host has no address"))?;
                let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
                stream.set_read_timeout(Some(PATIENCE))?;
                stream.set_write_timeout(Some(PATIENCE))?;
                stream.set_nodelay(true)?;
                Box::new(stream)
            }
        };
        let none = Grant {
            news: None,
            epoch: 0,
            block_bytes: 1,
            window_base: 0,
            window_bytes: 0,
            grant: Abilities::default(),
        };
        let bytes_max = MESSAGE_BYTES_MAX;
        let mut session =
            Session { stream, grant: none, bytes_max, min_block: 1, can_flush: false, cookie: 0 };
        session.shake_hands(&format!("{CONTROL}{}", uri.export), settings)?;
        Ok(session)
    }

    fn shake_hands(&mut self, export: &str, settings: &Settings) -> io::Result<()> {
        let greeting = Greeting::parse(&self.array()?)?;
        if greeting.flags & FLAG_FIXED_NEWSTYLE == 0 {
            return Err(wrong("the server does not speak fixed newstyle"));
        }
        let flags = greeting.flags & (FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES);
        self.stream.write_all(&u32::from(flags).to_be_bytes())?;
        self.ask(OPT_STRUCTURED_REPLY, &[], |_, _| Ok(()))?;
        let demote = settings.contents;
        let want = Abilities { evict: true, stat: true, demote, ..Abilities::default() };
        let query = Query { client: settings.client, want }.to_string();
        let query = ContextQuery { name: export.to_owned(), queries: vec![query] };
        let mut grant = None;
        self.ask(OPT_SET_META_CONTEXT, &query.bytes(), |reply, data| {
            if reply == REP_META_CONTEXT {
                let name = data.get(4..).map(String::from_utf8_lossy);
                grant = name.and_then(|name| Grant::parse(&name)).or(grant);
            }
            Ok(())
        })?;
        let grant = grant.ok_or_else(|| wrong("the server does not cooperate with clients"))?;
        if !grant.grant.evict {
            let what = "the volume has no use for evictions: placement=auto is missing there";
            return Err(wrong(what));
        }
        let request = InfoRequest { name: export.to_owned(), wanted: vec![INFO_BLOCK_SIZE] };
        let (mut min, mut max, mut flags) = (1, DEFAULT_MAX_PAYLOAD, 0);
        self.ask(OPT_GO, &request.bytes(), |reply, data| {
            if reply == REP_INFO {
                match InfoReply::parse(data)? {
                    InfoReply::BlockSize { min: least, max: most, .. } => {
                        (min, max) = (least, most)
                    }
                    InfoReply::Export { flags: told, .. } => flags = told,
                    _ => {}
                }
            }
            Ok(())
        })?;
        if !min.is_power_of_two() || min > 64 << 10 || max < min {
            return Err(wrong(format!("block sizes {min} to {max}")));
        }
        let window = usize::try_from(grant.window_bytes).unwrap_or(usize::MAX);
        self.bytes_max = window.min(max as usize).min(MESSAGE_BYTES_MAX);
        self.min_block = min as usize;
        self.can_flush = flags & HAS_FLAGS != 0 && flags & SEND_FLUSH != 0;
        self.grant = grant;
        Ok(())
    }

    /// Sends an option and reads the answers; an error means that the connection failed.
    fn ask(
        &mut self,
        option: u32,
        data: &[u8],
        mut each: impl FnMut(u32, &[u8]) -> Result<(), Malformed>,
    ) -> io::Result<()> {
        let mut out = BytesMut::new();
        put_option(&mut out, option, data);
        self.stream.write_all(&out)?;
        for _ in 0..ANSWERS_MAX {
            let header = OptionReplyHeader::parse(&self.array()?)?;
            if header.option != option || header.length > ANSWER_MAX {
                return Err(wrong("an answer that was not asked for"));
            }
            let mut data = vec![0; header.length as usize];
            self.stream.read_exact(&mut data)?;
            match header.reply {
                REP_ACK => return Ok(()),
                error if error & REP_IS_ERROR != 0 => {
                    let text = String::from_utf8_lossy(&data).into_owned();
                    let text = if text.is_empty() { format!("error {error:#x}") } else { text };
                    return Err(wrong(format!("the server refuses: {text}")));
                }
                reply => each(reply, &data)?,
            }
        }
        Err(wrong("answers without end"))
    }

    fn array<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.stream.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    /// The server's grant.
    pub(crate) fn grant(&self) -> &Grant {
        &self.grant
    }

    /// Most bytes of a message.
    pub(crate) fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Sends a message and waits for the answer.
    pub(crate) fn send(&mut self, message: &[u8]) -> io::Result<()> {
        let length = message.len().next_multiple_of(self.min_block);
        let mut out = self.request(CMD_WRITE, self.grant.window_base, length as u64);
        out.extend_from_slice(message);
        // The server may accept whole blocks only; zeroes end a message.
        out.resize(RequestHeader::SIZE + length, 0);
        self.stream.write_all(&out)?;
        self.answer()
    }

    /// Asks whether the server has a use for contents at present. A server that does not understand
    /// the question wants what it granted.
    pub(crate) fn wants_contents(&mut self) -> io::Result<bool> {
        if !self.grant.grant.demote {
            return Ok(false);
        }
        let out = self.request(CMD_BLOCK_STATUS, 0, self.min_block as u64);
        self.stream.write_all(&out)?;
        let Some(payload) = self.answer_to()? else { return Ok(true) };
        // The number of the context, then extents of a length and a status.
        let status = payload.get(8..12).and_then(|bytes| bytes.try_into().ok());
        let status = status.map(u32::from_be_bytes);
        Ok(status.is_none_or(|status| status & WANTS_CONTENTS != 0))
    }

    /// Checks whether the server still answers.
    pub(crate) fn probe(&mut self) -> io::Result<()> {
        if !self.can_flush {
            return Ok(());
        }
        let out = self.request(CMD_FLUSH, 0, 0);
        self.stream.write_all(&out)?;
        self.answer()
    }

    fn request(&mut self, command: u16, offset: u64, length: u64) -> Vec<u8> {
        self.cookie += 1;
        let cookie = self.cookie;
        let header =
            RequestHeader { flags: 0, command, cookie, offset, length, payload_length: length };
        header.bytes().to_vec()
    }

    fn answer(&mut self) -> io::Result<()> {
        self.answer_to()?.map(drop).ok_or_else(|| wrong("the server refuses a message"))
    }

    /// The payload of the answer to the last request; `None` if the server refused the request.
    fn answer_to(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut bytes = self.array::<{ ReplyHeader::SIMPLE_SIZE }>()?.to_vec();
        let header = loop {
            match ReplyHeader::parse(&bytes)? {
                Some((header, _)) => break header,
                None => {
                    bytes.extend(
                        self.array::<{ ReplyHeader::CHUNK_SIZE - ReplyHeader::SIMPLE_SIZE }>()?,
                    );
                }
            }
        };
        let mut payload = Vec::new();
        let (error, cookie) = match header {
            ReplyHeader::Simple { error, cookie } => (error != 0, cookie),
            ReplyHeader::Chunk(chunk) => {
                if chunk.length > ANSWER_MAX || chunk.flags & CHUNK_DONE == 0 {
                    return Err(wrong("an answer that does not fit the question"));
                }
                payload.resize(chunk.length as usize, 0);
                self.stream.read_exact(&mut payload)?;
                (chunk.kind & CHUNK_IS_ERROR != 0, chunk.cookie)
            }
        };
        if cookie != self.cookie {
            return Err(wrong("an answer to another question"));
        }
        Ok((!error).then_some(payload))
    }
}
