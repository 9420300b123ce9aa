"""HFA's figures 1 and 4 to 10: schemes that move blocks between levels by hints."""

import published
from findings import Claim, Findings, Panel, one, span

PAIRS = [("demote", "d-hfa"), ("promote", "p-hfa"), ("hint-k", "h-hfa")]
SCHEMES = [scheme for pair in PAIRS for scheme in pair]
# The first level, times the client's cache; the second is four times as large.
TIMES = (0.25, 0.5, 1)
# Published gains of HFA over each base at best, in per cent of hits and of time: table 4.
GAINS = {"d-hfa": (19.1, 22.0), "p-hfa": (7.1, 20.1), "h-hfa": (6.5, 10.1)}


def run(program, trace, scheme, size, parts="1:4", *more):
    return program.simulate(
        trace, "--l1", f"{size}blk:lru", "--ratio", parts, "--placement", scheme, "--demotions", "free", *more
    )


def grid(program, traces):
    """The report of each scheme, trace and size."""
    plan = [(program, trace, scheme, size) for trace in traces for scheme in SCHEMES for size in trace.sizes(*TIMES)]
    return {one[1:]: report for one, report in zip(plan, program.many(run, plan))}


def hit_ratio(report):
    return 100 * report["aggregate"]["read_hit_ratio"]


def time_ms(report):
    return report["response_time_ms"]


def hints(report):
    """Hints for 1,000 requests; under DEMOTE and D-HFA demotions alone, since DEMOTE knows no promotions."""
    movement = report["movement"]
    demotes = movement["scheme"] in ("demote", "d-hfa")
    return movement["demotions_per_1000" if demotes else "hints_per_1000"]


def overhead(report):
    nodes = report["movement"]["nodes"]
    blocks = sum(level["capacity_blocks"] for level in report["levels"])
    return 100 * sum(node["overhead_bytes"] for node in nodes) / (blocks * report["block_bytes"])


def panels_of(reports, traces, figure, y):
    panels = []
    for trace in traces:
        sizes = trace.sizes(*TIMES)
        lines = {s: (sizes, [figure(reports[trace, s, size]) for size in sizes]) for s in SCHEMES}
        panels.append(Panel(trace.name, lines, "first level, blocks (1:4)", y))
    return panels


def rows_of(reports, traces, figure, digits=2):
    rows = [[f"{name} (missing: {where})"] + [""] * 7 for name, where in published.HFA_TRACES]
    for trace in traces:
        for size in trace.sizes(*TIMES):
            values = [figure(reports[trace, scheme, size]) for scheme in SCHEMES]
            rows.append([f"**{trace.name}**", f"{size:,}"] + [f"{value:.{digits}f}" for value in values])
    return rows


def gains(reports, traces, figure, is_less_better):
    """Of each variant the gain in per cent over its base: (trace, size) to gain."""
    found = {}
    for base, variant in PAIRS:
        of_variant = found[variant] = {}
        for trace in traces:
            for size in trace.sizes(*TIMES):
                plain, ours = (figure(reports[trace, scheme, size]) for scheme in (base, variant))
                of_variant[trace.name, size] = 100 * ((plain - ours) if is_less_better else (ours - plain)) / plain
    return found


def gain_claims(found, which):
    claims = []
    for variant, values in found.items():
        by_trace = {}
        for (trace, _), gain in values.items():
            by_trace[trace] = max(by_trace.get(trace, -1e9), gain)
        claims.append(Claim(
            f"{variant} gains", f"{variant} is better than its base, by up to {GAINS[variant][which]} %",
            {trace: gain > 0.5 for trace, gain in by_trace.items()},
            f"{span(list(values.values()))} %; a trace counts if its best size gains half a per cent",
        ))  # fmt: skip
    best = {variant: max(values.values()) for variant, values in found.items()}
    mean = {variant: sum(values.values()) / len(values) for variant, values in found.items()}
    order = {"best gain": best["d-hfa"] > best["p-hfa"] > best["h-hfa"], "mean gain": mean["d-hfa"] > mean["p-hfa"] > mean["h-hfa"]}
    claims.append(Claim("order D > P > H", "the gains are in the order D > P > H", order, "; ".join(
        f"{name}: " + ", ".join(f"{v} {one(g)}" for v, g in values.items())
        for name, values in [("best", best), ("mean", mean)])))  # fmt: skip
    return claims


