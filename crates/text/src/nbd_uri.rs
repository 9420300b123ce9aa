//! NBD URIs: where a server is, which export, and whether over TLS.

use std::fmt::{self, Write as _};
use std::path::PathBuf;
use std::str::FromStr;

/// The port that is reserved for NBD.
const PORT: u16 = 10809;

/// Most bytes of an export's name, by the protocol.
const NAME_BYTES: usize = 4096;

/// A server's export.
///
/// ```
/// use undercroft_text::{Endpoint, Uri};
///
/// let uri: Uri = "nbd+unix:///disk%201?socket=/run/nbd.sock".parse().unwrap();
/// assert_eq!(uri.export, "disk 1");
/// assert_eq!(uri.endpoint, Endpoint::Unix("/run/nbd.sock".into()));
/// assert_eq!(uri.to_string(), "nbd+unix:///disk%201?socket=/run/nbd.sock");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uri {
    /// Where the server listens.
    pub endpoint: Endpoint,
    /// Name of the export; empty for the default one.
    pub export: String,
    /// Over TLS or not at all: `nbds`.
    pub tls: bool,
}

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// A name or an address without brackets, and a port.
    Tcp(String, u16),
    /// A unix socket.
    Unix(PathBuf),
}

/// A text that is not the URI of an export.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{uri}': {what}; write nbd://HOST[:PORT]/EXPORT or nbd+unix:///EXPORT?socket=PATH")]
pub struct UriError {
    uri: String,
    /// What is wrong with it, in a few words.
    pub what: String,
}

impl FromStr for Uri {
    type Err = UriError;

    fn from_str(uri: &str) -> Result<Uri, UriError> {
        parse(uri).map_err(|what| UriError { uri: uri.to_owned(), what })
    }
}

fn parse(uri: &str) -> Result<Uri, String> {
    let (scheme, rest) = uri.split_once("://").ok_or("there is no scheme")?;
    let (tls, unix) = match scheme {
        "nbd" => (false, false),
        "nbds" => (true, false),
        "nbd+unix" => (false, true),
        "nbds+unix" => (true, true),
        other => return Err(format!("the scheme '{other}' is not known")),
    };
    if rest.contains('#') {
        return Err("a fragment ('#') means nothing here".to_owned());
    }
    let (rest, query) = rest.split_once('?').map_or((rest, None), |(rest, q)| (rest, Some(q)));
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let export = decode(path)?;
    if export.len() > NAME_BYTES {
        return Err(format!("the export's name is longer than {NAME_BYTES} bytes"));
    }
    // Known parameter or none of ours, if there is any at all.
    let socket = query
        .filter(|query| !query.is_empty())
        .map(|query| query.strip_prefix("socket=").filter(|path| !path.contains('&')));
    let endpoint = match (unix, socket) {
        (_, Some(None)) => return Err("the one parameter that is known is 'socket'".to_owned()),
        (true, None) => return Err("the parameter 'socket' is missing".to_owned()),
        (true, Some(Some(_))) if !authority.is_empty() => {
            return Err("a unix socket has no host".to_owned());
        }
        (true, Some(Some(path))) => Endpoint::Unix(nonempty(decode(path)?, "socket")?.into()),
        (false, Some(_)) => return Err("'socket' belongs to nbd+unix".to_owned()),
        (false, None) => host_and_port(authority)?,
    };
    Ok(Uri { endpoint, export, tls })
}

fn host_and_port(authority: &str) -> Result<Endpoint, String> {
    if authority.contains('@') {
        return Err("users are not known here".to_owned());
    }
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']').ok_or("the ']' is missing")?;
            match rest.strip_prefix(':') {
                Some(port) => (host.to_owned(), port),
                None if rest.is_empty() => (host.to_owned(), ""),
                None => return Err(format!("'{rest}' after the address")),
            }
        }
        None => {
            let (host, port) = authority.split_once(':').unwrap_or((authority, ""));
            (decode(host)?, port)
        }
    };
    let port = match port {
        "" => PORT,
        port => match port.parse() {
            Ok(number) if number > 0 => number,
            _ => return Err(format!("'{port}' is no port")),
        },
    };
    Ok(Endpoint::Tcp(nonempty(host, "host")?, port))
}

