"""The load: go-tpc's TPC-C, and what it says. Counters of the server and the database are read elsewhere.

go-tpc has no rate limit. A rate is made of terminals with the keying and thinking times of the
specification (`--wait`): one makes a transaction about every 21 seconds, whatever its latency, so so many
terminals make a fixed rate. Its histograms of latency have one significant digit: a percentile is exact to
about 6 %. Its random numbers begin with the time of day, so no two runs have the same transactions.
"""

import contextlib
import math
import re
import signal
import subprocess
import threading
import time

from databases import NAME
from processes import Failure, Scope, end, run

# Mean keying and thinking time of a terminal, with the weights of the transactions.
CYCLE_S = 0.45 * (18 + 12) + 0.43 * (3 + 12) + 0.04 * (2 + 10) + 0.04 * (2 + 5) + 0.04 * (2 + 5)
LINE = re.compile(r"\[Current\] (\w+) - (Takes\(s\): .*)")
FAILED = re.compile(r"failed, err|panic|prepare statement error")


def terminals(rate):
    """Terminals that make so many transactions a minute."""
    return max(1, round(rate * CYCLE_S / 60))


def command(program, database, warehouses, *more):
    return [program, "tpcc", "--warehouses", warehouses, "--db", NAME, *database.tpcc, *more]


def prepare(program, database, warehouses):
    said = run(command(program, database, warehouses, "--threads", 2, "prepare", "--no-check"))
    # It exits with 0 whatever happens.
    if "Finished" not in said:
        raise Failure(f"go-tpc prepare: {said[-2000:]}")


class Running:
    """go-tpc while it runs. What it prints is read by a thread."""

    def __init__(self, scope, options, database, threads, interval, wait):
        more = ["--threads", threads, "--interval", f"{interval}s", "--time", "24h", "--ignore-error"]
        more += ["run", *(["--wait"] if wait else [])]
        line = command(options.go_tpc, database, database.settings.warehouses, *more)
        self.begun, self.interval, self.waits, self.lines = time.monotonic(), interval, wait, []
        pipe = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        self.process = scope.child(line, signal.SIGKILL, **pipe)
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            self.lines.append((time.monotonic(), line.rstrip("\n")))

    def watch(self):
        if self.process.poll() is not None:
            raise Failure("go-tpc has ended: " + "\n".join(line for _, line in self.lines[-20:]))

    def errors(self, since=0):
        return [line for _, line in self.lines[since:] if FAILED.search(line)]

    def interval_end(self, number):
        """Waits for the end of an interval, from 1: what was counted in it, by kind of transaction."""
        until = self.begun + number * self.interval
        late = until + 5
        while True:
            self.watch()
            found = self.found(until)
            if found:
                # Each kind has a line of its own.
                time.sleep(0.1)
                return self.found(until)
            if time.monotonic() > late:
                break
            time.sleep(0.02)
        raise Failure(f"not one transaction in {self.interval} s: " + "\n".join(self.errors()[:5]))

    def found(self, until):
        kinds = {}
        for at, line in list(self.lines):
            match = LINE.match(line)
            if match and abs(at - until) < min(5, self.interval / 2):
                values = dict(part.split(": ") for part in match[2].split(", "))
                kinds[match[1].lower()] = {
                    "count": int(values["Count"]),
                    "mean_ms": float(values["Avg(ms)"]),
                    "p50_ms": float(values["50th(ms)"]),
                    "p90_ms": float(values["90th(ms)"]),
                    "p95_ms": float(values["95th(ms)"]),
                    "p99_ms": float(values["99th(ms)"]),
                    "p999_ms": float(values["99.9th(ms)"]),
                    "max_ms": float(values["Max(ms)"]),
                }
        return kinds

    def stop(self):
        """Ends it between two transactions; terminals that think are not waited for."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(1 if self.waits else 15)
        # At the second one it ends at once.
        end(self.process, signal.SIGINT, 5)


def measured(options, database, load, server, others, read_counters):
    """Warms up until the hit ratio is steady and the cache grows no more, within the bounds of the file, and until that is
    so of other runs at the same time; then measures. Counters are read at the beginning and at the end of that time.

    One process does both: which customers and items are asked for most, go-tpc draws when it starts. Only terminals that
    think are others, since they would take hours to fill a cache."""
    with Scope() as scope:
        others.begin()
        tpcc = Running(scope, options, database, load.threads, load.seconds, False)
        warm, interval = warm_up(tpcc, load, server, others)
        if load.rate:
            tpcc.stop()
        others.begin()
        if load.rate:
            # They all begin at once with the same keying time: one interval until they are spread.
            tpcc, interval = Running(scope, options, database, terminals(load.rate), load.seconds, True), 1
        if interval:
            tpcc.interval_end(interval)
        # What failed before is not counted either.
        lines, before = len(tpcc.lines), read_counters()
        kinds = tpcc.interval_end(interval + 1)
        after = read_counters()
        tpcc.stop()
        errors = tpcc.errors(lines)
    done = {name: kind for name, kind in kinds.items() if not name.endswith("_err")}
    return warm, {
        "threads": terminals(load.rate) if load.rate else load.threads,
        "seconds": load.seconds,
        "transactions": sum(kind["count"] for kind in done.values()),
        "new_orders": done.get("new_order", {"count": 0})["count"],
        "failed": sum(kind["count"] for name, kind in kinds.items() if name.endswith("_err")),
        "errors": errors[:20],
        "kinds": kinds,
    }, before, after


def warm_up(tpcc, load, server, others):
    """Watches a warm-up: what was seen, and the interval in which it ends."""
    steps, before = [], server.stats()
    while True:
        time.sleep(max(0, tpcc.begun + (len(steps) + 1) * load.warmup_step - time.monotonic()))
        tpcc.watch()
        now = server.stats()
        reads = now["d"]["reads"] - before["d"]["reads"]
        hits = now["d"]["read_hits"] - before["d"]["read_hits"]
        steps.append(
            {
                "at_s": now["at_s"] - tpcc.begun,
                "reads": reads,
                "hit_ratio": hits / reads if reads else 0.0,
                "resident": now["d"]["resident"],
            }
        )
        before = now
        is_steady = steady(steps[-3:], load.warmup_points, now["d"]["capacity_blocks"])
        elapsed = len(steps) * load.warmup_step
        if others.all_say(elapsed >= load.warmup and is_steady or elapsed >= load.warmup_max):
            interval = math.ceil(elapsed / load.seconds)
            return {"steady": is_steady, "seconds": interval * load.seconds, "steps": steps}, interval


def steady(steps, points, capacity):
    ratios = [step["hit_ratio"] for step in steps]
    resident = [step["resident"] for step in steps]
    is_grown = max(resident) - min(resident) <= capacity / 50
    return len(steps) == 3 and 100 * (max(ratios) - min(ratios)) <= points and is_grown
