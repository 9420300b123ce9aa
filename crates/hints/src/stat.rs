//! The counters that a client reports about its cache: CLIENT-STAT.

/// What a client counted since it connected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientStat {
    /// Blocks read by the client's users.
    pub reads: u64,
    /// Those of them that were in the client's cache.
    pub read_hits: u64,
    /// Blocks written by the client's users.
    pub writes: u64,
    /// Those of them that were in the client's cache.
    pub write_hits: u64,
    /// Blocks that replacement evicted.
    pub evictions: u64,
    /// Capacity of the cache in blocks.
    pub capacity_blocks: u64,
    /// Total time of all reads by its users, in microseconds.
    pub read_us_total: u64,
    /// Present if the client's cache is observed from outside (by a tracker).
    pub tracking: Option<Tracking>,
    /// The policy of its cache.
    pub policy: PolicyName,
}

/// Bytes of a policy's name.
pub(crate) const POLICY_BYTES: usize = 24;

/// The name of a policy as a client reports it, without parameters; empty if unknown.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct PolicyName(pub(crate) [u8; POLICY_BYTES]);

impl PolicyName {
    /// Makes a name; bytes beyond the 24th are cut off.
    pub fn new(name: &str) -> PolicyName {
        let mut bytes = [0; POLICY_BYTES];
        bytes.iter_mut().zip(name.bytes()).for_each(|(to, from)| *to = from);
        PolicyName(bytes)
    }

    /// The name, up to the first byte that is not allowed in names.
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

/// How well a tracker knows the cache that it observes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tracking {
    /// Evictions noticed only when the block was read again; not counted in
    /// [`ClientStat::evictions`].
    pub late_evictions: u64,
    /// Evictions noticed but not sent: the queue was full, or no server was connected.
    pub untold_evictions: u64,
    /// At the last comparison with the real cache: the share of the blocks believed cached that
    /// really were, in millionths; 0 if no comparison was made.
    pub precision_ppm: u64,
    /// At that comparison: the share of the blocks really cached that were known, in millionths.
    pub recall_ppm: u64,
}
