"""The databases: one class for each, with how it is made, started, asked, counted and checked. What they
run on, and the load, are in other modules.

A database has its data in `data` and its log in `log`, folders of mounted volumes, or its data on a raw
device.
"""

import contextlib
import glob
import os
import pathlib
import re
import shutil
import signal
import socket

from consistency import CONDITIONS
from processes import Failure, Scope, end, run, wait_until

# The database that go-tpc fills.
NAME = "tpcc"
AS_POSTGRES = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", "--"]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Database:
    """What all have in common."""

    # Run it as its user; environment that it needs; whether it reads through the kernel's page cache.
    user, environment, buffered = [], {}, False
    stop = signal.SIGTERM

    def __init__(self, settings, home, tools):
        self.settings, self.home, self.tools = settings, home, tools
        self.data, self.log, self.device = home / "data", home / "log", None
        self.port = free_port()
        self.connections = 100

    def check_programs(self):
        for program in self.programs:
            if not shutil.which(program, path="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"):
                raise Failure(f"{program} is not installed")

    @contextlib.contextmanager
    def running(self, pool_mib, before=(), more=(), group=()):
        """The database, until it has ended as its user would end it; after a failure, at once. Commands that run it: one
        as root, and one as its user."""
        path = self.home / "database.log"
        with Scope() as scope, open(path, "a") as log:
            command = [*group, *self.user, *before, *self.command(pool_mib), *more]
            options = {"stdout": log, "stderr": log, "env": os.environ | self.environment}
            process = scope.child(command, signal.SIGQUIT, 5, **options)

            def answers():
                if process.poll() is not None:
                    raise Failure(f"{self.settings.kind} does not start: {path.read_text()[-3000:]}")
                with contextlib.suppress(Failure):
                    return self.ask("select 1") is not None

            wait_until(answers, self.settings.kind)
            yield process
            status = end(process, self.stop)
            if status != 0:
                raise Failure(f"{self.settings.kind}: exit status {status}: {path.read_text()[-3000:]}")

    def ask(self, statement):
        """Runs a statement: rows of columns."""
        output = run([*self.client, statement])
        return [line.split("\t") for line in output.splitlines()]

    def violations(self):
        """The conditions of TPC-C that do not hold."""
        found = {}
        for name, statement in CONDITIONS.items():
            rows = run([*self.client_of(NAME), statement]).splitlines()
            if rows:
                found[name] = f"{len(rows)} rows, as {rows[0]}"
        wrong = "; ".join(f"{name}: {said}" for name, said in found.items())
        return {f"{len(CONDITIONS)} conditions of TPC-C": wrong}

    def numbers(self, statement):
        return {name: float(value) for name, value in self.ask(statement) if re.fullmatch(r"-?[\d.]+", value)}


