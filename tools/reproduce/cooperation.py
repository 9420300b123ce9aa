"""TPDS figures 9, 10 and 14, USENIX 2003 figures 2 to 4, and the plots of the poster: levels that cooperate."""

import itertools

import published
from findings import Findings, Panel, Row, judge, listed, one
from locality import histogram

TIMES = (1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 1, 2, 4, 8)
GL = "gl"
EV = "eviction,on-hit=move"


def compared(program, traces, name, placement, times):
    """Of each trace the hit ratios of each policy, and with `name` before it those with cooperation."""
    rows = {}
    for trace in traces:
        found = program.hit_ratios(trace, trace.sizes(*times), published.GLOBAL, ("access", placement))
        hits = {}
        for policy in published.GLOBAL:
            hits |= {policy: found[policy, "access"], f"{name}-{policy}": found[policy, placement]}
        rows[trace.name] = Row([f"{size:,}" for size in trace.sizes(*times)], list(times), hits)
    return rows


def gain_claims(name, ours):
    """What is said of every pair of a policy without and with cooperation."""
    theirs = published.figure10(name)

    def by_policy(rows):
        return {f"{trace} {policy}": (row, policy) for trace, row in rows.items() for policy in published.GLOBAL}

    def by_size(rows):
        return {f"{case} {size}": (row, policy, i) for case, (row, policy) in by_policy(rows).items()
                for i, size in enumerate(row.sizes)}  # fmt: skip

    def points(row, policy, i):
        return row.hits[f"{name}-{policy}"][i] - row.hits[policy][i]

    def shrinks(pair):
        row, policy = pair
        gains = [points(row, policy, i) for i in range(row.near(1), len(row.times))]
        return all(b <= a + 1 + 1e-9 for a, b in zip(gains, gains[1:]))

    def per_cent(row):
        """More hits with cooperation at the client's size, in per cent of those without."""
        i = row.near(1)
        return {p: 100 * points(row, p, i) / max(row.hits[p][i], 0.01) for p in published.GLOBAL}

    gains = {trace: per_cent(row) for trace, row in ours.items()}
    of_paper = {trace: per_cent(row) for trace, row in theirs.items()} | {"MS-SQL-Large": published.LARGE}
    # Tables 2 and figure 10 of TPDS have LRU alone; on Auspex they agree.
    halves = {trace: row for trace, row in published.table2().items() if row.times[0] <= 0.6} | theirs
    return [
        judge("never worse", "a global algorithm is never worse", lambda points: points >= 0, by_size(ours),
              f"at worst {min(points(*cell) for cell in by_size(ours).values()):+.1f} points", by_size(theirs),
              lambda cell: points(*cell)),
        judge("gain shrinks with the size", "the gain shrinks from the client's size on (a point allowed at each step)",
              shrinks, by_policy(ours), "by trace and policy", by_policy(theirs)),
        judge("gain smallest for MQ", "MQ gains least, in per cent of its hits, at the client's size",
              lambda gains: gains["mq"] <= min(gains.values()), gains,
              "; ".join(f"{trace} {listed(of, '{:+.0f}')}" for trace, of in gains.items()), of_paper),
        judge("LRU near nothing without", f"LRU without {name} hits nearly nothing (5 %) at half the client's cache",
              lambda share: share <= 5, ours, "{:.1f} %", halves, lambda row: row.hits["lru"][row.near(1 / 2)]),
        judge("LRU gains 10 % to 5 times", f"{name}-LRU hits 10 % to 5 times more; here: 10 %, at the client's size",
              lambda gain: gain >= 10, gains, "{:+.0f} %", of_paper, lambda gains: gains["lru"]),
    ]  # fmt: skip


def tables_of(traces, rows):
    return [rows[t.name].table(f"{t.name}, below {t.client:,} blocks, hit ratios in per cent:") for t in traces]


def relative(row, name):
    """More hits of each policy with cooperation along the sizes, in per cent of those without."""
    return {
        policy: [100 * (b / max(a, 0.01) - 1) for a, b in zip(row.hits[policy], row.hits[f"{name}-{policy}"])]
        for policy in published.GLOBAL
    }


