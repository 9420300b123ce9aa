//! What the cache holds of one block, and the memory that a read from the store fills.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{Buf, Bytes};
use undercroft_frames::{Frame, FrameMut};
use undercroft_nbd::Piece;
use undercroft_store::Buffer;

use crate::job::BlockOp;
use crate::shard::digests::Digest;

/// The largest block.
pub(crate) const BLOCK_BYTES_MAX: usize = 64 << 10;

static ZEROES: [u8; BLOCK_BYTES_MAX] = [0; BLOCK_BYTES_MAX];

/// Up to a block of zero bytes, without memory.
pub(crate) fn zeroes(length: usize) -> Bytes {
    Bytes::from_static(&ZEROES[..length])
}

/// The data of a block.
#[derive(Debug, Default)]
pub(crate) enum Content {
    /// Not here.
    #[default]
    Absent,
    /// All zero; needs no frame.
    Zero,
    /// In a frame.
    Frame(Frame),
    /// In memory outside the cache, for want of a frame: only while somebody works on the block.
    /// (In a box, so that the slots of all resident blocks are smaller.)
    Loose(Box<Bytes>),
}

impl Content {
    /// Bytes outside the cache.
    pub(crate) fn loose(bytes: Bytes) -> Self {
        Self::Loose(Box::new(bytes))
    }

    /// The bytes `from..to` of the block, pointing to where they lie; none if absent.
    pub(crate) fn piece(&self, from: usize, to: usize) -> Option<Bytes> {
        let mut bytes = match self {
            Self::Absent => return None,
            Self::Zero => return Some(zeroes(to - from)),
            Self::Frame(frame) => Bytes::from_owner(frame.clone()),
            Self::Loose(bytes) => Bytes::clone(bytes),
        };
        bytes.truncate(to);
        bytes.advance(from);
        Some(bytes)
    }

    /// As [`piece`](Self::piece), to be sent to a client: a frame needs no memory for that.
    pub(crate) fn sendable(&self, from: usize, to: usize) -> Option<Piece> {
        match self {
            Self::Frame(frame) => Some(Piece::of_frame(frame.clone(), from, to)),
            other => other.piece(from, to).map(Piece::from),
        }
    }

    /// Whether it is in a frame that replies point to.
    pub(crate) fn is_shared(&self) -> bool {
        matches!(self, Self::Frame(frame) if frame.is_shared())
    }

    /// The first byte in its frame; 0 without one.
    #[inline]
    pub(crate) fn first_byte(&self) -> u8 {
        match self {
            Self::Frame(frame) => frame.as_ref().first().copied().unwrap_or(0),
            Self::Absent | Self::Zero | Self::Loose(_) => 0,
        }
    }

    pub(crate) fn is_absent(&self) -> bool {
        matches!(self, Self::Absent)
    }
}

/// What is known of a block whose data is here.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) content: Content,
    /// Set if the store does not have this content: which change that was (see `dirty.rs`).
    pub(crate) dirty: Option<u64>,
}

/// The place of a resident block: as many as the policy has frames, by its frame number. (Which
/// frame of memory a block's data lies in changes with every copy-on-write.)
#[derive(Debug, Default)]
pub(crate) struct Slot {
    pub(crate) state: State,
    /// The block's state is in its [`Active`] record.
    pub(crate) active: bool,
    /// The block is resident since a restart, and its data has not been here yet (`restore.rs`).
    pub(crate) unloaded: bool,
}

/// A block that something is going on with, resident or not.
#[derive(Default)]
pub(crate) struct Active {
    pub(crate) state: State,
    pub(crate) running: Running,
    /// Operations that have arrived and not taken effect, in order. While something runs for the
    /// first one, it stays in front.
    pub(crate) queue: Queue,
    /// What is known of its digest; of use only where clients may hand contents over.
    pub(crate) digest: Digest,
    /// It was driven out meanwhile, which the server below has not been told: whether it was dirty
    /// then.
    pub(crate) departed: Option<bool>,
}

/// Operations in order. A single one, as mostly, needs no memory of its own.
#[derive(Default)]
pub(crate) struct Queue {
    first: Option<BlockOp>,
    /// None without a first one.
    others: VecDeque<BlockOp>,
}

impl Queue {
    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    pub(crate) fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.others.len()
    }

    pub(crate) fn front(&self) -> Option<&BlockOp> {
        self.first.as_ref()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &BlockOp> {
        self.first.iter().chain(&self.others)
    }

    pub(crate) fn push_back(&mut self, op: BlockOp) {
        match &mut self.first {
            None => self.first = Some(op),
            Some(_) => self.others.push_back(op),
        }
    }

    pub(crate) fn pop_front(&mut self) -> Option<BlockOp> {
        std::mem::replace(&mut self.first, self.others.pop_front())
    }
}

