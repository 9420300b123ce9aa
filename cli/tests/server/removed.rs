//! Rights that end while a connection is open: an administrator who is removed, client roots that
//! are replaced, a volume that goes. What was opened before does nothing any more.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use undercroft_nbd::{Client, ClientError, ClientOptions, Uri};

use super::limits::Keys;
use super::support::{PATIENCE, Place, Server, read, write};

const TLS: &str =
    "[tls]\ncertificate = 'server.pem'\nkey = 'server.key'\nclient-roots = 'roots.pem'\n";

/// Two volumes; `a` with these options.
fn volumes(options: &str) -> String {
    let one = |name: &str| {
        format!("[[volume]]\nname = '{name}'\nstore = 'mem:'\nsize = '4MiB'\ncache = '1MiB'\n")
    };
    format!("{}{options}\n{}", one("a"), one("b"))
}

/// Has the configuration read, and waits until it is in force.
fn reload(place: &Place, server: &Server, configuration: &str) {
    // Not that its certificates are, which comes first.
    let count = |log: &str| log.matches(": reloaded").count();
    let before = count(&server.log());
    place.write("undercroft.toml", configuration);
    server.signal(Signal::HUP);
    let deadline = Instant::now() + PATIENCE;
    while count(&server.log()) == before {
        assert!(Instant::now() < deadline, "{}", server.log());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Connects over TCP and with TLS: over the unix socket its own user is an administrator.
async fn over_tls(
    server: &Server,
    export: &str,
    options: &ClientOptions,
) -> Result<Client, ClientError> {
    let uri: Uri = format!("nbds://localhost:{}/{export}", server.port()).parse().unwrap();
    let client = Client::connect(&uri, options).await?;
    // A server that does not like the certificate says so after the handshake of TLS 1.3.
    client.flush().await?;
    Ok(client)
}

/// Asks for a change over a connection.
async fn set(client: &Client, options: &str) -> Result<(), ClientError> {
    client.write(0, vec![options.to_owned().into()], false).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_administrator_who_is_removed_changes_nothing_any_more() {
    let place = Place::new();
    let keys = Keys::new(&place);
    ["server", "admin", "other"].iter().for_each(|name| keys.issue(name));
    place.write("roots.pem", place.read("root.pem"));
    let with =
        |names: &str| format!("administrators = {names}\n{TLS}{}", volumes("clients = ['x']"));
    place.write("undercroft.toml", with("['admin', 'other']"));
    let server = place.serve("-v --listen 127.0.0.1:0");
    let admin = over_tls(&server, "@set/a", &keys.client(Some("admin"))).await.unwrap();
    let other = over_tls(&server, "@set/a", &keys.client(Some("other"))).await.unwrap();
    set(&admin, "cache=512KiB").await.unwrap();
    assert_eq!(server.count("a", "capacity_blocks"), 128);
    reload(&place, &server, &with("['other']"));
    // He would give himself the volume.
    assert!(set(&admin, "client=admin").await.is_err());
    assert!(read(&admin, 0, 4096).await.is_err());
    assert!(over_tls(&server, "a", &keys.client(Some("admin"))).await.is_err());
    set(&other, "client=other").await.unwrap();
    over_tls(&server, "a", &keys.client(Some("other"))).await.unwrap();
    assert!(over_tls(&server, "@set/a", &keys.client(Some("admin"))).await.is_err());
    assert_eq!(server.stop(), 0);
}

/// All that a client with a certificate may have open.
struct Open {
    volume: Client,
    control: Client,
    advice: Client,
    set: Client,
}

impl Open {
    async fn new(server: &Server, options: &ClientOptions) -> Open {
        let open = async |export| over_tls(server, export, options).await.unwrap();
        let (volume, control) = (open("a").await, open("@coop/a").await);
        Open { volume, control, advice: open("@advice/a").await, set: open("@set/b").await }
    }

    /// Which of the connections still do something.
    async fn work(&self) -> [bool; 4] {
        [
            write(&self.volume, 0, vec![1; 4096]).await.is_ok(),
            read(&self.control, 0, 4096).await.is_ok(),
            read(&self.advice, 0, 4096).await.is_ok(),
            set(&self.set, "connections=7").await.is_ok(),
        ]
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_of_roots_that_are_replaced_lose_what_they_have_open() {
    let (place, later) = (Place::new(), Place::new());
    let (old, new) = (Keys::new(&place), Keys::new(&later));
    for keys in [&old, &new] {
        ["server", "db"].iter().for_each(|name| keys.issue(name));
    }
    place.write("roots.pem", place.read("root.pem"));
    let all = format!("administrators = ['db']\n{TLS}{}", volumes("clients = ['db']"));
    place.write("undercroft.toml", &all);
    let server = place.serve("-v --listen 127.0.0.1:0");
    let before = Open::new(&server, &old.client(Some("db"))).await;
    assert_eq!(before.work().await, [true; 4]);
    // Both are trusted for a while, and nobody notices.
    place.write("roots.pem", [place.read("root.pem"), later.read("root.pem")].concat());
    reload(&place, &server, &all);
    assert_eq!(before.work().await, [true; 4]);
    let mut options = old.client(Some("db"));
    options.tls = mixed(&place, &later).tls;
    let after = Open::new(&server, &options).await;
    place.write("roots.pem", later.read("root.pem"));
    reload(&place, &server, &all);
    assert_eq!(before.work().await, [false; 4]);
    assert_eq!(after.work().await, [true; 4]);
    assert!(over_tls(&server, "a", &old.client(Some("db"))).await.is_err());
    assert_eq!(server.stop(), 0);
}

/// Trusts the server of the one place, and shows the certificate of the other.
fn mixed(place: &Place, later: &Place) -> ClientOptions {
    let identity = Some((later.path("db.pem"), later.path("db.key")));
    let files = undercroft_nbd::ClientTlsFiles { roots: place.path("root.pem"), identity };
    ClientOptions { tls: Some(files.load().unwrap()), ..ClientOptions::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_volume_has_ends_with_it_and_with_the_right_to_it() {
    let place = Place::new();
    place.write("undercroft.toml", volumes(""));
    let server = place.serve("-v --listen 127.0.0.1:0");
    let (advice, change) = (server.connect("@advice/a").await, server.connect("@set/a").await);
    let others = server.connect("@advice/b").await;
    read(&advice, 0, 4096).await.unwrap();
    reload(&place, &server, &volumes("clients = ['address:192.0.2.1']"));
    assert!(read(&advice, 0, 4096).await.is_err(), "who may open the volume has changed");
    reload(&place, &server, &volumes(""));
    let advice = server.connect("@advice/a").await;
    let only_b = volumes("").rsplit_once("[[volume]]").map(|(_, b)| format!("[[volume]]{b}"));
    reload(&place, &server, &only_b.unwrap());
    assert!(read(&advice, 0, 4096).await.is_err());
    let why = set(&change, "cache=512KiB").await.unwrap_err().to_string();
    assert!(why.contains("there is no volume 'a'"), "{why}");
    read(&others, 0, 4096).await.unwrap();
    assert_eq!(server.stop(), 0);
}
