//! Evictions that a client told of together with requests. They are noted as their messages come,
//! and acted on all at once when the batch ends, in front of its first request: with one lock, and
//! with the processor's waits for memory overlapped over all of them.
//!
//! The order of events is that in which messages and requests came, as if each message were acted
//! on at once: the requests of a batch are looked up when it ends. Whoever wants to know what is
//! here before that has the volume act first. If a batch breaks off, since the connection does,
//! what is noted is lost, as its requests are.

use std::sync::Arc;

use undercroft_nbd::hint::{BlockRun, Evictions};

use crate::clients::Caller;
use crate::clock;
use crate::cooperation::{Gone, Word};
use crate::counters::CooperationStats;
use crate::volume::{Volume, Work};

/// Most blocks that are noted: the memory of a connection. Messages of more are acted on at once.
const BLOCKS_MAX: usize = 256;

/// What one client told.
#[derive(Default)]
pub(crate) struct Told {
    gone: Vec<Gone>,
    client: u8,
    /// When the first message came: what the others tell may look older than it is.
    arrived_us: u64,
    messages: u64,
    bytes: u64,
    /// Blocks that were named beyond the volume's end.
    ignored: u64,
}

impl Told {
    /// Whether there is nothing to act on.
    pub(crate) fn is_empty(&self) -> bool {
        self.messages == 0
    }

    /// Notes a message of so many bytes; or says that it must be acted on in its turn, and notes
    /// nothing.
    pub(crate) fn note(
        &mut self,
        evictions: &Evictions<'_>,
        bytes: u64,
        caller: Caller,
        volume: &Volume,
    ) -> bool {
        if evictions.flags.late {
            return false;
        }
        if self.is_empty() {
            self.gone.reserve(BLOCKS_MAX);
            (self.client, self.arrived_us) = (caller.client, volume.micros(clock::now()));
        }
        let (before, end) = (self.gone.len(), volume.blocks());
        let evicted_us = self.arrived_us.saturating_sub(evictions.age_us.into());
        let count: u64 = evictions.runs().map(|run| u64::from(run.count())).sum();
        if self.gone.len() as u64 + count > BLOCKS_MAX as u64 {
            return false;
        }
        let gone = |block| Gone { block, evicted_us };
        let known = |run: BlockRun| run.first()..run.blocks().end.min(end);
        if count == evictions.runs().len() as u64 {
            // Most messages name blocks one by one.
            let firsts = evictions.runs().map(BlockRun::first);
            self.gone.extend(firsts.filter(|&block| block < end).map(gone));
        } else {
            self.gone.extend(evictions.runs().flat_map(known).map(gone));
        }
        let ignored = count - (self.gone.len() - before) as u64;
        self.messages += 1;
        self.bytes += bytes;
        self.ignored += ignored;
        true
    }
}

impl Volume {
    /// Acts on what was noted, and forgets it.
    pub(crate) fn act_on(self: &Arc<Self>, told: &mut Told, work: &mut Work<'_>) {
        let word =
            Word { client: told.client, arrived_us: told.arrived_us, connected: self.connected() };
        let count = CooperationStats {
            hints: told.gone.len() as u64,
            hint_messages: told.messages,
            hint_bytes: told.bytes,
            ignored_hints: told.ignored,
            ..CooperationStats::default()
        };
        self.evicted(&mut told.gone, word, work);
        work.nth_shard(0).0.count_cooperation(&count);
        (told.messages, told.bytes, told.ignored) = (0, 0, 0);
    }
}
