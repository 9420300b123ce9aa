"""The parameters of LFRU and FBR: python tuned.py PROGRAM. Sweeps the candidates, and the other policies that they
are held against, over the streams of auto.py, and writes the tables of "Tuned LFRU and FBR" in docs/measurements/auto.md.
The candidate with the smallest mean regret on the second-level streams of one half is chosen; the other half judges.
"""

import sys

import auto
from pages import put, table

OTHERS = "lru mru fifo lfu lru-k 2q mq lirs arc clock clock-pro car s3-fifo sieve w-tinylfu".split()
LFRU = ["lfru,lambda=0.001"] + [f"lfru,decay={x}" for x in (0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5, 1)]
SECTIONS = [(new, old) for new in (0.01, 0.03, 0.1, 0.3) for old in (0.25, 0.5, 0.75, 0.9, 0.95) if new + old <= 1]
FBR = [f"fbr,new={new},old={old}" for new, old in SECTIONS]
# Whose requests come from below a cache, in the names of streams.
SECOND_LEVEL = [" below ", "PostgreSQL", "MariaDB", "P3", "P6", "CloudPhysics"]


def is_second_level(name):
    return name != "PostgreSQL, L1" and any(part in name for part in SECOND_LEVEL)


def regrets(cells, policy):
    """How far a policy is behind the best of the others, in points."""
    return [max(cell[other] for other in OTHERS) - cell[policy] for cell in cells.values()]


def mean(values):
    return sum(values) / len(values)


def parts(cells):
    """For each half its cells, and those of them that are of second-level streams."""
    for which in (0, 1):
        part = auto.half(cells, which)
        yield part, {key: cell for key, cell in part.items() if is_second_level(key[0])}


def candidates(cells):
    lines = []
    for policy in LFRU + FBR:
        line = [policy]
        for part, below in parts(cells):
            behind = regrets(part, policy)
            line += [f"{mean(behind):.2f}", f"{max(behind):.1f}", f"{mean(regrets(below, policy)):.2f}"]
        lines.append(line)
    return table(["policy", "chosen on: mean", "worst", "second level", "judged on: mean", "worst", "second level"], lines)


def judged(cells, chosen):
    whats = ["chosen on", "chosen on, second level", "judged on", "judged on, second level"]
    lines = []
    for what, part in zip(whats, [part for pair in parts(cells) for part in pair]):
        for policy in [*chosen, "lfru,lambda=0.001", "fbr,new=0.3,old=0.25", "mq", "lfu"]:
            lines.append([what, str(len(part)), policy, *auto.closeness(regrets(part, policy))])
    return table(["streams", "cells", "policy", "within 0.5", "within 1", "within 1.5", "mean", "worst"], lines)


def main():
    cells, absent = auto.sweep_all(sys.argv[1], OTHERS + LFRU + FBR)
    if absent:
        print(f"tuned: not there, the tables stay as they are: {'; '.join(absent)}")
        return
    _, first = next(parts(cells))
    chosen = [min(policies, key=lambda policy: mean(regrets(first, policy))) for policies in (LFRU, FBR)]
    text = put(auto.DOC.read_text(), "candidates", candidates(cells))
    auto.DOC.write_text(put(text, "tuned", judged(cells, chosen)))
    print(f"tuned: {' and '.join(chosen)}, as chosen on one half, are in {auto.DOC}")


main()
