//! The metadata context by which a client asks to cooperate and a server agrees: its text, on
//! both sides. The format is described in `docs/developer/hints.md`.
//!
//! Not here: what is said then (`hint.rs`), and what a server grants to whom.

use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::BuildHasher;
use std::str::FromStr;

/// What all contexts of ours begin with; alone it is a wildcard, which lists and selects nothing.
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
    /// FREQ.
    pub freq: bool,
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
    /// Those of a list with commas; unknown ones are left out.
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

    /// Those that both have.
    pub fn and(self, other: Abilities) -> Abilities {
        let mut both = self;
        for ((_, has), (_, too)) in both.fields_mut().into_iter().zip(other.fields()) {
            *has &= too;
        }
        both
    }

    fn fields(mut self) -> [(&'static str, bool); 8] {
        self.fields_mut().map(|(name, has)| (name, *has))
    }

    fn fields_mut(&mut self) -> [(&'static str, &mut bool); 8] {
        [
            ("evict", &mut self.evict),
            ("demote", &mut self.demote),
            ("promote", &mut self.promote),
            ("freq", &mut self.freq),
            ("digest", &mut self.digest),
            ("hold", &mut self.hold),
            ("stat", &mut self.stat),
            ("follow", &mut self.follow),
        ]
    }
}

/// The list with commas.
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

/// The name of a client: connections with the same number are those of one client with one cache.
/// Whoever opens the first one says the key that all others have to show. As text it is
/// `<hex>[:<hex>]`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ClientId {
    /// What the client is called by.
    pub number: u128,
    /// What nobody else knows. Without it the number is as good as its secrecy.
    pub key: Option<u128>,
}

impl ClientId {
    /// One that no other client has, with a key.
    pub fn random() -> ClientId {
        // Its keys are random.
        let half = || u128::from(RandomState::new().hash_one(std::process::id()));
        let number = || half() << 64 | half();
        ClientId { number: number(), key: Some(number()) }
    }
}

/// Without a key.
impl From<u128> for ClientId {
    fn from(number: u128) -> ClientId {
        ClientId { number, key: None }
    }
}

/// A text is no client's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected up to 32 hexadecimal digits, and after a colon as many for the key")]
pub struct ClientIdError;

impl FromStr for ClientId {
    type Err = ClientIdError;

    fn from_str(text: &str) -> Result<ClientId, ClientIdError> {
        let number = |text| u128::from_str_radix(hex(text)?, 16).ok();
        let (name, key) = text.split_once(':').map_or((text, None), |(n, key)| (n, Some(key)));
        let key = key.map(|key| number(key).ok_or(ClientIdError)).transpose()?;
        Ok(ClientId { number: number(name).ok_or(ClientIdError)?, key })
    }
}

impl fmt::Display for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.number)?;
        self.key.map_or(Ok(()), |key| write!(f, ":{key:032x}"))
    }
}

/// The key is not for logs.
impl fmt::Debug for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClientId({:x}, {})", self.number, if self.key.is_some() { "key" } else { "-" })
    }
}

/// What a client asks for: `x-undercroft:coop;v=1;client=<hex>;key=<hex>;want=<list>`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Query {
    /// Whose connection it is; without it, that of the client that all without are.
    pub client: Option<ClientId>,
    /// Which hints it would send.
    pub want: Abilities,
}

impl Query {
    /// None if it is not our context, of a version that is not known here, or malformed. Unknown
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Another one whenever the server has forgotten what it was told.
    pub epoch: u64,
    /// Bytes of a block, a power of two: what the blocks of hints are counted in.
    pub block_bytes: u32,
    /// Where the window begins, in bytes.
    pub window_base: u64,
    /// Its length in bytes.
    pub window_bytes: u64,
    /// First byte and length of where the server tells what it holds, if it does.
    pub news: Option<(u64, u64)>,
    /// Which hints the server takes.
    pub grant: Abilities,
}

impl Grant {
    /// None if it is not our context, of a version that is not known here, or malformed. Unknown
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

/// What a server says besides that runs one level of a scheme of movement, in the same text:
/// `;scheme=<name and options>;below=<blocks>;answers=<base>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LevelGrant {
    /// The scheme with those of its options that are not at their default.
    pub scheme: String,
    /// Blocks of this level and those below it.
    pub blocks: u64,
    /// Where its answers are read, in bytes: three areas of [`ANSWER_AREA_BYTES`].
    pub answers_base: u64,
}

/// Bytes of an area of answers.
pub const ANSWER_AREA_BYTES: u64 = 1 << 20;

/// Number of areas of answers.
pub const ANSWER_AREAS: u64 = 3;

impl LevelGrant {
    /// None if the context says nothing of a level, or what makes no sense.
    pub fn parse(context: &str) -> Option<LevelGrant> {
        let (mut scheme, mut blocks, mut base) = (None, None, None);
        for (name, value) in parameters(context)? {
            match name {
                "scheme" => scheme = Some(value.to_owned()),
                "below" => blocks = Some(decimal(value)?),
                "answers" => base = Some(decimal(value)?),
                _ => {}
            }
        }
        let answers_base = base?;
        u64::checked_add(answers_base, ANSWER_AREAS * ANSWER_AREA_BYTES)?;
        Some(LevelGrant { scheme: scheme?, blocks: blocks?, answers_base })
    }
}

/// To be appended to the text of a [`Grant`].
impl fmt::Display for LevelGrant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LevelGrant { scheme, blocks, answers_base } = self;
        write!(f, ";scheme={scheme};below={blocks};answers={answers_base}")
    }
}

/// Names and values of what follows the name of our context; none if it is another, or of another
/// version. Without a version it is the first.
fn parameters(text: &str) -> Option<impl Iterator<Item = (&str, &str)>> {
    let rest = text.strip_prefix(NAME)?;
    let rest = if rest.is_empty() { rest } else { rest.strip_prefix(';')? };
    let pairs = rest.split(';').map(|part| part.split_once('=').unwrap_or((part, "")));
    let known = pairs.clone().all(|(name, value)| name != "v" || value == VERSION);
    known.then_some(pairs)
}

/// First byte and length of a region, which has an end.
fn region(text: &str) -> Option<(u64, u64)> {
    let (base, length) = text.split_once('+')?;
    let (base, length) = (decimal(base)?, decimal(length)?);
    base.checked_add(length).map(|_| (base, length))
}

/// Digits alone: the standard library's numbers may have a sign.
fn hex(text: &str) -> Option<&str> {
    text.bytes().all(|byte| byte.is_ascii_hexdigit()).then_some(text)
}

fn decimal(text: &str) -> Option<u64> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    if digits { text.parse().ok() } else { None }
}
