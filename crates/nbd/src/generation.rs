//! The metadata context by which a connection tells which earlier one it replaces:
//! `x-undercroft:line;v=1;id=<hex>;number=<n>`. Its text form on both sides.
//!
//! A client that reconnects does not know which of its earlier requests the server has yet to
//! execute. A server that agrees to this context ends the connections with the same id and smaller
//! numbers. It starts the new connection when all their started requests have ended, so that no
//! late write overtakes a new one. `docs/developer/hints.md` describes it.
//!
//! Not here: the waiting (`server/generations.rs`), and the connecting (`client/reconnecting.rs`).

use std::fmt;

/// The name of the context.
const NAME: &str = "x-undercroft:line";

/// The version that this side speaks.
const VERSION: &str = "1";

/// Key of the context in a session. Exports must not use this key for their own contexts.
pub(crate) const KEY: u32 = u32::from_be_bytes(*b"line");

/// The beginning of a refusal by a server that is still busy with requests of an earlier
/// connection.
pub(crate) const BUSY: &str = "busy: ";

/// The place of a connection in a client's series of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ConnectionGeneration {
    /// A random number known to this client only.
    pub(crate) id: u128,
    /// Number of the connection; it increases with each successor.
    pub(crate) number: u64,
}

impl ConnectionGeneration {
    /// Returns `None` for another context, an unknown version, or malformed text. Unknown
    /// parameters are skipped.
    pub(crate) fn parse(text: &str) -> Option<ConnectionGeneration> {
        let rest = text.strip_prefix(NAME)?.strip_prefix(';')?;
        let (mut id, mut number) = (None, None);
        let digits =
            |value: &str, radix| !value.is_empty() && value.chars().all(|c| c.is_digit(radix));
        for part in rest.split(';') {
            match part.split_once('=')? {
                ("v", version) if version != VERSION => return None,
                ("id", value) if digits(value, 16) => {
                    id = Some(u128::from_str_radix(value, 16).ok()?);
                }
                ("number", value) if digits(value, 10) => number = Some(value.parse().ok()?),
                ("id" | "number", _) => return None,
                _ => {}
            }
        }
        Some(ConnectionGeneration { id: id?, number: number? })
    }
}

impl fmt::Display for ConnectionGeneration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ConnectionGeneration { id, number } = self;
        write!(f, "{NAME};v={VERSION};id={id:032x};number={number}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lineage_is_read_as_it_was_written() {
        for generation in [
            ConnectionGeneration { id: 0, number: 0 },
            ConnectionGeneration { id: u128::MAX, number: u64::MAX },
        ] {
            assert_eq!(ConnectionGeneration::parse(&generation.to_string()), Some(generation));
        }
        let known = Some(ConnectionGeneration { id: 10, number: 7 });
        assert_eq!(ConnectionGeneration::parse("x-undercroft:line;id=a;number=7"), known);
        assert_eq!(ConnectionGeneration::parse("x-undercroft:line;v=1;new=1;number=7;id=a"), known);
    }

    #[test]
    fn what_is_no_lineage_selects_nothing() {
        for text in [
            "x-undercroft:line",
            "x-undercroft:line;id=a",
            "x-undercroft:line;number=7",
            "x-undercroft:line;v=2;id=a;number=7",
            "x-undercroft:line;id=+a;number=7",
            "x-undercroft:line;id=a;number=-7",
            "x-undercroft:line;id=a;number=7;loose",
            "x-undercroft:lines;id=a;number=7",
            "x-undercroft:line;id=100000000000000000000000000000000;number=7",
            "line;id=a;number=7",
        ] {
            assert_eq!(ConnectionGeneration::parse(text), None, "{text}");
        }
    }
}
