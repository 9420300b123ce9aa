//! Tests of lcs, from files made here.

use super::*;

/// A file of that version with records of (seconds, object, operation).
pub(super) fn lcs(version: u64, records: &[(u32, u64, u8)]) -> Vec<u8> {
    let magic = 0x1234_5678_9abc_def0_u64.to_le_bytes();
    let mut bytes = vec![0; 8192];
    bytes[..8].copy_from_slice(&magic);
    bytes[8..16].copy_from_slice(&version.to_le_bytes());
    bytes[24..32].copy_from_slice(&(records.len() as u64).to_le_bytes());
    bytes[8184..].copy_from_slice(&magic);
    let features = [0, 0, 0, 0, 1, 2, 4, 8, 16][version.min(8) as usize];
    for &(seconds, object, op) in records {
        bytes.extend_from_slice(&seconds.to_le_bytes());
        bytes.extend_from_slice(&object.to_le_bytes());
        let size = if version < 3 { 4 } else { 8 };
        bytes.extend_from_slice(&4096_u64.to_le_bytes()[..size]);
        if version > 1 {
            bytes.extend_from_slice(&[op, 1, 2, 3]);
        }
        if version > 2 {
            bytes.extend_from_slice(&[9; 4]);
        }
        bytes.extend_from_slice(&(-1_i64).to_le_bytes());
        bytes.extend_from_slice(&[7; 4].repeat(features));
    }
    bytes
}

#[test]
fn every_version_of_lcs() {
    let records = [(5, 77, 1), (6, 78, 3), (6, 77, 9), (7, 77, 0), (8, 1 << 63, 13)];
    for version in 1..=8 {
        let bytes = lcs(version, &records);
        let (meta, read, _, left_out) = read("lcs", "", &bytes).unwrap();
        let (write, deleted) = if version == 1 { (Op::Read, 0) } else { (Op::Write, 1) };
        let mut want = vec![
            record(5_000_000_000, Op::Read, 0, 77, 1),
            record(6_000_000_000, write, 0, 78, 1),
            record(6_000_000_000, Op::Read, 0, 77, 1),
            record(7_000_000_000, Op::Read, 0, 77, 1),
            record(8_000_000_000, write, 0, 1 << 63, 1),
        ];
        if deleted == 1 {
            want.remove(2);
        }
        assert_eq!((read, left_out), (want, deleted), "version {version}");
        assert_eq!((meta.unit, meta.has_ops), (Unit::Blocks, version > 1));
    }
}

#[test]
fn damaged_lcs_is_named() {
    let good = lcs(2, &[(5, 77, 1), (6, 78, 3)]);
    let wrong = |at: usize, bytes: &[u8]| {
        let mut wrong = good.clone();
        wrong[at..at + bytes.len()].copy_from_slice(bytes);
        message("lcs", "", &wrong)
    };
    assert!(wrong(0, b"x").contains("t, byte 0: expected the magic number of lcs"));
    assert!(wrong(8184, b"x").contains("the magic number at the end of the header too"));
    assert!(wrong(8, &[9]).contains("expected version 1 to 8 of lcs, found 9"));
    assert!(wrong(8, &[0; 8]).contains("expected version 1 to 8 of lcs, found 0"));
    assert!(wrong(8, &[0xff; 8]).contains("expected version 1 to 8 of lcs, found 184"));
    assert!(wrong(8, b"<IQ").contains("this is lcs as it was before its header had a version"));
    assert!(
        wrong(24, &[3]).contains("expected 3 records, as the header says, found the end after 2")
    );
    assert!(wrong(8192 + 16, &[15]).contains("t, byte 8192: expected an operation from 0 to 14"));
    assert!(wrong(8192 + 4, &[0xff; 8]).contains("a request that ends below 2^64"));
    // A header that promises nothing: the records are what is there.
    let mut silent = good.clone();
    silent[24] = 0;
    assert_eq!(read("lcs", "", &silent).unwrap().1.len(), 2);
}
