//! Tests of the columns of csv files: names, values, times, and files that are refused since a
//! column seems to matter and is not understood.

use super::*;

#[test]
fn usual_names_are_understood() {
    use Op::{Read, Write};
    let one = |header: &str, line: &str| {
        let text = format!("{header}\n{line}\n");
        let (_, records, spaces, _) = read("csv", "", text.as_bytes()).unwrap();
        (records[0], spaces)
    };
    let want = record(1_500_000_000, Write, 0, 4096, 8192);
    for (header, line) in [
        ("timestamp,device,lba,bytes,R/W", "1.5,sda,8,8192,W"),
        ("ts,dev,offset,length,rw", "1.5,sda,4096,8192,1"),
        ("\u{feff}Time,DiskNumber,Offset,Size,Operation", "1.5,sda,4096,8192,WS"),
        ("time (ms),volume_id,byte,len,opcode", "1500,sda,4096,8192,write"),
        ("Timestamp(us);Disk;Sector;Sectors;is_write", "1500000;sda;8;16;1"),
        ("start_time_ns,vol,first_byte,io_size,IO Type", "1500000000,sda,4096,8192,FWFS"),
    ] {
        assert_eq!(one(header, line), (want, vec!["sda".into()]), "{header}");
    }
    assert_eq!(one("page,dir", "7,0").0, record(0, Read, 0, 7, 1));
    assert_eq!(one("lba,size,op", "8,512,RA").0.op, Read);
    // SNIA's header of the MSR traces; host and disk together are a space, as in that format.
    let header = "Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime";
    let (record, spaces) = one(header, "128166385295514663,hm,0,Write,512,2048,2833");
    assert_eq!((record.time_ns, spaces), (12_816_638_529_551_466_300, vec!["hm_0".into()]));
}

#[test]
fn times_say_what_they_count() {
    let first = |time: &str| {
        let text = format!("timestamp,id\n{time},1\n{time},2\n");
        let records = read("csv", "", text.as_bytes()).map(|whole| whole.1);
        records.map(|records| records[1].time_ns).map_err(|error| error.to_string())
    };
    let time = 1_767_225_600_500_000_000;
    for text in [
        "1767225600.5",
        "1767225600500",
        "1767225600500000",
        "1767225600500000000",
        "2026-01-01T00:00:00.5Z",
        "2026-01-01T00:00:00.5+00:00",
        "2026-01-01 00:00:00.500",
    ] {
        assert_eq!(first(text), Ok(time), "{text}");
    }
    assert_eq!(first("0.25"), Ok(250_000_000));
    let wrong = first("2026-13-01T00:00:00").unwrap_err();
    assert!(wrong.contains("line 2: expected time in UTC, as 2026-01-31T12:00:00.5Z"), "{wrong}");
}

#[test]
fn requests_that_move_no_data_are_left_out() {
    let text = b"op,byte,bytes\nR,0,512\nDISCARD,0,0\nflush,0,0\nD,0,512\nFN,0,0\n";
    let (_, records, _, left_out) = read("csv", "", text).unwrap();
    assert_eq!((records.len(), left_out), (1, 4));
}

#[test]
fn columns_that_are_not_used_are_told() {
    let reader = over("csv", "", b"time,pid,id,Latency (us)\n1,2,3,4\n").unwrap();
    assert_eq!(reader.unused(), ["pid", "Latency (us)"]);
    assert!(over("csv", "id=3", b"time,pid,id\n1,2,3\n").unwrap().unused().is_empty());
}

#[test]
fn a_column_that_seems_to_matter_and_is_not_understood_is_refused() {
    for (text, column, instead) in [
        ("time,lba,bytes,x\n1,8,512,R\n2,8,512,W\n", "column 4 (\"x\")", "op=4"),
        ("time,id,op_kind\n1,8,5\n", "column 3 (\"op_kind\")", "csv,time=1,id=2,op=3"),
        ("time,id,is_read\n1,8,1\n", "column 3 (\"is_read\")", "op=3"),
        ("time,dev_serial,id,op\n1,x,8,r\n", "column 2 (\"dev_serial\")", "space=2"),
        ("time,table,id\n1,x,8\n", "column 2 (\"table\")", "leave space=2 out"),
    ] {
        let error = message("csv", "", text.as_bytes());
        assert!(error.contains(column) && error.contains(instead), "{error}");
    }
    // A column of flags says nothing of reads and writes, unless its name does.
    assert!(read("csv", "", b"time,id,cached\n1,8,true\n2,9,False\n").is_ok());
    let (_, records, ..) = read("csv", "", b"time,id,is_write\n1,8,True\n2,9,False\n").unwrap();
    assert_eq!([records[0].op, records[1].op], [Op::Write, Op::Read]);
    // Described columns are as described; so is a file that has what seems to be missing.
    assert!(read("csv", "time=1,id=3", b"time,table,id\n1,x,8\n").is_ok());
    assert!(read("csv", "", b"time,device,table,id\n1,a,x,8\n").is_ok());
    // A size beside sectors counts bytes, and eight of them are no request.
    let error = message("csv", "", b"lba,length\n8,8\n");
    assert!(error.contains("line 2") && error.contains("sectors=N"), "{error}");
}
