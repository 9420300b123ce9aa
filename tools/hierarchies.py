"""What schemes that move blocks between levels are worth: python hierarchies.py PROGRAM. Simulates
them on the traces that are there (UNDERCROFT_TRACES, else ../shared/traces) and writes the tables of
docs/measurements/hierarchies.md, between the marks of each. A trace that is not there keeps its
tables as they are, and is named. It takes about five minutes.

python hierarchies.py PROGRAM --sizes writes two tables only: Tandem at all these sizes, half and double, with its
default options, with `adapt=ghosts`, and with the best of a few fixed choices of options. It needs all traces, and takes about twenty minutes.
"""

import json
import pathlib
import subprocess
import sys

from pages import TRACES, put, table

DOC = pathlib.Path("docs/measurements/hierarchies.md")

# Mark, trace, sizes of the levels in blocks, more arguments.
L1 = [
    ("oltp", "arc/OLTP.lis.zst", [2000, 8000], []),
    ("sprite", "lirs/sprite.trc.zst", [200, 800], []),
    ("multi1", "lirs/multi1.trc.zst", [200, 800], []),
    ("multi2", "lirs/multi2.trc.zst", [500, 2000], []),
    ("multi3", "lirs/multi3.trc.zst", [500, 2000], []),
    ("postgres", "recorded/postgres-tpcc10w-L1.csv.zst", [2048, 8192], ["--warmup", "10%"]),
]
L2 = [
    ("p3", "arc/P3.lis.zst", [4096, 16384], ["--block", "4KiB", "--unit", "512"]),
    ("p6", "arc/P6.lis.zst", [4096, 16384], ["--block", "4KiB", "--unit", "512"]),
    ("cloud", "vscsi/cloudPhysicsIO.vscsi", [16384, 65536], []),
]

# Name in the tables, placement, policy of the levels.
SCHEMES = [
    ("access (LRU each)", "access", "lru"),
    ("gl", "gl", "lru"),
    ("demote", "demote", "lru"),
    ("d-hfa", "d-hfa", "lru"),
    ("promote", "promote", "lru"),
    ("p-hfa", "p-hfa", "lru"),
    ("promote over ARC", "promote", "arc"),
    ("hint-k", "hint-k", "lru"),
    ("h-hfa", "h-hfa", "lru"),
    ("oracle-hfa", "oracle-hfa", "lru"),
    ("bidifilter", "bidifilter", "lru"),
    ("tandem", "tandem", "lru"),
]
# Traces on which readings and slots are tried.
TRIED = ["oltp", "sprite", "multi2", "postgres", "p6"]

# Options of Tandem that are tried: its default first.
VARIANTS = [
    "",
    "hirs=0.02",
    "hirs=0.05",
    "hirs=0.2",
    "window=0.01",
    "window=0.1",
    "window=0.2",
    "margin=0",
    "margin=1",
    "margin=4",
    "sketch=exact",
    "admit=frequent",
]
# Traces and sizes that Tandem's defaults were not chosen on.
ELSEWHERE = [
    ("oltp", "arc/OLTP.lis.zst", [1000, 1000]),
    ("oltp", "arc/OLTP.lis.zst", [1000, 16000]),
    ("oltp", "arc/OLTP.lis.zst", [5000, 20000]),
    ("sprite", "lirs/sprite.trc.zst", [100, 400]),
    ("sprite", "lirs/sprite.trc.zst", [400, 1600]),
    ("multi1", "lirs/multi1.trc.zst", [400, 400]),
    ("multi2", "lirs/multi2.trc.zst", [250, 2000]),
    ("multi3", "lirs/multi3.trc.zst", [1000, 2000]),
    ("postgres", "recorded/postgres-tpcc10w-L1.csv.zst", [1024, 2048]),
    ("postgres", "recorded/postgres-tpcc10w-L1.csv.zst", [4096, 16384]),
    ("cpp", "lirs/cpp.trc.zst", [50, 200]),
    ("cs", "lirs/cs.trc.zst", [200, 800]),
    ("gli", "lirs/gli.trc.zst", [300, 1200]),
    ("ps", "lirs/ps.trc.zst", [300, 1200]),
    ("2_pools", "lirs/2_pools.trc.zst", [200, 800]),
]

