//! Tests of all formats together: small fixtures, round trips through every writer, recognition,
//! and damage. Random ones print their seed and take it back in the environment variable SEED.

mod csv_columns;
mod csv_values;
mod damage;
mod lcs;
mod variants;

use std::io::Cursor;
use std::path::Path;

use undercroft_random::SplitMix64 as Random;

use super::{ENTRIES, Entry, Options, by_name};
use crate::input::Input;
use crate::{Error, Meta, Op, OpenOptions, Reader, Record, Unit, create, open};

/// A small trace in each text format, with at least two records.
const TEXTS: &[(&str, &str)] = &[
    ("lis", "1 8 0 0\n64 1 7 1\r\n 9\t2  0 2"),
    ("trc", "17\r\n*\n\n18\n17\n"),
    ("plain", "# two\n3\n\n4\n"),
    ("spc", "0,303567,3584,w,0.000000\n1,55590,3072,R,12.5,x,y\n"),
    (
        "msr",
        "128166385295514663,hm,0,Write,9056014336,2048,2833\n\
         128166385295514878,hm,1,Read,512,1,0\n",
    ),
    ("blkparse", BLKPARSE),
    (
        "fiu",
        "89968195792462 20782 gzip 283193184 8 R 6 0 56f11b711d91a065a2b6458eca924523\n\
             89968195792463 1 Web Content 8 16 W 08 1 56f11b711d91a065a2b6458eca924523\n",
    ),
    ("disksim", "13.191135 30 0 5 1\n17.829285 20 576560 6 2\n"),
    (
        "recorded",
        "# block size 8192. And so on\n# file 7 = a/b = c (12 records)\n\
                  time_us,op,file,block,blocks,buf\n0,R,7,3,1,7fff0000\n12,N,9,4,2,0\n",
    ),
    (
        "alibaba",
        "device_id,opcode,offset,length,timestamp\n\
         419,W,8792731648,16384,1577808144360767\n7,R,4096,512,1577808144360768\n",
    ),
    ("tencent", "1538323200,46530920,8,0,1283\n1538323201,8,16,1,07\n"),
    (
        "iolog",
        "fio version 3 iolog\n29 /srv/a add\n195 /srv/a open\n201 /srv/a read 0 4096\n\
         202 /srv/a sync 0 0\n1471 /srv/b write 8192 512\n1472 /srv/b close\n",
    ),
    (
        "biosnoop",
        "TIME(s)     COMM           PID     DISK      T SECTOR     BYTES  LAT(ms)\n\
         0.000004    supervise      1950    xvda1     W 13092560   4096      0.74\n\
         0.000178    Web Content    1951    xvdb     RA 8          8192      0.61\n\
         0.001469    jbd2           1956    xvdb      F -1         0         1.24\n",
    ),
    ("csv", "time_ns,op,space,first_byte,bytes\n5,r,\"8,0\",0,512\n6,w,\"8,16\",512,1024\n"),
];

/// The formats that are no text: they have fixtures of their own.
const BINARIES: [&str; 4] = ["uct", "vscsi", "lcs", "oraclegeneral"];

const BLKPARSE: &str = "\
  8,0    0        1     0.000000000  4020  Q   R 282624 + 8 [java]
  8,0    0        2     0.000001581  4020  G   R 282624 + 8 [java]
  8,0    0        3     0.000003650  4020  U   N [java] 1
  8,16   0        4     0.000003858  4020  Q FWFS 16 + 8 [java]
  8,0    0        5     0.000004000  4020  Q   D 0 + 64 [java]
  8,0    0        6     0.000004500  4020  Q  FN [java]
  8,0    0        7     0.000005462  4020  D  RS 282624 + 8 [java]
  8,0    0        0     0.000005500     0  m   N cfq4020 alloced
CPU0 (8,0):
 Reads Queued:           1,        4KiB\t Writes Queued:           0
";

fn entry_for(name: &str) -> &'static Entry {
    by_name(name).unwrap()
}

