//! Hints of a load: one message in front of every few reads, in the format of a cooperating client,
//! to measure their cost. The blocks that they name are random.

use std::io;

use bytes::BytesMut;
use undercroft_hints::{BlockRun, EvictFlags, Grant, Hint};
use undercroft_nbd::Remote;
use undercroft_nbd::wire::{CMD_WRITE, RequestHeader};

use super::other;

/// A bit that no other request's cookie has.
const COOKIE: u64 = 1 << 63;

/// The mailbox of a connection.
pub(super) struct Mailbox {
    grant: Grant,
    /// Blocks in a message, and reads between two messages; 0: no message is sent.
    each: u32,
    /// Blocks of the volume.
    blocks: u64,
    /// What messages are padded to, in bytes.
    unit: usize,
    reads: u32,
    sequence: u32,
    /// Unanswered messages.
    open: u32,
    /// The last message and its runs, kept to reuse their memory.
    message: BytesMut,
    runs: Vec<BlockRun>,
}

impl Mailbox {
    /// The mailbox that a server agreed to. `size`: bytes of the volume.
    pub(super) fn new(remote: &Remote, each: u32, size: u64) -> io::Result<Mailbox> {
        let granted = remote.contexts.iter().find_map(|(_, name)| Grant::parse(name));
        let grant = granted.filter(|grant| grant.grant.evict);
        let grant = grant.ok_or_else(|| other("the server takes no hints of evictions"))?;
        let blocks = (size / u64::from(grant.block_bytes)).max(1);
        let unit = remote.info.min_block as usize;
        let (message, runs) = (BytesMut::new(), Vec::new());
        Ok(Mailbox { grant, each, blocks, unit, reads: 0, sequence: 0, open: 0, message, runs })
    }

    /// Call before a read is queued: puts a message in front of it if one is due.
    pub(super) fn before_read(&mut self, output: &mut Vec<u8>, mut random: impl FnMut() -> u64) {
        self.reads += 1;
        if self.each == 0 || self.reads < self.each {
            return;
        }
        self.reads = 0;
        let run = |_| BlockRun::new(random() % self.blocks, 1);
        let mut runs = std::mem::take(&mut self.runs);
        runs.clear();
        runs.extend((0..self.each).filter_map(run));
        let (sequence, flags) = (self.sequence, EvictFlags::default());
        self.sequence = sequence.wrapping_add(1);
        let message = &mut self.message;
        message.clear();
        let hint = Hint::Evict { age_us: 0, sequence, flags, runs };
        hint.put(message);
        if let Hint::Evict { runs, .. } = hint {
            self.runs = runs;
        }
        message.resize(message.len().next_multiple_of(self.unit), 0);
        let header = RequestHeader {
            flags: 0,
            command: CMD_WRITE,
            cookie: COOKIE | u64::from(sequence),
            offset: self.grant.window_base,
            length: message.len() as u64,
            payload_length: message.len() as u64,
        };
        output.extend_from_slice(&header.bytes());
        output.extend_from_slice(message);
        self.open += 1;
    }

    /// Whether this answers a message; if so, counts it.
    pub(super) fn finish(&mut self, cookie: u64) -> bool {
        let is_ours = cookie & COOKIE != 0 && self.open > 0;
        self.open -= u32::from(is_ours);
        is_ours
    }

    /// Whether every message was answered.
    pub(super) fn is_idle(&self) -> bool {
        self.open == 0
    }
}