# Options from which the best are chosen for each trace and size, knowing the result; the defaults first.
# They are those of Tandem's ghosts (tandem_ghosts.rs).
FIXED = [
    "window=0.05,hirs=0.1",
    "window=0.01,hirs=0.005",
    "window=0.2,hirs=0.25",
    "window=0.5,hirs=1.0",
    "window=0.05,hirs=0.4",
    "window=0.9,hirs=0.5",
    "window=0.05,hirs=0.1,admit=frequent",
]
# Traces that Tandem's ghosts were not made on.
CHECK = [
    ("mariadb", "recorded/mariadb-tpcc10w-pool32m.csv.zst", [1024, 4096]),
    ("postgres below 32 MiB", "recorded/postgres-tpcc10w-sb32m.csv.zst", [2048, 8192]),
    ("loop", "lirs/loop.trc.zst", [100, 400]),
    ("scan", "lirs/scan.trc.zst", [100, 400]),
    ("zigzag", "lirs/zigzag.trc.zst", [100, 400]),
]

PAIRS = [("demote", "d-hfa"), ("promote", "p-hfa"), ("hint-k", "h-hfa")]


DONE = {}


def simulate(program, trace, sizes, placement, policy="lru", more=()):
    """The report of one simulation; each is done once."""
    command = [program, "simulate", str(trace), "--placement", placement, "--json", *more]
    for i, size in enumerate(sizes):
        command += [f"--l{i + 1}", f"{size}blk:{policy}"]
    key = " ".join(command)
    if key not in DONE:
        DONE[key] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return DONE[key]


def write(mark, content):
    """Writes the content between the two marks."""
    DOC.write_text(put(DOC.read_text(), mark, content))
    print(f"hierarchies: {mark} is in {DOC}")


def bounds_of(placement, more):
    """The bounds are asked for once a trace, and not where a warm-up is not counted."""
    return ["--bounds"] if placement == "demote" and "--warmup" not in more else []


def schemes(program, trace, sizes, more):
    """Every scheme on one trace: who serves how much, and what it costs."""
    lines = []
    for name, placement, policy in SCHEMES:
        ours = more + bounds_of(placement, more)
        report = simulate(program, trace, sizes, placement, policy, ours)
        reads = report["aggregate"]["reads"]
        shares = [100 * level["read_hits"] / reads for level in report["levels"]]
        movement = report.get("movement")
        if movement and "opt_ub" in movement:
            bounds = [("OPT-UB", movement["opt_ub"]), ("OPT-LB", movement["opt_lb"])]
        overhead = sum(node["overhead_bytes"] for node in movement["nodes"]) if movement else 0
        cells = [name] + [f"{share:.1f}" for share in shares]
        cells += [f"{100 * report['aggregate']['read_hit_ratio']:.1f}"]
        cells += [f"{report['response_time_ms']:.3f}"]
        cells += [f"{report['response_time_with_demotions_ms']:.3f}"]
        if movement:
            kib = f"{overhead / 1024:.0f}"
            cells += [f"{movement[f'{what}_per_1000']:.0f}" for what in ["demotions", "promotions"]]
            cells += [kib]
        else:
            down = sum(level["demotions_in"] for level in report["levels"])
            requests = reads + report["disk"]["writes"]
            cells += [f"{1000 * down / requests:.0f}", "", ""]
        lines.append(cells)
    if "--warmup" not in more:
        for name, bound in bounds:
            shares = [f"{100 * hits / reads:.1f}" for hits in bound["read_hits"]]
            ratio = f"{100 * bound['read_hit_ratio']:.1f}"
            ms = f"{bound['response_time_ms']:.3f}"
            lines.append([name, *shares, ratio, ms, ms, "0", "", ""])
    levels = [f"L{i + 1} %" for i in range(len(sizes))]
    heading = ["scheme", *levels, "all %", "ms", "ms, demotions charged"]
    heading += ["demotions / 1,000", "promotions / 1,000", "overhead KiB"]
    return "levels of " + " and ".join(f"{size:,}" for size in sizes) + " blocks:\n\n" + table(
        heading, lines
    )


