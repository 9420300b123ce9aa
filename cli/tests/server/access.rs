//! Who gets in: rules by address, user and group, what the log says of those who do not, and the
//! pages over HTTP behind a token and on a unix socket.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use rustix::process::{Signal, getegid, geteuid};
use undercroft_nbd::wire::READ_ONLY;
use undercroft_nbd::{Client, ClientError, ClientOptions, Uri};

use super::support::{PATIENCE, Place, Server, read, text, write};

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

fn volume(rules: &str) -> String {
    format!("[[volume]]\nname = 'v'\nstore = 'mem:'\nsize = '1MiB'\n{rules}\n")
}

/// Has the configuration read, until the log has one more line with this part.
fn reload(place: &Place, server: &Server, configuration: &str, part: &str) {
    let before = server.log().len();
    place.write("undercroft.toml", configuration);
    server.signal(Signal::HUP);
    let deadline = Instant::now() + PATIENCE;
    // Its end, by which connections that lost a right are closed, has a line of its own.
    let is_over = |log: &str| log.contains(part) && log.contains("reloaded");
    while !is_over(&server.log()[before..]) {
        assert!(Instant::now() < deadline, "no '{part}' in {}", &server.log()[before..]);
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Connects to the volume over TCP.
async fn over_tcp(server: &Server) -> Result<Client, ClientError> {
    let address = server.announced.split_whitespace().find(|word| word.starts_with("nbd://"));
    let port = address.unwrap().trim_end_matches('/').rsplit_once(':').unwrap().1;
    let uri: Uri = format!("nbd://127.0.0.1:{port}/v").parse().unwrap();
    Client::connect(&uri, &ClientOptions::default()).await
}

fn refusal(result: Result<Client, ClientError>) -> String {
    match result {
        Err(ClientError::Refused(why)) => why,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it was let in"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn addresses_and_users_are_rules_that_change_at_once() {
    let place = Place::new();
    // Where there is IPv6, the client is seen at an IPv4 address in IPv6 notation.
    let any = if TcpListener::bind("[::]:0").is_ok() { "[::]:0" } else { "127.0.0.1:0" };
    let (user, group) = (geteuid().as_raw(), getegid().as_raw());
    place.write("undercroft.toml", volume("clients = ['address:127.0.0.0/8']"));
    let server = place.serve(&format!("-v --listen {any}"));
    let near = ClientOptions::default();
    let far = over_tcp(&server).await.unwrap();
    let why = refusal(server.try_connect("v", &near).await);
    let whom =
        format!("export 'v' is not open to user {user}, group {group} without a certificate");
    assert!(why.contains(&whom), "{why}");
    assert!(refusal(server.try_connect("@coop/v", &near).await).contains(&whom));

    // One that matches is enough; who may write is asked apart.
    let rules = format!(
        "clients = ['address:127.0.0.1', 'user:{user}']\nwriters = ['group:{group}', 'address:::1']"
    );
    reload(&place, &server, &volume(&rules), "who may use it has changed");
    let here = server.connect("v").await;
    write(&here, 0, vec![7; 4096]).await.unwrap();
    let control = server.connect("@coop/v").await;
    assert!(!control.remote().offers(READ_ONLY));
    assert!(read(&far, 0, 4096).await.is_err(), "it could write, and may not any more");
    let far = over_tcp(&server).await.unwrap();
    assert!(far.remote().offers(READ_ONLY));
    assert_eq!(read(&far, 0, 4096).await.unwrap(), vec![7; 4096]);

    let rules = format!("clients = ['user:{}', 'address:192.0.2.0/24']", user + 1);
    reload(&place, &server, &volume(&rules), "who may use it has changed");
    for client in [&here, &far] {
        assert!(read(client, 0, 4096).await.is_err());
    }
    let why = refusal(over_tcp(&server).await);
    assert!(why.contains("not open to address 127.0.0.1 without a certificate"), "{why}");
    assert!(server.try_connect("v", &near).await.is_err());
    assert!(server.try_connect("@coop/v", &near).await.is_err());

    // A rule that is none changes nothing.
    reload(&place, &server, &volume("clients = ['127.0.0.1']"), "write address:127.0.0.1");
    assert!(over_tcp(&server).await.is_err());
    reload(&place, &server, &volume(""), "who may use it has changed");
    assert!(over_tcp(&server).await.is_ok());
    assert_eq!(server.stop(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_attempts_are_in_the_log_which_a_flood_does_not_fill() {
    let place = Place::new();
    let user = geteuid().as_raw();
    let rule = format!("client=user:{}", user + 1);
    let server =
        place.serve(&format!("--volume v=mem:,size=1MiB,{rule} --volume w=mem:,size=1MiB"));
    let options = ClientOptions::default();
    let long = format!("no\n{}", "x".repeat(200));
    for name in ["v", &long] {
        let uri: Uri = server.uri(&name.replace('\n', "%0A")).parse().unwrap();
        refusal(Client::connect(&uri, &options).await);
    }
    server.wait_for_log("there is no export");
    server.wait_for_log("is not open to");
    let log = server.log();
    let lines: Vec<_> = log.lines().filter(|line| line.contains(" refused ")).collect();
    let pid = format!("(pid {})\" user={user} group=", std::process::id());
    assert!(lines.iter().all(|line| line.contains("WARN") && line.contains(&pid)), "{log}");
    assert!(log.contains("what=\"v\" why=\"export 'v' is not open to user"), "{log}");
    assert!(log.contains(&format!("what=\"no\\n{}\"", "x".repeat(97))), "{log}");
    // Who is let in is no line, and asks as often as it wants to.
    server.connect("w").await;
    for _ in 0..40 {
        assert!(server.try_connect("v", &options).await.is_err());
    }
    let refused = || {
        let page = server.page("/metrics");
        let name = "undercroft_refused_connections_total ";
        page.lines().find_map(|line| line.strip_prefix(name)).unwrap().parse::<f64>().unwrap()
    };
    let deadline = Instant::now() + PATIENCE;
    while refused() < 42.0 {
        assert!(Instant::now() < deadline, "{}", refused());
    }
    assert_eq!(server.log().lines().filter(|line| line.contains(" refused ")).count(), 20);
    assert_eq!(server.stop(), 0);
}

/// Status and text of a page, with what is shown.
fn page(server: &Server, path: &str, token: Option<&str>) -> (u16, String) {
    let agent = ureq::Agent::config_builder().http_status_as_error(false).build();
    let mut request = ureq::Agent::from(agent).get(format!("{}{path}", server.http()));
    if let Some(token) = token {
        request = request.header("Authorization", format!("Bearer {token}"));
    }
    let mut answer = request.call().unwrap();
    (answer.status().as_u16(), answer.body_mut().read_to_string().unwrap())
}

#[test]
fn pages_may_demand_a_token() {
    let place = Place::new();
    place.write("token", format!("{TOKEN}\n"));
    place.write("undercroft.toml", volume(""));
    let server = place.serve("-v --http-token-file token");
    assert!(server.announced.contains("/metrics  with the token\n"), "{}", server.announced);
    assert!(server.log().contains("everybody on this machine may read it"), "{}", server.log());
    for path in ["/", "/stats", "/metrics", "/healthz/v", "/nothing"] {
        let (status, help) = page(&server, path, None);
        assert!(status == 401 && help.contains("--token-file FILE"), "{path}: {status} {help}");
        assert_eq!(page(&server, path, Some("0123456789abcdef")).0, 401);
    }
    assert_eq!(page(&server, "/healthz", None), (200, "ok\n".to_owned()));
    assert_eq!(page(&server, "/nothing", Some(TOKEN)).0, 404);
    assert!(page(&server, "/metrics", Some(TOKEN)).1.contains("undercroft_reads_total"));
    let log = server.log();
    assert!(log.contains(" refused client=\"127.0.0.1:"), "{log}");
    assert!(log.contains("what=\"http /stats\" why=\"no token\""), "{log}");
    assert!(log.contains("what=\"http /stats\" why=\"not the token\""), "{log}");

    let stats = |options: &str| place.undercroft(&format!("stats {} {options}", server.http()));
    let shown = stats("--token-file token");
    assert!(shown.status.success() && text(&shown.stdout).contains("\nv "), "{shown:?}");
    let without = text(&stats("").stderr);
    assert!(without.contains("the server wants a token: give --token-file FILE"), "{without}");
    place.write("other", "fedcba9876543210");
    let wrong = text(&stats("--token-file other").stderr);
    assert!(wrong.contains("does not take the token of other"), "{wrong}");
    let nbd = text(&place.undercroft("stats nbd://h/v --token-file token").stderr);
    assert!(nbd.contains("--token-file is for http://HOST:PORT"), "{nbd}");

    // A reload reads it again; what is no token leaves the old one.
    place.write("token", "short");
    server.signal(Signal::HUP);
    server.wait_for_log("the token stays as it was");
    assert_eq!(page(&server, "/stats", Some(TOKEN)).0, 200);
    place.write("token", "fedcba9876543210");
    server.signal(Signal::HUP);
    let deadline = Instant::now() + PATIENCE;
    while page(&server, "/stats", Some("fedcba9876543210")).0 != 200 {
        assert!(Instant::now() < deadline);
    }
    assert_eq!(page(&server, "/stats", Some(TOKEN)).0, 401);
    assert_eq!(server.stop(), 0);
    let missing = place.refused(1, "--http 127.0.0.1:0 --http-token-file missing --listen unix:x");
    assert!(missing.contains("http-token-file missing: No such file"), "{missing}");
    let nowhere = place.refused(2, "--http-token-file other --listen unix:x");
    assert!(nowhere.contains("there is no HTTP listener"), "{nowhere}");
}

/// Status and text of a page that is asked for under a name.
fn page_of(server: &Server, host: &str, path: &str) -> (u16, String) {
    let agent = ureq::Agent::config_builder().http_status_as_error(false).build();
    let request = ureq::Agent::from(agent).get(format!("{}{path}", server.http()));
    let mut answer = request.header("Host", host).call().unwrap();
    (answer.status().as_u16(), answer.body_mut().read_to_string().unwrap())
}

/// What the page of a site reads whose owner points its name at this server.
#[test]
fn without_a_token_other_sites_names_are_not_answered() {
    let place = Place::new();
    let with = |more: &str| place.write("undercroft.toml", format!("{more}{}", volume("")));
    with("http-hosts = ['status.example']\n");
    let server = place.serve("-v --http-host by-flag.example");
    let paths = ["/", "/stats", "/advice", "/metrics", "/healthz/v", "/events", "/live/live.js"];
    for path in paths {
        let (status, help) = page_of(&server, "evil.example:80", path);
        assert!(status == 421 && help.contains("http-hosts = [\"NAME\"]"), "{path}: {help}");
        assert_eq!(page_of(&server, "127.0.0.1.evil.example", path).0, 421);
    }
    assert_eq!(page_of(&server, "evil.example", "/healthz"), (200, "ok\n".to_owned()));
    server.wait_for_log("the host 'evil.example:80' is not one of http-hosts");
    for host in ["127.0.0.1", "192.0.2.1:10880", "[::1]:1", "localhost:5", "By-Flag.example"] {
        assert_eq!(page_of(&server, host, "/stats").0, 200, "{host}");
    }
    // Flags come before the file.
    assert_eq!(page_of(&server, "status.example", "/stats").0, 421);
    assert_eq!(server.stop(), 0);

    let server = place.serve("-v");
    assert_eq!(page_of(&server, "status.example", "/stats").0, 200);
    reload(&place, &server, &format!("http-hosts = ['new.example']\n{}", volume("")), "reloaded");
    assert_eq!(page_of(&server, "status.example", "/stats").0, 421);
    assert_eq!(page_of(&server, "new.example", "/stats").0, 200);
    // A token protects by itself, until it is no longer demanded.
    place.write("token", TOKEN);
    let demanding = format!("http-token-file = 'token'\n{}", volume(""));
    reload(&place, &server, &demanding, "reloaded");
    let (status, help) = page_of(&server, "evil.example", "/stats");
    assert!(status == 401 && help.contains("--token-file FILE"), "{status} {help}");
    reload(&place, &server, &volume(""), "reloaded");
    assert_eq!(page_of(&server, "evil.example", "/stats").0, 421);
    assert_eq!(server.stop(), 0);
    let wrong = place.refused(2, "--http 127.0.0.1:0 --http-host http://x --listen unix:x");
    assert!(wrong.contains("http-hosts 'http://x': expected a name"), "{wrong}");
    let nowhere = place.refused(2, "--http-host x --listen unix:x");
    assert!(nowhere.contains("there is no HTTP listener"), "{nowhere}");
}

#[test]
fn pages_may_be_on_a_unix_socket() {
    let place = Place::new();
    place.write("token", TOKEN);
    place.write("undercroft.toml", volume("") + &volume("").replace("'v'", "'w'"));
    let server = place.start(&[], "--http unix:pages --http-token-file token");
    assert_eq!(server.http(), "unix:pages");
    let stats = |options: &str| place.undercroft(&format!("stats {options}"));
    let shown = stats("unix:pages --token-file token");
    let table = text(&shown.stdout);
    assert!(
        shown.status.success() && table.contains("\nv ") && table.contains("\nw "),
        "{shown:?}"
    );
    assert!(text(&stats("unix:pages").stderr).contains("the server wants a token"));
    assert!(server.log().contains(&format!("(pid {}", "")), "{}", server.log());
    // The other socket, and none.
    let nbd = text(&stats("unix:socket").stderr);
    assert!(nbd.contains("nbd+unix:///VOLUME?socket=PATH"), "{nbd}");
    assert!(text(&stats("unix:nothing").stderr).contains("unix:nothing: "));
    let second = place.refused(1, "--listen unix:other --http unix:pages");
    assert!(second.contains("http unix:pages: pages: another server listens here"), "{second}");
    assert_eq!(server.stop(), 0);
    assert!(!place.path("pages").exists());
    // What a server left that was killed is in nobody's way.
    place.start(&[], "--http unix:pages").kill();
    assert!(place.path("pages").exists());
    assert_eq!(place.start(&[], "--http unix:pages").stop(), 0);
    let folder = place.refused(1, "--listen unix:other --http unix:nowhere/pages");
    assert!(folder.contains("the folder does not exist"), "{folder}");
}
