"""What content-aware caching is worth on real traces: python content_aware.py PROGRAM. Simulates
over the traces that are there (UNDERCROFT_TRACES, else ../shared/traces) and writes the tables into
docs/measurements/content-aware.md, between the marks of each. A trace that is not there leaves its
lines out. Where valgrind is installed the instructions are counted too.
"""

import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from pages import TRACES as FOLDER, put, table

DOC = pathlib.Path("docs/measurements/content-aware.md")
PROGRAM = sys.argv[1]
EXAMPLE = str(pathlib.Path(PROGRAM).parent / "examples/content_cost")
WARMUP = ["--warmup", "10%"]
SECTORS = ["--unit", "512", "--block", "4096"]

# Name, file, blocks of the upper level, more arguments.
TRACES = [
    ("OLTP", "arc/OLTP.lis.zst", 4000, []),
    ("postgres-L1", "recorded/postgres-tpcc10w-L1.csv.zst", 4096, WARMUP),
    ("sprite", "lirs/sprite.trc.zst", 250, []),
    ("multi1", "lirs/multi1.trc.zst", 500, []),
    ("multi2", "lirs/multi2.trc.zst", 500, []),
    ("multi3", "lirs/multi3.trc.zst", 500, []),
    ("ps", "lirs/ps.trc.zst", 500, []),
    ("cs", "lirs/cs.trc.zst", 500, []),
    ("P3", "arc/P3.lis.zst", 8192, SECTORS),
    ("P6", "arc/P6.lis.zst", 8192, SECTORS),
    ("cloudPhysicsIO", "vscsi/cloudPhysicsIO.vscsi", 32768, []),
]
RATIOS = [0.25, 0.5, 1, 2, 4]
ALPHAS = [0.1, 0.25, 0.5, 0.75, 1]
MAIN = TRACES[:3]


def simulate(trace, upper, lower, ratio=1, more=()):
    """The report of one run; sizes are the trace's, the lower level's times the ratio."""
    _, path, blocks, arguments = trace
    command = [PROGRAM, "simulate", str(FOLDER / path), "--json", "--l1", f"{blocks}blk:{upper}"]
    command += ["--l2", f"{int(blocks * ratio)}blk:{lower}", *arguments, *more]
    run = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return json.loads(run.stdout)


def disk_reads(report):
    """Blocks read from disk, because they were asked for or to be placed."""
    return report["disk"]["demand_reads"] + report["disk"]["reloads"]


def change(new, base):
    """By how many percent there are fewer (-) or more disk reads."""
    return f"{100 * (new / base - 1):+.1f}"


def ratios(traces):
    """LRU-CA above LRU against LRU above LRU, by the size of the lower level."""
    lines = []
    for trace in traces:
        cells = []
        for ratio in RATIOS:
            base = disk_reads(simulate(trace, "lru", "lru", ratio))
            cells.append(change(disk_reads(simulate(trace, "lru-ca", "lru", ratio)), base))
        lines.append([trace[0], f"{trace[2]:,}"] + cells)
    return table(["trace", "upper, blocks"] + [f"1:{ratio:g}" for ratio in RATIOS], lines)


def windows(traces):
    """The same by the width of the search, at three ratios."""
    lines = []
    for trace in traces:
        for ratio in [0.5, 1, 2]:
            base = disk_reads(simulate(trace, "lru", "lru", ratio))
            runs = [simulate(trace, f"lru-ca,alpha={a}", "lru", ratio) for a in ALPHAS]
            cells = [change(disk_reads(run), base) for run in runs]
            lines.append([trace[0] if ratio == 0.5 else "", f"1:{ratio:g}"] + cells)
    return table(["trace", "sizes"] + [f"alpha {a:g}" for a in ALPHAS], lines)


def sides(traces):
    """At the upper level, the lower, both."""
    lines = []
    for trace in traces:
        for ratio in [0.5, 1, 2]:
            base = disk_reads(simulate(trace, "lru", "lru", ratio))
            cells = []
            for upper, lower in [("-ca", ""), ("", "-ca"), ("-ca", "-ca")]:
                run = simulate(trace, "lru" + upper, "lru" + lower, ratio)
                cells.append(change(disk_reads(run), base))
            both = run["aware"][1]
            wrong = both["stale_evictions"] + both["mistaken_evictions"]
            lost = f"{100 * wrong / max(both['held_evictions'], 1):.0f}"
            lines.append([trace[0] if ratio == 0.5 else "", f"1:{ratio:g}"] + cells + [lost])
    return table(["trace", "sizes", "upper", "lower", "both", "lower wrong, % (both)"], lines)


WAYS = [
    ("nothing: LRU + LRU", "lru", "access"),
    ("prefer evicting what is below", "lru-ca", "access"),
    ("load what was evicted", "lru", "eviction,on-hit=move"),
    ("load what was evicted, adaptive", "lru", "eviction"),
    ("load, keep on a hit", "lru", "eviction,on-hit=keep"),
    ("load, keep on a hit, and prefer", "lru-ca", "eviction,on-hit=keep"),
    ("load, adaptive, and prefer", "lru-ca", "eviction"),
    ("the client sends it (gl)", "lru", "gl"),
]


