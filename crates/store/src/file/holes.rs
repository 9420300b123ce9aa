//! Holes in a file or device: zeroing and trimming without writing where the medium supports it,
//! and listing what is allocated.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{FallocateFlags, SeekFrom};
use rustix::io::{Errno, retry_on_intr};

use super::medium_io::MediumIo;
use crate::store::{Extent, MAX_EXTENTS, Zeroing};

const PUNCH: FallocateFlags = FallocateFlags::PUNCH_HOLE.union(FallocateFlags::KEEP_SIZE);
const ZERO: FallocateFlags = FallocateFlags::ZERO_RANGE.union(FallocateFlags::KEEP_SIZE);

/// The medium's support for holes, as far as known.
pub(super) struct Holes {
    punch: Ability,
    zero_range: Ability,
    allocate: Ability,
    /// Sector size of a block device, whose calls take whole sectors only.
    sector_bytes: Option<u64>,
}

/// A call that the medium may not support.
#[derive(Default)]
struct Ability {
    missing: AtomicBool,
}

impl Holes {
    /// `file`: the medium, or a file beside it.
    pub(super) fn new(file: &File, sector_bytes: Option<u32>, size: u64) -> io::Result<Holes> {
        let holes = Holes {
            punch: Ability::default(),
            zero_range: Ability::default(),
            allocate: Ability::default(),
            sector_bytes: sector_bytes.map(u64::from),
        };
        match sector_bytes {
            // Without this support the kernel would write the zeroes itself, page by page.
            Some(_) => holes.punch.set_missing(!device_zeroes_fast(file)?),
            // Punching a hole behind the end changes nothing but the file's times, and tells
            // whether holes are supported. It fails on a read-only file, which needs no holes.
            None => drop(holes.punch.call(file, PUNCH, size, 4096)),
        }
        Ok(holes)
    }

    /// Whether holes are supported, so that zeroing is fast.
    pub(super) fn are_fast(&self) -> bool {
        !self.punch.is_missing()
    }

    /// Zeroes a range in the cheapest way that `how` allows.
    pub(super) fn zero(
        &self,
        io: &MediumIo,
        offset: u64,
        length: u64,
        how: Zeroing,
    ) -> io::Result<()> {
        let end = offset + length;
        let (start, stop) = self.whole_sectors(offset, end);
        let fast = start < stop && self.zero_fast(io.file(), start, stop - start, how)?;
        match (fast, how.only_if_fast) {
            (true, _) => {
                io.write_zeroes(offset, start - offset)?;
                io.write_zeroes(stop, end - stop)
            }
            (false, true) if length > 0 => Err(io::Error::from(Errno::OPNOTSUPP)),
            (false, _) => io.write_zeroes(offset, length),
        }
    }

    /// Zeroes without writing; returns whether that was possible.
    fn zero_fast(&self, file: &File, offset: u64, length: u64, how: Zeroing) -> io::Result<bool> {
        if !how.keep_allocated && self.punch.call(file, PUNCH, offset, length)? {
            return Ok(true);
        }
        // On a device the kernel may write zeroes itself: no slower than doing it here, but not
        // fast.
        if self.sector_bytes.is_some() {
            return Ok(!how.only_if_fast && self.zero_range.call(file, ZERO, offset, length)?);
        }
        if self.zero_range.call(file, ZERO, offset, length)? {
            return Ok(true);
        }
        // Punch a hole, then allocate it again. Both calls must be supported, so that no hole
        // remains.
        let known = !self.allocate.is_missing() && !self.punch.is_missing();
        if how.keep_allocated && known && self.punch.call(file, PUNCH, offset, length)? {
            return self.allocate.call(file, FallocateFlags::KEEP_SIZE, offset, length);
        }
        Ok(false)
    }

    /// Releases a range's space, if the medium supports that.
    pub(super) fn trim(&self, file: &File, offset: u64, length: u64) -> io::Result<()> {
        let (start, stop) = self.whole_sectors(offset, offset + length);
        if start < stop {
            self.punch.call(file, PUNCH, start, stop - start)?;
        }
        Ok(())
    }

    /// The part of a range for which the calls are possible; may be empty.
    fn whole_sectors(&self, start: u64, end: u64) -> (u64, u64) {
        let Some(sector) = self.sector_bytes else { return (start, end) };
        let whole = (start.next_multiple_of(sector), end / sector * sector);
        if whole.0 < whole.1 { whole } else { (start, start) }
    }
}

impl Ability {
    fn is_missing(&self) -> bool {
        self.missing.load(Ordering::Relaxed)
    }

    fn set_missing(&self, missing: bool) {
        self.missing.store(missing, Ordering::Relaxed);
    }

    /// Makes the call; returns false if the medium does not support it.
    fn call(
        &self,
        file: &File,
        mode: FallocateFlags,
        offset: u64,
        length: u64,
    ) -> io::Result<bool> {
        if self.is_missing() || length == 0 {
            return Ok(length == 0);
        }
        match retry_on_intr(|| rustix::fs::fallocate(file, mode, offset, length)) {
            Ok(()) => Ok(true),
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                self.set_missing(true);
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// Whether a block device can zero a range without receiving the zeroes.
fn device_zeroes_fast(file: &File) -> io::Result<bool> {
    let device = file.metadata()?.rdev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    // A partition has no queue of its own; its disk's folder is one level up.
    let folder = format!("/sys/dev/block/{major}:{minor}");
    let told = ["queue/write_zeroes_max_bytes", "../queue/write_zeroes_max_bytes"]
        .iter()
        .find_map(|name| std::fs::read_to_string(format!("{folder}/{name}")).ok());
    Ok(told.is_some_and(|text| text.trim().parse::<u64>().is_ok_and(|bytes| bytes > 0)))
}

/// The allocated and the unallocated parts of a range. If the medium cannot tell, all is data.
pub(super) fn extents(file: &File, offset: u64, length: u64) -> io::Result<Vec<Extent>> {
    let end = offset + length;
    let mut out = Vec::new();
    let mut at = offset;
    while at < end && out.len() < MAX_EXTENTS {
        let data = match rustix::fs::seek(file, SeekFrom::Data(at)) {
            Ok(data) => data.clamp(at, end),
            Err(Errno::NXIO) => end,
            Err(Errno::INVAL | Errno::OPNOTSUPP) => at,
            Err(error) => return Err(error.into()),
        };
        if data > at {
            out.push(Extent { length: data - at, hole: true, zero: true });
            at = data;
            continue;
        }
        // A hole right here was made since the last call. Reporting it as data is correct enough,
        // and ends the loop.
        let hole = match rustix::fs::seek(file, SeekFrom::Hole(at)) {
            Ok(hole) if hole > at => hole.min(end),
            Ok(_) | Err(Errno::NXIO | Errno::INVAL | Errno::OPNOTSUPP) => end,
            Err(error) => return Err(error.into()),
        };
        out.push(Extent { length: hole - at, hole: false, zero: false });
        at = hole;
    }
    Ok(out)
}
