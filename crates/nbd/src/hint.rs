//! What a cooperating client tells a server of its cache: the records of a mailbox message, from
//! types into bytes. Back again: `hint/parse.rs`. The format is described in
//! `docs/developer/hints.md`.
//!
//! Not here: how a session comes to have a mailbox (`coop.rs`), what a server does about a hint.

mod digest;
mod level;
mod parse;

use std::ops::Range;

use bytes::{BufMut, Bytes, BytesMut};

pub use digest::{Assembly, Body, Summary};
pub use level::{Asked, Moves, Passed, Verdict};
pub use parse::{Evictions, Malformed, Told, parse, parse_evictions, parse_told};

/// Most bytes of a message. A server's window is no smaller.
pub const MESSAGE_BYTES_MAX: usize = 1 << 20;

/// Bytes of a Bloom filter that go in one record; the last part of a filter has what is left.
pub const DIGEST_PART_BYTES: usize = 64 << 10;

/// What block numbers are below.
pub const BLOCKS_MAX: u64 = 1 << 48;

const EVICT: u16 = 1;
const DEMOTE: u16 = 2;
const PROMOTE: u16 = 3;
const HOLD: u16 = 4;
const FREQUENCY: u16 = 5;
const DIGEST: u16 = 7;
const CLIENT_STAT: u16 = 8;
const CHANGES: u16 = 9;
const FOLLOW: u16 = 10;
const ASK: u16 = 11;
const PASS: u16 = 12;

/// Flag of the type 0 that ends what a server tells: there is more, and this long at least.
const MORE: u16 = 1;

const WAS_DIRTY: u16 = 1;
const LATE: u16 = 1 << 1;
const RIDES: u16 = 1 << 2;

/// Consecutive blocks, 1 to 65,536 of them, the first below 2^48.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRun {
    first: u64,
    count: u32,
}

impl BlockRun {
    /// Most blocks of a run.
    pub const COUNT_MAX: u32 = 1 << 16;

    /// `count` blocks from `first` on; none if either is out of its range.
    pub fn new(first: u64, count: u32) -> Option<BlockRun> {
        let fits = first < BLOCKS_MAX && (1..=Self::COUNT_MAX).contains(&count);
        fits.then_some(BlockRun { first, count })
    }

    /// The first block.
    #[inline]
    pub fn first(self) -> u64 {
        self.first
    }

    /// Number of blocks.
    #[inline]
    pub fn count(self) -> u32 {
        self.count
    }

    /// The blocks.
    #[inline]
    pub fn blocks(self) -> Range<u64> {
        self.first..self.first + u64::from(self.count)
    }

    fn word(self) -> u64 {
        self.first << 16 | u64::from(self.count - 1)
    }

    #[inline]
    fn from_word(word: u64) -> BlockRun {
        BlockRun { first: word >> 16, count: (word & 0xffff) as u32 + 1 }
    }
}

/// How blocks left a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EvictFlags {
    /// The client wrote the blocks to the server because it was about to drop them.
    pub was_dirty: bool,
    /// The client noticed so late that it has asked for the blocks again, or may have.
    pub late: bool,
    /// The request that follows on this connection drove the blocks out. The server serves that
    /// request first and places them then.
    pub rides: bool,
}

impl EvictFlags {
    fn bits(self) -> u16 {
        let bit = |is_set, bit| if is_set { bit } else { 0 };
        bit(self.was_dirty, WAS_DIRTY) | bit(self.late, LATE) | bit(self.rides, RIDES)
    }

    fn from_bits(bits: u16) -> EvictFlags {
        let is_set = |bit| bits & bit != 0;
        EvictFlags { was_dirty: is_set(WAS_DIRTY), late: is_set(LATE), rides: is_set(RIDES) }
    }
}

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
const POLICY_BYTES: usize = 24;

/// The name of a policy as a client says it, without parameters; empty if it says none.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct PolicyName([u8; POLICY_BYTES]);

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