def ways(traces):
    """Loading what was evicted, preferring, both: hits of both levels and disk reads."""
    heading = ["", *(f"{trace[0]} {what}" for trace in traces for what in ["hits %", "disk reads"])]
    lines = []
    for name, upper, placement in WAYS:
        cells = []
        for trace in traces:
            run = simulate(trace, upper, "lru", 1, ["--placement", placement])
            cells.append(f"{100 * run['aggregate']['read_hit_ratio']:.1f}")
            cells.append(f"{disk_reads(run):,}")
        lines.append([name] + cells)
    return table(heading, lines)


SOURCES = [
    "knows=exact",
    "knows=emulation",
    "knows=bloom,filter-bits=4,hashes=2",
    "knows=bloom",
    "knows=bloom,filter-bits=16,hashes=8",
    "knows=bloom,publish=0.05",
    "knows=bloom,filter-bits=16,hashes=8,publish=0.05",
    "knows=bloom,publish=0.2",
]


def sources(traces):
    """What knowing costs, and what errors cost."""
    lines = []
    for trace in traces:
        base = disk_reads(simulate(trace, "lru", "lru"))
        for source in SOURCES:
            run = simulate(trace, f"lru-ca,{source}", "lru")
            aware = run["aware"][0]
            held = max(aware["held_evictions"], 1)
            each = aware["summary_bytes"] / run["levels"][1]["reads"]
            formula = aware.get("false_positive_rate")
            lines.append([
                trace[0] if source == SOURCES[0] else "",
                source,
                change(disk_reads(run), base),
                f"{100 * aware['stale_evictions'] / held:.2f}",
                f"{100 * aware['mistaken_evictions'] / held:.2f}",
                "" if formula is None else f"{100 * formula:.2f}",
                f"{each:.1f}",
            ])
    heading = ["trace", "source", "disk reads %", "stale %", "mistaken %", "formula %"]
    return table(heading + ["bytes a request"], lines)


POLICIES = [("lru", "lru-ca"), ("clock", "clock-ca"), ("2q", "2q,ca"), ("arc", "arc,ca")]
POLICIES += [("mq", "mq,ca")]


def policies(traces):
    """Each content-aware policy against its own base, above LRU and above MQ."""
    lines = []
    for base, aware in POLICIES:
        cells = []
        for trace in traces:
            for lower in ["lru", "mq"]:
                plain = disk_reads(simulate(trace, base, lower))
                new = disk_reads(simulate(trace, aware, lower))
                cells.append(f"{new:,} ({change(new, plain)})")
        lines.append([aware] + cells)
    names = [f"{trace[0]}, {lower}" for trace in traces for lower in ["lru", "mq"]]
    return table(["upper"] + names, lines)


def instructions(numbers, blocks, upper):
    """Instructions a request of the two levels alone, without reading and renumbering the trace."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/out"]
        command += ["--toggle-collect=*Pair::reference*", EXAMPLE, upper, "lru", str(blocks)]
        run = subprocess.run(command, check=True, input=numbers, capture_output=True)
    collected = re.search(rb"Collected : (\d+)", run.stderr)
    return int(collected[1]) / int(run.stdout.split()[0])


COSTS = [
    ("lru", "without"),
    ("lru-ca,alpha=0", "knowing, and a window of one block"),
    ("lru-ca", "exact"),
    ("lru-ca,knows=emulation", "emulation"),
    ("lru-ca,knows=bloom", "bloom"),
    ("clock", "without"),
    ("clock-ca", "exact"),
    ("2q", "without"),
    ("2q,ca", "exact"),
    ("arc", "without"),
    ("arc,ca", "exact"),
    ("mq", "without"),
    ("mq,ca", "exact"),
]


def costs(traces):
    """Instructions of each policy and source, and how many more than without."""
    columns = {}
    for name, path, blocks, _ in traces:
        convert = [PROGRAM, "trace", "convert", str(FOLDER / path), "--to", "plain", "-o", "-"]
        numbers = subprocess.run(convert, check=True, stdout=subprocess.PIPE).stdout
        columns[name] = [instructions(numbers, blocks, upper) for upper, _ in COSTS]
    lines = []
    for i, (upper, how) in enumerate(COSTS):
        cells = []
        for counts in columns.values():
            base = counts[max(k for k in range(i + 1) if COSTS[k][1] == "without")]
            more = "" if how == "without" else f" ({change(counts[i], base)} %)"
            cells.append(f"{counts[i]:.0f}{more}")
        lines.append([upper, how] + cells)
    return table(["upper", "knowledge", *columns], lines)


def main():
    for name, path, *_ in TRACES:
        if not (FOLDER / path).exists():
            print(f"content-aware: no {FOLDER / path}: left out")
    there = [trace for trace in TRACES if (FOLDER / trace[1]).exists()]
    main_traces = [trace for trace in MAIN if trace in there]
    if not main_traces:
        return
    tables = [
        ("ratios", lambda: ratios(there)),
        ("windows", lambda: windows(main_traces)),
        ("sides", lambda: sides(there[:8])),
        ("ways", lambda: ways(main_traces)),
        ("sources", lambda: sources(main_traces)),
        ("policies", lambda: policies(main_traces)),
    ]
    if shutil.which("valgrind"):
        tables.append(("costs", lambda: costs([trace for trace in main_traces if not trace[3]])))
    else:
        print("content-aware: no valgrind: the table of instructions stays as it is")
    for mark, make in tables:
        if len(sys.argv) > 2 and mark not in sys.argv[2:]:
            continue
        DOC.write_text(put(DOC.read_text(), mark, make()))
        print(f"content-aware: {mark} is in {DOC}")


main()
