//! Three databases on three volumes of one server, each its own client with a limit on its memory.
//! The server hangs, is killed, and comes back: what is behind a volume waits for it in `nbdkit`'s
//! filter that tries again, as a kernel's driver would, and the libraries find it again. Then the
//! databases are killed too. What they had acknowledged is there when they come back, and they find
//! their data sound. Some of it they read from a level on flash that was warm after the kill.
//!
//! `UNDERCROFT_ROUNDS` kills the server more often than once.

use std::path::Path;
use std::process::Child;
use std::thread::{Scope, ScopedJoinHandle, sleep};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::mariadb::MariaDb;
use super::postgres::{Postgres, Postgres18};
use super::{
    Database, Home, PATIENCE, Place, Running, Value, available, fs, skipped, tools, words,
};
use super::{Permissions, PermissionsExt};
use crate::support::{Server, text};

/// What volumes are like.
const VOLUME: &str = "size=2GiB,cache=32MiB,policy=mq,placement=eviction,on-hit=move,staging=auto";

/// Below all of them, with a part for each.
const FLASH: &str = "--flash flash,size=192MiB,budget=off,restart=warm";

/// How long TPC-C runs at most: it is ended when the server is back and has heard enough.
const TIME: &str = "10m";

/// The volumes, one for each database.
const VOLUMES: [&str; 3] = ["my", "pg", "new"];

#[test]
fn databases_on_one_server_go_on_when_it_comes_back_and_lose_nothing() {
    let more = ["nbdkit", "prlimit"];
    let programs =
        [available::<MariaDb>(&more), available::<Postgres>(&more), available::<Postgres18>(&more)];
    let [Some(tpcc), Some(_), Some(_)] = programs else { return };
    if !tools().join("postgresql-18").is_dir() {
        return skipped("databases together", "PostgreSQL 18 is not installed by tools/setup.sh");
    }
    let place = Place::new();
    fs::set_permissions(place.path("."), Permissions::from_mode(0o755)).unwrap();
    let serve = || {
        let volume = |name: &str| format!("--volume {name}=file:{name}.img,{VOLUME}");
        let server = place.serve(&format!("{FLASH} {}", VOLUMES.map(volume).join(" ")));
        fs::set_permissions(place.path("socket"), Permissions::from_mode(0o777)).unwrap();
        server
    };
    let server = serve();
    let uris = VOLUMES.map(|volume| server.uri(volume));
    let homes = VOLUMES.map(|_| Home::new(tpcc.clone()));
    let relays = [0, 1, 2].map(|at| Relay::new(&homes[at].place, &uris[at]));
    let mut disks = Vec::new();
    for (home, relay) in homes.iter().zip(&relays) {
        match home.disk(&relay.uri) {
            Ok(disk) => disks.push(disk),
            Err(why) => return skipped("databases together", &why),
        }
    }
    let [at_my, at_pg, at_new] = &homes;
    std::thread::scope(|scope| {
        scope.spawn(|| at_my.fill::<MariaDb>());
        scope.spawn(|| at_pg.fill::<Postgres>());
        scope.spawn(|| at_new.fill::<Postgres18>());
    });
    forget_what_is_cached(&place);

    let server = std::thread::scope(|scope| {
        let my = Part::<MariaDb>::start(scope, at_my, &uris[0], 0);
        let pg = Part::<Postgres>::start(scope, at_pg, &uris[1], 0);
        let new = Part::<Postgres18>::start(scope, at_new, &uris[2], 0);
        // A test that fails does not wait for what is behind the volumes.
        let _cut = Cut(&relays);
        wait_for(&server, "known_evictions", 1000);
        server.signal(Signal::STOP);
        sleep(Duration::from_secs(2));
        server.signal(Signal::CONT);
        sleep(Duration::from_secs(2));
        let rounds = std::env::var("UNDERCROFT_ROUNDS").map_or(1, |text| text.parse().unwrap());
        let mut server = server;
        for _ in 0..rounds {
            server.kill();
            sleep(Duration::from_secs(1));
            server = serve();
            wait_for_flash(&server);
            wait_for(&server, "known_evictions", 1000);
        }
        wait_for(&server, "demotions_accepted", 1);
        let marks = (my.end(&server, "my"), pg.end(&server, "pg"), new.end(&server, "new"));
        forget_what_is_cached(&place);
        scope.spawn(move || sound::<MariaDb>(at_my, 0, marks.0));
        scope.spawn(move || sound::<Postgres>(at_pg, 0, marks.1));
        scope.spawn(move || sound::<Postgres18>(at_new, 0, marks.2));
        server
    });
    let hits = VOLUMES.map(|volume| server.stats(volume)["flash"]["hits"].as_u64().unwrap());
    assert!(hits.iter().sum::<u64>() > 0, "nothing was read from flash");
    for (home, disk) in homes.iter().zip(disks) {
        home.sound(disk);
    }
    drop(relays);
    assert_eq!(server.stop(), 0);
}

