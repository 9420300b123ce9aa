//! Unmodified databases under TPC-C on a volume: their evictions become known by the preloaded
//! library, their blocks are placed, they find their data sound afterwards, and what is believed
//! of their caches is compared with what they say of them. In `together.rs` all at once, and the
//! server is killed; in `power.rs` its power goes. Server and `attach` are the program without the
//! laboratory, if `UNDERCROFT_WITHOUT_LAB` names one.
//!
//! `UNDERCROFT_TPCC_SECONDS` is how long each runs by itself, 20 by default.

mod mariadb;
mod postgres;
mod power;
mod together;

use std::fs::{self, Permissions};
use std::io::Write;
use std::marker::PhantomData;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::clients::is_there;
use super::disk::Disk;
use super::product::without_lab;
use super::support::{PATIENCE, Place, text};

/// Where a database lives.
struct Home {
    place: Place,
    /// Nobody else's.
    port: u16,
    /// Where go-tpc is.
    tpcc: String,
}

/// How a database is set up, run and asked.
trait Database {
    const NAME: &'static str;
    /// Programs that it takes.
    const NEEDS: &'static [&'static str];
    /// Before a command: run it as the database's user.
    const USER: &'static [&'static str];
    /// What `attach` is told.
    const ATTACH: &'static [&'static str];
    /// The option of its client before a statement.
    const EXECUTE: &'static str;
    /// What ends it.
    const STOP: Signal;
    /// Statements: to have it write all that it changed, and then be again as it was.
    const CLEAN: [&'static str; 2];
    /// A statement: from now on, what is committed is durable.
    const DURABLE: &'static str;

    /// Makes an empty database in the folder `files/data`.
    fn create(home: &Home);
    /// The command that runs it, with a large pool or a small one.
    fn command(home: &Home, small: bool) -> Vec<String>;
    /// Its own client program, with what it takes to be let in.
    fn client(home: &Home) -> Vec<String>;
    /// Statements that make a database for TPC-C.
    fn prepare() -> &'static [&'static str];
    /// How go-tpc finds it.
    fn tpcc(home: &Home) -> Vec<String>;
    /// The command with which it checks all of its data.
    fn check(home: &Home) -> Vec<String>;
}

#[test]
fn mariadb_is_a_client_that_cooperates() {
    experiment::<mariadb::MariaDb>(|_, score, late| {
        // In so short a time not all memory that is no cache is forgotten: up to 1 % of this pool.
        let scores = (score("precision"), score("recall"));
        assert!(scores.0 >= 0.98 && scores.1 >= 0.97, "{scores:?}");
        // Of so small a database and pool; docs/user/databases.md has larger ones.
        assert!(late < 0.15, "{late}");
    });
}

#[test]
fn postgres_is_a_client_that_cooperates() {
    experiment::<postgres::Postgres>(|when, score, late| {
        let least = if when == When::Loaded { 0.999 } else { 0.99 };
        assert!(score("precision") >= least && score("recall") >= least);
        assert!(late < 0.001, "{late}");
    });
}

/// When a cache is compared with what is believed of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    /// The data were just loaded into an empty database, and all is written.
    Loaded,
    /// The transactions have just stopped.
    Busy,
    /// And what they changed is written.
    Quiet,
}

