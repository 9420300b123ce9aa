//! Which client a connection belongs to: an id, and a key that only that client knows.

use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::BuildHasher;
use std::str::FromStr;

/// The identity of a client. All connections that give the same number belong to one client with
/// one cache. If the first connection gives a key, every further one must give the same key. The
/// text form is `<number>[:<key>]`, both in hexadecimal.
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
    /// The client's public number.
    pub number: u128,
    /// The client's secret. Without a key, anybody who knows the number can pass for the client.
    pub key: Option<u128>,
}

impl ClientId {
    /// A random number and a random key, unique for practical purposes.
    pub fn random() -> ClientId {
        // Every `RandomState` has random keys.
        let half = || u128::from(RandomState::new().hash_one(std::process::id()));
        let number = || half() << 64 | half();
        ClientId { number: number(), key: Some(number()) }
    }
}

/// A client id without a key.
impl From<u128> for ClientId {
    fn from(number: u128) -> ClientId {
        ClientId { number, key: None }
    }
}

/// The error of a text that is not a client id.
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

/// Does not print the key, so that it does not reach logs.
impl fmt::Debug for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClientId({:x}, {})", self.number, if self.key.is_some() { "key" } else { "-" })
    }
}

/// Accepts hexadecimal digits only: the standard library's parser would also accept a sign.
pub(crate) fn hex(text: &str) -> Option<&str> {
    text.bytes().all(|byte| byte.is_ascii_hexdigit()).then_some(text)
}
