//! What a call of the program means: for its descriptors, for the table, for the server.
//!
//! Everything here may be called at any time from any thread, in signal handlers, and in forked
//! processes; see the rules in `lib.rs`.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use rustix::fs::{AtFlags, CWD, FileType, StatxFlags, makedev, readlinkat_raw, statx};
use rustix::thread::futex;

use crate::device::{self, Backing, Node};
use crate::fds::{self, Fd};
use crate::files::{Files, Identity, PATH_MAX};
use crate::ring::Ring;
use crate::segment::layout::{ATTACHED, BYPASS, SENDER, VOLUME, VOLUMES};
use crate::segment::{Count, Segment, State, is_alive};
use crate::settings::Settings;
use crate::space::Memory;
use crate::table::{GRANULE, Key, Place, Sink, Table};
use crate::text::{self, Text};

/// Largest page of any database, and largest block of a server, in bytes. A longer read into one
/// piece of memory is no page (InnoDB's doublewrite area at its start, a scan ahead of a log): what
/// it overwrites has left, and it makes no frames.
const LONGEST_PAGE: u64 = 64 << 10;

/// Microseconds of the monotonic clock, without `errno`.
#[inline]
pub fn now_us() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000 + now.tv_nsec as u64 / 1000
}

/// Why nothing is tracked.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A volume cannot be one.
    #[error("{0}")]
    Volume(String),
    /// There can be no segment.
    #[error("{0}: {1}")]
    Segment(std::path::PathBuf, std::io::Error),
}

/// A call on a tracked descriptor, from before it was made.
#[derive(Clone, Copy, Debug)]
pub struct Tracked {
    fd: i32,
    known: Fd,
    started_us: u64,
}

impl Tracked {
    /// Notes the time, if a descriptor is tracked. To be called before the program's call is made:
    /// no eviction that it implies is earlier.
    #[inline]
    pub fn before(fd: i32) -> Option<Tracked> {
        let known = fds::get(fd)?;
        Some(Tracked { fd, known, started_us: now_us() })
    }

    /// Where the descriptor stands, in bytes.
    pub fn position(&self) -> Option<u64> {
        // SAFETY: the number is that of a descriptor of the program, used in this call only.
        let fd = unsafe { rustix::fd::BorrowedFd::borrow_raw(self.fd) };
        rustix::fs::tell(fd).ok()
    }
}

/// Which way the bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Into memory.
    Read,
    /// Out of it.
    Write,
}

/// The tracker of a process and those that it forks.
pub struct Tracker {
    segment: Segment,
    settings: Settings,
    volumes: Vec<Backing>,
    memory: Memory,
    /// Starts a thread that calls [`crate::sender::run`].
    start_sender: fn(),
}

impl Tracker {
    /// Begins, in the process that is to be the first. No thread is started, no connection made:
    /// that waits until a file is opened that counts.
    ///
    /// # Errors
    /// Says what is in the way.
    pub fn start(settings: Settings, start_sender: fn()) -> Result<Tracker, StartError> {
        let backing = |volume: &crate::settings::Volume| Backing::of_path(&volume.device);
        let volumes: Result<Vec<_>, _> = settings.volumes.iter().map(backing).collect();
        let volumes = volumes.map_err(StartError::Volume)?;
        let folder = &settings.segment_dir;
        let segment = Segment::create(folder, settings.pool)
            .map_err(|error| StartError::Segment(folder.clone(), error))?;
        let memory = Memory::of_first_process();
        let tracker = Tracker { segment, settings, volumes, memory, start_sender };
        for (number, volume) in tracker.settings.volumes.iter().enumerate() {
            let words = tracker.volume_words(number);
            words[0].store(1, Relaxed);
            text::store(&words[16..80], volume.device.as_os_str().as_encoded_bytes());
            text::store(&words[80..VOLUME], volume.uri.to_string().as_bytes());
        }
        tracker.segment.word(BYPASS).store(tracker.settings.bypass.into(), Relaxed);
        Ok(tracker)
    }

    /// The settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The shared memory.
    pub fn segment(&self) -> &Segment {
        &self.segment
    }

    pub(crate) fn volume_words(&self, number: usize) -> &[std::sync::atomic::AtomicU64] {
        let start = VOLUMES + number * VOLUME;
        &self.segment.header()[start..start + VOLUME]
    }

