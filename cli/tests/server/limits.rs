//! Who gets in, how often, and how fast: limits of a volume, and TLS with certificates that are
//! made here.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustix::process::Signal;
use undercroft_nbd::wire::*;
use undercroft_nbd::{Client, ClientError, ClientOptions, ClientTlsFiles, Failure, Uri};

use super::support::{PATIENCE, Place, Server, read, seeded, write};

#[tokio::test(flavor = "multi_thread")]
async fn connections_of_a_volume_are_bounded() {
    let place = Place::new();
    let server = place.serve("--volume v=mem:,size=1MiB,connections=2 --volume w=mem:,size=1MiB");
    let first = server.connect("v").await;
    let second = server.connect("v").await;
    let refused = server.try_connect("v", &ClientOptions::default()).await.unwrap_err();
    assert!(
        matches!(&refused, ClientError::Refused(why) if why.contains("all 2 connections that volume 'v' allows"))
    );
    let _other = server.connect("w").await;
    read(&first, 0, 4096).await.unwrap();
    first.close().await;
    // The server notices when it has read the good-bye.
    let deadline = Instant::now() + PATIENCE;
    let third = loop {
        match server.try_connect("v", &ClientOptions::default()).await {
            Ok(client) => break client,
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    for client in [&second, &third] {
        read(client, 0, 4096).await.unwrap();
    }
    // Asking what there is takes no place.
    let uri: Uri = server.uri("v").parse().unwrap();
    Client::describe(&uri, &ClientOptions::default()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_a_second_are_bounded() {
    const LIMIT: u64 = 100;
    let place = Place::new();
    let server = place.serve(&format!(
        "--volume v=mem:,size=1MiB,requests-per-second={LIMIT} --volume w=mem:,size=1MiB"
    ));
    let (v, w) = (server.connect("v").await, server.connect("w").await);
    let many = |client: Client| async move {
        let start = Instant::now();
        let answers: Vec<_> = (0..3 * LIMIT).map(|_| client.flush()).collect();
        for answer in answers {
            answer.await.unwrap();
        }
        start.elapsed().as_secs_f64()
    };
    // A second's worth at once, the others in two seconds.
    let took = many(v.clone()).await;
    assert!((1.8..8.0).contains(&took), "{took} s");
    assert!(many(w.clone()).await < took / 2.0, "the other volume has no limit");
    let clients = server.stats("v")["clients"].clone();
    assert_eq!(clients[0]["requests"], 3 * LIMIT);
    let delayed = clients[0]["delayed_requests"].as_u64().unwrap();
    assert!((LIMIT..=2 * LIMIT).contains(&delayed), "{delayed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn stats_tell_what_each_client_asked_for() {
    let place = Place::new();
    let server = place.serve("--volume v=mem:,size=1MiB");
    let (scans, idles) = (server.connect("v").await, server.connect("v").await);
    for block in 0..16 {
        read(&scans, block * 4096, 4096).await.unwrap();
    }
    write(&idles, 0, vec![1; 1000]).await.unwrap();
    idles.flush().await.unwrap();
    let clients = server.stats("v")["clients"].clone();
    let numbers = |client: usize| {
        ["requests", "bytes_read", "bytes_written", "delayed_requests"]
            .map(|name| clients[client][name].as_u64().unwrap())
    };
    assert_eq!(clients.as_array().unwrap().len(), 2);
    assert_eq!(numbers(0), [16, 65_536, 0, 0], "the busiest comes first");
    assert_eq!(numbers(1), [2, 0, 1000, 0]);
    let pid = format!("pid {}", std::process::id());
    assert!(clients[0]["client"].as_str().unwrap().contains(&pid), "{clients}");
    scans.close().await;
    let deadline = Instant::now() + PATIENCE;
    while server.stats("v")["clients"].as_array().unwrap().len() != 1 {
        assert!(Instant::now() < deadline, "a client that left is still there");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Keys in a place: a root, and what it vouches for.
pub(crate) struct Keys<'a> {
    place: &'a Place,
    root: Issuer<'static, KeyPair>,
}

impl Keys<'_> {
    pub(crate) fn new(place: &Place) -> Keys<'_> {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "the root");
        let key = KeyPair::generate().unwrap();
        place.write("root.pem", params.self_signed(&key).unwrap().pem());
        Keys { place, root: Issuer::new(params, key) }
    }

    /// Makes `NAME.pem` and `NAME.key`.
    pub(crate) fn issue(&self, name: &str) {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.root).unwrap();
        self.place.write(&format!("{name}.pem"), certificate.pem());
        self.place.write(&format!("{name}.key"), key.serialize_pem());
    }

    /// Options of a client that trusts the root and shows a certificate.
    pub(crate) fn client(&self, name: Option<&str>) -> ClientOptions {
        let path = |name: &str, kind: &str| self.place.path(&format!("{name}.{kind}"));
        let identity = name.map(|name| (path(name, "pem"), path(name, "key")));
        let files = ClientTlsFiles { roots: path("root", "pem"), identity };
        ClientOptions { tls: Some(files.load().unwrap()), ..ClientOptions::default() }
    }
}

/// Connects with TLS.
pub(crate) async fn encrypted(
    server: &Server,
    volume: &str,
    options: &ClientOptions,
) -> Result<Client, ClientError> {
    let uri: Uri = server.uri(volume).replacen("nbd+", "nbds+", 1).parse().unwrap();
    let client = Client::connect(&uri, options).await?;
    // A server that does not like the certificate says so after the handshake of TLS 1.3.
    client.flush().await?;
    assert!(client.remote().encrypted);
    Ok(client)
}

/// Beside many connections of one client that never stop asking, another client gets its share of
/// a volume's limit.
#[tokio::test(flavor = "multi_thread")]
async fn clients_share_the_limit_of_a_volume_evenly() {
    let place = Place::new();
    let keys = Keys::new(&place);
    ["server", "flood", "quiet"].iter().for_each(|name| keys.issue(name));
    let server = place.serve(
        "--volume v=mem:,size=16MiB,requests-per-second=400 \
         --volume b=mem:,size=16MiB,bytes-per-second=2MiB \
         --volume c=mem:,size=16MiB,client-requests-per-second=100,client-bytes-per-second=1GiB \
         --tls-certificate server.pem --tls-key server.key --tls-client-roots root.pem",
    );
    let run = async |volume: &str, of_flood: usize, of_quiet: usize, seconds: u64| {
        let end = Instant::now() + Duration::from_secs(seconds);
        let mut tasks = Vec::new();
        for (name, lanes) in [("flood", 16), ("quiet", 2)] {
            let bytes = if name == "flood" { of_flood } else { of_quiet };
            for _ in 0..lanes / 2 {
                let client = encrypted(&server, volume, &keys.client(Some(name))).await.unwrap();
                // Several requests in flight on each connection.
                tasks.extend((0..4).map(|_| {
                    let client = client.clone();
                    tokio::spawn(async move {
                        let mut done = 0;
                        while Instant::now() < end {
                            read(&client, 0, bytes).await.unwrap();
                            // What is in flight at the end is of another time.
                            if Instant::now() < end {
                                done += bytes;
                            }
                        }
                        (name, done)
                    })
                }));
            }
        }
        let mut sums = [0, 0];
        for task in tasks {
            let (name, done) = task.await.unwrap();
            sums[usize::from(name == "quiet")] += done;
        }
        sums.map(|sum| sum as f64)
    };
    // A second's worth at once, and then the shares: the first comers may have the former.
    let [flood, quiet] = run("v", 1, 1, 3).await;
    assert!((900.0..2100.0).contains(&(flood + quiet)), "{flood} and {quiet} requests");
    assert!(quiet > 0.25 * flood, "{flood} and {quiet} requests");
    // So few bytes that a busy processor does as many requests as the quiet one's share takes.
    let [flood, quiet] = run("b", 128 << 10, 8 << 10, 5).await;
    assert!(quiet > 0.25 * flood, "{flood} and {quiet} bytes");
    let [flood, quiet] = run("c", 1, 1, 2).await;
    for requests in [flood, quiet] {
        assert!((150.0..400.0).contains(&requests), "{flood} and {quiet} requests");
    }
    assert_eq!(server.stop(), 0);
}

/// What waits for a client's limit holds no memory that others need.
#[tokio::test(flavor = "multi_thread")]
async fn requests_beyond_a_limit_stay_with_their_client() {
    const MIB: usize = 1 << 20;
    let place = Place::new();
    let keys = Keys::new(&place);
    ["server", "flood", "quiet"].iter().for_each(|name| keys.issue(name));
    let server = place.serve(
        "--volume v=mem:,size=16MiB,client-bytes-per-second=1MiB \
         --tls-certificate server.pem --tls-key server.key --tls-client-roots root.pem",
    );
    let quiet = encrypted(&server, "v", &keys.client(Some("quiet"))).await.unwrap();
    let mut floods = Vec::new();
    for _ in 0..3 {
        let client = encrypted(&server, "v", &keys.client(Some("flood"))).await.unwrap();
        floods.extend((0..30).map(|_| {
            let client = client.clone();
            tokio::spawn(async move { drop(read(&client, 0, MIB).await) })
        }));
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    let began = Instant::now();
    for _ in 0..20 {
        read(&quiet, 0, 4096).await.unwrap();
    }
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    assert!(floods.iter().any(|flood| !flood.is_finished()), "nothing waited");
    floods.iter().for_each(tokio::task::JoinHandle::abort);
}

/// Sends an option on a connection that has greeted: the kind of the answer.
fn ask(stream: &mut UnixStream, option: u32, data: &[u8]) -> u32 {
    let mut message = OPTION_MAGIC.to_be_bytes().to_vec();
    message.extend_from_slice(&option.to_be_bytes());
    message.extend_from_slice(&(data.len() as u32).to_be_bytes());
    message.extend_from_slice(data);
    stream.write_all(&message).unwrap();
    let mut head = [0; 20];
    stream.read_exact(&mut head).unwrap();
    let word = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().unwrap());
    assert_eq!(head[..8], OPTION_REPLY_MAGIC.to_be_bytes());
    assert_eq!(word(8), option);
    let mut text = vec![0; word(16) as usize];
    stream.read_exact(&mut text).unwrap();
    word(12)
}

/// A connection that has greeted.
fn greeted(place: &Place) -> UnixStream {
    let mut stream = UnixStream::connect(place.path("socket")).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.read_exact(&mut [0; 18]).unwrap();
    stream.write_all(&3_u32.to_be_bytes()).unwrap();
    stream
}

#[tokio::test(flavor = "multi_thread")]
async fn required_tls_lets_nothing_through_before_it() {
    let place = Place::new();
    let keys = Keys::new(&place);
    keys.issue("server");
    let server = place.serve(
        "--volume v=mem:,size=1MiB --tls-certificate server.pem --tls-key server.key \
         --tls-required",
    );
    let mut stream = greeted(&place);
    // GO and INFO: the length of the name, the name, no questions.
    let go = [0, 0, 0, 1, b'v', 0, 0];
    for (option, data) in [
        (OPT_LIST, &[][..]),
        (OPT_INFO, &go),
        (OPT_GO, &go),
        (OPT_STRUCTURED_REPLY, &[]),
        (OPT_SET_META_CONTEXT, &[0; 8]),
        (4711, &[1; 100]),
    ] {
        assert_eq!(ask(&mut stream, option, data), REP_ERR_TLS_REQD, "option {option}");
    }
    assert_eq!(ask(&mut stream, OPT_STARTTLS, &[]), REP_ACK);
    // EXPORT_NAME has no answer: the server hangs up.
    let mut stream = greeted(&place);
    let mut message = OPTION_MAGIC.to_be_bytes().to_vec();
    message.extend_from_slice(&[0, 0, 0, 1, 0, 0, 0, 1, b'v']);
    stream.write_all(&message).unwrap();
    assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0);

    let client = encrypted(&server, "v", &keys.client(None)).await.unwrap();
    write(&client, 0, vec![1; 100_000]).await.unwrap();
    assert_eq!(read(&client, 0, 100_000).await.unwrap(), vec![1; 100_000]);
    let plain = server.try_connect("v", &ClientOptions::default()).await;
    assert!(matches!(plain, Err(ClientError::Refused(_))), "{plain:?}");
    // A certificate of somebody else's root is for the client to refuse.
    let stranger = Place::new();
    let strange = Keys::new(&stranger).client(None);
    assert!(encrypted(&server, "v", &strange).await.is_err());
    assert_eq!(server.stop(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn volumes_for_tls_and_for_some() {
    let place = Place::new();
    let keys = Keys::new(&place);
    ["server", "db", "backup", "stranger"].iter().for_each(|name| keys.issue(name));
    // To mix them must be said.
    place.write("undercroft.toml", "[tls]\nmode = 'offered'\n");
    let server = place.serve(
        "--volume open=mem:,size=1MiB --volume secret=mem:,size=1MiB,tls-required \
         --volume own=mem:,size=1MiB,client=db,client=backup,writer=db \
         --tls-certificate server.pem --tls-key server.key --tls-client-roots root.pem",
    );
    assert!(server.announced.contains("without it  open read and write\n"), "{}", server.announced);
    let open = server.connect("open").await;
    write(&open, 0, vec![1; 10]).await.unwrap();
    for volume in ["secret", "own"] {
        let plain = server.try_connect(volume, &ClientOptions::default()).await;
        assert!(matches!(plain, Err(ClientError::Refused(_))), "{volume}: {plain:?}");
    }
    let uri: Uri = server.uri("").parse().unwrap();
    let listed = |options: ClientOptions, uri: Uri| async move {
        let list = Client::list(&uri, &options).await.unwrap();
        list.into_iter().map(|(name, _)| name).collect::<Vec<_>>()
    };
    assert_eq!(listed(ClientOptions::default(), uri.clone()).await, ["open"]);
    let uri = Uri { tls: true, ..uri };
    assert_eq!(listed(keys.client(Some("stranger")), uri.clone()).await, ["open", "secret"]);
    assert_eq!(listed(keys.client(Some("db")), uri).await, ["open", "own", "secret"]);

    let [db, backup, stranger] = ["db", "backup", "stranger"].map(|name| keys.client(Some(name)));
    encrypted(&server, "secret", &stranger).await.unwrap();
    let refused = encrypted(&server, "own", &stranger).await;
    assert!(matches!(&refused, Err(ClientError::Refused(why)) if why.contains("certificate")));
    // With client roots, TLS without a certificate is none.
    assert!(encrypted(&server, "secret", &keys.client(None)).await.is_err());

    let db = encrypted(&server, "own", &db).await.unwrap();
    write(&db, 0, vec![2; 5000]).await.unwrap();
    let backup = encrypted(&server, "own", &backup).await.unwrap();
    assert!(backup.remote().offers(READ_ONLY) && !db.remote().offers(READ_ONLY));
    assert_eq!(read(&backup, 0, 5000).await.unwrap(), vec![2; 5000]);
    let denied = write(&backup, 0, vec![3; 10]).await;
    assert!(
        matches!(denied, Err(ClientError::Server { failure: Failure::NotPermitted, .. })),
        "{denied:?}"
    );
    assert_eq!(read(&db, 0, 10).await.unwrap(), vec![2; 10]);
    let names = server.stats("own")["clients"].clone();
    let names: Vec<_> =
        names.as_array().unwrap().iter().map(|client| client["client"].as_str().unwrap()).collect();
    assert!(names.contains(&"db") && names.contains(&"backup"), "{names:?}");
    assert_eq!(server.stop(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn renewed_certificates_are_shown_after_sighup() {
    let (place, later) = (Place::new(), Place::new());
    let keys = Keys::new(&place);
    keys.issue("server");
    let serve = "--volume v=mem:,size=1MiB --tls-certificate server.pem --tls-key server.key -v";
    let server = place.serve(serve);
    let before = encrypted(&server, "v", &keys.client(None)).await.unwrap();
    // Half of a renewal is none: the pair does not match, and all stays as it was.
    let renewed = Keys::new(&later);
    renewed.issue("server");
    place.write("server.pem", later.read("server.pem"));
    server.signal(Signal::HUP);
    server.wait_for_log("certificates stay as they were");
    encrypted(&server, "v", &keys.client(None)).await.unwrap();
    place.write("server.key", later.read("server.key"));
    server.signal(Signal::HUP);
    server.wait_for_log("certificates reloaded");
    encrypted(&server, "v", &renewed.client(None)).await.unwrap();
    assert!(encrypted(&server, "v", &keys.client(None)).await.is_err());
    read(&before, 0, 4096).await.unwrap();
    assert_eq!(server.stop(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_server_says_so() {
    let place = Place::new();
    place.write(
        "undercroft.toml",
        "[limits]\nconnections = 2\n[[volume]]\nname = 'v'\nstore = 'mem:'\nsize = '1MiB'\n",
    );
    let server = place.serve("");
    let (first, _second) = (server.connect("v").await, server.connect("v").await);
    let full = "all 2 connections that this server allows are in use";
    let refused = server.try_connect("v", &ClientOptions::default()).await.unwrap_err();
    assert!(matches!(&refused, ClientError::Refused(why) if why.contains(full)), "{refused}");
    for command in ["bench nbd", "stats"] {
        let output = place.undercroft(&format!("{command} {}", server.uri("v")));
        let said = super::support::text(&output.stderr);
        assert!(output.status.code() == Some(1) && said.contains(full), "{command}: {said}");
    }
    // A place that becomes free is one, and so many can be turned away as may come.
    first.close().await;
    let deadline = Instant::now() + PATIENCE;
    while server.try_connect("v", &ClientOptions::default()).await.is_err() {
        assert!(Instant::now() < deadline);
    }
    assert_eq!(server.stop(), 0);
}

/// As much as other servers take at once: more than a connection may hold beside others, so it is
/// served alone.
#[tokio::test(flavor = "multi_thread")]
async fn requests_of_64_mib_are_served() {
    const LARGEST: usize = 64 << 20;
    let place = Place::new();
    let server =
        place.serve("--volume v=mem:,size=256MiB --volume plain=mem:,size=256MiB,cache=off");
    for volume in ["v", "plain"] {
        let client = server.connect(volume).await;
        assert_eq!(client.remote().info.max_block as usize, LARGEST);
        let data = seeded("64 MiB").bytes(LARGEST);
        let offset = 4096;
        let answers = [write(&client, offset, data.clone()), write(&client, offset, data.clone())];
        for answer in answers {
            answer.await.unwrap();
        }
        assert!(read(&client, offset, LARGEST).await.unwrap() == data, "{volume}");
    }
    assert_eq!(server.stop(), 0);
}