class MariaDb(Database):
    """InnoDB with direct I/O, on files or on the raw volume."""

    programs = ["mariadbd", "mariadb-install-db", "mariadb", "mariadb-check", "innochecksum"]
    name = "mariadb"

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.connect = ["--no-defaults", "--user=root", f"--socket={self.home}/my.sock"]
        self.client = self.client_of("")
        self.tpcc = ["--host", "127.0.0.1", "--port", self.port, "--user", "tpcc"]
        self.is_raw = self.settings.layout == "raw"
        self.new = ""

    def client_of(self, database):
        return ["mariadb", *self.connect, "--batch", "--skip-column-names", f"--database={database}", "-e"]

    def version(self):
        return run(["mariadbd", "--version"]).split("Ver ")[1].split()[0]

    def configure(self):
        """Writes the file of its settings, by which alone it is started."""
        # Its own tables are small: they lie beside the log if InnoDB has the volume of the data to itself.
        folder = self.log / "data" if self.is_raw else self.data / "data"
        settings = {
            "datadir": folder,
            "socket": self.home / "my.sock",
            "pid-file": self.home / "my.pid",
            "port": self.port,
            "bind-address": "127.0.0.1",
            "user": "root",
            "max_connections": self.connections,
            "performance_schema": 0,
            "innodb_flush_method": "O_DIRECT",
            "innodb_log_group_home_dir": self.log,
            "innodb_log_file_size": "256M",
            "innodb_flush_log_at_trx_commit": 2,
            "innodb_buffer_pool_dump_at_shutdown": 0,
            "innodb_buffer_pool_load_at_startup": 0,
        }
        if self.is_raw:
            # The device is larger; the rest is not used.
            size = self.settings.warehouses * 256 + 768
            settings |= {"innodb_data_home_dir": "", "innodb_file_per_table": 0}
            settings |= {"innodb_data_file_path": f"{self.device}:{size}M{self.new or 'raw'}"}
        settings |= self.settings.settings
        lines = [f"{name}={value}\n" for name, value in settings.items()]
        (self.home / "my.cnf").write_text(f"[mysqld]\nskip-log-bin\n{''.join(lines)}")

    def create(self):
        self.new = "newraw"
        self.configure()
        access = ["--auth-root-authentication-method=normal", "--skip-test-db"]
        run(["mariadb-install-db", f"--defaults-file={self.home}/my.cnf", "--user=root", *access])
        self.new = ""
        self.configure()

    def command(self, pool_mib):
        return ["mariadbd", f"--defaults-file={self.home}/my.cnf", f"--innodb-buffer-pool-size={pool_mib}M"]

    loading = ["--innodb-doublewrite=0"]

    def prepare(self):
        self.ask(f"create database {NAME}; create user 'tpcc'@'%'; grant all on *.* to 'tpcc'@'%'")

    def settle(self):
        """After the load: nothing is left to be done in the background, and the optimiser knows what was loaded."""
        tables = ", ".join(row[0] for row in self.ask(f"show tables from {NAME}"))
        self.ask(f"use {NAME}; analyze table {tables}; set global innodb_fast_shutdown=0")

    def mib(self):
        """Size of the tables and indexes, in pages that InnoDB counted when they were analysed."""
        where = f"mysql.innodb_index_stats where database_name = '{NAME}' and stat_name = 'size'"
        return float(self.ask(f"select sum(stat_value) * @@innodb_page_size / 1048576 from {where}")[0][0])

    def counters(self):
        return self.numbers("show global status where Variable_name like 'Innodb%' or Variable_name like 'Com_commit'")

    def check(self):
        """Checks all tables, and their indexes against the rows."""
        said = run(["mariadb-check", *self.connect, "--check", "--extended", NAME])
        wrong = [line for line in said.splitlines() if not line.endswith("OK")]
        return {"check table extended": "; ".join(wrong)}

    def check_files(self):
        """Checks the checksum of each page, of a database that has ended."""
        if self.is_raw:
            # innochecksum reads whole files, and the device is longer than the tablespace.
            return {}
        system = f"{self.data}/data/ibdata1"
        # Pages 64 to 191 are the doublewrite buffer: copies of pages of other files, which need not be whole.
        parts = [["--end-page=63", system], ["--start-page=192", system]]
        files = sorted(glob.glob(f"{self.data}/data/{NAME}/*.ibd"))
        wrong = []
        for part in [*parts, *([file] for file in files)]:
            try:
                run(["innochecksum", *part])
            except Failure as failure:
                wrong.append(str(failure))
        return {f"innochecksum of {len(files) + 1} files": "; ".join(wrong)}


