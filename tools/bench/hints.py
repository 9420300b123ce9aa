"""What hints cost: reads that all hit, with a message of evictions in front of every so many of them,
and without, in turn. Prints a table with medians and ranges.

The volume keeps what is read (on-hit=keep), and the blocks that are said to be evicted are in the cache: so every hint
costs what the policy does about a block, and nothing is read back.

With --instructions the server runs under callgrind instead, once for each way, with access-based placement as well:
slow, but the same on a machine that is busy.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import tempfile
import time

HINTS = (16, 64)
ACCESS = "d=mem:,size=128MiB,policy=mq,cache=200MiB"
VOLUME = f"{ACCESS},placement=eviction,on-hit=keep,reloads=at-once"


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


class Server:
    """A server that has every block of its volume in the cache."""

    def __init__(self, program, folder, volume, seconds, wrapper=()):
        socket = os.path.join(folder, "socket")
        command = [*wrapper, program, "serve", "--listen", f"unix:{socket}", "--volume", volume]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while not os.path.exists(socket):
            time.sleep(0.05)
        self.uri = f"nbd+unix:///d?socket={socket}"
        # Who tells nothing is served by access: from here on every block is resident.
        run(program, self.uri, seconds, "--sequential")

    def stop(self):
        self.process.terminate()
        self.process.wait()


def instructions(program, folder, volume, hints, seconds):
    """Of the server's program for each read."""
    out = os.path.join(folder, "callgrind.out")
    wrapper = ["valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={out}"]
    server = Server(program, folder, volume, 8, wrapper)
    try:
        subprocess.run(["callgrind_control", "-i", "on", str(server.process.pid)], check=True, capture_output=True)
        more = [] if hints is None else ["--hints", str(hints)]
        reads = run(program, server.uri, seconds, *more)["read"]["count"]
    finally:
        server.stop()
    with open(out) as lines:
        return int(re.search(r"^(?:summary|totals): (\d+)", lines.read(), re.M)[1]) / reads


def compare_instructions(options, folder):
    print("| | instructions of the server's program a read | more than without hints |\n| --- | --- | --- |")
    count = lambda *way: instructions(options.undercroft, folder, *way, options.seconds)
    print(f"| access | {count(ACCESS, None):.0f} | |", flush=True)
    without = count(VOLUME, 0)
    print(f"| eviction, without hints | {without:.0f} | |", flush=True)
    for hints in HINTS:
        told = count(VOLUME, hints)
        print(f"| eviction, {hints} hints a message | {told:.0f} | {told - without:.0f} |", flush=True)


def compare_rates(options, folder):
    server = Server(options.undercroft, folder, VOLUME, 3)
    try:
        rounds = []
        for _ in range(options.rounds):
            of = lambda hints: measure(options.undercroft, server.process, server.uri, options.seconds, hints)
            rounds.append({hints: of(hints) for hints in (0, *HINTS)})
    finally:
        server.stop()
    print("| hints a message | of the rate without | CPU us a read | without |\n| --- | --- | --- | --- |")
    for hints in HINTS:
        rates = [one[hints][0] / one[0][0] for one in rounds]
        costs = [[one[which][1] for one in rounds] for which in (hints, 0)]
        print(f"| {hints} | {spread(rates)} | {spread(costs[0])} | {spread(costs[1])} |")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("undercroft")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=2, help="of each run")
    parser.add_argument("--instructions", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        (compare_instructions if options.instructions else compare_rates)(options, folder)


main()
