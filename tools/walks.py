"""Which code an operation runs through: files, functions and their lines, measured by coverage.

    walks.py           measures, and compares with the budgets in docs/developer/house.toml (exit code 1: above one)
    walks.py --write   measures, lowers the budgets, and writes the tables of docs/developer/architecture.md

The program is built with coverage into target/coverage. Its counters lie in a file that is mapped into it, so they are
read while it runs. A server does one operation, and 0.1 seconds later everything that the operation caused has ended;
then 0.1 seconds pass without one. A function is on the way if some counter in it changed in nearly all of nine windows
with the operation, and not in nearly all without. So what timers run is left out: twice a second is in half of the
windows, twenty times a second in those without, too. A simulated reference is what a simulation of N + 1 references
runs more often than one of N, for three N.

What runs twenty times a second and is on the way as well is left out, too: about twenty functions, most of the allocator.
The adviser is off: it would work on every request in the background, since the caches are so small. Threads do not poll
before they sleep, since how they do so depends on how busy the machine is.

A function counts with all lines of code that it has, as house.py counts them, not only with those that ran. Its closures
are part of it, and all its compiled copies are one. What `derive` and other projects wrote is not.

Not here: how fast any of it is (tools/bench).
"""

import functools
import json
import os
import pathlib
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict

import house
import pages

PAGE = pathlib.Path("docs/developer/architecture.md")
TARGET = pathlib.Path("target/coverage")
FLAGS = "-C instrument-coverage -C llvm-args=-runtime-counter-relocation"
ROUNDS, SETTLE_S = 9, 0.1
MEASURES = ("files", "functions", "lines")
BLOCK = 4096
VOLUMES = {
    "plain": "",
    "back": ",write=back,dirty-percent=1,dirty-age-s=3600",
    "told": ",placement=eviction,reloads=at-once",
}
# A cache of 512 blocks: it is full after the first requests, so that a block which enters drives one out.
SIZES = "size=16MiB,cache=2MiB,policy=mq,adviser=no"
MISSES, WARM = range(1024, 4096, 64), range(0, 1024)


def run(*command, **more):
    return subprocess.run(list(map(str, command)), check=True, stdout=subprocess.PIPE, text=True, **more).stdout


def build():
    """The program with coverage, and LLVM's tools that fit the compiler."""
    host = re.search(r"host: (\S+)", run("rustc", "-vV"))[1]
    # A target of its own keeps the flags away from build scripts.
    command = [os.environ.get("CARGO", "cargo"), "build", "--locked", "-p", "undercroft-cli"]
    command += ["--target", host, "--target-dir", TARGET, "--config", "profile.dev.debug=false"]
    # The workspace builds these at level 2, at which the compiler inlines before it counts.
    for crate in ("level", "policy", "schemes", "sim", "trace"):
        command += ["--config", f"profile.dev.package.undercroft-{crate}.opt-level=1"]
    run(*command, env=os.environ | {"RUSTFLAGS": FLAGS, "CARGO_INCREMENTAL": "0"})
    tools = pathlib.Path(run("rustc", "--print", "target-libdir").strip()).parent / "bin"
    if not (tools / "llvm-cov").exists() and shutil.which("rustup"):
        subprocess.run(["rustup", "component", "add", "llvm-tools"])
    if not (tools / "llvm-cov").exists():
        sys.exit("walks: LLVM's tools of this compiler are not there: rustup component add llvm-tools")
    return (TARGET / host / "debug/undercroft").resolve(), tools


class Coverage:
    """Counters of the program's functions, and where these stand in the sources."""

    def __init__(self, program, tools, folder):
        self.program, self.tools, self.folder = program, tools, folder

    def environment(self, name):
        return os.environ | {"LLVM_PROFILE_FILE": f"{self.folder}/{name}%c", "RUST_LOG": "error"}

    def snapshot(self, name):
        copy = tempfile.NamedTemporaryFile(dir=self.folder, delete=False).name
        return shutil.copyfile(f"{self.folder}/{name}", copy)

    @functools.lru_cache(maxsize=2)
    def counters(self, snapshot):
        shown = run(self.tools / "llvm-profdata", "show", "--all-functions", "--counts", snapshot)
        counters = defaultdict(str)
        # Each crate that uses an inline function has a copy of the same name.
        for name, counts in re.findall(r"^  (\S.*):\n((?:    .*\n)+)", shown, re.M):
            counters[name] += counts
        return counters

    def changed(self, before, after):
        """Names of functions of which some counter differs."""
        before, after = self.counters(before), self.counters(after)
        return {name for name, counts in after.items() if counts != before[name]}

    def places(self, snapshot):
        """For each function's name its file and first line, if it is ours."""
        data = f"{self.folder}/data"
        run(self.tools / "llvm-profdata", "merge", snapshot, "-o", data)
        exported = json.loads(run(self.tools / "llvm-cov", "export", self.program, f"--instr-profile={data}"))
        root = f"{pathlib.Path().resolve()}/"
        return {function["name"]: (function["filenames"][0].removeprefix(root).removeprefix("crates/"), function["regions"][0][0])
                for function in exported["data"][0]["functions"] if function["filenames"][0].startswith(root)}  # fmt: skip