/// Runs all of it; then `good` judges the score's ratios at each of the moments, and the share of
/// late evictions.
fn experiment<D: Database>(good: impl Fn(When, &dyn Fn(&str) -> f64, f64)) {
    let Some(tpcc) = available::<D>(&[]) else { return };
    let home = Home::new(tpcc);
    let place = &home.place;
    let server = place.serve(
        "--volume d=file:d.img,size=2GiB,cache=32MiB,policy=mq,placement=eviction,on-hit=move,staging=auto",
    );
    let disk = match home.disk(&server.uri("d")) {
        Ok(disk) => disk,
        Err(why) => return skipped(D::NAME, &why),
    };
    fs::set_permissions(place.path("socket"), Permissions::from_mode(0o777)).unwrap();
    // Most of its pages are made, few are read.
    D::create(&home);
    let database = home.attached::<D>(&server.uri("d"), &[]);
    home.load::<D>();
    let loaded = home.score_written(&database);
    let made = home.checked(database.process.id());
    assert!(made["pages_made"].as_u64().is_some_and(|made| made > 1000), "{made}");
    database.stop();
    // What is in the page cache would never be read from the volume. Without the right to do this
    // there is less to see.
    place.run("sync", &[]);
    let _ = fs::write("/proc/sys/vm/drop_caches", "3");

    let database = home.attached::<D>(&server.uri("d"), &[]);
    let seconds = std::env::var("UNDERCROFT_TPCC_SECONDS").unwrap_or_else(|_| "20".to_owned());
    let run = home.tpcc::<D>(&["--threads", "4", "--time", &format!("{seconds}s"), "run"]);
    let mut load = home.command(&run).spawn().unwrap();
    // Near the end, when the database has used all of its cache.
    std::thread::sleep(Duration::from_secs_f64(seconds.parse::<f64>().unwrap() * 0.8));
    // What moves cannot be compared: the load stops for a moment.
    let signal = |signal| kill_process(Pid::from_child(&load), signal).unwrap();
    signal(Signal::STOP);
    std::thread::sleep(Duration::from_secs(1));
    let busy = home.score(&database, &[]);
    let quiet = home.score_written(&database);
    // Where the server's own numbers are, there is the score too, before long.
    let recall = quiet["recall"].as_f64().unwrap();
    let deadline = Instant::now() + PATIENCE;
    loop {
        let stats = server.stats("d");
        let told = stats["client_caches"][0]["tracking"]["recall"].as_f64();
        if told.is_some_and(|told| (told - recall).abs() < 1e-5) {
            break;
        }
        assert!(Instant::now() < deadline, "{recall}: {stats}");
        std::thread::sleep(Duration::from_millis(100));
    }
    signal(Signal::CONT);
    assert!(load.wait().unwrap().success());
    let mut checked = home.checked(database.process.id());
    for _ in 0..5 {
        // On a slow machine the database may not have used all of its cache by then.
        if checked["blocks_handed_over"].as_u64().is_some_and(|blocks| blocks > 1000) {
            break;
        }
        assert!(home.command(&run).status().unwrap().success());
        checked = home.checked(database.process.id());
    }
    let advice = place.undercroft(&format!("advise {}", server.uri("d")));
    let advice = text(&advice.stdout);
    // In so short a time it may say that nothing is advised yet.
    assert!(advice.starts_with('d') && advice.contains("\n* "), "{advice}");
    let stats = server.stats("d");
    let told = &stats["cooperation"];
    let number = |value: &Value| value.as_u64().unwrap_or_else(|| panic!("{told} {checked}"));
    let late = checked["late_share"].as_f64().unwrap();
    let (accepted, refused) =
        (number(&told["demotions_accepted"]), number(&told["demotions_refused"]));
    let handed_over = number(&checked["blocks_handed_over"]);
    let shown = format!(
        "{}: {} evictions told, {} stale, {} reloads, {} staged; {handed_over} handed over, \
         {accepted} accepted, {refused} refused; of {} reads {} hit; late {:.4}; \
         score of what was loaded: {loaded}; busy: {busy}; all written: {quiet}\n",
        D::NAME,
        told["known_evictions"],
        told["stale_hints"],
        told["reloads"],
        told["staged"],
        stats["reads"],
        stats["read_hits"],
        late,
    );
    // Not through print!, which the test harness would keep to itself.
    let _ = std::io::stderr().write_all(format!("{shown}{checked}\n{advice}\n").as_bytes());
    assert!(number(&told["known_evictions"]) > 1000, "{shown}");
    // A page that is still to be written is not accepted yet: of PostgreSQL's about a half.
    assert!(handed_over > 1000 && accepted > handed_over / 8, "{shown} {checked} {told}");
    assert!(number(&stats["read_hits"]) > 100, "{shown}");
    assert_eq!(quiet["unwritten"], 0, "{shown}");
    for (when, score) in [(When::Loaded, &loaded), (When::Busy, &busy), (When::Quiet, &quiet)] {
        good(when, &|name| score[name].as_f64().unwrap(), late);
    }
    home.run(&D::check(&home));
    database.stop();
    home.sound(disk);
    assert_eq!(server.stop(), 0);
}

