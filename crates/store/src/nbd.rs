//! An export of another NBD server as a store: its address, as the NBD project's URIs write it.
//! What speaks the protocol is not here; whoever opens the store passes it in.

use std::fmt::{self, Write};
use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::sync::Arc;

use crate::kind::{Description, Kind, StoreSpec, Words};
use crate::open::{OpenOptions, invalid};
use crate::parse::{Parsed, Text};
use crate::store::{Answer, Store};

const fn kind(name: &'static str, form: &'static str) -> Kind {
    Kind { name, form, summary: "an export of another NBD server", parse }
}

pub(crate) static KINDS: [Kind; 4] = [
    kind("nbd", "nbd://HOST/NAME"),
    kind("nbds", ""),
    kind("nbd+unix", "nbd+unix:///NAME?socket=PATH"),
    kind("nbds+unix", ""),
];

/// The port that is reserved for NBD.
const PORT: u16 = 10_809;

/// Most bytes of an export's name, by the protocol.
const NAME_BYTES: usize = 4096;

/// An export of another server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NbdAddress {
    /// Encrypted (`nbds`).
    pub tls: bool,
    /// How to get there.
    pub transport: NbdTransport,
    /// Name of the export; empty: the server's default one.
    pub export: String,
}

/// The way to an NBD server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NbdTransport {
    /// Over the network.
    Tcp {
        /// Name or address, an IPv6 one without brackets.
        host: String,
        /// Port.
        port: u16,
    },
    /// Over a socket in the file system.
    Unix(PathBuf),
}

fn parse(words: &Words<'_>) -> Parsed<StoreSpec> {
    match words.inside {
        Some(inside) => inside.fail("no options for an NBD server"),
        None => NbdAddress::parse(words.name, words.rest).map(StoreSpec::new),
    }
}

impl Description for NbdAddress {
    fn open(&self, options: OpenOptions) -> Answer<io::Result<Arc<dyn Store>>> {
        let address = self.clone();
        Box::pin(async move {
            let name = address.to_string();
            let Some(connect) = &options.upstream else {
                let why = format!("{name}: this program cannot use another NBD server as a store");
                return Err(io::Error::new(ErrorKind::Unsupported, why));
            };
            let store = connect(address, options.read_only).await?;
            let found = store.facts().size;
            match options.size {
                Some(told) if told != found => Err(invalid(&format!(
                    "{name}: has {found} bytes, not {told}; leave the size away"
                ))),
                _ => Ok(store),
            }
        })
    }

    fn is_upstream(&self) -> bool {
        true
    }
}

impl NbdAddress {
    /// Parses what follows the scheme: `//host:port/export` or `///export?socket=path`.
    fn parse(scheme: &str, rest: Text<'_>) -> Parsed<NbdAddress> {
        let Some(rest) = rest.after("://") else { return rest.fail("://") };
        let tls = scheme.starts_with("nbds");
        let (rest, query) = rest.split("?");
        let (authority, export) = rest.split("/");
        let export = export.map_or(Ok(String::new()), |export| decode(export, "an export name"))?;
        if export.len() > NAME_BYTES {
            return rest.fail("an export name of at most 4096 bytes");
        }
        let transport = if scheme.ends_with("+unix") {
            if !authority.text().is_empty() {
                return authority.fail("a third `/`: a local socket has no host");
            }
            let Some(query) = query else { return rest.end().fail("?socket=PATH") };
            let Some(socket) = query.after("socket=") else { return query.fail("socket=PATH") };
            if socket.text().is_empty() {
                return socket.fail("the path of the server's socket");
            }
            NbdTransport::Unix(decode(socket, "the path of the server's socket")?.into())
        } else {
            if let Some(query) = query {
                return query.fail("nothing after `?` in the address of a host");
            }
            tcp(authority)?
        };
        Ok(NbdAddress { tls, transport, export })
    }
}

fn tcp(authority: Text<'_>) -> Parsed<NbdTransport> {
    let (host, rest) = if authority.text().starts_with('[') {
        let Some(close) = authority.text().find(']') else {
            return authority.end().fail("`]` after an IPv6 address");
        };
        let rest = authority.range(close + 1, authority.text().len());
        (authority.range(1, close), rest)
    } else {
        let colon = authority.text().find(':').unwrap_or(authority.text().len());
        (authority.range(0, colon), authority.range(colon, authority.text().len()))
    };
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-._:%".contains(c);
    if host.text().is_empty() || !host.text().chars().all(allowed) {
        return host.fail("a host name or address");
    }
    let port = match rest.after(":") {
        None if rest.text().is_empty() => PORT,
        None => return rest.fail("`:` and a port, or `/` and an export name"),
        Some(port) => match port.text().parse::<u16>() {
            Ok(number) if number > 0 => number,
            _ => return port.fail("a port from 1 to 65535"),
        },
    };
    Ok(NbdTransport::Tcp { host: host.text().to_owned(), port })
}

/// Resolves `%2F` and the like.
fn decode(text: Text<'_>, what: &str) -> Parsed<String> {
    let raw = text.text().as_bytes();
    let mut out = Vec::with_capacity(raw.len());
    let mut at = 0;
    while at < raw.len() {
        if raw[at] != b'%' {
            out.push(raw[at]);
            at += 1;
            continue;
        }
        let digit = |at: usize| raw.get(at).and_then(|digit| char::from(*digit).to_digit(16));
        let (Some(high), Some(low)) = (digit(at + 1), digit(at + 2)) else {
            return text.range(at, raw.len()).fail("two hexadecimal digits after `%`");
        };
        out.push((high * 16 + low) as u8);
        at += 3;
    }
    match String::from_utf8(out) {
        Ok(text) if !text.contains('\0') => Ok(text),
        _ => text.fail(&format!("{what} in UTF-8 and without null characters")),
    }
}

/// Writes a text so that [`decode`] gives it back.
fn encode(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    for byte in text.bytes() {
        let plain = byte.is_ascii_alphanumeric() || b"-._~/:@+=".contains(&byte);
        if plain { f.write_char(char::from(byte))? } else { write!(f, "%{byte:02X}")? }
    }
    Ok(())
}

impl fmt::Display for NbdAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.tls { "nbds" } else { "nbd" })?;
        match &self.transport {
            NbdTransport::Tcp { host, port } => {
                let (open, close) = if host.contains(':') { ("[", "]") } else { ("", "") };
                write!(f, "://{open}{host}{close}")?;
                if *port != PORT {
                    write!(f, ":{port}")?;
                }
                if !self.export.is_empty() {
                    f.write_char('/')?;
                    encode(f, &self.export)?;
                }
                Ok(())
            }
            NbdTransport::Unix(path) => {
                f.write_str("+unix:///")?;
                encode(f, &self.export)?;
                f.write_str("?socket=")?;
                encode(f, &path.to_string_lossy())
            }
        }
    }
}
