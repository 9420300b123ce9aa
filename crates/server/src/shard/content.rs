//! The cached content of one block, and the memory that store reads fill.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::{Buf, Bytes};
use undercroft_frames::{Frame, FrameMut};
use undercroft_nbd::Piece;
use undercroft_store::{Buffer, Store};

use crate::geometry::zeroes;
use crate::job::BlockOp;
use crate::lock::sleep_lock;

/// The data of a block.
#[derive(Debug, Default)]
pub(crate) enum Content {
    /// Not in memory.
    #[default]
    Absent,
    /// All zeroes; uses no frame.
    Zero,
    /// In a frame.
    Frame(Frame),
    /// In memory outside the cache, because no frame was free; only while operations on the block
    /// run. Boxed, so that slots are smaller.
    Loose(Box<Bytes>),
}

impl Content {
    /// Content in memory outside the cache.
    pub(crate) fn loose(bytes: Bytes) -> Self {
        Self::Loose(Box::new(bytes))
    }

    /// The bytes `from..to` of the block, without copying; `None` if absent.
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

    /// The bytes `from..to` as a reply sends them; for a frame this allocates nothing.
    pub(crate) fn sendable(&self, from: usize, to: usize) -> Option<Piece> {
        match self {
            Self::Frame(frame) => Some(Piece::of_frame(frame.clone(), from, to)),
            other => other.piece(from, to).map(Piece::from),
        }
    }

    /// Whether it is in a frame that unsent replies still refer to.
    pub(crate) fn is_shared(&self) -> bool {
        matches!(self, Self::Frame(frame) if frame.is_shared())
    }

    /// The first byte of its frame; 0 without a frame.
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

/// What is known about a block in memory.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) content: Content,
    /// The number of the change that the store does not have yet, if any (see `dirty.rs`).
    pub(crate) dirty: Option<u64>,
}

/// The state of a resident block, indexed by the policy's frame number. The memory frame of a
/// block's data is another matter: it changes with every copy-on-write.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    pub(crate) state: State,
    /// Whether the block's state is in its [`Active`] record instead.
    pub(crate) active: bool,
    /// Whether the block is resident since a restart and its data have not been read yet
    /// (`restore.rs`).
    pub(crate) unloaded: bool,
    pub(crate) origin: Origin,
}

/// Why a block is resident, for the counts of hits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Origin {
    /// It was read, written or prefetched.
    #[default]
    Used,
    /// A client that evicted it sent it.
    Demoted,
    /// A client evicted it, and it was read back.
    Reloaded,
    /// A client evicted it, and it was in the staging area.
    Staged,
}

/// A block with operations in progress, resident or not.
#[derive(Default)]
pub(crate) struct Active {
    /// The block's slot, if it is resident: operations need not look it up again and again.
    pub(crate) slot: Option<u32>,
    pub(crate) state: State,
    pub(crate) running: Running,
    /// Operations that have arrived and not yet taken effect, in order. The first one stays in
    /// front while the store works for it.
    pub(crate) queue: Queue,
    /// Whether its last fetch failed, and was one of several blocks.
    pub(crate) is_suspect: bool,
}

impl Active {
    /// Whether the store does not have the content yet, or is being given it.
    pub(crate) fn is_dirty(&self) -> bool {
        self.state.dirty.is_some() || matches!(self.running, Running::WriteOut(_))
    }
}

/// Operations in order. A single one, the usual case, needs no allocation.
#[derive(Default)]
pub(crate) struct Queue {
    first: Option<BlockOp>,
    /// Empty if there is no first one.
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

/// The store request that runs for a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Running {
    #[default]
    Nothing,
    /// The block is being read for the first operation in the queue.
    Fetch,
    /// The first operation in the queue is being written.
    Write,
    /// The dirty content of the change with this number is being written; reads and changes of the
    /// copy continue.
    WriteOut(u64),
    /// The first operation in the queue waits for a frame, which a write-out will free.
    Starved,
}

/// Memory into which a block is read.
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

    /// The content of the one block that was read.
    pub(crate) fn only(all: Vec<Self>) -> Content {
        all.into_iter().next().map_or(Content::Absent, Self::into_content)
    }

    pub(crate) fn into_content(self) -> Content {
        match self {
            Self::Frame(frame) => Content::Frame(frame.freeze()),
            Self::Heap(bytes) => Content::loose(Bytes::from(bytes)),
        }
    }
}

/// Memory lent to a store as a buffer. It is returned when, and only when, the store drops the
/// buffer.
struct Loan {
    memory: Option<Memory>,
    length: usize,
    /// Its index among the pieces lent together.
    place: usize,
    home: Home,
}

/// Reads from a store into pieces of memory, of each the first so many bytes. Returns the memory.
pub(crate) async fn read_into(
    store: &dyn Store,
    offset: u64,
    pieces: impl Iterator<Item = (Memory, usize)>,
) -> io::Result<Vec<Memory>> {
    let (buffers, home) = Home::lend(pieces);
    let (buffers, result) = store.read(offset, buffers).await;
    drop(buffers);
    result?;
    home.collect().ok_or_else(|| io::Error::other("the store kept the memory of a read"))
}

/// Collects the memory that was lent for one store request.
#[derive(Clone)]
struct Home(Arc<Mutex<Vec<Option<Memory>>>>);

impl Home {
    /// Lends pieces of memory; of each, the first `length` bytes.
    fn lend(pieces: impl Iterator<Item = (Memory, usize)>) -> (Vec<Buffer>, Self) {
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
        sleep_lock(&self.0)
    }

    /// The memory in the order in which it was lent, or `None` if some has not been returned.
    fn collect(self) -> Option<Vec<Memory>> {
        std::mem::take(&mut *self.places()).into_iter().collect()
    }
}

impl AsMut<[u8]> for Loan {
    fn as_mut(&mut self) -> &mut [u8] {
        // The memory is only taken out in `drop`.
        self.memory.as_mut().map_or(&mut [], |memory| &mut memory.bytes()[..self.length])
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        // If the place is gone, nobody waits for the memory.
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
