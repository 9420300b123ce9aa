//! What is wrong around a server is said in words, with the file or the service that it is about:
//! certificates and keys, object stores.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use rcgen::{CertificateParams, KeyPair, date_time_ymd};

use super::limits::Keys;
use super::support::{Place, text};

const VOLUME: &str = "--volume v=mem:,size=1MiB --listen unix:x";

#[test]
fn keys_and_certificates_that_are_wrong_are_explained() {
    let place = Place::new();
    let keys = Keys::new(&place);
    ["server", "other"].iter().for_each(|name| keys.issue(name));
    let key = text(&place.read("server.key"));
    place.write("old.key", format!("a remark\n{}", key.replace("PRIVATE", "ENCRYPTED PRIVATE")));
    place.write("nothing", "nothing\n");
    for (certificate, key, said) in [
        (
            "server.pem",
            "other.key",
            "key other.key: does not belong to the first certificate of server.pem",
        ),
        (
            "server.pem",
            "old.key",
            "key old.key: line 2: is encrypted with a passphrase; `openssl pkey",
        ),
        ("server.pem", "server.pem", "key server.pem: holds no private key in PEM"),
        ("server.key", "server.key", "certificate server.key: holds no certificate in PEM"),
        ("nothing", "server.key", "certificate nothing: holds no certificate in PEM"),
        ("missing", "server.key", "certificate missing: No such file"),
        ("server.pem", "missing", "key missing: No such file"),
    ] {
        let arguments = format!("{VOLUME} --tls-certificate {certificate} --tls-key {key}");
        let found = place.refused(1, &arguments);
        assert!(found.contains(&format!("tls: {said}")), "{certificate}, {key}: {found}");
    }
    let roots = place.refused(1, &format!("{VOLUME} --tls-upstream-roots nothing"));
    assert!(roots.contains("roots nothing: holds no certificate"), "{roots}");
}

#[test]
fn certificates_that_are_not_valid_now_are_in_the_log() {
    let place = Place::new();
    for (name, from, to) in [("old", 2001, 2002), ("new", 3001, 3002)] {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.not_before = date_time_ymd(from, 1, 1);
        params.not_after = date_time_ymd(to, 1, 1);
        let key = KeyPair::generate().unwrap();
        place.write(&format!("{name}.pem"), params.self_signed(&key).unwrap().pem());
        place.write(&format!("{name}.key"), key.serialize_pem());
    }
    for (name, said) in [
        ("old", "tls: certificate old.pem: has expired: it was valid until Jan  1"),
        ("new", "tls: certificate new.pem: is not valid yet, only from Jan  1"),
    ] {
        let keys = format!("--tls-certificate {name}.pem --tls-key {name}.key");
        let checked = place.undercroft(&format!("serve --check {VOLUME} {keys}"));
        assert!(checked.status.success() && text(&checked.stderr).contains(said), "{checked:?}");
        let server = place.serve(&format!("--volume v=mem:,size=1MiB {keys}"));
        server.wait_for_log(said);
        assert_eq!(server.stop(), 0);
    }
}

/// A service that answers every request with this status and body.
fn service(status: &'static str, body: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    // Ends with the test program.
    std::thread::spawn(move || {
        listener.incoming().flatten().for_each(|one| answer(one, status, body))
    });
    address
}

fn answer(mut stream: TcpStream, status: &str, body: &str) {
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    let head: Vec<_> =
        lines.by_ref().map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
    // Who hangs up early has what it wanted.
    if !head.is_empty() {
        let length = body.len();
        let head = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close");
        let _ = stream.write_all(format!("{head}\r\n\r\n{body}").as_bytes());
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let _ = stream.read(&mut [0; 1]);
    }
}

const S3: &str = "--volume v=s3://bucket/v,size=1MiB --cache 1MiB";
const KEYS: [&str; 2] = ["AWS_ACCESS_KEY_ID=x", "AWS_SECRET_ACCESS_KEY=y"];

#[test]
fn object_stores_that_refuse_are_explained() {
    let place = Place::new();
    let error = |code: &str| -> &'static str {
        format!(
            "<?xml version=\"1.0\"?>\n<Error>\n<Code>{code}</Code>\n<Message>no</Message></Error>"
        )
        .leak()
    };
    let plain = "AWS_ALLOW_HTTP=true";
    for (allow, status, code, said) in [
        (
            plain,
            "404 Not Found",
            "NoSuchBucket",
            "there is no such bucket: make it, or check its name",
        ),
        (
            plain,
            "403 Forbidden",
            "InvalidAccessKeyId",
            "the service does not know the key: check AWS_ACCESS_KEY_ID",
        ),
        (plain, "403 Forbidden", "SignatureDoesNotMatch", "the secret does not belong to the key"),
        (plain, "403 Forbidden", "AccessDenied", "the key may not do that"),
        (
            "X=1",
            "200 OK",
            "",
            "the endpoint is plain http, without encryption: AWS_ALLOW_HTTP=true",
        ),
    ] {
        let mut command = place.undercroft_command(&format!("serve {S3} --listen unix:x"));
        let endpoint = format!("AWS_ENDPOINT=http://{}", service(status, error(code)));
        for variable in KEYS.iter().copied().chain([allow, &*endpoint]) {
            let (name, value) = variable.split_once('=').unwrap();
            command.env(name, value);
        }
        let output = command.output().unwrap();
        let found = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{code}: {found}");
        assert!(found.contains(&format!("v: s3://bucket/v: {said}")), "{code}: {found}");
        assert!(!found.contains('<') && found.trim_end().lines().count() == 1, "{found}");
    }
}

#[test]
fn an_object_store_that_fails_or_whose_credentials_are_missing_is_away() {
    let place = Place::new();
    let fails = format!("AWS_ENDPOINT=http://{}", service("503 Service Unavailable", ""));
    let outer = ["env", KEYS[0], KEYS[1], &*fails, "AWS_ALLOW_HTTP=true"];
    let server = place.serve_within(&outer, S3);
    assert!(server.announced.contains("v  not served yet: "), "{}", server.announced);
    assert_eq!(server.stop(), 0);
    let outer = ["env", "AWS_METADATA_ENDPOINT=http://127.0.0.1:1"];
    let server = place.serve_within(&outer, S3);
    let why = "v  not served yet: s3://bucket/v: no credentials: set AWS_ACCESS_KEY_ID and";
    assert!(server.announced.contains(why), "{}", server.announced);
    assert_eq!(server.stop(), 0);
    // Something else answers at the address of the metadata service.
    let metadata = format!("http://{}", service("403 Forbidden", ""));
    let mut command = place.undercroft_command(&format!("serve {S3} --listen unix:x"));
    command.env("AWS_METADATA_ENDPOINT", metadata);
    let output = command.output().unwrap();
    let found = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{found}");
    let why = "no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY";
    assert!(found.contains(&format!("v: s3://bucket/v: {why}")), "{found}");
    assert!(found.contains("of Amazon's machines gives none"), "{found}");
}