fn over(name: &str, options: &str, bytes: &[u8]) -> Result<Box<dyn Reader>, Error> {
    let entry = entry_for(name);
    let input = Input::over("t".into(), Box::new(Cursor::new(bytes.to_vec())))?;
    let mut options = Options::parse(entry.info.name, options)?;
    let reader = (entry.open)(input, &mut options)?;
    options.end(entry.info.options)?;
    Ok(reader)
}

type Whole = (Meta, Vec<Record>, Vec<String>, u64);

fn all(mut reader: Box<dyn Reader>) -> Result<Whole, Error> {
    let mut records = Vec::new();
    loop {
        let before = records.len();
        reader.read(&mut records)?;
        if records.len() == before {
            let left_out = reader.left_out().total();
            return Ok((reader.meta().clone(), records, reader.spaces().to_vec(), left_out));
        }
    }
}

fn read(name: &str, options: &str, bytes: &[u8]) -> Result<Whole, Error> {
    all(over(name, options, bytes)?)
}

fn message(name: &str, options: &str, bytes: &[u8]) -> String {
    read(name, options, bytes).unwrap_err().to_string()
}

fn record(time_ns: u64, op: Op, space: u32, address: u64, length: u64) -> Record {
    Record { time_ns, op, space, address, length, buffer: None, client: 0 }
}

#[test]
fn every_text_format_says_what_its_fixture_says() {
    assert_eq!(TEXTS.len() + BINARIES.len(), ENTRIES.len(), "a format without a fixture");
    let records = |name| {
        let text = TEXTS.iter().find(|(format, _)| *format == name).unwrap().1;
        let (_, records, spaces, _) = read(name, "", text.as_bytes()).unwrap();
        (records, spaces)
    };
    use Op::{Read, Write};
    let bare = |address, length| record(0, Read, 0, address, length);
    assert_eq!(records("lis").0, [bare(1, 8), bare(64, 1), bare(9, 2)]);
    assert_eq!(records("trc").0, [bare(17, 1), bare(18, 1), bare(17, 1)]);
    assert_eq!(records("plain").0, [bare(3, 1), bare(4, 1)]);
    let spc = [
        record(0, Write, 0, 303_567 * 512, 3584),
        record(12_500_000_000, Read, 1, 55_590 * 512, 3072),
    ];
    assert_eq!(records("spc"), (spc.to_vec(), vec!["0".into(), "1".into()]));
    let msr = [
        record(12_816_638_529_551_466_300, Write, 0, 9_056_014_336, 2048),
        record(12_816_638_529_551_487_800, Read, 1, 512, 1),
    ];
    assert_eq!(records("msr"), (msr.to_vec(), vec!["hm_0".into(), "hm_1".into()]));
    let blkparse =
        [record(0, Read, 0, 282_624 * 512, 4096), record(3858, Write, 1, 16 * 512, 4096)];
    assert_eq!(records("blkparse"), (blkparse.to_vec(), vec!["8,0".into(), "8,16".into()]));
    let fiu = [
        record(89_968_195_792_462, Read, 0, 283_193_184 * 512, 4096),
        record(89_968_195_792_463, Write, 1, 8 * 512, 8192),
    ];
    assert_eq!(records("fiu"), (fiu.to_vec(), vec!["6,0".into(), "8,1".into()]));
    let disksim = [
        record(13_191_135, Read, 0, 0, 5 * 512),
        record(17_829_285, Write, 1, 576_560 * 512, 6 * 512),
    ];
    assert_eq!(records("disksim").0, disksim);
    let recorded = [
        Record { buffer: Some(0x7fff_0000), ..record(0, Read, 0, 3, 1) },
        Record { buffer: Some(0), ..record(12_000, Write, 1, 4, 2) },
    ];
    assert_eq!(records("recorded"), (recorded.to_vec(), vec!["a/b = c".into(), "9".into()]));
    let alibaba = [
        record(1_577_808_144_360_767_000, Write, 0, 8_792_731_648, 16_384),
        record(1_577_808_144_360_768_000, Read, 1, 4096, 512),
    ];
    assert_eq!(records("alibaba"), (alibaba.to_vec(), vec!["419".into(), "7".into()]));
    let tencent = [
        record(1_538_323_200_000_000_000, Read, 0, 46_530_920 * 512, 4096),
        record(1_538_323_201_000_000_000, Write, 1, 4096, 8192),
    ];
    assert_eq!(records("tencent"), (tencent.to_vec(), vec!["1283".into(), "7".into()]));
    let iolog = [record(201_000, Read, 0, 0, 4096), record(1_471_000, Write, 1, 8192, 512)];
    assert_eq!(records("iolog"), (iolog.to_vec(), vec!["/srv/a".into(), "/srv/b".into()]));
    let biosnoop =
        [record(4000, Write, 0, 13_092_560 * 512, 4096), record(178_000, Read, 1, 4096, 8192)];
    assert_eq!(records("biosnoop"), (biosnoop.to_vec(), vec!["xvda1".into(), "xvdb".into()]));
    let csv = [record(5, Read, 0, 0, 512), record(6, Write, 1, 512, 1024)];
    assert_eq!(records("csv"), (csv.to_vec(), vec!["8,0".into(), "8,16".into()]));
}

