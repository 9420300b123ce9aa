"""What the preloaded library costs a database, and what it is worth: TPC-C on a volume of the server, in turn without the
library, with it and access-based placement, and with it and eviction-based placement. As root: the volume is mounted through
nbdfuse and a loop device. Every run starts with cold caches from the same data, grown by the runs before; with --disk the store
takes the time of a disk. Prints tables with medians and ranges.

    python3 tools/bench/databases.py target/release/undercroft target/tools/go-tpc
"""

import argparse
import contextlib
import glob
import json
import os
import pathlib
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

# Placement, whether the library is loaded, whether reads go past the page cache where there is one.
ARMS = {
    "without": ("access", False, False),
    "attached, access": ("access", True, False),
    "the same, past the page cache": ("access", True, True),
    "attached, eviction, past it": ("eviction,staging=auto", True, True),
    "the same, a hit moves": ("eviction,on-hit=move,staging=auto", True, True),
}
USER = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", "--"]


def run(command, check=True):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if check and done.returncode != 0:
        raise SystemExit(f"{command}: {done.stderr or done.stdout}")
    return done.stdout


def wait_until(true, what, seconds=120):
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            raise SystemExit(f"{what}: not within {seconds} s")
        time.sleep(0.05)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Volume(contextlib.ExitStack):
    """The server, and its volume as a mounted file system; taken apart at the end, also after a failure half way."""

    def __init__(self, home, program, placement, cache, disk=None):
        super().__init__()
        self.home = home
        store = f"file:{home}/d.img"
        store = f"delay({disk}):{store}" if disk else store
        volume = f"d={store},size=4GiB,policy=mq,cache={cache},placement={placement}"
        try:
            self.begin([program, "serve", "--listen", f"unix:{home}/socket", "--http", "127.0.0.1:0", "--volume", volume])
        except BaseException:
            self.close()
            raise

    def begin(self, command):
        home = self.home
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.callback(ended, server)
        self.live = next((line.split()[1] for line in server.stdout if line.startswith("  live")), None)
        if self.live is None:
            raise SystemExit("the server does not start")
        os.chmod(home / "socket", 0o777)
        self.uri = f"nbd+unix:///d?socket={home}/socket"
        fuse = subprocess.Popen(["nbdfuse", home / "fuse", self.uri])
        self.callback(ended, fuse)
        self.callback(run, ["umount", home / "fuse"], check=False)
        wait_until((home / "fuse/nbd").exists, "nbdfuse")
        self.device = run(["losetup", "--find", "--show", "--direct-io=on", home / "fuse/nbd"]).strip()
        self.callback(run, ["losetup", "--detach", self.device])
        if not run(["blkid", "-o", "value", self.device], check=False).strip():
            run(["mkfs.ext4", "-q", "-F", self.device])
        run(["mount", self.device, home / "files"])
        self.callback(run, ["umount", home / "files"])

    def stats(self, program):
        return json.loads(run([program, "stats", self.live.removesuffix("/stats"), "--json"]))["volumes"]["d"]


def ended(process):
    """Ends a process that may have ended already."""
    if process.poll() is None:
        process.terminate()
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class MariaDb:
    name, stop, user, buffered = "mariadb", signal.SIGTERM, [], False

    def __init__(self, home, pool):
        self.home, self.pool, self.port = home, pool, free_port()
        (home / "my.cnf").write_text(
            f"[mysqld]\ndatadir={home}/files/data\nsocket={home}/my.sock\npid-file={home}/my.pid\nport={self.port}\n"
            "bind-address=127.0.0.1\nuser=root\nskip-log-bin\nperformance_schema=0\ninnodb_flush_method=O_DIRECT\n"
            "innodb_log_file_size=256M\ninnodb_flush_log_at_trx_commit=2\ninnodb_lru_scan_depth=100\n"
            "innodb_buffer_pool_dump_at_shutdown=0\ninnodb_buffer_pool_load_at_startup=0\n"
        )
        self.ask = ["mariadb", "--no-defaults", "--user=root", f"--socket={home}/my.sock", "-e"]
        self.tpcc = ["--host", "127.0.0.1", "--port", self.port, "--user", "tpcc"]

    def create(self):
        data = ["--no-defaults", "--user=root", f"--datadir={self.home}/files/data"]
        run(["mariadb-install-db", *data, "--auth-root-authentication-method=normal", "--skip-test-db"])

    def command(self, pool):
        return ["mariadbd", f"--defaults-file={self.home}/my.cnf", f"--innodb-buffer-pool-size={pool}M"]

    def prepare(self):
        run([*self.ask, "create database tpcc; create user 'tpcc'@'%'; grant all on *.* to 'tpcc'@'%'"])


class Postgres:
    name, stop, user, buffered = "postgres", signal.SIGINT, USER, True

    def __init__(self, home, pool):
        self.home, self.pool, self.port = home, pool, free_port()
        self.programs = pathlib.Path(sorted(glob.glob("/usr/lib/postgresql/*/bin"))[-1])
        (home / "run").mkdir()
        run(["chown", "postgres", home / "run"])
        self.ask = ["psql", "-h", home / "run", "-p", self.port, "-U", "postgres", "-c"]
        connect = ["--host", "127.0.0.1", "--port", self.port, "--user", "postgres"]
        self.tpcc = ["--driver", "postgres", "--conn-params", "sslmode=disable", *connect]

    def create(self):
        data = self.home / "files/data"
        run(["install", "-d", "-o", "postgres", "-m", "700", data])
        run([*USER, self.programs / "initdb", "-D", data, "--no-locale", "-E", "UTF8", "-A", "trust"])
        (data / "postgresql.auto.conf").write_text(
            f"port = {self.port}\nlisten_addresses = '127.0.0.1'\nunix_socket_directories = '{self.home}/run'\n"
            "huge_pages = off\njit = off\nmax_wal_size = 1GB\n"
        )

    def command(self, pool):
        return [self.programs / "postgres", "-D", self.home / "files/data", "-c", f"shared_buffers={pool}MB"]

    def prepare(self):
        run([*self.ask, "create database tpcc"])


