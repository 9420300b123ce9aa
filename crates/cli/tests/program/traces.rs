//! Traces of the user's own: what is said of columns and numbers that may not mean what they seem to.

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
