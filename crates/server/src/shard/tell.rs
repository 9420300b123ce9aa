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
//! Not here: how it is sent (`serve/upstream/hint_sender.rs`).

use std::sync::Arc;

use bytes::Bytes;

use crate::listener::Listener;
use crate::shard::content::Running;
use crate::shard::{Effects, Shard};

impl Shard {
    /// A block was evicted: its slot is needed for another one.
    pub(crate) fn driven_out(&mut self, block: u64, frame: u32, fx: &mut Effects) {
        let Some(listener) = self.listener.clone() else { return self.leave(block, frame, fx) };
        let slot = &self.slots[frame as usize];
        if slot.active || slot.state.dirty.is_some() {
            self.leave(block, frame, fx);
            if let Some(record) = self.active.get_mut(&block) {
                let is_written_out = matches!(record.running, Running::WriteOut(_));
                record.departed = Some(record.state.dirty.is_some() || is_written_out);
            }
            return;
        }
        // A range that is being changed at the store makes the data unusable.
        let may_hand_over = listener.wants_data() && !self.ranges.cover(block);
        let length = self.geometry.len(block);
        let piece = may_hand_over.then(|| slot.state.content.piece(0, length)).flatten();
        // A copy, because a slow link would keep the frame too long.
        listener.left(block, piece.map(|piece| Bytes::copy_from_slice(&piece)));
        fx.riders.push(block);
        fx.has_left = true;
        self.leave(block, frame, fx);
    }

    /// A block is neither here nor in a client's cache.
    pub(crate) fn is_gone(&self, block: u64) {
        if let Some(listener) = &self.listener {
            listener.left(block, None);
            listener.settled();
        }
    }

    /// The operations of a block without slot are done.
    pub(crate) fn is_over(&self, block: u64, departed: Option<bool>) {
        let (Some(listener), Some(was_dirty)) = (&self.listener, departed) else { return };
        if was_dirty {
            listener.left_dirty(block);
        } else {
            listener.left(block, None);
        }
        listener.settled();
    }

    /// A write made a block resident.
    pub(crate) fn is_back(&self, block: u64) {
        if let Some(listener) = &self.listener {
            listener.is_back(block);
        }
    }
}

/// The blocks that a request evicts; empty without a listener.
pub(crate) type Riders = Vec<u64>;

/// Tells the listener that the next request at the store evicted these blocks.
pub(crate) fn ride(listener: Option<&Arc<dyn Listener>>, riders: &Riders) {
    if let (Some(listener), false) = (listener, riders.is_empty()) {
        listener.ride(riders);
    }
}
