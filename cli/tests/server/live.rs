//! The live page: its events as a client reads them, its bounds against viewers that are many, that
//! stay away or that have no right, and the page itself in a real browser under load.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use super::support::{PATIENCE, Place, Server, read, text, write};

const TOKEN: &str = "0123456789abcdef-live";

/// Most viewers that a server takes.
const VIEWERS: usize = 32;

/// A connection on which a page was asked for: status, headers, and the rest to be read.
struct Asked {
    status: u16,
    headers: String,
    body: BufReader<TcpStream>,
}

/// Asks as the server's own page does, with further headers.
fn ask(server: &Server, path: &str, headers: &str) -> Asked {
    ask_with(server, path, &format!("X-Undercroft-Viewer: page\r\n{headers}"))
}

fn ask_with(server: &Server, path: &str, headers: &str) -> Asked {
    let address = server.http().strip_prefix("http://").unwrap().to_owned();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{headers}\r\n").unwrap();
    let mut body = BufReader::new(stream);
    let (mut line, mut headers) = (String::new(), String::new());
    body.read_line(&mut line).unwrap();
    let status = line.split(' ').nth(1).unwrap().parse().unwrap();
    while headers.lines().last() != Some("") {
        assert!(body.read_line(&mut headers).unwrap() > 0, "{line}{headers}");
    }
    Asked { status, headers, body }
}

impl Asked {
    /// The next event of a kind: its data.
    fn event(&mut self, kind: &str) -> Value {
        self.try_event(kind).unwrap_or_else(|| panic!("ended before '{kind}'"))
    }

    /// As `event`; `None` if the connection ends.
    fn try_event(&mut self, kind: &str) -> Option<Value> {
        let (mut line, mut is_meant) = (String::new(), false);
        loop {
            line.clear();
            if self.body.read_line(&mut line).unwrap_or(0) == 0 {
                return None;
            }
            if let Some(name) = line.strip_prefix("event: ") {
                is_meant = name.trim() == kind;
            } else if let Some(data) = line.strip_prefix("data: ").filter(|_| is_meant) {
                return Some(serde_json::from_str(data).unwrap());
            }
        }
    }
}