HEADING = ["trace", "first level, blocks", *SCHEMES]


def figure1(program, traces):
    """Mean hint reuse distance by the number of moves of a block, at the second level."""
    plan = [(program, t, "d-hfa", t.sizes(1)[0], "1:4", "--hint-distances") for t in traces]
    lines, rows, falls = {}, [], {}
    for trace, report in zip(traces, program.many(run, plan)):
        pairs = report["movement"]["nodes"][1]["hint_distances"]
        counts, means = [n for n, _ in pairs], [mean for _, mean in pairs]
        lines[trace.name] = (counts, [mean / trace.base() for mean in means])
        falls[trace.name] = len(means) > 1 and means[-1] < means[0]
        rows.append([trace.name] + [f"{mean:,.0f}" for mean in means])
    claim = Claim(
        "blocks that moved often return sooner", "the hint reuse distance falls with the number of moves of a block",
        falls, "; ".join(f"{row[0]} {row[1]} to {row[-1]}" for row in rows if len(row) > 1),
    )  # fmt: skip
    panel = Panel("D-HFA, second level", lines, "moves of a block", "hint reuse distance / first level", is_log=False)
    heading = ["trace"] + [str(n) for n in range(1, 11)]
    rows = [row + [""] * (11 - len(row)) for row in rows]
    return Findings([claim], [panel], [("Mean hint reuse distance in blocks, by moves of the block:", heading, rows)])


def figure4(program, traces):
    reports = grid(program, traces)
    claims = gain_claims(gains(reports, traces, hit_ratio, False), 0)
    table = ("Hit ratio of both levels in per cent:", HEADING, rows_of(reports, traces, hit_ratio))
    return Findings(claims, panels_of(reports, traces, hit_ratio, "hit ratio of all levels, %"), [table])


def figure5(program, traces):
    reports = grid(program, traces)
    claims = gain_claims(gains(reports, traces, time_ms, True), 1)
    table = ("Mean time of a read in milliseconds, demotions free:", HEADING, rows_of(reports, traces, time_ms, 3))
    return Findings(claims, panels_of(reports, traces, time_ms, "mean time of a read, ms"), [table])


def figure6(program, traces):
    reports = grid(program, traces)
    found = gains(reports, traces, hints, True)
    claims = []
    for variant in ("d-hfa", "h-hfa"):
        mean = {}
        for trace in traces:
            here = [gain for (name, _), gain in found[variant].items() if name == trace.name]
            mean[trace.name] = sum(here) / len(here)
        claims.append(Claim(
            f"fewer hints with {variant}", f"{variant} has about 10 % fewer hints than its base; here: at least 5 %",
            {name: value >= 5 for name, value in mean.items()},
            ", ".join(f"{name} {-value:+.0f} %" for name, value in mean.items()),
        ))  # fmt: skip
    table = ("Hints for 1,000 requests (under DEMOTE and D-HFA demotions alone, since DEMOTE has no promotions):", HEADING, rows_of(reports, traces, hints, 0))
    return Findings(claims, panels_of(reports, traces, hints, "hints / 1,000 requests"), [table])


def figure7(program, traces):
    reports = grid(program, traces)
    most = {t.name: max(overhead(reports[t, s, n]) for s in SCHEMES for n in t.sizes(*TIMES)) for t in traces}
    claim = Claim("space below 2.6 %", "the space is below 2.6 % of the cache", {n: m < 2.6 for n, m in most.items()},
                  "at most " + ", ".join(f"{name} {value:.2f} %" for name, value in most.items()))  # fmt: skip
    table = ("Space in per cent of the blocks' data:", HEADING, rows_of(reports, traces, overhead, 3))
    return Findings([claim], panels_of(reports, traces, overhead, "space, % of the cache"), [table])


