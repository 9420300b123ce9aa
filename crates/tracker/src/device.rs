//! Finds the volume that a device is or belongs to; partitions and loop devices are followed by
//! their entries in sysfs. It allocates nothing, because it runs when a program opens a file.
//!
//! Device mapper and RAID are not followed, since their parts can lie anywhere. If such a device is
//! the volume, name the device itself.

use std::ffi::CStr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use rustix::fs::{CWD, FileType, Mode, OFlags, major, makedev, minor, openat, stat};
use rustix::io::read;

use crate::text::Text;

/// Most stacked devices that are followed.
const DEPTH: usize = 8;

/// The device or file of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backing {
    /// A block device, by number.
    Device(u64),
    /// A regular file, by device and inode.
    File(u64, u64),
}

/// How the bytes of a file system or device map to a volume: from `start` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Number of the volume.
    pub volume: usize,
    /// First byte in the volume.
    pub start: u64,
}

impl Backing {
    /// The device or file of a path.
    ///
    /// # Errors
    /// Why it cannot be a volume.
    pub fn of_path(path: &std::path::Path) -> Result<Backing, String> {
        let failed = |error| format!("{}: {error}", path.display());
        let stat = stat(path).map_err(failed)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::BlockDevice => Ok(Backing::Device(stat.st_rdev)),
            FileType::RegularFile => Ok(Backing::File(stat.st_dev, stat.st_ino)),
            _ => Err(format!("{}: neither a block device nor a regular file", path.display())),
        }
    }
}

/// How the bytes of a file reach a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The file is a device, or the volume's file: its bytes are the volume's, from `start` on.
    Raw(Part),
    /// The file lies on a file system.
    Mapped(Part),
}

/// The properties of an open file.
#[derive(Clone, Copy, Debug)]
pub struct Node {
    /// Its type.
    pub kind: FileType,
    /// Number of the device that contains it.
    pub device: u64,
    /// Inode on that device.
    pub inode: u64,
    /// Its own device number, if it is a device.
    pub is_device: u64,
}

/// How an open file maps to one of the volumes; `None` if it does not.
pub fn way(volumes: &[Backing], node: &Node) -> Option<Way> {
    match node.kind {
        FileType::BlockDevice => Some(Way::Raw(part_of_device(volumes, node.is_device)?)),
        FileType::RegularFile => {
            let itself = Backing::File(node.device, node.inode);
            if let Some(volume) = volumes.iter().position(|volume| *volume == itself) {
                return Some(Way::Raw(Part { volume, start: 0 }));
            }
            Some(Way::Mapped(part_of_device(volumes, node.device)?))
        }
        _ => None,
    }
}

/// Devices that belong to no volume, each with the second until which that is assumed: programs
/// open many files, and sysfs is slow. Linux device numbers have 32 bits.
static OTHERS: [AtomicU64; 16] = [const { AtomicU64::new(0) }; 16];
const BELIEVED_S: u64 = 2;

fn part_of_device(volumes: &[Backing], device: u64) -> Option<Part> {
    let now_s = crate::now_us() / 1_000_000;
    let other = &OTHERS[(device ^ device >> 8) as usize % OTHERS.len()];
    let known = other.load(Relaxed);
    if known >> 32 == device && now_s < known & u64::from(u32::MAX) {
        return None;
    }
    let part = follow(volumes, device);
    if part.is_none() {
        other.store(device << 32 | (now_s + BELIEVED_S) & u64::from(u32::MAX), Relaxed);
    }
    part
}

/// The volume that a device is or belongs to.
fn follow(volumes: &[Backing], mut device: u64) -> Option<Part> {
    let mut start = 0_u64;
    for _ in 0..DEPTH {
        if let Some(volume) = volumes.iter().position(|v| *v == Backing::Device(device)) {
            return Some(Part { volume, start });
        }
        let (number, of) = (device, (major(device), minor(device)));
        let attribute = |name| -> Text<128> {
            Text::new(format_args!("/sys/dev/block/{}:{}/{name}", of.0, of.1))
        };
        if let Some(sectors) = read_number(attribute("start").as_c_str()) {
            start = start.checked_add(sectors.checked_mul(512)?)?;
            device = read_device(attribute("../dev").as_c_str())?;
        } else {
            let mut path = [0; 512];
            let path = read_line(attribute("loop/backing_file").as_c_str(), &mut path)?;
            let offset = read_number(attribute("loop/offset").as_c_str())?;
            start = start.checked_add(offset)?;
            let backing = stat(path).ok()?;
            match FileType::from_raw_mode(backing.st_mode) {
                FileType::BlockDevice => device = backing.st_rdev,
                FileType::RegularFile => {
                    let file = Backing::File(backing.st_dev, backing.st_ino);
                    let volume = volumes.iter().position(|volume| *volume == file)?;
                    return Some(Part { volume, start });
                }
                _ => return None,
            }
        }
        if device == number {
            return None;
        }
    }
    None
}

/// The first line of a short file.
fn read_line<'a>(path: &CStr, buffer: &'a mut [u8]) -> Option<&'a CStr> {
    let file = openat(CWD, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let room = buffer.len() - 1;
    let length = read(&file, &mut buffer[..room]).ok()?;
    let end = buffer[..length].iter().position(|byte| *byte == b'\n').unwrap_or(length);
    buffer[end] = 0;
    CStr::from_bytes_until_nul(buffer).ok()
}

fn read_number(path: &CStr) -> Option<u64> {
    let mut buffer = [0; 32];
    read_line(path, &mut buffer)?.to_str().ok()?.parse().ok()
}

fn read_device(path: &CStr) -> Option<u64> {
    let mut buffer = [0; 32];
    let (major, minor) = read_line(path, &mut buffer)?.to_str().ok()?.split_once(':')?;
    Some(makedev(major.parse().ok()?, minor.parse().ok()?))
}
