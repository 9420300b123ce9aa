//! A volume as objects of a fixed size in an object store (S3, Google Cloud Storage, Azure).
//!
//! Below its prefix a volume has `volume.json` with the sizes of the volume and its objects, and
//! `data/` with one object for each `object_bytes` bytes, named by its number in 16 hexadecimal
//! digits. Missing objects read as zeroes. All objects have the full size, including the last one,
//! so that a volume can grow; or none, and then they read as zeroes as well.
//!
//! Every change is durable when it is answered, because the services' answers are; a flush does
//! nothing. To write a part of an object, the store reads the object and writes it as a whole,
//! under a lock on it. This is slow for small writes; the cache in front absorbs them. Only one
//! server at a time may change a volume: in a bucket the one with the lease, in a folder the one
//! with the lock. Requests that are executed late, or twice, replace nothing newer: `data.rs`.

mod conditions;
mod data;
mod description;
mod failure;
mod lease;
mod owner;
mod place;
mod stamp;

use std::io::{self, ErrorKind};
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use tokio::runtime::Handle;

use crate::medium::{Medium, append, buffers_bytes, cut, pieces_bytes, ready, scatter, wrap};
use crate::object::{ObjectPlace, ObjectService, ObjectSpec};
use crate::open::OpenOptions;
use crate::store::{Answer, Buffer, Extent, Facts, Store, Zeroing};

use data::Data;
use description::Description;
use owner::Owner;
use place::Place;