def gain(base, ours):
    return f"{100 * (base - ours) / base:+.1f}"


def gains(program, found):
    """What HFA adds to each base scheme, as published and as found here."""
    lines = []
    for trace, sizes, more, mark in found:
        cells = [mark]
        for base, hfa in PAIRS:
            extra = more + bounds_of(base, more)
            two = [simulate(program, trace, sizes, base, more=extra)]
            two.append(simulate(program, trace, sizes, hfa, more=more))
            ratios = [report["aggregate"]["read_hit_ratio"] for report in two]
            times = [report["response_time_ms"] for report in two]
            cells += [f"{100 * (ratios[1] - ratios[0]) / ratios[0]:+.1f}", gain(*times)]
        lines.append(cells)
    heading = ["trace"]
    for name in ["D", "P", "H"]:
        heading += [f"{name} hits %", f"{name} time %"]
    return table(heading, lines)


def readings(program, found):
    """Response times under the readings that were tried."""
    tried = [
        ("the base scheme", None),
        ("hotness stays, T = 1000", "hotness=stays,period=1000"),
        ("hotness stays, T by size", "hotness=stays"),
        ("hotness expires, T = 1000", "period=1000"),
        ("hotness expires, T by size", ""),
        ("the same, only hints raise", "rise=hint"),
        ("the same, hard queues", "queues=hard"),
        ("the same, fixed 2:8", "partition=fixed,hot=0.2"),
        ("the same, fixed 8:2", "partition=fixed,hot=0.8"),
    ]
    lines = []
    for base, hfa in PAIRS:
        for name, options in tried:
            placement = base if options is None else ",".join(filter(None, [hfa, options]))
            runs = [simulate(program, t, s, placement, more=m) for t, s, m, _ in found]
            times = [f"{report['response_time_ms']:.3f}" for report in runs]
            lines.append([hfa if options is not None else base, name] + times)
    return table(["scheme", "reading"] + [mark for *_, mark in found], lines)


def arrivals(program, found):
    """Hint-K and H-HFA where the arrival from the disk counts as a promotion, or for nothing, beside DEMOTE."""
    lines = []
    for trace, sizes, more, mark in found:
        demote = simulate(program, trace, sizes, "demote", more=more + bounds_of("demote", more))
        runs = [simulate(program, trace, sizes, f"{scheme},arrival={arrival}", more=more)
                for scheme in ["hint-k", "h-hfa"] for arrival in ["nothing", "counts"]]  # fmt: skip
        cells = [mark]
        for report in [demote, *runs]:
            hits = 100 * report["aggregate"]["read_hit_ratio"]
            cells.append(f"{hits:.1f} / {report['response_time_ms']:.3f}")
        cells += [f"{run['movement']['promotions_per_1000']:.0f}" for run in runs]
        lines.append(cells)
    names = [f"{scheme}, {arrival}" for scheme in ["hint-k", "h-hfa"] for arrival in ["nothing", "counts"]]
    return table(["trace", "demote", *names, *(f"up: {name}" for name in names)], lines)


def queue_sizes(program, found):
    """Hit ratios of HFA with hard and with soft queues, over fixed shares of the hot queue and the one that changes."""
    shares = [("dynamic", ""), *((f"Q1 {hot}", f",partition=fixed,hot={hot}") for hot in [0.1, 0.5, 0.9])]
    lines = []
    for _, hfa in PAIRS:
        for queues in ["hard", "soft"]:
            for name, options in shares:
                placement = f"{hfa},queues={queues}{options}"
                runs = [simulate(program, t, s, placement, more=m) for t, s, m, _ in found]
                hits = [100 * run["aggregate"]["read_hit_ratio"] for run in runs]
                lines.append([hfa, queues, name] + [f"{value:.1f}" for value in hits])
    return table(["scheme", "queues", "share"] + [mark for *_, mark in found], lines)


