//! Where blocks of files lie, on real file systems in images behind loop devices: what is read
//! through the file and at the place that the map says is equal, and moved files are noticed.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::UNIX_EPOCH;

use rustix::fs::{FallocateFlags, FileType, fallocate};
use undercroft_tracker::device::{Backing, Node, Part, Way, way};
use undercroft_tracker::files::{Files, Identity};
use undercroft_tracker::segment::Segment;
use undercroft_tracker::sender::Places;
use undercroft_tracker::table::Key;
use undercroft_tracker::{GRANULE, now_us};

use crate::Random;

const PAGES: u64 = 600;

/// A mounted image; unmounted with the test.
struct Mounted {
    folder: tempfile::TempDir,
}

impl Mounted {
    /// None, with a word, where that is not possible.
    fn new(kind: &str, size: &str) -> Option<Mounted> {
        let mounted = Mounted { folder: tempfile::tempdir().unwrap() };
        fs::create_dir(mounted.root()).unwrap();
        let image = mounted.image();
        let run = |program: &str, arguments: &[&str]| {
            let mut command = Command::new(program);
            command.args(arguments).env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin");
            command.output().is_ok_and(|output| output.status.success())
        };
        let (image, root) = (image.to_str().unwrap(), mounted.root());
        let done = run("truncate", &["-s", size, image])
            && run(&format!("mkfs.{kind}"), &["-q", image])
            && run("mount", &["-o", "loop", image, root.to_str().unwrap()]);
        if !done {
            println!("skipped: no {kind} can be made and mounted here (root, loop devices)");
            return None;
        }
        Some(mounted)
    }

    fn root(&self) -> PathBuf {
        self.folder.path().join("root")
    }

    fn image(&self) -> PathBuf {
        self.folder.path().join("image")
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // An error means that it never was.
        let _ = Command::new("umount").arg(self.root()).output();
    }
}

fn node(path: &Path) -> Node {
    let about = fs::metadata(path).unwrap();
    Node {
        kind: FileType::from_raw_mode(about.mode()),
        device: about.dev(),
        inode: about.ino(),
        is_device: about.rdev(),
    }
}

fn identity(path: &Path) -> Identity {
    let about = fs::metadata(path).unwrap();
    let birth = about.created().unwrap().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    Identity { device: about.dev(), inode: about.ino(), birth }
}

fn write_page(file: &File, page: u64, random: &mut Random) {
    let bytes: Vec<u8> = (0..GRANULE / 8).flat_map(|_| random.next().to_le_bytes()).collect();
    file.write_all_at(&bytes, page * GRANULE).unwrap();
}

/// Compares pages through the file and through the image; how many have a place.
fn compare(segment: &Segment, id: u32, file: &File, image: &File) -> u64 {
    file.sync_all().unwrap();
    let mut places = Places::default();
    let mut found = 0;
    // XFS keeps room behind the end of a file, too.
    let pages = file.metadata().unwrap().len() / GRANULE;
    for page in 0..pages {
        let block = Key::new(id, page).unwrap();
        let Some(at) = places.of(segment, block, now_us()) else { continue };
        let (mut one, mut two) = ([0; GRANULE as usize], [0; GRANULE as usize]);
        file.read_exact_at(&mut one, page * GRANULE).unwrap();
        image.read_exact_at(&mut two, at.offset).unwrap();
        assert!(one == two, "page {page} at {at:?}");
        found += 1;
    }
    found
}

fn check(kind: &str, size: &str) {
    let Some(mounted) = Mounted::new(kind, size) else { return };
    let mut random = Random::new();
    let (path, image_path) = (mounted.root().join("table"), mounted.image());
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false);
    let options = || options.open(&path).unwrap();
    let file = options();
    // Out of order, with another file in between: several extents.
    let other = File::create(mounted.root().join("other")).unwrap();
    for round in 0..6 {
        for page in (0..PAGES).filter(|page| page % 6 == (round * 5) % 6) {
            write_page(&file, page, &mut random);
        }
        write_page(&other, round, &mut random);
        file.sync_all().unwrap();
    }
    let image = File::open(&image_path).unwrap();
    let about = fs::metadata(&image_path).unwrap();
    // The loop device leads to the image, which is the volume.
    let volumes = [Backing::File(about.dev(), about.ino())];
    let found = way(&volumes, &node(&path));
    assert_eq!(found, Some(Way::Mapped(Part { volume: 0, start: 0 })));
    assert_eq!(way(&volumes, &node(&image_path)), Some(Way::Raw(Part { volume: 0, start: 0 })));
    assert_eq!(way(&volumes, &node(Path::new("/proc/version"))), None);
    let segment = Segment::anonymous(1).unwrap();
    let files = Files::new(&segment);
    let name = path.to_str().unwrap().as_bytes();
    let id = files.add(identity(&path), found.unwrap(), name, 1).unwrap();
    assert_eq!(compare(&segment, id, &file, &image), PAGES);

    // A hole: those pages are nowhere, once the call was seen.
    let mut places = Places::default();
    let in_hole = Key::new(id, 20).unwrap();
    assert!(places.of(&segment, in_hole, now_us()).is_some());
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(&file, hole, 16 * GRANULE, 16 * GRANULE).unwrap();
    files.changed(id);
    assert_eq!(places.of(&segment, in_hole, now_us()), None);
    assert_eq!(compare(&segment, id, &file, &image), PAGES - 16);

    // Cut and written anew elsewhere, behind our back: seen by its size and room, in a while.
    file.set_len(0).unwrap();
    write_page(&other, 100, &mut random);
    (0..PAGES / 2).for_each(|page| write_page(&file, page, &mut random));
    file.sync_all().unwrap();
    let later = now_us() + 200_000;
    assert_eq!(places.of(&segment, Key::new(id, PAGES - 1).unwrap(), later), None);
    assert_eq!(compare(&segment, id, &file, &image), PAGES / 2);

    // Renamed over: the old file is nowhere, even if its inode is used again.
    fs::rename(mounted.root().join("other"), &path).unwrap();
    assert_eq!(places.of(&segment, in_hole, later + 200_000), None);
    drop(file);
    let again = options();
    let new = files.add(identity(&path), found.unwrap(), name, 2).unwrap();
    assert_ne!(id, new);
    assert!(compare(&segment, new, &again, &image) > 0);
}

#[test]
fn pages_of_ext4_are_where_the_map_says() {
    check("ext4", "64M");
}

#[test]
fn pages_of_xfs_are_where_the_map_says() {
    check("xfs", "320M");
}
