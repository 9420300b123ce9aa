//! MariaDB: InnoDB with direct I/O.

use rustix::process::Signal;

use super::{Database, Home, words};

pub(super) struct MariaDb;

impl Database for MariaDb {
    const NAME: &'static str = "mariadb";
    const NEEDS: &'static [&'static str] =
        &["mariadbd", "mariadb-install-db", "mariadb", "mariadb-check"];
    const USER: &'static [&'static str] = &[];
    const ATTACH: &'static [&'static str] = &[];
    const EXECUTE: &'static str = "-e";
    const STOP: Signal = Signal::TERM;
    /// It writes nothing by itself while its log has room, and then 200 pages a second.
    const CLEAN: [&'static str; 2] = [
        "set global innodb_io_capacity_max=20000; set global innodb_io_capacity=10000; \
         set global innodb_max_dirty_pages_pct=0",
        "set global innodb_max_dirty_pages_pct=90; set global innodb_io_capacity=200; \
         set global innodb_io_capacity_max=2000",
    ];
    const DURABLE: &'static str = "set global innodb_flush_log_at_trx_commit=1";

    fn create(home: &Home) {
        let settings = format!(
            "[mysqld]\ndatadir={}\nsocket={}\npid-file={}\nport={}\nbind-address=127.0.0.1\n\
             user=root\nskip-log-bin\nperformance_schema=0\ninnodb_flush_method=O_DIRECT\n\
             innodb_log_file_size=64M\ninnodb_flush_log_at_trx_commit=2\n\
             innodb_buffer_pool_dump_at_shutdown=0\ninnodb_buffer_pool_load_at_startup=0\n",
            home.path("files/data"),
            home.path("my.sock"),
            home.path("my.pid"),
            home.port
        );
        home.place.write("my.cnf", settings);
        let data = format!("--datadir={}", home.path("files/data"));
        let install = ["mariadb-install-db", "--no-defaults", "--user=root", &data];
        let access = ["--auth-root-authentication-method=normal", "--skip-test-db"];
        home.run(&words(&[&install[..], &access].concat()));
    }

    fn command(home: &Home, small: bool) -> Vec<String> {
        let settings = format!("--defaults-file={}", home.path("my.cnf"));
        let pool: &[&str] = match small {
            // Evicting ahead into a long list of free frames hides evictions. An extent that is
            // read ahead, as the optimiser's choice has it in some runs, is not known.
            true => &[
                "--innodb-buffer-pool-size=32M",
                "--innodb-lru-scan-depth=100",
                "--innodb-read-ahead-threshold=0",
            ],
            false => &["--innodb-buffer-pool-size=256M", "--innodb-doublewrite=0"],
        };
        words(&[&["mariadbd", &settings][..], pool].concat())
    }

    fn client(home: &Home) -> Vec<String> {
        let socket = format!("--socket={}", home.path("my.sock"));
        words(&["mariadb", "--no-defaults", "--user=root", &socket])
    }

    fn prepare() -> &'static [&'static str] {
        &["create database tpcc; create user 'tpcc'@'%'; grant all on *.* to 'tpcc'@'%'"]
    }

    fn tpcc(home: &Home) -> Vec<String> {
        words(&["--host", "127.0.0.1", "--port", &home.port.to_string(), "--user", "tpcc"])
    }

    fn check(home: &Home) -> Vec<String> {
        let socket = format!("--socket={}", home.path("my.sock"));
        let check = ["mariadb-check", "--no-defaults", "--user=root", &socket];
        words(&[&check[..], &["--check", "--extended", "tpcc"]].concat())
    }
}
