"""Speed of Undercroft's server beside other NBD servers, interleaved run by run on one machine.
Prints Markdown: medians, ranges in brackets, and the targets with what became of them.

  server.py UNDERCROFT FLOOR [--quick] [--rounds N] [--seconds S] [--only CASE ...] [--against OTHER]

Every server has a file of 256 MiB of random bytes of its own, in the page cache, or holds as much
in memory; ours has it in its cache. All are loaded by `undercroft bench nbd`. FLOOR answers from
memory without any cache: alone from one block that stays in the processor's own cache, and, as
"floor 256M", from anywhere in 256 MiB, as a real server must. Servers that are not installed are
left out.

The case "copy" is apart: nbdcopy reads a file of 1 GiB in the page cache once, from a server that
was just started for it. With --against two programs are compared, and nothing else: reads from the cache
and writes to memory, under the load of the other one.
"""

import argparse
import contextlib
import os
import pathlib
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

from common import PATIENCE_S, POLICY, STRICT, Case, compare, cpu_s, load, spread, stop
from hints import ACCESS, filled, instructions

WORK = pathlib.Path("target/bench/server")
MIB = 1 << 20
SIZE_MIB = 256

RAM = ["undercroft", "nbdkit file", "nbdkit cache", "nbdkit memory", "qemu-nbd", "floor",
       "floor 256M"]
# Their files lie in memory, where nothing has to be cleaned.
SHM = ["undercroft through shm", "undercroft back shm", "nbdkit file shm"]
TCP = ["undercroft tcp", "nbdkit file tcp", "qemu-nbd tcp"]
CASES = {
    # name: (what it is, arguments of the load, servers, the one that ratios are to)
    "depth64": ("4 KiB random reads, depth 64", ["--depth", "64"], RAM, "nbdkit file"),
    "depth16": ("4 KiB random reads, depth 16", ["--depth", "16"], RAM, "nbdkit file"),
    "depth1": ("4 KiB random reads, depth 1", ["--depth", "1"], RAM, "nbdkit file"),
    "connections": ("4 KiB random reads, 4 connections of depth 16",
                    ["--connections", "4", "--depth", "16"], RAM, "nbdkit file"),
    "tcp": ("4 KiB random reads over TCP, depth 64", ["--depth", "64"], TCP, "nbdkit file tcp"),
    "sequential": ("64 KiB sequential reads, depth 16",
                   ["--depth", "16", "--block", "64KiB", "--sequential"], RAM, "nbdkit file"),
    "writes": ("4 KiB random writes in memory, depth 64 (ours write-through)",
               ["--depth", "64", "--reads", "0"], ["undercroft mem", "nbdkit memory"],
               "nbdkit memory"),
    "memory16": ("4 KiB random writes in memory, depth 16 (ours write-through)",
                 ["--depth", "16", "--reads", "0"], ["undercroft mem", "nbdkit memory"],
                 "nbdkit memory"),
    "memory64k": ("64 KiB random writes in memory, depth 16 (ours write-through)",
                  ["--depth", "16", "--reads", "0", "--block", "64KiB"],
                  ["undercroft mem", "nbdkit memory"], "nbdkit memory"),
    "writes16": ("4 KiB random writes, file in tmpfs, depth 16",
                 ["--depth", "16", "--reads", "0"], SHM, "nbdkit file shm"),
    "writes64": ("4 KiB random writes, file in tmpfs, depth 64",
                 ["--depth", "64", "--reads", "0"], SHM, "nbdkit file shm"),
    "writes64k": ("64 KiB random writes, file in tmpfs, depth 16",
                  ["--depth", "16", "--reads", "0", "--block", "64KiB"], SHM, "nbdkit file shm"),
    "mixed": ("4 KiB, 70 % reads, file in tmpfs, depth 16",
              ["--depth", "16", "--reads", "70"], SHM, "nbdkit file shm"),
    "disk": ("4 KiB random writes, file of the disk, depth 64",
             ["--depth", "64", "--reads", "0"],
             ["undercroft through", "undercroft back", "nbdkit file"], "nbdkit file"),
    "misses": ("4 KiB random reads that miss (cache of 1 MiB) against no cache, depth 16",
               ["--depth", "16"], ["undercroft misses", "undercroft uncached"],
               "undercroft uncached"),
}
COPY = "copy"
COPY_MIB = 1024
# Ours with a cache that holds little of the file, and all of it.
COPIES = {"undercroft small": 64, "undercroft large": COPY_MIB, "nbdkit file": None,
          "nbdkit cache": None}
