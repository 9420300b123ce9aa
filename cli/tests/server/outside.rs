//! A store that is changed behind the server's back: what is cached can be dropped, and a file that
//! has been replaced by another one is noticed.

use std::fs;

use super::arrivals::page;
use super::support::{Place, read, text, write};

const BLOCK: usize = 4096;

/// What `undercroft drop` of a volume says, with its code.
fn dropped(place: &Place, uri: &str) -> (Option<i32>, String) {
    let output = place.undercroft(&format!("drop {uri}"));
    (output.status.code(), text(&output.stdout) + &text(&output.stderr))
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_cached_is_dropped_for_a_store_that_has_changed() {
    let place = Place::new();
    place.write("v.img", vec![1; 1 << 20]);
    let back = "write=back,dirty-age-s=3600";
    let server = place.serve(&format!(
        "--volume v=file:v.img,cache=512KiB,{back} --volume w=mem:,size=1MiB \
         --listen 127.0.0.1:0 -v"
    ));
    let client = server.connect("v").await;
    assert_eq!(read(&client, 0, 8 * BLOCK).await.unwrap(), vec![1; 8 * BLOCK]);
    write(&client, 9 * BLOCK as u64, vec![7; BLOCK]).await.unwrap();
    fs::write(place.path("other"), vec![2; 8 * BLOCK]).unwrap();
    let outside = || {
        let file = fs::File::options().write(true).open(place.path("v.img")).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, &vec![2; 8 * BLOCK], 0).unwrap();
    };
    outside();
    assert_eq!(read(&client, 0, BLOCK).await.unwrap(), vec![1; BLOCK], "it is cached");
    // What is newer than the store stays, and everything with it.
    let uri = server.uri("v");
    let (code, said) = dropped(&place, &uri);
    assert!(code == Some(1) && said.contains("1 blocks are dirty"), "{said}");
    assert_eq!(server.count("v", "resident"), 9);
    assert_eq!(read(&client, 0, BLOCK).await.unwrap(), vec![1; BLOCK]);
    client.flush().await.unwrap();
    server.wait_for("v", "dirty", |dirty| dirty == 0);
    // Who may not change a volume may not do this either.
    let over_tcp = format!("nbd://127.0.0.1:{}/v", server.port());
    let (code, said) = dropped(&place, &over_tcp);
    assert!(code == Some(1) && said.contains("administrators"), "{said}");
    // The first volume is the default, as for clients.
    let (code, said) = dropped(&place, &server.uri(""));
    assert_eq!((code, said.as_str()), (Some(0), "volume 'v': 9 blocks dropped from the cache\n"));
    assert!(server.log().contains("9 blocks dropped"), "{}", server.log());
    assert_eq!(server.count("v", "resident"), 0);
    assert_eq!(read(&client, 0, 8 * BLOCK).await.unwrap(), vec![2; 8 * BLOCK]);
    assert_eq!(read(&client, 9 * BLOCK as u64, BLOCK).await.unwrap(), vec![7; BLOCK]);
    let (code, said) = dropped(&place, &server.uri("nothing"));
    assert!(code == Some(2) && said.contains("no volume 'nothing'"), "{said}");
    assert_eq!(server.stop(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_was_replaced_is_noticed_and_opened_when_nobody_is_there() {
    let place = Place::new();
    place.write("v.img", vec![1; 1 << 20]);
    place.write(
        "undercroft.toml",
        "state = 'state'\n[[volume]]\nname = 'v'\nstore = 'file:v.img'\ncache = '512KiB'\n\
         write = 'back'\ndirty-age-s = 3600\n[[volume]]\nname = 'w'\nstore = 'mem:'\nsize = '1MiB'\n",
    );
    let server = place.serve("-v");
    let client = server.connect("v").await;
    assert_eq!(read(&client, 0, 8 * BLOCK).await.unwrap(), vec![1; 8 * BLOCK]);
    let rename = |bytes: u8, length: usize| {
        place.write("new", vec![bytes; length]);
        fs::rename(place.path("new"), place.path("v.img")).unwrap();
    };
    rename(2, 1 << 19);
    server.wait_for_log("v.img is another file than the one that is open");
    let (status, told) = page(&server, "/healthz/v");
    assert!(status == 503 && told.contains("another file"), "{status} {told}");
    let log = server.reload("reloaded");
    assert!(log.contains("not opened: it has 512KiB, less than 1MiB") || log.contains("clients"));
    rename(3, 1 << 20);
    let log = server.reload("reloaded");
    assert!(log.contains("1 clients are connected"), "{log}");
    write(&client, 0, vec![9; BLOCK]).await.unwrap();
    client.close().await;
    server.wait_for_clients("v", 0);
    let log = server.reload("reloaded");
    assert!(log.contains("1 blocks are dirty"), "{log}");
    let client = server.connect("v").await;
    assert_eq!(read(&client, 0, BLOCK).await.unwrap(), vec![9; BLOCK], "nothing has changed");
    client.flush().await.unwrap();
    client.close().await;
    server.wait_for_clients("v", 0);
    server.wait_for("v", "dirty", |dirty| dirty == 0);
    rename(4, 1 << 19);
    let log = server.reload("reloaded");
    assert!(log.contains("it has 512KiB, less than 1MiB"), "{log}");
    fs::remove_file(place.path("v.img")).unwrap();
    let log = server.reload("reloaded");
    assert!(log.contains("v.img is gone") && log.contains("not opened"), "{log}");
    assert!(!place.path("v.img").exists(), "nothing is created in its place");
    rename(5, 1 << 20);
    let log = server.reload("reloaded");
    assert!(log.contains("the new one is served"), "{log}");
    assert_eq!(page(&server, "/healthz/v"), (200, "ok\n".to_owned()));
    assert_eq!(server.count("v", "resident"), 0);
    let client = server.connect("").await;
    assert_eq!(read(&client, 0, 8 * BLOCK).await.unwrap(), vec![5; 8 * BLOCK]);
    write(&client, 0, vec![6; BLOCK]).await.unwrap();
    assert_eq!(server.stop(), 0);
    assert!(place.read("v.img")[..BLOCK] == [6; BLOCK]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replay_overwrites_only_what_is_empty_unless_it_is_told_to() {
    let place = Place::new();
    place.write("reads.csv", "time_us,op,offset,bytes\n0,R,0,4096\n1,R,8192,4096\n");
    place.write("t.csv", "time_us,op,offset,bytes\n0,R,0,4096\n1,W,8192,4096\n2,R,8192,4096\n");
    place.write("full.img", vec![1; 1 << 20]);
    let server =
        place.serve("--volume empty=file:e.img,size=1MiB --volume full=file:full.img --cache 1MiB");
    let replay = |trace: &str, volume: &str, more: &str| {
        let to = server.uri(volume);
        let output = place.undercroft(&format!("replay {trace} --block 4KiB --to {to} {more}"));
        (output.status.code(), text(&output.stdout) + &text(&output.stderr))
    };
    let refused = |(code, said): (Option<i32>, String)| {
        assert!(code == Some(2) && said.contains("--overwrite"), "{code:?}: {said}");
    };
    refused(replay("t.csv", "full", ""));
    assert_eq!(place.read("full.img"), vec![1; 1 << 20]);
    let (code, said) = replay("reads.csv", "full", "");
    assert_eq!(code, Some(0), "{said}");
    let (code, said) = replay("t.csv", "empty", "--verify");
    assert_eq!(code, Some(0), "{said}");
    refused(replay("t.csv", "empty", ""));
    let (code, said) = replay("t.csv", "full", "--overwrite");
    assert_eq!(code, Some(0), "{said}");
    assert_ne!(place.read("full.img"), vec![1; 1 << 20]);
    assert_eq!(server.stop(), 0);
}
