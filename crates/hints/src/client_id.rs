//! Which client a connection belongs to: an id, and a key that only that client knows.

use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::BuildHasher;
use std::str::FromStr;

/// The name of a client: connections with the same number are those of one client with one cache.
/// Whoever opens the first one says the key that all others have to show. As text it is
/// `<hex>[:<hex>]`.
///
/// ```
/// use undercroft_hints::ClientId;
///
/// let id: ClientId = "a7:1f".parse().unwrap();
/// assert_eq!((id.number, id.key), (0xa7, Some(0x1f)));
/// assert!("a7:".parse::<ClientId>().is_err());
/// ```
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

/// Digits alone: the standard library's numbers may have a sign.
pub(crate) fn hex(text: &str) -> Option<&str> {
    text.bytes().all(|byte| byte.is_ascii_hexdigit()).then_some(text)
}
