"""Whether the policy `auto` keeps up with the best fixed policy: python auto.py PROGRAM [RECORDING ...]. Sweeps all
policies (without OPT) over the traces that are there (UNDERCROFT_TRACES, else ../shared/traces), and
over traces joined from them, and writes the tables of docs/measurements/auto.md between the marks of
each. With recordings only the table of those is made; with `--picture` in place of PROGRAM, what is
learned below PostgreSQL is drawn. Traces that are not there are named. It takes some minutes; sweeps are resumed from
out/auto, but runs of auto, LFRU and FBR that are older than the program are made again.
"""

import json
import os
import pathlib
import subprocess
import sys

from pages import TRACES, put, table

DOC = pathlib.Path("docs/measurements/auto.md")
PICTURE = pathlib.Path("docs/user/pictures/auto.svg")
FOLDER = pathlib.Path("out/auto")
SIZES = [2048 << doublings for doublings in range(7)]

# Name, trace, an LRU client in blocks through which it is filtered too, more arguments.
STREAMS = [
    ("OLTP", "arc/OLTP.lis.zst", 2000, []),
    ("sprite", "lirs/sprite.trc.zst", 200, []),
    ("multi1", "lirs/multi1.trc.zst", 200, []),
    ("multi2", "lirs/multi2.trc.zst", 500, []),
    ("multi3", "lirs/multi3.trc.zst", 500, []),
    ("ps", "lirs/ps.trc.zst", 300, []),
    ("gli", "lirs/gli.trc.zst", 300, []),
    ("2_pools", "lirs/2_pools.trc.zst", 500, []),
    ("PostgreSQL, L1", "recorded/postgres-tpcc10w-L1.csv.zst", 4096, []),
    ("PostgreSQL", "recorded/postgres-tpcc10w-sb32m.csv.zst", None, []),
    ("MariaDB", "recorded/mariadb-tpcc10w-pool32m.csv.zst", None, []),
    ("P3", "arc/P3.lis.zst", None, ["--block", "4KiB", "--unit", "512"]),
    ("P6", "arc/P6.lis.zst", None, ["--block", "4KiB", "--unit", "512"]),
    ("CloudPhysics", "vscsi/cloudPhysicsIO.vscsi", None, []),
    ("Financial1", "spc/Financial1-first10000.spc.zst", None, []),
    ("WebSearch1", "spc/WebSearch1-first24783.spc.zst", None, []),
    ("TPC-C", "disksim/tpcc-small.trace.zst", None, []),
]
# Traces of reads that follow each other as one stream.
JOINED = [
    ["arc/OLTP.lis.zst", "arc/P6.lis.zst"],
    ["arc/P6.lis.zst", "arc/OLTP.lis.zst"],
    ["arc/P3.lis.zst", "arc/OLTP.lis.zst", "arc/P6.lis.zst"],
    ["lirs/multi3.trc.zst", "lirs/sprite.trc.zst", "lirs/multi2.trc.zst"],
]


