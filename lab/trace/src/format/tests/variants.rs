//! What files have that people bring: requests that move no data, several outputs in one file, rows
//! without a disk, damage at the beginning, archives. Nothing is lost without a word.

use super::*;
use crate::{LeftOut, Reason};

/// Records, and what was left out by reason.
fn counted(name: &str, text: &str) -> (usize, Vec<(Reason, u64)>) {
    let mut reader = over(name, "", text.as_bytes()).unwrap();
    let mut records = Vec::new();
    while {
        let before = records.len();
        reader.read(&mut records).unwrap();
        records.len() > before
    } {}
    (records.len(), reader.left_out().by_reason().collect())
}

#[test]
fn requests_of_length_zero_are_left_out_and_counted_by_every_format() {
    for (name, text) in [
        ("lis", "1 0 0 0\n1 1 0 1\n"),
        ("spc", "0,1,0,r,0.0\n0,1,512,r,0.0\n"),
        ("msr", "1,h,0,Read,0,0,0\n1,h,0,Read,0,512,0\n"),
        ("alibaba", "4,R,0,0,1\n4,R,0,512,1\n"),
        ("tencent", "1538323200,8,0,0,1\n1538323200,8,8,0,1\n"),
        ("fiu", "1 2 p 8 0 R 6 0\n1 2 p 8 8 R 6 0\n"),
        ("disksim", "1 2 3 0 1\n1 2 3 8 1\n"),
        ("recorded", "time_us,op,file,block,blocks\n1,R,0,0,0\n1,R,0,0,1\n"),
        ("iolog", "fio version 2 iolog\n/a read 0 0\n/a read 0 512\n"),
        ("csv", "op,byte,bytes\nr,0,0\nr,0,512\n"),
        ("csv", "op,id,blocks\nr,0,0\nr,0,1\n"),
    ] {
        assert_eq!(counted(name, text), (1, vec![(Reason::Empty, 1)]), "{name}");
        // Such a file is still recognised as what it is.
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t");
        std::fs::write(&path, text).unwrap();
        assert_eq!(open(&path, &OpenOptions::default()).unwrap().meta().format, name);
    }
    let left_out = LeftOut::of(Reason::Empty, 2) + LeftOut::of(Reason::Operation, 1);
    assert_eq!(left_out.total(), 3);
}

#[test]
fn what_moves_no_data_is_counted_by_its_reason() {
    let (records, left_out) = counted("blkparse", BLKPARSE);
    assert_eq!((records, left_out), (2, vec![(Reason::Operation, 2)]));
    let log = "fio version 3 iolog\n1 /a add\n2 /a read 0 512\n3 /a sync_file_range 0 512\n\
               4 /a datasync 0 0\n5 /a trim 0 512\n6 /a write 0 0\n";
    let left_out = vec![(Reason::Operation, 3), (Reason::Empty, 1)];
    assert_eq!(counted("iolog", log), (1, left_out));
    // As published: a request that was never answered has no type.
    let systor = "Timestamp,Response,IOType,LUN,Offset,Size\n\
                  1456135200.013118000,0.000806000,R,4,899056122368,131072\n\
                  1456135200.014,,,4,0,4096\n\
                  1456135200.015,0.001,W,4,512,0\n";
    let left_out = vec![(Reason::Empty, 1), (Reason::Unmarked, 1)];
    assert_eq!(counted("csv", systor), (1, left_out));
    let error = message("msr", "", b"1,h,0,,0,1,0\n");
    assert!(error.contains("type Read or Write, found nothing"), "{error}");
}