fn nonempty(text: String, what: &str) -> Result<String, String> {
    if text.is_empty() { Err(format!("the {what} is missing")) } else { Ok(text) }
}

/// Resolves `%41`.
fn decode(text: &str) -> Result<String, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit = |place: usize| after.get(place).and_then(|d| char::from(*d).to_digit(16));
        let (Some(high), Some(low)) = (digit(0), digit(1)) else {
            return Err("'%' stands without two hexadecimal digits".to_owned());
        };
        bytes.push((high << 4 | low) as u8);
        rest = &after[2..];
    }
    if bytes.contains(&0) {
        return Err("a NUL in a name".to_owned());
    }
    String::from_utf8(bytes).map_err(|_| "a name is not UTF-8".to_owned())
}

/// Writes what is not safe in a path or a query as `%41`.
fn encode(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/@:+,=".contains(&byte) {
            f.write_char(char::from(byte))?;
        } else {
            write!(f, "%{byte:02X}")?;
        }
    }
    Ok(())
}

impl fmt::Display for Uri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.tls { "nbds" } else { "nbd" })?;
        match &self.endpoint {
            Endpoint::Tcp(host, port) => {
                if host.contains(':') {
                    write!(f, "://[{host}]")?;
                } else {
                    write!(f, "://{host}")?;
                }
                if *port != PORT {
                    write!(f, ":{port}")?;
                }
                f.write_char('/')?;
                encode(f, &self.export)
            }
            Endpoint::Unix(path) => {
                f.write_str("+unix:///")?;
                encode(f, &self.export)?;
                f.write_str("?socket=")?;
                encode(f, &path.to_string_lossy())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(host: &str, port: u16, export: &str, tls: bool) -> Uri {
        let endpoint = Endpoint::Tcp(host.to_owned(), port);
        Uri { endpoint, export: export.to_owned(), tls }
    }

    #[test]
    fn what_is_written_is_read() {
        for (text, uri) in [
            ("nbd://host/", tcp("host", 10809, "", false)),
            ("nbds://host:1/a/b", tcp("host", 1, "a/b", true)),
            ("nbd://[::1]:10/x%25", tcp("::1", 10, "x%", false)),
        ] {
            assert_eq!(text.parse(), Ok(uri.clone()));
            assert_eq!(uri.to_string(), text);
        }
        assert_eq!("nbd://host".parse(), Ok(tcp("host", 10809, "", false)));
        let unix: Uri = "nbds+unix:///e?socket=%2Frun%2Fa%20b".parse().unwrap();
        assert_eq!(unix.endpoint, Endpoint::Unix("/run/a b".into()));
        assert_eq!(unix.to_string(), "nbds+unix:///e?socket=/run/a%20b");
    }

    #[test]
    fn nonsense_is_refused_in_words() {
        for (text, part) in [
            ("host:10809", "no scheme"),
            ("http://host/", "'http' is not known"),
            ("nbd:///x", "host is missing"),
            ("nbd://host:port/", "'port' is no port"),
            ("nbd://host:99999/", "'99999' is no port"),
            ("nbd://host:0/", "'0' is no port"),
            ("nbd://[::1/", "']' is missing"),
            ("nbd://[::1]x/", "'x' after"),
            ("nbd://me@host/", "users"),
            ("nbd://host/?socket=/x", "belongs to nbd+unix"),
            ("nbd+unix:///x", "'socket' is missing"),
            ("nbd+unix:///x?socket=", "socket is missing"),
            ("nbd+unix://host/x?socket=/y", "no host"),
            ("nbd+unix:///x?tls=1", "parameter that is known"),
            ("nbd+unix:///x?socket=/y&a=b", "parameter that is known"),
            ("nbd://host/%4", "hexadecimal"),
            ("nbd://host/%ff", "UTF-8"),
            ("nbd://host/%00", "NUL"),
            ("nbd://host/#x", "fragment"),
        ] {
            let error = text.parse::<Uri>().unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