def large_claims(name, ours):
    """What is said of MS-SQL-Large at other sizes than the client's."""
    theirs = {"MS-SQL-Large": {"twice": 0, "least": 11}}

    def twice(row):
        """The most points that any policy gains at twice the client's cache."""
        i = row.near(2)
        return max(row.hits[f"{name}-{policy}"][i] - row.hits[policy][i] for policy in published.GLOBAL)

    def least(row):
        """MQ's least gain in per cent up to the client's cache."""
        return min(gain for times, gain in zip(row.times, relative(row, name)["mq"]) if times <= 1)

    ours = {trace: {"twice": twice(row), "least": least(row)} for trace, row in ours.items()}
    return [
        judge("equal at twice the client", f"at twice the client's cache {name} changes nothing; here: < 2 points more",
              lambda points: points < 2, ours, "{:+.1f} points", theirs, lambda of: of["twice"]),
        judge("MQ gains up to the client's size", f"{name}-MQ hits 11 to 80 % more; here: 11 %, up to that size",
              lambda gain: gain >= 11, ours, "at least {:+.0f} %", theirs, lambda of: of["least"]),
    ]  # fmt: skip


def large_table(name):
    rows = [[f"{round(1024 * times):,} MiB", f"{times:g}"] + [of.get(policy, "") for policy in published.GLOBAL]
            for times, of in published.LARGE_SIZES.items()]  # fmt: skip
    caption = f"Published, MS-SQL-Large (not public), more hits with {name} in per cent:"
    return caption, ["size", "size / client's cache", *published.GLOBAL], rows


def with_large(findings, rows, name):
    """With the gain in per cent of each trace beside what is published of MS-SQL-Large."""
    points = {policy: [(times, of[policy]) for times, of in published.LARGE_SIZES.items() if policy in of]
              for policy in published.GLOBAL}  # fmt: skip
    points = {policy: tuple(zip(*pairs)) for policy, pairs in points.items()}
    for trace, row in rows.items():
        lines = Row(row.sizes, row.times, relative(row, name)).lines()
        title, y = f"{trace}; ★ MS-SQL-Large, published", f"more hits with {name}, %"
        findings.panels.append(Panel(title, lines, "size / client's cache", y, bottom=-20, top=200, points=points))
    findings.tables.insert(0, large_table(name))
    return findings


def with_pictures(claims, rows, name, tables):
    """With a picture of the hit ratios of each trace without cooperation, and of what it adds."""
    x, without, added = "size / client's cache", [], []
    for trace, row in rows.items():
        local = {policy: row.hits[policy] for policy in published.GLOBAL}
        gains = {policy: [b - a for a, b in zip(local[policy], row.hits[f"{name}-{policy}"])] for policy in local}
        local, gains = Row(row.sizes, row.times, local), Row(row.sizes, row.times, gains)
        without.append(Panel(trace, local.lines(), x, f"hit ratio without {name}, %", top=100))
        added.append(Panel(f"{trace}: gain", gains.lines(), x, f"points more with {name}", bottom=-10, top=50))
    return Findings(claims, without + added, tables, len(rows))


def identity(program, trace):
    """GL over LRU at both levels against one LRU of both sizes: hits."""
    size = f"{trace.client}blk:lru"
    both = program.simulate(trace, "--l1", size, "--l2", size, "--placement", "gl")
    single = program.simulate(trace, "--l1", f"{2 * trace.client}blk:lru")
    return both["aggregate"]["read_hits"], single["aggregate"]["read_hits"]


def figure9(program, traces):
    rows = compared(program, traces, "GL", GL, TIMES[3:])
    same = {trace.name: identity(program, trace) for trace in traces}
    claims = gain_claims("GL", rows)
    # Writes go by the hierarchy's rules and not by one cache's, so a few hits may differ where there are any.
    claims.append(judge("GL-LRU is one LRU", "GL over LRU hits as one LRU of both sizes does",
                        lambda hits: abs(hits[0] - hits[1]) <= 0.001 * hits[1], same,
                        ", ".join(f"{name} {a:,} and {b:,}" for name, (a, b) in same.items())))  # fmt: skip
    claims += large_claims("GL", rows)
    return with_large(with_pictures(claims, rows, "GL", tables_of(traces, rows)), rows, "GL")


