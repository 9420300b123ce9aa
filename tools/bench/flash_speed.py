"""How fast a level on flash answers beside the raw file that it lies in, beside hits in memory, and
beside the filter `cache` of nbdkit, and beside the library foyer; and what a level costs hits in
memory. flash.py runs it.

Stores below a cache on a disk answer after 2 ms, as no read of them must be taken for a hit. And
each run is checked by the server's counters, by what the process has read from the disk, and by
O_DIRECT on the level's file: figures of anything else than what they are called are an error.

All reads are of 4 KiB at random, on one connection. fio reads the raw file and over NBD, so that
its own time is on both sides; latencies begin before a request is submitted. Over NBD fio itself is
slow at depth 32, as its hits in memory show. So `undercroft bench nbd` compares two servers that
have everything in memory, and reads from flash once more. foyer has no server: it is called in a
loop within its own process (the folder `foyer`), so what NBD and its socket cost is ours alone.

The server with the level has no adviser: of a cache of 4 MiB it would simulate every request, of one
that is an eighth of the level, one block in 88.

Not here: s3backer, which has a cache on a disk, too. Debian 12 has 1.5.4, which is a file system
in FUSE before an object store, and no NBD server.
"""

import contextlib
import dataclasses
import functools
import json
import os
import pathlib
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

from common import Server, child, child_report, cpu_s, load, spread, stop
from server import await_listening, data_file, ratios

MIB = 1 << 20
PAGE = 4096
DELAY = "2ms"
# How often everything is read until it is on flash; what a slow device does not take is given up.
PASSES = 20
# The share of reads that may come from elsewhere than from where they should.
ELSEWHERE = 0.01
# Two servers with everything in memory take turns so often in a round, as they differ little.
SLICES = 3

RAW = ["raw psync", "raw libaio", "raw io_uring"]
FLASH, MEMORY, WITHOUT = "hit on flash", "hit in memory", "hit in memory, no level"
FLASH_OWN = "hit on flash, by bench nbd"
ON_DISK, IN_PAGES = "nbdkit cache, from disk", "nbdkit cache, page cache"
FOYER = "foyer in a loop"
# What is measured at each depth, beside the two servers with everything in memory.
AT_DEPTH = {
    1: [RAW[0], FLASH, FLASH_OWN, MEMORY, ON_DISK, IN_PAGES, FOYER],
    32: [RAW[1], RAW[2], FLASH, FLASH_OWN, MEMORY, ON_DISK, IN_PAGES, FOYER],
}
# Ours, a peer, and how many times as fast ours is to be. fio has no part in foyer's time.
BESIDE = [(FLASH, ON_DISK, 5), (FLASH, IN_PAGES, None), (FLASH_OWN, FOYER, 1)]


@dataclasses.dataclass
class Sizes:
    """Of a run, in MiB."""

    level: int = 2048
    # What is read at random: all of it on flash.
    part: int = 1024
    # Less than one in a hundred reads may hit it.
    cache: float = 4
    # What is all in memory.
    memory: int = 256


QUICK = Sizes(level=256, part=128, cache=0.5, memory=32)


def fio(name, seconds, depth, mib, *engine):
    """Reads at random: thousand a second, the median in us, and how many."""
    command = [
        "fio", f"--name={name}", "--readonly", "--rw=randread", "--bs=4k", f"--size={mib}M",
        f"--iodepth={depth}", "--time_based", f"--runtime={seconds * 1000:.0f}ms",
        # Others in each run; else the same blocks would come first again.
        "--randrepeat=0", "--lat_percentiles=1", "--clat_percentiles=0", "--output-format=json",
        *engine,
    ]  # fmt: skip
    output = child(command)[0].decode()
    job = json.loads(output[output.index("{"):])["jobs"][0]
    if job["error"]:
        sys.exit(f"{name}: fio failed")
    read = job["read"]
    median_us = read["lat_ns"]["percentile"]["50.000000"] / 1e3
    return {"speed": read["iops"] / 1e3, "p50_us": median_us, "count": read["total_ios"]}


