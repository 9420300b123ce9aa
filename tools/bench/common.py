"""What the benchmarks share: runs of programs and what they cost, a server to measure, medians with ranges, and
the comparison of two programs in turn. What is measured lies in the scripts beside this one.

Two programs are compared case by case. A case is a name, a unit and a function that measures the cost of one program;
a smaller cost is better. Its rounds alternate the order of the programs, and each round gives a ratio of its own,
so that a machine which becomes slower between two rounds spoils one ratio and not the median.
"""

import dataclasses
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time
import typing

# How long a server may take to listen, and to stop.
PATIENCE_S = 20
# No loss above so much for cached reads, writes, hints and simulations with LRU, MQ and ARC; elsewhere.
STRICT, LOOSE = 1.03, 1.10


def spread(values, digits=2):
    """Median, and the range where there is one."""
    median = f"{statistics.median(values):.{digits}f}"
    if len(values) == 1:
        return median
    return f"{median} ({min(values):.{digits}f}-{max(values):.{digits}f})"


def cpu_s(pid):
    """Processor seconds of all threads of a process so far, user and system: clock_getcpuclockid(3)."""
    return time.clock_gettime((~pid << 3) | 2)


def child(command):
    """Runs a command: its output, processor seconds and peak memory (MiB)."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    output, errors = process.stdout.read(), process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if status:
        sys.exit(f"{' '.join(map(str, command))}: {errors.decode()}")
    return output, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def child_report(*command):
    """What a command prints with --json, its processor seconds and peak memory (MiB)."""
    output, *used = child([*map(str, command), "--json"])
    return json.loads(output), *used


def load(program, uri, *options):
    """What `bench nbd` reports."""
    return child_report(program, "bench", "nbd", uri, *options)[0]


def traces():
    """Where real traces are."""
    return pathlib.Path(os.environ.get("UNDERCROFT_TRACES", "../shared/traces"))


def exactly(connection, count):
    """So many bytes from a socket; EOFError if it ends before."""
    data = b""
    while len(data) < count:
        more = connection.recv(count - len(data))
        if not more:
            raise EOFError
        data += more
    return data


def stop(process):
    """Ends a process, and waits for it."""
    process.terminate()
    try:
        process.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


# The policy of volumes that name none, as it was when the published figures were made.
POLICY = ("--policy", "mq")


class Server:
    """`undercroft serve` with volumes, on a socket of its own; a context manager."""

    def __init__(self, program, *arguments, wrapper=()):
        self.folder = tempfile.TemporaryDirectory("-nbd")
        self.socket = os.path.join(self.folder.name, "socket")
        command = [*wrapper, program, "serve", "--listen", f"unix:{self.socket}", *POLICY, *arguments]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while not os.path.exists(self.socket):
            if self.process.poll() is not None:
                sys.exit(f"{' '.join(command)}: exit status {self.process.returncode}")
            time.sleep(0.05)

    def uri(self, export="d"):
        return f"nbd+unix:///{export}?socket={self.socket}"

    def cpu_s(self):
        return cpu_s(self.process.pid)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        stop(self.process)
        self.folder.cleanup()


class Callgrind:
    """Instructions of a program under callgrind: the same on a machine that is busy, and slow."""

    def __init__(self, *options):
        self.file = tempfile.NamedTemporaryFile(suffix=".callgrind")
        self.wrapper = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={self.file.name}", *options]

    def count(self):
        """What the program has executed, once it has ended."""
        output = pathlib.Path(self.file.name).read_text()
        # The summary is 0 where counting was switched off at the end; the totals come last.
        return int(re.findall(r"^(?:summary|totals): (\d+)", output, re.M)[-1])


@dataclasses.dataclass
class Case:
    """One thing that two programs are compared in."""

    name: str
    unit: str
    # The cost of a program: less is better.
    measure: typing.Callable[[str], float]
    limit: float = LOOSE
    # Measured so often; 0: as often as the others. Once is enough for a cost that never varies.
    rounds: int = 0


BEYOND = "**beyond**"


def judge(ratios, limit):
    """What ratios say about a limit. Some rounds slower and some faster say that the machine was busy."""
    if statistics.median(ratios) <= limit:
        return ""
    return BEYOND if min(ratios) > 1 else "unclear: again"


def compare(before, after, cases, rounds):
    """Measures the cases with both programs in turn, and prints a table: the names of cases beyond their limit."""
    print("| what | cost | before | after | after / before | limit | |\n| --- | --- | --- | --- | --- | --- | --- |")
    beyond = []
    for case in cases:
        costs = {before: [], after: []}
        for number in range(case.rounds or rounds):
            for program in (before, after)[:: -1 if number % 2 else 1]:
                costs[program].append(case.measure(program))
        ratios = [one / other for one, other in zip(costs[after], costs[before])]
        verdict = judge(ratios, case.limit)
        beyond += [case.name] if verdict == BEYOND else []
        digits = 0 if statistics.median(costs[before]) >= 1000 else 2
        cells = [case.name, case.unit, *(f"{statistics.median(costs[one]):.{digits}f}" for one in (before, after))]
        cells += [spread(ratios, 3), f"{case.limit:.2f}", verdict]
        print(f"| {' | '.join(cells)} |", flush=True)
    return beyond
