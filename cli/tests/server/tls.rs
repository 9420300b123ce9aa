//! The commands that talk to a server, over TLS with certificates on both sides.

use serde_json::Value;

use super::limits::Keys;
use super::support::{Place, Server, read, text, write};

const SHOW: &str = "--tls-roots root.pem --tls-certificate db.pem --tls-key db.key";

/// A server that lets nobody in but `db`, over TLS.
fn strict(place: &Place) -> Server {
    let keys = Keys::new(place);
    ["server", "db", "stranger"].iter().for_each(|name| keys.issue(name));
    place.serve(
        "--volume v=mem:,size=8MiB,client=db --tls-certificate server.pem --tls-key server.key \
         --tls-client-roots root.pem --tls-required",
    )
}

fn encrypted_uri(server: &Server) -> String {
    server.uri("v").replacen("nbd+", "nbds+", 1)
}

/// The three commands for a URI.
fn commands(uri: &str) -> [String; 3] {
    [
        format!("stats {uri} --json"),
        format!("replay trace.trc --to {uri} --verify --depth 4 --connections 2 --json"),
        format!("bench nbd {uri} --seconds 0.3 --reads 50 --connections 2 --depth 8 --json"),
    ]
}

#[test]
fn stats_replay_and_bench_speak_tls() {
    let place = Place::new();
    let server = strict(&place);
    place.write("trace.trc", (0..500).map(|n| format!("{}\n", n * 7 % 300)).collect::<String>());
    let [stats, replay, bench] = commands(&encrypted_uri(&server)).map(|command| {
        let output = place.undercroft(&format!("{command} {SHOW}"));
        assert_eq!(output.status.code(), Some(0), "{command}: {}", text(&output.stderr));
        serde_json::from_slice::<Value>(&output.stdout).unwrap()
    });
    assert_eq!(stats["volumes"]["v"]["size_bytes"], 8 << 20);
    assert_eq!((&replay["requests"], &replay["mismatches"]), (&500.into(), &0.into()), "{replay}");
    assert_eq!(bench["errors"], 0);
    let count = |kind: &str| bench[kind]["count"].as_u64().unwrap();
    assert!(count("read") > 0 && count("write") > 0, "{bench}");
    // The test's certificates never expire; the metric says until when.
    let page = server.page("/metrics");
    let expiry = "undercroft_certificate_expiry_seconds ";
    let expiry = page.lines().find_map(|line| line.strip_prefix(expiry)).unwrap();
    assert!(expiry.parse::<f64>().unwrap() > 1.8e9, "{expiry}");
    let counted = ["reads", "writes"].map(|name| server.count("v", name));
    assert_eq!(counted[1], count("write"));
    assert!(counted[0] >= 500 + count("read"), "{counted:?}");
    assert_eq!(server.stop(), 0);
}

#[test]
fn what_is_missing_for_tls_is_said() {
    let place = Place::new();
    let server = strict(&place);
    place.write("trace.trc", "1\n2\n");
    let other = Place::new();
    Keys::new(&other);
    place.write("other.pem", other.read("root.pem"));
    let stranger = SHOW.replace("db.", "stranger.");
    let plain = server.uri("v");
    let encrypted = encrypted_uri(&server);
    for (uri, flags, code, part) in [
        (&encrypted, "", 2, "needs --tls-roots FILE"),
        (&plain, SHOW, 2, "this URI is not encrypted"),
        (&encrypted, "--tls-roots root.pem --tls-key db.key", 2, "--tls-certificate"),
        (&encrypted, "--tls-roots nothing.pem", 1, "nothing.pem"),
        (&encrypted, "--tls-roots other.pem", 1, "certificate"),
        (&encrypted, "--tls-roots root.pem", 1, "the server refuses: TLS: "),
        (&encrypted, &stranger, 1, "is not open to"),
        (&plain, "", 1, "wants TLS (nbds)"),
    ] {
        for command in commands(uri) {
            let output = place.undercroft(&format!("{command} {flags}"));
            let said = text(&output.stderr);
            assert_eq!(output.status.code(), Some(code), "{command} {flags}: {said}");
            assert!(said.contains(part) && !said.contains("panicked"), "{command} {flags}: {said}");
        }
    }
    assert_eq!(server.stop(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_over_tls() {
    let (below, above) = (Place::new(), Place::new());
    let lower = strict(&below);
    for name in ["root.pem", "db.pem", "db.key"] {
        above.write(name, below.read(name));
    }
    let volume = format!("--volume v={}", encrypted_uri(&lower));
    let said = above.refused(2, &format!("{volume} --listen unix:x"));
    assert!(said.contains("--tls-upstream-roots FILE"), "{said}");
    let roots = format!("{volume} --tls-upstream-roots root.pem");
    above.refused(1, &format!("{roots} --listen unix:x"));
    let identity = "--tls-upstream-certificate db.pem --tls-upstream-key db.key";
    let upper = above.serve(&format!("{roots} {identity}"));
    let client = upper.connect("v").await;
    write(&client, 0, vec![1; 100_000]).await.unwrap();
    assert_eq!(read(&client, 0, 100_000).await.unwrap(), vec![1; 100_000]);
    assert!(lower.count("v", "writes") >= 25);
    assert_eq!((upper.stop(), lower.stop()), (0, 0));
}