class Client:
    """A connection to an export; with hints it tells the server what leaves its cache."""

    def __init__(self, path, export, with_hints=False):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(str(path))
        self.take(18)
        self.socket.sendall(struct.pack(">I", 3))
        name = struct.pack(">I", len(export)) + export.encode()
        if with_hints:
            query = b"x-undercroft:coop;v=1;client=1;key=2;want=evict"
            self.option(8, b"")
            context = self.option(10, name + struct.pack(">II", 1, len(query)) + query)[0][4:].decode()
            self.window = int(re.search(r"window=(\w+)\+", context)[1], 0)
        self.option(7, name + struct.pack(">H", 0))

    def take(self, count):
        data = b""
        while len(data) < count:
            if not (more := self.socket.recv(count - len(data))):
                sys.exit("walks: the server ended a connection")
            data += more
        return data

    def option(self, number, data):
        """What the server answers to an option before its last word."""
        self.socket.sendall(b"IHAVEOPT" + struct.pack(">II", number, len(data)) + data)
        answers = []
        while True:
            _, _, kind, length = struct.unpack(">QIII", self.take(20))
            answer = self.take(length)
            if kind == 1:
                return answers
            if kind >> 31:
                sys.exit(f"walks: option {number}: {answer.decode()}")
            answers.append(answer)

    def request(self, command, offset, length, data=b""):
        self.socket.sendall(struct.pack(">IHHQQI", 0x25609513, 0, command, 0, offset, length) + data)
        if struct.unpack(">I", self.take(4))[0] == 0x67446698:
            error, _ = struct.unpack(">IQ", self.take(12))
            if not error and command == 0:
                self.take(length)
        else:
            flags, kind, _, size = struct.unpack(">HHQI", self.take(16))
            self.take(size)
            error = kind >> 15
            assert flags & 1, "an answer in several chunks"
        if error:
            sys.exit(f"walks: request {command} fails")

    def read(self, block, blocks=1):
        self.request(0, block * BLOCK, blocks * BLOCK)

    def write(self, block):
        self.request(1, block * BLOCK, BLOCK, b"w" * BLOCK)

    def tell_evicted(self, block):
        message = struct.pack(">HHIIIQ", 1, 0, 16, 0, 0, block << 16)
        self.request(1, self.window, len(message), message)


def serve(coverage, folder):
    """What a server runs of each operation: the names of functions in each round."""
    volumes = [f"--volume={name}=file:{folder}/{name}.img,{SIZES}{more}" for name, more in VOLUMES.items()]
    config = pathlib.Path(f"{folder}/undercroft.toml")
    config.write_text("[limits]\nbusy-poll-us = 0\n")
    command = [coverage.program, "serve", "--config", config, "--listen", f"unix:{folder}/socket", "--cache=6MiB", *volumes]
    with open(f"{folder}/log", "w") as log:
        server = subprocess.Popen(command, env=coverage.environment("serve"), stdout=log, stderr=log)
    try:
        while not os.path.exists(f"{folder}/socket"):
            if server.poll() is not None:
                sys.exit(pathlib.Path(f"{folder}/log").read_text())
            time.sleep(0.05)
        return operations(coverage, f"{folder}/socket")
    finally:
        server.terminate()
        server.wait()


def operations(coverage, path):
    plain, back, told = (Client(path, name, name == "told") for name in VOLUMES)

    def rounds(work, blocks):
        """Snapshots before and after each window, one with the operation and one without in turn."""
        snapshots = [coverage.snapshot("serve")]
        for block in blocks[:ROUNDS]:
            for act in (work, lambda _: None):
                act(block)
                time.sleep(SETTLE_S)
                snapshots.append(coverage.snapshot("serve"))
        windows = list(zip(snapshots, snapshots[1:]))
        return windows[::2], windows[1::2]

    for block in WARM:
        plain.read(block)
        back.write(block)
        told.read(block)
        told.tell_evicted(block)
    resident, evicted = WARM[-ROUNDS:], MISSES[ROUNDS : 2 * ROUNDS]
    for block in resident:
        plain.read(block)
    for block in evicted:
        told.read(block)
    # As many as may be dirty, and none beside another: the next write makes one be written out.
    for block in MISSES[-8:]:
        back.write(block)
    # Until write-outs and reloads have ended.
    time.sleep(2)
    return {
        "cached read": rounds(plain.read, resident),
        "read miss": rounds(plain.read, MISSES),
        "write-back write": rounds(back.write, MISSES),
        "hint": rounds(told.tell_evicted, evicted),
    }


