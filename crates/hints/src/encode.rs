//! Encodes hints as mailbox messages: the numbers of record types and flags, and the layout of each
//! record. `parse.rs` decodes. `docs/developer/hints.md` describes the format.

use bytes::{BufMut, BytesMut};

use crate::record::{BLOCKS_MAX, BlockRun, DIGEST_PART_BYTES, EvictFlags, Hint, MESSAGE_BYTES_MAX};
use crate::stat::{ClientStat, PolicyName, Tracking};

// 5, 11 and 12 were records of earlier versions: they are skipped, and not used again.
pub(crate) const EVICT: u16 = 1;
pub(crate) const DEMOTE: u16 = 2;
pub(crate) const PROMOTE: u16 = 3;
pub(crate) const HOLD: u16 = 4;
pub(crate) const DIGEST: u16 = 7;
pub(crate) const CLIENT_STAT: u16 = 8;
pub(crate) const CHANGES: u16 = 9;
pub(crate) const FOLLOW: u16 = 10;

/// Flag of the record of type 0 that ends what a server tells: there is more to read, and the
/// record gives the least length for it.
pub(crate) const MORE: u16 = 1;

pub(crate) const WAS_DIRTY: u16 = 1;
pub(crate) const LATE: u16 = 1 << 1;
pub(crate) const RIDES: u16 = 1 << 2;

impl EvictFlags {
    pub(crate) fn bits(self) -> u16 {
        let bit = |is_set, bit| if is_set { bit } else { 0 };
        bit(self.was_dirty, WAS_DIRTY) | bit(self.late, LATE) | bit(self.rides, RIDES)
    }

    pub(crate) fn from_bits(bits: u16) -> EvictFlags {
        let is_set = |bit| bits & bit != 0;
        EvictFlags { was_dirty: is_set(WAS_DIRTY), late: is_set(LATE), rides: is_set(RIDES) }
    }
}

impl Hint {
    /// Appends the record, with head and padding.
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

    /// Appends the payload; returns the type and flags for the head.
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
        }
    }
}

/// Ends what a server tells. `more`: the least number of bytes that the next read needs, or 0 if
/// nothing is left to tell.
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

/// Bytes in part `part` of a filter of `bits` bits, or `None` if the part begins behind the
/// filter's end.
pub(crate) fn digest_part_bytes(bits: u32, part: u16) -> Option<usize> {
    let all = bits.div_ceil(8) as usize;
    let rest = all.checked_sub(usize::from(part) * DIGEST_PART_BYTES)?;
    (rest > 0).then(|| rest.min(DIGEST_PART_BYTES))
}
