//! A volume as objects of a fixed size in an object store (S3, Google Cloud Storage, Azure).
//!
//! Below its prefix a volume has `volume.json` with the sizes of the volume and its objects, and
//! `data/` with one object for each `object_bytes` bytes, named by its number in 16 hexadecimal
//! digits. Missing objects read as zeroes. All objects have the full size, including the last one,
//! so that a volume can grow.
//!
//! Every change is durable when it is answered, because the services' answers are; a flush does
//! nothing. To write a part of an object, the store reads the object and writes it as a whole,
//! under a lock on it. This is slow for small writes; the cache in front absorbs them. Only one
//! server at a time may change a volume: in a bucket the one with the lease, in a folder the one
//! with the lock. The client library repeats failed requests.

mod description;
mod failure;
mod lease;
mod place;

use std::fs::File;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use object_store::path::Path;
use object_store::{GetOptions, GetRange, ObjectStoreExt};
use tokio::runtime::Handle;
use tokio::sync::{Mutex, Semaphore};

use crate::file::lock;
use crate::medium::{Medium, buffers_bytes, cut, pieces_bytes, ready, scatter, wrap};
use crate::object::{ObjectPlace, ObjectService, ObjectSpec};
use crate::store::{Answer, Buffer, Extent, Facts, Store, Zeroing};

use description::Description;
use failure::failure;
use lease::Lease;
use place::Place;

/// Most requests to the service at the same time, per store: enough to use the network's bandwidth,
/// and a limit for the memory of objects being rewritten.
const CONCURRENT: usize = 16;

/// Number of locks that the objects share.
const LOCKS: u64 = 1024;

/// Number of objects listed at a time.
const WINDOW: u64 = 4096;

/// A store in an object store.
pub struct BucketStore {
    inner: Arc<Inner>,
    /// Requests run as tasks, so that a request without a caller still runs to its end.
    runtime: Handle,
}

struct Inner {
    medium: Medium,
    place: Place,
    object_bytes: u64,
    /// Held while an object is changed, so that rewriting it loses no other change.
    locks: Vec<Mutex<()>>,
    places: Semaphore,
    owned: Owned,
}

/// The protection against changes by other servers.
enum Owned {
    /// None: the volume is read-only, in this process's memory, or the operator has disabled the
    /// lease.
    No,
    /// The folder, which is locked while it is open.
    Folder(#[allow(dead_code, reason = "open is all it must be")] File),
    Leased(Lease),
}

/// The part of one object that a request covers.
#[derive(Clone, Copy)]
struct Piece {
    object: u64,
    /// First byte within the object.
    start: u64,
    length: u64,
    /// Offset of this part in the request, in bytes.
    skip: u64,
}

impl BucketStore {
    /// Opens a volume. Creates one if there is none, a size is given, it is writable and need not
    /// exist; the second result is whether it did so. Must be called within a tokio runtime, on
    /// which its requests will run.
    ///
    /// # Errors
    /// The service cannot be reached or refuses, there is no volume, or it does not match the
    /// specification.
    pub async fn open(
        spec: &ObjectSpec,
        read_only: bool,
        must_exist: bool,
    ) -> io::Result<(BucketStore, bool)> {
        // The size is left out of the name, since it is shown elsewhere and may grow.
        let name = ObjectSpec { size: None, ..spec.clone() }.to_string();
        let opened = BucketStore::open_named(spec, (read_only, must_exist), name.clone()).await;
        opened.map_err(|error| wrap(name, error))
    }

    async fn open_named(
        spec: &ObjectSpec,
        (read_only, must_exist): (bool, bool),
        name: String,
    ) -> io::Result<(BucketStore, bool)> {
        if let ObjectPlace::Bucket(ObjectService::S3, ..) = spec.place {
            let finding = tokio::task::spawn_blocking(place::find_credentials);
            finding.await.map_err(io::Error::other)??;
        }
        let place = Place::new(&spec.place)?;
        let may_make = !read_only && !must_exist;
        let (description, is_new) = Description::open(&place, spec, may_make).await?;
        let owned = own(&place, spec, read_only).await?;
        let facts = Facts {
            size: description.size_bytes,
            alignment: 1,
            read_only,
            zeroes_fast: !read_only,
            name,
        };
        let inner = Inner {
            medium: Medium::new(facts),
            place,
            object_bytes: description.object_bytes,
            locks: (0..LOCKS).map(|_| Mutex::new(())).collect(),
            places: Semaphore::new(CONCURRENT),
            owned,
        };
        Ok((BucketStore { inner: Arc::new(inner), runtime: Handle::current() }, is_new))
    }

