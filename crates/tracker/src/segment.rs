//! The memory that the processes of a program share. The first process creates it before `main`,
//! forked processes inherit it, and `undercroft attach --check` reads it from outside.
//!
//! It is a sparse file. Only its header is touched before the sender has allocated all of its
//! pages, because writing to a page without room in a full `/dev/shm` would kill the program
//! (SIGBUS). So a program that tracks nothing only costs a file of 32 KiB while it runs.

pub mod layout;
mod mapping;
mod open;

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::sync::atomic::{AtomicU32, AtomicU64};

use layout::{Layout, *};
pub use mapping::Mapping;
use rustix::fs::{FallocateFlags, fallocate, ftruncate, statvfs};
use rustix::process::{Pid, Resource, getrlimit, test_kill_process};

use crate::groups;

/// Prefix of segment names. The process number follows, and the user's number if the name was
/// taken.
pub const NAME: &str = "undercroft-cct.";

/// Smallest pool for which a table is worthwhile, in bytes.
const POOL_MIN: u64 = 16 << 20;

/// The state of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Only the header may be touched.
    Sparse,
    /// All of it is allocated.
    Ready,
    /// It is not used: calls are only passed through.
    Off,
}

/// The counters of tracked calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Count {
    /// Reads.
    Reads,
    /// Writes.
    Writes,
    /// Reads submitted to io_uring or libaio.
    AsyncReads,
    /// Writes submitted to io_uring or libaio.
    AsyncWrites,
    /// Granules of 4 KiB that left their frames.
    Evictions,
    /// Granules whose eviction was noticed only when they were read again.
    Late,
    /// Granules of pages created in frames into which nothing was read.
    Made,
    /// Granules written from memory that is not a frame.
    NoFrame,
    /// Reads of parts of granules, and reads too long to be of a cache.
    Partial,
    /// Calls that could not be tracked: interrupted, of an unknown kind, or in a race.
    Missed,
    /// Records lost because the ring was full.
    Dropped,
    /// Frames forgotten because the table was full.
    Overflowed,
    /// Files for which there was no room.
    FilesLost,
    /// Granules whose content was kept for the server.
    Kept,
    /// Granules whose content was not kept, because their beginning on the volume is not known.
    Headless,
    /// Granules whose content was not kept: no slot was free, or their memory could not be read.
    NotKept,
}

/// The counters of the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Sent {
    /// Blocks of the server that were reported as evicted, with or without contents.
    Blocks,
    /// Those of them reported late.
    Late,
    /// Messages that were acknowledged.
    Messages,
    /// Records without a position on a volume: holes, deleted files.
    Unplaced,
    /// Records of blocks that were back before they could be sent.
    Back,
    /// Blocks not sent because there was no connection.
    Unsent,
    /// Connections made.
    Connections,
    /// Extent maps of files that were read.
    Maps,
    /// Records skipped because their writer died.
    Torn,
    /// Granules in memory that proved not to be a cache.
    Strays,
    /// Blocks of the server that were handed over: reported with their contents.
    HandedOver,
    /// Granules whose frames were found freed before they were used again.
    Foreseen,
}

/// A segment.
pub struct Segment {
    map: Mapping,
    layout: Layout,
    path: PathBuf,
    /// Device and inode of its file, by which it is told from another one of that name: processes
    /// of several namespaces may have the same number. Zeroes without a file.
    inode: (u64, u64),
    /// Whether it may be written.
    writable: bool,
}

