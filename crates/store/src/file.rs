//! A regular file or a block device as a store: opening and checking it, and passing requests to
//! the I/O threads. The modules below do the I/O.

mod durability;
mod holes;
pub(crate) mod lock;
mod many;
mod mark;
mod medium_io;
mod spec;
mod version;

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use rustix::fs::{AtFlags, FileType, OFlags, SeekFrom, StatxFlags};
use rustix::io::Errno;

use crate::medium::{MAX_BYTES, Medium, buffers_bytes, pieces_bytes, ready, wrap};
use crate::open::invalid;
use crate::pool::IoPool;
use crate::store::{
    Answer, Buffer, Extent, Facts, ManyWrite, ManyWritten, Store, Version, Zeroing,
};

use durability::{Durability, Durable, Success};
use holes::Holes;
use medium_io::MediumIo;
pub(crate) use spec::KINDS;

/// Reads up to this size are first tried in the caller's thread, as far as they are in the page
/// cache: the copied data are then still in the processor's cache when they are sent. Copying more
/// would occupy that thread too long.
const INLINE_BYTES: u64 = 512 << 10;

/// Writes to the page cache that took so long in a caller's thread were throttled, or waited for
/// the disk. For so many times as long the I/O threads make the next ones.
const LONG: Duration = Duration::from_millis(10);
const AFTER_LONG: u32 = 100;

/// Held by the thread that writes to a file itself, of all files: if a file takes no more for ever,
/// one thread is lost, and what its connection holds.
static HERE: Mutex<()> = Mutex::new(());

/// Alignment for direct I/O if the file system does not tell: no disk has larger sectors.
const DIRECT_ALIGNMENT: u32 = 4096;

/// Options for opening a file or block device.
#[derive(Clone, Debug)]
pub struct FileOptions {
    /// Required size in bytes. A regular file that does not exist is created with this size,
    /// sparse.
    pub size: Option<u64>,
    /// Refuse a file that does not exist, instead of creating it.
    pub must_exist: bool,
    /// Refuse changes, and allow others to read the file at the same time.
    pub read_only: bool,
    /// Bypass the kernel's page cache (`O_DIRECT`); offsets and lengths must then be aligned.
    pub direct: bool,
    /// Number of I/O threads, 1 to 1024: requests that the disk gets at the same time. By direct
    /// I/O about as many reads of connections' threads come on top.
    pub threads: usize,
}

impl FileOptions {
    /// Default number of I/O threads: enough for a fast disk, and cheap when idle.
    pub const THREADS: usize = 16;

    /// Most I/O threads.
    pub const THREADS_MAX: usize = 1024;
}

impl Default for FileOptions {
    fn default() -> FileOptions {
        FileOptions {
            size: None,
            must_exist: false,
            read_only: false,
            direct: false,
            threads: FileOptions::THREADS,
        }
    }
}

/// A store on a regular file or a block device.
///
/// The file is locked (`flock`): exclusively, or shared if it is read-only. A writable block device
/// is also opened exclusively, so a mounted one is refused. Once a flush has failed, all further
/// flushes and durable changes fail, because the kernel discards the affected data and would report
/// success later.
pub struct FileStore {
    inner: Arc<Inner>,
    pool: Arc<IoPool>,
    /// Whether requests use the kernel's page cache; the caller's thread may then read cached data,
    /// and write.
    inline: bool,
    /// No writes in a caller's thread until then.
    here_again: Mutex<Option<Instant>>,
    is_new: bool,
}

/// State shared by the I/O threads.
struct Inner {
    path: PathBuf,
    medium: Medium,
    io: MediumIo,
    holes: Holes,
    durability: Durability,
}

