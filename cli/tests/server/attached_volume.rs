//! `undercroft attach` and the volume that it is told of: it must be the one that is served.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;

use super::support::{Place, seeded, text, write};

const BYTES: usize = 4 << 20;

/// What `attach` prints of an image, and whether it takes it.
fn attach(place: &Place, image: &str, uri: &str) -> (bool, String) {
    let output =
        place.undercroft(&format!("attach --volume {image}={uri} --library v.img --print"));
    (output.status.success(), text(&output.stderr))
}

#[tokio::test(flavor = "multi_thread")]
async fn another_disk_of_the_same_size_is_not_taken() {
    let place = Place::new();
    let server =
        place.serve("--volume v=file:v.img,size=4MiB --volume n=file:n.img,size=4MiB --write back");
    let (uri, empty) = (server.uri("v"), server.uri("n"));
    // An empty disk is like every other one, and that is said.
    let (taken, said) = attach(&place, "n.img", &empty);
    assert!(taken && said.contains("compared are zeroes, here and there"), "{said}");

    // A file system's mark at the beginning, data here and there, nothing elsewhere.
    let client = server.connect("v").await;
    let mut random = seeded("attach");
    for offset in [1024, BYTES / 2 - 64 * 1024, BYTES - 4096] {
        write(&client, offset as u64, random.bytes(1024)).await.unwrap();
    }
    // Not yet flushed: the image has it when the comparison is repeated.
    let (taken, said) = attach(&place, "v.img", &uri);
    assert!(taken && !said.contains("compared"), "{said}");

    let same = place.read("v.img");
    place.write("same.img", &same);
    assert!(attach(&place, "same.img", &uri).0);
    File::create(place.path("empty.img")).unwrap().set_len(BYTES as u64).unwrap();
    let mut marked = same.clone();
    marked[1024] ^= 1;
    place.write("marked.img", marked);
    let mut other = same.clone();
    other[BYTES - 4096] ^= 1;
    place.write("other.img", other);
    for (image, first) in [("empty.img", 0), ("marked.img", 0), ("other.img", BYTES - 4096)] {
        let (taken, said) = attach(&place, image, &uri);
        let wanted = format!("differ, the first at byte {first}\n");
        assert!(!taken && said.contains("are not the same volume"), "{image}: {said}");
        assert!(said.ends_with(&wanted), "{image}: {said}");
    }
    let (taken, said) = attach(&place, "v.img", &empty);
    assert!(!taken && said.contains("are not the same volume"), "{said}");
    assert_eq!(server.stop(), 0);
}

/// Whoever may not read a disk may attach to it, and is told that it could be another one.
#[test]
fn what_cannot_be_compared_is_said() {
    let place = Place::new();
    let server = place.serve("--volume v=file:v.img,size=4MiB");
    let program = place.path("undercroft");
    // By another process: while this one has a program open for writing, whatever it begins in
    // another thread has it open too, and it could not be run.
    place.run("cp", &[env!("CARGO_BIN_EXE_undercroft"), "undercroft"]);
    for (path, mode) in [(".", 0o755), ("socket", 0o777), ("v.img", 0)] {
        fs::set_permissions(place.path(path), Permissions::from_mode(mode)).unwrap();
    }
    let volume = format!("v.img={}", server.uri("v"));
    let attach = ["attach", "--volume", &volume, "--library", "undercroft", "--print"];
    let program = program.to_str().unwrap();
    let nobody = ["--reuid=65534", "--clear-groups", program];
    let output = match rustix::process::geteuid().is_root() {
        true => place.command("setpriv", &[&nobody[..], &attach].concat()).output().unwrap(),
        false => place.command(program, &attach).output().unwrap(),
    };
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("contents were not compared") && said.contains("denied"), "{said}");
    assert_eq!(server.stop(), 0);
}
