//! What this cache tells a server below it that has a cache, too: which blocks leave, and which
//! return before that was told.
//!
//! A block leaves when replacement evicts it, or when a client evicted it and it gets no place
//! here. A block handed to a client by a read does not leave: a cache above still has it. A clean
//! block leaves with its data, if they are wanted. A dirty or active block leaves, without data,
//! when the store has its content and its operations are done.
//!
//! Everything is told under the lock of the shard. So the data of a block are passed on before
//! anything can change the block again, and the receiver can keep that order. A volume that has
//! been closed tells nothing more.
//!
//! Not here: how it is sent (`upstream/hint_sender.rs`).

use std::sync::Arc;

use bytes::Bytes;
use foldhash::fast::RandomState;
use hashbrown::HashMap;

use crate::eviction_sink::EvictionSink;
use crate::geometry::Geometry;
use crate::shard::event::{Event, Goes, Leaving};

/// Who is told, and what is still to be told.
pub(crate) struct Below {
    eviction_sink: Arc<dyn EvictionSink>,
    /// Blocks that were evicted while they were dirty or had operations, and whether they were
    /// dirty. They leave when that is over.
    departed: HashMap<u64, bool, RandomState>,
}

impl Below {
    pub(crate) fn new(eviction_sink: Arc<dyn EvictionSink>) -> Self {
        Self { eviction_sink, departed: HashMap::default() }
    }

    /// Checks that blocks which are still to leave have operations and no slot.
    pub(super) fn validate(&self, is_out: impl Fn(u64) -> bool) -> Result<(), String> {
        match self.departed.keys().find(|block| !is_out(**block)) {
            None => Ok(()),
            Some(block) => {
                Err(format!("block {block} is still to leave, and has a slot or nothing"))
            }
        }
    }

    #[inline(always)]
    pub(super) fn watch(&mut self, event: &Event<'_>, geometry: &Geometry) {
        let Self { eviction_sink, departed } = self;
        match *event {
            Event::Left { block, how, content, is_evicted: true, is_covered, .. } => match how {
                Leaving::Busy { is_dirty } => _ = departed.insert(block, is_dirty),
                Leaving::Dirty => _ = departed.insert(block, true),
                Leaving::Clean => {
                    // A range that is being changed at the store makes the data unusable.
                    let is_wanted = eviction_sink.wants_data() && !is_covered;
                    let piece = is_wanted.then(|| content.piece(0, geometry.len(block))).flatten();
                    // A copy, because a slow link would keep the frame too long.
                    let data = piece.map(|piece| Bytes::copy_from_slice(&piece));
                    eviction_sink.on_evicted(block, data);
                }
            },
            Event::Gone { block } => {
                eviction_sink.on_evicted(block, None);
                eviction_sink.settled();
            }
            Event::Idle { block, to: Goes::Nowhere, .. } => {
                match departed.remove(&block) {
                    Some(true) => eviction_sink.on_evicted_dirty(block),
                    Some(false) => eviction_sink.on_evicted(block, None),
                    None => return,
                }
                eviction_sink.settled();
            }
            Event::Entered { block, .. } => _ = departed.remove(&block),
            Event::Returned { block } => eviction_sink.on_readmitted(block),
            Event::Idle { .. }
            | Event::Placed { .. }
            | Event::Left { .. }
            | Event::Activated { .. }
            | Event::Writes { .. }
            | Event::Reads { .. }
            | Event::Changes { .. }
            | Event::Changed { .. }
            | Event::WritesOut { .. }
            | Event::Written { .. }
            | Event::Unknown { .. }
            | Event::Filled { .. }
            | Event::RangeBegins { .. }
            | Event::Replaces { .. }
            | Event::RangeEnds { .. }
            | Event::ContentsUnknown
            | Event::Slots(_)
            | Event::Replaced => {}
        }
    }
}
