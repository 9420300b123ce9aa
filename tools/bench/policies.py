"""What a policy costs a server beside MQ: reads that all hit, and reads of which three in four miss, in turn.

  policies.py UNDERCROFT [POLICY ...] [--rounds N] [--seconds S] [--instructions]

Prints a table of the rate and the server's processor time a read, as ratios of the same round. With --instructions the
server runs under callgrind once for each: slow, but the same on a machine that is busy.
"""

import argparse
import contextlib

from common import spread
from hints import filled, instructions, measure

BASIS = "mq"
MIB = 64
# Volumes whose cache has room for all blocks, and for one in four.
VOLUMES = {
    "reads that hit": "d=mem:,size={0}MiB,cache={1}MiB,adviser=no",
    "one in four hits": f"d=mem:,size={{0}}MiB,cache={MIB // 4}MiB,adviser=no",
}


def print_rates(options):
    print("| | policy | of the rate with MQ | CPU of MQ's | CPU us a read |\n| --- | --- | --- | --- | --- |")
    for name, volume in VOLUMES.items():
        with contextlib.ExitStack() as stack:
            servers = {
                policy: stack.enter_context(filled(options.undercroft, f"{volume},policy={policy}", MIB))
                for policy in (BASIS, *options.policies)
            }
            rounds = [
                {policy: measure(options.undercroft, server, options.seconds) for policy, server in servers.items()}
                for _ in range(options.rounds)
            ]
        for policy in options.policies:
            rates = [one[policy][0] / one[BASIS][0] for one in rounds]
            costs = [one[policy][1] / one[BASIS][1] for one in rounds]
            used = spread([one[policy][1] for one in rounds])
            print(f"| {name} | {policy} | {spread(rates)} | {spread(costs)} | {used} |", flush=True)


def print_instructions(options):
    print("| | policy | instructions of the server's program a read | of MQ's |\n| --- | --- | --- | --- |")
    for name, volume in VOLUMES.items():
        basis = None
        for policy in (BASIS, *options.policies):
            count = instructions(options.undercroft, options.undercroft, f"{volume},policy={policy}", options.seconds)
            basis = basis or count
            print(f"| {name} | {policy} | {count:.0f} | {count / basis:.3f} |", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("undercroft")
    parser.add_argument("policies", nargs="*", default=["auto", "lru"])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=1, help="of each run")
    parser.add_argument("--instructions", action="store_true")
    options = parser.parse_args()
    (print_instructions if options.instructions else print_rates)(options)


if __name__ == "__main__":
    main()