#[test]
fn facts_of_the_headers() {
    let (meta, ..) = read("recorded", "", TEXTS[8].1.as_bytes()).unwrap();
    assert_eq!((meta.block_bytes, meta.has_buffers), (Some(8192), true));
    let (.., left_out) = read("blkparse", "", BLKPARSE.as_bytes()).unwrap();
    assert_eq!(left_out, 2, "a discard and a flush");
}

fn vscsi_record(version: u8, code: u8, length: u32, sector: u64, micros: u64) -> Vec<u8> {
    let mark = [code, 0, 0, version];
    let (serial, length, elements) = (9_u32.to_le_bytes(), length.to_le_bytes(), [1, 0, 0, 0]);
    let tail = [sector.to_le_bytes(), micros.to_le_bytes()].concat();
    match version {
        1 => [&serial[..], &length, &elements, &mark, &tail].concat(),
        _ => [&mark[..], &serial, &length, &elements, &tail, &[7; 8]].concat(),
    }
}

fn vscsi(version: u8) -> Vec<u8> {
    let record = |code, length| vscsi_record(version, code, length, 20, 3);
    [record(0x28, 512), record(0x2a, 4096), record(0x35, 0), record(0x28, 0)].concat()
}

#[test]
fn both_versions_of_vscsi() {
    for version in [1, 2] {
        let (_, records, _, left_out) = read("vscsi", "", &vscsi(version)).unwrap();
        let want =
            [record(3000, Op::Read, 0, 10_240, 512), record(3000, Op::Write, 0, 10_240, 4096)];
        assert_eq!(records, want);
        assert_eq!(left_out, 2, "a cache flush and an empty read");
        let mixed = [vscsi(version), vscsi(3 - version)].concat();
        assert!(message("vscsi", "", &mixed).contains(&format!("version {version}")));
    }
}

#[test]
fn blkparse_counts_the_action_it_is_told() {
    let count = |options| read("blkparse", options, BLKPARSE.as_bytes()).unwrap().1.len();
    assert_eq!((count(""), count("action=D"), count("action=G")), (2, 1, 1));
    let error = message("blkparse", "action=C", BLKPARSE.as_bytes());
    assert!(error.contains("expected events of action C"), "{error}");
    let no_q: String = BLKPARSE
        .lines()
        .filter(|line| !line.contains(" Q "))
        .map(|line| format!("{line}\n"))
        .collect();
    assert_eq!(read("blkparse", "", no_q.as_bytes()).unwrap().1.len(), 1);
    let issue = BLKPARSE.lines().nth(6).unwrap();
    let late = format!("{}{BLKPARSE}", format!("{issue}\n").repeat(5000));
    let error = message("blkparse", "", late.as_bytes());
    assert!(error.starts_with("t, line 5001: expected no Q event"), "{error}");
    assert!(message("blkparse", "action=issue", b"").contains("expected one letter"));
}