/// What is in the page cache would not be read from the volumes.
pub(super) fn forget_what_is_cached(place: &Place) {
    place.run("sync", &[]);
    let _ = fs::write("/proc/sys/vm/drop_caches", "3");
}

/// Waits until the server has counted so many on each volume.
fn wait_for(server: &Server, what: &str, least: u64) {
    let deadline = Instant::now() + PATIENCE;
    let count = |volume| {
        let stats = server.stats(volume);
        stats["cooperation"][what].as_u64().unwrap_or_else(|| panic!("{stats}"))
    };
    while VOLUMES.iter().any(|volume| count(volume) < least) {
        let stats = VOLUMES.map(|volume| server.stats(volume));
        assert!(Instant::now() < deadline, "{what}: {stats:?}");
        sleep(Duration::from_millis(100));
    }
}

/// Waits until each database has its level again, with more blocks than were written since.
fn wait_for_flash(server: &Server) {
    let deadline = Instant::now() + PATIENCE;
    let flash = |volume| server.stats(volume)["flash"].clone();
    let is_warm = |volume| {
        let count = |name: &str| flash(volume)[name].as_u64();
        count("up").is_some_and(|up| up > 0) && count("durable") > count("written")
    };
    while !VOLUMES.iter().all(|volume| is_warm(volume)) {
        assert!(Instant::now() < deadline, "{:?}", VOLUMES.map(flash));
        sleep(Duration::from_millis(20));
    }
}

/// A database under load, while marks are written into it.
pub(super) struct Part<'a, D: Database> {
    home: &'a Home,
    database: Running<'a, D>,
    load: Child,
    /// The number of marks that were acknowledged.
    marks: ScopedJoinHandle<'a, u64>,
}

