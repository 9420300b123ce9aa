"""HFA's figures 1 and 4 to 7 and tables 3 and 4: schemes that move blocks between levels by hints."""

import published
from findings import Findings, Panel, judge, listed, one, span

PAIRS = [("demote", "d-hfa"), ("promote", "p-hfa"), ("hint-k", "h-hfa")]
VARIANTS = [variant for _, variant in PAIRS]
ORACLE = "oracle-hfa"
SCHEMES = [scheme for pair in PAIRS for scheme in pair] + [ORACLE]
# The first level, times the client's cache, and the sizes of the levels to each other: those of the paper.
SIZES = {0.25: "1/4", 0.5: "1/2", 1: "1"}
SHAPES = [(0.25, "1:4"), (0.5, "1:4"), (1, "1:4"), (0.5, "1:2"), (0.25, "1:2:4")]


def run(program, trace, scheme, size, parts="1:4", *more):
    return program.simulate(
        trace, "--l1", f"{size}blk:lru", "--ratio", parts, "--placement", scheme, "--demotions", "free", *more
    )


def grid(program, traces):
    """The report of each scheme, trace and shape."""
    plan = [(trace, times, parts, scheme) for trace in traces for times, parts in SHAPES for scheme in SCHEMES]
    reports = program.many(lambda t, times, parts, s: run(program, t, s, t.sizes(times)[0], parts), plan)
    return dict(zip(plan, reports))


def hit_ratio(report):
    return 100 * report["aggregate"]["read_hit_ratio"]


def time_ms(report):
    return report["response_time_ms"]


def hints(report):
    """Hints for 1,000 requests; under DEMOTE and D-HFA demotions alone, since DEMOTE knows no promotions."""
    movement = report["movement"]
    demotes = movement["scheme"] in ("demote", "d-hfa", ORACLE)
    return movement["demotions_per_1000" if demotes else "hints_per_1000"]


def overhead(report):
    nodes = report["movement"]["nodes"]
    blocks = sum(level["capacity_blocks"] for level in report["levels"])
    return 100 * sum(node["overhead_bytes"] for node in nodes) / (blocks * report["block_bytes"])


HEADING = ["trace", "first level, blocks", "levels", *SCHEMES]


def rows_of(reports, traces, figure, digits=2):
    rows = []
    for trace in traces:
        for times, parts in SHAPES:
            values = [figure(reports[trace, times, parts, scheme]) for scheme in SCHEMES]
            size = f"{trace.sizes(times)[0]:,}"
            rows.append([f"**{trace.name}**", size, parts] + [f"{value:.{digits}f}" for value in values])
    return rows


def gains(reports, traces, figure, is_less_better):
    """Of each variant, and of the oracle over DEMOTE, the gain in per cent over its base: (trace, shape) to gain."""
    found = {}
    for base, variant in [*PAIRS, ("demote", ORACLE)]:
        of_variant = found[variant] = {}
        for trace in traces:
            for shape in SHAPES:
                plain, ours = (figure(reports[trace, *shape, scheme]) for scheme in (base, variant))
                better = plain - ours if is_less_better else ours - plain
                of_variant[trace, shape] = 100 * better / plain
    return found


def panels_of(found, traces, y, best, title="published: best of six traces"):
    """The gain of each variant over its base, beside what was published of it."""
    x, bars, panels = "levels, first × client's cache", [f"{parts}\n× {SIZES[times]}" for times, parts in SHAPES], []
    said = {name: [value] for name, value in best.items()}
    all_ = [*best.values(), *(gain for of in found.values() for gain in of.values())]
    limits = {"bottom": min(0, *all_) * 1.05, "top": max(all_) * 1.05, "band": (0, max(best.values()))}
    for trace in traces:
        lines = {name: [of[trace, shape] for shape in SHAPES] for name, of in found.items()}
        panels.append(Panel(trace.name, lines, x, y, bars, False, **limits))
    return [*panels, Panel(title, said, "", y, ["all"], False, **limits)]


def mean(values):
    return sum(values.values()) / len(values)


def figure1(program, traces):
    """Mean hint reuse distance by the number of moves of a block, at the second level."""
    plan = [(program, t, "d-hfa", t.sizes(1)[0], "1:4", "--hint-distances") for t in traces]
    lines, rows, means = {}, [], {}
    for trace, report in zip(traces, program.many(run, plan)):
        pairs = report["movement"]["nodes"][1]["hint_distances"]
        means[trace.name] = [mean for _, mean in pairs]
        lines[trace.name] = ([n for n, _ in pairs], [mean / trace.base() for _, mean in pairs])
        rows.append([trace.name] + [f"{mean:,.0f}" for _, mean in pairs])
    claim = judge(
        "blocks that moved often return sooner",
        "the hint reuse distance falls with the number of moves; here: from each number to the next, 5 % allowed",
        lambda values: len(values) > 1 and all(b <= 1.05 * a for a, b in zip(values, values[1:])), means,
        "; ".join(f"{row[0]} {row[1]} to {row[-1]}" for row in rows if len(row) > 1),
    )  # fmt: skip
    panel = Panel("D-HFA, second level", lines, "moves of a block", "hint reuse distance / first level", is_log=False)
    heading = ["trace"] + [str(n) for n in range(1, 11)]
    rows = [row + [""] * (11 - len(row)) for row in rows]
    return Findings([claim], [panel], [("Mean hint reuse distance in blocks, by moves of the block:", heading, rows)])


