//! What is said of this cache to a server below that has one, too: which blocks leave, and which
//! are back before that was said.
//!
//! A block has left when replacement drove it out, or when a client evicted it and it is not
//! worth a place here. One that a read hands over to a client has not: it is above still. What is
//! clean leaves with its data, if that is wanted; what is dirty, or has something going on, is said
//! to have left when the store has it and nothing is going on any more, and without data.
//!
//! All is said under the lock of the shard. So data is said to leave before anything can change the
//! block again, and whoever passes it on can keep that order.
//!
//! Not here: how it is said (`serve/upstream/tell.rs`).

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use crate::counters::TellStats;
use crate::shard::content::Running;
use crate::shard::{Effects, Shard};

/// Who is told what leaves a cache, by the blocks of its volume. Called with locks held: must not
/// wait, and must not ask the volume anything.
pub trait Listener: fmt::Debug + Send + Sync {
    /// Whether blocks are to come with their data.
    fn wants_data(&self) -> bool;

    /// A block has left. The data is all of it, exactly as the store has it; it may be passed on
    /// until the store is asked to change the block.
    fn left(&self, block: u64, data: Option<Bytes>);

    /// A block has left, and was written to the store because it was to go.
    fn left_dirty(&self, block: u64);

    /// A block is here again without having been read from the store.
    fn is_back(&self, block: u64);

    /// The request that the caller makes at the store next drove these blocks out, which have left.
    fn ride(&self, blocks: &[u64]);

    /// What has left so far, and rides with no request, may be passed on by itself: no request is
    /// about to be made that drove it out.
    fn settled(&self);

    /// What came of it so far.
    fn told(&self) -> TellStats;
}

impl Shard {
    /// A block lost its slot to another.
    pub(crate) fn driven_out(&mut self, block: u64, frame: u32, fx: &mut Effects) {
        if self.goes_down(block, frame, fx) {
            return;
        }
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
        // A range that is on its way to the store changes what that has.
        let may_hand_over = listener.wants_data() && !self.ranges.cover(block);
        let length = self.geometry.len(block);
        let piece = may_hand_over.then(|| slot.state.content.piece(0, length)).flatten();
        // A copy: a frame is needed sooner than a slow link lets go of it.
        listener.left(block, piece.map(|piece| Bytes::copy_from_slice(&piece)));
        fx.riders.push(block);
        fx.has_left = true;
        self.leave(block, frame, fx);
    }

    /// A block is neither here nor with a client.
    pub(crate) fn is_gone(&self, block: u64) {
        if let Some(listener) = &self.listener {
            listener.left(block, None);
            listener.settled();
        }
    }

    /// What was going on with a block that has no slot is over.
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

/// The blocks that a request drives out; none where nobody listens.
pub(crate) type Riders = Vec<u64>;

/// Says that the next request at the store drove blocks out.
pub(crate) fn ride(listener: Option<&Arc<dyn Listener>>, riders: &Riders) {
    if let (Some(listener), false) = (listener, riders.is_empty()) {
        listener.ride(riders);
    }
}
