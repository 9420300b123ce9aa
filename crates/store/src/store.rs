//! The trait of a backing store, and the types of its requests.
//!
//! Stores work with bytes, not blocks: offset and length must be as their [`Facts`] demand.
//! Requests own their memory, so that a store may pass them to another thread, and a caller may
//! disappear.

use std::future::{Future, ready};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

/// The future answer of a store.
pub type Answer<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Memory for a read: a cache frame, or a vector. It is returned with the answer.
pub type Buffer = Box<dyn AsMut<[u8]> + Send>;

/// Called when a store may have lost data; see [`Store::on_loss`].
pub type OnLoss = Arc<dyn Fn() + Send + Sync>;

/// The properties of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Size in bytes.
    pub size: u64,
    /// Required alignment of offsets and lengths, a power of two: 1, or a sector with direct I/O.
    pub alignment: u32,
    /// Whether every change is refused with [`io::ErrorKind::ReadOnlyFilesystem`].
    pub read_only: bool,
    /// Whether zeroing a range is known to be cheaper than writing zeroes.
    pub zeroes_fast: bool,
    /// Its kind and place, for logs and errors: `file:/srv/demo.img`.
    pub name: String,
}

/// A store that cannot be reached; see [`Store::absence`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Absence {
    /// When that was noticed.
    pub since: Instant,
    /// How the last attempt to reach it failed.
    pub why: String,
    /// Whether waiting does not help: it answers, and can no longer be used.
    pub is_final: bool,
}

/// One of the writes of [`Store::write_many`].
#[derive(Clone, Debug)]
pub struct ManyWrite {
    /// First byte.
    pub offset: u64,
    /// The data, in pieces.
    pub data: Vec<Bytes>,
}

/// What tells whether somebody else has changed a store; see [`Store::version`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    /// Another number: it is another store, or has another size.
    pub identity: u64,
    /// When it was changed last, in nanoseconds since 1970. The system sets it, and nobody can set
    /// it back.
    pub changed_ns: u64,
}

/// What waits in a write log for the store behind it; see [`Store::backlog`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backlog {
    /// Bytes of the log in use.
    pub bytes: u64,
    /// Bytes of the log.
    pub capacity: u64,
    /// How long the oldest change has been there; `None`: the log is empty.
    pub age: Option<Duration>,
}

/// Receives the results of many writes, in their order. It is called once, on any thread, or
/// dropped without a call if the store fails altogether.
pub type ManyWritten = Box<dyn FnOnce(Vec<io::Result<()>>) + Send>;

/// Options of [`Store::zero`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Zeroing {
    /// The range must stay (or become) allocated: NBD's NO_HOLE.
    pub keep_allocated: bool,
    /// Fail at once with [`io::ErrorKind::Unsupported`] if zeroing is not faster than writing
    /// zeroes: NBD's FAST_ZERO.
    pub only_if_fast: bool,
}

/// Most extents in one answer.
pub(crate) const MAX_EXTENTS: usize = 1024;

/// A range of a store; successive extents are adjacent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Length in bytes, at least 1.
    pub length: u64,
    /// Whether no space is allocated for it.
    pub hole: bool,
    /// Whether it reads as zeroes.
    pub zero: bool,
}