    /// Whether reads of tracked files are to go past the page cache.
    #[inline]
    pub fn bypasses(&self) -> bool {
        self.settings.bypass && self.segment.word(BYPASS).load(Relaxed) == 1
    }

    /// The kernel does not know how: reads go as the program made them from now on.
    pub fn bypass_refused(&self) {
        self.segment.word(BYPASS).store(2, Relaxed);
    }

    /// In the child, after a fork.
    pub fn forked(&self) {
        self.memory.forked();
        self.segment.word(ATTACHED).fetch_add(1, AcqRel);
    }

    /// The process ends by `exit`. The first one takes the segment's name with it, unless others
    /// go on.
    pub fn exiting(&self) {
        let attached = self.segment.word(ATTACHED);
        if !self.memory.is_first_process() {
            attached.fetch_sub(1, AcqRel);
        } else if attached.load(Acquire) == 0 {
            let _ = rustix::fs::unlink(self.segment.path());
        }
    }

    /// Nothing more is tracked, in any of the processes.
    pub fn give_up(&self) {
        self.segment.set_state(State::Off);
    }

    /// A descriptor was opened, `reads` if it can be read from.
    pub fn opened(&self, fd: i32, reads: bool) {
        let counts = reads && self.segment.state() != State::Off && self.counts(fd);
        fds::set(fd, counts.then(Fd::pending));
        if counts {
            self.care_for_sender();
        }
    }

    /// Descriptor `new` is another name of `old`.
    pub fn duplicated(&self, old: i32, new: i32) {
        fds::set(new, fds::get(old));
    }

    /// A descriptor's file was made longer or shorter, or given or taken room.
    pub fn changed(&self, fd: i32) {
        if let Some(id) = fds::get(fd).and_then(Fd::id) {
            if self.segment.state() == State::Ready {
                Files::new(&self.segment).changed(id);
            }
        }
    }

    /// Something about a call could not be found out.
    pub fn missed(&self) {
        self.count(Count::Missed, 1);
    }

    /// A sender is started if there is none alive.
    fn care_for_sender(&self) {
        let word = self.segment.word(SENDER);
        let sender = word.load(Acquire);
        if self.segment.state() == State::Off || sender != 0 && is_alive(sender) {
            return;
        }
        let me = u64::from(std::process::id());
        if word.compare_exchange(sender, me, AcqRel, Relaxed).is_ok() {
            (self.start_sender)();
        }
    }

    /// Whether a file that was just opened is one of those that are tracked.
    fn counts(&self, fd: i32) -> bool {
        let Some((identity, node)) = describe(fd) else { return false };
        let is_known = self.segment.state() == State::Ready
            && Files::new(&self.segment).find(identity, now_us()).is_some();
        if is_known {
            return true;
        }
        if device::way(&self.volumes, &node).is_none() {
            return false;
        }
        if self.settings.track.is_empty() {
            return true;
        }
        let mut path = [0; 4096];
        path_of(fd, &mut path).is_some_and(|path| self.settings.counts(path))
    }

    /// The file behind a descriptor. What is known is believed for a second at most, since there
    /// are ways to close a descriptor that are not seen.
    #[inline]
    fn file(&self, call: &Tracked) -> Option<u32> {
        if self.segment.state() != State::Ready {
            return None;
        }
        match call.known.id() {
            Some(id) if !call.known.is_old(call.started_us / 1_000_000) => {
                Files::new(&self.segment).is_current(id).then_some(id).or_else(|| self.look(call))
            }
            _ => self.look(call),
        }
    }

    #[cold]
    fn look(&self, call: &Tracked) -> Option<u32> {
        let files = Files::new(&self.segment);
        let found = describe(call.fd).and_then(|(identity, node)| {
            files.find(identity, call.started_us).or_else(|| {
                let way = device::way(&self.volumes, &node)?;
                let mut path = [0; PATH_MAX + 1];
                let path = path_of(call.fd, &mut path)?;
                files.add(identity, way, path, call.started_us).or_else(|| {
                    self.count(Count::FilesLost, 1);
                    None
                })
            })
        });
        let known = found.map(|id| Fd::of(id, call.started_us / 1_000_000));
        // What found no room may find it later; what is no tracked file is not asked again.
        let again = known.or_else(|| describe(call.fd).map(|_| Fd::pending()));
        fds::replace(call.fd, call.known, again);
        self.care_for_sender();
        found
    }