impl Inner {
    /// Reads by a thread of the pool; the first `done` bytes have been read already.
    fn read(
        self: &Arc<Self>,
        pool: &IoPool,
        (offset, length): (u64, u64),
        mut into: Vec<Buffer>,
        done: usize,
    ) -> Answer<(Vec<Buffer>, io::Result<()>)> {
        let inner = Arc::clone(self);
        let answer = pool.run(move || {
            let read = inner.io.read(offset, &mut into, done);
            let fault = |error| inner.medium.fault("read", offset, length, error);
            (into, read.map_err(fault))
        });
        let inner = Arc::clone(self);
        Box::pin(async move { answer.await.unwrap_or_else(|_| inner.lost(panicked())) })
    }

    /// A read that has no answer.
    fn lost(&self, why: io::Error) -> (Vec<Buffer>, io::Result<()>) {
        (Vec::new(), Err(self.medium.fault_of_all("read", why)))
    }

    /// What is wrong with the file's name. A device may have several, and none is the right one.
    fn astray(&self) -> Option<String> {
        let open = rustix::fs::fstat(self.io.file()).ok()?;
        if FileType::from_raw_mode(open.st_mode) != FileType::RegularFile {
            return None;
        }
        let name = self.path.display();
        match rustix::fs::stat(&self.path) {
            Ok(found) if (found.st_dev, found.st_ino) == (open.st_dev, open.st_ino) => None,
            Ok(_) => Some(format!("{name} is another file than the one that is open")),
            Err(Errno::NOENT) => {
                Some(format!("{name} is gone, and the file that is open nameless"))
            }
            Err(_) => None,
        }
    }
}

impl FileStore {
    /// Opens a file or block device, or creates a file.
    ///
    /// # Errors
    /// It cannot be opened or created, is in use (the holder is named if the system tells), or does
    /// not match the options.
    pub fn open(path: &Path, options: &FileOptions) -> io::Result<FileStore> {
        let name = format!("file:{}", path.display());
        Self::open_named(path, options, &name).map_err(|error| wrap(name, error))
    }

    /// Whether opening it created the file.
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    fn open_named(path: &Path, options: &FileOptions, name: &str) -> io::Result<FileStore> {
        if !(1..=FileOptions::THREADS_MAX).contains(&options.threads) {
            return Err(invalid(&format!("threads must be 1 to {}", FileOptions::THREADS_MAX)));
        }
        let opened = open_or_make(path, options)?;
        let alignment = if options.direct { direct_alignment(&opened)? } else { 1 };
        if opened.size % u64::from(alignment) != 0 {
            return Err(invalid(&format!(
                "direct I/O needs a size that is a multiple of {alignment}, not {}; \
                 extend the file or open it without `direct`",
                opened.size
            )));
        }
        let is_file = opened.sector_bytes.is_none();
        let beside = is_file.then(|| version::nameless_beside(path)).and_then(Result::ok);
        let asked = beside.as_ref().unwrap_or(&opened.file);
        let holes = Holes::new(asked, opened.sector_bytes, opened.size)?;
        let facts = Facts {
            size: opened.size,
            alignment,
            read_only: options.read_only,
            zeroes_fast: !options.read_only && holes.are_fast(),
            name: name.to_owned(),
        };
        let is_new = opened.is_new;
        let io = MediumIo::new(opened.file, options.direct.then_some(alignment), options.threads);
        let durability = Durability::new(!options.direct);
        let inner =
            Inner { path: path.to_owned(), medium: Medium::new(facts), io, holes, durability };
        let pool = Arc::new(IoPool::new(options.threads)?);
        let (inner, inline) = (Arc::new(inner), !options.direct);
        Ok(FileStore { inner, pool, inline, here_again: Mutex::default(), is_new })
    }

