"""How fast traces are read, in processor time of one core: python reading.py UNDERCROFT READ_SPEED [--quick].

Text formats in MB of text a second, over generated traces of 600,000 requests and, where there are real ones
(UNDERCROFT_TRACES), over those uncompressed; then a characterisation of a recorded trace, and exact distances of 50
million references to 20 million blocks. READ_SPEED is the example of lab/trace, which reads and does nothing else.
"""

import argparse
import pathlib
import random
import subprocess

from common import child, spread, traces

WORK = pathlib.Path("target/bench/reading")
# Requests of a generated trace, and references, in millions, of the trace whose distances are counted.
REQUESTS, REFERENCES_M = 600_000, 50
# A line of each text format for request number i of a block address, a length in bytes, and whether it reads.
LINES = {
    "spc": lambda i, at, length, reads: f"{i % 3},{at // 512},{length},{'rW'[not reads]},{i // 1000}.{i % 1000:03d}000",
    "msr": lambda i, at, length, reads:
        f"{128166372000000000 + i * 1000},hm,{i % 2},{'Read' if reads else 'Write'},{at},{length},{1000 + i % 977}",
    "alibaba": lambda i, at, length, reads: f"{i % 7},{'RW'[not reads]},{at},{length},{1577808000000000 + i * 37}",
    "tencent": lambda i, at, length, reads:
        f"{1538323200 + i // 1000},{at // 512},{length // 512},{int(not reads)},{1280 + i % 4}",
    "fiu": lambda i, at, length, reads:
        f"{89966 + i * 1000} 4892 syslogd {at // 512} 8 {'RW'[not reads]} 6 0 {i * 2654435761 % 2**128:032x}",
    "trace": lambda i, at, length, reads: f"{i * 1000} {i % 4} {at // 512} {length // 512} {int(reads)}",
    "lis": lambda i, at, length, reads: f"{at // 4096} {length // 4096} 0 {i}",
    "trc": lambda i, at, length, reads: f"{at // 4096}",
    "csv": lambda i, at, length, reads: f"{i * 10},{'RW'[not reads]},{at},{length}",
}  # fmt: skip
# Real ones: text that is read as it is, and a name for it.
REAL = [("OLTP.lis", "arc/OLTP.lis.zst"), ("postgres.csv", "recorded/postgres-tpcc10w-sb32m.csv.zst")]
RECORDED = "recorded/postgres-tpcc10w-sb32m.csv.zst"
DISTANCES = "zipf,blocks={blocks},alpha=0,requests={requests},scramble=true"


def texts(work, count):
    """The text traces with so many requests, made once."""
    work.mkdir(parents=True, exist_ok=True)
    source = random.Random(1)
    requests = [(source.randrange(1 << 22) * 4096, 4096 * source.choice([1, 1, 1, 2, 4]), source.random() < 0.6)
                for _ in range(count)]  # fmt: skip
    for name, line in LINES.items():
        path = work / f"generated.{name}"
        if not path.exists():
            head = "time,op,byte,size\n" if name == "csv" else ""
            path.write_text(head + "".join(line(i, *request) + "\n" for i, request in enumerate(requests)))
        yield path
    for name, file in REAL:
        path = work / name
        if (traces() / file).exists():
            if not path.exists():
                subprocess.run(["zstd", "-dqf", traces() / file, "-o", path], check=True)
            yield path


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("undercroft")
    parser.add_argument("read_speed")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="one round of small traces: a trial")
    options = parser.parse_args()
    part = 1000 if options.quick else 1
    work, rounds = WORK / ("quick" if options.quick else ""), 1 if options.quick else options.rounds
    print("| trace | format | MB | MB/s | target |\n| --- | --- | --- | --- | --- |")
    for path in texts(work, REQUESTS // part):
        runs = [child([options.read_speed, path]) for _ in range(rounds)]
        megabytes = path.stat().st_size / 1e6
        kind = runs[0][0].decode().split(": ")[1].split(",")[0]
        speeds = [megabytes / cpu for _, cpu, _ in runs]
        print(f"| {path.name} | {kind} | {megabytes:.1f} | {spread(speeds, 0)} | 200 |", flush=True)
    if (traces() / RECORDED).exists():
        runs = [child([options.undercroft, "characterize", traces() / RECORDED])[1] for _ in range(rounds)]
        print(f"\nCharacterisation of {RECORDED}: {spread(runs)} CPU s; target 2")
    millions = REFERENCES_M / part
    big, distances = work / "distances.uct", DISTANCES.format(blocks=22_500_000 // part, requests=int(millions * 1e6))
    if not big.exists():
        child([options.undercroft, "trace", "generate", distances, "-o", big])
    _, cpu, mebibytes = child([options.undercroft, "characterize", big])
    speed = f"{cpu:.1f} CPU s ({millions / cpu:.1f} M references/s; target 4)"
    print(f"\nCharacterisation of {distances}: {speed}, {mebibytes:.0f} MiB")


main()