    fn run<T: Send + 'static>(
        &self,
        doing: &'static str,
        (offset, length): (u64, u64),
        work: impl Future<Output = io::Result<T>> + Send + 'static,
    ) -> Answer<io::Result<T>> {
        let task = self.runtime.spawn(work);
        let inner = Arc::clone(&self.inner);
        Box::pin(async move {
            let done = task.await.unwrap_or_else(|error| Err(io::Error::other(error)));
            done.map_err(|error| inner.medium.fault(doing, offset, length, error))
        })
    }

    /// Like [`run`](Self::run), but only while the lease is held.
    fn change(
        &self,
        doing: &'static str,
        range: (u64, u64),
        work: impl Future<Output = io::Result<()>> + Send + 'static,
    ) -> Answer<io::Result<()>> {
        let inner = Arc::clone(&self.inner);
        self.run(doing, range, async move {
            match &inner.owned {
                Owned::Leased(lease) => lease.within(work).await,
                Owned::No | Owned::Folder(_) => work.await,
            }
        })
    }
}

/// Makes sure that no other server changes a volume that is opened for writing.
async fn own(place: &Place, spec: &ObjectSpec, read_only: bool) -> io::Result<Owned> {
    match &spec.place {
        _ if read_only || !spec.lease => Ok(Owned::No),
        ObjectPlace::Memory => Ok(Owned::No),
        ObjectPlace::Folder(folder) => {
            let folder = File::open(folder)?;
            lock::lock(&folder, false)?;
            Ok(Owned::Folder(folder))
        }
        ObjectPlace::Bucket(..) => {
            let lease = Lease::take(Arc::clone(&place.objects), place.lease()).await?;
            Ok(Owned::Leased(lease))
        }
    }
}

impl Store for BucketStore {
    fn facts(&self) -> Facts {
        self.inner.medium.facts()
    }

    fn read(&self, offset: u64, mut into: Vec<Buffer>) -> Answer<(Vec<Buffer>, io::Result<()>)> {
        let length = buffers_bytes(&mut into);
        if let Err(error) = self.inner.medium.check("read", offset, length) {
            return ready((into, Err(error)));
        }
        let inner = Arc::clone(&self.inner);
        // Not a task: an incomplete read does no harm, and its buffers are dropped with it.
        Box::pin(async move {
            let result = inner.read(offset, length, &mut into).await;
            let fault = |error| inner.medium.fault("read", offset, length, error);
            (into, result.map_err(fault))
        })
    }

    fn write(&self, offset: u64, data: Vec<Bytes>, _durable: bool) -> Answer<io::Result<()>> {
        let length = pieces_bytes(&data);
        if let Err(error) = self.inner.medium.check_change("write", offset, length) {
            return ready(Err(error));
        }
        let inner = Arc::clone(&self.inner);
        self.change("write", (offset, length), async move {
            let pieces = pieces(inner.object_bytes, offset, length);
            let written = pieces.map(|piece| {
                let data = cut(&data, piece.skip, piece.length);
                Arc::clone(&inner).write_piece(piece, data)
            });
            all(written).await
        })
    }

    fn zero(
        &self,
        offset: u64,
        length: u64,
        how: Zeroing,
        _durable: bool,
    ) -> Answer<io::Result<()>> {
        if let Err(error) = self.inner.medium.check_change("zero", offset, length) {
            return ready(Err(error));
        }
        let inner = Arc::clone(&self.inner);
        self.change("zero", (offset, length), inner.zero(offset, length, how))
    }

    fn trim(&self, offset: u64, length: u64, _durable: bool) -> Answer<io::Result<()>> {
        if let Err(error) = self.inner.medium.check_change("trim", offset, length) {
            return ready(Err(error));
        }
        let inner = Arc::clone(&self.inner);
        let whole = inner.whole_objects(offset, length);
        self.change("trim", (offset, length), inner.delete(whole))
    }

    fn flush(&self) -> Answer<io::Result<()>> {
        ready(Ok(()))
    }

    fn extents(&self, offset: u64, length: u64) -> Answer<io::Result<Vec<Extent>>> {
        if let Err(error) = self.inner.medium.check("extents", offset, length) {
            return ready(Err(error));
        }
        let inner = Arc::clone(&self.inner);
        self.run("extents", (offset, length), async move { inner.extents(offset, length).await })
    }

