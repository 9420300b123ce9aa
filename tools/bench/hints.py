"""What hints cost: reads that all hit, with a message of evictions in front of every so many of them,
and without, in turn. Prints a table with medians and ranges.

  hints.py UNDERCROFT [--against OTHER] [--rounds N] [--seconds S] [--instructions]

The volume keeps what is read (on-hit=keep), and the blocks that are said to be evicted are in the cache: so every hint
costs what the policy does about a block, and nothing is read back.

With --instructions the server runs under callgrind instead, once for each way, with access-based placement as well:
slow, but the same on a machine that is busy. With --against both are compared with those of another program.
"""

import argparse
import contextlib
import subprocess

from common import STRICT, Callgrind, Case, Server, compare, load, spread

HINTS = (16, 64)
# The volumes of one way to place blocks and of the other, of so many MiB.
ACCESS = "d=mem:,size={0}MiB,policy=mq,cache={1}MiB"
EVICTION = f"{ACCESS},placement=eviction,on-hit=keep,reloads=at-once"


@contextlib.contextmanager
def filled(program, volume, mib, wrapper=()):
    """A server that has every block of its volume in the cache."""
    with Server(program, "--volume", volume.format(mib, mib * 3 // 2 + 8), wrapper=wrapper) as server:
        # Who tells nothing is served by access: from here on every block is resident.
        load(program, server.uri(), "--depth", 64, "--seconds", 3, "--sequential")
        yield server


def measure(loader, server, seconds, hints=None):
    """Reads a second of a client that tells what it evicts, and the server's processor time of each, in us."""
    before = server.cpu_s()
    more = [] if hints is None else ["--hints", hints]
    report = load(loader, server.uri(), "--depth", 64, "--seconds", seconds, *more)
    return report["requests_per_s"], (server.cpu_s() - before) / report["read"]["count"] * 1e6


def instructions(program, loader, volume, seconds, hints=None, mib=32, more=("--depth", 64)):
    """Of the server's program for each request of a load. How many requests come together depends on the machine, so
    that a count varies by some percent."""
    callgrind = Callgrind("--instr-atstart=no")
    with filled(program, volume, mib, callgrind.wrapper) as server:
        switch = lambda to: subprocess.run(["callgrind_control", "-i", to, str(server.process.pid)],
                                           check=True, capture_output=True)
        switch("on")
        more = [*more] if hints is None else ["--hints", hints, *more]
        report = load(loader, server.uri(), "--seconds", seconds, *more)
        switch("off")
    return callgrind.count() / sum(report[kind]["count"] for kind in ("read", "write") if report.get(kind))


def print_instructions(program, seconds):
    print("| | instructions of the server's program a read | more than without hints |\n| --- | --- | --- |")
    count = lambda volume, hints: instructions(program, program, volume, seconds, hints)
    print(f"| access | {count(ACCESS, None):.0f} | |", flush=True)
    without = count(EVICTION, 0)
    print(f"| eviction, without hints | {without:.0f} | |", flush=True)
    for hints in HINTS:
        told = count(EVICTION, hints)
        print(f"| eviction, {hints} hints a message | {told:.0f} | {told - without:.0f} |", flush=True)


def print_rates(program, rounds, seconds):
    with filled(program, EVICTION, 128) as server:
        of = lambda hints: measure(program, server, seconds, hints)
        measured = [{hints: of(hints) for hints in (0, *HINTS)} for _ in range(rounds)]
    print("| hints a message | of the rate without | CPU us a read | without |\n| --- | --- | --- | --- |")
    for hints in HINTS:
        rates = [one[hints][0] / one[0][0] for one in measured]
        costs = [[one[which][1] for one in measured] for which in (hints, 0)]
        print(f"| {hints} | {spread(rates)} | {spread(costs[0])} | {spread(costs[1])} |")


def cases(stack, loader, seconds, is_exact):
    """Hints to compare two programs in, under the load of one."""
    servers = {}

    def cost(program, hints):
        if program not in servers:
            servers[program] = stack.enter_context(filled(program, EVICTION, 64))
        return measure(loader, servers[program], seconds, hints)[1]

    def count(program, hints):
        return instructions(program, loader, EVICTION, seconds, hints)

    of, unit = (count, "instructions a read") if is_exact else (cost, "server CPU, us a read")
    for hints in HINTS[1:] if is_exact else HINTS:
        name = f"reads, {hints} hints a message"
        yield Case(name, unit, lambda program, hints=hints: of(program, hints), STRICT, 3 if is_exact else 0)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("undercroft")
    parser.add_argument("--against", metavar="OTHER", help="compare with another program")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2, help="of each run")
    parser.add_argument("--instructions", action="store_true")
    options = parser.parse_args()
    if options.against:
        with contextlib.ExitStack() as stack:
            which = list(cases(stack, options.against, options.seconds, options.instructions))
            compare(options.against, options.undercroft, which, options.rounds)
    elif options.instructions:
        print_instructions(options.undercroft, options.seconds)
    else:
        print_rates(options.undercroft, options.rounds, options.seconds)


if __name__ == "__main__":
    main()
