//! PostgreSQL: through the page cache, unless `attach` has it go past it.

use std::path::PathBuf;

use rustix::process::Signal;

use super::{Database, Home, words};

pub(super) struct Postgres;

/// The newest of Debian's versions that is there.
fn program(name: &str) -> String {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let versions: Vec<PathBuf> = versions.map(|version| version.path()).collect();
    let newest = versions.iter().max_by_key(|path| {
        let version = path.file_name().and_then(|name| name.to_str()?.parse::<u32>().ok());
        version.unwrap_or(0)
    });
    let newest = newest.map(|path| path.join("bin").join(name));
    newest.map_or_else(|| name.to_owned(), |path| path.to_str().unwrap().to_owned())
}

impl Database for Postgres {
    const NAME: &'static str = "postgres";
    const NEEDS: &'static [&'static str] = &["psql", "pg_ctlcluster"];
    const USER: &'static [&'static str] =
        &["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", "--"];
    const ATTACH: &'static [&'static str] = &["--bypass-page-cache"];
    const EXECUTE: &'static str = "-c";
    /// A "fast" shutdown.
    const STOP: Signal = Signal::INT;
    const CLEAN: [&'static str; 2] = ["checkpoint", "select 1"];

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
        let init = program("initdb");
        let init = [&init, "-D", &data, "--no-locale", "-E", "UTF8", "-A", "trust"];
        home.run(&words(&[Self::USER, &init].concat()));
        let settings = format!(
            "port = {}\nlisten_addresses = '127.0.0.1'\nunix_socket_directories = '{}'\n\
             huge_pages = off\njit = off\nmax_wal_size = 512MB\n",
            home.port,
            home.path("run")
        );
        let file = home.place.path("files/data/postgresql.auto.conf");
        std::fs::write(file, settings).unwrap();
    }

    fn command(home: &Home, small: bool) -> Vec<String> {
        let pool = if small { "shared_buffers=32MB" } else { "shared_buffers=256MB" };
        words(&[&program("postgres"), "-D", &home.path("files/data"), "-c", pool])
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
        let check = [&program("pg_amcheck"), "--install-missing", "--heapallindexed", "tpcc"];
        words(&[&check, &["-h", &home.path("run"), "-p", &port, "-U", "postgres"][..]].concat())
    }
}