@contextlib.contextmanager
def running(database, pool, before=()):
    """The database, until it has ended: as its user would end it, or at once after a failure."""
    log = open(database.home / "database.log", "a")
    command = [*database.user, *before, *database.command(pool)]
    process = subprocess.Popen([str(word) for word in command], stdout=log, stderr=log)
    ask = [str(word) for word in [*database.ask, "select 1"]]
    try:
        wait_until(lambda: subprocess.run(ask, capture_output=True).returncode == 0, database.name)
        yield
        process.send_signal(database.stop)
        process.wait(600)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def tpcc(options, database, *more):
    command = [options.go_tpc, "tpcc", "--warehouses", options.warehouses, "--db", "tpcc", *database.tpcc, *more]
    return run(command)


def measure(options, database, arm):
    placement, attached, bypass = ARMS[arm]
    with Volume(database.home, options.undercroft, placement, options.cache, options.disk) as volume:
        before = []
        if attached:
            where = ["--volume", f"{database.home}/files={volume.uri}"]
            past = ["--bypass-page-cache"] if bypass and database.buffered else []
            before = [options.undercroft, "attach", *where, *past, "--"]
        # What was read before is in nobody's cache.
        run(["sync"])
        pathlib.Path("/proc/sys/vm/drop_caches").write_text("3")
        with running(database, options.pool, before):
            said = tpcc(options, database, "--threads", options.threads, "--time", f"{options.seconds}s", "run")
            stats = volume.stats(options.undercroft)
    # Not go-tpc's own rate: its time begins when the first one has ended, which may be late with a slow disk.
    orders = re.search(r"\[Summary\] NEW_ORDER - .*?Count: (\d+)", said)
    if not orders:
        raise SystemExit(f"{database.name}, {arm}: not one new order: {said}")
    transactions = int(orders[1])
    rate = transactions * 60 / options.seconds
    print(f"{database.name}, {arm}: {rate:,.0f} new orders a minute", file=sys.stderr)
    told = stats.get("cooperation") or {"reloads": 0, "staged": 0}
    return {
        "new orders a minute": rate,
        "reads of the server for 1,000 of them": 1000 * stats["reads"] / transactions,
        "hit ratio, %": 100 * stats["read_hit_ratio"],
        "reads of its store": 1000 * stats["store_reads"] / transactions,
        "reloads": 1000 * told["reloads"] / transactions,
        "placed without": 1000 * told["staged"] / transactions,
    }


def table(rows):
    names = list(next(iter(rows.values()))[0])
    print("| | " + " | ".join(names) + " |")
    print("| --- " * (1 + len(names)) + "|")
    for arm, runs in rows.items():
        cells = []
        for name in names:
            values = [one[name] for one in runs]
            cells.append(f"{statistics.median(values):,.0f} ({min(values):,.0f} to {max(values):,.0f})")
        print(f"| {arm} | " + " | ".join(cells) + " |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("undercroft", type=pathlib.Path)
    parser.add_argument("go_tpc", type=pathlib.Path)
    parser.add_argument("--database", choices=["mariadb", "postgres"], action="append")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=30, help="of each run")
    parser.add_argument("--warehouses", type=int, default=2)
    parser.add_argument("--pool", type=int, default=32, help="MiB of the database's cache")
    parser.add_argument("--threads", type=int, default=4, help="of the load")
    parser.add_argument("--cache", default="64MiB", help="the server's")
    parser.add_argument("--disk", help="service time of the store, as 2ms..6ms,queue=4; default: none but its own")
    options = parser.parse_args()
    options.undercroft = options.undercroft.resolve()
    for kind in (MariaDb, Postgres):
        if options.database and kind.name not in options.database:
            continue
        with tempfile.TemporaryDirectory() as folder:
            home = pathlib.Path(folder)
            home.chmod(0o755)
            for name in ("fuse", "files"):
                (home / name).mkdir()
            database = kind(home, options.pool)
            with Volume(home, options.undercroft, "access", options.cache):
                database.create()
                with running(database, 512):
                    database.prepare()
                    said = tpcc(options, database, "--threads", 2, "prepare", "--no-check")
                    if "Finished" not in said:
                        raise SystemExit(said)
            # Direct I/O has no page cache to go past.
            arms = [arm for arm in ARMS if kind.buffered or arm != "the same, past the page cache"]
            rows = {arm: [] for arm in arms}
            for number in range(options.rounds):
                first = number % len(arms)
                for arm in arms[first:] + arms[:first]:
                    rows[arm].append(measure(options, database, arm))
            sizes = f"{options.pool} MiB of its own, {options.cache} of the server's, {options.warehouses} warehouses"
            print(f"\n{kind.name}, {sizes}, {options.threads} threads, disk {options.disk or 'as it is'}\n")
            table({arm if kind.buffered else arm.replace(", past it", ""): runs for arm, runs in rows.items()})


if __name__ == "__main__":
    main()
