//! The metadata context by which a client asks to cooperate and a server agrees: its text form on
//! both sides. `docs/developer/hints.md` describes the format.
//!
//! Not here: the hints that are sent afterwards (`record.rs`), and which client is granted what.

use std::fmt;

use crate::client_id::{ClientId, hex};

/// The prefix of all contexts of this project; alone it is a wildcard, which lists and selects
/// nothing.
pub const NAMESPACE: &str = "x-undercroft:";

/// The context that opens the mailbox.
pub const NAME: &str = "x-undercroft:coop";

/// The version that this side speaks.
const VERSION: &str = "1";

/// Kinds of hints, each of which a client may ask for and a server grant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Abilities {
    /// EVICT.
    pub evict: bool,
    /// DEMOTE.
    pub demote: bool,
    /// PROMOTE.
    pub promote: bool,
    /// DIGEST.
    pub digest: bool,
    /// HOLD.
    pub hold: bool,
    /// CLIENT-STAT.
    pub stat: bool,
    /// FOLLOW: the server tells what it holds.
    pub follow: bool,
}

impl Abilities {
    /// Parses a comma-separated list; unknown names are skipped.
    pub fn parse(list: &str) -> Abilities {
        let mut abilities = Abilities::default();
        for name in list.split(',') {
            let known = abilities.fields_mut().into_iter().find(|(known, _)| *known == name);
            if let Some((_, has)) = known {
                *has = true;
            }
        }
        abilities
    }

    /// The abilities that both sides have.
    pub fn and(self, other: Abilities) -> Abilities {
        let mut both = self;
        for ((_, has), (_, too)) in both.fields_mut().into_iter().zip(other.fields()) {
            *has &= too;
        }
        both
    }

    fn fields(mut self) -> [(&'static str, bool); 7] {
        self.fields_mut().map(|(name, has)| (name, *has))
    }

    fn fields_mut(&mut self) -> [(&'static str, &mut bool); 7] {
        [
            ("evict", &mut self.evict),
            ("demote", &mut self.demote),
            ("promote", &mut self.promote),
            ("digest", &mut self.digest),
            ("hold", &mut self.hold),
            ("stat", &mut self.stat),
            ("follow", &mut self.follow),
        ]
    }
}

/// A comma-separated list of names.
impl fmt::Display for Abilities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for (name, _) in self.fields().into_iter().filter(|(_, has)| *has) {
            write!(f, "{separator}{name}")?;
            separator = ",";
        }
        Ok(())
    }
}

/// What a client asks for: `x-undercroft:coop;v=1;client=<hex>;key=<hex>;want=<list>`.
///
/// ```
/// use undercroft_hints::{Abilities, Query};
///
/// let want = Abilities { evict: true, stat: true, ..Abilities::default() };
/// let query = Query { client: None, want };
/// assert_eq!(query.to_string(), "x-undercroft:coop;v=1;want=evict,stat");
/// assert_eq!(Query::parse(&query.to_string()), Some(query));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Query {
    /// The client that the connection belongs to. All connections without an id count as one
    /// client.
    pub client: Option<ClientId>,
    /// The kinds of hints that the client wants to send.
    pub want: Abilities,
}

impl Query {
    /// Returns `None` for another context, an unknown version, or malformed text. Unknown
    /// parameters are skipped.
    pub fn parse(query: &str) -> Option<Query> {
        let (mut number, mut key, mut want) = (None, None, Abilities::default());
        for (name, value) in parameters(query)? {
            match name {
                "client" => number = Some(u128::from_str_radix(hex(value)?, 16).ok()?),
                "key" => key = Some(u128::from_str_radix(hex(value)?, 16).ok()?),
                "want" => want = Abilities::parse(value),
                _ => {}
            }
        }
        Some(Query { client: number.map(|number| ClientId { number, key }), want })
    }
}

