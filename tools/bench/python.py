"""What a call from Python costs beside the program: the same simulation, from reading the trace to the report, in turn.
Counted is processor time; the import of the package, once a session, is told apart. Prints a table with medians and
ranges. Run it with the Python of `make python`: it must be able to import undercroft.

  python.py UNDERCROFT [TRACE] [--rounds N]
"""

import argparse
import pathlib
import time

from common import child, spread

EXAMPLE = pathlib.Path(__file__).resolve().parents[2] / "examples" / "postgres-tpcc.uct.zst"
CASES = {
    "one level, LRU": {"l1": "64MiB:lru"},
    "two levels, MQ below LRU": {"l1": "32MiB:lru", "l2": "64MiB:mq"},
    "the same, placed at eviction": {"l1": "32MiB:lru", "l2": "64MiB:mq", "placement": "eviction"},
}


def by_program(program, trace, options):
    arguments = [f"--{name}={value}" for name, value in options.items()]
    return child([program, "simulate", trace, "--json", *arguments])[1]


def by_package(package, trace, options):
    before = time.process_time()
    package.simulate(package.Trace.open(trace), **options)
    return time.process_time() - before


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("program")
    parser.add_argument("trace", nargs="?", default=str(EXAMPLE))
    parser.add_argument("--rounds", type=int, default=21)
    options = parser.parse_args()
    before = time.process_time()
    import undercroft as package

    imported = time.process_time() - before
    print(f"| {pathlib.Path(options.trace).name} | program, ms | package, ms | package / program |\n| --- | --- | --- | --- |")
    for name, case in CASES.items():
        rounds = []
        for at in range(options.rounds + 1):
            one = lambda: by_program(options.program, options.trace, case)  # noqa: E731
            two = lambda: by_package(package, options.trace, case)  # noqa: E731
            # Whoever is first finds another machine: they take turns.
            pair = (one(), two()) if at % 2 else tuple(reversed((two(), one())))
            rounds.append(pair)
        rounds = rounds[1:]
        ours, theirs = [1e3 * b for _, b in rounds], [1e3 * a for a, _ in rounds]
        ratios = [b / a for a, b in rounds]
        print(f"| {name} | {spread(theirs, 1)} | {spread(ours, 1)} | {spread(ratios)} |", flush=True)
    print(f"\nThe import takes {1e3 * imported:.0f} ms, most of it NumPy's, once a session.")


if __name__ == "__main__":
    main()