def figure10(program, traces):
    rows = compared(program, traces, "GL", GL, TIMES)
    theirs = published.figure10("GL")
    tables = [row.table(f"Published, {name} (not public):", "size") for name, row in theirs.items()]
    shown = {f"published: {name}": row for name, row in theirs.items()} | rows
    return with_pictures(gain_claims("GL", rows), shown, "GL", tables + tables_of(traces, rows))


def usenix2(program, traces):
    found = [(t, r["idle_distance"]) for t, r in zip(traces, program.many(program.stream, [(t,) for t in traces]))]
    panels, far, rows = [], {}, []
    for trace, idle in found:
        kinds = [("access-based", idle["access_based"]), ("eviction-based", idle["eviction_based"])]
        panels.append(Panel(trace.name, {name: histogram(kind) for name, kind in kinds}, "idle distance, blocks",
                            "re-references, %", mark=trace.client))  # fmt: skip
        limit = 1 << (2 * trace.client - 1).bit_length()
        counts = [sum(b["requests"] for b in kind["bins"] if b["up_to"] > limit) for _, kind in kinds]
        far[trace.name] = counts
        typical = [f"{idle[f'mean_{kind}_based']:,.0f}" for kind in ("access", "eviction")]
        typical += [f"{kind['median']:,}" for _, kind in kinds]
        rows.append([trace.name, f"{limit:,}"] + [f"{number / 1e6:.3f}" for number in counts] + typical)
    theirs = {"MS-SQL-Large": (3.0, 2.3)}
    means = {t.name: idle["mean_eviction_based"] / idle["mean_access_based"] for t, idle in found}
    claims = [
        judge("idle distances are shorter",
              "from the eviction, blocks lie idle for less than from the access; here: fewer beyond twice the client",
              lambda counts: counts[1] < counts[0], far, "ratio of the means: " + listed(means, "{:.2f}"), theirs),
        judge("fewer beyond twice the client", "2.3 M instead of 3.0 M beyond twice the client (0.77); here: under 0.9",
              lambda share: share < 0.9, far, "{:.2f}", theirs, lambda counts: counts[1] / max(counts[0], 1e-9)),
    ]  # fmt: skip
    rows.insert(0, ["MS-SQL-Large (not public)", "262,144", "3.0", "2.3", "", "", "", ""])
    heading = ["trace", "limit, blocks", "beyond, access, M", "beyond, eviction, M", "mean, access", "mean, eviction"]
    return Findings(claims, panels, [("Idle distances:", heading + ["median, access", "median, eviction"], rows)])


def usenix3(program, traces):
    rows = compared(program, traces, "EV", EV, TIMES[3:])
    claims = gain_claims("EV", rows) + large_claims("EV", rows)
    return with_large(with_pictures(claims, rows, "EV", tables_of(traces, rows)), rows, "EV")


def usenix4(program, traces):
    rows = compared(program, traces, "EV", EV, TIMES)
    theirs = {"MS-SQL-Small": published.figure10("EV")["MS-SQL-Small"]}

    def gap(row, from_quarter):
        """The most points that any policy gains from a quarter of the client's cache on, or below it."""
        meant = [i for i, times in enumerate(row.times) if (times >= 1 / 4) is from_quarter]
        return max(row.hits[f"EV-{policy}"][i] - row.hits[policy][i] for policy in published.GLOBAL for i in meant)

    claims = [
        judge("no gap from a quarter of the client", "no gap above 16 MB, a quarter of the client; here: < 2 points",
              lambda points: points < 2, rows, "up to {:.1f} points", theirs, lambda row: gap(row, True)),
        judge("a gap below", "placement at eviction gains below that size", lambda points: points > 0, rows,
              "up to {:.1f} points", theirs, lambda row: gap(row, False)),
    ]  # fmt: skip
    shown = {f"published: {name}": row for name, row in theirs.items()} | rows
    return with_pictures(claims, shown, "EV", tables_of(traces, rows))


THRESHOLDS = [0, 2, 4, 8, 16, 32, 64]


