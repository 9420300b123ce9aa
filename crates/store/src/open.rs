//! Opening what a [`StoreSpec`] describes.

use std::io::{self, ErrorKind};
use std::sync::Arc;

use futures_util::future::join_all;

use crate::delay::DelayStore;
use crate::fail::FailStore;
use crate::file::{FileOptions, FileStore};
use crate::medium::wrap;
use crate::memory::MemoryStore;
use crate::span::SpanStore;
use crate::spec::{FileSpec, NbdAddress, ObjectSpec, StoreSpec};
use crate::store::{Answer, Store};

/// Connects to another NBD server's export, read-only if told so. The protocol is not known here;
/// the program passes in what does.
pub type Upstream =
    Arc<dyn Fn(NbdAddress, bool) -> Answer<io::Result<Arc<dyn Store>>> + Send + Sync>;

/// How to open a store.
#[derive(Clone, Default)]
pub struct OpenOptions {
    /// Bytes, if the text does not say: what is made is of this size, what exists must have it.
    pub size: Option<u64>,
    /// Changes are refused.
    pub read_only: bool,
    /// Opens `nbd://` and the like.
    pub upstream: Option<Upstream>,
}

/// Opens a store and all that it is made of. Must be awaited within a tokio runtime with timers,
/// on which object stores and delays go on working. Making a file waits for the disk.
///
/// # Errors
/// Says which store could not be opened and why. [`ErrorKind::InvalidInput`]: the text and the
/// options do not fit together, or what is there is not as they say.
pub fn open(spec: StoreSpec, options: OpenOptions) -> Answer<io::Result<Arc<dyn Store>>> {
    Box::pin(async move {
        match spec {
            StoreSpec::File(file) => open_file(&file, &options),
            StoreSpec::Memory(told) => {
                let size = one_size(told, options.size).map_err(|e| wrap("mem:".to_owned(), e))?;
                let size = size.ok_or_else(|| invalid("mem: needs a size, as in mem(1GiB):"))?;
                Ok(Arc::new(MemoryStore::with_access(size, options.read_only)?) as _)
            }
            StoreSpec::Objects(objects) => open_objects(objects, &options).await,
            StoreSpec::Upstream(address) => open_upstream(address, &options).await,
            StoreSpec::Concat(parts) => {
                let parts = open_parts(parts, options).await?;
                Ok(Arc::new(SpanStore::concat(parts)?) as _)
            }
            StoreSpec::Stripe(bytes, parts) => {
                let parts = open_parts(parts, options).await?;
                Ok(Arc::new(SpanStore::stripe(parts, bytes)?) as _)
            }
            StoreSpec::Delay(delay, inner) => {
                let inner = open(*inner, options).await?;
                Ok(Arc::new(DelayStore::new(inner, delay)?) as _)
            }
            StoreSpec::Fail(rule, inner) => {
                let inner = open(*inner, options).await?;
                Ok(Arc::new(FailStore::new(inner, Some(rule))) as _)
            }
        }
    })
}

fn open_file(spec: &FileSpec, options: &OpenOptions) -> io::Result<Arc<dyn Store>> {
    let size = one_size(spec.size, options.size).map_err(|error| wrap(spec.to_string(), error))?;
    let options = FileOptions {
        size,
        read_only: options.read_only,
        direct: spec.direct,
        threads: spec.threads.unwrap_or(FileOptions::THREADS),
    };
    Ok(Arc::new(FileStore::open(&spec.path, &options)?))
}

#[cfg(feature = "object")]
async fn open_objects(mut spec: ObjectSpec, options: &OpenOptions) -> io::Result<Arc<dyn Store>> {
    let name = spec.to_string();
    spec.size = one_size(spec.size, options.size).map_err(|error| wrap(name, error))?;
    Ok(Arc::new(crate::object::BucketStore::open(&spec, options.read_only).await?))
}

#[cfg(not(feature = "object"))]
async fn open_objects(spec: ObjectSpec, _: &OpenOptions) -> io::Result<Arc<dyn Store>> {
    let why = format!("{spec}: this program was built without object stores (feature `object`)");
    Err(io::Error::new(ErrorKind::Unsupported, why))
}

async fn open_upstream(address: NbdAddress, options: &OpenOptions) -> io::Result<Arc<dyn Store>> {
    let name = address.to_string();
    let Some(connect) = &options.upstream else {
        let why = format!("{name}: this program cannot use another NBD server as a store");
        return Err(io::Error::new(ErrorKind::Unsupported, why));
    };
    let store = connect(address, options.read_only).await?;
    let found = store.facts().size;
    match options.size {
        Some(told) if told != found => {
            Err(invalid(&format!("{name}: has {found} bytes, not {told}; leave the size away")))
        }
        _ => Ok(store),
    }
}

async fn open_parts(
    parts: Vec<StoreSpec>,
    options: OpenOptions,
) -> io::Result<Vec<Arc<dyn Store>>> {
    if options.size.is_some() {
        return Err(invalid(
            "a size does not go with concat and stripe: give it to the parts, as in \
             file(size=1GiB):PATH",
        ));
    }
    let opened = join_all(parts.into_iter().map(|part| open(part, options.clone()))).await;
    let number = |(number, part): (usize, io::Result<_>)| {
        part.map_err(|error| wrap(format!("part {}", number + 1), error))
    };
    opened.into_iter().enumerate().map(number).collect()
}

/// The size that text and options agree on.
fn one_size(text: Option<u64>, option: Option<u64>) -> io::Result<Option<u64>> {
    match (text, option) {
        (Some(text), Some(option)) if text != option => {
            Err(invalid(&format!("has two sizes, {text} and {option} bytes; say one")))
        }
        _ => Ok(text.or(option)),
    }
}

fn invalid(why: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidInput, why)
}