impl<'a, D: Database + 'a> Part<'a, D> {
    /// The marks are numbered from the one after `first`.
    pub(super) fn start<'env>(
        scope: &'a Scope<'a, 'env>,
        home: &'a Home,
        uri: &str,
        first: u64,
    ) -> Self {
        let limited = ["prlimit", "--as=2147483648", "--"];
        let database = home.attached::<D>(uri, &limited);
        home.execute::<D>(D::DURABLE);
        home.execute::<D>("create schema if not exists marks");
        home.execute::<D>("create table if not exists marks.marks (id int primary key)");
        let marks = scope.spawn(move || write_marks::<D>(home, first));
        let run = home.tpcc::<D>(&["--threads", "2", "--time", TIME, "run"]);
        let load = home.command(&run).spawn().unwrap();
        Part { home, database, load, marks }
    }

    /// Kills load and database. Returns the number of marks that must be there.
    pub(super) fn kill(mut self) -> u64 {
        self.load.kill().unwrap();
        self.load.wait().unwrap();
        killed(&mut self.database);
        self.marks.join().unwrap()
    }

    /// Ends the load, looks at all that was counted, and kills the database. Returns the number of
    /// marks that must be there.
    fn end(self, server: &Server, volume: &str) -> u64 {
        let Self { home, mut database, load, marks } = self;
        kill_process(Pid::from_child(&load), Signal::INT).unwrap();
        let output = load.wait_with_output().unwrap();
        let said = text(&output.stdout) + &text(&output.stderr);
        let orders = said.lines().rev().find_map(|line| line.split("tpmC: ").nth(1));
        let orders = orders.and_then(|rest| rest.split(',').next()?.trim().parse::<f64>().ok());
        assert!(orders.is_some_and(|orders| orders > 0.0), "{volume}: {said}");
        assert!(!said.contains("run failed"), "{volume}: {said}");
        let (checked, stats) = (home.checked(database.process.id()), server.stats(volume));
        let shown = format!("{volume}: {checked} {stats}");
        let number = |name: &str| checked[name].as_u64().unwrap_or_else(|| panic!("{shown}"));
        assert!(number("connections") >= 2 && number("missed") < 100, "{shown}");
        // Each is a client of its own, of its own volume.
        let clients = stats["client_caches"].as_array().unwrap_or_else(|| panic!("{shown}"));
        let evictions = |client: &Value| client["evictions"].as_u64();
        assert_eq!(clients.len(), 1, "{shown}");
        assert!(evictions(&clients[0]).is_some_and(|evictions| evictions > 1000), "{shown}");
        killed(&mut database);
        let acknowledged = marks.join().unwrap();
        assert!(acknowledged > 20, "{volume}: {acknowledged} marks");
        acknowledged
    }
}

/// Kills a database.
fn killed<D: Database>(database: &mut Running<'_, D>) {
    database.process.kill().unwrap();
    database.process.wait().unwrap();
    // PostgreSQL's other processes may wait for ever for a lock of one that has ended.
    let deadline = Instant::now() + PATIENCE;
    while kill_all_in(&database.home.place.path("files/data")) {
        assert!(Instant::now() < deadline, "{}: processes are left", D::NAME);
        sleep(Duration::from_millis(20));
    }
}

/// Commits one row after the other until the database has gone: how many it acknowledged.
fn write_marks<D: Database>(home: &Home, first: u64) -> u64 {
    let commits = |mark: &u64| {
        let insert = format!("insert into marks.marks values ({})", first + mark);
        let insert = [D::client(home), words(&[D::EXECUTE, &insert])].concat();
        home.command(&insert).output().is_ok_and(|said| said.status.success())
    };
    (1..).take_while(commits).last().unwrap_or(0)
}

/// Kills the processes that have this as their folder; returns whether there were any.
fn kill_all_in(folder: &Path) -> bool {
    let mut any = false;
    for process in fs::read_dir("/proc").unwrap().flatten() {
        let is_there = fs::read_link(process.path().join("cwd")).is_ok_and(|its| its == folder);
        let pid = process.file_name().to_str().and_then(|pid| pid.parse().ok());
        if let Some(pid) = pid.and_then(Pid::from_raw).filter(|_| is_there) {
            // It may have ended by now.
            let _ = kill_process(pid, Signal::KILL);
            any = true;
        }
    }
    any
}

/// Starts a database that was killed. What it had acknowledged is there, and all of it is sound.
pub(super) fn sound<D: Database>(home: &Home, first: u64, marks: u64) {
    let database = Running::<D>::start(home, D::command(home, false));
    let (from, to) = (first + 1, first + marks);
    let which = format!("where id between {from} and {to}");
    let ask = format!("select concat('marks=', count(*)) from marks.marks {which}");
    let found = home.run(&[D::client(home), words(&[D::EXECUTE, &ask])].concat());
    assert!(found.contains(&format!("marks={marks}\n")), "{}: {marks}, {found}", D::NAME);
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

/// Ends the relays when a test fails: whoever waits for a volume gets an error then.
struct Cut<'a>(&'a [Relay]);

impl Drop for Cut<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for relay in self.0 {
                let _ = kill_process(Pid::from_child(&relay.process), Signal::KILL);
            }
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
