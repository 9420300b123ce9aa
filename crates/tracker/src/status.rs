//! The tracker as seen from another process: its counters, and the blocks that it believes the
//! program holds.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;

use crate::files::Files;
use crate::pools::{Pool, Pools};
use crate::segment::layout::{
    BYPASS, CONTENTS, CREATOR, LAST_ERROR, POOL_BYTES, SENDER, STARTED_US, VOLUME, VOLUMES,
    VOLUMES_MAX, WANTED,
};
use crate::segment::{Count, NAME, Segment, Sent, State, segments};
use crate::sender::Places;
use crate::table::{GRANULE, Table};
use crate::{now_us, text};

/// The counters of a tracker. All count from the start of the first process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Process that made the segment.
    pub pid: u32,
    /// Whether it is tracking: false before the first tracked file is opened, and after it gave up.
    pub is_tracking: bool,
    /// Whether it gave up; `last_error` says why.
    pub gave_up: bool,
    /// Age in microseconds.
    pub uptime_us: u64,
    /// Bytes of client memory for which the table has room.
    pub pool_bytes: u64,
    /// Whether reads bypass the page cache.
    pub bypasses: bool,
    /// Tracked synchronous reads.
    pub reads: u64,
    /// Tracked synchronous writes.
    pub writes: u64,
    /// Reads submitted to io_uring or libaio.
    pub async_reads: u64,
    /// Writes submitted to io_uring or libaio.
    pub async_writes: u64,
    /// Granules of 4 KiB that left their frames.
    pub evictions: u64,
    /// Granules whose eviction was noticed only when they were read again: late / (late +
    /// evictions) is the share of evictions that the server learns of too late.
    pub late: u64,
    /// Granules of pages created in frames into which nothing was ever read; not counted again when
    /// the frame takes another page.
    pub made: u64,
    /// Granules written from memory that is not a frame.
    pub no_frame: u64,
    /// Reads of parts of granules, and reads of more than 64 KiB into one piece of memory; these
    /// make no frames.
    pub partial: u64,
    /// Calls that could not be tracked.
    pub missed: u64,
    /// Records lost because the sender was too slow.
    pub dropped: u64,
    /// Frames forgotten for lack of room: the pool is larger than configured.
    pub overflowed: u64,
    /// Files for which there was no room.
    pub files_lost: u64,
    /// Granules whose frames were found freed before they were used again; part of `evictions`.
    pub foreseen: u64,
    /// Whether servers want contents of evicted blocks, and this program can hand them over.
    pub hands_over: bool,
    /// Whether the kernel refuses to let the program read its frames safely.
    pub contents_refused: bool,
    /// Granules whose content was kept for the server.
    pub kept: u64,
    /// Granules whose content was not kept because their beginning on the volume is not known.
    pub headless: u64,
    /// Granules whose content was not kept because too many waited, or their memory was not there.
    pub not_kept: u64,
    /// Blocks of the server that were handed over: reported with their contents.
    pub handed_over: u64,
    /// Blocks of the server that were reported as evicted, and acknowledged.
    pub sent: u64,
    /// Those of them reported late.
    pub sent_late: u64,
    /// Messages acknowledged.
    pub messages: u64,
    /// Granules without a position on a volume: deleted files, holes, delayed allocation.
    pub unplaced: u64,
    /// Granules that were back in a frame before they could be reported.
    pub back: u64,
    /// Granules read into memory that proved not to be a cache; they are forgotten.
    pub strays: u64,
    /// Blocks not reported for lack of a connection.
    pub unsent: u64,
    /// Connections made.
    pub connections: u64,
    /// Extent maps of files that were read.
    pub maps: u64,
    /// The last error, or empty.
    pub last_error: String,
    /// Memory that is known to be a cache as a whole, the largest first.
    pub pools: Vec<Pool>,
    /// The volumes, by their numbers.
    pub volumes: Vec<VolumeStatus>,
}

/// The state of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeStatus {
    /// The device, as configured.
    pub device: PathBuf,
    /// The export, as configured.
    pub uri: String,
    /// Whether its server is connected.
    pub connected: bool,
    /// Bytes of the server's blocks; 0 before the first connection.
    pub block_bytes: u32,
    /// The server's epoch at the last connection.
    pub epoch: u64,
}

/// Memory that is believed to hold bytes of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resident {
    /// Address space: 0 is the first process, and memory that others share with it.
    pub space: u16,
    /// Address of the first byte.
    pub address: u64,
    /// Length, a multiple of 4 KiB.
    pub bytes: u64,
    /// Path of the file when it was opened.
    pub path: PathBuf,
    /// First byte in the file.
    pub file_offset: u64,
    /// Number of the volume.
    pub volume: usize,
    /// First byte on the volume; `None` if the file no longer exists, or has no allocated space
    /// yet.
    pub volume_offset: Option<u64>,
}

impl Segment {
    /// Finds the segment of a process in a folder, by its creator or by its sender.
    ///
    /// # Errors
    /// The error of the system, or that there is no such segment.
    pub fn of_process(folder: &Path, pid: u32) -> io::Result<Segment> {
        let (mut newest, mut failed) = (None, None);
        for (path, creator) in segments(folder) {
            if !is_from_its_user(&path, pid) {
                continue;
            }
            let is_its_own = creator == u64::from(pid);
            match Segment::open(&path) {
                Ok(segment) => {
                    let word = |at: usize| segment.word(at).load(Relaxed);
                    if is_its_own || word(SENDER) == u64::from(pid) {
                        let age = (is_its_own, word(STARTED_US));
                        newest = newest.filter(|(other, _)| *other > age).or(Some((age, segment)));
                    }
                }
                Err(error) if is_its_own => failed = Some(error),
                Err(_) => {}
            }
        }
        newest.map(|(_, segment)| segment).ok_or_else(|| {
            let path = folder.join(format!("{NAME}{pid}"));
            failed.unwrap_or_else(|| {
                io::Error::new(io::ErrorKind::NotFound, format!("{}: none", path.display()))
            })
        })
    }

