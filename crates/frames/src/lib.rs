//! Frame memory: one anonymous mapping of a fixed budget, divided into pools of equal frames, and
//! counted handles to the frames.
//!
//! A frame that somebody may be reading (a reply on its way to a socket) is never written and
//! never given to somebody else. That is the whole purpose, and the compiler checks it for the
//! users of this crate: a [`FrameMut`] is the only handle to its frame and may write, a [`Frame`]
//! is one of any number and may only read, and a frame goes back to its pool with its last handle.
//!
//! Which block lies in which frame, and which frames to evict, is not known here. Beside it is the
//! heap of programs that want huge pages too (`heap.rs`).
//!
//! Most `unsafe` code of the workspace is here (the rest: interface for C, tracker, preload, ring).
//! What makes the frames sound:
//! 1. *Memory.* A mapping is unmapped when its last pool is gone; a pool lives as long as any of
//!    its frames has a handle: each frame that is not free owns one strong count of the pool.
//! 2. *Places.* Pools get disjoint parts of the mapping, and frames disjoint parts of their pool.
//!    Anonymous pages are zero at first, so that all bytes are initialised at all times.
//! 3. *Counts.* `counts[i]` is the number of handles to frame `i`; 0 exactly while it is on the
//!    free list. A handle is made by the free list (0 to 1), or from another handle (`clone`).
//!    Frames beyond the limit of their pool are free on a list of their own, which makes none.
//! 4. *Exclusion.* A `FrameMut` is the only handle of its frame: it comes from the free list, or
//!    from a `Frame` that found the count at 1, and it cannot be cloned. Nobody can make a second
//!    handle meanwhile, since that takes a first one.
//! 5. *Order.* The count goes down with `Release`, and whoever then writes to the frame has read
//!    the count with `Acquire`: every read through a handle that is gone comes before the write.

mod heap;
mod memory;
mod pool;
mod pools;
mod prepare;
mod sync;

pub use heap::HugePageHeap;
pub use memory::{Memory, MemoryError};
pub use pool::{Frame, FrameMut, Pool};
pub use pools::Pools;