    fn reload(&self) -> Answer<io::Result<u64>> {
        let inner = Arc::clone(&self.inner);
        let size = inner.medium.size();
        self.run("reload", (0, size), async move {
            let description = Description::read(&inner.place).await?;
            let told = description.ok_or_else(|| io::Error::from(ErrorKind::NotFound))?;
            if told.object_bytes != inner.object_bytes {
                let why = "the size of its objects has changed; restart the server";
                return Err(io::Error::new(ErrorKind::InvalidData, why));
            }
            Ok(inner.medium.grow(told.size_bytes))
        })
    }

    fn close(&self) -> Answer<io::Result<()>> {
        let inner = Arc::clone(&self.inner);
        self.run("close", (0, 0), async move {
            match &inner.owned {
                Owned::Leased(lease) => lease.give_up().await,
                Owned::No | Owned::Folder(_) => Ok(()),
            }
        })
    }
}

impl Inner {
    async fn read(
        self: &Arc<Inner>,
        offset: u64,
        length: u64,
        into: &mut [Buffer],
    ) -> io::Result<()> {
        for buffer in into.iter_mut() {
            (**buffer).as_mut().fill(0);
        }
        let fetched = pieces(self.object_bytes, offset, length).map(|piece| {
            let inner = Arc::clone(self);
            async move {
                let range = piece.start..piece.start + piece.length;
                let _place = inner.places.acquire().await.map_err(io::Error::other)?;
                io::Result::Ok((piece, inner.fetch(piece.object, range).await?))
            }
        });
        let mut fetched = stream::iter(fetched).buffered(CONCURRENT);
        while let Some((piece, bytes)) = fetched.try_next().await? {
            if let Some(bytes) = bytes {
                // The offset lies within the buffers, so it fits in memory.
                scatter(into, piece.skip as usize, &bytes);
            }
        }
        Ok(())
    }

    /// A part of an object; `None` if the object is missing.
    async fn fetch(&self, object: u64, range: Range<u64>) -> io::Result<Option<Bytes>> {
        let length = range.end - range.start;
        let options = GetOptions { range: Some(GetRange::Bounded(range)), ..GetOptions::default() };
        let path = self.place.object(object);
        let found = match self.place.objects.get_opts(&path, options).await {
            Ok(found) => found,
            Err(object_store::Error::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(failure(error)),
        };
        self.check_size(&path, found.meta.size)?;
        let bytes = found.bytes().await.map_err(failure)?;
        if bytes.len() as u64 != length {
            return Err(io::Error::new(ErrorKind::UnexpectedEof, format!("{path} is cut off")));
        }
        Ok(Some(bytes))
    }

    fn check_size(&self, path: &Path, size: u64) -> io::Result<()> {
        if size == self.object_bytes {
            return Ok(());
        }
        let why = format!("{path} has {size} bytes and must have {}", self.object_bytes);
        Err(io::Error::new(ErrorKind::InvalidData, why))
    }

    async fn put(&self, object: u64, data: Vec<Bytes>) -> io::Result<()> {
        assert_eq!(pieces_bytes(&data), self.object_bytes);
        let payload = data.into_iter().collect();
        let put = self.place.objects.put(&self.place.object(object), payload).await;
        put.map(drop).map_err(failure)
    }

    async fn write_piece(self: Arc<Inner>, piece: Piece, data: Vec<Bytes>) -> io::Result<()> {
        let _lock = self.lock(piece.object).await;
        let _place = self.places.acquire().await.map_err(io::Error::other)?;
        if piece.length == self.object_bytes {
            return self.put(piece.object, data).await;
        }
        let old = self.fetch(piece.object, 0..self.object_bytes).await?;
        let mut content = self.content(old)?;
        let mut at = piece.start as usize;
        for part in data {
            content[at..at + part.len()].copy_from_slice(&part);
            at += part.len();
        }
        self.put(piece.object, vec![content.into()]).await
    }

    async fn zero_piece(self: Arc<Inner>, piece: Piece, keep_allocated: bool) -> io::Result<()> {
        let _lock = self.lock(piece.object).await;
        let _place = self.places.acquire().await.map_err(io::Error::other)?;
        let old = if piece.length == self.object_bytes {
            None
        } else {
            self.fetch(piece.object, 0..self.object_bytes).await?
        };
        if old.is_none() && !keep_allocated {
            return Ok(());
        }
        let mut content = self.content(old)?;
        content[piece.start as usize..(piece.start + piece.length) as usize].fill(0);
        self.put(piece.object, vec![content.into()]).await
    }

    /// An object's bytes for changing; zeroes if it was missing. Object sizes fit in memory, since
    /// the description was checked.
    fn content(&self, old: Option<Bytes>) -> io::Result<Vec<u8>> {
        if let Some(old) = old {
            return Ok(old.into());
        }
        let mut content = Vec::new();
        content.try_reserve_exact(self.object_bytes as usize)?;
        content.resize(self.object_bytes as usize, 0);
        Ok(content)
    }

    async fn lock(&self, object: u64) -> tokio::sync::MutexGuard<'_, ()> {
        self.locks[(object % LOCKS) as usize].lock().await
    }