def slots(program, found):
    """The effect of k."""
    lines = []
    for _, hfa in PAIRS:
        for k in [0, 1, 2, 4, 6, 8]:
            runs = [simulate(program, t, s, f"{hfa},k={k}", more=m) for t, s, m, _ in found]
            lines.append([hfa, str(k)] + [f"{run['response_time_ms']:.3f}" for run in runs])
    return table(["scheme", "k"] + [mark for *_, mark in found], lines)


CHARGED = "response_time_with_demotions_ms"


def best_published(program, trace, sizes, more, time):
    """The fastest of all schemes but Tandem: its time and name."""
    runs = []
    for name, placement, policy in SCHEMES[:-1]:
        ours = more + bounds_of(placement, more)
        runs.append((simulate(program, trace, sizes, placement, policy, ours)[time], name))
    return min(runs)


def margins(program, found):
    """Tandem against the best of the published schemes, and how far from the bound both are."""
    lines = []
    for trace, sizes, more, mark in found:
        ours = simulate(program, trace, sizes, "tandem", more=more)
        cells = [mark]
        for time in [CHARGED, "response_time_ms"]:
            best, name = best_published(program, trace, sizes, more, time)
            cells += [name, f"{best:.3f}", f"{ours[time]:.3f}", gain(best, ours[time])]
        bound = simulate(program, trace, sizes, "demote", more=more + bounds_of("demote", more))
        if "opt_ub" in bound["movement"]:
            least = bound["movement"]["opt_ub"]["response_time_ms"]
            best, _ = best_published(program, trace, sizes, more, CHARGED)
            cells += [f"{least:.3f}", f"{100 * (best - ours[CHARGED]) / (best - least):.0f}"]
        else:
            cells += ["", ""]
        lines.append(cells)
    heading = ["trace", "best published, charged", "ms", "tandem", "margin %"]
    heading += ["best published, free", "ms", "tandem", "margin %"]
    return table(heading + ["OPT-UB", "way to it %"], lines)


def variants(program, found):
    """What Tandem's options do: the margin over the best published scheme, demotions charged."""
    best = [best_published(program, t, s, m, CHARGED)[0] for t, s, m, _ in found]
    lines = []
    for options in VARIANTS:
        placement = ",".join(filter(None, ["tandem", options]))
        runs = [simulate(program, t, s, placement, more=m) for t, s, m, _ in found]
        cells = [gain(base, run[CHARGED]) for base, run in zip(best, runs)]
        lines.append([options or "defaults", *cells])
    return table(["options"] + [mark for *_, mark in found], lines)


def elsewhere(program):
    """Tandem on traces and sizes that its defaults were not chosen on."""
    lines = []
    for mark, path, sizes in ELSEWHERE:
        more = ["--warmup", "10%"] if mark == "postgres" else []
        ours = simulate(program, TRACES / path, sizes, "tandem", more=more)[CHARGED]
        best, name = best_published(program, TRACES / path, sizes, more, CHARGED)
        shown = " and ".join(f"{size:,}" for size in sizes)
        lines.append([mark, shown, name, f"{best:.3f}", f"{ours:.3f}", gain(best, ours)])
    return table(["trace", "blocks", "best published", "ms", "tandem", "margin %"], lines)