PARTS = 20
# Both readings of the sizes of Q1 and Q2: docs/developer/algorithms.md.
QUEUES = ["hard", "soft"]


def figure8(program, traces):
    """Three levels over time: hit ratio of the first level, and Q1's share of it; with hard and with soft queues."""
    parts = [over_time(program, traces, queues) for queues in QUEUES]
    published = [["", "TPC-C (missing: SNIA IOTTA)", s, a, b, c] for s, a, b, c in
                 [("d-hfa", 54, "±4.6", 13), ("p-hfa", 39, "±4.8", 9), ("h-hfa", 62, "±8.9", "> 70")]]  # fmt: skip
    heading = ["queues", "trace", "scheme", "hits of the first level, % (last three fifths)", "variation, %", "Q1, %"]
    return both(parts, "Over time:", heading, published)


def both(parts, caption, heading, rows=()):
    """The claims, panels and rows of both kinds of queues, one after the other."""
    claims, panels, rows_of_each = zip(*parts)
    return Findings(sum(claims, []), sum(panels, []), [(caption, heading, sum(rows_of_each, list(rows)))])


def over_time(program, traces, queues):
    panels, rows, settles, shares = [], [], {}, {}
    plan = [(program, t, f"{v},queues={queues}", t.sizes(0.25)[0], "1:2:4", "--samples", PARTS) for t in traces for _, v in PAIRS]
    reports = iter(zip(plan, program.many(run, plan)))
    said = {"d-hfa": (0, 30), "p-hfa": (0, 30), "h-hfa": (60, 100)}
    for trace in traces:
        lines = {}
        for _, variant in PAIRS:
            (_, _, _, size, *_), report = next(reports)
            samples = report["movement"]["samples"]
            hit = [100 * sample["shares"][0] for sample in samples]
            hot = [100 * sample["hot_blocks"][0] / size for sample in samples]
            lines[f"{variant}, hits"] = (range(1, len(hit) + 1), hit)
            lines[f"{variant}, Q1"] = (range(1, len(hot) + 1), hot)
            late, late_hot = hit[PARTS * 2 // 5 :], hot[PARTS * 2 // 5 :]
            mean, mean_hot = sum(late) / len(late), sum(late_hot) / len(late_hot)
            moves = 100 * (max(late) - min(late)) / 2 / mean
            settles[f"{trace.name} {variant}"] = moves < 10
            shares[f"{trace.name} {variant}"] = said[variant][0] <= mean_hot <= said[variant][1]
            rows.append([queues, trace.name, variant, one(mean), f"±{moves:.0f}", one(mean_hot)])
        panels.append(Panel(f"{trace.name}, 1:2:4, {queues}", lines, "part of the run", "% of the first level", is_log=False, top=100))
    claims = [
        Claim(f"the hit ratio settles, {queues} queues", f"{queues} queues: the first level's hit ratio settles after 4 to 8 of 20 "
              "periods and varies by 5 to 9 %; here: by under a tenth", settles, "±" + span([float(row[4][1:]) for row in rows], " %")),
        Claim(f"Q1's share, {queues} queues", f"{queues} queues: Q1 settles at 13 (D), 9 (P), over 70 % (H) of the first level; here: "
              "below 30, 30, above 60", shares, "; ".join(f"{row[1]} {row[2]} {row[5]} %" for row in rows)),
    ]  # fmt: skip
    return claims, panels, rows


SPLITS = [0.1, 0.2, 0.3, 0.5, 0.7, 0.8, 0.9]
BEST = {"d-hfa": 0.2, "p-hfa": 0.1, "h-hfa": 0.8}


def figure9(program, traces):
    """Fixed splits between Q1 and Q2, against the dynamic one; with hard and with soft queues."""
    parts = [splits(program, traces, queues) for queues in QUEUES]
    heading = ["queues", "trace", "scheme", "dynamic"] + [f"Q1 {hot:g}" for hot in SPLITS] + ["best"]
    return both(parts, "Hit ratio of all levels in per cent:", heading)


def splits(program, traces, queues):
    panels, rows, best_at, worse = [], [], {}, {}
    for trace in traces:
        size, lines = trace.sizes(0.25)[0], {}
        for _, variant in PAIRS:
            scheme = f"{variant},queues={queues}"
            names = [scheme] + [f"{scheme},partition=fixed,hot={hot}" for hot in SPLITS]
            reports = program.many(run, [(program, trace, name, size, "1:2:4") for name in names])
            dynamic, *fixed = [hit_ratio(report) for report in reports]
            lines[variant] = (SPLITS, fixed)
            lines[f"{variant}, dynamic"] = (SPLITS, [dynamic] * len(SPLITS))
            best = SPLITS[fixed.index(max(fixed))]
            key = f"{trace.name} {variant}"
            best_at[key] = abs(best - BEST[variant]) <= 0.1001
            worse[key] = max(fixed) < dynamic
            rows.append([queues, trace.name, variant, one(dynamic)] + [one(value) for value in fixed] + [f"{best:g}"])
        panels.append(Panel(f"{trace.name}, 1:2:4, {queues}", lines, "share of Q1", "hit ratio of all levels, %", is_log=False))
    claims = [
        Claim(f"best fixed split, {queues} queues", f"{queues} queues: the best fixed shares of Q1 are 0.2 (D), 0.1 (P), 0.8 (H); here: "
              "within 0.1", best_at, "; ".join(f"{row[1]} {row[2]} {row[-1]}" for row in rows)),
        Claim(f"dynamic is better, {queues} queues", f"{queues} queues: the best fixed split is (11 %) worse than the dynamic one", worse,
              f"dynamic ahead in {sum(worse.values())} of {len(worse)}"),
    ]  # fmt: skip
    return claims, panels, rows


SLOTS = [0, 1, 2, 3, 4, 5, 6, 8]


def figure10(program, traces):
    """The effect of k."""
    panels, rows, base, peak = [], [], {}, {}
    for trace in traces:
        size, lines = trace.sizes(0.25)[0], {}
        for plain, variant in PAIRS:
            names = [plain] + [f"{variant},k={k}" for k in SLOTS]
            reports = program.many(run, [(program, trace, name, size, "1:2:4") for name in names])
            without, *values = [hit_ratio(report) for report in reports]
            lines[variant] = (SLOTS, values)
            key = f"{trace.name} {variant}"
            base[key] = abs(values[0] - without) < 0.5
            # The best k, and those that are as good to a tenth of a point.
            good = [k for k, value in zip(SLOTS, values) if value >= max(values) - 0.1]
            peak[key] = any(3 <= k <= 6 for k in good)
            rows.append([trace.name, variant, one(without)] + [one(value) for value in values])
        panels.append(Panel(f"{trace.name}, 1:2:4", lines, "k, slots", "hit ratio of all levels, %", is_log=False))
    claims = [
        Claim("k = 0 is the base", "k = 0 behaves like the base scheme; here: within half a point", base,
              f"{sum(base.values())} of {len(base)}"),
        Claim("best k is 4 to 5", "the best k is 4 (P) or 5 (D, H); here: 3 to 6 within a tenth of a point of the best", peak,
              f"{sum(peak.values())} of {len(peak)}"),
    ]  # fmt: skip
    heading = ["trace", "scheme", "base"] + [f"k = {k}" for k in SLOTS]
    return Findings(claims, panels, [("Hit ratio of all levels in per cent:", heading, rows)])
