//! The counters that a client reports of its cache: CLIENT-STAT.

/// What a client counted since it connected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientStat {
    /// Blocks read by its users.
    pub reads: u64,
    /// Those of them that it had.
    pub read_hits: u64,
    /// Blocks written by its users.
    pub writes: u64,
    /// Those of them that it had.
    pub write_hits: u64,
    /// Blocks that its replacement drove out.
    pub evictions: u64,
    /// Blocks that it holds at most.
    pub capacity_blocks: u64,
    /// Time that all reads of its users took together, in microseconds.
    pub read_us_total: u64,
    /// Present if the client does not know its cache, but is watched from outside.
    pub tracking: Option<Tracking>,
    /// The policy of its cache.
    pub policy: PolicyName,
}

/// Bytes of a policy's name.
pub(crate) const POLICY_BYTES: usize = 24;

/// The name of a policy as a client says it, without parameters; empty if it says none.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct PolicyName(pub(crate) [u8; POLICY_BYTES]);

impl PolicyName {
    /// A name. What is beyond 24 bytes is cut off.
    pub fn new(name: &str) -> PolicyName {
        let mut bytes = [0; POLICY_BYTES];
        bytes.iter_mut().zip(name.bytes()).for_each(|(to, from)| *to = from);
        PolicyName(bytes)
    }

    /// The name, up to the first byte that can be in none.
    pub fn as_str(&self) -> &str {
        let is_of_name = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'-';
        let length = self.0.iter().take_while(|byte| is_of_name(byte)).count();
        std::str::from_utf8(&self.0[..length]).unwrap_or_default()
    }
}

impl std::fmt::Debug for PolicyName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.as_str())
    }
}

/// How well a tracker knows the cache that it watches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tracking {
    /// Evictions that it noticed only when the block was read again; not among
    /// [`ClientStat::evictions`].
    pub late_evictions: u64,
    /// Evictions that it noticed and could not tell: its queue was full, or there was no server.
    pub untold_evictions: u64,
    /// Of what it believed to be in the cache at the last comparison with the cache itself, the
    /// share that was, in millionths; 0 if they were never compared.
    pub precision_ppm: u64,
    /// Of what was in the cache then, the share that it knew of, in millionths.
    pub recall_ppm: u64,
}