def compared(program, traces, which, figure, y, caption, digits):
    """Whether each variant is better than its base, beside the gain of table 4 in column `which`."""
    reports = grid(program, traces)
    found, claims = gains(reports, traces, figure, figure is time_ms), []
    for variant, of in found.items():
        if variant != ORACLE:
            cases = {f"{trace.name} {parts} × {SIZES[times]}": gain for (trace, (times, parts)), gain in of.items()}
            text = f"{span(cases.values())} %, in the mean {mean(cases):+.1f} %"
            said = f"{variant} is better than its base"
            claims.append(judge(f"{variant} gains", said, lambda gain: gain > 0, cases, text))
    best = {variant: values[which] for variant, values in published.HFA_GAINS.items()}
    table = (caption, HEADING, rows_of(reports, traces, figure, digits))
    return Findings(claims, panels_of(found, traces, y, best), [table])


def figure4(program, traces):
    caption = "Hit ratio of all levels in per cent:"
    return compared(program, traces, 0, hit_ratio, "more hits than the base, %", caption, 2)


def figure5(program, traces):
    caption = "Mean time of a read in milliseconds, demotions free:"
    return compared(program, traces, 1, time_ms, "less time than the base, %", caption, 3)


def figure6(program, traces):
    reports = grid(program, traces)
    found = gains(reports, traces, hints, True)
    claims = []
    for variant in VARIANTS:
        ours = {t.name: mean({shape: found[variant][t, shape] for shape in SHAPES}) for t in traces}
        said = f"{variant} has about 10 % fewer hints than its base, in the mean; here: at least 5 %"
        claims.append(judge(f"fewer hints with {variant}", said, lambda gain: gain >= 5, ours, paper={"mean": 10}))
    caption = "Hints for 1,000 requests (under DEMOTE, D-HFA and the oracle demotions alone: DEMOTE has no promotions):"
    tables = [(caption, HEADING, rows_of(reports, traces, hints, 0))]
    rows = []
    for trace in traces:
        parts = [[hints(reports[trace, *shape, scheme]) for shape in SHAPES] for scheme in SCHEMES]
        means = [sum(a / b for a, b in zip(part, parts[-1])) / len(SHAPES) for part in parts]
        rows.append([trace.name] + [f"{value:.2f}" for value in means])
    tables.append(("The same as multiples of the oracle's, in the mean of the sizes:", ["trace", *SCHEMES], rows))
    best, title = dict.fromkeys(VARIANTS, 10), "published: in the mean, about"
    return Findings(claims, panels_of(found, traces, "fewer hints than the base, %", best, title), tables)


def figure7(program, traces):
    reports = grid(program, traces)
    # The oracle's log of all moves is no scheme's.
    schemes = [scheme for scheme in SCHEMES if scheme != ORACLE]
    spaces = {s: [max(overhead(reports[t, *shape, s]) for shape in SHAPES) for t in traces] for s in schemes}
    most = {trace.name: max(values[i] for values in spaces.values()) for i, trace in enumerate(traces)}
    said = "the space is below 2.6 % of the cache"
    claim = judge("space below 2.6 %", said, lambda share: share < 2.6, most, "at most {:.2f} %")
    shown = {scheme: values for scheme, values in spaces.items() if max(values) > 0}
    names = [trace.name for trace in traces]
    panel = Panel("published: below 2.6 %", shown, "", "space, % of the cache", names, False, band=(0, 2.6))
    rows = [[trace.name] + [f"{values[i]:.3f}" for values in spaces.values()] for i, trace in enumerate(traces)]
    caption = "The most space of any size, in per cent of the blocks' data:"
    return Findings([claim], [panel], [(caption, ["trace", *schemes], rows)])


def table3(program, traces):
    """The traces of the paper beside ours."""
    rows = [list(row) for row in published.HFA_TRACES]
    for trace, report in zip(traces, program.many(program.references, [(trace,) for trace in traces])):
        blocks = report["blocks"]
        data = blocks["unique_blocks"] * report["block_bytes"] / 1e9
        requests = (blocks["reads"] + blocks["writes"]) / 1e6
        rows.append([f"**{trace.name}**", f"{data:.2f}", "", f"{requests:.2f}", trace.what])
    heading = ["trace", "data, GB", "hours", "requests, M", "what, or where it can be had"]
    return Findings([], [], [("Ours in bold:", heading, rows)])


def table4(program, traces):
    """The best gain of each variant, of hit ratio and of response time."""
    reports = grid(program, traces)
    rows, reach, order, of_paper = [], {}, {}, {}
    for which, (what, figure) in enumerate([("hit ratio", hit_ratio), ("response time", time_ms)]):
        found = gains(reports, traces, figure, figure is time_ms)
        said = {variant: published.HFA_GAINS[variant][which] for variant in VARIANTS}
        best = {variant: max(found[variant].values()) for variant in VARIANTS}
        means = {variant: mean(found[variant]) for variant in VARIANTS}
        for variant in VARIANTS:
            reach[f"{what} {variant}"] = 100 * best[variant] / said[variant]
            trace, (times, parts) = max(found[variant], key=found[variant].get)
            where = f"{trace.name}, {parts} × {SIZES[times]}"
            rows.append([what, variant, one(said[variant]), one(best[variant]), where, one(means[variant])])
        order |= {f"{what}, best": best, f"{what}, mean": means}
        of_paper[f"{what}, best"] = said
    claims = [
        judge("best gains", "the best gains are those of table 4; here: at least half of them",
              lambda share: share >= 50, reach, "{:.0f} % of it", dict.fromkeys(reach, 100)),
        judge("order D > P > H", "the gains are in the order D > P > H",
              lambda gain: gain["d-hfa"] > gain["p-hfa"] > gain["h-hfa"], order,
              "; ".join(f"{name}: {listed(values, '{:.1f}')}" for name, values in order.items()), of_paper),
    ]  # fmt: skip
    heading = ["of", "scheme", "published, best %", "ours, best %", "where", "ours, mean %"]
    return Findings(claims, [], [("Gain over the base:", heading, rows)])