    /// The counters.
    pub fn status(&self) -> Status {
        let word = |at: usize| self.word(at).load(Relaxed);
        let state = self.state();
        Status {
            pid: word(CREATOR) as u32,
            is_tracking: state == State::Ready,
            gave_up: state == State::Off,
            uptime_us: now_us().saturating_sub(word(STARTED_US)),
            pool_bytes: word(POOL_BYTES),
            bypasses: word(BYPASS) == 1,
            reads: self.counted(Count::Reads),
            writes: self.counted(Count::Writes),
            async_reads: self.counted(Count::AsyncReads),
            async_writes: self.counted(Count::AsyncWrites),
            evictions: self.counted(Count::Evictions),
            late: self.counted(Count::Late),
            made: self.counted(Count::Made),
            no_frame: self.counted(Count::NoFrame),
            partial: self.counted(Count::Partial),
            missed: self.counted(Count::Missed),
            dropped: self.counted(Count::Dropped),
            overflowed: self.counted(Count::Overflowed),
            files_lost: self.counted(Count::FilesLost),
            foreseen: self.counted_sent(Sent::Foreseen),
            hands_over: word(WANTED) != 0 && self.contents_are_ready(),
            contents_refused: word(CONTENTS) == 2,
            kept: self.counted(Count::Kept),
            headless: self.counted(Count::Headless),
            not_kept: self.counted(Count::NotKept),
            handed_over: self.counted_sent(Sent::HandedOver),
            sent: self.counted_sent(Sent::Blocks),
            sent_late: self.counted_sent(Sent::Late),
            messages: self.counted_sent(Sent::Messages),
            unplaced: self.counted_sent(Sent::Unplaced),
            back: self.counted_sent(Sent::Back),
            strays: self.counted_sent(Sent::Strays),
            unsent: self.counted_sent(Sent::Unsent),
            connections: self.counted_sent(Sent::Connections),
            maps: self.counted_sent(Sent::Maps),
            pools: Pools::new(self).list().collect(),
            last_error: lossy(&self.header()[LAST_ERROR]),
            volumes: (0..VOLUMES_MAX).filter_map(|number| self.volume(number)).collect(),
        }
    }

    fn volume(&self, number: usize) -> Option<VolumeStatus> {
        let start = VOLUMES + number * VOLUME;
        let words = &self.header()[start..start + VOLUME];
        let word = |at: usize| words[at].load(Relaxed);
        (word(0) != 0).then(|| VolumeStatus {
            device: lossy(&words[16..80]).into(),
            uri: lossy(&words[80..]),
            connected: word(4) != 0,
            block_bytes: word(3) as u32,
            epoch: word(5),
        })
    }

    /// The blocks that the program is believed to hold, ordered by address. Pieces adjacent both in
    /// memory and in one file are joined.
    pub fn resident(&self) -> Vec<Resident> {
        if self.state() == State::Sparse {
            return Vec::new();
        }
        let mut content: Vec<_> = Table::new(self).content().collect();
        content.sort_unstable_by_key(|(place, _)| (place.space(), place.address()));
        let files = Files::new(self);
        let (mut places, now) = (Places::default(), now_us());
        let mut known = std::collections::HashMap::new();
        let mut list = Vec::<Resident>::new();
        for (place, block) in content {
            let file = known.entry(block.file()).or_insert_with(|| files.get(block.file()));
            let Some(file) = file else { continue };
            let path = PathBuf::from(String::from_utf8_lossy(&file.path).into_owned());
            let at = places.of(self, block, now);
            let one = Resident {
                space: place.space(),
                address: place.address(),
                bytes: GRANULE,
                path,
                file_offset: block.granule() * GRANULE,
                volume: match file.way {
                    crate::device::Way::Raw(part) | crate::device::Way::Mapped(part) => part.volume,
                },
                volume_offset: at.map(|at| at.offset),
            };
            match list.last_mut() {
                Some(last) if last.is_followed_by(&one) => last.bytes += GRANULE,
                _ => list.push(one),
            }
        }
        list
    }
}

impl Resident {
    fn is_followed_by(&self, next: &Resident) -> bool {
        let after = |start: Option<u64>| start.map(|start| start + self.bytes);
        (self.space, self.address + self.bytes) == (next.space, next.address)
            && self.file_offset + self.bytes == next.file_offset
            && after(self.volume_offset) == next.volume_offset
            && self.path == next.path
    }
}

fn lossy(words: &[std::sync::atomic::AtomicU64]) -> String {
    String::from_utf8_lossy(&text::load(words)).into_owned()
}

/// Whether root may trust that a segment belongs to a process, since anybody can create one that
/// claims so. Other users can only open their own.
fn is_from_its_user(path: &Path, pid: u32) -> bool {
    if !rustix::process::geteuid().is_root() {
        return true;
    }
    let made_by = fs::symlink_metadata(path).map(|found| found.uid());
    let user = fs::metadata(format!("/proc/{pid}")).map(|found| found.uid());
    // If there is no such process, nothing in the segment can mislead about it.
    made_by.is_ok_and(|made_by| made_by == 0 || user.map_or(true, |user| user == made_by))
}