#[test]
fn disksim_times_are_of_one_kind() {
    let (_, records, ..) = read("disksim", "", b"938513000 4 2 16 0\n938828000 3 1 8 1\n").unwrap();
    assert_eq!(records[1], record(938_828_000, Op::Read, 1, 512, 4096));
    let error = message("disksim", "", b"938513000 4 2 16 0\n9.5 3 1 8 1\n");
    assert_eq!(
        error,
        "t, line 2: expected time in ns, as on the first line, a whole number below 2^64, \
         found \"9.5\""
    );
    // Whole milliseconds among fractions are milliseconds.
    let (_, records, ..) = read("disksim", "", b"0.5 4 2 16 0\n2 3 1 8 1\n").unwrap();
    assert_eq!(records[1].time_ns, 2_000_000);
}

#[test]
fn csv_columns_by_option() {
    let text = b"t;k;x;how;vol\n1.5;0x10;77;GET;a\n2;17;0;put;b\n";
    let options = "time=1,id=2,size=3,op=4,space=5,delimiter=;,header=true";
    let (meta, records, spaces, _) = read("csv", options, text).unwrap();
    assert_eq!(meta.unit, Unit::Blocks);
    let want =
        [record(1_500_000_000, Op::Read, 0, 16, 1), record(2_000_000_000, Op::Write, 1, 17, 1)];
    assert_eq!(records, want);
    assert_eq!(spaces, ["a", "b"]);
    // The names of libCacheSim, and what it ships as its sample.
    let sample = b"version,time,op,size,lbn\n1,5633898,2a,512,42932745\n";
    let options = "time-col=2, obj-id-col=5, obj-size-col=4, delimiter=,, has-header=true";
    assert_eq!(read("csv", options, sample).unwrap().1[0].address, 42_932_745);
    let (meta, records, ..) = read("csv", "", sample).unwrap();
    assert_eq!((meta.unit, records[0].op), (Unit::Bytes, Op::Write));
    let (_, records, ..) = read("csv", "time=2,size=4,sector=5", sample).unwrap();
    assert_eq!((records[0].address, records[0].length), (42_932_745 * 512, 512));
    let (_, records, ..) =
        read("csv", "id=1,id-is-num=false", b"user/7\nuser/8\nuser/7\n").unwrap();
    assert_eq!(records[0], records[2]);
    assert_ne!(records[0], records[1]);
}

#[test]
fn csv_that_makes_no_sense_is_refused() {
    let refused = |options, text: &[u8], part: &str| {
        let error = message("csv", options, text);
        assert!(error.contains(part), "{error}");
    };
    refused("", b"1,2,3\n", "describe them, counted from 1, as --format csv,time=1,space=2");
    refused("", b"ts,disk,when\n1,2,3\n", "understood here is time=1,space=2)");
    refused("id=1,foo=2", b"1\n", "no option foo");
    refused("id=0", b"1\n", "a column from 1 to 1024");
    refused("id=99999999999", b"1\n", "a column from 1 to 1024");
    refused("id=1,byte=2", b"1,2\n", "two columns for the address");
    refused("byte=1", b"1,2\n", "needs a length");
    refused("id=1,bytes=2", b"1,2\n", "needs its length in blocks");
    refused("id=2,delimiter=ab", b"1,2\n", "one character");
    refused("id=2", b"1\n", "line 1: expected column 2");
    refused("id=1", b"1\nx\n", "line 2: expected address");
    refused("id=1,header=maybe", b"1\n", "true or false");
    refused("id=1,time=1", b"1\n", "no other use");
}