def blocks(path):
    """The 4 KiB blocks or pages that a trace in the formats lis and trc reads, in order."""
    text = subprocess.run(["zstd", "-dcq", path], check=True, stdout=subprocess.PIPE).stdout
    part = 1 if "OLTP" in path.name or ".trc" in path.name else 8
    for line in text.split(b"\n"):
        numbers = line.split()
        if not numbers or numbers[0] == b"*":
            continue
        first, count = int(numbers[0]), int(numbers[1]) if len(numbers) > 1 else 1
        yield from range(first // part, (first + count - 1) // part + 1)


def joined(parts):
    """A trace file of these traces, one after the other, each with blocks of its own."""
    path = FOLDER / ("-".join(pathlib.Path(part).name.split(".")[0] for part in parts) + ".txt")
    if not path.exists():
        with open(path, "w") as out:
            for number, part in enumerate(parts):
                out.writelines(f"{(number << 40) + b}\n" for b in blocks(TRACES / part))
    return path


def drop_old(folder, program):
    """Drops the runs of policies whose defaults changed that an older program made; the others stay."""
    path = folder / "runs.jsonl"
    if path.exists() and path.stat().st_mtime < pathlib.Path(program).stat().st_mtime:
        lines = path.read_text().splitlines(keepends=True)
        changed = ["auto", "lfru", "fbr"]
        path.write_text("".join(l for l in lines if json.loads(l)["row"]["policy"] not in changed))


def sweep(program, name, trace, client, more, policies=()):
    """For each size below the number of distinct blocks, the hit ratios of these policies, or of all, in per cent."""
    folder = FOLDER / name.replace(" ", "-")
    drop_old(folder, program)
    command = [program, "sweep", str(trace), *more, "--warmup", "10%", "--json", "-o", str(folder)]
    command += ["--l2", ",".join(f"{size}blk" for size in SIZES)]
    command += ["--l1", f"{client}blk:lru"] if client else []
    command += ["--policy", ",".join(policies)] if policies else []
    rows = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    cells = {}
    for number, row in enumerate(rows):
        if row["capacity_blocks"] < row["unique_blocks"] and row["reads"]:
            cell = cells.setdefault((name, row["capacity_blocks"]), {})
            policy = policies[number // len(SIZES)] if policies else row["policy"]
            cell[policy] = 100 * row["read_hit_ratio"]
    return cells


def sweep_all(program, policies=()):
    """The cells of all streams, and the names of those whose trace is not there."""
    cells, absent = {}, []
    for name, path, client, more in STREAMS:
        if not (TRACES / path).exists():
            absent.append(name)
            continue
        cells |= sweep(program, name, TRACES / path, None, more, policies)
        if client:
            cells |= sweep(program, f"{name} below {client}", TRACES / path, client, more, policies)
    return cells, absent


def half(cells, which):
    """The cells of every other stream of the list, from the first (0) or the second (1) on."""
    names = [stream[0] for stream in STREAMS][which::2]
    return {key: cell for key, cell in cells.items() if key[0].split(" below")[0] in names}


def best(cell):
    """Hit ratio and name of the best fixed policy."""
    return max((ratio, name) for name, ratio in cell.items() if name != "auto")


def regrets(cells, policy="auto"):
    return [best(cell)[0] - cell[policy] for cell in cells.values()]


def closeness(behind):
    """The shares of these regrets up to half a point, one and one and a half; the mean and the highest."""
    share = lambda bound: f"{100 * sum(r <= bound for r in behind) / len(behind):.0f} %"
    mean = sum(behind) / len(behind)
    return [share(0.5), share(1), share(1.5), f"{mean:.2f}", f"{max(behind):.1f}"]


def summary(cells, policies):
    """For each policy the share of the cells in which it is close to the best fixed one."""
    lines = [[policy, *closeness(regrets(cells, policy))] for policy in policies]
    lines.sort(key=lambda line: float(line[4]))
    return table(["policy", "within 0.5", "within 1", "within 1.5", "mean", "worst"], lines)


def halves(cells):
    """How close auto is on every other stream of the list, and on the rest."""
    lines = []
    for which, what in enumerate(["the 1st, 3rd, ...", "the 2nd, 4th, ..."]):
        part = half(cells, which)
        if part:
            lines.append([f"{what} stream", str(len(part)), *closeness(regrets(part))])
    return table(["half", "cells", "within 0.5", "within 1", "within 1.5", "mean", "worst"], lines)


def second_level(cells):
    """The cells of databases and programs from below a client."""
    below = lambda name: " below" in name or name in ("PostgreSQL", "MariaDB")
    return {key: cell for key, cell in cells.items() if below(key[0])}


def goals(cells, changes):
    """What was to be reached, and what was: shares in per cent at least, mean and worst at most."""
    none, lines = (0, 0), []
    for what, of, shares, mean, worst in [
        ("all cells of this page", cells, (88, 97), -0.1, 1.5),
        ("second level: databases and programs below a client", second_level(cells), none, -0.1, 1.2),
        ("streams joined from several", changes, none, -0.3, 1.7),
    ]:
        behind = regrets(of)
        found = [100 * sum(r <= bound for r in behind) / len(behind) for bound in (0.5, 1)]
        pairs = [(f"{share:.0f} % ({least} %)" if least else f"{share:.0f} %", round(share) >= least)
                 for share, least in zip(found, shares)]
        pairs += [(f"{value:.2f} ({most})", round(value, 2) <= most)
                  for value, most in [(sum(behind) / len(behind), mean), (max(behind), worst)]]
        missed = [name for name, (_, is_met) in zip(["within 0.5", "within 1", "mean", "worst"], pairs) if not is_met]
        verdict = f"**missed**: {', '.join(missed)}" if missed else "met"
        lines.append([what, str(len(of)), *(text for text, _ in pairs), verdict])
    return table(["found (goal)", "cells", "within 0.5", "within 1", "mean", "worst", "verdict"], lines)


def all_cells(cells):
    lines = []
    for (name, size), cell in cells.items():
        ratio, policy = best(cell)
        lines.append([name, f"{size:,}", policy, f"{ratio:.2f}", f"{cell['auto']:.2f}",
                      f"{ratio - cell['auto']:.2f}"])
    return table(["stream", "blocks", "best fixed", "its hits %", "auto %", "regret"], lines)


# Classes of the picture by their number in crates/policy/src/policies/auto/block.rs.
DRAWN = {0: "referenced once", 10: "8 to 11 times, last read", 11: "8 to 11 times, last written"}
DRAWN_BLOCKS = 8192


def draw_values():
    """What AUTO learns below PostgreSQL: the worth of a block by its age, for three classes."""
    import drawing

    trace = TRACES / "recorded/postgres-tpcc10w-sb32m.csv.zst"
    if not trace.exists():
        return
    stream = FOLDER.absolute() / "stream"
    text = subprocess.run(["zstd", "-dcq", trace], check=True, stdout=subprocess.PIPE, text=True).stdout
    with open(stream, "w") as out:
        for line in text.splitlines():
            _, kind, file, first, count, *_ = f"{line},,,,".split(",")
            if kind in ("R", "W"):
                out.writelines(f"{file}:{block} {kind}\n" for block in range(int(first), int(first) + int(count)))
    command = [os.environ.get("CARGO", "cargo"), "test", "-q", "--locked", "-p", "undercroft-policy", "--lib", "values_by_age"]
    learned = {"UNDERCROFT_STREAM": str(stream), "UNDERCROFT_BLOCKS": str(DRAWN_BLOCKS)}
    said = subprocess.run(
        [*command, "--", "--ignored", "--nocapture"], env=os.environ | learned, check=True, stdout=subprocess.PIPE, text=True
    ).stdout
    values = {}
    for _, of, age, value in (line.split() for line in said.splitlines() if line.startswith("value ")):
        values.setdefault(int(of), []).append((max(float(age), 1 / 32), 100 * float(value)))
    page, place = drawing.pyplot.subplots(figsize=(5, 3))
    for colour, (of, label) in zip(drawing.COLOURS, DRAWN.items()):
        place.step(*zip(*values[of]), where="post", label=label, color=colour)
    place.set_xscale("log", base=2)
    ticks = [1 / 16, 1 / 4, 1, 4, 16]
    place.set_xticks(ticks, [f"1/{1 / x:g}" if x < 1 else f"{x:g}" for x in ticks])
    place.set_xlabel("references since the block's last one, in cache sizes", fontsize=8)
    place.set_ylabel("hit ratio of a cache full of such blocks, %", fontsize=8)
    drawing.clean(place)
    place.legend(frameon=False, fontsize=8)
    page.tight_layout()
    drawing.save(page, PICTURE)


def compare_recordings(program, recordings):
    """The table of recordings that chose nothing in the policy."""
    cells = {}
    for recording in recordings:
        cells |= sweep(program, recording.name.split(".")[0], recording, None, [])
    close = table(["cells", "within 0.5", "within 1", "within 1.5", "mean", "worst"], [[str(len(cells)), *closeness(regrets(cells))]])
    DOC.write_text(put(DOC.read_text(), "recordings", f"{close}\n\n{all_cells(cells)}"))


def main():
    program = sys.argv[1]
    FOLDER.mkdir(parents=True, exist_ok=True)
    if program == "--picture":
        return draw_values()
    if len(sys.argv) > 2:
        return compare_recordings(program, [pathlib.Path(name) for name in sys.argv[2:]])
    cells, absent = sweep_all(program)
    changes = {}
    for parts in JOINED:
        name = ", ".join(pathlib.Path(part).name.split(".")[0] for part in parts)
        if all((TRACES / part).exists() for part in parts):
            changes |= sweep(program, name, joined(parts), None, [])
        else:
            absent.append(name)
    if absent:
        print(f"auto: not there, their rows are left out: {'; '.join(absent)}")
    if not cells or not changes:
        return
    text = DOC.read_text()
    policies = list(next(iter(cells.values())))
    text = put(text, "policies", f"{len(cells)} cells.\n\n" + summary(cells, policies))
    text = put(text, "goals", goals(cells, changes))
    text = put(text, "halves", halves(cells))
    text = put(text, "cells", all_cells(cells))
    text = put(text, "joined", all_cells(changes))
    DOC.write_text(text)


if __name__ == "__main__":
    main()
