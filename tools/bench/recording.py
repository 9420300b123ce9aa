"""What a recording costs a server: reads that all hit, of volumes that are recorded whole, by a sample, and not at all,
in turn. Prints a table with medians and ranges.

  recording.py UNDERCROFT [--rounds N] [--seconds S] [--instructions]

With --instructions the server runs under callgrind instead, once for each way. Both count the thread that writes the
files, too.
"""

import argparse
import tempfile

import hints
from common import spread

WITHOUT = "not recorded"
WAYS = {WITHOUT: "", "recorded": ",record={0}", "a sample of 1 in 16": ",record={0},record-sample=16"}


def volume(options, folder):
    return hints.ACCESS + options.format(folder)


def measure(program, options, seconds):
    """Reads a second, and the server's processor time of each in us."""
    with tempfile.TemporaryDirectory() as folder, hints.filled(program, volume(options, folder), 64) as server:
        return hints.measure(program, server, seconds)


def print_instructions(program, ways, seconds):
    print("| | instructions of the server's program a read | against the first |\n| --- | --- | --- |")
    first = None
    for way, options in ways.items():
        with tempfile.TemporaryDirectory() as folder:
            count = hints.instructions(program, program, volume(options, folder), seconds)
        first = first or count
        print(f"| {way} | {count:.0f} | {100 * (count / first - 1):+.1f} % |", flush=True)


def print_rates(program, ways, without, rounds, seconds):
    measured = [{way: measure(program, ways[way], seconds) for way in ways} for _ in range(rounds)]
    print("| | rate, of that without | CPU a read, of that without | CPU us a read |\n| --- | --- | --- | --- |")
    for way in ways:
        rates, costs = ([one[way][n] / one[without][n] for one in measured] for n in (0, 1))
        print(f"| {way} | {spread(rates)} | {spread(costs)} | {spread([one[way][1] for one in measured])} |")


def main(ways, without):
    """Compares ways to serve a volume, by its options, with one of them."""
    parser = argparse.ArgumentParser()
    parser.add_argument("undercroft")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=2, help="of each run")
    parser.add_argument("--instructions", action="store_true")
    options = parser.parse_args()
    if options.instructions:
        print_instructions(options.undercroft, ways, options.seconds)
    else:
        print_rates(options.undercroft, ways, without, options.rounds, options.seconds)


if __name__ == "__main__":
    main(WAYS, WITHOUT)
