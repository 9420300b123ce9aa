//! Where the bytes of a file lie on the device of its file system. `FS_IOC_FIEMAP` tells that on
//! ext4, XFS and others, for open files. It causes no write-back.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use rustix::ioctl::{Opcode, Updater, ioctl, opcode};

/// Extents requested at a time.
const BATCH: usize = 256;
/// Most extents that are kept of a file; the rest of the file is not mapped.
const EXTENTS_MAX: usize = 1 << 20;

const LAST: u32 = 0x1;
const UNKNOWN: u32 = 0x2;
const DELAYED: u32 = 0x4;
const ENCODED: u32 = 0x8;
const NOT_ALIGNED: u32 = 0x100;
const INLINE: u32 = 0x200;
const TAIL: u32 = 0x400;
/// Flags of extents without a usable position on the device. Unwritten extents have one, and keep
/// it when they are written.
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

/// The request number encodes the size of the head, without the extents.
const FIEMAP: Opcode = opcode::read_write::<[u64; 4]>(b'f', 11);

/// A contiguous range of a file on its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// First byte in the file.
    pub logical: u64,
    /// First byte on the device of the file system.
    pub physical: u64,
    /// Length in bytes.
    pub length: u64,
}

/// The position of a file on its device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Extents {
    /// In the order of the file; bytes between them have no position.
    list: Vec<Extent>,
}

impl Extents {
    /// Asks the file system.
    ///
    /// # Errors
    /// The error of the system, if the file system does not tell (tmpfs, for example).
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

    /// Position of a byte of the file on the device, and the number of contiguous bytes from there
    /// on.
    pub fn locate(&self, offset: u64) -> Option<(u64, u64)> {
        let after = self.list.partition_point(|extent| extent.logical <= offset);
        let extent = self.list.get(after.checked_sub(1)?)?;
        let within = offset - extent.logical;
        let left = extent.length.checked_sub(within).filter(|left| *left > 0)?;
        Some((extent.physical + within, left))
    }

    /// The extents, in order.
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
