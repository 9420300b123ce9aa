"""Two programs in turn: whether one is slower than the other where it matters. Prints one table.

  against.py BEFORE AFTER [--quick] [--rounds N]

Instructions under callgrind come first: of simulations with every policy, where they never vary, and of a server for each
request, where they do by some percent. They know nothing of memory. Then processor time, in rounds.
Parts of it with more options: bench.py, hierarchies.py, server.py, hints.py and turns.py --against.
"""

import argparse
import contextlib

import bench
import hierarchies
import hints
import server
from common import compare

# Policies whose time is measured, too: those that must not lose, and some with other containers.
TIMED = ["lru", "mq", "arc"]
MORE_TIMED = ["2q", "lirs", "lru-2", "s3-fifo", "sieve", "w-tinylfu", "lfu", "clock-pro"]
SCHEMED = ["OLTP", "multi3"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("before")
    parser.add_argument("after")
    parser.add_argument("--quick", action="store_true", help="two minutes instead of ten")
    parser.add_argument("--rounds", type=int, help="of processor time; default: 9, or 5")
    options = parser.parse_args()
    quick = options.quick
    timed = TIMED if quick else [*TIMED, *MORE_TIMED]
    with contextlib.ExitStack() as stack:
        cases = [
            *bench.cases(options.before, TIMED if quick else [], True, quick),
            *([] if quick else server.cases(stack, options.before, 2, True)),
            *([] if quick else hints.cases(stack, options.before, 2, True)),
            *bench.cases(options.before, timed, False, quick),
            *bench.pairs(options.before, quick),
            *hierarchies.cases(SCHEMED[1:] if quick else SCHEMED),
            *server.cases(stack, options.before, 0.5, False),
            *hints.cases(stack, options.before, 0.5, False),
        ]
        beyond = compare(options.before, options.after, cases, options.rounds or (5 if quick else 9))
    print(f"\n{len(cases)} cases, {len(beyond)} beyond their limit{': ' if beyond else ''}{', '.join(beyond)}")


if __name__ == "__main__":
    main()
