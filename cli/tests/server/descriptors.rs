//! File descriptors: who may use how many, and what happens when there are few.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::support::{PATIENCE, Place, Server, read};

/// The limit of a process: now, and at most.
fn limits(server: &Server) -> (u64, u64) {
    let text = std::fs::read_to_string(format!("/proc/{}/limits", server.pid())).unwrap();
    let line = text.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let numbers: Vec<_> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    (numbers[0], numbers[1])
}

fn open_descriptors(server: &Server) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", server.pid())).unwrap().count()
}

#[test]
fn the_limit_is_raised_and_what_does_not_fit_is_said() {
    let place = Place::new();
    let soft = ["sh", "-c", "ulimit -Sn 300; exec \"$@\"", "sh"];
    let server = place.serve_within(&soft, "--volume v=mem:,size=1MiB");
    let (now, most) = limits(&server);
    assert_eq!(now, most);
    drop(server);
    let place = Place::new();
    let hard = ["sh", "-c", "ulimit -n 1000; exec \"$@\"", "sh"];
    let server = place.serve_within(&hard, "--volume v=mem:,size=1MiB");
    server.wait_for_log("limits.connections 4096: the system allows this process 1000 file desc");
    assert!(server.log().contains("enough for 250 connections"), "{}", server.log());
}

/// Clients of HTTP that say nothing, or not all, or do not read: none of them takes what NBD needs,
/// and none for long.
#[tokio::test(flavor = "multi_thread")]
async fn http_takes_few_descriptors_and_not_for_long() {
    let place = Place::new();
    let hard = ["sh", "-c", "ulimit -n 400; exec \"$@\"", "sh"];
    let server = place.serve_within(&hard, "--volume v=mem:,size=1MiB");
    let before = open_descriptors(&server);
    let address = server.http().strip_prefix("http://").unwrap().to_owned();
    let started = Instant::now();
    let slow: Vec<_> = (0..600)
        .filter_map(|number| {
            let address = address.parse().unwrap();
            let mut one = TcpStream::connect_timeout(&address, Duration::from_secs(5)).ok()?;
            if number % 3 > 0 {
                let _ = one.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nX-Slow: ");
            }
            Some(one)
        })
        .collect();
    assert!(slow.len() > 100, "{}", slow.len());
    for _ in 0..20 {
        let client = server.connect("v").await;
        read(&client, 0, 4096).await.unwrap();
        assert!(open_descriptors(&server) < before + 64 + 100);
    }
    // The first are cut by the server.
    let mut first = &slow[0];
    first.set_read_timeout(Some(PATIENCE)).unwrap();
    let ended = first.read(&mut [0; 16]);
    assert!(matches!(ended, Ok(0)) || ended.is_err_and(|e| e.raw_os_error() == Some(104)));
    assert!(started.elapsed() >= Duration::from_secs(9), "it had its time");
    drop(slow);
    assert!(server.page("/healthz").contains("ok"));
    assert_eq!(server.stop(), 0);
}
