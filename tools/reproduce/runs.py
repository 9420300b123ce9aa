"""The traces that the reproduction runs on, and runs of the program over them."""

import dataclasses
import json
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor

from pages import TRACES


@dataclasses.dataclass(frozen=True)
class Trace:
    """A trace, and the cache of the client above the level that is studied."""

    name: str
    file: str
    what: str
    # Blocks of the client's cache: of the LRU that is simulated above (references), or of the cache that was there
    # while the requests were recorded; 0 if nobody knows.
    client: int
    is_references: bool
    # Options that say how it is read, and how much of it warms up and is not counted.
    options: tuple = ()
    warmup: tuple = ()
    # What stands for the client's cache where nobody knows it.
    assumed: int = 4096
    # Whether its buffer addresses tell evictions.
    tells: bool = False

    @property
    def path(self):
        return TRACES / self.file

    def is_here(self):
        return self.path.exists()

    def base(self):
        """The size that sizes are multiples of."""
        return self.client or self.assumed

    def sizes(self, *times):
        return [max(1, int(self.base() * one)) for one in times]


WARM = ("--warmup", "10%")
SECTORS = ("--unit", "512", "--block", "4KiB")
OLTP = Trace("OLTP", "arc/OLTP.lis.zst", "page references of a bank's database", 4000, True)
SPRITE = Trace("sprite", "lirs/sprite.trc.zst", "network file system, clients to server", 250, True)
POSTGRES_L1 = Trace(
    "postgres-L1", "recorded/postgres-tpcc10w-L1.csv.zst", "page references of PostgreSQL, TPC-C", 4096, True, (), WARM
)
POSTGRES = Trace(
    "postgres", "recorded/postgres-tpcc10w-sb32m.csv.zst", "PostgreSQL's requests below 32 MiB, TPC-C", 4096, False,
    (), WARM, tells=True,
)  # fmt: skip
MARIADB = Trace(
    "mariadb", "recorded/mariadb-tpcc10w-pool32m.csv.zst", "MariaDB's requests below 32 MiB, TPC-C", 2048, False,
    (), WARM, tells=True,
)  # fmt: skip
P3 = Trace("P3", "arc/P3.lis.zst", "a workstation's disk", 0, False, SECTORS)
P6 = Trace("P6", "arc/P6.lis.zst", "another workstation's disk", 0, False, SECTORS)
CLOUD = Trace("cloudPhysicsIO", "vscsi/cloudPhysicsIO.vscsi", "a virtual machine's disk", 0, False, assumed=16384)
ALL = [OLTP, SPRITE, POSTGRES_L1, POSTGRES, MARIADB, P3, P6, CLOUD]


class Program:
    """The program; each run is done once, and runs that do not depend on one another side by side."""

    def __init__(self, path, jobs=2):
        self.path, self.done, self.pool = path, {}, ThreadPoolExecutor(jobs)

    def json(self, command, *arguments, folder=()):
        """What a command prints with --json; `folder` says where it leaves what nobody wants."""
        key = (command, *map(str, arguments))
        if key not in self.done:
            run = subprocess.run([self.path, *key, *folder, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            if run.returncode:
                raise SystemExit(f"reproduce: {' '.join(map(str, [self.path, *key]))}: {run.stderr.decode()}")
            self.done[key] = json.loads(run.stdout)
        return self.done[key]

    def many(self, run, cases):
        """The results of a function for each case."""
        return list(self.pool.map(lambda case: run(*case), cases))

    def stream(self, trace, *arguments):
        """Characterises what reaches the level below the client."""
        above = ("--l1", f"{trace.client}blk:lru") if trace.is_references else ()
        return self.json("characterize", trace.path, *trace.options, *above, *arguments)

    def references(self, trace):
        """Characterises the trace itself."""
        return self.json("characterize", trace.path, *trace.options)

    def simulate(self, trace, *arguments):
        return self.json("simulate", trace.path, *trace.options, *trace.warmup, *arguments)

    def sweep(self, trace, sizes, policies, placements=("access",)):
        """The row of each (policy, placement, size) of the level below the client."""
        above = ("--l1", f"{trace.client}blk:lru") if trace.is_references else ()
        if trace.tells and placements != ("access",):
            above += ("--evictions", "cct")
        what = ("--l2", ",".join(f"{size}blk" for size in sizes))
        what += ("--policy", ",".join(policies), "--placement", ",".join(placements))
        with tempfile.TemporaryDirectory() as folder:
            rows = self.json("sweep", trace.path, *trace.options, *trace.warmup, *above, *what, folder=("-o", folder))
        # The rows are in the order of the plan.
        plan = [(policy, placement, size) for policy in policies for placement in placements for size in sizes]
        found = dict(zip(plan, rows, strict=True))
        assert all(size == row["capacity_blocks"] for (_, _, size), row in found.items())
        return found

    def hit_ratios(self, trace, sizes, policies, placements=("access",)):
        """Read hit ratios in per cent of each (policy, placement), a list along the sizes."""
        rows = self.sweep(trace, sizes, policies, placements)
        pairs = [(policy, placement) for policy in policies for placement in placements]
        return {pair: [100 * rows[*pair, size]["read_hit_ratio"] for size in sizes] for pair in pairs}
