//! Decodes a mailbox message: all of it or nothing.
//!
//! Memory is bounded by the message's length: at most 8 bytes for each byte of it. Data are slices
//! of the message.

use std::slice::ChunksExact;

use bytes::Bytes;

use crate::encode::{
    CHANGES, CLIENT_STAT, DEMOTE, DIGEST, EVICT, FOLLOW, HOLD, MORE, PROMOTE, RIDES,
    digest_part_bytes,
};
use crate::record::{BLOCKS_MAX, BlockRun, EvictFlags, Follow, Following, Hint, MESSAGE_BYTES_MAX};
use crate::stat::{ClientStat, POLICY_BYTES, PolicyName, Tracking};

/// Bytes of a record's head, and what records are padded to.
const HEAD: usize = 8;

/// The error of a malformed message. All of the message is ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("byte {byte} of a message of hints: {what}")]
pub struct Malformed {
    /// Offset from the message's start.
    pub byte: usize,
    /// What is wrong there.
    pub what: &'static str,
}

/// Decodes the hints of a message, in order. Records of unknown types are skipped; a record of type
/// 0 ends the message.
///
/// # Errors
/// The first record that violates the format. No hint of the message counts then.
pub fn parse(message: &Bytes) -> Result<Vec<Hint>, Malformed> {
    if message.len() > MESSAGE_BYTES_MAX {
        return Err(Malformed {
            byte: MESSAGE_BYTES_MAX,
            what: "the message is longer than 1 MiB",
        });
    }
    // Counts first, so that the list is allocated at its exact size.
    let count = records(message).try_fold(0, |count, record| record.map(|_| count + 1))?;
    let mut hints = Vec::with_capacity(count);
    for record in records(message) {
        let Record { kind, flags, payload } = record?;
        hints.extend(hint(kind, flags, payload)?);
    }
    Ok(hints)
}

/// Decodes a message that consists of one EVICT record, as most messages of clients do, without
/// allocation. Returns `None` for any other message; use [`parse`] for those, and to learn what is
/// wrong.
pub fn parse_evictions(message: &Bytes) -> Option<Evictions<'_>> {
    if message.len() > MESSAGE_BYTES_MAX {
        return None;
    }
    let Record { kind, flags, mut payload } = next_record(message, 0).ok()??;
    let behind = payload.end.next_multiple_of(HEAD);
    if kind != EVICT || next_record(message, behind).ok()?.is_some() {
        return None;
    }
    let (age_us, sequence) = (payload.u32().ok()?, payload.u32().ok()?);
    let (flags, words) = (EvictFlags::from_bits(flags), payload.words().ok()?);
    Some(Evictions { age_us, sequence, flags, words })
}

/// One EVICT record, borrowed from the message; see [`Hint::Evict`].
#[derive(Clone, Debug)]
pub struct Evictions<'a> {
    /// Microseconds from the oldest eviction to the sending, rounded up.
    pub age_us: u32,
    /// The client's number of the record.
    pub sequence: u32,
    /// How the blocks left.
    pub flags: EvictFlags,
    words: ChunksExact<'a, u8>,
}

impl Evictions<'_> {
    /// The blocks, in order.
    #[inline]
    pub fn runs(&self) -> impl ExactSizeIterator<Item = BlockRun> + '_ {
        self.words.clone().map(run)
    }
}

/// What a server told of its cache.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Told {
    /// The records, in order.
    pub hints: Vec<Hint>,
    /// Bytes of the records. The rest of what was read is padding.
    pub bytes: usize,
    /// Bytes that the next read needs at least; 0 if nothing is left to tell.
    pub more: u32,
}