def all_sizes():
    """Each trace and pair of sizes of this page, at half, the same and double: mark, path, sizes, more arguments."""
    more = {mark: arguments for mark, _, _, arguments in L1 + L2}
    rows = [(mark, path, sizes) for mark, path, sizes, _ in L1 + L2] + ELSEWHERE
    cells = {}
    for mark, path, sizes in rows:
        for scale in [0.5, 1, 2]:
            cells[mark, path, *(int(scale * size) for size in sizes)] = more.get(mark, [])
    order = sorted(cells, key=lambda cell: ([row[0] for row in rows].index(cell[0]), *cell[2:]))
    return [(mark, path, list(sizes), cells[mark, path, *sizes]) for mark, path, *sizes in order]


def at_all_sizes(program, cells):
    """Tandem with its defaults, with ghosts, and with the best of FIXED for each trace and size, against the best
    published scheme."""
    lines, margins = [], []
    for mark, path, sizes, more in cells:
        best, name = best_published(program, TRACES / path, sizes, more, CHARGED)
        placements = ["tandem", "tandem,adapt=ghosts", *(f"tandem,{options}" for options in FIXED)]
        runs = [simulate(program, TRACES / path, sizes, one, more=more) for one in placements]
        fixed, ghosts, *others = [run[CHARGED] for run in runs]
        three = [fixed, ghosts, min(others)]
        margins.append([100 * (best - ms) / best for ms in three])
        shown = " and ".join(f"{size:,}" for size in sizes)
        lines.append([mark, shown, name, f"{best:.3f}", *(gain(best, ms) for ms in three)])
    for name, of in [("mean", lambda column: sum(column) / len(column)), ("least", min)]:
        lines.append([name, "", "", "", *(f"{of(column):+.1f}" for column in zip(*margins))])
    heading = ["trace", "blocks", "best published", "ms", "fixed, margin %", "ghosts, margin %"]
    return table(heading + ["best of seven fixed, margin %"], lines)


def stability(program, trace):
    """Three levels of OLTP: Q1's share and the first level's hit ratio over the run."""
    lines = []
    for base, hfa in PAIRS:
        report = simulate(program, trace, [1000, 2000, 4000], hfa, more=["--samples", "20"])
        samples = report["movement"]["samples"]
        late = samples[4:]
        shares = [100 * sample["shares"][0] for sample in late]
        hot = [[100 * sample["hot_target"][i] / c for sample in late]
               for i, c in enumerate([1000, 2000, 4000])]
        of_base = simulate(program, trace, [1000, 2000, 4000], base)
        movement = report["movement"]
        cells = [hfa, f"{of_base['response_time_ms']:.3f}", f"{report['response_time_ms']:.3f}"]
        cells += [f"{movement['hints_per_1000']:.0f}"]
        cells += [f"{of_base['movement']['hints_per_1000']:.0f}"]
        cells += [f"{min(shares):.0f} to {max(shares):.0f}"]
        cells += [f"{sum(values) / len(values):.0f}" for values in hot]
        lines.append(cells)
    heading = ["scheme", "base ms", "ms", "hints / 1,000", "base's", "L1 hits % by twentieth"]
    return table(heading + ["Q1 of L1 %", "of L2 %", "of L3 %"], lines)


def main():
    program = sys.argv[1]
    if "--sizes" in sys.argv[2:]:
        write("sizes", at_all_sizes(program, all_sizes()))
        return write("check", at_all_sizes(program, [(*cell, []) for cell in CHECK]))
    found = []
    for mark, path, sizes, more in L1 + L2:
        trace = TRACES / path
        if not trace.exists():
            print(f"hierarchies: no {trace}: its tables stay as they are")
            continue
        write(mark, schemes(program, trace, sizes, more))
        found.append((trace, sizes, more, mark))
    if len(found) == len(L1 + L2):
        write("gains", gains(program, found))
        tried = [one for one in found if one[3] in TRIED]
        write("readings", readings(program, tried))
        write("hint-k", arrivals(program, found))
        write("queues", queue_sizes(program, tried))
        write("slots", slots(program, tried))
        write("margins", margins(program, found))
        write("variants", variants(program, found))
        write("elsewhere", elsewhere(program))
        write("stability", stability(program, TRACES / L1[0][1]))


main()