#[test]
fn outputs_of_blkparse_one_after_another_are_read() {
    let summary = "CPU0 (8,0):\n Reads Queued:           1,        4KiB\n\nTotal (8,0):\n \
                   IO unplugs:             1\n\nThroughput (R/W): 0KiB/s / 0KiB/s\nEvents (8,0): 8 \
                   entries\nSkips: 0 forward (0 -   0.0%)\n";
    let two = format!("{BLKPARSE}{summary}{BLKPARSE}{summary}{BLKPARSE}");
    let (records, left_out) = counted("blkparse", &two);
    assert_eq!((records, left_out), (6, vec![(Reason::Operation, 6)]));
    // With the statistics of processes in front of those of processors.
    let processes = format!("{BLKPARSE}\njava (4020)\n Reads Queued:   1\n{BLKPARSE}");
    assert_eq!(counted("blkparse", &processes).0, 4);
    let lines = BLKPARSE.lines().count();
    let strange = format!("{BLKPARSE}and so on\n");
    let error = message("blkparse", "", strange.as_bytes());
    let want = format!("t, line {}: expected a line of the summary, or an event", lines + 1);
    assert!(error.starts_with(&want), "{error}");
    let damaged = format!("{BLKPARSE}8,0 0 1 0.5 4020 Q R 28\n");
    assert!(message("blkparse", "", damaged.as_bytes()).contains("expected + and a number"));
}

#[test]
fn an_event_of_blkparse_that_was_cut_is_damage() {
    let event = "  8,0    0        1     0.000000000  4020  Q   R 282624 + 8 [java]\n";
    let whole = event.repeat(2);
    let cut_from = event.len() + event.find('Q').unwrap() + 1;
    for length in cut_from..whole.len() - 2 {
        let error = message("blkparse", "", &whole.as_bytes()[..length]);
        assert!(error.starts_with("t, line 2: expected "), "cut at {length}: {error}");
    }
    // A flush, a command with bytes of its own, a zone that is reset, another letter.
    let left_out = |rest: &str| {
        let text = format!("{event}8,0 0 1 0.5 4020 Q {rest}\n");
        read("blkparse", "", text.as_bytes()).map(|whole| whole.3)
    };
    for rest in [
        "FWS [kworker/0:1]",
        "W 36 [smartd]",
        "R 36 (12 00 00) [smartd]",
        "N [java] 1",
        "ZR 8 + 8 [a]",
        "DE 8 + 8 [a]",
    ] {
        assert_eq!(left_out(rest).unwrap(), 1, "{rest}");
    }
    assert_eq!(left_out("FWFSM 8 + 8 [a]").unwrap(), 0);
    for rest in ["X 8 + 8 [a]", "RR 8 + 8 [a]", "add 8 + 8 [a]", "8 + 8 [a]"] {
        let error = left_out(rest).unwrap_err().to_string();
        assert!(error.contains("t, line 2: expected an operation of blkparse"), "{error}");
    }
    // Without processes, as some print it, nothing tells.
    assert!(read("blkparse", "", b"8,0 0 1 0.5 1 Q R 8 + 8\n8,0 0 1 0.5 1 Q R 8 + 8\n").is_ok());
}