class PostgreSql(Database):
    """Debian's PostgreSQL: it reads through the kernel's page cache."""

    programs = ["psql", "setpriv"]
    name, user, buffered = "postgresql", AS_POSTGRES, True
    stop = signal.SIGINT
    options = {}

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.client = self.client_of("postgres")
        connect = ["--host", "127.0.0.1", "--port", self.port, "--user", "postgres"]
        self.tpcc = ["--driver", "postgres", "--conn-params", "sslmode=disable", *connect]

    def client_of(self, database):
        options = ["-X", "-A", "-t", "-F", "\t", "-v", "ON_ERROR_STOP=1"]
        return ["psql", *options, "-h", self.home / "sql", "-p", self.port, "-U", "postgres", "-d", database, "-c"]

    def program(self, name):
        versions = glob.glob("/usr/lib/postgresql/*/bin")
        if not versions:
            raise Failure("postgresql is not installed")
        return pathlib.Path(max(versions, key=lambda path: int(path.split("/")[4]))) / name

    def version(self):
        return run([self.program("postgres"), "--version"], env=os.environ | self.environment).split()[2]

    def configure(self):
        run(["install", "-d", "-o", "postgres", "-m", "755", self.home / "sql"])
        folder = self.data / "data"
        for path in (self.program("postgres"), self.home / "sql"):
            try:
                run([*self.user, "test", "-x", path])
            except Failure:
                why = "user postgres has no access: the repository and --work belong where every user can search"
                raise Failure(f"{path}: {why}") from None
        # The link holds a path; the data may have been made elsewhere.
        if (folder / "pg_wal").is_symlink():
            (folder / "pg_wal").unlink()
            (folder / "pg_wal").symlink_to(self.log / "wal")

    def initdb(self):
        return ["--data-checksums"] if self.settings.checksums else []

    def create(self):
        for folder in (self.data / "data", self.log / "wal"):
            run(["install", "-d", "-o", "postgres", "-m", "700", folder])
        self.configure()
        locale = ["--no-locale", "-E", "UTF8", "-A", "trust"]
        folders = ["-D", self.data / "data", "-X", self.log / "wal"]
        command = [*self.user, self.program("initdb"), *folders, *locale, *self.initdb()]
        run(command, env=os.environ | self.environment)

    def command(self, pool_mib):
        settings = {
            "port": self.port,
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": self.home / "sql",
            "shared_buffers": f"{pool_mib}MB",
            "max_connections": self.connections,
            "huge_pages": "off",
            "jit": "off",
            "max_wal_size": "1GB",
            **self.options,
            **self.settings.settings,
        }
        given = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        return [self.program("postgres"), "-D", self.data / "data", *given]

    # Little log is left behind, which every run would copy.
    loading = ["-c", "fsync=off", "-c", "full_page_writes=off", "-c", "max_wal_size=96MB", "-c", "min_wal_size=32MB"]

    def prepare(self):
        self.ask(f"create database {NAME}")

    def settle(self):
        run([*self.client_of(NAME), "vacuum analyze"])
        self.ask("checkpoint")

    def mib(self):
        return float(self.ask(f"select pg_database_size('{NAME}') / 1048576.0")[0][0])

    def counters(self):
        columns = "blks_read blks_hit xact_commit xact_rollback deadlocks temp_bytes".split()
        values = " union all ".join(f"select '{name}', {name}::text from d" for name in columns)
        found = self.numbers(f"with d as (select * from pg_stat_database where datname = '{NAME}') {values}")
        return found | self.written()

    def written(self):
        columns = "buffers_checkpoint buffers_clean buffers_backend checkpoints_timed checkpoints_req".split()
        values = (f"select '{name}', {name}::text from pg_stat_bgwriter" for name in columns)
        return self.numbers(" union all ".join(values))

    def check(self):
        """Reads every page of the tables and B-trees, and compares each index with its rows."""
        client = self.client_of(NAME)
        run([*client, "create extension if not exists amcheck"])
        mine = "c.relnamespace = 'public'::regnamespace"
        of_trees = f"pg_class c join pg_am a on a.oid = c.relam where {mine} and a.amname = 'btree' and c.relkind = 'i'"
        of_tables = f"pg_class c, lateral verify_heapam(c.oid::regclass) v where {mine} and c.relkind = 'r'"
        wrong = []
        for statement in (
            # It returns nothing, or fails.
            f"select bt_index_parent_check(c.oid::regclass, true, true) from {of_trees}",
            f"select c.relname, v.blkno, v.msg from {of_tables}",
        ):
            try:
                wrong += [line for line in run([*client, statement]).splitlines() if line.strip()]
            except Failure as failure:
                wrong.append(str(failure))
        return {"amcheck": "; ".join(wrong)} | self.check_checksums()

    def check_checksums(self):
        if not self.settings.checksums:
            return {}
        failures = self.ask("select coalesce(sum(checksum_failures), 0) from pg_stat_database")[0][0]
        return {"checksums of the pages read": "" if failures == "0" else f"{failures} failures"}

    def check_files(self):
        return {}


class PostgreSql18(PostgreSql):
    """A current PostgreSQL, prebuilt, with direct I/O."""

    name, buffered = "postgresql-18", False
    options = {"debug_io_direct": "data", "io_method": "worker"}

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.environment = {"LD_LIBRARY_PATH": str(self.tools / "postgresql-18/lib")}

    def program(self, name):
        return self.tools / "postgresql-18/bin" / name

    def initdb(self):
        return ["--data-checksums" if self.settings.checksums else "--no-data-checksums"]

    def written(self):
        statements = [
            "select 'checkpoint_' || n, v from (select jsonb_each_text(to_jsonb(c)) as kv from pg_stat_checkpointer c) s,"
            " lateral (select (kv).key as n, (kv).value as v) x",
            "select 'io_' || replace(backend_type || '_' || context, ' ', '_') || '_reads', reads::text"
            " from pg_stat_io where reads > 0 and object = 'relation'",
            "select 'io_' || replace(backend_type || '_' || context, ' ', '_') || '_writes', writes::text"
            " from pg_stat_io where writes > 0 and object = 'relation'",
        ]
        return self.numbers(" union all ".join(statements))


KINDS = {kind.name: kind for kind in (MariaDb, PostgreSql, PostgreSql18)}


def make(settings, home, tools):
    """The database of an experiment."""
    if settings.kind not in KINDS:
        raise Failure(f"database: kind is one of {', '.join(KINDS)}")
    database = KINDS[settings.kind](settings, home, tools)
    if settings.layout == "raw" and not isinstance(database, MariaDb):
        raise Failure(f"{settings.kind} has no raw layout")
    database.check_programs()
    return database