    /// The objects that lie completely in a range. Bytes behind the volume's end do not matter.
    fn whole_objects(&self, offset: u64, length: u64) -> Range<u64> {
        let end = offset + length;
        let first = offset.div_ceil(self.object_bytes);
        let last = if end == self.medium.size() {
            end.div_ceil(self.object_bytes)
        } else {
            end / self.object_bytes
        };
        first..last.max(first)
    }

    async fn zero(self: Arc<Inner>, offset: u64, length: u64, how: Zeroing) -> io::Result<()> {
        let whole = self.whole_objects(offset, length);
        let end = offset + length;
        // The partial objects at both ends; between them are only whole objects.
        let ends = if how.keep_allocated || whole.is_empty() {
            [offset..end, end..end]
        } else {
            let (first, last) = (whole.start * self.object_bytes, whole.end * self.object_bytes);
            [offset..first, last.min(end)..end]
        };
        if how.only_if_fast && ends.iter().any(|range| !range.is_empty()) {
            let why = "only whole objects are zeroed without writing them";
            return Err(io::Error::new(ErrorKind::Unsupported, why));
        }
        for range in ends {
            let pieces = pieces(self.object_bytes, range.start, range.end - range.start);
            let keep = how.keep_allocated;
            let zeroed = pieces.map(|piece| Arc::clone(&self).zero_piece(piece, keep));
            all(zeroed).await?;
        }
        if how.keep_allocated { Ok(()) } else { self.delete(whole).await }
    }

    /// Deletes the existing objects of a range.
    async fn delete(self: Arc<Inner>, objects: Range<u64>) -> io::Result<()> {
        let (mut start, mut any) = (objects.start, false);
        while start < objects.end {
            let end = objects.end.min(start.saturating_add(WINDOW));
            let existing = self.place.list(start..end).await?;
            any |= !existing.is_empty();
            all(existing.into_iter().map(|object| Arc::clone(&self).delete_one(object))).await?;
            start = end;
        }
        if any { self.place.settle_deletions().await } else { Ok(()) }
    }

    async fn delete_one(self: Arc<Inner>, object: u64) -> io::Result<()> {
        let _lock = self.lock(object).await;
        let _place = self.places.acquire().await.map_err(io::Error::other)?;
        match self.place.objects.delete(&self.place.object(object)).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(failure(error)),
        }
    }

    async fn extents(&self, offset: u64, length: u64) -> io::Result<Vec<Extent>> {
        let Some(last) = length.checked_sub(1).map(|rest| offset + rest) else {
            return Ok(Vec::new());
        };
        let first = offset / self.object_bytes;
        let end = (last / self.object_bytes + 1).min(first + WINDOW);
        let existing = self.place.list(first..end).await?;
        let covered = last.min((end * self.object_bytes).saturating_sub(1)) - offset + 1;
        let mut out: Vec<Extent> = Vec::new();
        for piece in pieces(self.object_bytes, offset, covered) {
            let hole = existing.binary_search(&piece.object).is_err();
            match out.last_mut() {
                Some(last) if last.hole == hole => last.length += piece.length,
                _ => out.push(Extent { length: piece.length, hole, zero: hole }),
            }
        }
        Ok(out)
    }
}

/// The parts of a range, one per object, in order.
fn pieces(object_bytes: u64, offset: u64, length: u64) -> impl Iterator<Item = Piece> {
    let mut skip = 0;
    std::iter::from_fn(move || {
        if skip == length {
            return None;
        }
        let at = offset + skip;
        let start = at % object_bytes;
        let count = (object_bytes - start).min(length - skip);
        let piece = Piece { object: at / object_bytes, start, length: count, skip };
        skip += count;
        Some(piece)
    })
}

/// Runs several changes, some of them at the same time; stops at the first error.
async fn all<F>(changes: impl Iterator<Item = F>) -> io::Result<()>
where
    F: Future<Output = io::Result<()>>,
{
    stream::iter(changes).buffer_unordered(CONCURRENT).try_collect().await
}
