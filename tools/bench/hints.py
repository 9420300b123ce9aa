"""What hints cost: reads that all hit, with a message of evictions in front of every so many of them,
and without, in turn. Prints a table with medians and ranges.

The volume keeps what is read (on-hit=keep), and the blocks that are said to be evicted are in the cache: so every hint
costs what the policy does about a block, and nothing is read back.
"""

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time

HINTS = (16, 64)
VOLUME = "d=mem:,size=128MiB,placement=eviction,on-hit=keep,reloads=at-once,policy=mq,cache=200MiB"


def ticks(process):
    """Processor time of a process so far, in clock ticks."""
    with open(f"/proc/{process.pid}/stat") as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return int(fields[11]) + int(fields[12])


def run(program, uri, seconds, *options):
    command = [program, "bench", "nbd", uri, "--depth", "64", "--seconds", str(seconds), "--json", *options]
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)


def measure(program, server, uri, seconds, hints):
    before = ticks(server)
    rate = run(program, uri, seconds, "--hints", str(hints))["requests_per_s"]
    used = (ticks(server) - before) / os.sysconf("SC_CLK_TCK")
    return rate, used / (rate * seconds) * 1e6


def spread(values):
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("undercroft")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=2, help="of each run")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        socket = os.path.join(folder, "socket")
        command = [options.undercroft, "serve", "--listen", f"unix:{socket}", "--volume", VOLUME]
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            while not os.path.exists(socket):
                time.sleep(0.05)
            uri = f"nbd+unix:///d?socket={socket}"
            # Who tells nothing is served by access: from here on every block is resident.
            run(options.undercroft, uri, 3, "--sequential")
            rounds = []
            for _ in range(options.rounds):
                of = lambda hints: measure(options.undercroft, server, uri, options.seconds, hints)
                rounds.append({hints: of(hints) for hints in (0, *HINTS)})
        finally:
            server.terminate()
            server.wait()
    print("| hints a message | of the rate without | CPU us a read | without |\n| --- | --- | --- | --- |")
    for hints in HINTS:
        rates = [one[hints][0] / one[0][0] for one in rounds]
        costs = [[one[which][1] for one in rounds] for which in (hints, 0)]
        print(f"| {hints} | {spread(rates)} | {spread(costs[0])} | {spread(costs[1])} |")


main()
