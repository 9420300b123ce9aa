"""HFA's figures 8 to 10: the queues Q1 and Q2 of three levels over time, split and by k. Figures 8 and 9 have both
readings of the queues' sizes: docs/developer/algorithms.md.
"""

import itertools

import published
from findings import Findings, Panel, judge, listed, one
from movement import PAIRS, VARIANTS, hit_ratio, run

# And what stands behind a scheme's name on a picture.
QUEUES = {"soft": "", "hard": ", hard"}
PARTS = 20
SPLITS = [0.1, 0.2, 0.3, 0.5, 0.7, 0.8, 0.9]
SLOTS = [0, 1, 2, 3, 4, 5, 6, 8]


def three_levels(program, trace, scheme, *more):
    return run(program, trace, scheme, trace.sizes(0.25)[0], "1:2:4", *more)


def settled(values):
    """The mean of the last three fifths, and by how much of it they vary to either side, in per cent."""
    late = values[PARTS * 2 // 5 :]
    mean = sum(late) / len(late)
    return mean, 100 * (max(late) - min(late)) / 2 / mean


def figure8(program, traces):
    """Hit ratio of the first level over time, and Q1's share of it."""
    plan = list(itertools.product(traces, QUEUES, VARIANTS))
    reports = program.many(lambda t, q, v: three_levels(program, t, f"{v},queues={q}", "--samples", PARTS), plan)
    rows, lines, varies, shares = [], {}, {}, {}
    for (trace, queues, variant), report in zip(plan, reports):
        samples = report["movement"]["samples"]
        hits = [100 * sample["shares"][0] for sample in samples]
        hot = [100 * sample["hot_blocks"][0] / trace.sizes(0.25)[0] for sample in samples]
        for what, values in [("hits", hits), ("Q1", hot)]:
            lines.setdefault((trace.name, what), {})[variant + QUEUES[queues]] = (range(1, len(values) + 1), values)
        (mean, moves), (mean_hot, _) = settled(hits), settled(hot)
        varies.setdefault(queues, {})[f"{trace.name} {variant}"] = moves
        shares.setdefault(queues, {})[f"{trace.name} {variant}"] = (variant, mean_hot)
        rows.append([queues, trace.name, variant, one(mean), f"±{moves:.0f}", one(mean_hot)])
    claims = []
    for queues in QUEUES:
        claims += [
            judge(f"the hit ratio settles, {queues} queues",
                  f"{queues} queues: L1's hits settle after 4 to 8 of 20 periods, ± 5 to 9 %; here: ± 10 %",
                  lambda moves: moves < 10, varies[queues], "±{:.0f} %",
                  {v: moves for v, (_, moves, _) in published.HFA_STABLE.items()}),
            judge(f"Q1's share, {queues} queues",
                  f"{queues} queues: Q1 has 13 (D), 9 (P), over 70 % (H) of L1; here: ≤ 30, ≤ 30, ≥ 60 %",
                  lambda pair: pair[1] >= 60 if pair[0] == "h-hfa" else pair[1] <= 30, shares[queues],
                  listed({name: share for name, (_, share) in shares[queues].items()}),
                  {v: (v, share) for v, (_, _, share) in published.HFA_STABLE.items()}),
        ]  # fmt: skip
    panels = []
    for (trace, what), of in lines.items():
        which = 0 if what == "hits" else 2
        points = {}
        for variant, values in published.HFA_STABLE.items():
            settled_at = range(published.HFA_SETTLES[variant], PARTS + 1, 4)
            points[variant] = (settled_at, [values[which]] * len(settled_at))
        y = "hits of the first level, %" if what == "hits" else "Q1, % of the first level"
        title = f"{trace}, 1:2:4; ★ TPC-C, published"
        panels.append(Panel(title, of, "part of the run", y, is_log=False, top=100, points=points))
    for variant, (hits, moves, share) in reversed(published.HFA_STABLE.items()):
        rows.insert(0, ["", "TPC-C (missing: SNIA IOTTA)", variant, hits, f"±{moves}", share])
    heading = ["queues", "trace", "scheme", "hits of the first level, % (last three fifths)", "variation, %", "Q1, %"]
    return Findings(claims, panels, [("Over time:", heading, rows)])


def figure9(program, traces):
    """Fixed splits between Q1 and Q2, against the dynamic one."""
    rows, best_at, behind, lines = [], {}, {}, {}
    for trace, queues, variant in itertools.product(traces, QUEUES, VARIANTS):
        scheme = f"{variant},queues={queues}"
        names = [scheme] + [f"{scheme},partition=fixed,hot={hot}" for hot in SPLITS]
        reports = program.many(three_levels, [(program, trace, name) for name in names])
        dynamic, *fixed = [hit_ratio(report) for report in reports]
        best = SPLITS[fixed.index(max(fixed))]
        best_at.setdefault(queues, {})[f"{trace.name} {variant}"] = (variant, best)
        behind.setdefault(queues, {})[f"{trace.name} {variant}"] = 100 * (1 - max(fixed) / dynamic)
        against = [100 * (value / dynamic - 1) for value in fixed]
        lines.setdefault(trace.name, {})[variant + QUEUES[queues]] = (SPLITS, against)
        rows.append([queues, trace.name, variant, one(dynamic)] + [one(value) for value in fixed] + [f"{best:g}"])
    claims = []
    for queues in QUEUES:
        claims += [
            judge(f"best fixed split, {queues} queues",
                  f"{queues} queues: the best fixed shares of Q1 are 0.2 (D), 0.1 (P), 0.8 (H); here: within 0.1",
                  lambda pair: abs(pair[1] - published.HFA_SPLIT[pair[0]][0]) <= 0.1001, best_at[queues],
                  "; ".join(f"{name} {best:g}" for name, (_, best) in best_at[queues].items()),
                  {variant: (variant, best) for variant, (best, _) in published.HFA_SPLIT.items()}),
            judge(f"dynamic is better, {queues} queues",
                  f"{queues} queues: the best fixed split is worse than the dynamic one, by about 11 %; here: at all",
                  lambda share: share > 0, behind[queues], "{:+.1f} %",
                  {variant: share for variant, (_, share) in published.HFA_SPLIT.items()}),
        ]  # fmt: skip
    points = {variant: ([best], [-share]) for variant, (best, share) in published.HFA_SPLIT.items()}
    panels = [
        Panel(f"{trace}, 1:2:4; ★ best, published", of, "share of Q1", "more hits than dynamic, %", is_log=False,
              bottom=-60, top=30, points=points)
        for trace, of in lines.items()
    ]  # fmt: skip
    heading = ["queues", "trace", "scheme", "dynamic"] + [f"Q1 {hot:g}" for hot in SPLITS] + ["best"]
    return Findings(claims, panels, [("Hit ratio of all levels in per cent:", heading, rows)])


def figure10(program, traces):
    """The effect of k."""
    panels, rows, base, peak = [], [], {}, {}
    for trace in traces:
        lines = {}
        for plain, variant in PAIRS:
            names = [plain] + [f"{variant},k={k}" for k in SLOTS]
            reports = program.many(three_levels, [(program, trace, name) for name in names])
            without, *values = [hit_ratio(report) for report in reports]
            lines[variant] = (SLOTS, [100 * (value / without - 1) for value in values])
            key = f"{trace.name} {variant}"
            base[key] = values[0] - without
            # The best k, and those that are as good to a tenth of a point.
            peak[key] = [k for k, value in zip(SLOTS, values) if value >= max(values) - 0.1]
            rows.append([trace.name, variant, one(without)] + [one(value) for value in values])
        # Of the paper's gains by k only the best k are known: below the lines, apart from each other.
        points = {variant: ([best], [i - 7]) for i, (variant, best) in enumerate(published.HFA_SLOTS.items())}
        title, y = f"{trace.name}, 1:2:4; ★ best k, published", "more hits than the base, %"
        panels.append(Panel(title, lines, "k, slots", y, is_log=False, bottom=-8, top=8, points=points))
    claims = [
        judge("k = 0 is the base", "k = 0 behaves like the base scheme; here: within half a point",
              lambda points: abs(points) < 0.5, base, f"apart by up to {max(map(abs, base.values())):.2f} points"),
        judge("best k is 4 to 5", "the best k is 4 (P) or 5 (D, H); here: 3 to 6 within a tenth of a point of the best",
              lambda good: any(3 <= k <= 6 for k in good), peak,
              "; ".join(f"{name} {', '.join(map(str, good))}" for name, good in peak.items()),
              {variant: [k] for variant, k in published.HFA_SLOTS.items()}),
    ]  # fmt: skip
    heading = ["trace", "scheme", "base"] + [f"k = {k}" for k in SLOTS]
    return Findings(claims, panels, [("Hit ratio of all levels in per cent:", heading, rows)])
