//! Tests of what csv files have in their rows: codes and words of operations, numbers, comments,
//! lines of names that come again, and columns that are aligned.

use super::*;

fn ops(options: &str, text: &str) -> (Vec<Op>, u64) {
    let (_, records, _, left_out) = read("csv", options, text.as_bytes()).unwrap();
    (records.iter().map(|record| record.op).collect(), left_out)
}

#[test]
fn codes_of_operations_mean_what_the_options_say() {
    use Op::{Read, Write};
    let objects = "time,op,id,size\n1,0,7,10\n2,1,7,10\n3,1,8,10\n";
    let error = message("csv", "", objects.as_bytes());
    assert_eq!(
        error,
        "t, line 2: expected an operation in words; say what the codes mean, as --format \
         csv,...,op-read=1/2/5,op-write=3/4/6,op-none=100, found \"0\""
    );
    assert_eq!(ops("op-read=1,op-write=0", objects), (vec![Write, Read, Read], 0));
    assert_eq!(ops("op-read=0,op-write=1", objects), (vec![Read, Write, Write], 0));
    assert_eq!(ops("op-read=1,op-none=0", objects), (vec![Read, Read], 1));
    assert_eq!(ops("time=1,op=2,id=3,op-read=1,op-write=0,header=true", objects).0.len(), 3);
    let error = message("csv", "op-read=1", objects.as_bytes());
    assert!(error.contains("line 2: expected an operation that one of the options"), "{error}");
    // The traces of Baleen, as published: with names, and described as ranges of blocks.
    let baleen = "block_id io_offset io_size op_time op_name user_namespace user_name\n\
                  310 262144 4325376 1572074461.57806 1 24 3\n\
                  310 0 4096 1572074462 4 24 3\n\
                  311 0 4096 1572074463 100 24 3\n\
                  311 8192 4096 1572074464 5 24 3\n";
    let codes = "op-read=1/2/5,op-write=3/4/6,op-none=100";
    assert_eq!(ops(codes, baleen), (vec![Read, Write, Read], 1));
    assert!(message("csv", "", baleen.as_bytes()).contains("op-read=1/2/5"));
    let options = format!("space=1,byte=2,bytes=3,time=4,op=5,header=true,{codes}");
    let (_, records, spaces, _) = read("csv", &options, baleen.as_bytes()).unwrap();
    assert_eq!(records[0], record(1_572_074_461_578_060_000, Read, 0, 262_144, 4_325_376));
    assert_eq!((records[2].space, spaces), (1, vec!["310".into(), "311".into()]));
    // Linux numbers the directions of disk requests, and a name can say as much.
    assert_eq!(ops("", "op,byte,bytes\n0,0,512\n1,0,512\n").0, [Read, Write]);
    assert_eq!(ops("", "is_write,id\n0,7\n1,7\n").0, [Read, Write]);
    assert!(message("csv", "", b"op,byte,bytes\n2,0,512\n").contains("say what the codes mean"));
    for (options, part) in [
        ("id=1,op-read=1", "need a column of operations"),
        ("id=1,op=2,op-read=", "expected codes of operations, as 1/2/5"),
        ("id=1,op=2,op-read=1//2", "expected codes of operations, as 1/2/5"),
    ] {
        assert!(message("csv", options, b"1,1\n").contains(part), "{options}");
    }
}

#[test]
fn words_of_object_stores_and_caches_are_understood() {
    use Op::{Read, Write};
    let ibm = "0 REST.PUT.OBJECT 8d4fcda3d675bac9 1056\n\
               5 REST.HEAD.OBJECT 8d4fcda3d675bac9 1056\n\
               7 REST.GET.OBJECT 8d4fcda3d675bac9 1056 0 1055\n\
               9 REST.DELETE.OBJECT 8d4fcda3d675bac9\n";
    assert_eq!(ops("time-ms=1,op=2,id=3,id-is-num=false", ibm), (vec![Write, Read], 2));
    let meta = "op_time,block_id,io_size,op_name\n1,a-1,40,getChunkData.NotInitialized\n\
                2,a-1,40,putChunk.Permanent\n";
    assert_eq!(ops("id-is-num=false", meta).0, [Read, Write]);
    let twitter = "0,k:1,4,8,1,add,60\n0,k:1,4,8,1,gets,0\n0,k:1,4,8,1,delete,0\n";
    assert_eq!(ops("time=1,id=2,id-is-num=false,op=6", twitter), (vec![Write, Read], 1));
    // Letters of blkparse in an order that it never prints are no operation.
    for word in ["fed", "ASS", "WW", "SR", "readd"] {
        let error = message("csv", "", format!("op,byte,bytes\n{word},0,512\n").as_bytes());
        assert!(error.contains("line 2: expected op r, w, read"), "{error}");
    }
    assert_eq!(ops("", "op,byte,bytes\nFF,,\nDS,0,512\nra,0,512\n"), (vec![Read], 2));
    // A line that was cut is damage, whatever is left of it.
    for cut in ["0,FF", "0,", "0"] {
        let error = message("csv", "", format!("byte,op,bytes\n0,R,512\n{cut}").as_bytes());
        assert!(error.contains("t, line 3: expected column "), "{cut}: {error}");
    }
}

