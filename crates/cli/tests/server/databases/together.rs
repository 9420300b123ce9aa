//! Two databases on two volumes of one server, each its own client, both with a limit on their
//! memory. The server hangs, is killed, and comes back: what is behind a volume waits for it in
//! `nbdkit`'s filter that tries again, as a kernel's driver would, and the libraries find it again.

use std::process::Child;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::mariadb::MariaDb;
use super::postgres::Postgres;
use super::{Database, Home, PATIENCE, Place, Running, Value, available, fs, skipped, words};
use super::{Permissions, PermissionsExt};
use crate::support::{Server, text};

/// What volumes are like.
const VOLUME: &str = "size=2GiB,cache=32MiB,policy=mq,placement=eviction,on-hit=move,staging=auto";

/// How long TPC-C runs: a while before the server hangs, and a while after it is back.
const SECONDS: &str = "24";

#[test]
fn two_databases_on_one_server_go_on_when_it_comes_back() {
    let limit = ["nbdkit", "prlimit"];
    let programs = (available::<MariaDb>(&limit), available::<Postgres>(&limit));
    let (Some(tpcc), Some(_)) = programs else { return };
    let place = Place::new();
    fs::set_permissions(place.path("."), Permissions::from_mode(0o755)).unwrap();
    let serve = || {
        let volumes = format!("--volume my=file:my.img,{VOLUME} --volume pg=file:pg.img,{VOLUME}");
        let server = place.serve(&volumes);
        fs::set_permissions(place.path("socket"), Permissions::from_mode(0o777)).unwrap();
        server
    };
    let server = serve();
    let homes = [Home::new(tpcc.clone()), Home::new(tpcc)];
    let uris = ["my", "pg"].map(|volume| server.uri(volume));
    let relays = [0, 1].map(|at| Relay::new(&homes[at].place, &uris[at]));
    let disks = (homes[0].disk(&relays[0].uri), homes[1].disk(&relays[1].uri));
    let disks = match disks {
        (Ok(my), Ok(pg)) => [my, pg],
        (Err(why), _) | (_, Err(why)) => return skipped("two databases", &why),
    };
    std::thread::scope(|scope| {
        scope.spawn(|| homes[0].fill::<MariaDb>());
        scope.spawn(|| homes[1].fill::<Postgres>());
    });
    place.run("sync", &[]);
    let _ = fs::write("/proc/sys/vm/drop_caches", "3");

    let limited = ["prlimit", "--as=2147483648", "--"];
    let my = homes[0].attached::<MariaDb>(&uris[0], &limited);
    let pg = homes[1].attached::<Postgres>(&uris[1], &limited);
    let loads = [load::<MariaDb>(&homes[0]), load::<Postgres>(&homes[1])];
    let told = |server: &Server, volume| {
        let stats = server.stats(volume);
        stats["cooperation"]["known_evictions"].as_u64().unwrap_or_else(|| panic!("{stats}"))
    };
    let wait_for_evictions = |server: &Server| {
        let deadline = Instant::now() + PATIENCE;
        while ["my", "pg"].iter().any(|volume| told(server, volume) < 1000) {
            let stats = ["my", "pg"].map(|volume| server.stats(volume));
            assert!(Instant::now() < deadline, "{stats:?}");
            sleep(Duration::from_millis(100));
        }
    };
    wait_for_evictions(&server);
    server.signal(Signal::STOP);
    sleep(Duration::from_secs(2));
    server.signal(Signal::CONT);
    sleep(Duration::from_secs(2));
    server.kill();
    sleep(Duration::from_secs(1));
    let server = serve();
    wait_for_evictions(&server);
    for (load, name) in loads.into_iter().zip(["mariadb", "postgres"]) {
        let output = load.wait_with_output().unwrap();
        let said = text(&output.stdout) + &text(&output.stderr);
        let orders = said.lines().rev().find_map(|line| line.split("tpmC: ").nth(1));
        let orders = orders.and_then(|rest| rest.split(',').next()?.trim().parse::<f64>().ok());
        assert!(orders.is_some_and(|orders| orders > 0.0), "{name}: {said}");
        assert!(!said.contains("run failed"), "{name}: {said}");
    }
    for (volume, home, pid) in
        [("my", &homes[0], my.process.id()), ("pg", &homes[1], pg.process.id())]
    {
        let (checked, stats) = (home.checked(pid), server.stats(volume));
        let shown = format!("{volume}: {checked} {stats}");
        let number = |name: &str| checked[name].as_u64().unwrap_or_else(|| panic!("{shown}"));
        assert!(number("connections") >= 2 && number("missed") < 100, "{shown}");
        // Each is a client of its own, of its own volume.
        let clients = stats["client_caches"].as_array().unwrap_or_else(|| panic!("{shown}"));
        let evictions = |client: &Value| client["evictions"].as_u64();
        assert_eq!(clients.len(), 1, "{shown}");
        assert!(evictions(&clients[0]).is_some_and(|evictions| evictions > 1000), "{shown}");
    }
    sound(&homes[0], my);
    sound(&homes[1], pg);
    for (home, disk) in homes.iter().zip(disks) {
        home.sound(disk);
    }
    drop(relays);
    assert_eq!(server.stop(), 0);
}

fn load<D: Database>(home: &Home) -> Child {
    let run = home.tpcc::<D>(&["--threads", "2", "--time", &format!("{SECONDS}s"), "run"]);
    home.command(&run).spawn().unwrap()
}

fn sound<D: Database>(home: &Home, database: Running<'_, D>) {
    home.run(&D::check(home));
    database.stop();
}

/// What stands between an export and those who cannot wait for a server: it connects again, and
/// asks again.
struct Relay {
    process: Child,
    uri: String,
}

impl Relay {
    fn new(place: &Place, uri: &str) -> Relay {
        let socket = place.path("relay");
        let socket = socket.to_str().unwrap();
        let again = ["retries=60", "retry-delay=1", "retry-exponential=no"];
        let upstream = format!("uri={uri}");
        let arguments = ["-f", "-U", socket, "--filter=retry", "nbd", &upstream];
        let arguments = words(&[&arguments[..], &again].concat());
        let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
        let process = place.command("nbdkit", &arguments).spawn().unwrap();
        let deadline = Instant::now() + PATIENCE;
        while !place.path("relay").exists() {
            assert!(Instant::now() < deadline, "nbdkit does not start");
            sleep(Duration::from_millis(10));
        }
        Relay { process, uri: format!("nbd+unix:///?socket={socket}") }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