    /// Checks a change and passes it to the pool. `change` returns the success of a change that was
    /// made durable.
    fn change(
        &self,
        doing: &'static str,
        (offset, length): (u64, u64),
        durable: bool,
        change: impl FnOnce(&Inner) -> io::Result<Option<Success>> + Send + 'static,
    ) -> Answer<io::Result<()>> {
        if let Err(error) = self.inner.medium.check_change(doing, offset, length) {
            return ready(Err(error));
        }
        let inner = Arc::clone(&self.inner);
        let answer = self.run(doing, move || {
            let fault = |error| inner.medium.fault(doing, offset, length, error);
            if durable {
                inner.durability.check().map_err(fault)?;
            }
            match change(&inner).map_err(fault)? {
                None if durable => inner.durability.sync(inner.io.file()).map(Some).map_err(fault),
                success => Ok(success),
            }
        });
        let inner = Arc::clone(&self.inner);
        Box::pin(async move {
            let Some(success) = answer.await? else { return Ok(()) };
            let confirmed = inner.durability.confirm(success).await;
            confirmed.map_err(|error| inner.medium.fault(doing, offset, length, error))
        })
    }

    fn run<T: Send + 'static>(
        &self,
        doing: &'static str,
        job: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> Answer<io::Result<T>> {
        let answer = self.pool.run(job);
        let inner = Arc::clone(&self.inner);
        Box::pin(async move {
            answer.await.unwrap_or_else(|_| Err(inner.medium.fault_of_all(doing, panicked())))
        })
    }
}

impl Store for FileStore {
    fn facts(&self) -> Facts {
        self.inner.medium.facts()
    }

    fn read(&self, offset: u64, mut into: Vec<Buffer>) -> Answer<(Vec<Buffer>, io::Result<()>)> {
        let length = buffers_bytes(&mut into);
        if let Err(error) = self.inner.medium.check("read", offset, length) {
            return ready((into, Err(error)));
        }
        let mut done = 0;
        if self.inline && length <= INLINE_BYTES {
            done = self.inner.io.read_cached(offset, &mut into);
            if done as u64 == length {
                return ready((into, Ok(())));
            }
        }
        let read = match self.inner.io.begin_read(offset, into) {
            Ok(read) => read,
            Err(into) => return self.inner.read(&self.pool, (offset, length), into, done),
        };
        let (inner, pool) = (Arc::clone(&self.inner), Arc::clone(&self.pool));
        Box::pin(async move {
            // It is kept until the end.
            let mut read = read;
            match (&mut read).await {
                Some((memory, Ok(read))) if read as u64 == length => (vec![memory], Ok(())),
                // A thread reads the rest, or finds out what is wrong.
                Some((memory, read)) => {
                    let done = read.unwrap_or(0);
                    inner.read(&pool, (offset, length), vec![memory], done).await
                }
                None => inner.lost(io::Error::other("the thread that began it has ended")),
            }
        })
    }

    fn write(&self, offset: u64, data: Vec<Bytes>, durable: bool) -> Answer<io::Result<()>> {
        let length = pieces_bytes(&data);
        self.change("write", (offset, length), durable, move |inner| {
            let io = &inner.io;
            if !durable {
                return io.write(offset, &data).map(|()| None);
            }
            let durably = || io.write_durable(offset, &data);
            let (done, success) = inner.durability.watch(durably, || io.write(offset, &data))?;
            Ok(matches!(done, Durable::Already).then_some(success))
        })
    }

    fn takes_many(&self) -> bool {
        // Direct writes wait for the disk, and need many requests at the same time to keep it busy.
        self.inline
    }

    fn write_many(&self, writes: Vec<ManyWrite>, here: bool, written: ManyWritten) {
        let bytes: u64 = writes.iter().map(|one| pieces_bytes(&one.data)).sum();
        let here = here && bytes <= INLINE_BYTES && undercroft_ring::awaited() == 0;
        let free = here.then(|| HERE.try_lock().ok()).flatten();
        if let Some((free, mut again)) = free.zip(self.here_again.try_lock().ok()) {
            let began = Instant::now();
            if again.is_none_or(|again| began >= again) {
                let results = many::write(&self.inner, &writes);
                let took = began.elapsed();
                *again = (took >= LONG).then(|| Instant::now() + AFTER_LONG * took);
                drop((free, again));
                return written(results);
            }
        }
        let inner = Arc::clone(&self.inner);
        self.pool.begin(move || written(many::write(&inner, &writes)));
    }

