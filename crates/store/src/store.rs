//! The trait of a backing store, and the types of its requests.
//!
//! A store is told bytes, not blocks: offset and length are what its [`Facts`] allow. Requests
//! own their memory, so that a store may hand them to another thread and a caller may vanish.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;

/// What a store answers, some time later.
pub type Answer<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Memory that a read fills: a frame of a cache, or a plain vector. Given back with the answer.
pub type Buffer = Box<dyn AsMut<[u8]> + Send>;

/// Called when a store may have lost something: see [`Store::on_loss`].
pub type OnLoss = Arc<dyn Fn() + Send + Sync>;

/// What a store is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Bytes that can be addressed.
    pub size: u64,
    /// Offsets and lengths must be multiples of this power of two: 1, or a sector with direct I/O.
    pub alignment: u32,
    /// Every change is refused with [`io::ErrorKind::ReadOnlyFilesystem`].
    pub read_only: bool,
    /// Zeroing a range is known to be cheaper than writing it.
    pub zeroes_fast: bool,
    /// What it is and where, for logs and error messages: `file:/srv/demo.img`.
    pub name: String,
}

/// One of the writes of [`Store::write_many`].
#[derive(Clone, Debug)]
pub struct ManyWrite {
    /// First byte.
    pub offset: u64,
    /// What is written from there on, in pieces.
    pub data: Vec<Bytes>,
}

/// Hears how each of many writes ended, in their order. Called once, on any thread; dropped without
/// a call if the store breaks down.
pub type ManyWritten = Box<dyn FnOnce(Vec<io::Result<()>>) + Send>;

/// How [`Store::zero`] may work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Zeroing {
    /// The range must stay (or become) allocated: NBD's NO_HOLE.
    pub keep_allocated: bool,
    /// Refuse at once with [`io::ErrorKind::Unsupported`] if this would not be faster than writing
    /// zeroes: NBD's FAST_ZERO.
    pub only_if_fast: bool,
}

/// A range of a store, beside the one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Bytes, at least 1.
    pub length: u64,
    /// No space is allocated for it.
    pub hole: bool,
    /// It reads as zeroes.
    pub zero: bool,
}

/// A place for the bytes of a volume.
///
/// Every range must lie within `size` and keep to `alignment`; anything else is
/// [`io::ErrorKind::InvalidInput`]. Overlapping requests in flight may take effect in any order:
/// whoever needs one waits. An error says what the store was doing and where; its kind (or raw OS
/// number) says which NBD error it becomes. The futures may be dropped: the request then still
/// happens, or not, as a whole store may stall.
pub trait Store: Send + Sync + 'static {
    /// What it is. The size may grow between calls (see [`Store::reload`]).
    fn facts(&self) -> Facts;

    /// Fills the buffers with consecutive bytes from `offset` on, and gives them back; after an
    /// error their content means nothing.
    fn read(&self, offset: u64, into: Vec<Buffer>) -> Answer<(Vec<Buffer>, io::Result<()>)>;

    /// Writes the pieces one after another from `offset` on. `durable`: also as by
    /// [`Store::flush`], for these bytes at least (NBD's FUA).
    fn write(&self, offset: u64, data: Vec<Bytes>, durable: bool) -> Answer<io::Result<()>>;

    /// Whether [`Store::write_many`] is cheaper than one call of [`Store::write`] each, and no
    /// write has to wait long for another one: where all that is written goes to memory first.
    fn takes_many(&self) -> bool {
        false
    }

    /// Makes writes that do not overlap, none of them durable, as by [`Store::write`] each: every
    /// one ends well or badly by itself. Only for stores that [`takes_many`](Self::takes_many).
    fn write_many(&self, writes: Vec<ManyWrite>, written: ManyWritten) {
        let refuse = |_| Err(io::ErrorKind::Unsupported.into());
        written(writes.iter().map(refuse).collect());
    }

    /// Makes a range read as zeroes; its length needs no memory.
    fn zero(&self, offset: u64, length: u64, how: Zeroing, durable: bool)
    -> Answer<io::Result<()>>;

    /// Says that a range's content is no longer needed. Afterwards it reads as zeroes or as
    /// before, but always the same.
    fn trim(&self, offset: u64, length: u64, durable: bool) -> Answer<io::Result<()>>;

    /// Makes every change that was answered before this call durable.
    fn flush(&self) -> Answer<io::Result<()>>;

    /// What is allocated in a range: extents in order that cover at least its first byte and at
    /// most the range. A store that does not know says "data".
    fn extents(&self, offset: u64, length: u64) -> Answer<io::Result<Vec<Extent>>>;

    /// Looks again how large the medium is: the new size, which never shrinks while in use.
    fn reload(&self) -> Answer<io::Result<u64>>;

    /// How often so far changes that had been answered, and that no [`Store::flush`] had covered,
    /// may have been lost while this process lived on: another server may go away with what it
    /// had in memory. None: this store cannot.
    fn losses(&self) -> Option<u64> {
        None
    }

    /// Has a function called at each loss from now on: when [`Store::losses`] has grown, and before
    /// any request can meet the store as it is afterwards. It must not block.
    fn on_loss(&self, _call: OnLoss) {}

    /// Gives up what keeps others from the place. Nothing may be under way, and nothing be asked
    /// afterwards. Dropping a store does the same where that needs nobody's answer.
    fn close(&self) -> Answer<io::Result<()>> {
        Box::pin(std::future::ready(Ok(())))
    }
}