COPY_TARGETS = [
    # what is at most how many times as slow as what
    ("undercroft small", "nbdkit file", 1.6),
    ("undercroft large", "undercroft small", 1.2),
]
TARGETS = [
    # case, what is compared (speed, p99_us) or bounded (cpu_us), with which server, bound; which of
    # ours, if not the first
    ("depth64", "speed", "nbdkit file", 3.0),
    ("depth64", "speed", "nbdkit cache", 9.0),
    ("depth64", "speed", "floor", 0.85),
    ("depth64", "speed", "floor 256M", 0.85),
    ("depth64", "p99_us", "nbdkit file", 1.0),
    ("depth64", "cpu_us", None, 1.7),
    ("depth16", "speed", "nbdkit file", 1.4),
    ("depth16", "p99_us", "nbdkit file", 1.0),
    ("depth16", "cpu_us", None, 2.6),
    ("connections", "speed", "nbdkit file", 2.0),
    ("sequential", "speed", "nbdkit file", 1.0),
    ("misses", "speed", "undercroft uncached", 0.85),
    ("writes", "speed", "nbdkit memory", 0.8),
    ("memory16", "speed", "nbdkit memory", 0.9),
    ("memory64k", "speed", "nbdkit memory", 0.7),
    ("writes16", "speed", "nbdkit file shm", 0.9),
    ("writes64", "speed", "nbdkit file shm", 0.9),
    ("writes64k", "speed", "nbdkit file shm", 0.9),
    ("mixed", "speed", "nbdkit file shm", 1.5),
    ("disk", "speed", "nbdkit file", 0.95),
    # With write-back.
    ("writes16", "speed", "nbdkit file shm", 1.0, "undercroft back shm"),
    ("writes64", "speed", "nbdkit file shm", 1.0, "undercroft back shm"),
    ("mixed", "speed", "nbdkit file shm", 2.2, "undercroft back shm"),
    ("disk", "speed", "nbdkit file", 1.7, "undercroft back"),
]