/// One record.
#[derive(Clone, Debug, PartialEq)]
pub enum Hint {
    /// The client dropped these blocks, in this order.
    Evict {
        /// Microseconds from the eviction to the sending, rounded up; of several evictions, those
        /// of the oldest. So a hint never looks fresher than it is: a server ignores it for blocks
        /// that were read after now - age, and what it errs in costs a hit, no wrong placement.
        age_us: u32,
        /// Number of the record among those of the client, wrapping around: gaps show losses.
        sequence: u32,
        /// How they left.
        flags: EvictFlags,
        /// Which.
        runs: Vec<BlockRun>,
    },
    /// The client dropped a clean block, and hands its data over.
    Demote {
        /// The block, below 2^48.
        block: u64,
        /// As [`EvictFlags::rides`].
        rides: bool,
        /// All of its bytes.
        data: Bytes,
    },
    /// The client will want these soon.
    Promote(Vec<BlockRun>),
    /// The client keeps these.
    Hold(Vec<BlockRun>),
    /// How the client used the blocks of a run.
    Frequency {
        /// The blocks.
        run: BlockRun,
        /// Hits on each in the client's cache since it came there.
        hits: u32,
        /// References of the client between the last two of the block.
        last_idle: u32,
        /// Of a block that goes down with the DEMOTE that follows: how it moved between levels.
        moves: Option<Moves>,
    },
    /// A part of a Bloom filter of the blocks that the client has.
    Digest {
        /// Bits of the whole filter (m), at least 1.
        bits: u32,
        /// Hash functions (k), at least 1.
        hashes: u8,
        /// What they begin with.
        seed: u8,
        /// The part's number: it begins at this many times [`DIGEST_PART_BYTES`].
        part: u16,
        /// [`DIGEST_PART_BYTES`] of the filter, or what is left of it.
        filter: Bytes,
    },
    /// The client's counters.
    ClientStat(Box<ClientStat>),
    /// What has changed in a Bloom filter; without positions, the number of the filter whose parts
    /// came before.
    Changes {
        /// As in [`Hint::Digest`].
        bits: u32,
        /// As in [`Hint::Digest`].
        hashes: u8,
        /// As in [`Hint::Digest`].
        seed: u8,
        /// One more for each publication; gaps show losses.
        sequence: u32,
        /// The positions of the bits that are not what they were, ascending: the first, and from
        /// each to the next the distance less one, as LEB128.
        positions: Bytes,
    },
    /// The client wants to know what the server holds, from now on; or, said by the server, what
    /// it told before is no longer to be relied on.
    Follow(Follow),
    /// What a level of a scheme says of the request for a block that follows.
    Ask(Asked),
    /// What a level of a scheme answers, of a block: from a server to its client.
    Pass(Passed),
}

/// How a client wants to know what the server holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Follow {
    /// In which form.
    pub what: Following,
    /// Bits of the filter, times the server's capacity in blocks.
    pub filter_bits: u8,
    /// Its hash functions.
    pub hashes: u8,
    /// Blocks that come or go between two publications, in millionths of the server's capacity.
    pub publish_ppm: u32,
    /// Blocks that the client itself holds at most.
    pub capacity_blocks: u64,
}

/// In which form a client is told what the server holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Following {
    /// Not at all.
    #[default]
    Nothing,
    /// Each block that comes or goes: HOLD and EVICT.
    Blocks,
    /// A Bloom filter and its changes: DIGEST and CHANGES.
    Digest,
}

impl Hint {
    /// Bytes of data in it, beside its numbers.
    pub fn data_bytes(&self) -> usize {
        match self {
            Hint::Demote { data, .. } => data.len(),
            Hint::Digest { filter, .. } => filter.len(),
            Hint::Changes { positions, .. } => positions.len(),
            _ => 0,
        }
    }

    /// Appends the record.
    pub fn put(&self, out: &mut BytesMut) {
        let start = out.len();
        out.put_u64(0);
        let (kind, flags) = self.put_payload(out);
        let length = out.len() - start - 8;
        debug_assert!(length <= MESSAGE_BYTES_MAX, "a record of {length} bytes");
        let head = u64::from(kind) << 48 | u64::from(flags) << 32 | length as u64;
        out[start..start + 8].copy_from_slice(&head.to_be_bytes());
        out.put_bytes(0, length.next_multiple_of(8) - length);
    }

