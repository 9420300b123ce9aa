//! Where the bytes of a file lie on the device of its file system: `FS_IOC_FIEMAP`, which ext4,
//! XFS and others answer to whoever has the file open. Nothing is written back for it.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use rustix::ioctl::{Opcode, Updater, ioctl, opcode};

/// Extents asked for at a time.
const BATCH: usize = 256;
/// Most extents of a file that are kept; the rest of the file is not translated.
const EXTENTS_MAX: usize = 1 << 20;

const LAST: u32 = 0x1;
const UNKNOWN: u32 = 0x2;
const DELAYED: u32 = 0x4;
const ENCODED: u32 = 0x8;
const NOT_ALIGNED: u32 = 0x100;
const INLINE: u32 = 0x200;
const TAIL: u32 = 0x400;
/// What of has no place, or none where its bytes could be found. Unwritten extents have one, and
/// keep it when they are written.
const WITHOUT_PLACE: u32 = UNKNOWN | DELAYED | ENCODED | NOT_ALIGNED | INLINE | TAIL;

#[repr(C)]
#[derive(Clone, Copy)]
struct RawExtent {
    logical: u64,
    physical: u64,
    length: u64,
    reserved: [u64; 2],
    flags: u32,
    reserved_too: [u32; 3],
}

#[repr(C)]
struct Question {
    start: u64,
    length: u64,
    flags: u32,
    mapped: u32,
    count: u32,
    reserved: u32,
    extents: [RawExtent; BATCH],
}

/// The number of the request names the size of its head, without the extents.
const FIEMAP: Opcode = opcode::read_write::<[u64; 4]>(b'f', 11);

/// A stretch of a file that lies in one piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// First byte in the file.
    pub logical: u64,
    /// First byte on the device of the file system.
    pub physical: u64,
    /// Bytes.
    pub length: u64,
}

/// Where a file lies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Extents {
    /// In order of the file; nothing between them has a place.
    list: Vec<Extent>,
}

impl Extents {
    /// Asks the file system.
    ///
    /// # Errors
    /// The system's: the file system does not tell, as with tmpfs.
    pub fn of(file: &File) -> io::Result<Extents> {
        let mut list = Vec::new();
        let mut start = 0;
        let nothing = RawExtent {
            logical: 0,
            physical: 0,
            length: 0,
            reserved: [0; 2],
            flags: 0,
            reserved_too: [0; 3],
        };
        let mut question = Box::new(Question {
            start,
            length: 0,
            flags: 0,
            mapped: 0,
            count: BATCH as u32,
            reserved: 0,
            extents: [nothing; BATCH],
        });
        loop {
            (question.start, question.length, question.mapped) = (start, u64::MAX - start, 0);
            ask(file, &mut question)?;
            let mapped = (question.mapped as usize).min(BATCH);
            for raw in &question.extents[..mapped] {
                if raw.flags & WITHOUT_PLACE == 0 && raw.length > 0 {
                    let RawExtent { logical, physical, length, .. } = *raw;
                    list.push(Extent { logical, physical, length });
                }
                start = raw.logical.saturating_add(raw.length).max(start + 1);
            }
            let is_last = mapped < BATCH || question.extents[mapped - 1].flags & LAST != 0;
            if is_last || list.len() >= EXTENTS_MAX {
                return Ok(Extents { list });
            }
        }
    }

    /// Where a byte of the file is on the device, and how many follow it there in one piece.
    pub fn locate(&self, offset: u64) -> Option<(u64, u64)> {
        let after = self.list.partition_point(|extent| extent.logical <= offset);
        let extent = self.list.get(after.checked_sub(1)?)?;
        let within = offset - extent.logical;
        let left = extent.length.checked_sub(within).filter(|left| *left > 0)?;
        Some((extent.physical + within, left))
    }

    /// The stretches.
    pub fn list(&self) -> &[Extent] {
        &self.list
    }
}

fn ask(file: &File, question: &mut Question) -> io::Result<()> {
    // SAFETY: the request has the layout of the system's `struct fiemap` with `count` extents
    // behind it, all of which the system may fill in; the number is that of the request.
    unsafe {
        let request = Updater::<FIEMAP, Question>::new(question);
        ioctl(file.as_fd(), request)?;
    }
    Ok(())
}
