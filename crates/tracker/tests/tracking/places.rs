//! Where blocks of files lie, on real file systems in images behind loop devices: what is read
//! through the file and at the place that the map says is equal, and moved files are noticed.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::UNIX_EPOCH;

use rustix::fs::{FallocateFlags, FileType, fallocate};
use undercroft_tracker::device::{Backing, Node, Part, Way, way};
use undercroft_tracker::extents::Extents;
use undercroft_tracker::files::{Files, Identity};
use undercroft_tracker::segment::Segment;
use undercroft_tracker::sender::Places;
use undercroft_tracker::table::Key;
use undercroft_tracker::{GRANULE, now_us};

use crate::Random;

const PAGES: u64 = 600;

/// Where the file system lies in the image.
#[derive(Clone, Copy, PartialEq)]
enum On {
    Whole,
    /// A loop device that begins later.
    Offset,
    /// The first partition of a loop device.
    Partition,
}

impl On {
    /// First byte in the image.
    fn start(self) -> u64 {
        if self == On::Whole { 0 } else { 1 << 20 }
    }
}

/// A mounted image; unmounted with the test.
struct Mounted {
    folder: tempfile::TempDir,
    /// The loop device.
    device: Option<String>,
}

/// What a system program says; none if it cannot do what it is asked for.
fn run(program: &str, arguments: &[&str]) -> Option<String> {
    let mut command = Command::new(program);
    command.args(arguments).env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin");
    let output = command.output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

impl Mounted {
    /// None, with a word, where that is not possible.
    fn new(kind: &str, size: u64, on: On) -> Option<Mounted> {
        let mut mounted = Mounted { folder: tempfile::tempdir().unwrap(), device: None };
        fs::create_dir(mounted.root()).unwrap();
        let done = mounted.mount(kind, size, on);
        if done.is_none() {
            println!("skipped: no {kind} can be made and mounted here (root, loop devices)");
        }
        done.map(|()| mounted)
    }

    fn mount(&mut self, kind: &str, size: u64, on: On) -> Option<()> {
        File::create(self.image()).unwrap().set_len(size).unwrap();
        let name = self.image();
        let name = name.to_str().unwrap();
        let device = match on {
            On::Whole => run("losetup", &["--show", "-f", name])?,
            On::Offset => run("losetup", &["--show", "-f", "-o", "1048576", name])?,
            On::Partition => {
                let device = run("losetup", &["--show", "-f", "-P", name])?;
                // Told to the kernel, which may know no tables of partitions.
                let [first, count] = [on.start() / 512, (size - on.start()) / 512];
                self.device = Some(device.clone());
                run("addpart", &[&device, "1", &first.to_string(), &count.to_string()])?;
                device
            }
        };
        self.device = Some(device.clone());
        let part = if on == On::Partition { format!("{device}p1") } else { device };
        run(&format!("mkfs.{kind}"), &["-q", &part])?;
        run("mount", &[&part, self.root().to_str().unwrap()])?;
        Some(())
    }

    fn root(&self) -> PathBuf {
        self.folder.path().join("root")
    }

    fn image(&self) -> PathBuf {
        self.folder.path().join("image")
    }

    /// A file of it, made known to a segment.
    fn file(&self, segment: &Segment, name: &str) -> (File, u32) {
        let path = self.root().join(name);
        let mut options = File::options();
        let file = options.read(true).write(true).create(true).truncate(false).open(&path).unwrap();
        let about = fs::metadata(self.image()).unwrap();
        let way = way(&[Backing::File(about.dev(), about.ino())], &node(&path)).unwrap();
        let name = path.to_str().unwrap().as_bytes();
        let id = Files::new(segment).add(identity(&path), way, name, 1).unwrap();
        (file, id)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // An error means that it never was.
        let _ = Command::new("umount").arg(self.root()).output();
        if let Some(device) = &self.device {
            let _ = run("losetup", &["-d", device]);
        }
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
    let bytes: Vec<u8> = (0..GRANULE / 8).flat_map(|_| random.next_u64().to_le_bytes()).collect();
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

fn check(kind: &str, size: u64, on: On) {
    let Some(mounted) = Mounted::new(kind, size, on) else { return };
    let mut random = Random::seeded();
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
    assert_eq!(found, Some(Way::Mapped(Part { volume: 0, start: on.start() })));
    // The loop device may be the volume itself.
    let device = Backing::of_path(mounted.device.as_ref().unwrap().as_ref()).unwrap();
    let start = if on == On::Partition { on.start() } else { 0 };
    let whole = Way::Mapped(Part { volume: 0, start });
    assert_eq!(way(&[device], &node(&path)), Some(whole));
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
    check("ext4", 64 << 20, On::Whole);
}

#[test]
fn pages_of_xfs_are_where_the_map_says() {
    check("xfs", 320 << 20, On::Whole);
}

#[test]
fn a_loop_device_with_an_offset_is_followed() {
    check("ext4", 64 << 20, On::Offset);
}

#[test]
fn partitions_are_followed() {
    check("ext4", 64 << 20, On::Partition);
}

/// When a map that was read now is read again.
fn in_a_while() -> u64 {
    now_us() + 5_000_001
}

#[test]
fn a_file_that_was_defragmented_is_found_again() {
    let Some(mounted) = Mounted::new("ext4", 64 << 20, On::Whole) else { return };
    let mut random = Random::seeded();
    let segment = Segment::anonymous(1).unwrap();
    let (file, id) = mounted.file(&segment, "table");
    let other = File::create(mounted.root().join("other")).unwrap();
    for page in 0..40 {
        for file in [&file, &other] {
            write_page(file, page, &mut random);
            file.sync_all().unwrap();
        }
    }
    let before = Extents::of(&file).unwrap();
    assert!(before.list().len() > 4, "it is in pieces: {before:?}");
    let mut places = Places::default();
    let page = |n| Key::new(id, n).unwrap();
    let old: Vec<_> = (0..40).map(|n| places.of(&segment, page(n), now_us())).collect();
    let path = mounted.root().join("table");
    if run("e4defrag", &[path.to_str().unwrap()]).is_none() {
        println!("skipped: no e4defrag");
        return;
    }
    let after = Extents::of(&file).unwrap();
    assert!(after.list().len() < before.list().len(), "{after:?}");
    // Neither size nor room changed: nothing shows it, but maps are not believed for long.
    let new: Vec<_> = (0..40).map(|n| places.of(&segment, page(n), in_a_while())).collect();
    assert_ne!(old, new);
    for (n, at) in new.iter().enumerate() {
        let offset = n as u64 * GRANULE;
        assert_eq!(at.map(|at| at.offset), after.locate(offset).map(|(at, _)| at), "page {n}");
    }
    let image = File::open(mounted.image()).unwrap();
    assert_eq!(compare(&segment, id, &file, &image), 40);
}

#[test]
fn files_that_share_blocks_are_told_apart_once_they_do_not() {
    let Some(mounted) = Mounted::new("xfs", 320 << 20, On::Whole) else { return };
    let mut random = Random::seeded();
    let segment = Segment::anonymous(1).unwrap();
    let (file, id) = mounted.file(&segment, "table");
    (0..PAGES).for_each(|page| write_page(&file, page, &mut random));
    file.sync_all().unwrap();
    let path = |name| mounted.root().join(name).to_str().unwrap().to_owned();
    if run("cp", &["--reflink=always", &path("table"), &path("copy")]).is_none() {
        println!("skipped: no reflink here");
        return;
    }
    let (copy, copy_id) = mounted.file(&segment, "copy");
    assert_ne!(id, copy_id);
    let image = File::open(mounted.image()).unwrap();
    assert_eq!(compare(&segment, id, &file, &image), PAGES);
    assert_eq!(compare(&segment, copy_id, &copy, &image), PAGES);
    let mut places = Places::default();
    let mut both = |page, now| {
        [id, copy_id].map(|id| places.of(&segment, Key::new(id, page).unwrap(), now).unwrap())
    };
    let [one, two] = both(5, now_us());
    assert_eq!(one, two, "one block of the device is in both");
    write_page(&copy, 5, &mut random);
    copy.sync_all().unwrap();
    let [still, moved] = both(5, in_a_while());
    assert_eq!(still, one);
    assert_ne!(moved, one);
    let [one, two] = both(400, in_a_while());
    assert_eq!(one, two);
    assert_eq!(compare(&segment, id, &file, &image), PAGES);
    assert_eq!(compare(&segment, copy_id, &copy, &image), PAGES);
}