fn skipped(name: &str, why: &str) {
    let _ = writeln!(std::io::stderr(), "databases: {name} skipped: {why}");
}

/// Where tools/setup.sh puts what it builds and fetches: in the target folder.
fn tools() -> PathBuf {
    std::env::current_exe().unwrap().ancestors().nth(3).unwrap().join("tools")
}

/// Whether a database and what it takes are there: where go-tpc is. Says what is not.
fn available<D: Database>(more: &[&str]) -> Option<String> {
    let tpcc = tools().join("go-tpc");
    if !tpcc.is_file() {
        skipped(D::NAME, "go-tpc is not built (it takes Go 1.21)");
        return None;
    }
    let disk = ["nbdfuse", "losetup", "mkfs.ext4", "fsck.ext4", "mount", "setpriv"];
    let missing = [D::NEEDS, &disk, more].concat().into_iter().find(|program| !is_there(program));
    if let Some(program) = missing {
        skipped(D::NAME, &format!("{program} is not installed"));
        return None;
    }
    Some(tpcc.to_str().unwrap().to_owned())
}

fn program() -> PathBuf {
    without_lab().unwrap_or_else(|| env!("CARGO_BIN_EXE_undercroft").into())
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(ToString::to_string).collect()
}

impl Home {
    fn new(tpcc: String) -> Home {
        let home = Home { place: Place::with(program()), port: free_port(), tpcc };
        fs::set_permissions(home.place.path("."), Permissions::from_mode(0o755)).unwrap();
        home
    }

    fn path(&self, name: &str) -> String {
        self.place.path(name).to_str().unwrap().to_owned()
    }

    fn command(&self, command: &[String]) -> Command {
        let arguments: Vec<_> = command[1..].iter().map(String::as_str).collect();
        self.place.command(&command[0], &arguments)
    }

    /// Runs a command that must succeed: what it prints.
    fn run(&self, command: &[String]) -> String {
        let arguments: Vec<_> = command[1..].iter().map(String::as_str).collect();
        self.place.run(&command[0], &arguments)
    }

    /// Has the database run a statement.
    fn execute<D: Database>(&self, statement: &str) {
        self.run(&[D::client(self), words(&[D::EXECUTE, statement])].concat());
    }

