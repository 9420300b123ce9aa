"""What a level on flash would bring: python flash.py PROGRAM [RECORDING]. Simulates designs over nine streams, with flash
eight times the size of memory, and writes the tables into docs/measurements/flash.md, between the marks of each. A trace
that is not there (UNDERCROFT_TRACES, else ../shared/traces) leaves its column out; so does RECORDING, which is a recording
of PostgreSQL 18 (tools/experiment/flash-stream.toml makes it).

Not here: speed, and what a real device does.
"""

import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from pages import TRACES, put, table

DOC = pathlib.Path("docs/measurements/flash.md")
PROGRAM = sys.argv[1]
WARMUP = ["--warmup", "20%"]
FLASH_BY_MEMORY = 8
FIO = "zipf,blocks=262144,alpha=1.1,requests=2000000,writes=0.3"


def output(*arguments):
    run = subprocess.run([PROGRAM, *map(str, arguments)], check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return run.stdout


def streams(folder):
    """[name, arguments that say what is read, blocks of memory] of each stream that there is."""
    below, fio = folder / "oltp.csv", folder / "fio.csv"
    if (TRACES / "arc/OLTP.lis.zst").exists():
        output("trace", "filter", TRACES / "arc/OLTP.lis.zst", "--l1", "1000blk:lru", "-o", below)
    output("trace", "generate", FIO, "-o", fio)
    sectors = ["--unit", "512", "--block", "4096"]
    found = [
        ("OLTP", [below, "--block", "4096"], 2000),
        ("PostgreSQL 15", [TRACES / "recorded/postgres-tpcc10w-sb32m.csv.zst"], 4096),
        ("MariaDB", [TRACES / "recorded/mariadb-tpcc10w-pool32m.csv.zst"], 2048),
        ("VMware", [TRACES / "vscsi/cloudPhysicsIO.vscsi", "--block", "4096"], 8192),
        ("P6", [TRACES / "arc/P6.lis.zst", *sectors], 4096),
        ("P3", [TRACES / "arc/P3.lis.zst", *sectors], 4096),
        ("WebSearch1", [TRACES / "spc/WebSearch1-first24783.spc.zst", "--block", "4096"], 2048),
        ("fio", [fio, "--block", "4096"], 2048),
        ("PostgreSQL 18", [*map(pathlib.Path, sys.argv[2:3]), "--block", "8192"], 2048),
    ]
    return [stream for stream in found if isinstance(stream[1][0], pathlib.Path) and stream[1][0].exists()]


# Name, and the arguments for memory of so many blocks.
def memory_only(policy):
    return lambda blocks: ["--l1", f"{blocks}blk:{policy}"]


def levels(policy, placement="access"):
    """Flash as a second level in the same order."""
    more = ["--placement", placement]
    return lambda blocks: [*memory_only(policy)(blocks), "--l2", f"{FLASH_BY_MEMORY * blocks}blk:{policy}", *more]


def flash(policy, rules=""):
    return lambda blocks: [*memory_only(policy)(blocks), "--flash", f"{FLASH_BY_MEMORY * blocks}blk{rules}"]


ACCESS, SECOND = "access, MQ over MQ", "second miss, MQ"
BASES = [
    ("memory only, MQ", memory_only("mq")),
    ("memory only, S3-FIFO", memory_only("s3-fifo")),
    ("access, LRU over LRU", levels("lru")),
    (ACCESS, levels("mq")),
    (SECOND, flash("mq", ",rule=second-miss")),
    ("demote", levels("lru", "demote")),
    ("tandem", levels("lru", "tandem")),
]
OURS = [
    (f"evidence, {name}", flash(policy))
    for name, policy in [("S3-FIFO", "s3-fifo"), ("MQ", "mq"), ("auto", "auto"), ("W-TinyLFU", "w-tinylfu"), ("LRU", "lru")]
]
ORDERS = [("slots of a server", "")] + [
    (order, f",order={order}") for order in ["fifo", "clock:bits=2", "lru", "s3-fifo", "mq", "lirs", "arc"]
]
BUDGETS = [1, 0.5, 0.25, 0.1]


def simulate(stream, design, more=()):
    """The report of one run."""
    _, what, blocks = stream
    return json.loads(output("simulate", *what, *design(blocks), *WARMUP, *more, "--json"))


def store_reads(report):
    """Reads that reach the store, in percent."""
    return 100 - 100 * report["aggregate"]["read_hit_ratio"]


def written(report):
    """Blocks written to flash for 1,000 reads; None if the design does not say."""
    if "flash" in report:
        return report["flash"]["written_per_1000_reads"]
    if len(report["levels"]) < 2 or "movement" in report:
        return None
    # A second level that places at the access: each miss and each write.
    second = report["levels"][1]
    return 1000 * (second["reads"] - second["read_hits"] + second["writes"]) / max(report["aggregate"]["reads"], 1)


def cell(report):
    blocks = written(report)
    return f"{store_reads(report):.1f}" + ("" if blocks is None else f" / {blocks:.0f}")


def by_design(runs, names, designs):
    rows = [[name, *(cell(runs[name, stream]) for stream in names)] for name, _ in designs]
    return table(["design", *names], rows)


def goals(runs, streams):
    """How far each design of ours is from the best of the others, and what it writes beside `access`."""
    rows = []
    for name, _ in OURS:
        behind, share = [], []
        for stream, *_ in streams:
            best = min(store_reads(runs[base, stream]) for base, _ in BASES[2:])
            behind.append(store_reads(runs[name, stream]) - best)
            share.append(written(runs[name, stream]) / written(runs[ACCESS, stream]))
        cells = [f"{points:+.1f}; {part:.2f}" for points, part in zip(behind, share)]
        within = f"{sum(points <= 1 for points in behind)} of {len(behind)}, worst {max(behind):+.1f}"
        rows.append([name, *cells, within])
    return table(["design", *(stream for stream, *_ in streams), "within a point"], rows)


def floors(runs, streams):
    """Blocks that lay on flash until a write ended their copy, of all that are written."""
    cell = lambda flash: f"{100 * flash['rewritten'] / flash['written']:.0f} %" if flash["written"] else "-"
    rows = [[name, *(cell(runs[name, stream]["flash"]) for stream, *_ in streams)] for name, _ in OURS]
    return table(["design", *(stream for stream, *_ in streams)], rows)


def budgets(pool, streams):
    """Less and less may be written: what is left of the hits, and of the writes."""
    rows = []
    for stream in streams:
        free = simulate(stream, flash("s3-fifo"))
        if free["flash"]["written"] < 1000:
            continue
        # At this rate the run lasts ten days.
        requests = free["trace"]["requests"]
        rate = requests / (10 * 86_400)
        bytes_a_day = free["flash"]["written"] * free["block_bytes"] / 8
        rules = [f",rate={rate:.9f},budget={int(share * bytes_a_day)}/day" for share in BUDGETS]
        runs = list(pool.map(lambda rule: simulate(stream, flash("s3-fifo", rule)), rules))
        of = lambda run, what: run["flash"][what] / max(free["flash"][what], 1)
        rows.append([stream[0], *(f"{of(run, 'written'):.2f}; {of(run, 'read_hits'):.2f}" for run in runs)])
    return table(["stream", *(f"budget {share:g}" for share in BUDGETS)], rows)


def main():
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        all_streams = streams(pathlib.Path(folder))
        names = [stream[0] for stream in all_streams]
        orders = [(name, flash("s3-fifo", rules)) for name, rules in ORDERS]
        designs = BASES + OURS + orders
        jobs = [(name, stream, design) for name, design in designs for stream in all_streams]
        reports = pool.map(lambda job: simulate(job[1], job[2]), jobs)
        runs = {(name, stream[0]): report for (name, stream, _), report in zip(jobs, reports)}
        about = [
            [
                stream[0],
                f"{report['trace']['requests']:,}",
                f"{100 * report['trace']['writes'] / report['trace']['requests']:.0f} %",
                f"{report['trace']['unique_blocks']:,} of {report['block_bytes'] // 1024} KiB",
                f"{stream[2]:,} + {FLASH_BY_MEMORY * stream[2]:,}",
            ]
            for stream in all_streams
            for report in [runs[BASES[0][0], stream[0]]]
        ]
        text = DOC.read_text()
        heading = ["stream", "requests", "writes", "distinct blocks", "memory + flash, blocks"]
        text = put(text, "streams", table(heading, about))
        text = put(text, "designs", by_design(runs, names, BASES + OURS))
        text = put(text, "goals", goals(runs, all_streams))
        text = put(text, "floors", floors(runs, all_streams))
        text = put(text, "orders", by_design(runs, names, orders))
        text = put(text, "budgets", budgets(pool, all_streams))
        DOC.write_text(text)
        print(by_design(runs, names, BASES + OURS))
        print(goals(runs, all_streams))


if __name__ == "__main__":
    main()