/// Decodes what a server tells of its cache.
///
/// # Errors
/// As for [`parse`].
pub fn parse_told(message: &Bytes) -> Result<Told, Malformed> {
    let hints = parse(message)?;
    let bytes = records(message)
        .filter_map(Result::ok)
        .map(|record| record.payload.end.next_multiple_of(HEAD))
        .last()
        .unwrap_or(0);
    let mut end = Reader { message, at: bytes.min(message.len()), end: message.len() };
    let more = match (end.u16(), end.u16(), end.u32()) {
        (Ok(0), Ok(flags), Ok(more)) if flags & MORE != 0 => more.min(MESSAGE_BYTES_MAX as u32),
        _ => 0,
    };
    Ok(Told { hints, bytes, more })
}

struct Record<'a> {
    kind: u16,
    flags: u16,
    payload: Reader<'a>,
}

/// Iterates over the records until the message ends or is malformed.
fn records(message: &Bytes) -> impl Iterator<Item = Result<Record<'_>, Malformed>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let record = next_record(message, at).transpose()?;
        at = match &record {
            Ok(record) => record.payload.end.next_multiple_of(HEAD),
            Err(_) => message.len(),
        };
        Some(record)
    })
}

fn next_record(message: &Bytes, start: usize) -> Result<Option<Record<'_>>, Malformed> {
    if start >= message.len() {
        return Ok(None);
    }
    let mut head = Reader { message, at: start, end: message.len() };
    let cut = |_| Malformed { byte: start, what: "the message ends within the head of a record" };
    let (kind, flags) = (head.u16().map_err(cut)?, head.u16().map_err(cut)?);
    let length = head.u32().map_err(cut)? as usize;
    if kind == 0 {
        return Ok(None);
    }
    let (at, rest) = (head.at, head.end - head.at);
    if length.checked_next_multiple_of(HEAD).is_none_or(|padded| padded > rest) {
        return Err(Malformed { byte: start, what: "a record is longer than the message" });
    }
    let payload = Reader { message, at, end: at + length };
    Ok(Some(Record { kind, flags, payload }))
}

/// Decodes a record; `None` if its type is unknown.
fn hint(kind: u16, flags: u16, mut payload: Reader<'_>) -> Result<Option<Hint>, Malformed> {
    let reader = &mut payload;
    let hint = match kind {
        EVICT => Hint::Evict {
            age_us: reader.u32()?,
            sequence: reader.u32()?,
            flags: EvictFlags::from_bits(flags),
            runs: reader.runs()?,
        },
        DEMOTE => demote(flags, reader)?,
        PROMOTE => Hint::Promote(reader.runs()?),
        HOLD => Hint::Hold(reader.runs()?),
        DIGEST => digest(reader)?,
        CLIENT_STAT => Hint::ClientStat(Box::new(client_stat(reader)?)),
        CHANGES => changes(reader)?,
        FOLLOW => follow(reader)?,
        _ => return Ok(None),
    };
    Ok(Some(hint))
}

fn demote(flags: u16, reader: &mut Reader<'_>) -> Result<Hint, Malformed> {
    let block = reader.block()?;
    reader.u64()?;
    let start = reader.at;
    let data = reader.rest();
    if data.is_empty() {
        return Err(Malformed { byte: start, what: "a block is handed over without data" });
    }
    Ok(Hint::Demote { block, rides: flags & RIDES != 0, data })
}

fn digest(reader: &mut Reader<'_>) -> Result<Hint, Malformed> {
    let start = reader.at;
    let wrong = |what| Malformed { byte: start, what };
    let bits = reader.u32()?;
    let [hashes, seed] = reader.array()?;
    let (part, filter) = (reader.u16()?, reader.rest());
    if bits == 0 || hashes == 0 {
        return Err(wrong("a Bloom filter without bits or without hash functions"));
    }
    if digest_part_bytes(bits, part) != Some(filter.len()) {
        return Err(wrong(
            "the length of this part of a Bloom filter is not that which its bits say",
        ));
    }
    Ok(Hint::Digest { bits, hashes, seed, part, filter })
}