#[test]
fn damaged_lines_are_named() {
    let cases: &[(&str, &str, &str)] = &[
        ("lis", "1 1 0 0\n1 99999999 0 1\n", "t, line 2: expected a length of 1 to"),
        ("lis", "18446744073709551615 1 0 0\n", "t, line 1: expected a request that ends below"),
        ("lis", "1 1 0\n", "request number"),
        ("lis", "1 1 0 0 0\n", "end of the line"),
        ("trc", "1\n\n-2\n", "t, line 3: expected block number"),
        ("trc", "18446744073709551616\n", "below 2^64"),
        ("plain", "1\n2 3\n", "t, line 2"),
        ("spc", "0,1,512,x,0.0\n", "opcode r, R, w or W, found \"x\""),
        ("spc", "0,1,4294967297,r,0.0\n", "a length of 1"),
        ("spc", "0,36028797018963968,512,r,0.0\n", "a sector below 2^55"),
        ("spc", "0,1,512,r\n", "timestamp in seconds, a decimal number in range, found nothing"),
        ("msr", "184467440737095517,h,0,Read,0,1,0\n", "a FILETIME"),
        ("msr", "1,h,x,Read,0,1,0\n", "a disk number"),
        ("msr", "1,h,0,read,0,1,0\n", "type Read or Write"),
        ("fiu", "1 2 8 8 R 6 0\n", "process"),
        ("fiu", "1 2 p 8 8 X 6 0\n", "R or W"),
        ("disksim", "1 2 3 8388609 1\n", "a length of 1"),
        ("blkparse", "what\n", "major,minor"),
        ("blkparse", "8,0 0 1 0.5 1 Q R x + 8 [p]\n", "first sector"),
        ("recorded", "# x\nfoo\n", "t, line 2: expected # lines, then time_us"),
        ("recorded", "# block size zero\n", "block size in bytes"),
        ("recorded", "time_us,op,file,block,blocks\n1,X,0,0,1\n", "t, line 2: expected op R, W"),
        ("recorded", "time_us,op,file,block,blocks,buf\n1,R,0,0,1,xyz\n", "hexadecimal"),
    ];
    for (name, text, part) in cases {
        let error = message(name, "", text.as_bytes());
        assert!(error.contains(part), "{name} {text:?}: {error}");
    }
    let long = format!("1\n{}\n", "9".repeat(70_000));
    for name in ["plain", "trc", "lis", "spc", "csv"] {
        let options = if name == "csv" { "id=1" } else { "" };
        let text = if matches!(name, "lis" | "spc") { &long[2..] } else { &long };
        let error = message(name, options, text.as_bytes());
        assert!(error.contains("expected a line of at most 65536 bytes"), "{name}: {error}");
        assert!(error.len() < 200);
    }
}

fn uct_meta(unit: Unit) -> Meta {
    Meta {
        format: "uct",
        unit,
        block_bytes: Some(4096),
        has_ops: true,
        has_time: true,
        has_buffers: true,
        has_evictions: false,
    }
}

fn write(path: &Path, format: &str, trace: &Whole) -> Result<(), Error> {
    let (meta, records, spaces, _) = trace;
    let mut writer = create(path, Some(format), meta)?;
    for part in records.chunks(1000) {
        writer.write(part, spaces)?;
    }
    writer.finish()
}

fn written(format: &str, trace: &Whole) -> Result<Vec<u8>, Error> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t");
    write(&path, format, trace)?;
    Ok(std::fs::read(path).unwrap())
}