def simulate(coverage, folder):
    """Pairs of simulations, of which the second has one reference more. It misses the first level and hits the second."""
    found = []
    for count in (1001, 1003, 1005):
        runs = []
        for references in (count, count + 1):
            trace = pathlib.Path(f"{folder}/{references}.trc")
            trace.write_text("".join(f"{i % 100}\n" for i in range(references)))
            levels = ("--l1", "50blk:mq", "--l2", "200blk:arc")
            run(coverage.program, "simulate", trace, *levels, env=coverage.environment(trace.stem))
            runs.append(coverage.snapshot(trace.stem))
        found.append(tuple(runs))
    return found, []


@functools.cache
def functions(file):
    """The functions of a file: first and last line, and lines of code."""
    path = pathlib.Path("crates", file)
    lines, found = house.numbered_code(path if path.exists() else file), []
    for at, (number, line) in enumerate(lines):
        if house.FUNCTION.match(line):
            end = next(i for i in range(at, len(lines)) if lines[i][1].rstrip()[-1] in "{};")
            if lines[end][1].endswith("{"):
                close = line[: house.indent(line)] + "}"
                end = next(i for i in range(end, len(lines)) if lines[i][1].startswith(close))
            found.append((number, lines[end][0], end - at + 1))
    return found


def walk(names, places):
    """Files of functions with these names: {file: {first line of a function: its lines of code}}."""
    found = defaultdict(dict)
    for name in names & places.keys():
        file, line = places[name]
        inside = [function for function in functions(file) if function[0] <= line <= function[1]]
        # Code of a macro may stand in none.
        first, _, lines = max(inside, default=(line, line, 1))
        found[file][first] = lines
    return found


def on_the_way(coverage, windows, idle):
    """Names of functions that ran in nearly all windows with the operation, and not in nearly all without."""

    def often(pairs, share):
        counts = Counter(name for pair in pairs for name in coverage.changed(*pair))
        return {name for name, count in counts.items() if count >= share * len(pairs)}

    return often(windows, 0.8) - often(idle, 0.7)


def measure(coverage, folder):
    """{name of a walk: its files}."""
    windows = serve(coverage, folder)
    windows["simulated reference"] = simulate(coverage, folder)
    places = coverage.places(windows["cached read"][0][0][0])
    return {name: walk(on_the_way(coverage, *each), places) for name, each in windows.items()}


def totals(found):
    """The measures of each walk, as house.toml has them."""
    measures = {}
    for name, files in found.items():
        lines = [lines for functions in files.values() for lines in functions.values()]
        measures[name] = dict(zip(MEASURES, (len(files), len(lines), sum(lines))))
    return {"walks": measures}


def tables(found):
    """A table of the sums, and one of all files: functions and, in brackets, their lines."""
    sums = totals(found)["walks"].values()
    rows = [[measure, *(f"{each[measure]:,}" for each in sums)] for measure in MEASURES]
    files = []
    for file in sorted({file for files in found.values() for file in files}):
        ran = [walk.get(file, {}).values() for walk in found.values()]
        files.append([f"`{file}`", *(f"{len(lines)} ({sum(lines)})" if lines else "" for lines in ran)])
    return pages.table(["", *found], rows) + "\n\n" + pages.table(["file", *found], files)


def main():
    coverage = build()
    with tempfile.TemporaryDirectory(prefix="walks-") as folder:
        found = measure(Coverage(*coverage, folder), folder)
    rows = [[name, *each.values()] for name, each in totals(found)["walks"].items()]
    print(pages.table(["walk", *MEASURES], rows))
    page = PAGE.read_text()
    written = pages.put(page, "walks", tables(found))
    if "--write" in sys.argv:
        house.lower_budgets(totals(found))
        PAGE.write_text(written)
    elif written != page:
        print(f"the tables of {PAGE} are not those of today: tools/walks.py --write")
    sys.exit(house.over_budget(totals(found)))


if __name__ == "__main__":
    main()