/// The number of a name in a row of a sample.
fn number(hello: &Value, row: &Value, name: &str) -> u64 {
    let fields = hello["fields"].as_array().unwrap();
    row[fields.iter().position(|field| field == name).unwrap()].as_u64().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn events_have_what_was_counted() {
    let place = Place::new();
    let server = place.serve("--volume a=mem:,size=1MiB --volume b=mem:,size=1MiB --cache 1MiB");
    let mut viewer = ask(&server, "/events", "");
    assert_eq!(viewer.status, 200);
    assert!(viewer.headers.contains("text/event-stream"), "{}", viewer.headers);
    let hello = viewer.event("hello");
    let before = viewer.event("state");
    assert_eq!((&before["volume_count"], &before["connections"]), (&2.into(), &0.into()));
    let client = server.connect("a").await;
    for block in [0, 1, 0_u64] {
        read(&client, block * 4096, 4096).await.unwrap();
    }
    write(&client, 0, vec![1; 8192]).await.unwrap();
    let (mut sums, mut seconds) = ([0; 4], 0.0);
    while sums[2] < 2 {
        let sample = viewer.event("sample");
        seconds += sample["s"].as_f64().unwrap();
        for (sum, name) in sums.iter_mut().zip(["reads", "read_hits", "writes", "read_requests"]) {
            *sum += number(&hello, &sample["all"], name);
            let both = ["a", "b"].map(|volume| number(&hello, &sample["by"][volume], name));
            assert_eq!(number(&hello, &sample["all"], name), both[0] + both[1], "{name}");
        }
    }
    assert_eq!(sums, [3, 1, 2, 3]);
    assert!(seconds > 1.0, "{seconds}");
    let state = viewer.event("state");
    assert_eq!(state["clients"][0]["volume"], "a", "{state}");
    assert_eq!(state["order"], serde_json::json!(["a", "b"]));
    // Whoever comes later gets what has been.
    let mut late = ask(&server, "/events", "");
    let hello = late.event("hello");
    let mut reads = 0;
    while reads < 3 {
        reads += number(&hello, &late.event("sample")["all"], "reads");
    }
    client.close().await;
    assert_eq!(server.stop(), 0);
    assert_eq!(viewer.try_event("nothing"), None, "it ends with the server");
}

#[test]
fn many_viewers_stay_and_starve_nobody() {
    let place = Place::new();
    let server = place.serve("--volume a=mem:,size=1MiB");
    let began = Instant::now();
    let mut viewers: Vec<_> = (0..VIEWERS).map(|_| ask(&server, "/events", "")).collect();
    assert!(viewers.iter().all(|viewer| viewer.status == 200));
    let refused = ask(&server, "/events", "");
    assert_eq!(refused.status, 503);
    assert!(refused.headers.contains("retry-after: 10"), "{}", refused.headers);
    // As many other connections as there may be, which say nothing, and one that asks.
    let address = server.http().strip_prefix("http://").unwrap().to_owned();
    let silent: Vec<_> = (0..60).map(|_| TcpStream::connect(&address).unwrap()).collect();
    for page in ["/stats", "/metrics", "/healthz"] {
        assert!(!server.page(page).is_empty());
    }
    drop(silent);
    // Other connections last ten seconds; these go on.
    while began.elapsed() < Duration::from_secs(14) {
        viewers.iter_mut().for_each(|viewer| drop(viewer.event("sample")));
    }
    // A place is free when one has left.
    viewers.pop();
    let deadline = Instant::now() + PATIENCE;
    while ask(&server, "/events", "").status != 200 {
        assert!(Instant::now() < deadline, "no place becomes free");
        std::thread::sleep(Duration::from_millis(200));
    }
    drop(viewers);
    assert_eq!(server.stop(), 0);
}

#[test]
fn pages_of_other_sites_take_no_places_of_viewers() {
    let place = Place::new();
    let server = place.serve("--volume a=mem:,size=1MiB");
    // What a browser lets such a page send: over plain HTTP it need not say from where, and it asks
    // first whether other headers are welcome.
    let from = ["", "Origin: http://evil.example\r\n", "Sec-Fetch-Site: cross-site\r\n"];
    for number in 0..2 * VIEWERS {
        let foreign = ask_with(&server, "/events", from[number % from.len()]);
        assert_eq!(foreign.status, 403);
    }
    let address = server.http().strip_prefix("http://").unwrap().to_owned();
    let mut stream = TcpStream::connect(address).unwrap();
    let asks_first = "OPTIONS /events HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: http://evil.example\r\n\
                      Access-Control-Request-Method: GET\r\nConnection: close\r\n\
                      Access-Control-Request-Headers: x-undercroft-viewer\r\n\r\n";
    stream.write_all(asks_first.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(!answer.to_ascii_lowercase().contains("access-control"), "{answer}");
    let viewers: Vec<_> = (0..VIEWERS).map(|_| ask(&server, "/events", "")).collect();
    assert!(viewers.iter().all(|viewer| viewer.status == 200));
    drop(viewers);
    assert_eq!(server.stop(), 0);
}

#[test]
fn events_are_bounded_for_very_many_volumes_with_long_names() {
    let place = Place::new();
    let name = |number: usize| format!("{number:03}{}", "<img-src=x>".repeat(22));
    let volumes = (0..80).map(|number| {
        format!(
            "[[volume]]\nname = '{}'\nstore = 'mem:'\nsize = '64KiB'\ncache = '64KiB'\n",
            name(number)
        )
    });
    place.write("undercroft.toml", volumes.collect::<String>());
    let server = place.serve("");
    let mut viewer = ask(&server, "/events", "");
    let sample = viewer.event("sample");
    assert_eq!(sample["by"].as_object().unwrap().len(), 64);
    let state = viewer.event("state");
    assert_eq!(state["volume_count"], 80);
    assert_eq!(state["order"].as_array().unwrap().len(), 64);
    assert_eq!(state["order"][0], name(0));
    for event in [sample, state] {
        let length = event.to_string().len();
        assert!(length < 100_000, "{length}");
    }
    assert_eq!(server.stop(), 0);
}

#[test]
fn without_the_token_there_is_a_page_and_no_figure() {
    let place = Place::new();
    place.write("token", TOKEN);
    place.write("undercroft.toml", "[[volume]]\nname = 'secret'\nstore = 'mem:'\nsize = '1MiB'\n");
    let server = place.serve("--http-token-file token");
    for path in ["/", "/live/live.js", "/live/uPlot.js", "/live/page.css"] {
        let mut asked = ask(&server, path, "Accept: text/html\r\nConnection: close\r\n");
        assert_eq!(asked.status, 200, "{path}");
        let policy = "content-security-policy: default-src 'none'; script-src 'self';";
        assert!(asked.headers.contains(policy), "{path}: {}", asked.headers);
        let mut page = String::new();
        asked.body.read_to_string(&mut page).unwrap();
        assert!(!page.contains("secret") && !page.contains(TOKEN), "{path}");
    }
    assert_eq!(ask(&server, "/", "").status, 401, "no browser");
    assert_eq!(ask(&server, "/live/../stats", "").status, 404);
    let token = |token: &str| format!("Authorization: Bearer {token}\r\n");
    for wrong in [String::new(), token("0123456789abcdef-wrong")] {
        assert_eq!(ask(&server, "/events", &wrong).status, 401);
    }
    assert_eq!(ask(&server, &format!("/events?token={TOKEN}"), "").status, 401, "in no log");
    // For programs there are the names of the pages, and each of them is there.
    let mut names = String::new();
    ask(&server, "/", &token(TOKEN)).body.read_line(&mut names).unwrap();
    for page in ["/stats", "/advice", "/metrics", "/healthz"] {
        assert!(names.contains(page), "{names}");
        assert_eq!(ask(&server, page, &token(TOKEN)).status, 200, "{page}");
    }
    let mut viewer = ask(&server, "/events", &token(TOKEN));
    assert_eq!(viewer.status, 200);
    viewer.event("state");
    // Who has the old token sees nothing any more.
    place.write("token", "fedcba9876543210");
    server.signal(Signal::HUP);
    while viewer.try_event("sample").is_some() {}
    assert_eq!(ask(&server, "/events", &token(TOKEN)).status, 401);
    assert_eq!(server.stop(), 0);
}

/// A process that ends with the test.
struct Ends(Child);

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What `tools/report/live.py` finds; `None` without a browser.
pub(crate) fn seen(arguments: &[&str]) -> Option<Value> {
    let has = |program| Command::new(program).arg("--version").output().is_ok();
    if !has("chromium") || !has("python3") {
        println!("skipped: chromium or python3 is not installed");
        return None;
    }
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let script = root.join("tools/report/live.py");
    let output = Command::new("python3").arg(script).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    Some(serde_json::from_slice(&output.stdout).unwrap())
}

fn texts(value: &Value) -> Vec<&str> {
    value.as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect()
}

/// A name that would end a script, an attribute and a comment.
const NAME: &str = "a\"'<b>alert(1)<!--&lt;";

/// Advice as a server gives it.
const ADVICE: &str = r#"{"volumes": {"db": {"state": "ready", "sentences": ["<b>LIRS</b> would add 2.0 points."],
  "assumptions": ["Clients stay."], "cells": [
  {"policy": "mq", "placement": "access", "cache_bytes": 524288, "read_hit_ratio": 0.2, "error": 0.01, "is_today": false},
  {"policy": "mq", "placement": "access", "cache_bytes": 1048576, "read_hit_ratio": 0.4, "error": 0.01, "is_today": true},
  {"policy": "lirs", "placement": "access", "cache_bytes": 524288, "read_hit_ratio": 0.3, "error": 0.01, "is_today": false},
  {"policy": "lirs", "placement": "access", "cache_bytes": 1048576, "read_hit_ratio": 0.5, "error": 0.01, "is_today": false}]}},
  "total": {"sentences": []}}"#;