    /// A call on a tracked descriptor moved `bytes` bytes between the file, from `offset` on, and
    /// pieces of memory (address and length), in order. An asynchronous call is told of when it is
    /// handed over.
    pub fn moved(
        &self,
        call: &Tracked,
        direction: Direction,
        offset: u64,
        pieces: impl Iterator<Item = (u64, u64)>,
        bytes: u64,
        is_async: bool,
    ) {
        self.count(
            match (direction, is_async) {
                (Direction::Read, false) => Count::Reads,
                (Direction::Read, true) => Count::AsyncReads,
                (Direction::Write, false) => Count::Writes,
                (Direction::Write, true) => Count::AsyncWrites,
            },
            1,
        );
        let Some(file) = self.file(call) else { return self.count(Count::Missed, 1) };
        let mut records = Records::new(self, call.started_us);
        let (mut offset, mut left) = (offset, bytes);
        for (address, length) in pieces {
            let length = length.min(left);
            if length == 0 {
                if left == 0 {
                    break;
                }
                continue;
            }
            if let Some(space) = self.memory.space(&self.segment, self.settings.frames, address) {
                let piece = Piece { file, offset, space, address, length };
                match direction {
                    Direction::Read => records.read(&piece, length > LONGEST_PAGE),
                    Direction::Write => records.write(&piece),
                }
            }
            (offset, left) = (offset.saturating_add(length), left - length);
        }
        records.finish();
    }

    fn count(&self, count: Count, by: u64) {
        self.segment.count(count, stripe(), by);
    }
}

/// Threads and processes count in different places, mostly.
fn stripe() -> usize {
    let here = 0_u8;
    (std::ptr::from_ref(&here) as usize >> 20) ^ (rustix::process::getpid().as_raw_pid() as usize)
}

/// What a descriptor leads to.
fn describe(fd: i32) -> Option<(Identity, Node)> {
    // SAFETY: the number is that of a descriptor of the program, used in this call only.
    let fd = unsafe { rustix::fd::BorrowedFd::borrow_raw(fd) };
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    let told = statx(fd, c"", AtFlags::EMPTY_PATH, wanted).ok()?;
    Some(of_statx(&told))
}

pub(crate) fn of_statx(told: &rustix::fs::Statx) -> (Identity, Node) {
    let device = makedev(told.stx_dev_major, told.stx_dev_minor);
    let has_birth = told.stx_mask & StatxFlags::BTIME.bits() != 0;
    let birth = told.stx_btime;
    let birth = birth.tv_sec.wrapping_mul(1_000_000_000).wrapping_add(birth.tv_nsec.into()) as u64;
    let kind = FileType::from_raw_mode(told.stx_mode.into());
    let is_device = makedev(told.stx_rdev_major, told.stx_rdev_minor);
    let birth = if has_birth { birth } else { 0 };
    let identity = Identity { device, inode: told.stx_ino, birth };
    (identity, Node { kind, device, inode: told.stx_ino, is_device })
}

fn path_of(fd: i32, buffer: &mut [u8]) -> Option<&[u8]> {
    let link: Text<64> = Text::new(format_args!("/proc/self/fd/{fd}"));
    let room = buffer.len();
    let length = readlinkat_raw(CWD, link.as_c_str(), &mut *buffer).ok()?;
    (length < room).then(|| &buffer[..length])
}

/// A stretch of a file and the memory that it goes into or comes from.
struct Piece {
    file: u32,
    offset: u64,
    space: u16,
    address: u64,
    length: u64,
}

impl Piece {
    /// Bytes before the first whole granule of the file, and the number of whole ones.
    fn whole(&self) -> (u64, u64) {
        let before = self.offset.wrapping_neg() % GRANULE;
        (before.min(self.length), self.length.saturating_sub(before) / GRANULE)
    }

    /// The granules, and where they are in memory.
    fn granules(&self) -> impl Iterator<Item = (Place, Key)> + use<> {
        let (before, count) = self.whole();
        let (file, space) = (self.file, self.space);
        let first = (self.offset + before) / GRANULE;
        let address = self.address.saturating_add(before);
        (0..count).filter_map(move |n| {
            let place = Place::new(space, address.saturating_add(n * GRANULE))?;
            Some((place, Key::new(file, first.checked_add(n)?)?))
        })
    }
}