/// A trace that uses all that `meta` promises, with times of microsecond resolution.
fn random_trace(random: &mut Random, meta: Meta, spaces: u32, most: u64) -> Whole {
    let step = if meta.unit == Unit::Bytes { 512 } else { 1 };
    let mut time_ns = 0;
    let mut seen = 0;
    let records = (0..random.below(9000)).map(|_| {
        time_ns += random.below(3_000_000_000) / 1000 * 1000;
        let space = random.below(u64::from(spaces).min(seen + 1)) as u32;
        seen = seen.max(u64::from(space) + 1);
        let write = meta.has_ops && random.below(3) == 0;
        let evicts = meta.has_evictions && random.below(3) == 0;
        let op = if write { Op::Write } else { Op::Read };
        Record {
            time_ns: if meta.has_time { time_ns } else { 0 },
            op: if evicts { Op::Evict } else { op },
            space,
            address: (random.next_u64() >> random.below(64)) / 1024 / step * step,
            length: (1 + random.below(most)) * step,
            buffer: meta.has_buffers.then(|| random.next_u64() >> random.below(64)),
            client: if meta.has_evictions { random.below(64) as u8 } else { 0 },
        }
    });
    let records = records.collect();
    let names = (0..seen.max(1)).map(|space| space.to_string()).collect();
    (meta, records, names, 0)
}

#[test]
fn what_a_writer_writes_its_reader_reads() {
    let mut random = Random::seeded();
    let bare = Meta {
        has_ops: false,
        has_time: false,
        has_buffers: false,
        block_bytes: None,
        ..uct_meta(Unit::Blocks)
    };
    let bytes = Meta { has_buffers: false, block_bytes: None, ..uct_meta(Unit::Bytes) };
    let no_size = Meta { block_bytes: None, ..uct_meta(Unit::Blocks) };
    let cases = [
        ("uct", uct_meta(Unit::Blocks), 300, 100),
        ("uct", uct_meta(Unit::Bytes), 5, 100),
        ("uct", bare.clone(), 1, 1),
        ("uct", Meta { has_evictions: true, ..uct_meta(Unit::Bytes) }, 5, 100),
        ("plain", bare.clone(), 1, 1),
        ("trc", bare.clone(), 1, 1),
        ("lis", bare.clone(), 1, 100),
        ("oraclegeneral", Meta { has_time: true, ..bare.clone() }, 1, 1),
        ("spc", bytes.clone(), 30, 100),
        ("msr", bytes.clone(), 30, 100),
        ("recorded", uct_meta(Unit::Blocks), 30, 100),
        ("recorded", Meta { has_buffers: false, ..uct_meta(Unit::Blocks) }, 30, 100),
        ("csv", bytes, 30, 100),
        ("csv", no_size, 30, 100),
        ("csv", Meta { has_ops: false, ..bare }, 1, 100),
    ];
    for (name, meta, spaces, most) in cases {
        let mut trace = random_trace(&mut random, meta, spaces, most);
        if name == "oraclegeneral" {
            trace.1.iter_mut().for_each(|record| record.time_ns -= record.time_ns % 1_000_000_000);
        }
        if name == "msr" {
            trace.2.iter_mut().for_each(|space| *space = format!("host_{space}"));
        }
        let again = read(name, "", &written(name, &trace).unwrap()).unwrap();
        assert_eq!(again.0, Meta { format: entry_for(name).info.name, ..trace.0 }, "{name}");
        assert_eq!(again.1, trace.1, "{name}");
        if !trace.1.is_empty() {
            assert_eq!(again.2, trace.2, "{name}");
        }
    }
}