class Servers:
    """The servers that run, each started when it is first asked for."""

    def __init__(self, undercroft, floor, stack):
        self.undercroft, self.floor, self.stack = undercroft, floor, stack
        self.folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory("-nbd")))
        self.shm = stack.enter_context(tempfile.TemporaryDirectory("-nbd", dir="/dev/shm"))
        self.running = {}
        WORK.mkdir(parents=True, exist_ok=True)
        stack.callback(shutil.rmtree, WORK, ignore_errors=True)

    def get(self, name):
        """Process and address of a server; none if it is not installed."""
        if name not in self.running:
            self.running[name] = self.start(name)
        return self.running[name]

    def start(self, name):
        program = {"undercroft": self.undercroft, "floor": self.floor}.get(
            name.split()[0], name.split()[0])
        if not shutil.which(program):
            print(f"{name}: {program} is not installed, left out", file=sys.stderr)
            return None
        path = self.folder / f"{name.replace(' ', '-')}.sock"
        port = free_port() if name.endswith(" tcp") else None
        command, export = self.command(name, program, path, port)
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        self.stack.callback(stop, process)
        await_listening(name, process, path, port)
        uri = f"nbd://127.0.0.1:{port}/{export}" if port else \
            f"nbd+unix:///{export}?socket={path}"
        # Everything into memory: the page cache's, or the server's own.
        fill = ["--reads", "0"] if name == "nbdkit memory" else []
        if name.split()[0] != "floor":
            load(self.undercroft, uri, "--block", "1MiB", "--sequential", "--depth", "4",
                 "--seconds", "1.5", *fill)
        return process, uri

    def command(self, name, program, path, port):
        """How a server is started, and what its export is called."""
        kind = name.removesuffix(" tcp").removesuffix(" shm")
        memory = kind in ("nbdkit memory", "undercroft mem", "floor", "floor 256M")
        folder = pathlib.Path(self.shm) if name.endswith(" shm") else WORK
        data = None if memory else data_file(name.replace(" ", "-"), folder=folder)
        if program == self.undercroft:
            volume = {
                "undercroft": f"bench=file:{data},cache={SIZE_MIB}MiB",
                "undercroft through": f"bench=file:{data},cache={SIZE_MIB}MiB",
                "undercroft back": f"bench=file:{data},cache={SIZE_MIB}MiB,write=back",
                "undercroft mem": f"bench=mem:,size={SIZE_MIB}MiB,cache={SIZE_MIB}MiB",
                "undercroft misses": f"bench=file:{data},cache=1MiB",
                "undercroft uncached": f"bench=file:{data},cache=off",
            }[kind]
            listen = f"127.0.0.1:{port}" if port else f"unix:{path}"
            # A cache has some frames more than blocks: the budget must be larger.
            return [program, "serve", "--listen", listen, *POLICY, "--volume", volume,
                    "--cache", f"{2 * SIZE_MIB}MiB"], "bench"
        if program == "qemu-nbd":
            listen = ["-b", "127.0.0.1", "-p", str(port)] if port else ["-k", path]
            return [program, "--persistent", "--shared", "8", "--format", "raw",
                    "--aio", "io_uring", *listen, data], ""
        if program == "nbdkit":
            listen = ["-i", "127.0.0.1", "-p", str(port)] if port else ["-U", path]
            what = {
                "nbdkit file": ["file", data],
                "nbdkit cache": ["--filter=cache", "file", data, "cache-on-read=true"],
                "nbdkit memory": ["memory", f"{SIZE_MIB}M"],
            }[kind]
            return [program, "--foreground", *listen, *what], ""
        return [program, path, *([str(SIZE_MIB)] if kind == "floor 256M" else [])], ""

    def measure(self, name, arguments):
        """One run against a server: its figures."""
        process, uri = self.get(name)
        before = cpu_s(process.pid)
        report = load(self.undercroft, uri, *arguments)
        used = cpu_s(process.pid) - before
        kinds = [report[kind] for kind in ("read", "write") if report.get(kind)]
        times = kinds[0]
        return {
            "speed": report["requests_per_s"] / 1e3,
            "cpu_us": used * 1e6 / sum(kind["count"] for kind in kinds),
            "p50_us": times["p50_us"],
            "p99_us": times["p99_us"],
        }


def data_file(name, size_mib=SIZE_MIB, folder=WORK):
    path = folder / f"{name}.img"
    with open(path, "wb") as file:
        for _ in range(size_mib):
            file.write(os.urandom(MIB))
        # Or the machine would be busy writing it while we measure.
        os.fsync(file.fileno())
    return path


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def await_listening(name, process, path, port):
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end and process.poll() is None:
        family, address = (socket.AF_INET, ("127.0.0.1", port)) if port else \
            (socket.AF_UNIX, str(path))
        with socket.socket(family) as probe, contextlib.suppress(OSError):
            probe.connect(address)
            return
        time.sleep(0.05)
    process.kill()
    sys.exit(f"{name} does not listen: {process.stderr.read().decode()}")


def column(runs, name, what):
    return [run[name][what] for run in runs]


def ratios(runs, what, name, other):
    """Run by run, since the machine may change between rounds."""
    return [run[name][what] / run[other][what] for run in runs]


