"""What schemes over three levels cost beside LRU over two: whole commands, run in turn, with the
user and system time of each.

Three levels a : 2a : 4a with each scheme, against two levels a : 4a of LRU, on the traces that are
there (UNDERCROFT_TRACES, else ../shared/traces, and what `make bench` generated). Prints a table
with medians of the rounds and their ranges; a trace that is not there is named and left out.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess

# Name, file, blocks of the first level. Traces in target/bench are made by `make bench`.
TRACES = [
    ("OLTP", "arc/OLTP.lis.zst", 1000),
    ("sprite", "lirs/sprite.trc.zst", 200),
    ("multi3", "lirs/multi3.trc.zst", 500),
    ("postgres-L1", "recorded/postgres-tpcc10w-L1.csv.zst", 2000),
    ("cloudPhysics", "vscsi/cloudPhysicsIO.vscsi", 4000),
    ("P3", "arc/P3.lis.zst", 10000),
    ("P6", "arc/P6.lis.zst", 10000),
    ("zipf-1.0-1", "target/bench/zipf-1.0-1.uct", 15000),
]
SCHEMES = ["d-hfa", "h-hfa", "p-hfa", "hint-k"]
# Three levels are to take no more than so many times what LRU takes over two.
TARGET = 4.0


def levels(*sizes):
    return [word for i, size in enumerate(sizes, 1) for word in (f"--l{i}", f"{size}blk:lru")]


def measure(program, trace, arguments):
    """Processor time of the whole command and of the simulation alone, and block requests made."""
    command = [program, "simulate", str(trace), "--json", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        report = json.loads(process.stdout.read())
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"bench-hierarchies: {' '.join(command)} failed")
    requests = report["requests_per_s"] * report["elapsed_s"]
    return used.ru_utime + used.ru_stime, report["cpu_s"], requests


def spread(values):
    return f"{statistics.median(values):.2f} ({min(values):.2f}-{max(values):.2f})"


def compare(program, trace, first, rounds):
    """The rows of a trace: a scheme, its ratios, and the time of a request."""
    ways = {"lru": levels(first, 4 * first)}
    three = levels(first, 2 * first, 4 * first)
    ways |= {scheme: [*three, "--placement", scheme] for scheme in SCHEMES}
    measured = [
        {way: measure(program, trace, arguments) for way, arguments in ways.items()}
        for _ in range(rounds)
    ]
    for way in ways:
        ratios = [[one[way][part] / one["lru"][part] for one in measured] for part in (0, 1)]
        request = statistics.median(one[way][1] / one[way][2] for one in measured) * 1e9
        yield way, ratios, request


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("undercroft")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="one round")
    parser.add_argument("--only", nargs="+", metavar="TRACE", help="these traces")
    options = parser.parse_args()
    folder = pathlib.Path(os.environ.get("UNDERCROFT_TRACES", "../shared/traces"))
    print("| trace | first level | scheme | command | | simulation | ns a request |")
    print("| --- | --- | --- | --- | --- | --- | --- |", flush=True)
    for name, path, first in TRACES:
        if options.only and name not in options.only:
            continue
        trace = pathlib.Path(path) if path.startswith("target/") else folder / path
        if not trace.exists():
            print(f"| {name} | | {trace} is not there | | | | |", flush=True)
            continue
        rounds = 1 if options.quick else options.rounds
        for way, ratios, request in compare(options.undercroft, trace, first, rounds):
            if way == "lru":
                cells = ["lru, two levels", "1", "", "1"]
            else:
                command, simulation = ratios
                verdict = "met" if statistics.median(command) <= TARGET else "**missed**"
                cells = [way, spread(command), verdict, spread(simulation)]
            cells = [name, str(first), *cells, f"{request:.1f}"]
            print("| " + " | ".join(cells) + " |", flush=True)


main()