    fn zero(
        &self,
        offset: u64,
        length: u64,
        how: Zeroing,
        durable: bool,
    ) -> Answer<io::Result<()>> {
        self.change("zero", (offset, length), durable, move |inner| {
            inner.holes.zero(&inner.io, offset, length, how).map(|()| None)
        })
    }

    fn trim(&self, offset: u64, length: u64, durable: bool) -> Answer<io::Result<()>> {
        self.change("trim", (offset, length), durable, move |inner| {
            inner.holes.trim(inner.io.file(), offset, length).map(|()| None)
        })
    }

    fn flush(&self) -> Answer<io::Result<()>> {
        let inner = Arc::clone(&self.inner);
        let flushed = self.run("flush", move || {
            let flushed = inner.durability.sync(inner.io.file());
            flushed.map_err(|error| inner.medium.fault_of_all("flush", error))
        });
        let inner = Arc::clone(&self.inner);
        Box::pin(async move {
            let confirmed = inner.durability.confirm(flushed.await?).await;
            confirmed.map_err(|error| inner.medium.fault_of_all("flush", error))
        })
    }

    fn extents(&self, offset: u64, length: u64) -> Answer<io::Result<Vec<Extent>>> {
        if let Err(error) = self.inner.medium.check("extents", offset, length) {
            return ready(Err(error));
        }
        let inner = Arc::clone(&self.inner);
        self.run("extents", move || {
            let fault = |error| inner.medium.fault("extents", offset, length, error);
            holes::extents(inner.io.file(), offset, length).map_err(fault)
        })
    }

    fn astray(&self) -> Answer<Option<String>> {
        let inner = Arc::clone(&self.inner);
        let asked = self.pool.run(move || inner.astray());
        Box::pin(async move { asked.await.ok().flatten() })
    }

    fn mark(&self) -> Answer<io::Result<Option<String>>> {
        let inner = Arc::clone(&self.inner);
        self.run("mark", move || {
            mark::of(inner.io.file()).map_err(|error| inner.medium.fault_of_all("mark", error))
        })
    }

    fn set_mark(&self, mark: Option<String>) -> Answer<io::Result<()>> {
        let inner = Arc::clone(&self.inner);
        self.run("mark", move || {
            let set = mark::set(inner.io.file(), mark.as_deref());
            set.map_err(|error| inner.medium.fault_of_all("mark", error))
        })
    }

    fn version(&self) -> Answer<Option<Version>> {
        let inner = Arc::clone(&self.inner);
        let asked = self.pool.run(move || version::of(inner.io.file(), &inner.path));
        Box::pin(async move { asked.await.ok().flatten() })
    }

    fn reload(&self) -> Answer<io::Result<u64>> {
        let inner = Arc::clone(&self.inner);
        self.run("reload", move || {
            let fault = |error| inner.medium.fault_of_all("reload", error);
            // Uses the file's own position, which nothing else needs: all other I/O is positional.
            let size = rustix::fs::seek(inner.io.file(), SeekFrom::End(0));
            Ok(inner.medium.grow(size.map_err(|error| fault(error.into()))?))
        })
    }
}

/// A file that was opened.
struct Opened {
    file: File,
    size: u64,
    /// Sector size of a block device in bytes; `None` for a regular file.
    sector_bytes: Option<u32>,
    /// Whether it was created.
    is_new: bool,
}