impl Segment {
    /// Creates the segment of this process in a folder, for `pool` bytes or as much as the folder
    /// has room for. Segments of dead processes are removed first.
    ///
    /// # Errors
    /// The error of the system; also if there is no room, or a limit of the process forbids it.
    pub fn create(folder: &Path, pool: u64) -> io::Result<Segment> {
        remove_stale(folder);
        let layout = fitting(folder, pool)?;
        let bytes = layout.bytes() as u64;
        // Beyond the limit the system would send SIGXFSZ.
        if getrlimit(Resource::Fsize).current.is_some_and(|limit| limit < bytes) {
            return Err(io::Error::other("the limit of file sizes (ulimit -f) is too small"));
        }
        let make = |name: String| {
            let (path, mut options) = (folder.join(name), OpenOptions::new());
            let file = options.read(true).write(true).create_new(true).mode(0o600).open(&path)?;
            Ok::<_, io::Error>((file, path))
        };
        let pid = std::process::id();
        let made = match make(format!("{NAME}{pid}")) {
            // It belongs to a program of another user that started this one by `exec`, for example
            // after giving up root's rights. It cannot be removed.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                make(format!("{NAME}{pid}.{}", rustix::process::geteuid().as_raw()))
            }
            made => made,
        };
        let (file, path) = made?;
        let segment = Self::lay_out(&file, layout, &path, pool);
        if segment.is_err() {
            let _ = fs::remove_file(&path);
        }
        segment
    }

    fn lay_out(file: &File, layout: Layout, path: &Path, pool: u64) -> io::Result<Segment> {
        ftruncate(file, layout.bytes() as u64)?;
        fallocate(file, FallocateFlags::empty(), 0, HEADER as u64 * 8)?;
        let map = Mapping::of_file(file, layout.bytes(), true)?;
        let inode = inode(file)?;
        let segment = Segment { map, layout, path: path.to_owned(), inode, writable: true };
        segment.write_header(pool);
        Ok(segment)
    }

    /// A segment without a file, ready at once, for programs that no other process examines.
    ///
    /// # Errors
    /// The error of the system.
    pub fn anonymous(pool: u64) -> io::Result<Segment> {
        let layout = Layout::for_pool(pool);
        let map = Mapping::anonymous(layout.bytes())?;
        let (path, inode) = (PathBuf::new(), (0, 0));
        let segment = Segment { map, layout, path, inode, writable: true };
        segment.write_header(pool);
        segment.set_state(State::Ready);
        Ok(segment)
    }

    fn write_header(&self, pool: u64) {
        let header = [
            (1, VERSION),
            (TOTAL_BYTES, self.layout.bytes() as u64),
            (CREATOR, u64::from(std::process::id())),
            (STARTED_US, crate::now_us()),
            (POOL_BYTES, pool),
            (FRAME_BITS, u64::from(self.layout.frame_bits)),
            (LINK_BITS, u64::from(self.layout.link_bits)),
            (RING_BITS, u64::from(self.layout.ring_bits)),
            (0, MAGIC),
        ];
        for (word, value) in header {
            self.word(word).store(value, Relaxed);
        }
    }

    /// Maps the segment of another process for reading. It must belong to this user; root may open
    /// any.
    ///
    /// # Errors
    /// The error of the system; also if the file is not a segment of this version, or belongs to
    /// somebody else.
    pub fn open(path: &Path) -> io::Result<Segment> {
        Self::map_file(&open::to_read(path)?, path, false)
    }

    /// Maps the segment of another process for writing.
    ///
    /// # Errors
    /// As for [`Segment::open`].
    pub fn attach(file: &File, path: &Path) -> io::Result<Segment> {
        Self::map_file(file, path, true)
    }

    fn map_file(file: &File, path: &Path, writable: bool) -> io::Result<Segment> {
        let wrong = |what: &str| io::Error::new(ErrorKind::InvalidData, what.to_owned());
        let bytes = file.metadata()?.len() as usize;
        if bytes < HEADER * 8 {
            return Err(wrong("too short for a tracker's segment"));
        }
        let map = Mapping::of_file(file, bytes & !7, writable)?;
        let word = |at: usize| map.words(at..at + 1)[0].load(Relaxed);
        if word(0) != MAGIC || word(1) != VERSION {
            return Err(wrong("no tracker's segment, or of another version of the library"));
        }
        let bits = |at, max| u32::try_from(word(at)).ok().filter(|bits| *bits <= max);
        let sizes = (bits(FRAME_BITS, 30), bits(LINK_BITS, 30), bits(RING_BITS, 20));
        let (Some(frame_bits), Some(link_bits), Some(ring_bits)) = sizes else {
            return Err(wrong("the header of the segment is damaged"));
        };
        let layout = Layout { frame_bits, link_bits, ring_bits };
        if layout.bytes() > bytes {
            return Err(wrong("the segment is shorter than its header says"));
        }
        Ok(Segment { map, layout, path: path.to_owned(), inode: inode(file)?, writable })
    }

    /// Allocates all pages but those of contents and heads. Until then only the header may be
    /// touched.
    ///
    /// # Errors
    /// The error of the system: no room.
    pub fn fill(&self) -> io::Result<()> {
        self.allocate(0..self.layout.table_bytes())
    }

    /// Opens its file for writing.
    fn own_file(&self) -> io::Result<File> {
        let file = open::to_write(&self.path)?;
        if inode(&file)? == self.inode { Ok(file) } else { Err(ErrorKind::PermissionDenied.into()) }
    }

    /// Allocates the pages of a range of bytes.
    fn allocate(&self, bytes: Range<usize>) -> io::Result<()> {
        match self.own_file() {
            Ok(file) => {
                let (start, length) = (bytes.start as u64, bytes.len() as u64);
                Ok(fallocate(&file, FallocateFlags::empty(), start, length)?)
            }
            // The program was started by root, and has become another user since; or another file
            // has the name.
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                self.map.populate(bytes.start / 8..bytes.end / 8)
            }
            Err(error) => Err(error),
        }
    }

    /// Allocates the pages of contents and heads, once. Until then they must not be touched.
    ///
    /// # Errors
    /// The error of the system: no room; or the kernel does not let this program read its frames.
    pub fn fill_contents(&self) -> io::Result<()> {
        match self.word(CONTENTS).load(Acquire) {
            0 => {}
            1 => return Ok(()),
            _ => return Err(io::Error::from(ErrorKind::PermissionDenied)),
        }
        if let Some(folder) = self.path.parent() {
            let layout = &self.layout;
            let bytes = layout.table_bytes()..layout.heads().end * 8;
            if bytes.len() as u64 > free_memory(folder)? / 2 {
                let what = format!("{} has no room for contents", folder.display());
                return Err(io::Error::other(what));
            }
            self.allocate(bytes)?;
        }
        let _ = self.word(CONTENTS).compare_exchange(0, 1, AcqRel, Relaxed);
        Ok(())
    }

    /// Maps it once more, for a recorder, and allocates the pages of the recorder's ring.
    ///
    /// # Errors
    /// The error of the system: no room, or the program is another user's.
    pub fn open_to_record(&self) -> io::Result<Segment> {
        let file = self.own_file()?;
        let segment = Self::map_file(&file, &self.path, true)?;
        let ring = segment.layout.calls();
        let (start, bytes) = (ring.start as u64 * 8, ring.len() as u64 * 8);
        fallocate(&file, FallocateFlags::empty(), start, bytes)?;
        Ok(segment)
    }

    /// Whether contents and heads are allocated, and the kernel lets this program read them.
    #[inline]
    pub fn contents_are_ready(&self) -> bool {
        self.word(CONTENTS).load(Acquire) == 1
    }

    /// Its file; empty if it has none.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A word of the header.
    pub fn word(&self, word: usize) -> &AtomicU64 {
        &self.header()[word]
    }

    /// The words of the header.
    pub fn header(&self) -> &[AtomicU64] {
        self.map.words(0..HEADER)
    }

    /// The mapped memory.
    pub fn map(&self) -> &Mapping {
        &self.map
    }

    /// The layout of its parts.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The word that the sender sleeps on.
    pub fn asleep(&self) -> &AtomicU32 {
        self.map.futex(ASLEEP)
    }

    /// Stores the result of a comparison with the real cache, as shares from 0 to 1, which the
    /// server will be told. Works even if the segment was opened for reading.
    ///
    /// # Errors
    /// The error of the system: only the program's user and root may do this.
    pub fn set_score(&self, precision: f64, recall: f64) -> io::Result<()> {
        let file = self.own_file()?;
        for (word, share) in [(PRECISION_PPM, precision), (RECALL_PPM, recall)] {
            let ppm = (share.clamp(0.0, 1.0) * 1e6) as u64;
            file.write_all_at(&ppm.to_ne_bytes(), word as u64 * 8)?;
        }
        Ok(())
    }

    /// Its state.
    pub fn state(&self) -> State {
        match self.word(STATE).load(std::sync::atomic::Ordering::Acquire) {
            0 => State::Sparse,
            1 => State::Ready,
            _ => State::Off,
        }
    }

    /// Sets its state.
    pub fn set_state(&self, state: State) {
        let word = match state {
            State::Sparse => 0,
            State::Ready => 1,
            State::Off => 2,
        };
        self.word(STATE).store(word, std::sync::atomic::Ordering::Release);
    }

    /// Increases a counter of tracked calls.
    #[inline]
    pub fn count(&self, count: Count, stripe: usize, by: u64) {
        let word = COUNTS + (stripe % STRIPES) * COUNTERS + count as usize;
        self.header()[word].fetch_add(by, Relaxed);
    }

    /// The value of a counter of tracked calls.
    pub fn counted(&self, count: Count) -> u64 {
        let of = |stripe| self.word(COUNTS + stripe * COUNTERS + count as usize).load(Relaxed);
        (0..STRIPES).map(of).sum()
    }

    /// Increases a counter of the sender; does nothing if the segment was opened for reading.
    pub fn count_sent(&self, count: Sent, by: u64) {
        if !self.writable {
            return;
        }
        self.word(SENDER_COUNTS + count as usize).fetch_add(by, Relaxed);
    }

    /// The value of a counter of the sender.
    pub fn counted_sent(&self, count: Sent) -> u64 {
        self.word(SENDER_COUNTS + count as usize).load(Relaxed)
    }
}