/// What is under way at the store for a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Running {
    #[default]
    Nothing,
    /// The block is being read, for the front of the queue.
    Fetch,
    /// The front of the queue is being written.
    Write,
    /// The dirty content of this change is being written; reads and changes of the copy go on.
    WriteOut(u64),
    /// The front of the queue waits for a frame, which a write-out will free.
    Starved,
}

/// Memory that a block is read into.
pub(crate) enum Memory {
    Frame(FrameMut),
    Heap(Box<[u8]>),
}

impl Memory {
    fn bytes(&mut self) -> &mut [u8] {
        match self {
            Self::Frame(frame) => frame,
            Self::Heap(bytes) => bytes,
        }
    }

    pub(crate) fn into_content(self) -> Content {
        match self {
            Self::Frame(frame) => Content::Frame(frame.freeze()),
            Self::Heap(bytes) => Content::loose(Bytes::from(bytes)),
        }
    }
}

/// Memory lent to a store as a buffer. It comes home when the store lets the buffer go, however
/// that happens, and only then.
struct Loan {
    memory: Option<Memory>,
    length: usize,
    /// Where in its home it belongs.
    place: usize,
    home: Home,
}

/// Where the memory that was lent for one store request comes back to.
#[derive(Clone)]
pub(crate) struct Home(Arc<Mutex<Vec<Option<Memory>>>>);

impl Home {
    /// Lends pieces of memory, of each the first so many bytes.
    pub(crate) fn lend(pieces: impl Iterator<Item = (Memory, usize)>) -> (Vec<Buffer>, Self) {
        let home = Self(Arc::default());
        let lend = |(place, (memory, length))| {
            let home = home.clone();
            Box::new(Loan { memory: Some(memory), length, place, home }) as Buffer
        };
        let buffers: Vec<Buffer> = pieces.enumerate().map(lend).collect();
        home.places().resize_with(buffers.len(), || None);
        (buffers, home)
    }

    fn places(&self) -> MutexGuard<'_, Vec<Option<Memory>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The memory in the order in which it was lent, if all of it is back.
    pub(crate) fn collect(self) -> Option<Vec<Memory>> {
        std::mem::take(&mut *self.places()).into_iter().collect()
    }
}

impl AsMut<[u8]> for Loan {
    fn as_mut(&mut self) -> &mut [u8] {
        // The memory is taken in `drop` only.
        self.memory.as_mut().map_or(&mut [], |memory| &mut memory.bytes()[..self.length])
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        // Without a place nobody waits for it any more.
        if let Some(place) = self.home.places().get_mut(self.place) {
            *place = self.memory.take();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::job::{Job, JobKind};

    #[test]
    fn operations_leave_in_the_order_in_which_they_came() {
        let job = Arc::new(Job::new(JobKind::Read, 0, 4096, false, Instant::now()));
        let mut queue = Queue::default();
        let mut next = 0;
        for (came, leave) in [(1, 1), (3, 2), (2, 3), (0, 0), (4, 4)] {
            for _ in 0..came {
                queue.push_back(BlockOp { job: Arc::clone(&job), block: next });
                next += 1;
            }
            for _ in 0..leave {
                let front = queue.front().map(|op| op.block);
                assert_eq!(queue.pop_front().map(|op| op.block), front);
            }
            let left = next - queue.front().map_or(next, |op| op.block);
            assert_eq!(queue.is_empty(), left == 0);
            assert_eq!(left, queue.others.len() as u64 + u64::from(!queue.is_empty()));
        }
        assert_eq!(next, 10);
        assert!(queue.pop_front().is_none());
    }

    #[test]
    fn lent_memory_is_back_in_its_order_when_all_of_it_was_let_go() {
        let lend = || Home::lend((1..=3).map(|byte| (Memory::Heap(vec![byte; 8].into()), 4)));
        let (mut buffers, home) = lend();
        assert!(buffers.iter_mut().all(|buffer| (**buffer).as_mut().len() == 4));
        buffers.reverse();
        drop(buffers);
        let back = home.collect().map(|all| all.into_iter().map(|mut m| m.bytes()[0]).collect());
        assert_eq!(back, Some(vec![1, 2, 3]));

        let (mut buffers, home) = lend();
        let kept = buffers.remove(1);
        drop(buffers);
        assert!(home.collect().is_none());
        drop(kept);
    }
}