fn open_or_make(path: &Path, options: &FileOptions) -> io::Result<Opened> {
    // Checked before opening, since opening a pipe or a terminal has side effects.
    let metadata = match std::fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == ErrorKind::NotFound => return make(path, options),
        Err(error) => return Err(error),
    };
    let device = metadata.file_type().is_block_device();
    if !device && !metadata.is_file() {
        return Err(invalid("is neither a regular file nor a block device"));
    }
    let mut flags = if options.direct { OFlags::DIRECT } else { OFlags::empty() };
    if device && !options.read_only {
        flags |= OFlags::EXCL;
    }
    let opened = open_options(options, flags).open(path);
    let file = opened.map_err(|error| match error.kind() {
        ErrorKind::ResourceBusy => {
            wrap("the device is mounted or otherwise in use".to_owned(), error)
        }
        ErrorKind::InvalidInput if options.direct => {
            wrap("the file system may not know direct I/O".to_owned(), error)
        }
        _ => error,
    })?;
    lock::lock(&file, options.read_only)?;
    let size = rustix::fs::seek(&file, SeekFrom::End(0))?;
    if let Some(wanted) = options.size.filter(|wanted| *wanted != size) {
        return Err(invalid(&format!(
            "exists with {size} bytes, not {wanted}; leave the size away, or resize it first"
        )));
    }
    let sector_bytes = if device { Some(rustix::fs::ioctl_blksszget(&file)?) } else { None };
    Ok(Opened { file, size, sector_bytes, is_new: false })
}

fn make(path: &Path, options: &FileOptions) -> io::Result<Opened> {
    let missing = |why: &str| io::Error::new(ErrorKind::NotFound, why);
    if options.must_exist {
        return Err(missing("does not exist, and is not to be created (create=no)"));
    }
    // A device with a wrong name must not become a file in memory; /dev/shm has files.
    let folder = directory(path);
    let of_devices = |folder: &Path| folder.starts_with("/dev") && !folder.starts_with("/dev/shm");
    if folder.canonicalize().is_ok_and(|folder| of_devices(&folder)) {
        return Err(missing("does not exist, and no file is created below /dev"));
    }
    let Some(size) = options.size else {
        return Err(missing("does not exist; give a size and it is made"));
    };
    if options.read_only {
        return Err(missing("does not exist, and is to be read-only"));
    }
    if size > MAX_BYTES {
        return Err(invalid(&format!("at most {MAX_BYTES} bytes can be addressed, not {size}")));
    }
    let flags = if options.direct { OFlags::DIRECT } else { OFlags::empty() };
    let file = open_options(options, flags).create_new(true).open(path).inspect_err(|error| {
        // Without direct I/O the kernel has made the file all the same.
        if options.direct && error.kind() == ErrorKind::InvalidInput {
            let _ = std::fs::remove_file(path);
        }
    })?;
    let made = lock::lock(&file, false).and_then(|()| {
        file.set_len(size)?;
        file.sync_all()?;
        // The file's name must also survive a crash before any data are called safe.
        File::open(&folder)?.sync_all()
    });
    if let Err(error) = made {
        // An incomplete volume must not be mistaken for a complete one later.
        let _ = std::fs::remove_file(path);
        return Err(error);
    }
    Ok(Opened { file, size, sector_bytes: None, is_new: true })
}

fn open_options(options: &FileOptions, flags: OFlags) -> OpenOptions {
    let mut how = OpenOptions::new();
    // The flags are small positive numbers on every platform.
    how.read(true).write(!options.read_only).custom_flags(flags.bits() as i32);
    how
}

fn directory(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// The alignment of offsets, lengths and memory addresses for direct I/O, in bytes.
fn direct_alignment(opened: &Opened) -> io::Result<u32> {
    if let Some(sector) = opened.sector_bytes {
        return Ok(sector);
    }
    let told = rustix::fs::statx(&opened.file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN);
    let Ok(told) = told else { return Ok(DIRECT_ALIGNMENT) };
    if told.stx_mask & StatxFlags::DIOALIGN.bits() == 0 {
        return Ok(DIRECT_ALIGNMENT);
    }
    let alignment = told.stx_dio_offset_align.max(told.stx_dio_mem_align);
    if alignment == 0 {
        return Err(io::Error::new(
            ErrorKind::Unsupported,
            "the file system cannot do direct I/O on this file; open it without `direct`",
        ));
    }
    Ok(if alignment.is_power_of_two() { alignment } else { DIRECT_ALIGNMENT })
}

fn panicked() -> io::Error {
    io::Error::other("the I/O thread panicked")
}