#[test]
fn a_writer_refuses_what_its_format_cannot_carry() {
    let refusal = |format, unit, record: Record| {
        let trace = (uct_meta(unit), vec![record], vec![], 0);
        written(format, &trace).unwrap_err().to_string()
    };
    let good = Record { buffer: Some(1), ..record(0, Op::Read, 0, 0, 1) };
    for format in ["trc", "plain", "oraclegeneral"] {
        let error = refusal(format, Unit::Blocks, Record { space: 1, ..good });
        assert!(error.ends_with("cannot tell several devices or files apart"), "{error}");
        let error = refusal(format, Unit::Blocks, Record { op: Op::Write, ..good });
        assert!(error.ends_with("cannot mark a write"), "{error}");
        let error = refusal(format, Unit::Blocks, Record { length: 2, ..good });
        assert!(error.ends_with("holds one block a record, this one has 2"), "{error}");
    }
    for format in ["trc", "plain", "oraclegeneral", "lis", "recorded"] {
        let error = refusal(format, Unit::Bytes, good);
        assert!(error.contains("this trace has byte addresses"), "{error}");
    }
    for format in ["spc", "msr"] {
        let error = refusal(format, Unit::Blocks, good);
        assert!(error.contains("this trace has block numbers"), "{error}");
    }
    assert!(refusal("spc", Unit::Bytes, Record { address: 5, ..good }).contains("boundary"));
    let late = Record { time_ns: u64::MAX, ..good };
    assert!(refusal("oraclegeneral", Unit::Blocks, late).contains("32 bits for the time"));
    assert!(refusal("vscsi", Unit::Bytes, good).contains("vscsi can only be read"));
    assert!(refusal("nonsense", Unit::Bytes, good).contains("unknown trace format \"nonsense\""));
    let unbuffered = Record { buffer: None, ..good };
    assert!(refusal("recorded", Unit::Blocks, unbuffered).contains("no buffer address"));
}

#[test]
fn foreign_names_of_spaces_stay_apart() {
    let names = ["sda", "0", "8,0", "host_1"].map(String::from).to_vec();
    let meta = Meta { has_buffers: false, block_bytes: None, ..uct_meta(Unit::Bytes) };
    let records: Vec<Record> = (0..4).map(|space| record(0, Op::Read, space, 0, 512)).collect();
    let trace = (meta, records.clone(), names, 0);
    for (format, want) in [
        ("spc", ["0", "1", "2", "3"]),
        ("msr", ["undercroft_0", "undercroft_1", "undercroft_2", "host_1"]),
        ("csv", ["sda", "0", "8,0", "host_1"]),
    ] {
        let (_, again, spaces, _) = read(format, "", &written(format, &trace).unwrap()).unwrap();
        assert_eq!((again, spaces), (records.clone(), want.map(String::from).to_vec()));
    }
}

#[test]
fn next_accesses_are_true() {
    let meta = Meta { has_ops: false, has_buffers: false, ..uct_meta(Unit::Blocks) };
    let block = |address| record(0, Op::Read, 0, address, 1);
    let trace = (meta, [1, 2, 1, 3, 2, 1].map(block).to_vec(), vec![], 0);
    let bytes = written("oraclegeneral", &trace).unwrap();
    let next = bytes.chunks(24).map(|record| i64::from_le_bytes(record[16..].try_into().unwrap()));
    assert_eq!(next.collect::<Vec<_>>(), [3, 5, 6, -1, -1, -1]);
    assert_eq!(bytes[12..16], [0, 16, 0, 0]);
}

#[test]
fn content_is_recognised_whatever_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace");
    let mut fixtures = damage::binaries();
    fixtures.extend(TEXTS.iter().map(|(name, text)| (*name, text.as_bytes().to_vec())));
    for (name, bytes) in fixtures {
        for bytes in [zstd::encode_all(&bytes[..], 1).unwrap(), bytes] {
            std::fs::write(&path, bytes).unwrap();
            assert_eq!(open(&path, &OpenOptions::default()).unwrap().meta().format, name);
        }
    }
}

