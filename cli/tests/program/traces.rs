//! Traces of the user's own: what is said of columns and numbers that may mean something else.

use super::commands::{Place, text};

#[test]
fn columns_that_are_not_used_are_said_once() {
    let place = Place::new();
    place
        .write("a.csv", "timestamp,device,lba,bytes,R/W,pid\n0,sda,0,4096,W,9\n1,sdb,0,4096,R,9\n");
    let info = place.quiet("trace info a.csv");
    assert!(info.contains("not used  columns pid\n"), "{info}");
    assert!(info.contains("50.00 % reads\n") && info.contains("2: sda, sdb"), "{info}");
    assert_eq!(place.json("trace info a.csv --json")["unused"][0], "pid");
    for command in
        ["simulate a.csv --l1 2blk:lru", "sweep a.csv --l2 1blk,2blk --policy lru,arc -o d"]
    {
        let output = place.run(command);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let said = "note: a.csv: columns that are not used: pid";
        assert_eq!(text(&output.stderr).matches(said).count(), 1, "{}", text(&output.stderr));
    }
    place.write("b.csv", "timestamp,serial_dev,lba,bytes,rw\n0,a,0,4096,W\n");
    let said = place.fails(1, "trace info b.csv");
    assert!(said.contains("column 2 (\"serial_dev\") seems to name a device or a file"), "{said}");
    assert!(said.contains("--format csv,time=1,space=2,sector=3,bytes=4,op=5"), "{said}");
}

#[test]
fn requests_are_described_in_time_and_bytes() {
    let place = Place::new();
    place.write("a.csv", "time,offset,size,rw\n1,0,8192,R\n2,8192,4096,R\n3,0,4096,W\n");
    let info = place.quiet("trace info a.csv");
    for line in [
        "time      2.0 s; in the mean 2 requests/s, 8 KiB/s\n",
        "bytes     12 KiB read, 4 KiB written\n",
        "sizes     5.3 KiB in the mean; most frequent: 66.67 % up to 4 KiB, 33.33 % up to 8 KiB\n",
        "in a row  33.33 % of the requests begin where the last ended\n",
    ] {
        assert!(info.contains(line), "{line}: {info}");
    }
    let facts = place.json("trace info a.csv --json");
    assert_eq!(facts["duration_s"], 2.0);
    assert_eq!((&facts["read_bytes"], &facts["write_bytes"]), (&12288.into(), &4096.into()));
    assert_eq!(facts["bytes_per_s"], 8192.0);
    // Numbers of pages are counted in the size that they are said to have.
    place.write("pages.csv", "block\n0\n1\n3\n");
    let info = place.quiet("trace info pages.csv --block 16KiB --unit 8KiB");
    assert!(info.contains("bytes     24 KiB read\n") && !info.contains("time "), "{info}");
}

#[test]
fn a_table_that_is_not_understood_is_refused_with_a_description_of_its_columns() {
    let place = Place::new();
    place.write("a.csv", "when,disk,logical block,sz\n1,sda,8,4096\n");
    place.write("b.tsv", "Time\tDevice\tLBA\tBlocks\n1\tsda\t8\t8\n");
    place.write("junk", "\u{1}\u{2}\u{3}");
    let wanted = "--format csv,time=1,space=2,sector=3,bytes=4,op=5";
    for (name, known) in [
        ("a.csv", "understood here is space=2)"),
        ("b.tsv", "understood here is time=1,space=2,sector=3,blocks=4)"),
        ("junk", "columns of any table can be described"),
    ] {
        let said = place.fails(1, &format!("trace info {name}"));
        assert!(said.contains(wanted) && said.contains(known), "{said}");
    }
    let info = place.quiet("trace info b.tsv --format csv,time=1,space=2,sector=3,sectors=4");
    assert!(info.contains("requests  1 of one 4 KiB block"), "{info}");
}

#[test]
fn numbers_that_may_be_no_blocks_are_remarked_on() {
    let place = Place::new();
    place.write("pages.csv", "block\n0\n1\n3\n");
    place.ok("trace convert pages.csv -o pages.lis");
    place.write("sectors.lis", "0 16 0 0\n16 8 0 1\n0 8 0 2\n");
    let remark = |arguments: &str| {
        let output = place.run(arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments}: {}", text(&output.stderr));
        text(&output.stderr)
    };
    for name in ["pages.csv", "pages.lis"] {
        for command in ["trace info NAME", "simulate NAME --l1 2blk:lru", "curve NAME --policy lru"]
        {
            let command = command.replace("NAME", name);
            let said = remark(&format!("{command} --block 16KiB"));
            let wanted = format!(
                "note: {name}: each of its numbers counts as one block of 16KiB; if they are pages \
                 or sectors of another size, name it, as --unit 8KiB\n"
            );
            assert_eq!(said, wanted, "{command}");
            assert_eq!(remark(&command), "");
        }
        let info = place.quiet(&format!("trace info {name} --block 16KiB --unit 8KiB"));
        assert!(info.contains("distinct  2 blocks, 32 KiB"), "{info}");
    }
    // A trace that states its size.
    place.write(
        "r.recorded",
        "# block size 8192. And so on\ntime_us,op,file,block,blocks,buf\n0,R,7,3,1,0\n",
    );
    assert_eq!(
        remark("trace info r.recorded --block 16KiB"),
        "note: r.recorded: its numbers are pages of 8KiB, and each counts as one block of 16KiB; \
         with --unit 8KiB they are regrouped\n"
    );
    assert_eq!(remark("trace info r.recorded --block 8KiB"), "");
    for command in ["trace info sectors.lis", "simulate sectors.lis --l1 2blk:lru"] {
        let said = remark(command);
        let wanted = "note: sectors.lis: all its numbers are multiples of 8, and each counts as one \
                      block; if they are sectors, say --unit 512\n";
        assert_eq!(said, wanted, "{command}");
        assert_eq!(remark(&format!("{command} --unit 512")), "");
    }
    let said = place.fails(2, "trace info pages.lis --unit 0");
    assert!(said.contains("expected 1 to 2GiB, as 512 or 8KiB"), "{said}");
}