    /// A new file system on an export, mounted at `files`.
    fn disk(&self, uri: &str) -> Result<Disk<'_>, String> {
        let mut disk = Disk::new(&self.place, uri)?;
        self.place.run("mkfs.ext4", &["-q", "-F", disk.device()]);
        disk.mount("ext4")?;
        Ok(disk)
    }

    /// Takes the file system apart, and checks that it is sound.
    fn sound(&self, mut disk: Disk<'_>) {
        disk.unmount();
        self.place.run("fsck.ext4", &["-f", "-n", disk.device()]);
    }

    /// Makes the database, and its data.
    fn fill<D: Database>(&self) {
        D::create(self);
        let database = Running::<D>::start(self, D::command(self, false));
        self.load::<D>();
        database.stop();
    }

    /// Has the empty database make the data of TPC-C.
    fn load<D: Database>(&self) {
        D::prepare().iter().for_each(|statement| self.execute::<D>(statement));
        // It exits with 0 whatever happens.
        let said = self.run(&self.tpcc::<D>(&["--threads", "2", "prepare", "--no-check"]));
        assert!(said.contains("Finished"), "{said}");
    }

    /// What `attach --score` says of a database.
    fn score<D: Database>(&self, database: &Running<'_, D>, more: &[&str]) -> Value {
        let pid = database.process.id().to_string();
        let asked = [&["--score", &pid, "--json"], more, &["--"]].concat();
        let asked = self.run(&[self.attach(&asked), D::client(self)].concat());
        serde_json::from_str(&asked).unwrap()
    }

    /// What `attach --score` says of a database that has written all that it changed.
    fn score_written<D: Database>(&self, database: &Running<'_, D>) -> Value {
        self.execute::<D>(D::CLEAN[0]);
        let score = self.score(database, &["--when-quiet"]);
        self.execute::<D>(D::CLEAN[1]);
        score
    }

    /// A command of go-tpc.
    fn tpcc<D: Database>(&self, more: &[&str]) -> Vec<String> {
        let warehouses = std::env::var("UNDERCROFT_TPCC_WAREHOUSES");
        let warehouses = warehouses.unwrap_or_else(|_| "1".to_owned());
        let program = words(&[&self.tpcc, "tpcc", "--warehouses", &warehouses, "--db", "tpcc"]);
        [program, D::tpcc(self), words(more)].concat()
    }

    /// A command of `undercroft attach`, by a copy that any user can read.
    fn attach(&self, more: &[&str]) -> Vec<String> {
        let program = self.copied(program());
        words(&[&[program.as_str(), "attach"], more].concat())
    }

    /// The database with a small pool, its evictions known to the server of an export. `before` is
    /// a command that runs all of it.
    fn attached<D: Database>(&self, uri: &str, before: &[&str]) -> Running<'_, D> {
        let library = std::env::current_exe().unwrap().with_file_name("libundercroft_cct.so");
        let library = self.copied(library);
        let attach = self.attach(&["--volume", &format!("files={uri}"), "--library", &library]);
        let command = [attach, words(D::ATTACH), words(&["--"]), D::command(self, true)].concat();
        Running::<D>::start(self, [words(before), command].concat())
    }

    /// What `attach --check` says of a process.
    fn checked(&self, pid: u32) -> Value {
        let checked = self.run(&self.attach(&["--check", &pid.to_string(), "--json"]));
        serde_json::from_str(&checked).unwrap()
    }

    /// Copied by another process: a file that this one has open for writing, while a thread starts
    /// some program, cannot be executed.
    fn copied(&self, from: PathBuf) -> String {
        let to = self.place.path(from.file_name().unwrap().to_str().unwrap());
        if !to.exists() {
            let copied = Command::new("cp").arg(&from).arg(&to).status().unwrap();
            assert!(copied.success(), "is it built, as by `cargo test --workspace`?");
            fs::set_permissions(&to, Permissions::from_mode(0o755)).unwrap();
        }
        to.to_str().unwrap().to_owned()
    }
}

/// A database that runs; ended with the test.
struct Running<'a, D: Database> {
    process: Child,
    home: &'a Home,
    database: PhantomData<D>,
}

impl<'a, D: Database> Running<'a, D> {
    /// Starts it, and waits until it answers.
    fn start(home: &'a Home, command: Vec<String>) -> Self {
        let log = home.place.path("database.log");
        let log = fs::File::options().create(true).append(true).open(log).unwrap();
        let mut process = home.command(&[words(D::USER), command].concat());
        process.stdout(log.try_clone().unwrap()).stderr(log);
        let process = process.spawn().unwrap();
        let mut running = Running { process, home, database: PhantomData };
        let ask = [D::client(home), words(&[D::EXECUTE, "select 1"])].concat();
        let deadline = Instant::now() + 2 * PATIENCE;
        while !home.command(&ask).output().is_ok_and(|asked| asked.status.success()) {
            let ended = running.process.try_wait().unwrap();
            let waits = ended.is_none() && Instant::now() < deadline;
            assert!(waits, "{}: {ended:?}: {}", D::NAME, running.log());
            std::thread::sleep(Duration::from_millis(100));
        }
        running
    }

    fn log(&self) -> String {
        text(&self.home.place.read("database.log"))
    }

    /// Ends it as its user would; it must take it well.
    fn stop(mut self) {
        let pid = Pid::from_child(&self.process);
        kill_process(pid, D::STOP).unwrap();
        let status = self.process.wait().unwrap();
        assert!(status.success(), "{status}: {}", self.log());
    }
}

impl<D: Database> Drop for Running<'_, D> {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
