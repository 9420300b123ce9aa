//! Evaluates a call of the program: for its descriptors, for the table, for the server.
//!
//! Everything here may be called at any time from any thread, in signal handlers, and in forked
//! processes; see the rules in `lib.rs`.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use rustix::fs::{AtFlags, CWD, FileType, StatxFlags, makedev, readlinkat_raw, statx};

use crate::calls::{self, Call, CallKind};
use crate::clock::now_us;
use crate::device::{self, Backing, Node};
use crate::fds::{self, Fd};
use crate::files::{Files, Identity, PATH_MAX};
use crate::filter;
use crate::kept::Kept;
use crate::record::{Piece, Records};
use crate::segment::layout::{BYPASS, SENDER, VOLUME, VOLUMES};
use crate::segment::{Count, Segment, State, is_alive};
use crate::settings::Settings;
use crate::space::{self, Memory};
use crate::text::{self, Text};

/// Most bytes of any database's page, and of a server's block. A longer read into one piece of
/// memory is not a page (InnoDB's doublewrite area at start, or a scan of a log): the blocks that
/// it overwrites have left, and it makes no frames.
pub(crate) const LONGEST_PAGE: u64 = 64 << 10;

/// Why tracking cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A device cannot be a volume.
    #[error("{0}")]
    Volume(String),
    /// The segment cannot be created.
    #[error("{0}: {1}")]
    Segment(std::path::PathBuf, std::io::Error),
}

/// The state before a call on a tracked descriptor.
#[derive(Clone, Copy, Debug)]
pub struct Tracked {
    fd: i32,
    known: Fd,
    started_us: u64,
}

impl Tracked {
    /// Records the time, if the descriptor is tracked. Call it before the program's call is made,
    /// so that no eviction that the call implies is earlier.
    #[inline]
    pub fn before(fd: i32) -> Option<Tracked> {
        let known = fds::get(fd)?;
        Some(Tracked { fd, known, started_us: now_us() })
    }

    pub(crate) fn started_us(&self) -> u64 {
        self.started_us
    }

    /// The file position of the descriptor, in bytes; `None` also if the system may not be asked.
    pub fn position(&self) -> Option<u64> {
        let _permit = filter::may_call()?;
        // SAFETY: the number is that of a descriptor of the program, used in this call only.
        let fd = unsafe { rustix::fd::BorrowedFd::borrow_raw(self.fd) };
        rustix::fs::tell(fd).ok()
    }
}

/// The direction of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the file into memory.
    Read,
    /// From memory to the file.
    Write,
}

/// A transfer between a file and memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// Its direction.
    pub direction: Direction,
    /// First byte in the file.
    pub offset: u64,
    /// Bytes moved.
    pub bytes: u64,
    /// Whether it has only been submitted.
    pub is_async: bool,
}

/// The tracker of a process and its forked processes.
pub struct Tracker {
    segment: Segment,
    settings: Settings,
    volumes: Vec<Backing>,
    memory: Memory,
    /// Id of this process.
    process: AtomicU32,
    /// Starts a thread that calls [`crate::sender::run`].
    start_sender: fn(),
}

