//! The example of a format of one's own: what it converts is read back, and damage is named.

#[path = "../../examples/own_format.rs"]
#[allow(dead_code, reason = "the example is a program, too")]
mod example;

use std::fs;

use undercroft_trace::{Op, OpenOptions, Record, open};

#[test]
fn a_format_of_ones_own_is_converted() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("array.log"), folder.path().join("array.uct"));
    fs::write(&from, "0.5;east;R;8;16\n\n1.25;west;W;0;1\n").unwrap();
    example::convert(&from, &to).unwrap();
    let mut reader = open(&to, &OpenOptions::default()).unwrap();
    let mut records = Vec::new();
    reader.read(&mut records).unwrap();
    let record = |time_ns, op, space, address, length| Record {
        time_ns,
        op,
        space,
        address,
        length,
        buffer: None,
        client: 0,
    };
    let read = record(500_000_000, Op::Read, 0, 4096, 8192);
    assert_eq!(records, [read, record(1_250_000_000, Op::Write, 1, 0, 512)]);
    assert_eq!(reader.spaces(), ["east", "west"]);
}

#[test]
fn a_damaged_line_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let from = folder.path().join("array.log");
    fs::write(&from, "0.5;east;R;8;16\n0.6;east;X;8;16\n").unwrap();
    let error = example::open(&from).unwrap().read(&mut Vec::new()).unwrap_err().to_string();
    assert!(error.ends_with("array.log, line 2: expected R or W, found \"X\""), "{error}");
}