/// A backing store for the bytes of a volume.
///
/// Every range must lie within `size` and follow `alignment`; otherwise the request fails with
/// [`io::ErrorKind::InvalidInput`]. Overlapping requests in flight may take effect in any order;
/// callers that need an order must wait. An error's text names the operation and its range; its
/// kind (or OS error number) determines the NBD error. Futures may be dropped: the request may
/// still be executed, or not.
pub trait Store: Send + Sync + 'static {
    /// The store before which this one stands, for one that changes what happens to requests and
    /// has no medium of its own. Then every method with a body that is not overridden asks that
    /// one, but for [`takes_many`](Self::takes_many) and [`write_many`](Self::write_many).
    fn inner(&self) -> Option<&dyn Store> {
        None
    }

    /// Its properties. The size may grow between calls (see [`Store::reload`]).
    fn facts(&self) -> Facts;

    /// Reads consecutive bytes from `offset` on into the buffers, and returns them. After an error
    /// the content of the buffers is undefined.
    fn read(&self, offset: u64, into: Vec<Buffer>) -> Answer<(Vec<Buffer>, io::Result<()>)>;

    /// Writes the pieces one after another from `offset` on. With `durable` at least these bytes
    /// are durable before the answer, like after [`Store::flush`] (NBD's FUA).
    fn write(&self, offset: u64, data: Vec<Bytes>, durable: bool) -> Answer<io::Result<()>>;

    /// Whether [`Store::write_many`] is cheaper than separate calls of [`Store::write`], and no
    /// write delays others for long. This holds where all writes go to memory first.
    fn takes_many(&self) -> bool {
        false
    }

    /// Makes several writes that do not overlap, without durability. Each has its own result, like
    /// with [`Store::write`]. Only for stores for which [`takes_many`](Self::takes_many) is true.
    /// With `here` they may be made, and `written` called, before this returns, even if that takes
    /// long now and then.
    fn write_many(&self, writes: Vec<ManyWrite>, here: bool, written: ManyWritten) {
        let _ = here;
        let refuse = |_| Err(io::ErrorKind::Unsupported.into());
        written(writes.iter().map(refuse).collect());
    }

    /// Makes a range read as zeroes, without using memory for its length.
    fn zero(&self, offset: u64, length: u64, how: Zeroing, durable: bool)
    -> Answer<io::Result<()>>;

    /// Tells the store that a range's content is no longer needed. Afterwards the range reads as
    /// zeroes or as before, but always the same.
    fn trim(&self, offset: u64, length: u64, durable: bool) -> Answer<io::Result<()>>;

    /// Makes every change durable that was answered before this call.
    fn flush(&self) -> Answer<io::Result<()>>;

    /// The allocation of a range: extents in order, covering at least the first byte and at most
    /// the range. A store that does not know reports data.
    fn extents(&self, offset: u64, length: u64) -> Answer<io::Result<Vec<Extent>>>;

    /// Reads the medium's size again, and returns it. The size never shrinks while the store is
    /// open.
    fn reload(&self) -> Answer<io::Result<u64>>;

    /// What is wrong with the name by which the store was opened: that no file has it any more, or
    /// another one, for example since a new file was renamed to it. The store itself goes on with
    /// what was opened. `None`: nothing, as far as is known.
    fn astray(&self) -> Answer<Option<String>> {
        match self.inner() {
            Some(inner) => inner.astray(),
            None => Box::pin(ready(None)),
        }
    }

    /// What is known of its last change, whoever made it: read anew from the medium. `None`: this
    /// store cannot tell.
    fn version(&self) -> Answer<Option<Version>> {
        match self.inner() {
            Some(inner) => inner.version(),
            None => Box::pin(ready(None)),
        }
    }

    /// What waits in a write log. `None`: there is none.
    fn backlog(&self) -> Option<Backlog> {
        self.inner()?.backlog()
    }

    /// The mark beside its content: a part of that is elsewhere, as the text says.
    fn mark(&self) -> Answer<io::Result<Option<String>>> {
        match self.inner() {
            Some(inner) => inner.mark(),
            None => Box::pin(ready(Ok(None))),
        }
    }

    /// Sets the mark, or takes it off, durably. A store with a mark is opened only by whoever says
    /// that he knows of it ([`OpenOptions::has_log`](crate::OpenOptions::has_log)).
    ///
    /// # Errors
    /// [`io::ErrorKind::Unsupported`]: this store can have none.
    fn set_mark(&self, mark: Option<String>) -> Answer<io::Result<()>> {
        match self.inner() {
            Some(inner) => inner.set_mark(mark),
            None => Box::pin(ready(Err(io::ErrorKind::Unsupported.into()))),
        }
    }

    /// Number of events so far at which answered changes that no [`Store::flush`] had covered may
    /// have been lost during the life of this process, for example because another server
    /// disappeared with the content of its memory. `None`: this store cannot lose changes.
    fn losses(&self) -> Option<u64> {
        self.inner()?.losses()
    }

    /// Registers a function that is called at each loss, after [`Store::losses`] has increased, and
    /// before any request reaches the store in its new state. The function must not block.
    fn on_loss(&self, call: OnLoss) {
        if let Some(inner) = self.inner() {
            inner.on_loss(call);
        }
    }

    /// Why the store makes no changes any more until it is opened again, for people: somebody else
    /// changes what it holds. `None`: it makes them.
    fn stopped(&self) -> Option<String> {
        self.inner()?.stopped()
    }

    /// Whether the store cannot be reached now, as far as it knows without being asked. A store
    /// that may be away tries by itself to reach its place again, also while nothing is asked of
    /// it.
    fn absence(&self) -> Option<Absence> {
        self.inner()?.absence()
    }

    /// Releases the protection of the place against other users. No request may be in flight, and
    /// none may follow. Dropping a store does the same, unless that needs an answer from a service.
    fn close(&self) -> Answer<io::Result<()>> {
        match self.inner() {
            Some(inner) => inner.close(),
            None => Box::pin(ready(Ok(()))),
        }
    }
}