#[test]
fn the_page_works_in_a_browser_under_load() {
    let place = Place::new();
    place.write("token", TOKEN);
    place.write("advice.json", ADVICE);
    let volume = |name: &str, more: &str| {
        format!("[[volume]]\nname = '''{name}'''\nsize = '4MiB'\ncache = '1MiB'\n{more}\n")
    };
    let log = "log(log,size=8MiB,unmarked):delay(200us):mem:";
    let all = "flash = 'flash,size=8MiB,budget=off'\n".to_owned()
        + &volume("db", &format!("write = 'back'\nstore = '{log}'"))
        + &volume(NAME, "store = 'delay(200us):mem:'");
    place.write("undercroft.toml", all);
    let server = place.serve("--http-token-file token");
    let load = format!("bench nbd {} --depth 4 --reads 80 --seconds 300", server.uri("db"));
    let _load = Ends(place.undercroft_command(&load).spawn().unwrap());
    let advice = place.path("advice.json").display().to_string();
    let arguments = ["check", &server.http(), "--token", TOKEN, "--advice", &advice];
    let Some(seen) = seen(&arguments) else { return };
    assert!(seen["wrong"].as_str().unwrap().contains("does not take this token"), "{seen}");
    for width in ["wide", "narrow"] {
        let seen = &seen[width];
        assert_eq!(seen["complaints"], Value::Array(Vec::new()), "{width}");
        assert_eq!((&seen["overflow"], &seen["markup"]), (&0.into(), &0.into()), "{width}");
        let said = texts(&seen["said"]);
        assert_eq!(said[0], "Healthy: all 2 volumes are served, and their stores answer.");
        assert!(
            said[1].starts_with("The cache served ")
                && said[1].contains(" % of the")
                && said[1].contains(" % more."),
            "{said:?}"
        );
        assert!(said[2].starts_with("Saved since the start: "), "{said:?}");
        assert!(said[3].contains("Reads that miss take"), "{said:?}");
        assert!(said[4].contains("<b>LIRS</b> would add 2.0 points."), "{said:?}");
        let names: Vec<_> = seen["volumes"]
            .as_array()
            .unwrap()
            .iter()
            .map(|row| row[0].as_str().unwrap())
            .collect();
        assert_eq!(names, ["All volumes", "db", NAME], "{width}");
        // Six charts over time, and the advice's: colours of axes and of curves.
        let painted = seen["painted"].as_array().unwrap();
        assert_eq!(painted.len(), 7, "{width}: {painted:?}");
        assert!(painted[..4].iter().all(|colors| colors.as_u64() > Some(3)), "{painted:?}");
        assert!(painted[6].as_u64() > Some(3), "{painted:?}");
        let labels = texts(&seen["labels"]);
        assert!(labels[0].contains(", flash ") && labels[5].contains(", in the log "), "{seen}");
        assert!(labels[6].contains("Today 1 MiB of mq: 40.0 %"), "{seen}");
        assert_eq!(texts(&seen["clients"]).len(), 1, "{seen}");
        assert_eq!(seen["link"], "Live, every 2 s");
        assert!(!seen["address"].as_str().unwrap().contains(TOKEN), "the token is in the address");
    }
    let keyboard = &seen["keyboard"];
    let reached = texts(&keyboard["reached"]).join("\n");
    for part in ["skip:", "pause:Pause", "BUTTON:db", "TH:miss", "TH:clients read", "TH:lirs"] {
        assert!(reached.contains(part), "{part} in {reached}");
    }
    assert_eq!(keyboard["chosen"], NAME);
    assert!(keyboard["focus"].as_str().unwrap().contains("alert"), "the focus stays: {keyboard}");
    assert_ne!(seen["dark"], "rgb(246, 247, 249)");
    assert_eq!(server.stop(), 0);
}