/// Bytes for which a folder in memory has room and control groups leave memory.
fn free_memory(folder: &Path) -> io::Result<u64> {
    let room = statvfs(folder)?;
    let free = room.f_bavail.saturating_mul(room.f_frsize);
    Ok(free.min(groups::memory_limit().unwrap_or(free)))
}

/// Device and inode of a file.
fn inode(file: &File) -> io::Result<(u64, u64)> {
    let metadata = file.metadata()?;
    Ok((metadata.dev(), metadata.ino()))
}

/// The largest layout up to `pool` for which the folder has room and control groups leave memory.
fn fitting(folder: &Path, pool: u64) -> io::Result<Layout> {
    let free = free_memory(folder)?;
    let mut pool = pool.max(POOL_MIN);
    loop {
        let layout = Layout::for_pool(pool);
        if layout.table_bytes() as u64 <= free / 2 {
            return Ok(layout);
        }
        if pool == POOL_MIN {
            let what = format!("{} has no room for a table", folder.display());
            return Err(io::Error::other(what));
        }
        pool = (pool / 2).max(POOL_MIN);
    }
}

/// Whether a process exists.
pub fn is_alive(pid: u64) -> bool {
    let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return false };
    test_kill_process(pid) != Err(rustix::io::Errno::SRCH)
}

