//! The files of a segment.

use undercroft_tracker::device::{Part, Way};
use undercroft_tracker::files::{Files, Identity, PATH_MAX};
use undercroft_tracker::segment::Segment;
use undercroft_tracker::segment::layout::FILES_LOCK;

const WAY: Way = Way::Mapped(Part { volume: 3, start: 1 << 40 });

fn identity(inode: u64, birth: u64) -> Identity {
    Identity { device: 8 << 8, inode, birth }
}

#[test]
fn a_file_keeps_its_id_and_another_on_its_inode_has_its_own() {
    let segment = Segment::anonymous(1).unwrap();
    let files = Files::new(&segment);
    let one = files.add(identity(5, 1), WAY, b"/data/one", 10).unwrap();
    assert_eq!(files.add(identity(5, 1), WAY, b"/renamed", 11), Some(one));
    let two = files.add(identity(5, 2), WAY, b"/data/two", 12).unwrap();
    assert_ne!(one, two);
    let file = files.get(one).unwrap();
    assert_eq!((file.identity, file.way, &file.path[..]), (identity(5, 1), WAY, &b"/data/one"[..]));
    assert_eq!(files.changes(one), Some(0));
    files.changed(one);
    assert_eq!((files.changes(one), files.changes(two)), (Some(1), Some(0)));
    assert_eq!(files.add(identity(6, 1), WAY, &[b'x'; PATH_MAX + 1], 13), None);
    assert_eq!(files.get(0), None);
}

#[test]
fn when_all_places_are_taken_the_file_opened_longest_ago_goes() {
    let segment = Segment::anonymous(1).unwrap();
    let files = Files::new(&segment);
    let ids: Vec<_> =
        (0..50_000).map(|n| files.add(identity(n, 1), WAY, b"/f", n + 1).unwrap()).collect();
    let current = ids.iter().filter(|id| files.is_current(**id)).count();
    assert!((3000..4096).contains(&current), "{current}");
    assert!(files.is_current(*ids.last().unwrap()) && !files.is_current(ids[0]));
    assert_eq!(files.changes(ids[0]), None);
    for (n, id) in ids.iter().enumerate() {
        let file = files.get(*id);
        assert!(file.is_none_or(|file| file.identity == identity(n as u64, 1)), "{n}");
    }
}

#[test]
fn the_lock_of_a_dead_process_is_taken_over_and_that_of_a_living_one_is_not() {
    let segment = Segment::anonymous(1).unwrap();
    let files = Files::new(&segment);
    let mut child = std::process::Command::new("true").spawn().unwrap();
    let dead = u64::from(child.id());
    child.wait().unwrap();
    let lock = segment.word(FILES_LOCK);
    lock.store(dead, std::sync::atomic::Ordering::SeqCst);
    assert!(files.add(identity(1, 1), WAY, b"/f", 1).is_some());
    lock.store(u64::from(std::process::id()), std::sync::atomic::Ordering::SeqCst);
    assert_eq!(files.add(identity(2, 1), WAY, b"/f", 1), None, "it does not wait");
}