impl fmt::Display for Query {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{NAME};v={VERSION}")?;
        if let Some(ClientId { number, key }) = self.client {
            write!(f, ";client={number:032x}")?;
            key.map_or(Ok(()), |key| write!(f, ";key={key:032x}"))?;
        }
        write!(f, ";want={}", self.want)
    }
}

/// What a server agrees to:
/// `x-undercroft:coop;v=1;epoch=<hex>;block=<bytes>;window=<base>+<length>;grant=<list>`, and, if
/// the client may follow, `;news=<base>+<length>`.
///
/// ```
/// use undercroft_hints::Grant;
///
/// let context = "x-undercroft:coop;v=1;epoch=1;block=4096;window=1048576+1048576;grant=evict";
/// let grant = Grant::parse(context).unwrap();
/// assert_eq!((grant.block_bytes, grant.window_base), (4096, 1 << 20));
/// assert!(grant.grant.evict && !grant.grant.demote);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Changes whenever the server has forgotten what clients told it.
    pub epoch: u64,
    /// Bytes of a block, a power of two. Hints count in these blocks.
    pub block_bytes: u32,
    /// First byte of the window.
    pub window_base: u64,
    /// Length of the window in bytes.
    pub window_bytes: u64,
    /// First byte and length of the region in which the server tells what it holds, if it does.
    pub news: Option<(u64, u64)>,
    /// The kinds of hints that the server accepts.
    pub grant: Abilities,
}

impl Grant {
    /// Returns `None` for another context, an unknown version, or malformed text. Unknown
    /// parameters are skipped.
    pub fn parse(context: &str) -> Option<Grant> {
        let (mut epoch, mut block, mut window, mut news) = (None, None, None, None);
        let mut grant = Abilities::default();
        for (name, value) in parameters(context)? {
            match name {
                "epoch" => epoch = Some(u64::from_str_radix(hex(value)?, 16).ok()?),
                "block" => block = Some(decimal(value)?),
                "window" => window = Some(region(value)?),
                "news" => news = Some(region(value)?),
                "grant" => grant = Abilities::parse(value),
                _ => {}
            }
        }
        let (window_base, window_bytes) = window?;
        let block_bytes = u32::try_from(block?).ok().filter(|bytes| bytes.is_power_of_two())?;
        Some(Grant { epoch: epoch?, block_bytes, window_base, window_bytes, news, grant })
    }
}

impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Grant { epoch, block_bytes, window_base, window_bytes, news, grant } = self;
        write!(f, "{NAME};v={VERSION};epoch={epoch:x};block={block_bytes}")?;
        write!(f, ";window={window_base}+{window_bytes};grant={grant}")?;
        match news {
            Some((base, bytes)) => write!(f, ";news={base}+{bytes}"),
            None => Ok(()),
        }
    }
}

/// BLOCK_STATUS on a control export answers the context with this bit if contents that the client
/// hands over are of use at present.
pub const WANTS_CONTENTS: u32 = 1;

/// The parameters (name, value) of our context, or `None` if the context is another or of an
/// unknown version. Text without a version counts as version 1.
fn parameters(text: &str) -> Option<impl Iterator<Item = (&str, &str)>> {
    let rest = text.strip_prefix(NAME)?;
    let rest = if rest.is_empty() { rest } else { rest.strip_prefix(';')? };
    let pairs = rest.split(';').map(|part| part.split_once('=').unwrap_or((part, "")));
    let known = pairs.clone().all(|(name, value)| name != "v" || value == VERSION);
    known.then_some(pairs)
}

/// Parses first byte and length of a region; `None` if its end would exceed 64 bits.
fn region(text: &str) -> Option<(u64, u64)> {
    let (base, length) = text.split_once('+')?;
    let (base, length) = (decimal(base)?, decimal(length)?);
    base.checked_add(length).map(|_| (base, length))
}

/// Accepts decimal digits only: the standard library's parser would also accept a sign.
fn decimal(text: &str) -> Option<u64> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    if digits { text.parse().ok() } else { None }
}