def over_nbd(uri, seconds, depth, mib):
    return fio("nbd", seconds, depth, mib, "--ioengine=nbd", f"--uri={uri}")


def by_own(program, uri, seconds, depth):
    """As fio(), by `undercroft bench nbd`: a block may come again within a run."""
    seed = random.getrandbits(32)
    report = load(program, uri, "--depth", depth, "--seconds", seconds, "--seed", seed)
    read = report["read"]
    speed = report["requests_per_s"] / 1e3
    return {"speed": speed, "p50_us": read["p50_us"], "count": read["count"]}


def read_through(uri, mib):
    child(["fio", "--name=d", "--ioengine=nbd", f"--uri={uri}", "--readonly", "--rw=read",
           "--bs=128k", "--iodepth=1", f"--size={mib}M"])  # fmt: skip


def disk_reads(pid):
    """Blocks of 4 KiB that a process has had read from a disk so far."""
    text = pathlib.Path(f"/proc/{pid}/io").read_text()
    return int(text.split("\nread_bytes:")[1].split()[0]) / PAGE


def own_memory(pid):
    """Bytes of memory that are a process's own, in no file."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return 1024 * int(status.split("RssAnon:")[1].split()[0])


def must_be(what, part, whole, elsewhere=ELSEWHERE):
    """Ends the run unless nearly all of the whole is as it must be."""
    if part < (1 - elsewhere) * whole:
        sys.exit(f"{what}: {part:,.0f} of {whole:,.0f}; these figures would not be what they say")


def with_cpu(pid, run):
    """A run and the processor time of each of its reads, in us, of the server."""
    before = cpu_s(pid)
    figures = run()
    return figures | {"cpu_us": (cpu_s(pid) - before) * 1e6 / figures["count"]}


class Flash:
    """Our server with everything on flash, and the file that the level lies in."""

    def __init__(self, program, stack, folder, disk, sizes):
        self.program, self.sizes = program, sizes
        # Written before, as those of a drive in use: else reading it raw would read holes.
        self.file = data_file("level", sizes.level, folder)
        child([program, "flash", "format", self.file, "--size", f"{sizes.level}MiB", "--force"])
        self.server = stack.enter_context(Server(
            program, "--cache", f"{sizes.cache * MIB:.0f}",
            "--flash", f"{self.file},size={sizes.level}MiB,rule=access,budget=off",
            "--volume", f"d=delay({DELAY}):file:{disk},adviser=no",
        ))  # fmt: skip
        self.pid = self.server.process.pid
        self.check_direct()
        self.fill()

    def check_direct(self):
        """The server falls back to the page cache where a file system has no O_DIRECT."""
        for number in os.listdir(f"/proc/{self.pid}/fd"):
            with contextlib.suppress(OSError):
                is_level = os.path.samefile(f"/proc/{self.pid}/fd/{number}", self.file)
                info = pathlib.Path(f"/proc/{self.pid}/fdinfo/{number}").read_text()
                if is_level and int(info.split("flags:")[1].split()[0], 8) & os.O_DIRECT:
                    return
        sys.exit(f"{self.file}: the server does not use O_DIRECT; see --folder")

    def counters(self):
        volume = child_report(self.program, "stats", self.server.uri())[0]["volumes"]["d"]
        return {"reads": volume["reads"], "hits": volume["flash"]["hits"],
                "missed": volume["flash"]["reads"] - volume["flash"]["hits"],
                "written": volume["flash"]["written"]}  # fmt: skip

    def changes(self, run):
        """What a run gives, and what it has counted."""
        before = self.counters()
        figures = run()
        return figures, {name: value - before[name] for name, value in self.counters().items()}

    def await_written(self):
        """Until what waits to be written is written."""
        last = None
        while (now := self.counters()["written"]) != last:
            last = now
            time.sleep(0.3)

    def fill(self):
        blocks = self.sizes.part * MIB / PAGE
        for _ in range(PASSES):
            run = lambda: read_through(self.server.uri(), self.sizes.part)
            missed = self.changes(run)[1]["missed"]
            self.await_written()
            if missed <= ELSEWHERE / 10 * blocks:
                return
        sys.exit(f"{missed:,} blocks are not on flash after {PASSES} passes: it is too slow")

    def hits(self, seconds, depth):
        uri = self.server.uri()
        return self.checked(lambda: over_nbd(uri, seconds, depth, self.sizes.part))

    def own(self, seconds, depth):
        return self.checked(lambda: by_own(self.program, self.server.uri(), seconds, depth))

    def checked(self, run):
        """A run in which every read hits flash, with the processor time of the server."""
        before = disk_reads(self.pid)
        figures, counted = self.changes(lambda: with_cpu(self.pid, run))
        must_be("blocks read that hit flash", counted["hits"], counted["reads"])
        must_be("hits on flash read from the disk", disk_reads(self.pid) - before, counted["hits"])
        return figures

    def raw(self, engine, seconds, depth):
        file = f"--filename={self.file}"
        return fio("raw", seconds, depth, self.sizes.part, f"--ioengine={engine}", file,
                   "--direct=1")  # fmt: skip


class Nbdkit:
    """nbdkit with its filter `cache`, which has everything in a file on the same disk."""

    def __init__(self, stack, folder, disk, sizes):
        self.sizes, place = sizes, stack.enter_context(tempfile.TemporaryDirectory("-nbd"))
        path = os.path.join(place, "socket")
        self.uri = f"nbd+unix:///?socket={path}"
        # Blocks of 4 KiB as ours; without, it reads 64 KiB for each.
        command = ["nbdkit", "--foreground", "-U", path, "--filter=cache", "--filter=delay",
                   "file", disk, "cache-on-read=true", f"cache-min-block-size={PAGE}",
                   f"rdelay={DELAY}"]  # fmt: skip
        process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            env=os.environ | {"TMPDIR": str(folder)},
        )  # fmt: skip
        stack.callback(stop, process)
        await_listening("nbdkit", process, path, None)
        self.pid = process.pid
        read_through(self.uri, sizes.part)
        self.file = self.cache_file(folder)

    def cache_file(self, folder):
        """Its file has no name any more."""
        for link in pathlib.Path(f"/proc/{self.pid}/fd").iterdir():
            target = os.readlink(link)
            if target.startswith(str(folder)) and target.endswith("(deleted)"):
                return link
        sys.exit("nbdkit has no file for its cache")

    def to_disk(self):
        """Empties the page cache of what its file has."""
        file = os.open(self.file, os.O_RDONLY)
        os.fsync(file)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(file)

    def to_pages(self):
        with open(self.file, "rb", buffering=0) as file:
            while file.read(MIB):
                pass

    def hits(self, is_on_disk, seconds, depth):
        (self.to_disk if is_on_disk else self.to_pages)()
        before = disk_reads(self.pid)
        run = lambda: over_nbd(self.uri, seconds, depth, self.sizes.part)
        figures = with_cpu(self.pid, run)
        from_disk = disk_reads(self.pid) - before
        if is_on_disk:
            must_be("reads of nbdkit's that came from the disk", from_disk, figures["count"])
        else:
            # A virtual machine takes some pages back, and no aim depends on these figures.
            must_be("reads of nbdkit's that came from the page cache",
                    figures["count"] - from_disk, figures["count"], 10 * ELSEWHERE)  # fmt: skip
        return figures


class Foyer:
    """The library foyer in a process that has everything in files on the same disk, and reads when it
    is told to."""

    def __init__(self, loop, stack, folder, sizes):
        self.blocks = sizes.part * MIB // PAGE
        self.command = [loop, os.path.join(folder, "foyer"), self.blocks, int(sizes.cache * MIB)]
        self.begin()
        empty = own_memory(self.pid)
        self.await_all()
        self.end()
        # Anew: what it needs to write so much is not what its index takes.
        found = self.begin()
        self.await_all()
        stack.callback(self.end)
        each = (own_memory(self.pid) - empty) / self.blocks
        print(f"foyer: {found['blocks']:,} blocks are there {found['s']:.2f} s after a normal end, "
              f"{each:.1f} bytes of memory for each")  # fmt: skip

    def begin(self):
        """Starts it; what it has found."""
        command = [str(word) for word in self.command]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
        self.pid = self.process.pid
        return self.answer()

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"foyer: exit status {self.process.wait()}")
        return json.loads(line)

    def await_all(self):
        must_be("blocks that foyer has on disk", self.answer()["blocks"], self.blocks, 0)

    def end(self):
        self.process.stdin.close()
        self.process.wait()

    def read(self, seconds, depth):
        self.process.stdin.write(f"{depth} {seconds}\n")
        self.process.stdin.flush()
        return self.answer()

    def hits(self, seconds, depth):
        before = disk_reads(self.pid)
        figures = with_cpu(self.pid, lambda: self.read(seconds, depth))
        must_be("reads of foyer's that it says are from disk", figures["from_disk"], figures["count"])
        # A block lies on two pages.
        must_be("pages that foyer read", disk_reads(self.pid) - before, 2 * figures["from_disk"])
        return figures


class Memory:
    """Our server with everything in memory, with a level on flash that has the default rule, or
    without one."""

    def __init__(self, program, stack, folder, sizes, level):
        self.program, self.mib = program, sizes.memory
        volume = f"d=mem:,size={self.mib}MiB,cache={self.mib * 3 // 2}MiB"
        flash = ["--flash", f"{folder}/unused,size={self.mib}MiB"] if level else []
        self.server = stack.enter_context(Server(
            program, "--cache", f"{2 * self.mib}MiB", *flash, "--volume", volume,
        ))  # fmt: skip
        read_through(self.server.uri(), self.mib)
        if level and not self.count()["flash"]["up"]:
            sys.exit("the level on flash is not in use")

    def count(self):
        return child_report(self.program, "stats", self.server.uri())[0]["volumes"]["d"]

    def checked(self, run):
        """A run in which every read hits, with the processor time of the server."""
        before = self.count()
        figures = with_cpu(self.server.process.pid, run)
        after = self.count()
        reads, hits = (after[name] - before[name] for name in ("reads", "read_hits"))
        must_be("blocks read that hit memory", hits, reads)
        return figures

    def hits(self, seconds, depth):
        return self.checked(lambda: over_nbd(self.server.uri(), seconds, depth, self.mib))

    def own(self, seconds, depth):
        return self.checked(lambda: by_own(self.program, self.server.uri(), seconds, depth))


def in_turn(runs, is_backwards):
    """The figures of each run by its name; every other round goes backwards."""
    names = list(runs)[:: -1 if is_backwards else 1]
    return {name: runs[name]() for name in names}


def one_round(make_memory, flash, peers, seconds, is_backwards):
    """Figures by depth: of what AT_DEPTH has, and pairs of the servers with all in memory."""
    with contextlib.ExitStack() as stack:
        # Anew in each round, as memory lies otherwise in each process.
        levels = [WITHOUT, MEMORY] if is_backwards else [MEMORY, WITHOUT]
        memory = {name: make_memory(stack, level=name == MEMORY) for name in levels}
        several, pairs = {}, {}
        for depth in AT_DEPTH:
            slices = {name: functools.partial(memory[name].own, seconds / SLICES, depth)
                      for name in levels}  # fmt: skip
            pairs[depth] = [in_turn(slices, number % 2) for number in range(SLICES)]
        for depth, names in AT_DEPTH.items():
            runs = runs_at(depth, seconds, flash, memory[MEMORY], peers)
            present = {name: runs[name] for name in names if name in runs}
            several[depth] = in_turn(present, is_backwards)
    return several, pairs


def runs_at(depth, seconds, flash, memory, peers):
    """What can be measured, by its name."""
    raw = {name: functools.partial(flash.raw, name.split()[1], seconds, depth) for name in RAW}
    servers = {FLASH: flash.hits, FLASH_OWN: flash.own, MEMORY: memory.hits} | peers
    return raw | {name: functools.partial(run, seconds, depth) for name, run in servers.items()}


def print_table(title, rounds, names, basis):
    """Figures of one depth, and rates as ratios to one of them."""
    print(f"\n### {title}\n")
    print(f"| | thousand/s | p50, us | server CPU, us | x {basis} |\n|{' --- |' * 5}")
    for name in names:
        column = lambda what: [one[name][what] for one in rounds]
        cells = [spread(column("speed"), 1), spread(column("p50_us"), 1)]
        cells.append(spread(column("cpu_us")) if "cpu_us" in rounds[0][name] else "-")
        cells.append(spread(ratios(rounds, "speed", name, basis)))
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def aims(several, pairs):
    """What is aimed at: its name, values of the rounds, the bound, and whether less is better."""
    single, deep = ([one[depth] for one in several] for depth in AT_DEPTH)
    p50 = lambda one, name: one[name]["p50_us"]
    beyond = [p50(one, FLASH) - p50(one, RAW[0]) - p50(one, MEMORY) for one in single]
    yield "hit on flash, depth 1: us beyond raw and a hit in memory together", beyond, 15, True
    for name in (FLASH, FLASH_OWN):
        shares = [one[name]["speed"] / max(one[raw]["speed"] for raw in RAW[1:]) for one in deep]
        yield f"{name}, depth 32: of the raw rate, of the faster engine", shares, 0.8, False
    for depth in AT_DEPTH:
        kept = ratios(pairs[depth], "speed", MEMORY, WITHOUT)
        yield f"hits in memory, depth {depth}: with a level, of the rate without", kept, 0.97, False
    for depth, rounds in ((32, deep), (1, single)):
        for ours, other, bound in BESIDE:
            if other in rounds[0]:
                name = f"{ours}, depth {depth}: times {other}"
                yield name, ratios(rounds, "speed", ours, other), bound, False


def print_aims(rows):
    print(f"\n### Aims of a level on flash\n\n| what | aim | measured | |\n|{' --- |' * 4}")
    for name, values, bound, is_less in rows:
        median = statistics.median(values)
        is_met = bound is None or (median <= bound if is_less else median >= bound)
        aim = "-" if bound is None else f"{'<=' if is_less else '>='} {bound}"
        verdict = "" if bound is None else "met" if is_met else "**missed**"
        print(f"| {name} | {aim} | {spread(values)} | {verdict} |")


def measure(program, folder, rounds, seconds, sizes):
    """Prints the tables. `folder`: where the files are, on the disk that is measured."""
    folder = pathlib.Path(folder).resolve()
    with contextlib.ExitStack() as stack:
        disk = data_file("disk", sizes.part, folder)
        flash, peers = Flash(program, stack, folder, disk, sizes), {}
        if shutil.which("nbdkit"):
            nbdkit = Nbdkit(stack, folder, disk, sizes)
            peers[ON_DISK] = functools.partial(nbdkit.hits, True)
            peers[IN_PAGES] = functools.partial(nbdkit.hits, False)
        else:
            print("nbdkit is not installed, left out", file=sys.stderr)
        loop = pathlib.Path(program).parent / "undercroft-bench-foyer"
        if loop.exists():
            peers[FOYER] = Foyer(loop, stack, folder, sizes).hits
        else:
            print(f"there is no {loop}, foyer is left out: make bench-flash builds it", file=sys.stderr)
        make = functools.partial(Memory, program, folder=folder, sizes=sizes)
        measured = [one_round(make, flash, peers, seconds, number % 2)
                    for number in range(rounds)]  # fmt: skip
    several = [one for one, _ in measured]
    pairs = {depth: [pair for _, one in measured for pair in one[depth]] for depth in AT_DEPTH}
    for depth, names in AT_DEPTH.items():
        at_depth = [one[depth] for one in several]
        names = [name for name in names if name in at_depth[0]]
        print_table(f"Depth {depth}", at_depth, names, names[0])
    for depth in AT_DEPTH:
        title = f"All in memory, depth {depth}, by bench nbd"
        print_table(title, pairs[depth], [MEMORY, WITHOUT], WITHOUT)
    print_aims(aims(several, pairs))