/// Removes the segments in a folder whose processes have ended.
fn remove_stale(folder: &Path) {
    let is_other = |pid: u64| pid != u64::from(std::process::id()) && is_alive(pid);
    for (path, pid) in segments(folder) {
        // One with our own number was made before this program was started by `exec`.
        if is_other(pid) {
            continue;
        }
        // What cannot be opened belongs to somebody else, who must remove it.
        let Ok(file) = open::to_read(&path) else { continue };
        // A program that continues in a child, as daemons do, keeps its segment.
        if !sender_of(&file).is_some_and(is_other) {
            let _ = fs::remove_file(&path);
        }
    }
}

/// The process that sends, according to the file.
fn sender_of(file: &File) -> Option<u64> {
    if file.metadata().ok()?.len() < HEADER as u64 * 8 {
        return None;
    }
    let map = Mapping::of_file(file, HEADER * 8, false).ok()?;
    Some(map.words(SENDER..SENDER + 1)[0].load(Relaxed))
}

/// The segments in a folder, and the processes that made them.
pub fn segments(folder: &Path) -> Vec<(PathBuf, u64)> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let of = |entry: fs::DirEntry| {
        let name = entry.file_name();
        let pid = name.to_str()?.strip_prefix(NAME)?.split('.').next()?.parse().ok()?;
        Some((entry.path(), pid))
    };
    entries.flatten().filter_map(of).collect()
}