#[test]
fn the_name_decides_where_content_does_not() {
    let folder = tempfile::tempdir().unwrap();
    let format = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        let opened = open(&path, &OpenOptions::default());
        opened.map_err(|error| error.to_string()).map(|reader| reader.meta().format)
    };
    assert_eq!(format("a.TRC", "1\n2\n"), Ok("trc"));
    assert_eq!(format("a", "1\n2\n"), Ok("plain"));
    assert_eq!(format("a.trc", "1 2 0 0\n"), Ok("lis"));
    assert_eq!(format("a.lis", "1 2 x 0\n"), Ok("lis"));
    assert_eq!(format("empty.spc", ""), Ok("spc"));
    let error = format("a.xyz", "hello\n").unwrap_err();
    let names = "uct, vscsi, lcs, oraclegeneral, recorded, msr, alibaba, tencent, spc, blkparse, \
                 iolog, biosnoop, fiu, disksim, lis, plain, trc, csv";
    assert!(
        error.contains(&format!("name one with --format ({names}); columns of any table")),
        "{error}"
    );
    assert_eq!(error.lines().count(), 1);
    assert!(format("empty", "").unwrap_err().contains("an empty file"));
    assert!(format("a.csv", "1,2\n").unwrap_err().contains("csv needs to know its columns"));
    let options = OpenOptions { format: Some("spc,action=Q".into()) };
    let error = open(&folder.path().join("a"), &options).map(|_| ()).unwrap_err().to_string();
    assert_eq!(error, "format spc has no option action: there are none");
    let error = open(&folder.path().join("none"), &OpenOptions::default()).map(|_| ());
    assert!(matches!(error, Err(Error::Io { .. })));
}

#[test]
fn a_trace_appears_whole_or_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.trc.zst");
    let meta = Meta { has_buffers: false, ..uct_meta(Unit::Blocks) };
    let block = record(0, Op::Read, 0, 5, 1);
    let files = || std::fs::read_dir(folder.path()).unwrap().count();
    let mut writer = create(&path, None, &meta).unwrap();
    writer.write(&[block], &[]).unwrap();
    assert!(!path.exists());
    drop(writer);
    assert_eq!(files(), 0);
    for name in ["t.trc.zst", "t.trc.gz", "t.trc"] {
        let path = folder.path().join(name);
        let mut writer = create(&path, None, &meta).unwrap();
        writer.write(&[block; 3], &[]).unwrap();
        writer.finish().unwrap();
        let reader = open(&path, &OpenOptions::default()).unwrap();
        assert_eq!(reader.meta().format, "trc");
        assert_eq!(all(reader).unwrap().1, [block; 3]);
    }
    assert_eq!(files(), 3);
    let csv = folder.path().join("t.csv");
    create(&csv, None, &Meta { unit: Unit::Bytes, ..meta.clone() }).unwrap().finish().unwrap();
    assert_eq!(std::fs::read(&csv).unwrap(), b"time_ns,op,space,first_byte,bytes\n");
    let error = create(&folder.path().join("t.xyz"), None, &meta).map(|_| ()).unwrap_err();
    assert!(error.to_string().contains("name one of uct, oraclegeneral"), "{error}");
    for name in ["t.trc.xz", "t.bz2"] {
        let error = create(&folder.path().join(name), Some("trc"), &meta).map(|_| ()).unwrap_err();
        assert!(error.to_string().contains("end the name in .zst or .gz"), "{error}");
    }
}

#[test]
fn memory_for_names_is_limited() {
    let mut text = String::new();
    for space in 0..(1 << 20) + 1 {
        text.push_str(&format!("{space},0,512,r,0\n"));
    }
    assert!(message("spc", "", text.as_bytes()).contains("more than 1048576 devices or files"));
}

#[test]
fn only_uct_holds_evictions() {
    let meta = Meta { has_evictions: true, ..uct_meta(Unit::Bytes) };
    let record = record(0, Op::Evict, 0, 4096, 512);
    let names = vec!["0".to_owned()];
    for name in ["spc", "msr", "csv"] {
        let refused = written(name, &(meta.clone(), vec![record], names.clone(), 0));
        let why = format!("{name} cannot hold the evictions of this trace; uct can");
        assert!(refused.unwrap_err().to_string().contains(&why));
    }
    // Nor does a trace that was said to have none.
    for name in ["spc", "uct"] {
        let meta = Meta { has_evictions: false, has_buffers: false, ..meta.clone() };
        let refused = written(name, &(meta, vec![record], names.clone(), 0));
        assert!(refused.unwrap_err().to_string().contains("it is an eviction"), "{name}");
    }
}
