//! The current positions of files' granules on their volumes. Extent maps are read by the path
//! under which a file was opened, and kept until:
//!
//! * the program has changed the file's size or allocation (by intercepted calls);
//! * the path leads to another file, because the file was deleted or replaced: its blocks then have
//!   no position;
//! * size or allocation changed unnoticed: checked every 100 ms while needed;
//! * 5 seconds have passed: defragmentation moves files without other signs.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{File as OpenFile, OpenOptions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, StatxFlags, statx};

use crate::device::Way;
use crate::extents::Extents;
use crate::files::{File, Files};
use crate::segment::{Segment, Sent};
use crate::table::{GRANULE, Key};
use crate::tracker::of_statx;

/// How long a map is trusted, in microseconds.
const BELIEVED_US: u64 = 5_000_000;
/// How often the file is checked, in microseconds.
const LOOK_US: u64 = 100_000;
/// Most maps that are kept.
const MAPS_MAX: usize = 4096;

/// A byte of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct At {
    /// Number of the volume.
    pub volume: usize,
    /// Offset in the volume in bytes.
    pub offset: u64,
}

struct Map {
    file: File,
    /// `None` if the file does not exist.
    extents: Option<Extents>,
    size_and_room: (u64, u64),
    read_us: u64,
    looked_us: u64,
}

/// The extent maps of the files.
#[derive(Default)]
pub struct Places {
    maps: HashMap<u32, Map>,
}

impl Places {
    /// The position of a granule, if it has one.
    pub fn of(&mut self, segment: &Segment, block: Key, now_us: u64) -> Option<At> {
        self.of_bytes(segment, block.file(), block.granule() * GRANULE, now_us)
    }

    /// The position of a byte of a file, if it has one.
    pub fn of_bytes(
        &mut self,
        segment: &Segment,
        file: u32,
        offset: u64,
        now_us: u64,
    ) -> Option<At> {
        let changes = Files::new(segment).changes(file)?;
        if !self.maps.get_mut(&file).is_some_and(|map| map.is_good(changes, now_us)) {
            self.read(segment, file, now_us)?;
        }
        let map = self.maps.get(&file)?;
        match map.file.way {
            Way::Raw(part) => {
                Some(At { volume: part.volume, offset: part.start.checked_add(offset)? })
            }
            Way::Mapped(part) => {
                let (on_device, _) = map.extents.as_ref()?.locate(offset)?;
                Some(At { volume: part.volume, offset: part.start.checked_add(on_device)? })
            }
        }
    }

    fn read(&mut self, segment: &Segment, id: u32, now_us: u64) -> Option<()> {
        let file = Files::new(segment).get(id)?;
        let mut map =
            Map { file, extents: None, size_and_room: (0, 0), read_us: now_us, looked_us: now_us };
        if let Way::Mapped(_) = map.file.way {
            segment.count_sent(Sent::Maps, 1);
            map.size_and_room = map.look().unwrap_or_default();
            map.extents = map.open().and_then(|file| Extents::of(&file).ok());
        }
        if self.maps.len() >= MAPS_MAX && !self.maps.contains_key(&id) {
            self.maps.clear();
        }
        self.maps.insert(id, map);
        Some(())
    }
}

impl Map {
    fn is_good(&mut self, changes: u64, now_us: u64) -> bool {
        if let Way::Raw(_) = self.file.way {
            return true;
        }
        let age = |since: u64| now_us.saturating_sub(since);
        if self.file.changes != changes || age(self.read_us) >= BELIEVED_US {
            return false;
        }
        if age(self.looked_us) >= LOOK_US {
            self.looked_us = now_us;
            return self.look().is_some_and(|seen| seen == self.size_and_room);
        }
        true
    }

    fn path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.file.path))
    }

    /// Size and allocation, if the path still leads to the file.
    fn look(&self) -> Option<(u64, u64)> {
        let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
        let told = statx(CWD, self.path(), AtFlags::SYMLINK_NOFOLLOW, wanted).ok()?;
        let same = of_statx(&told).0 == self.file.identity;
        same.then_some((told.stx_size, told.stx_blocks))
    }

    /// Opens the file, if the path still leads to it.
    fn open(&self) -> Option<OpenFile> {
        // A pipe may have this name now.
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
        let file = OpenOptions::new().read(true).custom_flags(flags).open(self.path()).ok()?;
        let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
        let told = statx(&file, c"", AtFlags::EMPTY_PATH, wanted).ok()?;
        (of_statx(&told).0 == self.file.identity).then_some(file)
    }
}