def run_case(servers, case, rounds, seconds):
    """Measures all servers in turn, prints the table, and gives the rounds."""
    title, arguments, names, basis = CASES[case]
    names = [name for name in names if servers.get(name)]
    arguments = [*arguments, "--seconds", str(seconds)]
    runs = [{name: servers.measure(name, arguments) for name in names} for _ in range(rounds)]
    with_floor = "floor" in names
    print(f"\n### {title}\n")
    print(f"| server | thousand/s | server CPU, us | p50, us | p99, us | x {basis} |"
          + (" x floor |" if with_floor else ""))
    print("| --- " * (7 if with_floor else 6) + "|")
    for name in names:
        cells = [spread(column(runs, name, what), digits) for what, digits in
                 (("speed", 1), ("cpu_us", 2), ("p50_us", 0), ("p99_us", 0))]
        for other in [basis] + (["floor"] if with_floor else []):
            cells.append(spread(ratios(runs, "speed", name, other), 2) if other in names else "-")
        print(f"| {name} | {' | '.join(cells)} |", flush=True)
    return runs


def print_targets(results):
    print("\n### Targets\n")
    print("| case | of ours | target | measured | |")
    print("| --- | --- | --- | --- | --- |")
    for case, what, other, bound, *which in TARGETS:
        runs = results.get(case)
        if not runs or (other and other not in runs[0]):
            continue
        ours = which[0] if which else CASES[case][2][0]
        values = ratios(runs, what, ours, other) if other else column(runs, ours, what)
        median = statistics.median(values)
        met = median >= bound if what == "speed" else median <= bound
        name = {"speed": "speed", "p99_us": "p99", "cpu_us": "CPU, us a request"}[what]
        sign = ">=" if what == "speed" else "<="
        print(f"| {case}{f', {ours}' if which else ''} | {name} | {sign} {bound}{f' x {other}' if other else ''}"
              f" | {spread(values, 2)} | {'met' if met else '**missed**'} |")


def copy_once(undercroft, name, data, folder):
    """Starts a server and copies everything from it to nowhere: seconds, of the server's processor
    time, and that a read of a block of 4 KiB, in us."""
    path, cache_mib = folder / "copy.sock", COPIES[name]
    if cache_mib:
        command = [undercroft, "serve", "--listen", f"unix:{path}", *POLICY, "--cache", f"{2 * COPY_MIB}MiB",
                   "--volume", f"bench=file:{data},cache={cache_mib}MiB"]
    else:
        what = {"nbdkit file": ["file", data],
                "nbdkit cache": ["--filter=cache", "file", data, "cache-on-read=true"]}[name]
        command = ["nbdkit", "--foreground", "-U", path, *what]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        await_listening(name, process, path, None)
        await_quiet(process.pid)
        before, start = cpu_s(process.pid), time.monotonic()
        subprocess.run(["nbdcopy", f"nbd+unix:///{'bench' if cache_mib else ''}?socket={path}",
                        "null:"], check=True)
        seconds, used = time.monotonic() - start, cpu_s(process.pid) - before
    finally:
        stop(process)
        path.unlink(missing_ok=True)
    return {"seconds": seconds, "cpu_us": used * 1e6 / (COPY_MIB * 256)}


def await_quiet(pid):
    """Until a server that was just started has nothing more to do: its memory is prepared."""
    last, end = -1.0, time.monotonic() + 120
    while cpu_s(pid) != last and time.monotonic() < end:
        last = cpu_s(pid)
        time.sleep(0.3)