/// Most requests to the service at the same time, per store: enough to use the network's bandwidth,
/// and a limit for the memory of objects being rewritten.
const CONCURRENT: usize = 16;

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
    data: Data,
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
    pub async fn open(spec: &ObjectSpec, options: &OpenOptions) -> io::Result<(BucketStore, bool)> {
        // The size is left out of the name, since it is shown elsewhere and may grow.
        let name = ObjectSpec { size: None, ..spec.clone() }.to_string();
        let opened = BucketStore::open_named(spec, options, name.clone()).await;
        opened.map_err(|error| wrap(name, error))
    }

    async fn open_named(
        spec: &ObjectSpec,
        options: &OpenOptions,
        name: String,
    ) -> io::Result<(BucketStore, bool)> {
        let (read_only, given) = (options.read_only, options.objects.clone());
        if let (None, ObjectPlace::Bucket(ObjectService::S3, ..)) = (&given, &spec.place) {
            let finding = tokio::task::spawn_blocking(place::find_credentials);
            finding.await.map_err(io::Error::other)??;
        }
        let place = Place::new(&spec.place, given)?;
        let may_make = !read_only && !options.must_exist;
        let (mut description, is_new) = Description::open(&place, spec, may_make).await?;
        let owner = Owner::new(&place, spec, read_only).await?;
        if !read_only {
            description = description.renewed(&place, owner.is_conditional()).await?;
        }
        let facts = Facts {
            size: description.size_bytes,
            alignment: 1,
            read_only,
            zeroes_fast: !read_only,
            name,
        };
        let warn = options.on_warning.clone().unwrap_or_else(|| Arc::new(|_| ()));
        let data = Data::new(place, description.object_bytes, owner, Arc::clone(&warn));
        let inner = Arc::new(Inner { medium: Medium::new(facts), data });
        if let Some(what) = inner.data.owner.unpromised(spec, read_only) {
            warn(&format!("{}: {what}", inner.medium.facts().name));
        }
        Ok((BucketStore { inner, runtime: Handle::current() }, is_new))
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

    /// Like [`run`](Self::run), but checks a change, and only while changes are allowed.
    fn change(
        &self,
        doing: &'static str,
        (offset, length): (u64, u64),
        work: impl Future<Output = io::Result<()>> + Send + 'static,
    ) -> Answer<io::Result<()>> {
        if let Err(error) = self.inner.medium.check_change(doing, offset, length) {
            return ready(Err(error));
        }
        let inner = Arc::clone(&self.inner);
        self.run(doing, (offset, length), async move {
            inner.data.check()?;
            inner.data.owner.within(work).await
        })
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
        let inner = Arc::clone(&self.inner);
        self.change("write", (offset, length), async move {
            let written = inner.pieces(offset, length).map(|piece| {
                let data = cut(&data, piece.skip, piece.length);
                let inner = Arc::clone(&inner);
                async move { inner.data.write(piece, data).await }
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
        let inner = Arc::clone(&self.inner);
        self.change("zero", (offset, length), inner.zero(offset, length, how))
    }

    fn trim(&self, offset: u64, length: u64, _durable: bool) -> Answer<io::Result<()>> {
        let inner = Arc::clone(&self.inner);
        self.change("trim", (offset, length), async move {
            let whole = inner.whole_objects(offset, length);
            inner.empty(whole).await
        })
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
            let description = Description::read(&inner.data.place).await?;
            let told = description.ok_or_else(|| io::Error::from(ErrorKind::NotFound))?;
            if told.object_bytes != inner.data.object_bytes {
                let why = "the size of its objects has changed; restart the server";
                return Err(io::Error::new(ErrorKind::InvalidData, why));
            }
            Ok(inner.medium.grow(told.size_bytes))
        })
    }

    fn stopped(&self) -> Option<String> {
        self.inner.data.stopped().map(str::to_owned)
    }

    fn close(&self) -> Answer<io::Result<()>> {
        let inner = Arc::clone(&self.inner);
        self.run("close", (0, 0), async move { inner.data.owner.give_up().await })
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
        let fetched = self.pieces(offset, length).map(|piece| {
            let inner = Arc::clone(self);
            async move {
                let range = piece.start..piece.start + piece.length;
                io::Result::Ok((piece, inner.data.read(piece.object, range).await?))
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

    /// The objects that lie completely in a range. Bytes behind the volume's end do not matter.
    fn whole_objects(&self, offset: u64, length: u64) -> Range<u64> {
        let (end, object) = (offset + length, self.data.object_bytes);
        let first = offset.div_ceil(object);
        let last = if end == self.medium.size() { end.div_ceil(object) } else { end / object };
        first..last.max(first)
    }

    async fn zero(self: Arc<Inner>, offset: u64, length: u64, how: Zeroing) -> io::Result<()> {
        let whole = self.whole_objects(offset, length);
        let end = offset + length;
        // The partial objects at both ends; between them are only whole objects.
        let ends = if how.keep_allocated || whole.is_empty() {
            [offset..end, end..end]
        } else {
            let object = self.data.object_bytes;
            [offset..whole.start * object, (whole.end * object).min(end)..end]
        };
        if how.only_if_fast && ends.iter().any(|range| !range.is_empty()) {
            let why = "only whole objects are zeroed without writing them";
            return Err(io::Error::new(ErrorKind::Unsupported, why));
        }
        for range in ends {
            let zeroed = self.pieces(range.start, range.end - range.start).map(|piece| {
                let inner = Arc::clone(&self);
                async move { inner.data.zero(piece, how.keep_allocated).await }
            });
            all(zeroed).await?;
        }
        if how.keep_allocated { Ok(()) } else { self.empty(whole).await }
    }

    /// Empties the existing objects of a range.
    async fn empty(self: Arc<Inner>, objects: Range<u64>) -> io::Result<()> {
        let mut start = objects.start;
        while start < objects.end {
            let end = objects.end.min(start.saturating_add(WINDOW));
            let emptied = self.data.list(start..end).await?.into_iter().map(|(object, _)| {
                let inner = Arc::clone(&self);
                async move { inner.data.empty(object).await }
            });
            all(emptied).await?;
            start = end;
        }
        Ok(())
    }

    async fn extents(&self, offset: u64, length: u64) -> io::Result<Vec<Extent>> {
        let Some(last) = length.checked_sub(1).map(|rest| offset + rest) else {
            return Ok(Vec::new());
        };
        let object = self.data.object_bytes;
        let first = offset / object;
        let end = (last / object + 1).min(first + WINDOW);
        let mut full = self.data.list(first..end).await?;
        full.retain(|(_, is_empty)| !is_empty);
        let covered = last.min((end * object).saturating_sub(1)) - offset + 1;
        let mut out = Vec::new();
        for piece in self.pieces(offset, covered) {
            let hole = full.binary_search_by_key(&piece.object, |(object, _)| *object).is_err();
            append(&mut out, Extent { length: piece.length, hole, zero: hole });
        }
        Ok(out)
    }

    /// The parts of a range, one per object, in order.
    fn pieces(&self, offset: u64, length: u64) -> impl Iterator<Item = Piece> + use<> {
        let object_bytes = self.data.object_bytes;
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
}

/// Runs several changes, some of them at the same time; stops at the first error.
async fn all<F>(changes: impl Iterator<Item = F>) -> io::Result<()>
where
    F: Future<Output = io::Result<()>>,
{
    stream::iter(changes).buffer_unordered(CONCURRENT).try_collect().await
}