    /// Appends what comes after the head; gives the type and flags for it.
    fn put_payload(&self, out: &mut BytesMut) -> (u16, u16) {
        match self {
            Hint::Evict { age_us, sequence, flags, runs } => {
                out.put_u32(*age_us);
                out.put_u32(*sequence);
                put_runs(out, runs);
                (EVICT, flags.bits())
            }
            Hint::Demote { block, rides, data } => {
                debug_assert!(*block < BLOCKS_MAX && !data.is_empty());
                out.put_u64(*block);
                out.put_u64(0);
                out.extend_from_slice(data);
                (DEMOTE, if *rides { RIDES } else { 0 })
            }
            Hint::Promote(runs) => {
                put_runs(out, runs);
                (PROMOTE, 0)
            }
            Hint::Hold(runs) => {
                put_runs(out, runs);
                (HOLD, 0)
            }
            Hint::Frequency { run, hits, last_idle, moves } => {
                out.put_u64(run.word());
                out.put_u32(*hits);
                out.put_u32(*last_idle);
                moves.iter().for_each(|moves| moves.put(out));
                (FREQUENCY, 0)
            }
            Hint::Digest { bits, hashes, seed, part, filter } => {
                debug_assert_eq!(Some(filter.len()), digest_part_bytes(*bits, *part));
                out.put_u32(*bits);
                out.put_u8(*hashes);
                out.put_u8(*seed);
                out.put_u16(*part);
                out.extend_from_slice(filter);
                (DIGEST, 0)
            }
            Hint::ClientStat(stat) => {
                put_stat(out, stat);
                (CLIENT_STAT, 0)
            }
            Hint::Changes { bits, hashes, seed, sequence, positions } => {
                out.put_u32(*bits);
                out.put_u8(*hashes);
                out.put_u8(*seed);
                out.put_u16(0);
                out.put_u32(*sequence);
                out.extend_from_slice(positions);
                (CHANGES, 0)
            }
            Hint::Follow(follow) => {
                out.put_u8(follow.what as u8);
                out.put_u8(follow.filter_bits);
                out.put_u8(follow.hashes);
                out.put_u8(0);
                out.put_u32(follow.publish_ppm);
                out.put_u64(follow.capacity_blocks);
                (FOLLOW, 0)
            }
            Hint::Ask(asked) => {
                asked.put(out);
                (ASK, 0)
            }
            Hint::Pass(passed) => {
                passed.put(out);
                (PASS, 0)
            }
        }
    }
}

/// Ends what a server tells: `more` bytes at least are needed for what comes next, 0 if there is
/// nothing.
pub fn put_end(out: &mut BytesMut, more: u32) {
    out.put_u16(0);
    out.put_u16(if more > 0 { MORE } else { 0 });
    out.put_u32(more);
}

fn put_runs(out: &mut BytesMut, runs: &[BlockRun]) {
    runs.iter().for_each(|run| out.put_u64(run.word()));
}

fn put_stat(out: &mut BytesMut, stat: &ClientStat) {
    let ClientStat {
        reads,
        read_hits,
        writes,
        write_hits,
        evictions,
        capacity_blocks,
        read_us_total,
        tracking,
        policy,
    } = *stat;
    for field in [reads, read_hits, writes, write_hits, evictions, capacity_blocks, read_us_total] {
        out.put_u64(field);
    }
    if let Some(tracking) = tracking {
        let Tracking { late_evictions, untold_evictions, precision_ppm, recall_ppm } = tracking;
        for field in [late_evictions, untold_evictions, precision_ppm, recall_ppm] {
            out.put_u64(field);
        }
    }
    if policy != PolicyName::default() {
        out.put_slice(&policy.0);
    }
}

/// Bytes of a part of a filter of so many bits; none if it begins behind the filter's end.
fn digest_part_bytes(bits: u32, part: u16) -> Option<usize> {
    let all = bits.div_ceil(8) as usize;
    let rest = all.checked_sub(usize::from(part) * DIGEST_PART_BYTES)?;
    (rest > 0).then(|| rest.min(DIGEST_PART_BYTES))
}