/// Of a record's second word: granules, whether they are late, and the time.
const RUN_BITS: u32 = 15;
const RUN_MAX: u64 = (1 << RUN_BITS) - 1;
const LATE: u64 = 1 << RUN_BITS;
const TIME_SHIFT: u32 = 16;

/// Granules of one file, one after the other, that left at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) first: Key,
    pub(crate) count: u64,
    pub(crate) late: bool,
    pub(crate) time_us: u64,
}

impl Record {
    fn words(&self) -> [u64; 2] {
        let late = if self.late { LATE } else { 0 };
        [self.first.word(), self.count | late | self.time_us << TIME_SHIFT]
    }

    pub(crate) fn from_words(words: [u64; 2]) -> Record {
        Record {
            first: Key::from_word(words[0]),
            count: words[1] & RUN_MAX,
            late: words[1] & LATE != 0,
            time_us: words[1] >> TIME_SHIFT,
        }
    }
}

/// Collects what leaves the table at one call, and puts it into the ring in runs.
struct Records<'a> {
    tracker: &'a Tracker,
    table: Table<'a>,
    time_us: u64,
    run: Option<Record>,
    pushed: bool,
    counts: [(Count, u64); 6],
}

const EVICTIONS: usize = 0;
const LATES: usize = 1;
const NO_FRAMES: usize = 2;
const OVERFLOWS: usize = 3;
const DROPS: usize = 4;
const PARTS: usize = 5;

impl<'a> Records<'a> {
    fn new(tracker: &'a Tracker, time_us: u64) -> Self {
        let counts = [
            (Count::Evictions, 0),
            (Count::Late, 0),
            (Count::NoFrame, 0),
            (Count::Overflowed, 0),
            (Count::Dropped, 0),
            (Count::Partial, 0),
        ];
        let table = Table::new(&tracker.segment);
        Records { tracker, table, time_us, run: None, pushed: false, counts }
    }

    fn read(&mut self, piece: &Piece, too_long: bool) {
        let (before, whole) = piece.whole();
        let table = self.table;
        if too_long || whole == 0 {
            self.counts[PARTS].1 += 1;
            return table.clear(piece.space, piece.address, piece.length, self);
        }
        if before > 0 {
            table.clear(piece.space, piece.address, before, self);
        }
        for (place, block) in piece.granules() {
            table.read(place, block, self);
        }
        let done = before + whole * GRANULE;
        if done < piece.length {
            let address = piece.address.saturating_add(done);
            table.clear(piece.space, address, piece.length - done, self);
        }
    }

    fn write(&mut self, piece: &Piece) {
        let table = self.table;
        for (place, block) in piece.granules() {
            table.write(place, block, self);
        }
    }

    fn add(&mut self, block: Key, late: bool) {
        if let Some(run) = &mut self.run {
            let next = run.first.word().wrapping_add(run.count);
            if run.late == late && next == block.word() && run.count < RUN_MAX {
                run.count += 1;
                return;
            }
        }
        let run = Record { first: block, count: 1, late, time_us: self.time_us };
        if let Some(done) = self.run.replace(run) {
            self.push(done);
        }
    }

    fn push(&mut self, run: Record) {
        self.pushed = true;
        if !Ring::new(&self.tracker.segment).push(run.words()) {
            self.counts[DROPS].1 += 1;
        }
    }

    fn finish(mut self) {
        if let Some(run) = self.run.take() {
            self.push(run);
        }
        let asleep = self.tracker.segment.asleep();
        if self.pushed && asleep.load(Acquire) == 1 && asleep.swap(0, AcqRel) == 1 {
            let _ = futex::wake(asleep, futex::Flags::empty(), 1);
        }
        if self.counts.iter().any(|(_, by)| *by > 0) {
            let stripe = stripe();
            for (count, by) in self.counts.into_iter().filter(|(_, by)| *by > 0) {
                self.tracker.segment.count(count, stripe, by);
            }
        }
    }
}

impl Sink for Records<'_> {
    fn evicted(&mut self, block: Key) {
        self.counts[EVICTIONS].1 += 1;
        self.add(block, false);
    }

    fn late(&mut self, block: Key) {
        self.counts[LATES].1 += 1;
        self.add(block, true);
    }

    fn no_frame(&mut self) {
        self.counts[NO_FRAMES].1 += 1;
    }

    fn overflowed(&mut self) {
        self.counts[OVERFLOWS].1 += 1;
    }
}
