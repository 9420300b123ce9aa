//! PostgreSQL: Debian's through the page cache, unless `attach` has it go past it, and a current
//! one with direct I/O.

use std::marker::PhantomData;
use std::path::PathBuf;

use rustix::process::Signal;

use super::{Database, Home, tools, words};

/// A version of PostgreSQL.
pub(super) struct Cluster<V>(PhantomData<V>);

/// Debian's.
pub(super) type Postgres = Cluster<Debian>;

/// The one that `tools/experiment/install.py` installs.
pub(super) type Postgres18 = Cluster<Current>;

/// What the versions do not have in common.
pub(super) trait Version {
    const NAME: &'static str;
    /// What `attach` is told.
    const ATTACH: &'static [&'static str];
    /// Lines of its configuration.
    const SETTINGS: &'static str;
    /// A program of the server.
    fn program(name: &str) -> Vec<String>;
}

pub(super) struct Debian;

impl Version for Debian {
    const NAME: &'static str = "postgres";
    const ATTACH: &'static [&'static str] = &["--bypass-page-cache"];
    const SETTINGS: &'static str = "";

    fn program(name: &str) -> Vec<String> {
        vec![debian(name)]
    }
}

pub(super) struct Current;

impl Version for Current {
    const NAME: &'static str = "postgres 18";
    // `attach` sees another program first, which becomes it.
    const ATTACH: &'static [&'static str] = &["--frames", "shared"];
    const SETTINGS: &'static str = "debug_io_direct = data\nio_method = worker\n";

    fn program(name: &str) -> Vec<String> {
        let folder = tools().join("postgresql-18");
        let libraries = format!("LD_LIBRARY_PATH={}", folder.join("lib").display());
        words(&["env", &libraries, folder.join("bin").join(name).to_str().unwrap()])
    }
}

/// A program of the newest of Debian's versions that is there.
fn debian(name: &str) -> String {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let versions: Vec<PathBuf> = versions.map(|version| version.path()).collect();
    let newest = versions.iter().max_by_key(|path| {
        let version = path.file_name().and_then(|name| name.to_str()?.parse::<u32>().ok());
        version.unwrap_or(0)
    });
    let newest = newest.map(|path| path.join("bin").join(name));
    newest.map_or_else(|| name.to_owned(), |path| path.to_str().unwrap().to_owned())
}

impl<V: Version> Database for Cluster<V> {
    const NAME: &'static str = V::NAME;
    const NEEDS: &'static [&'static str] = &["psql", "pg_ctlcluster"];
    const USER: &'static [&'static str] =
        &["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", "--"];
    const ATTACH: &'static [&'static str] = V::ATTACH;
    const EXECUTE: &'static str = "-c";
    /// A "fast" shutdown.
    const STOP: Signal = Signal::INT;
    const CLEAN: [&'static str; 2] = ["checkpoint", "select 1"];
    const DURABLE: &'static str = "select 1";

    fn create(home: &Home) {
        home.run(&words(&[
            "install",
            "-d",
            "-o",
            "postgres",
            "-m",
            "700",
            &home.path("files/data"),
        ]));
        home.run(&words(&["install", "-d", "-o", "postgres", "-m", "755", &home.path("run")]));
        let data = home.path("files/data");
        let options = ["-D", &data, "--no-locale", "-E", "UTF8", "-A", "trust"];
        home.run(&[words(Self::USER), V::program("initdb"), words(&options)].concat());
        let settings = format!(
            "port = {}\nlisten_addresses = '127.0.0.1'\nunix_socket_directories = '{}'\n\
             huge_pages = off\njit = off\nmax_wal_size = 512MB\n{}",
            home.port,
            home.path("run"),
            V::SETTINGS,
        );
        let file = home.place.path("files/data/postgresql.auto.conf");
        std::fs::write(file, settings).unwrap();
    }

    fn command(home: &Home, small: bool) -> Vec<String> {
        let pool = if small { "shared_buffers=32MB" } else { "shared_buffers=256MB" };
        [V::program("postgres"), words(&["-D", &home.path("files/data"), "-c", pool])].concat()
    }

    fn client(home: &Home) -> Vec<String> {
        let port = home.port.to_string();
        words(&["psql", "-h", &home.path("run"), "-p", &port, "-U", "postgres"])
    }

    fn prepare() -> &'static [&'static str] {
        &["create database tpcc", "create extension pg_buffercache"]
    }

    fn tpcc(home: &Home) -> Vec<String> {
        let port = home.port.to_string();
        let driver = ["--driver", "postgres", "--conn-params", "sslmode=disable"];
        let place = ["--host", "127.0.0.1", "--port", &port, "--user", "postgres"];
        words(&[&driver[..], &place].concat())
    }

    fn check(home: &Home) -> Vec<String> {
        let port = home.port.to_string();
        let check = [&debian("pg_amcheck"), "--install-missing", "--heapallindexed", "tpcc"];
        words(&[&check, &["-h", &home.path("run"), "-p", &port, "-U", "postgres"][..]].concat())
    }
}
