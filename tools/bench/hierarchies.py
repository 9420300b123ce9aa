"""What schemes cost beside LRU over the same three levels: whole commands, run in turn, with the
user and system time of each.

Three levels a : 2a : 4a with each scheme, and with LRU placed at the access, on the traces that are
there (UNDERCROFT_TRACES, else ../shared/traces, and what `make bench` generated). Prints a table
with medians of the rounds and their ranges; a trace that is not there is named and left out.
With --against the schemes of two programs are compared instead.
"""

import argparse
import pathlib
import statistics

from common import Case, child_report, compare, spread, traces

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
# A simulation with a scheme is to take no more than so many times what LRU takes.
TARGET = 10.0


def levels(*sizes):
    return [word for i, size in enumerate(sizes, 1) for word in (f"--l{i}", f"{size}blk:lru")]


def measure(program, trace, arguments):
    """Processor time of the whole command and of the simulation alone, and block requests made."""
    report, used, _ = child_report(program, "simulate", trace, *arguments)
    return used, report["cpu_s"], report["requests_per_s"] * report["elapsed_s"]


def beside_lru(program, trace, first, rounds):
    """The rows of a trace: a scheme, its ratios, and the time of a request."""
    three = levels(first, 2 * first, 4 * first)
    ways = {"lru": three}
    ways |= {scheme: [*three, "--placement", scheme] for scheme in SCHEMES}
    measured = [
        {way: measure(program, trace, arguments) for way, arguments in ways.items()}
        for _ in range(rounds)
    ]
    for way in ways:
        ratios = [[one[way][part] / one["lru"][part] for one in measured] for part in (0, 1)]
        request = statistics.median(one[way][1] / one[way][2] for one in measured) * 1e9
        yield way, ratios, request


def found(names):
    """Names, files and first levels of the wanted traces; those that are not there without a file."""
    for name, path, first in TRACES:
        if not names or name in names:
            trace = pathlib.Path(path) if path.startswith("target/") else traces() / path
            yield name, trace, trace.exists(), first


def cases(names):
    """Schemes to compare two programs in: the simulation alone."""
    for name, trace, is_there, first in found(names):
        for scheme in SCHEMES if is_there else []:
            arguments = [*levels(first, 2 * first, 4 * first), "--placement", scheme]

            def cost(program, trace=trace, arguments=arguments):
                _, seconds, requests = measure(program, trace, arguments)
                return seconds / requests * 1e9

            yield Case(f"{scheme}, {name}", "ns a request", cost)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("undercroft")
    parser.add_argument("--against", metavar="OTHER", help="compare with another program")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="one round")
    parser.add_argument("--only", nargs="+", metavar="TRACE", help="these traces")
    options = parser.parse_args()
    rounds = 1 if options.quick else options.rounds
    if options.against:
        compare(options.against, options.undercroft, cases(options.only), rounds)
        return
    print("| trace | first level | scheme | command | simulation | | ns a request |")
    print("| --- | --- | --- | --- | --- | --- | --- |", flush=True)
    for name, trace, is_there, first in found(options.only):
        if not is_there:
            print(f"| {name} | | {trace} is not there | | | | |", flush=True)
            continue
        for way, ratios, request in beside_lru(options.undercroft, trace, first, rounds):
            if way == "lru":
                cells = ["lru", "1", "1", ""]
            else:
                command, simulation = ratios
                verdict = "met" if statistics.median(simulation) <= TARGET else "**missed**"
                cells = [way, spread(command), spread(simulation), verdict]
            cells = [name, str(first), *cells, f"{request:.1f}"]
            print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