#[test]
fn a_row_of_biosnoop_without_a_disk_is_of_no_disk() {
    let names = "TIME(s)     COMM           PID     DISK      T SECTOR     BYTES  LAT(ms)\n";
    let text = format!(
        "{names}0.1 Web Content 1950 xvda1 W 8 4096 0.7\n0.2 Web Content 1950 W 8 4096 0.7\n\
         {names}0.3 jbd2 77 R 16 512 0.7\n0.4 jbd2 77 xvda1 N 0 0 0.1\n0.5 jbd2 77 xvda1 R 0 0 0.1\n"
    );
    let (_, records, spaces, left_out) = read("biosnoop", "", text.as_bytes()).unwrap();
    assert_eq!(spaces, ["xvda1", "no disk"]);
    assert_eq!(records.iter().map(|record| record.space).collect::<Vec<_>>(), [0, 1, 1]);
    assert_eq!(left_out, 2);
    for (row, part) in [
        ("0.1 a 1 xvda add 8 512 0.7", "expected T, an operation as R, WS or D, found \"add\""),
        ("0.1 a 1 xvda R -1 512 0.7", "expected sector, a whole number, found \"-1\""),
        ("0.1 a 1 xvda R 8 nan 0.7", "expected bytes, a whole number, found \"nan\""),
    ] {
        let error = message("biosnoop", "", format!("{names}{row}\n").as_bytes());
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn logs_of_fio_one_after_another_are_read() {
    let log = "fio version 3 iolog\n1 /a read 0 512\n";
    assert_eq!(counted("iolog", &log.repeat(2)).0, 2);
    let mixed = format!("{log}fio version 2 iolog\n/a read 0 512\n");
    let error = message("iolog", "", mixed.as_bytes());
    assert!(error.contains("line 3: expected fio version 3 iolog"), "{error}");
}

#[test]
fn damage_at_the_beginning_is_damage_of_the_format_that_nearly_fits() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.csv");
    let error = |text: &str| {
        std::fs::write(&path, text).unwrap();
        let all = open(&path, &OpenOptions::default()).and_then(all);
        let error = all.unwrap_err().to_string();
        error.strip_prefix(&format!("{}", path.display())).unwrap().to_owned()
    };
    let row = "419,W,8792731648,16384,1577808144360767\n";
    for line in 1..=20 {
        let rows =
            [&row.repeat(line - 1), "419,W,87x2731648,16384,1577808144360767\n", &row.repeat(25)];
        let want = format!(
            ", line {line}: expected byte offset, a whole number below 2^64, found \"87x2731648\"; \
             it was read as alibaba, which most of its first lines are (--format names another)"
        );
        assert_eq!(error(&rows.concat()), want);
    }
    let rows =
        format!("{}8,0 0 1 0.5 Q\n{BLKPARSE}", BLKPARSE.lines().next().unwrap().to_owned() + "\n");
    assert!(error(&rows).contains("it was read as blkparse"));
    // Half of the lines are no majority, and a first line of words names columns.
    assert!(error(&format!("{row}x9\n")).contains("csv needs to know its columns"));
    assert!(error(&format!("dev,how,where\n{}", row.repeat(5))).contains("csv needs to know"));
}

fn tar(name: &str, content: &[u8], magic: &[u8]) -> Vec<u8> {
    let mut header = vec![0; 512];
    header[..name.len()].copy_from_slice(name.as_bytes());
    header[124..136].copy_from_slice(format!("{:011o} ", content.len()).as_bytes());
    header[257..257 + magic.len()].copy_from_slice(magic);
    header[148..156].copy_from_slice(b"        ");
    let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    [&header, content, &[0; 1024]].concat()
}

#[test]
fn archives_and_the_like_are_called_by_their_names() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.csv");
    let error = |bytes: &[u8], format: Option<&str>| {
        std::fs::write(&path, bytes).unwrap();
        let format = format.map(str::to_owned);
        open(&path, &OpenOptions { format }).map(|_| ()).unwrap_err().to_string()
    };
    let text = b"1538323200,46530920,8,0,1283\n";
    for magic in [&b"ustar\x0000"[..], b"ustar  \0", b""] {
        let archive = tar("2018-10-01-01", text, magic);
        for format in [None, Some("tencent")] {
            let error = error(&archive, format);
            assert!(
                error.contains("this is a tar archive, not a trace: unpack it with"),
                "{error}"
            );
            assert!(error.contains("tar -xOf ARCHIVE 2018-10-01-01 |"), "{error}");
        }
        let packed = zstd::encode_all(&archive[..], 1).unwrap();
        let error = error(&packed, None);
        assert!(error.contains("this is a tar archive, compressed by zstd, not"), "{error}");
    }
    let mut no_tar = tar("1538323200,46530920,8,0,1283\n", b"", b"");
    no_tar[0] = b'2';
    assert!(!error(&no_tar, None).contains("tar archive"));
    for (bytes, what) in [
        (&b"PK\x03\x04rest"[..], "a zip archive"),
        (b"\x07taerest", "binary output of blktrace"),
        (b"\x04\x22\x4d\x18rest", "compressed by lz4"),
        (b"PAR1rest", "a Parquet file"),
    ] {
        let error = error(bytes, None);
        assert!(error.contains(&format!("this is {what}, not a trace: ")), "{error}");
    }
}