impl Tracker {
    /// Starts tracking, in the first process. No thread is started and no connection made until a
    /// tracked file is opened.
    ///
    /// # Errors
    /// Why tracking cannot start.
    pub fn start(settings: Settings, start_sender: fn()) -> Result<Tracker, StartError> {
        let backing = |volume: &crate::settings::Volume| Backing::of_path(&volume.device);
        let volumes: Result<Vec<_>, _> = settings.volumes.iter().map(backing).collect();
        let volumes = volumes.map_err(StartError::Volume)?;
        let folder = &settings.segment_dir;
        let segment = Segment::create(folder, settings.pool)
            .map_err(|error| StartError::Segment(folder.clone(), error))?;
        let memory = Memory::of_first_process();
        let process = AtomicU32::new(std::process::id());
        let tracker = Tracker { segment, settings, volumes, memory, process, start_sender };
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

    /// The segment in shared memory.
    pub fn segment(&self) -> &Segment {
        &self.segment
    }

    pub(crate) fn memory(&self) -> &Memory {
        &self.memory
    }

    pub(crate) fn volume_words(&self, number: usize) -> &[std::sync::atomic::AtomicU64] {
        let start = VOLUMES + number * VOLUME;
        &self.segment.header()[start..start + VOLUME]
    }

    /// Whether reads of tracked files should bypass the page cache.
    #[inline]
    pub fn bypasses(&self) -> bool {
        self.settings.bypass && self.segment.word(BYPASS).load(Relaxed) == 1
    }

    /// The kernel does not support bypassing: from now on reads are made unchanged.
    pub fn bypass_refused(&self) {
        self.segment.word(BYPASS).store(2, Relaxed);
    }

    /// Call in the child after a fork.
    pub fn forked(&self) {
        filter::forked();
        self.memory.forked();
        let Some(_permit) = filter::may_call() else { return self.process.store(0, Relaxed) };
        self.process.store(std::process::id(), Relaxed);
        // Registers at once, so that this process is known if the first one ends.
        let _ = space::claim(&self.segment);
    }

    /// Call when the process ends by `exit`. The first process removes the segment's name, unless
    /// others continue, as in a program that becomes a daemon. The next program that starts does
    /// it if this one filters its system calls.
    pub fn exiting(&self) {
        let Some(_permit) = filter::may_call() else { return };
        if !self.memory.is_first_process() {
            // If frames exist, the sender forgets them before it releases the space.
            if self.segment.state() != State::Ready {
                space::claim(&self.segment).inspect(|space| space::free(&self.segment, *space));
            }
        } else if !space::any_alive(&self.segment) {
            let _ = rustix::fs::unlink(self.segment.path());
        }
    }

    /// Stops tracking in all processes.
    pub fn give_up(&self) {
        self.segment.set_state(State::Off);
    }

    /// A descriptor was opened; `reads`: it is readable.
    pub fn opened(&self, fd: i32, reads: bool) {
        let Some(_permit) = filter::may_call() else {
            // The sender finds out what was opened, if it is a thread of this process.
            let is_here = self.segment.word(SENDER).load(Relaxed) == self.id();
            fds::set(fd, (reads && is_here && !filter::ends_sender()).then(Fd::pending));
            return;
        };
        let counts = reads && self.segment.state() != State::Off && self.counts(fd, Thread::Own);
        fds::set(fd, counts.then(Fd::pending));
        if counts {
            self.care_for_sender();
        }
    }

    /// Descriptor `new` is a duplicate of `old`.
    pub fn duplicated(&self, old: i32, new: i32) {
        fds::set(new, fds::get(old));
    }

    /// The size or allocation of a descriptor's file has changed.
    pub fn changed(&self, fd: i32) {
        if let Some(id) = fds::get(fd).and_then(Fd::id) {
            if self.segment.state() == State::Ready {
                Files::new(&self.segment).changed(id);
            }
        }
    }

    /// Counts a call that could not be tracked.
    pub fn missed(&self) {
        self.count(Count::Missed, 1);
    }

    fn id(&self) -> u64 {
        self.process.load(Relaxed).into()
    }

    /// Starts a sender if none is alive.
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

    /// Whether a file that was just opened must be tracked.
    fn counts(&self, fd: i32, of: Thread) -> bool {
        let Some((identity, node)) = describe(fd, of) else { return false };
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

    /// The file behind a descriptor. The entry is trusted for at most a second, since some ways of
    /// closing a descriptor are not noticed.
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
        let Some(_permit) = filter::may_call() else {
            // What the sender has found by `look_around`.
            return call.known.id().filter(|id| Files::new(&self.segment).is_current(*id));
        };
        let found = self.identify(call, Thread::Own);
        self.care_for_sender();
        found
    }

    /// Does in the sender what the program's threads must not do: finds out which files are behind
    /// the descriptors.
    pub(crate) fn look_around(&self, now_us: u64) {
        for (fd, known) in fds::all() {
            let is_new = known.id().is_none();
            if is_new && !self.counts(fd, Thread::Sender) {
                fds::replace(fd, known, None);
            } else if is_new || known.is_old(now_us / 1_000_000) {
                self.identify(&Tracked { fd, known, started_us: now_us }, Thread::Sender);
            }
        }
    }

    /// Finds the file behind a descriptor, and enters it.
    fn identify(&self, call: &Tracked, of: Thread) -> Option<u32> {
        let files = Files::new(&self.segment);
        let found = describe(call.fd, of).and_then(|(identity, node)| {
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
        // If there was no room, it is tried again later; an untracked file is not checked again.
        let again = known.or_else(|| describe(call.fd, of).map(|_| Fd::pending()));
        fds::replace(call.fd, call.known, again);
        found
    }

    /// A call on a tracked descriptor moved bytes between the file and pieces of memory (address,
    /// length), in order. For an asynchronous call this is called at its submission. `kept` is what
    /// was kept of the frames that the call overwrites.
    pub fn moved(
        &self,
        call: &Tracked,
        transfer: Transfer,
        pieces: impl Iterator<Item = (u64, u64)>,
        kept: &mut Kept,
    ) {
        let Transfer { direction, offset, bytes, is_async } = transfer;
        let what = match (direction, is_async) {
            (Direction::Read, false) => Count::Reads,
            (Direction::Read, true) => Count::AsyncReads,
            (Direction::Write, false) => Count::Writes,
            (Direction::Write, true) => Count::AsyncWrites,
        };
        let Some(file) = self.file(call) else {
            self.free(kept);
            self.count(what, 1);
            return self.count(Count::Missed, 1);
        };
        if bytes > 0 {
            let kind = match direction {
                Direction::Read => CallKind::Read,
                Direction::Write => CallKind::Write,
            };
            let (length, time_us) = (bytes, call.started_us);
            calls::note(&self.segment, Call { kind, file, offset, length, time_us });
        }
        let mut records = Records::new(self, what, call.started_us, kept);
        let (mut offset, mut left) = (offset, bytes);
        for (address, length) in pieces {
            let length = length.min(left);
            if length == 0 {
                if left == 0 {
                    break;
                }
                continue;
            }
            if let Some(space) = self.space(address) {
                let piece = Piece { file, offset, space, address, length };
                match direction {
                    Direction::Read => records.read(&piece, length > LONGEST_PAGE, is_async),
                    Direction::Write => records.write(&piece, is_async),
                }
            }
            (offset, left) = (offset.saturating_add(length), left - length);
        }
        records.finish();
    }

    /// The space of an address; `None` if the memory there does not count.
    #[inline]
    pub(crate) fn space(&self, address: u64) -> Option<u16> {
        self.memory.space(&self.segment, self.settings.frames, address)
    }

    pub(crate) fn count(&self, count: Count, by: u64) {
        if by > 0 {
            self.segment.count(count, self.stripe(), by);
        }
    }

    /// The set of counters to use: different threads and processes mostly use different ones.
    pub(crate) fn stripe(&self) -> usize {
        let here = 0_u8;
        (std::ptr::from_ref(&here) as usize >> 20) ^ self.process.load(Relaxed) as usize
    }
}

/// A thread that asks about a descriptor of the program.
#[derive(Clone, Copy)]
enum Thread {
    /// One of the program's own.
    Own,
    /// The sender, which has other descriptors.
    Sender,
}

/// The identity and properties of a descriptor's file.
fn describe(fd: i32, of: Thread) -> Option<(Identity, Node)> {
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    let told = match of {
        Thread::Own => {
            // SAFETY: the number is that of a descriptor of the program, used in this call only.
            let fd = unsafe { rustix::fd::BorrowedFd::borrow_raw(fd) };
            statx(fd, c"", AtFlags::EMPTY_PATH, wanted)
        }
        Thread::Sender => statx(CWD, link_of(fd).as_c_str(), AtFlags::empty(), wanted),
    };
    Some(of_statx(&told.ok()?))
}

/// The link to a descriptor's file.
fn link_of(fd: i32) -> Text<64> {
    Text::new(format_args!("/proc/self/fd/{fd}"))
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
    let link = link_of(fd);
    let room = buffer.len();
    let length = readlinkat_raw(CWD, link.as_c_str(), &mut *buffer).ok()?;
    (length < room).then(|| &buffer[..length])
}