def figure14(program, traces):
    """Reloads and hits by the number of accesses that a block needs to be reloaded."""
    def run(trace, threshold):
        placement = f"eviction,on-hit=move,threshold={threshold}"
        where = ("--l1", f"{trace.client}blk:mq", "--evictions", "cct", "--placement", placement)
        level = program.simulate(trace, *where)["levels"][0]
        return level["reloads"], 100 * level["read_hit_ratio"]

    reloads, hits, rows, lost = {}, {}, [], {}
    for trace in traces:
        counts, ratios = zip(*program.many(run, [(trace, threshold) for threshold in THRESHOLDS]))
        reloads[trace.name] = (THRESHOLDS, [number / 1000 for number in counts])
        hits[trace.name] = (THRESHOLDS, [100 * ratio / ratios[0] for ratio in ratios])
        lost[trace.name] = 100 * (1 - ratios[-1] / ratios[0])
        rows.append([trace.name, "reloads, thousands"] + [f"{number / 1000:,.0f}" for number in counts])
        rows.append(["", "hit ratio, %"] + [one(ratio) for ratio in ratios])
    claims = [
        judge("reloads fall with the threshold", "reload traffic falls monotonically with the threshold",
              lambda line: all(a >= b for a, b in zip(line[1], line[1][1:])), reloads,
              "; ".join(f"{n} {y[0]:,.0f} to {y[-1]:,.0f} thousand" for n, (_, y) in reloads.items())),
        judge("hits fall by 15 %", "from threshold 0 to 64 the hit ratio falls by 15 %; here: by 5 to 30 %",
              lambda share: 5 <= share <= 30, lost, paper={"the paper": 15}),
    ]  # fmt: skip
    axis = "accesses that a block needs to be reloaded"
    panels = [Panel("reloads", reloads, axis, "thousands", is_log=False),
              Panel("hits", hits, axis, "hits, % of those with 0", is_log=False,
                    points={"published": ([0, 64], [100, 85])})]  # fmt: skip
    heading = ["trace", "", *THRESHOLDS]
    return Findings(claims, panels, [("MQ as large as the client's cache:", heading, rows)])


AROUND = (0.25, 0.5, 1, 2, 4)


def poster(program, traces):
    """LRUCA above LRU against LRU above LRU, with one of the two sizes fixed."""
    panels, rows, saved = [], [], {}
    for trace, fixed in itertools.product(traces, ("lower", "upper")):
        sizes = trace.sizes(*AROUND)
        levels = [(size, trace.client) if fixed == "lower" else (trace.client, size) for size in sizes]
        plans = [(program, trace, *pair, policy) for policy in ("lru", "lru-ca") for pair in levels]
        reads = [number / 1000 for number in program.many(disk_reads, plans)]
        plain, aware = reads[: len(sizes)], reads[len(sizes) :]
        gains = saved[f"{trace.name}, {fixed} fixed"] = [100 * (1 - b / a) for a, b in zip(plain, aware)]
        lines = {"LRU+LRU": (sizes, plain), "LRUCA+LRU": (sizes, aware)}
        said = (sizes, [0.8 * number for number in plain], [0.9 * number for number in plain])
        title = f"{trace.name}: {fixed} cache {trace.client:,} blocks"
        other = "upper" if fixed == "lower" else "lower"
        panels.append(Panel(title, lines, f"{other} cache, blocks", "disk reads, thousands", band=said))
        rows.append([trace.name, fixed] + [f"{gain:+.1f}" for gain in gains])
    claims = [
        judge("10 to 20 % fewer disk reads", "LRUCA above LRU reads 10 to 20 % less from disk; here: at the best size",
              lambda gain: gain >= 10, saved, "{:.0f} %", value=max),
        judge("at every size", "the same at every size of the cache that varies", lambda gain: gain >= 10, saved,
              "at least {:.1f} %", value=min),
        judge("never costs", "it never reads more (a per cent allowed)", lambda gain: gain >= -1, saved,
              "at least {:.1f} %", value=min),
    ]  # fmt: skip
    heading = ["trace", "fixed"] + [f"other × {times:g}" for times in AROUND]
    return Findings(claims, panels, [("Disk reads saved, in per cent:", heading, rows)])


def disk_reads(program, trace, upper, lower, policy):
    report = program.simulate(trace, "--l1", f"{upper}blk:{policy}", "--l2", f"{lower}blk:lru")
    return report["disk"]["demand_reads"]


