"""Speed and memory of Undercroft's simulator against libCacheSim (its Python wheel carries the C
library), interleaved run by run. Prints Markdown: medians, ranges in brackets, ratios.

  bench.py UNDERCROFT [--quick] [--rounds N] [--only policies|large|p6|sweep|curves|memory ...]
           [--policies lru,arc,...] [--against OTHER]

Ours is timed twice: the simulation alone (processor time of the simulating thread, trace already
renumbered), and the whole program with reading and renumbering. libCacheSim reads while it
simulates, so its time is always with reading; its file is memory-mapped binary. With --against the
policies of another program are measured in its place.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

from common import LOOSE, STRICT, Callgrind, Case, child, child_report, compare, spread, traces

HERE = pathlib.Path(__file__).parent
WORK = pathlib.Path("target/bench")
PAIRS = [
    # ours, theirs, target ratio of the simulation
    ("lru", "LRU", 10), ("fifo", "FIFO", 10), ("clock", "Clock", 10), ("sieve", "Sieve", 10),
    ("2q", "TwoQ", 8), ("arc", "ARC", 8), ("mq", "MQ", 8), ("s3-fifo", "S3FIFO", 8),
    ("lirs", "LIRS", 5), ("w-tinylfu", "WTinyLFU", 5), ("clock-pro", "ClockPro", 5),
    ("lru-2", "LRUK", 5), ("lfu", "LFU", 5), ("opt", "Belady", 5),
]


class Bench:
    def __init__(self, undercroft, rounds):
        self.undercroft, self.rounds = undercroft, rounds

    def trace(self, name, generator):
        """A generated trace in our format and in libCacheSim's; made once."""
        ours, theirs = WORK / f"{name}.uct", WORK / f"{name}.oraclegeneral"
        if not theirs.exists():
            child([self.undercroft, "trace", "generate", generator, "-o", ours])
            child([self.undercroft, "trace", "convert", ours, "-o", theirs])
        return self.facts(name, ours, theirs)

    def facts(self, name, ours, theirs):
        facts = json.loads(child([self.undercroft, "trace", "info", "--json", theirs])[0])
        return name, ours, theirs, facts["requests"], facts["unique_blocks"]

    def ours(self, path, policy, capacity):
        report, cpu, peak = simulate(self.undercroft, path, capacity, policy)
        return report["cpu_s"], cpu, peak, 1 - report["levels"][0]["read_hit_ratio"]

    def theirs(self, path, policy, capacity):
        output, _, _ = child([sys.executable, HERE / "peer.py", path, policy, str(capacity)])
        run = json.loads(output)
        return run["cpu_s"], run["peak_mib"], run["miss_ratio"]

    def policies(self, trace, shares, pairs):
        name, _, theirs_path, requests, unique = trace
        print(f"\n### {name}: {requests:,} requests, {unique:,} distinct blocks\n")
        print("| policy | size | ours, M/s | libCacheSim, M/s | ratio | target | with reading |"
              " memory, MiB | miss ratios |")
        print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
        for ours, theirs, target in pairs:
            for share in shares:
                capacity = max(1, unique * share // 100)
                runs = []
                for _ in range(self.rounds):
                    a = self.ours(theirs_path, ours, capacity)
                    b = self.theirs(theirs_path, theirs, capacity)
                    runs.append((a, b))
                million = requests / 1e6
                speed = [million / a[0] for a, _ in runs]
                peer = [million / b[0] for _, b in runs]
                ratio = [b[0] / a[0] for a, b in runs]
                whole = [b[0] / a[1] for a, b in runs]
                a, b = runs[-1]
                verdict = "" if statistics.median(ratio) >= target else " **missed**"
                print(f"| {ours} | {share} % | {spread(speed, 1)} | {spread(peer, 1)} | {spread(ratio, 1)}"
                      f" | {target}{verdict} | {spread(whole, 1)} | {a[2]:.0f} / {b[1]:.0f}"
                      f" | {a[3]:.4f} / {b[2]:.4f} |", flush=True)

    def sweep(self, trace):
        name, ours_path, theirs_path, _, unique = trace
        pairs = [pair for pair in PAIRS if pair[0] in
                 ("lru", "fifo", "clock", "arc", "sieve", "s3-fifo")]
        sizes = [max(1, unique * 2 ** k // 1000) for k in range(8)]
        folder = WORK / f"sweep-{os.getpid()}-{time.time():.0f}"
        listed = ",".join(f"{size}blk" for size in sizes)
        names = ",".join(pair[0] for pair in pairs)
        _, cpu, peak = child([self.undercroft, "sweep", theirs_path, "--l2", listed,
                              "--policy", names, "-o", folder])
        total = peer_peak = 0
        for _, theirs, _ in pairs:
            for size in sizes:
                peer_cpu, memory, _ = self.theirs(theirs_path, theirs, size)
                total += peer_cpu
                peer_peak = max(peer_peak, memory)
        print(f"\n### Sweep, 8 sizes x {len(pairs)} policies on {name}\n")
        print(f"ours {cpu:.1f} CPU s, {peak:.0f} MiB on all cores with reading; "
              f"libCacheSim {total:.1f} CPU s one run after the other, {peer_peak:.0f} MiB a run: "
              f"ratio {total / cpu:.1f}", flush=True)

    def curves(self, trace, oltp):
        name, ours_path, theirs_path, _, unique = trace
        print("\n### Curves\n")
        lru = [child([self.undercroft, "curve", ours_path, "--csv"])[1]
               for _ in range(self.rounds)]
        print(f"- exact LRU curve, all sizes, {name}: {spread(lru, 1)} CPU s (target 10)")
        if oltp:
            opt = [child([self.undercroft, "curve", oltp, "--policy", "opt", "--csv"])[1]
                   for _ in range(self.rounds)]
            print(f"- exact OPT curve, all sizes, OLTP: {spread(opt, 1)} CPU s (target 60)")
        sizes = [max(1000, unique * k // 100) for k in (1, 2, 5, 10, 20, 40, 60, 80)]
        listed = ",".join(f"{size}blk" for size in sizes)
        for policy in ("lru", "arc", "mq", "s3-fifo"):
            started = time.monotonic()
            output, cpu, _ = child([self.undercroft, "curve", ours_path, "--policy", policy,
                                    "--rate", "0.01", "--sizes", listed, "--json"])
            wall = time.monotonic() - started
            points = json.loads(output)["points"]
            exact = [1 - self.ours(ours_path, policy, size)[3] for size in sizes]
            error = statistics.mean(abs(point["read_hit_ratio"] - ratio)
                                    for point, ratio in zip(points, exact))
            print(f"- 1 % sample of {name}, {policy}, 8 sizes: {wall:.2f} s, {cpu:.2f} CPU s "
                  f"(target 1), mean error {error:.4f} (target 0.005)", flush=True)

    def memory(self):
        # The system's own figure for a child includes what Python held when it forked: sample.
        process = subprocess.Popen([self.undercroft, "simulate", "examples/postgres-tpcc.uct.zst",
                                    "--l1", "32MiB:lru", "--l2", "64MiB:mq"],
                                   stdout=subprocess.DEVNULL)
        peak = 0
        while process.poll() is None:
            status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
            marks = [line for line in status.splitlines() if line.startswith("VmHWM")]
            executable = "undercroft" in status.splitlines()[0]
            if marks and executable:
                peak = max(peak, int(marks[0].split()[1]) / 1024)
        print(f"\nPeak memory of the simulation that `make run` shows: {peak:.1f} MiB (target 20)")


def simulate(program, path, capacity, policy):
    """Report, processor seconds and peak memory of one level over a trace."""
    return child_report(program, "simulate", path, "--l1", f"{capacity}blk:{policy}")


def generated(program, blocks, requests):
    """A Zipf trace of so many blocks, made once."""
    path = WORK / f"against-{blocks}-{requests}.uct"
    if not path.exists():
        WORK.mkdir(parents=True, exist_ok=True)
        child([program, "trace", "generate",
               f"zipf,blocks={blocks},alpha=1,requests={requests},scramble=true", "-o", path])
    return path


def registered(program):
    """Names of the policies of a program; those of content-aware caching need a cache beside them."""
    infos, *_ = child_report(program, "policies")
    return [info["name"] for info in infos if not info["name"].endswith("-ca")]


def instructions(program, path, sizes, *options):
    """Of a sweep over one trace, read once, for each request and size beyond the first."""
    def count(sizes):
        callgrind = Callgrind()
        with tempfile.TemporaryDirectory() as folder:
            child([*callgrind.wrapper, program, "sweep", path, "--jobs", "1", "-o", folder, *options,
                   ",".join(f"{size}blk" for size in sizes)])
        return callgrind.count()

    requests = child_report(program, "trace", "info", path)[0]["requests"]
    return (count(sizes) - count(sizes[:1])) / (len(sizes) - 1) / requests


def cases(program, policies, is_exact, is_quick):
    """Policies to compare two programs in: processor time of the simulation alone, or instructions."""
    def time_of(program, policy):
        report, *_ = simulate(program, timed, 20_000, policy)
        return report["cpu_s"] / (report["requests_per_s"] * report["elapsed_s"]) * 1e9

    def count_of(program, policy):
        return instructions(program, counted, [2000, 2001, 2002], "--policy", policy, "--l2")

    timed = generated(program, 400_000, 1_000_000 if is_quick else 4_000_000)
    counted = generated(program, 40_000, 40_000 if is_quick else 200_000)
    of, unit = (count_of, "instructions a request") if is_exact else (time_of, "ns a request")
    for policy in policies or registered(program):
        limit = STRICT if policy in ("lru", "mq", "arc") else LOOSE
        yield Case(f"simulation, {policy}", unit, lambda program, policy=policy: of(program, policy), limit, 1 if is_exact else 0)


def pairs(program, is_quick):
    """Levels that exchange what they hold, to compare two programs in: processor time of the simulation alone."""
    path = generated(program, 40_000, 40_000 if is_quick else 200_000)
    for upper, lower in [("lru-ca", "lru"), ("lru", "lru-ca"), ("lru-ca,knows=bloom", "lru")]:
        def time_of(program, upper=upper, lower=lower):
            levels = ["--l1", f"4000blk:{upper}", "--l2", f"4000blk:{lower}"]
            return child_report(program, "simulate", path, *levels)[0]["cpu_s"]

        yield Case(f"simulation, {upper} above {lower}", "CPU s", time_of, LOOSE)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("undercroft")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="small traces, one round: a trial")
    parser.add_argument("--policies", default="", help="only these, as lru,arc")
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--against", metavar="OTHER", help="compare with another program")
    parser.add_argument("--instructions", action="store_true",
                        help="with --against: count them under callgrind")
    args = parser.parse_args()
    if args.against:
        policies = [policy for policy in args.policies.split(",") if policy]
        which = cases(args.against, policies, args.instructions, args.quick)
        compare(args.against, args.undercroft, which, args.rounds)
        return
    WORK.mkdir(parents=True, exist_ok=True)
    bench = Bench(args.undercroft, 1 if args.quick else args.rounds)
    pairs = [pair for pair in PAIRS if not args.policies or pair[0] in args.policies.split(",")]
    wanted = args.only or ["policies", "large", "p6", "sweep", "curves", "memory"]
    small = 10 if args.quick else 1
    z20 = bench.trace(f"zipf-1.0-{small}", "zipf,blocks=%d,alpha=1,requests=%d,scramble=true"
                      % (2_000_000 // small, 20_000_000 // small))
    if "policies" in wanted:
        bench.policies(z20, (1, 10), pairs)
    if "large" in wanted:
        z50 = bench.trace(f"zipf-0.8-{small}", "zipf,blocks=%d,alpha=0.8,requests=%d,scramble=true"
                          % (20_000_000 // small, 50_000_000 // small))
        bench.policies(z50, (1, 10), pairs)
    p6 = traces() / "arc/P6.lis.zst"
    if "p6" in wanted and p6.exists():
        # One number is one block of 512 bytes; libCacheSim gets the same numbers one by one.
        flat = WORK / "p6.oraclegeneral"
        if not flat.exists():
            child([args.undercroft, "trace", "filter", p6, "--l1", "1blk:mru", "-o", flat])
        bench.policies(bench.facts("P6", flat, flat), (1, 10), pairs)
    if "sweep" in wanted:
        bench.sweep(z20)
    if "curves" in wanted:
        oltp = traces() / "arc/OLTP.lis.zst"
        bench.curves(z20, oltp if oltp.exists() else None)
    if "memory" in wanted:
        bench.memory()


if __name__ == "__main__":
    main()
