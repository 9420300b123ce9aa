"""What content awareness costs a server: a trace played through it with each way to know, and without, in turn.

By default the processor's time of the server for each request, and the rate, as medians of several rounds. With
--instructions the server runs under callgrind once for each way: slow, but the same on a machine that is busy.
"""

import argparse

from common import Callgrind, Server, child_report, spread

BLOCKS = 4000
# A name, the server's policy, and what the client is and says.
WAYS = [
    ("lru above lru", "lru", ["--l1", "lru", "--single"]),
    ("the same, with --probe", "lru", ["--l1", "lru", "--probe"]),
    ("lru-ca above lru, exact", "lru", ["--l1", "lru-ca", "--batch", "16"]),
    ("lru-ca above lru, bloom", "lru", ["--l1", "lru-ca,knows=bloom", "--batch", "16"]),
    ("lru-ca above lru, emulation", "lru", ["--l1", "lru-ca,knows=emulation", "--below", f"{BLOCKS}blk:lru"]),
    ("lru above lru-ca, exact", "lru-ca", ["--l1", "lru", "--report", "evictions", "--batch", "16"]),
    ("lru above lru-ca, bloom", "lru-ca,knows=bloom", ["--l1", "lru", "--report", "digest", "--batch", "16"]),
    ("lru above lru-ca, emulation", f"lru-ca,knows=emulation,client-cache={BLOCKS * 4}KiB", ["--l1", "lru", "--single"]),
    ("lru-ca above lru-ca, exact", "lru-ca", ["--l1", "lru-ca", "--report", "evictions", "--batch", "16"]),
]


def serve(program, policy, wrapper=()):
    return Server(program, "--volume", f"d=mem:,size=16GiB,cache={BLOCKS * 4}KiB,policy={policy}", wrapper=wrapper)


def play(program, trace, server, client, depth):
    client = [f"{BLOCKS}blk:{word}" if before == "--l1" else word for before, word in zip([""] + client, client)]
    command = [program, "replay", trace, "--to", server.uri(), "--block", "4KiB", "--depth", depth, *client]
    return child_report(*command)[0]


def instructions(options, way, trace):
    """Of the server for each request that reaches it, without those of its start."""
    totals = []
    for is_played in (False, True):
        callgrind = Callgrind()
        with serve(options.undercroft, way[1], callgrind.wrapper) as server:
            report = play(options.undercroft, trace, server, way[2], options.depth) if is_played else None
        totals.append(callgrind.count())
    return (totals[1] - totals[0]) / report["requests_sent"], report


def print_instructions(options):
    print("| | instructions of the server a request | against the first | news, bytes a request |")
    print("| --- | --- | --- | --- |")
    first = None
    for way in WAYS:
        count, report = instructions(options, way, options.trace)
        first = first or count
        news = (report.get("known") or {}).get("news_bytes", 0) / report["requests_sent"]
        print(f"| {way[0]} | {count:.0f} | {100 * (count / first - 1):+.1f} % | {news:.1f} |", flush=True)


def print_times(options):
    rounds = {way[0]: [] for way in WAYS}
    for _ in range(options.rounds):
        for way in WAYS:
            with serve(options.undercroft, way[1]) as server:
                before = server.cpu_s()
                report = play(options.undercroft, options.trace, server, way[2], options.depth)
                used = server.cpu_s() - before
            rounds[way[0]].append((used / report["requests_sent"] * 1e6, report["requests_per_s"], used))
    print("| | CPU of the server, us a request | s in all | requests a second |\n| --- | --- | --- | --- |")
    for name, runs in rounds.items():
        cpu, rate, used = zip(*runs)
        print(f"| {name} | {spread(cpu)} | {spread(used)} | {spread(rate, 0)} |")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("undercroft")
    parser.add_argument("trace")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--depth", type=int, default=16)
    parser.add_argument("--instructions", action="store_true")
    options = parser.parse_args()
    (print_instructions if options.instructions else print_times)(options)


if __name__ == "__main__":
    main()
