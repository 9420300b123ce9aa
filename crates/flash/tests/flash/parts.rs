//! The directory of a device's parts: what is written is read again, and a copy that is torn or
//! says what cannot be does not count.

use undercroft_flash::{HEAD_BYTES, PARTS_AT, PARTS_BYTES, Part, Parts};
use undercroft_random::SplitMix64;

const DEVICE: u64 = 1 << 40;

fn part(name: &str, first_byte: u64, bytes: u64) -> Part {
    let name = name.to_owned();
    Part { name, first_byte, bytes, block_bytes: 4096, shards: 3, id: !first_byte }
}

/// Writes the next copy into its place.
fn write(parts: &mut Parts, copies: &mut [Vec<u8>; 2]) -> usize {
    let (byte, copy) = parts.next_copy();
    assert_eq!(parts.next_copy(), (byte, copy.clone()), "until it is durable");
    let at = PARTS_AT.iter().position(|&at| at == byte).unwrap();
    copies[at] = copy;
    parts.copied();
    at
}

fn read(copies: &[Vec<u8>; 2]) -> Parts {
    Parts::read(&copies[0], &copies[1], DEVICE)
}

#[test]
fn the_newest_whole_copy_counts() {
    let mut copies = [vec![0; PARTS_BYTES], vec![0; PARTS_BYTES]];
    let mut parts = read(&copies);
    assert!(parts.all().is_empty());
    let mut last = None;
    for n in 0..6 {
        let own = part(&format!("volume {n}"), HEAD_BYTES + n * 4096, 4096);
        parts.insert(own.clone()).unwrap();
        let before = read(&copies);
        let at = write(&mut parts, &mut copies);
        assert_ne!(last, Some(at), "in turn");
        last = Some(at);
        assert_eq!(read(&copies), parts);
        assert_eq!(read(&copies).find(&own.name), Some(&own));
        // The copy that was written last is torn: the one before counts.
        let mut torn = copies.clone();
        torn[at][PARTS_BYTES / 2..].fill(9);
        assert_eq!(read(&torn).all(), before.all());
        assert_eq!(read(&torn).next_copy().0, PARTS_AT[at], "and it is the next to be written");
    }
    assert_eq!(parts.remove("volume 2").map(|part| part.first_byte), Some(HEAD_BYTES + 8192));
    assert_eq!((parts.remove("volume 2"), parts.find("volume 2")), (None, None));
    write(&mut parts, &mut copies);
    assert_eq!(read(&copies).all().len(), 5);
    // A device that has become smaller.
    assert!(Parts::read(&copies[0], &copies[1], HEAD_BYTES + 8192).all().is_empty());
}

#[test]
fn parts_that_cannot_be_are_refused() {
    let mut copies = [vec![0; PARTS_BYTES], vec![0; PARTS_BYTES]];
    let mut parts = read(&copies);
    parts.insert(part("a", HEAD_BYTES, 8192)).unwrap();
    for (other, why) in [
        (part("a", 1 << 30, 4096), "already"),
        (part("b", HEAD_BYTES + 4096, 8192), "overlap"),
        (part("b", HEAD_BYTES, 1 << 30), "overlap"),
        (part("b", 4096, 8192), "not within"),
        (part("b", DEVICE - 4096, 8192), "not within"),
        (part("b", u64::MAX - 4096, 8192), "not within"),
        (part("b", 1 << 30, 0), "not within"),
        (part(&"b".repeat(PARTS_BYTES), 1 << 30, 4096), "no room"),
    ] {
        let error = parts.insert(other).unwrap_err();
        assert!(error.contains(why), "{error}");
    }
    let mut count = 1;
    while parts.insert(part(&format!("{count:0200}"), (2 + count) << 20, 4096)).is_ok() {
        count += 1;
    }
    assert_eq!(count, (PARTS_BYTES as u64 - 40 - 37) / 236 + 1);
    write(&mut parts, &mut copies);
    assert_eq!(read(&copies), parts, "a full copy");
}

#[test]
fn no_bytes_are_too_strange_to_be_read() {
    let mut random = SplitMix64::seeded();
    let mut parts = Parts::read(&[], &[1; 100], DEVICE);
    parts.insert(part("a", HEAD_BYTES, 4096)).unwrap();
    let (_, good) = parts.next_copy();
    for _ in 0..200 {
        let mut copy = good.clone();
        for _ in 0..=random.below(4) {
            copy[random.below(80) as usize] = random.next_u64() as u8;
        }
        // As if someone had meant it so.
        let check = xxhash_rust::xxh3::xxh3_64(&copy[..PARTS_BYTES - 8]).to_le_bytes();
        copy[PARTS_BYTES - 8..].copy_from_slice(&check);
        let parts = Parts::read(&copy, &random.bytes(PARTS_BYTES), DEVICE);
        parts.next_copy();
        assert!(parts.all().len() <= 1);
    }
}
