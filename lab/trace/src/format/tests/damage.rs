//! Traces that are cut, changed, or no traces at all: an error that says so, and never a panic.

use super::*;

pub(super) fn binaries() -> Vec<(&'static str, Vec<u8>)> {
    let mut random = Random::new(7);
    let mut trace = random_trace(&mut random, uct_meta(Unit::Blocks), 3, 9);
    trace.1.truncate(5);
    let bare = Meta { has_ops: false, has_buffers: false, ..uct_meta(Unit::Blocks) };
    let mut blocks = random_trace(&mut random, bare, 1, 1);
    blocks.1.truncate(5);
    vec![
        ("uct", written("uct", &trace).unwrap()),
        ("oraclegeneral", written("oraclegeneral", &blocks).unwrap()),
        ("vscsi", vscsi(1)),
        ("vscsi", vscsi(2)),
        ("lcs", super::lcs::lcs(1, &[(5, 77, 0), (6, 78, 0)])),
        ("lcs", super::lcs::lcs(3, &[(5, 77, 1), (6, 78, 9), (7, 78, 3)])),
    ]
}

#[test]
fn a_binary_trace_cut_anywhere_is_damaged() {
    for (name, bytes) in binaries() {
        let size = match (name, bytes[3]) {
            ("vscsi", 2) => 40,
            ("vscsi", _) => 32,
            ("oraclegeneral", _) => 24,
            _ => usize::MAX,
        };
        for length in 1..bytes.len() {
            let result = read(name, "", &bytes[..length]);
            if length % size == 0 {
                result.unwrap();
            } else {
                let error = result.map(|_| ()).unwrap_err();
                assert!(matches!(error, Error::Damaged { .. }), "{name} cut at {length}: {error}");
            }
        }
    }
}

#[test]
fn a_uct_trace_with_any_bit_flipped_is_damaged() {
    let (_, bytes) = binaries().remove(0);
    for at in 0..bytes.len() * 8 {
        let mut wrong = bytes.clone();
        wrong[at / 8] ^= 1 << (at % 8);
        assert!(matches!(read("uct", "", &wrong), Err(Error::Damaged { .. })), "bit {at}");
    }
    let longer = [&bytes[..], b"x"].concat();
    assert!(message("uct", "", &longer).contains("expected the end of the file"));
    assert!(message("uct", "", b"").contains("expected a header"));
}

/// Gives a uct body a good checksum, so that what is wrong in it gets through to the decoder.
#[test]
fn a_uct_chunk_with_a_good_checksum_is_not_trusted() {
    let (_, bytes) = binaries().remove(0);
    let mut random = Random::seeded();
    let length = u32::from_le_bytes(bytes[24..28].try_into().unwrap()) as usize;
    for _ in 0..20_000 {
        let mut wrong = bytes.clone();
        let at = 32 + random.below(length as u64) as usize;
        wrong[at] = random.next_u64() as u8;
        let checksum = crc32fast::hash(&wrong[32..32 + length]).to_le_bytes();
        wrong[28..32].copy_from_slice(&checksum);
        for record in read("uct", "", &wrong).map_or(vec![], |whole| whole.1) {
            assert!(record.length > 0 && record.address.checked_add(record.length).is_some());
        }
    }
}

#[test]
fn garbage_ends_without_a_panic() {
    let mut random = Random::seeded();
    let mut fixtures = binaries();
    fixtures.extend(TEXTS.iter().map(|(name, text)| (*name, text.as_bytes().to_vec())));
    for round in 0..3000 {
        let (name, bytes) = &fixtures[round % fixtures.len()];
        let mut wrong = bytes.clone();
        for _ in 0..1 + random.below(4) {
            let at = random.below(wrong.len() as u64) as usize;
            match random.below(4) {
                0 => wrong[at] = random.next_u64() as u8,
                1 => wrong.insert(at, b"0,9 .\n-\"#xF"[random.below(11) as usize]),
                2 => drop(wrong.remove(at)),
                _ => wrong = [&wrong[..at], &wrong[at / 2..]].concat(),
            }
        }
        let _ = read(name, "", &wrong);
        let noise: Vec<u8> = (0..random.below(300)).map(|_| random.next_u64() as u8).collect();
        for entry in ENTRIES {
            for bytes in [&wrong, &noise] {
                let whole = read(entry.info.name, "", bytes);
                assert!(whole.map_or(0, |whole| whole.1.len()) <= bytes.len(), "{name}");
                (entry.fits)(&crate::format::Sample::new(bytes, true));
            }
        }
    }
}
