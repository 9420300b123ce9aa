"""What content awareness costs a server: a trace played through it with each way to know, and without, in turn.

By default the processor's time of the server for each request, and the rate, as medians of several rounds. With
--instructions the server runs under callgrind once for each way: slow, but the same on a machine that is busy.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import tempfile
import time

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


def ticks(pid):
    """Processor time of a process so far, in clock ticks."""
    with open(f"/proc/{pid}/stat") as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return int(fields[11]) + int(fields[12])


class Server:
    def __init__(self, program, folder, policy, wrapper=()):
        self.socket = os.path.join(folder, "socket")
        volume = f"d=mem:,size=16GiB,cache={BLOCKS * 4}KiB,policy={policy}"
        command = [*wrapper, program, "serve", "--listen", f"unix:{self.socket}", "--volume", volume]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while not os.path.exists(self.socket):
            time.sleep(0.05)
        self.uri = f"nbd+unix:///d?socket={self.socket}"

    def stop(self):
        self.process.terminate()
        self.process.wait()
        if os.path.exists(self.socket):
            os.remove(self.socket)


def play(program, trace, uri, client, depth):
    client = [f"{BLOCKS}blk:{word}" if before == "--l1" else word for before, word in zip([""] + client, client)]
    command = [program, "replay", trace, "--to", uri, "--block", "4KiB", "--depth", str(depth), "--json", *client]
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)


def instructions(options, folder, way, trace):
    """Of the server for each request that reaches it, without those of its start."""
    out = os.path.join(folder, "callgrind.out")
    valgrind = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}"]
    totals = []
    for is_played in (False, True):
        server = Server(options.undercroft, folder, way[1], valgrind)
        report = play(options.undercroft, trace, server.uri, way[2], options.depth) if is_played else None
        server.stop()
        with open(out) as lines:
            totals.append(int(re.search(r"^(?:summary|totals): (\d+)", lines.read(), re.M)[1]))
    return (totals[1] - totals[0]) / report["requests_sent"], report


def spread(values, digits):
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("undercroft")
    parser.add_argument("trace")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--depth", type=int, default=16)
    parser.add_argument("--instructions", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if options.instructions:
            print("| | instructions of the server a request | against the first | news, bytes a request |")
            print("| --- | --- | --- | --- |")
            first = None
            for way in WAYS:
                count, report = instructions(options, folder, way, options.trace)
                first = first or count
                news = (report.get("known") or {}).get("news_bytes", 0) / report["requests_sent"]
                print(f"| {way[0]} | {count:.0f} | {100 * (count / first - 1):+.1f} % | {news:.1f} |", flush=True)
            return
        rounds = {way[0]: [] for way in WAYS}
        for _ in range(options.rounds):
            for way in WAYS:
                server = Server(options.undercroft, folder, way[1])
                before = ticks(server.process.pid)
                report = play(options.undercroft, options.trace, server.uri, way[2], options.depth)
                used = (ticks(server.process.pid) - before) / os.sysconf("SC_CLK_TCK")
                server.stop()
                rounds[way[0]].append((used / report["requests_sent"] * 1e6, report["requests_per_s"], used))
    print("| | CPU of the server, us a request | s in all | requests a second |\n| --- | --- | --- | --- |")
    for name, runs in rounds.items():
        cpu, rate, used = zip(*runs)
        print(f"| {name} | {spread(cpu, 2)} | {spread(used, 2)} | {spread(rate, 0)} |")


main()