fn changes(reader: &mut Reader<'_>) -> Result<Hint, Malformed> {
    let start = reader.at;
    let bits = reader.u32()?;
    let [hashes, seed, _, _] = reader.array()?;
    let (sequence, positions) = (reader.u32()?, reader.rest());
    if bits == 0 || hashes == 0 {
        let what = "a Bloom filter without bits or without hash functions";
        return Err(Malformed { byte: start, what });
    }
    Ok(Hint::Changes { bits, hashes, seed, sequence, positions })
}

/// A later version may append fields, so a longer record is accepted.
fn follow(reader: &mut Reader<'_>) -> Result<Hint, Malformed> {
    let start = reader.at;
    let [what, filter_bits, hashes, _] = reader.array()?;
    let (publish_ppm, capacity_blocks) = (reader.u32()?, reader.u64()?);
    let what = match what {
        0 => Following::Nothing,
        1 => Following::Blocks,
        2 => Following::Digest,
        _ => return Err(Malformed { byte: start, what: "an unknown way to follow" }),
    };
    Ok(Hint::Follow(Follow { what, filter_bits, hashes, publish_ppm, capacity_blocks }))
}

/// Bytes that a tracker appends to the client's counters.
const TRACKING_BYTES: usize = 32;

/// A later version may append fields, so a longer record is accepted.
fn client_stat(reader: &mut Reader<'_>) -> Result<ClientStat, Malformed> {
    Ok(ClientStat {
        reads: reader.u64()?,
        read_hits: reader.u64()?,
        writes: reader.u64()?,
        write_hits: reader.u64()?,
        evictions: reader.u64()?,
        capacity_blocks: reader.u64()?,
        read_us_total: reader.u64()?,
        tracking: if reader.end - reader.at < TRACKING_BYTES {
            None
        } else {
            Some(tracking(reader)?)
        },
        policy: if reader.end - reader.at < POLICY_BYTES {
            PolicyName::default()
        } else {
            PolicyName(reader.array()?)
        },
    })
}

fn tracking(reader: &mut Reader<'_>) -> Result<Tracking, Malformed> {
    Ok(Tracking {
        late_evictions: reader.u64()?,
        untold_evictions: reader.u64()?,
        precision_ppm: reader.u64()?,
        recall_ppm: reader.u64()?,
    })
}

/// Reads big-endian numbers from a part of the message, never beyond its end.
struct Reader<'a> {
    message: &'a Bytes,
    at: usize,
    end: usize,
}

/// Decodes a run from a word of 8 bytes.
#[inline]
fn run(word: &[u8]) -> BlockRun {
    BlockRun::from_word(u64::from_be_bytes(word.try_into().expect("8 bytes")))
}

impl<'a> Reader<'a> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let bytes = self.message[self.at..self.end].first_chunk();
        let what = "a record is too short for its type";
        let bytes = bytes.ok_or(Malformed { byte: self.at, what })?;
        self.at += N;
        Ok(*bytes)
    }

    fn u16(&mut self) -> Result<u16, Malformed> {
        Ok(u16::from_be_bytes(self.array()?))
    }

    fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    fn u64(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_be_bytes(self.array()?))
    }

    fn block(&mut self) -> Result<u64, Malformed> {
        let (byte, block) = (self.at, self.u64()?);
        let what = "a block number of more than 48 bits";
        if block < BLOCKS_MAX { Ok(block) } else { Err(Malformed { byte, what }) }
    }

    /// The words up to the end.
    fn words(&mut self) -> Result<ChunksExact<'a, u8>, Malformed> {
        let words = self.message[self.at..self.end].chunks_exact(8);
        if !words.remainder().is_empty() {
            let byte = self.end - words.remainder().len();
            return Err(Malformed { byte, what: "a list of blocks is not in words of 8 bytes" });
        }
        self.at = self.end;
        Ok(words)
    }

    /// The runs up to the end.
    fn runs(&mut self) -> Result<Vec<BlockRun>, Malformed> {
        Ok(self.words()?.map(run).collect())
    }

    /// The rest, as a slice of the message.
    fn rest(&mut self) -> Bytes {
        let rest = self.message.slice(self.at..self.end);
        self.at = self.end;
        rest
    }
}