/// Forwards connections, and cuts each after a while.
fn proxy_that_cuts(to: String, after: Duration) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let Ok(server) = TcpStream::connect(&to) else { continue };
            let pairs = [(&client, &server), (&server, &client)];
            for (from, into) in pairs.map(|(a, b)| (a.try_clone().unwrap(), b.try_clone().unwrap()))
            {
                std::thread::spawn(move || std::io::copy(&mut &from, &mut &into));
            }
            std::thread::spawn(move || {
                std::thread::sleep(after);
                let _ = client.shutdown(std::net::Shutdown::Both);
                let _ = server.shutdown(std::net::Shutdown::Both);
            });
        }
    });
    format!("http://{address}/")
}

#[test]
fn the_page_comes_back_behind_a_proxy_that_cuts() {
    let place = Place::new();
    let server = place.serve("--volume a=mem:,size=1MiB");
    let address = server.http().strip_prefix("http://").unwrap().to_owned();
    let Some(seen) = seen(&["cuts", &proxy_that_cuts(address, Duration::from_secs(5))]) else {
        return;
    };
    for lost in texts(&seen["lost"]) {
        assert!(lost.starts_with("Lost: ") && lost.contains("trying again"), "{lost}");
    }
    assert_eq!(texts(&seen["live"]), ["Live, every 2 s", "Live, every 2 s"]);
    assert_eq!(server.stop(), 0);
}

#[test]
fn an_idle_server_and_one_of_many_volumes_look_right() {
    let place = Place::new();
    let volumes: String = (0..30)
        .map(|number| format!("--volume disk-{number:02}=mem:,size=1MiB,cache=256KiB "))
        .collect();
    let server = place.serve(&volumes);
    let Some(seen) = seen(&["check", &server.http()]) else { return };
    for width in ["wide", "narrow"] {
        let seen = &seen[width];
        assert_eq!(seen["complaints"], Value::Array(Vec::new()), "{width}");
        assert_eq!((&seen["overflow"], &seen["advice_hidden"]), (&0.into(), &true.into()));
        let said = texts(&seen["said"]);
        assert_eq!(said[1], "Nothing was read in the last minute, nor since the start.");
        assert_eq!(said[2], "Nothing waits.");
        assert_eq!(seen["volumes"].as_array().unwrap().len(), 31, "{width}");
    }
    assert_eq!(server.stop(), 0);
}