#[test]
fn numbers_may_have_decimals_and_exponents() {
    let text = "time,byte,bytes\n1.5e-05,4096.0,512.00\n1.6E-5,8.192e+03,1e3\n0.5,12288,5.12e2\n";
    let (_, records, ..) = read("csv", "", text.as_bytes()).unwrap();
    let want = [(15_000, 4096, 512), (16_000, 8192, 1000), (500_000_000, 12_288, 512)];
    let want = want.map(|(time, address, length)| record(time, Op::Read, 0, address, length));
    assert_eq!(records, want);
    let spc = "0,8.0,512.0,r,1.5e-05\n";
    let (_, records, ..) = read("spc", "", spc.as_bytes()).unwrap();
    assert_eq!(records, [record(15_000, Op::Read, 0, 4096, 512)]);
    let since_1970 = "timestamp,id\n1.7672256005e+09,1\n";
    let (_, records, ..) = read("csv", "", since_1970.as_bytes()).unwrap();
    assert_eq!(records[0].time_ns, 1_767_225_600_500_000_000);
    let since_1970 = "timestamp,id\n1.7672256005e+18,1\n";
    let (_, records, ..) = read("csv", "", since_1970.as_bytes()).unwrap();
    assert_eq!(records[0].time_ns, 1_767_225_600_500_000_000);
    for value in [
        "nan",
        "NaN",
        "inf",
        "-1",
        "-1.0",
        "+1",
        "1e",
        "1e-3",
        "4096.5",
        "1e20",
        "1e9999",
        "1e99999",
        "1.5.0",
        "0x1g",
        ".",
        "e5",
        "1e+-5",
        "99999999999999999999999999999999999999999",
    ] {
        let error = message("csv", "", format!("time,byte,bytes\n1,{value},512\n").as_bytes());
        assert!(error.contains("t, line 2: expected address, a whole number"), "{value}: {error}");
        let error = message("spc", "", format!("0,{value},512,r,0\n").as_bytes());
        assert!(error.contains("t, line 1: expected "), "{value}: {error}");
    }
    for value in ["nan", "-0.5", "1e30", "1e", "x"] {
        let error = message("csv", "", format!("time,byte,bytes\n{value},0,512\n").as_bytes());
        assert!(error.contains("t, line 2: expected time"), "{value}: {error}");
    }
    let error = message("csv", "", b"time,byte,bytes\n1,0,1e11\n");
    assert!(error.contains("t, line 2: expected a length of 1 to"), "{error}");
}

#[test]
fn comments_and_names_that_come_again_are_no_requests() {
    let names = "time,op,byte,bytes\n";
    let text = format!("# by hand\n\n#\n{names}1,r,0,512\n# so far\n{names}2,w,512,512\n{names}");
    let (_, records, ..) = read("csv", "", text.as_bytes()).unwrap();
    assert_eq!(records.len(), 2);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t");
    std::fs::write(&path, text).unwrap();
    assert_eq!(open(&path, &OpenOptions::default()).unwrap().meta().format, "csv");
    // The names themselves may be a comment.
    let text = "# time, op, byte, bytes\n1,r,0,512\n";
    assert_eq!(read("csv", "", text.as_bytes()).unwrap().1.len(), 1);
    // Described columns: the line of names is one all the same.
    let text = "# x\ntime,op,byte,bytes\n1,r,0,512\ntime,op,byte,bytes\n1,r,0,512\n";
    assert_eq!(read("csv", "op=2,byte=3,bytes=4", text.as_bytes()).unwrap().1.len(), 2);
    // An id that is any text may begin with the mark of a comment.
    let (_, records, ..) = read("csv", "id=1,id-is-num=false", b"#a\n#b\n#a\n").unwrap();
    assert_eq!((records.len(), records[0] == records[2]), (3, true));
    // Other names are damage.
    let error = message("csv", "", b"time,op,byte,bytes\n1,r,0,512\ntime,op,bytes,byte\n");
    assert!(error.contains("t, line 3: expected "), "{error}");
}

#[test]
fn columns_may_be_aligned_by_blanks() {
    let text = "time       op  device     sector  bytes\n\
                0.000001   R   sda             8   4096\n\
                \u{20} 12.5    WS  sdb\t   123456    512   \n";
    let (_, records, spaces, _) = read("csv", "", text.as_bytes()).unwrap();
    let want = [
        record(1000, Op::Read, 0, 4096, 4096),
        record(12_500_000_000, Op::Write, 1, 123_456 * 512, 512),
    ];
    assert_eq!((records, spaces), (want.to_vec(), vec!["sda".into(), "sdb".into()]));
    let described = "time=1,op=2,space=3,sector=4,bytes=5,delimiter=blank,header=true";
    assert_eq!(read("csv", described, text.as_bytes()).unwrap().1.len(), 2);
    let error = message("csv", "", b"time  id\n1\n");
    assert!(error.contains("t, line 2: expected column 2"), "{error}");
}

/// What is undone without end has no line of a sensible length, or ends.
#[test]
fn what_is_compressed_too_well_ends_in_an_error() {
    use std::io::Write;
    let digits = vec![b'9'; 64 << 20];
    let mut bzip2 = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::best());
    bzip2.write_all(&digits).unwrap();
    let bomb = bzip2.finish().unwrap();
    assert!(bomb.len() < 4096);
    let packed = [bomb, zstd::encode_all(&digits[..], 1).unwrap()];
    for (bytes, name) in packed.iter().zip(["bzip2", "zstd"]) {
        let error = message("csv", "id=1", bytes);
        assert!(error.contains("expected a line of at most 65536 bytes"), "{name}: {error}");
    }
}