def run_copies(undercroft, folder, rounds):
    """Copies from all servers in turn, and prints tables of times and targets."""
    missing = [name for name in ("nbdkit", "nbdcopy") if not shutil.which(name)]
    if missing:
        print(f"copy: {' and '.join(missing)} not installed, left out", file=sys.stderr)
        return
    data = data_file("copy", COPY_MIB)
    runs = [{name: copy_once(undercroft, name, data, folder) for name in COPIES}
            for _ in range(rounds)]
    data.unlink()
    print(f"\n### nbdcopy of {COPY_MIB} MiB in the page cache to nowhere, caches empty\n")
    print("| server | seconds | server CPU, us a block of 4 KiB | x nbdkit file |")
    print("| --- " * 4 + "|")
    for name in COPIES:
        cells = [spread(column(runs, name, what), 2) for what in ("seconds", "cpu_us")]
        cells.append(spread(ratios(runs, "seconds", name, "nbdkit file"), 2))
        print(f"| {name} | {' | '.join(cells)} |")
    print("\n| of ours | target | measured | |")
    print("| --- " * 4 + "|")
    for name, other, bound in COPY_TARGETS:
        values = ratios(runs, "seconds", name, other)
        met = "met" if statistics.median(values) <= bound else "**missed**"
        print(f"| {name} | <= {bound} x {other} | {spread(values, 2)} | {met} |", flush=True)


# Cases that two programs are compared in: a name, the volume, and arguments of the load. Instructions are counted
# for the first of the reads and of the writes.
AGAINST = [
    ("cached reads, depth 64", ACCESS, ["--depth", "64"]),
    ("cached reads, depth 1", ACCESS, ["--depth", "1"]),
    ("cached reads of 64 KiB, depth 16", ACCESS, ["--depth", "16", "--block", "64KiB"]),
    ("writes to memory, depth 64", ACCESS, ["--depth", "64", "--reads", "0"]),
    ("writes back, depth 64", f"{ACCESS},write=back", ["--depth", "64", "--reads", "0"]),
]


def cases(stack, loader, seconds, is_exact):
    """Cached reads and writes to compare two programs in, under the load of one."""
    servers = {}

    def cost(program, volume, arguments):
        key = program, volume
        if key not in servers:
            servers[key] = stack.enter_context(filled(program, volume, 64))
        before = servers[key].cpu_s()
        report = load(loader, servers[key].uri(), *arguments, "--seconds", seconds)
        requests = sum(report[kind]["count"] for kind in ("read", "write") if report.get(kind))
        return (servers[key].cpu_s() - before) / requests * 1e6

    def count(program, volume, arguments):
        return instructions(program, loader, volume, seconds, more=arguments)

    of, unit = (count, "instructions") if is_exact else (cost, "server CPU, us")
    for name, volume, arguments in AGAINST[::3] if is_exact else AGAINST:
        cost_of = lambda program, volume=volume, arguments=arguments: of(program, volume, arguments)
        yield Case(name, f"{unit} a request", cost_of, STRICT, 3 if is_exact else 0)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("undercroft")
    parser.add_argument("floor", nargs="?")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each run")
    parser.add_argument("--against", metavar="OTHER", help="compare with another program")
    parser.add_argument("--instructions", action="store_true",
                        help="with --against: count them under callgrind")
    parser.add_argument("--quick", action="store_true", help="one round of short runs: a trial")
    parser.add_argument("--only", nargs="*", default=[], choices=[*CASES, COPY], metavar="CASE",
                        help=" ".join([*CASES, COPY]))
    args = parser.parse_args()
    rounds, seconds = (1, 0.5) if args.quick else (args.rounds, args.seconds)
    # So that the servers are stopped also when we are.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    with contextlib.ExitStack() as stack:
        if args.against:
            which = cases(stack, args.against, seconds, args.instructions)
            compare(args.against, args.undercroft, which, rounds)
            return
        servers = Servers(args.undercroft, args.floor, stack)
        wanted = args.only or [*CASES, COPY]
        chosen = [case for case in wanted if case != COPY]
        if chosen:
            print_targets({case: run_case(servers, case, rounds, seconds) for case in chosen})
        if COPY in wanted:
            run_copies(args.undercroft, servers.folder, rounds)


if __name__ == "__main__":
    main()
