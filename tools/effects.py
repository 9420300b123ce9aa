"""What cooperation is worth on real traces: python effects.py PROGRAM. Sweeps over the traces that
are there (UNDERCROFT_TRACES, else ../shared/traces) and writes the tables into docs/user/cooperation.md,
between the marks of each. A trace that is not there leaves its table as it is, and is named. The
sweeps are kept in out/effects and resumed from there.
"""

import json
import pathlib
import subprocess
import sys

from pages import TRACES as FOLDER, put, table

DOC = pathlib.Path("docs/user/cooperation.md")
POLICIES = ["lru", "fbr", "2q", "mq", "arc", "lirs"]
PLACEMENTS = ["access", "eviction,on-hit=move", "eviction,on-hit=adaptive"]
NAMES = ["access", "eviction", "adaptive"]

# Mark in the document, trace, first level in blocks and whether it is simulated, more arguments.
TRACES = [
    ("oltp", "arc/OLTP.lis.zst", 4000, True, []),
    ("sprite", "lirs/sprite.trc.zst", 250, True, []),
    ("postgres-l1", "recorded/postgres-tpcc10w-L1.csv.zst", 4096, True, ["--warmup", "10%"]),
    ("postgres", "recorded/postgres-tpcc10w-sb32m.csv.zst", 4096, False, ["--warmup", "10%"]),
    ("mariadb", "recorded/mariadb-tpcc10w-pool32m.csv.zst", 2048, False, ["--warmup", "10%"]),
]

# Sizes, times the first level, at which the placement that adapts is judged.
ADAPTIVE = [0.5, 1, 2, 4, 8]

RELOADS = [
    ("access", "access"),
    ("eviction", "eviction,on-hit=move"),
    ("eviction, threshold 2", "eviction,on-hit=move,threshold=2"),
    ("eviction, threshold 0.5x", "eviction,on-hit=move,threshold=0.5x"),
    ("eviction, threshold 1x", "eviction,on-hit=move,threshold=1x"),
    ("eviction, staging 64", "eviction,on-hit=move,staging=64"),
    ("eviction, staging auto", "eviction,on-hit=move,staging=auto"),
    ("adaptive, staging auto", "eviction,on-hit=adaptive,staging=auto"),
]

# Sizes, times the first level, at which `auto` is judged, and what it is compared with.
AUTO = [0.5, 1, 2, 4]
CONTENTS = ["access", "eviction,down=demote,staging=auto", "auto"]


def sweep(program, trace, name, level, is_simulated, sizes, policies, placements, more):
    """The rows of a sweep."""
    command = [program, "sweep", str(trace), "--l2", ",".join(f"{size}blk" for size in sizes)]
    command += ["--policy", ",".join(policies), "--placement", ",".join(placements)]
    command += ["-o", f"out/effects/{name}", "--json"] + more
    command += ["--l1", f"{level}blk:lru"] if is_simulated else ["--evictions", "cct"]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def disk_reads(row):
    """Blocks read from disk for 100 reads that reach the level, reloads among them."""
    return 100 * (row["disk_demand_reads"] + row["disk_reloads"]) / max(row["reads"], 1)


def effects(rows, sizes):
    """Policies and placements down, sizes across: hit ratio and disk reads in each cell."""
    heading = ["policy", "placement"] + [f"{size} blocks" for size in sizes]
    lines = []
    rows = iter(rows)
    for policy in POLICIES:
        for name in NAMES:
            # The rows are in the order of the plan.
            values = []
            for size in sizes:
                row = next(rows)
                assert (row["policy"], row["capacity_blocks"]) == (policy, size)
                values.append(f"{100 * row['read_hit_ratio']:.1f} / {disk_reads(row):.0f}")
            lines.append([policy if name == NAMES[0] else "", name] + values)
    return table(heading, lines)


def reloads(rows, size):
    """What thresholds and staging save where the second level is as large as the first."""
    lines = []
    for policy in ["lru", "mq"]:
        of_policy = [row for row in rows if row["policy"] == policy]
        for (name, _), row in zip(RELOADS, of_policy, strict=True):
            numbers = [row["disk_demand_reads"], row["disk_reloads"], row["staged"]]
            cells = [f"{100 * row['read_hit_ratio']:.1f}"] + [f"{n:,}" for n in numbers]
            lines.append([policy, name] + cells + [f"{disk_reads(row):.0f}"])
    heading = ["policy", "placement", "hit ratio %", "demand reads", "reloads", "staged"]
    return f"{size} blocks:\n\n" + table(heading + ["disk reads for 100 reads"], lines)


def adaptive(rows):
    """The placement that adapts beside both that do not, a line a policy and size."""
    rows = iter(rows)
    lines = []
    for policy in ["lru", "mq"]:
        columns = [[next(rows) for _ in ADAPTIVE] for _ in PLACEMENTS]
        for of_size in zip(*columns):
            ratios = [f"{100 * row['read_hit_ratio']:.1f}" for row in of_size]
            lines.append([policy, str(of_size[0]["capacity_blocks"])] + ratios)
    return table(["policy", "blocks"] + NAMES, lines)


def auto(name, rows):
    """Disk reads of `auto`, and of the placements that it chooses from, a line a policy and size."""
    rows = iter(rows)
    lines = []
    for policy in ["lru", "mq"]:
        columns = [[next(rows) for _ in AUTO] for _ in CONTENTS]
        for of_size in zip(*columns):
            reads = [disk_reads(row) for row in of_size]
            more = f"{100 * (reads[2] / min(reads[:2]) - 1):+.1f} %"
            size = str(of_size[0]["capacity_blocks"])
            lines.append([name, policy, size] + [f"{count:.1f}" for count in reads] + [more])
    return lines


def main():
    program = sys.argv[1]
    of_auto = []
    for mark, path, level, is_simulated, more in TRACES:
        trace = FOLDER / path
        if not trace.exists():
            print(f"effects: no {trace}: its table stays as it is")
            continue
        sizes = [level // 4, level // 2, level, 2 * level, 4 * level]
        run = [program, trace, mark, level, is_simulated]
        rows = sweep(*run, sizes, POLICIES, PLACEMENTS, more)
        text = put(DOC.read_text(), mark, effects(rows, sizes))
        if not is_simulated:
            run[2] += "-reloads"
            placements = [placement for _, placement in RELOADS]
            rows = sweep(*run, [level], ["lru", "mq"], placements, more)
            text = put(text, mark + "-reloads", reloads(rows, level))
            run[2] = mark + "-adaptive"
            rows = sweep(*run, [int(x * level) for x in ADAPTIVE], ["lru", "mq"], PLACEMENTS, more)
            text = put(text, mark + "-adaptive", adaptive(rows))
        run[2] = mark + "-auto"
        rows = sweep(*run, [int(x * level) for x in AUTO], ["lru", "mq"], CONTENTS, more)
        of_auto += auto(mark, rows)
        DOC.write_text(text)
        print(f"effects: {mark} is in {DOC}")
    heading = ["trace", "policy", "blocks", "access", "contents", "auto", "auto against the better"]
    if of_auto:
        DOC.write_text(put(DOC.read_text(), "auto", table(heading, of_auto)))


main()
