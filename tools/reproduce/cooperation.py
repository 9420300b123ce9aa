"""TPDS figures 9, 10 and 14, USENIX 2003 figures 2 to 4, and the plots of the poster: levels that cooperate."""

import published
from findings import Claim, Findings, Panel, one, span
from locality import histogram

TIMES = (1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 1, 2, 4, 8)
GL = ("access", "gl")
EV = ("access", "eviction,on-hit=move")


def compared(program, trace, placements, times):
    """Sizes, and of each policy the hit ratios without and with cooperation."""
    sizes = trace.sizes(*times)
    found = program.hit_ratios(trace, sizes, published.GLOBAL, placements)
    return sizes, {policy: tuple(found[policy, one] for one in placements) for policy in published.GLOBAL}


def lines_of(times, pairs, name):
    lines = {}
    for policy, (local, other) in pairs.items():
        lines[policy] = (times, local)
        lines[f"{name}-{policy}"] = (times, other)
    return lines


def gain_claims(name, shown, times):
    """What is said of every pair of a policy without and with cooperation, of each (trace, pairs)."""
    at, last = times.index(1), len(times) - 1
    never, shrinks, least, small = {}, {}, {}, {}
    cells_lower, lost = 0, 0.0
    factors = []
    for trace, (_, pairs) in shown.items():
        lower = [a - b for local, other in pairs.values() for a, b in zip(local, other) if b < a]
        cells_lower += len(lower)
        lost = max([lost, *lower])
        never[trace.name] = not lower
        gains = {policy: [b - a for a, b in zip(*pair)] for policy, pair in pairs.items()}
        shrinks[trace.name] = all(max(g[: at + 1]) > g[last] for g in gains.values())
        least[trace.name] = gains["mq"][at] <= min(g[at] for g in gains.values())
        local, other = pairs["lru"]
        factors.append((trace.name, 100 * (other[at + 1] / max(local[at + 1], 0.01) - 1)))
        small[trace.name] = local[at - 1] <= 5
    count = sum(len(times) * len(pairs) for _, pairs in shown.values())
    return [
        Claim("never worse", "a global algorithm is never worse (in the paper's figure 10: 58 of 80)", never,
              f"lower in {cells_lower} of {count}, by up to {one(lost)} points"),
        Claim("gain shrinks with the size", "the gain shrinks as the second level grows beyond the client's cache",
              shrinks, f"every policy: most up to the client's size, least at {times[last]} times it"),
        Claim("gain smallest for MQ", "MQ gains least, at the client's size", least,
              "; ".join(f"{t.name} {gain_text(p, at)}" for t, (_, p) in shown.items())),
        Claim("LRU near nothing without", f"LRU without {name} hits nearly nothing (5 %) at half the client's cache",
              small, ", ".join(f"{t.name} {one(p['lru'][0][at - 1])} %" for t, (_, p) in shown.items())),
        Claim("LRU gains 10 % to 5 times", f"{name}-LRU has 10 % to 5 times more hits; here: at twice the client's cache",
              {trace: gain >= 10 for trace, gain in factors},
              ", ".join(f"{trace} {gain:+.0f} %" for trace, gain in factors)),
    ]  # fmt: skip


def gain_text(pairs, at):
    return ", ".join(f"{policy} {other[at] - local[at]:+.1f}" for policy, (local, other) in pairs.items())


def pair_tables(name, shown):
    for trace, (sizes, pairs) in shown.items():
        heading = ["blocks"] + [label for policy in pairs for label in (policy, f"{name}-{policy}")]
        rows = []
        for i, size in enumerate(sizes):
            rows.append([f"{size:,}"] + [one(side[i]) for pair in pairs.values() for side in pair])
        yield f"{trace.name}, below {trace.client:,} blocks, hit ratios in per cent:", heading, rows


def panels_of(name, shown, times):
    panels = [Panel(t.name, lines_of(times, pairs, name), top=100) for t, (_, pairs) in shown.items()]
    for panel in panels:
        panel.x, panel.y = "size / client's cache", "hit ratio, %"
    return panels


def identity(program, trace):
    """GL over LRU at both levels against one LRU of both sizes: hits."""
    both = program.simulate(trace, "--l1", f"{trace.client}blk:lru", "--l2", f"{trace.client}blk:lru", "--placement", "gl")
    single = program.simulate(trace, "--l1", f"{2 * trace.client}blk:lru")
    return both["aggregate"]["read_hits"], single["aggregate"]["read_hits"]


def figure9(program, traces):
    times = TIMES[3:]
    shown = {trace: compared(program, trace, GL, times) for trace in traces}
    claims = gain_claims("GL", shown, times)
    same = {trace.name: identity(program, trace) for trace in traces}
    # Writes go by the hierarchy's rules and not by one cache's, so a few hits may differ where there are any.
    equal = {name: abs(a - b) <= 0.001 * b for name, (a, b) in same.items()}
    claims.append(Claim("GL-LRU is one LRU", "GL over LRU hits as one LRU of both sizes does", equal,
                        ", ".join(f"{name} {a:,} and {b:,}" for name, (a, b) in same.items())))  # fmt: skip
    return Findings(claims, panels_of("GL", shown, times), list(pair_tables("GL", shown)))


def figure10(program, traces):
    shown = {trace: compared(program, trace, GL, TIMES) for trace in traces}
    panels = []
    for name, (client, sizes, pairs) in published.FIGURE10.items():
        times = [size / client for size in sizes]
        lines = lines_of(times, pairs, "GL")
        panels.append(Panel(f"published: {name}", lines, "size / client's cache", "hit ratio, %", top=100))
    panels += panels_of("GL", shown, TIMES)
    tables = []
    for name, (_, sizes, pairs) in published.FIGURE10.items():
        heading = ["MB"] + [label for policy in pairs for label in (policy, f"GL-{policy}")]
        rows = [[size] + [one(side[i]) for pair in pairs.values() for side in pair] for i, size in enumerate(sizes)]
        tables.append((f"Published, {name} (not public):", heading, rows))
    return Findings(gain_claims("GL", shown, TIMES), panels, tables + list(pair_tables("GL", shown)))


def usenix2(program, traces):
    found = [(t, r["idle_distance"]) for t, r in zip(traces, program.many(program.stream, [(t,) for t in traces]))]
    panels, far, rows = [], {}, []
    for trace, idle in found:
        kinds = [("access-based", idle["access_based"]), ("eviction-based", idle["eviction_based"])]
        panels.append(Panel(trace.name, {name: histogram(kind) for name, kind in kinds}, "idle distance, blocks",
                            "re-references, %"))  # fmt: skip
        limit = 1 << (2 * trace.client - 1).bit_length()
        counts = [sum(b["requests"] for b in kind["bins"] if b["up_to"] > limit) for _, kind in kinds]
        far[trace.name] = counts
        means = [f"{idle[f'mean_{kind}_based']:,.0f}" for kind in ("access", "eviction")]
        medians = [f"{kind['median']:,}" for _, kind in kinds]
        rows.append([trace.name, f"{limit:,}"] + [f"{count / 1e6:.3f}" for count in counts] + means + medians)
    claims = [
        Claim("idle distances are shorter", "from the eviction, blocks lie idle for less than from the access",
              {name: b < a for name, (a, b) in far.items()},
              "mean eviction- / access-based: " + ", ".join(
                  f"{t.name} {i['mean_eviction_based'] / i['mean_access_based']:.2f}" for t, i in found)),
        Claim("fewer beyond twice the client", "2.3 M instead of 3.0 M beyond twice the client's cache (0.77); here: under 0.9",
              {name: b / max(a, 1) < 0.9 for name, (a, b) in far.items()},
              ", ".join(f"{name} {b / max(a, 1):.2f}" for name, (a, b) in far.items())),
    ]  # fmt: skip
    rows.insert(0, ["MS-SQL-Large (not public)", "262,144", "3.0", "2.3", "", "", "", ""])
    heading = ["trace", "limit, blocks", "beyond, access, M", "beyond, eviction, M", "mean, access", "mean, eviction"]
    return Findings(claims, panels, [("Idle distances:", heading + ["median, access", "median, eviction"], rows)])


def usenix3(program, traces):
    times = TIMES[3:]
    shown = {trace: compared(program, trace, EV, times) for trace in traces}
    return Findings(gain_claims("EV", shown, times), panels_of("EV", shown, times), list(pair_tables("EV", shown)))


def usenix4(program, traces):
    shown = {trace: compared(program, trace, EV, TIMES) for trace in traces}
    at = TIMES.index(1 / 4)
    gaps = {t.name: max(b - a for l, o in p.values() for a, b in zip(l[at:], o[at:])) for t, (_, p) in shown.items()}
    small = {t.name: max(b - a for l, o in p.values() for a, b in zip(l[:at], o[:at])) for t, (_, p) in shown.items()}
    claims = [
        Claim("no gap from a quarter of the client", "no gap above 16 MB, a quarter of the client's cache; here: under a point",
              {name: gap < 1 for name, gap in gaps.items()},
              ", ".join(f"{name} up to {one(gap)} points" for name, gap in gaps.items())),
        Claim("a gap below", "placement at eviction gains below that size",
              {name: gap > 0 for name, gap in small.items()},
              ", ".join(f"{name} up to {one(gap)} points" for name, gap in small.items())),
    ]  # fmt: skip
    return Findings(claims, panels_of("EV", shown, TIMES), list(pair_tables("EV", shown)))


THRESHOLDS = [0, 2, 4, 8, 16, 32, 64]


def figure14(program, traces):
    """Reloads and hits by the number of accesses that a block needs to be reloaded."""
    def run(trace, threshold):
        placement = f"eviction,on-hit=move,threshold={threshold}"
        where = ("--l1", f"{trace.client}blk:mq", "--evictions", "cct", "--placement", placement)
        level = program.simulate(trace, *where)["levels"][0]
        return level["reloads"], 100 * level["read_hit_ratio"]

    reloads, hits, rows, falls, lost = {}, {}, [], {}, {}
    for trace in traces:
        counts, ratios = zip(*program.many(run, [(trace, threshold) for threshold in THRESHOLDS]))
        reloads[trace.name] = (THRESHOLDS, [count / 1000 for count in counts])
        hits[trace.name] = (THRESHOLDS, ratios)
        falls[trace.name] = all(a >= b for a, b in zip(counts, counts[1:]))
        lost[trace.name] = 100 * (1 - ratios[-1] / ratios[0])
        rows.append([trace.name, "reloads, thousands"] + [f"{count / 1000:,.0f}" for count in counts])
        rows.append(["", "hit ratio, %"] + [one(ratio) for ratio in ratios])
    claims = [
        Claim("reloads fall with the threshold", "reload traffic falls monotonically with the threshold", falls,
              "; ".join(f"{n} {y[0]:,.0f} to {y[-1]:,.0f} thousand" for n, (_, y) in reloads.items())),
        Claim("hits fall by 15 %", "from threshold 0 to 64 the hit ratio falls by 15 %; here: by 5 to 30 %",
              {name: 5 <= share <= 30 for name, share in lost.items()},
              ", ".join(f"{name} {share:.0f} %" for name, share in lost.items())),
    ]  # fmt: skip
    axis = "accesses that a block needs to be reloaded"
    panels = [Panel("reloads", reloads, axis, "thousands", is_log=False),
              Panel("hits", hits, axis, "hit ratio, %", is_log=False)]  # fmt: skip
    heading = ["trace", "", *THRESHOLDS]
    return Findings(claims, panels, [("MQ as large as the client's cache:", heading, rows)])


AROUND = (0.25, 0.5, 1, 2, 4)


def poster(program, traces):
    """LRUCA above LRU against LRU above LRU, with one of the two sizes fixed."""
    panels, rows, best, every, cost = [], [], {}, {}, {}
    for trace in traces:
        for fixed in ("lower", "upper"):
            name = f"{trace.name}, {fixed} fixed"
            plans = []
            for times in AROUND:
                upper, lower = trace.sizes(times, 1) if fixed == "lower" else trace.sizes(1, times)
                plans += [(trace, upper, lower, policy) for policy in ("lru", "lru-ca")]
            reads = program.many(lambda *plan: disk_reads(program, *plan), plans)
            pairs = list(zip(reads[::2], reads[1::2]))
            sizes = trace.sizes(*AROUND)
            saved = [100 * (1 - aware / plain) for plain, aware in pairs]
            title = f"{trace.name}: {'lower' if fixed == 'lower' else 'upper'} cache {trace.client:,} blocks"
            lines = {"LRU+LRU": (sizes, [a / 1000 for a, _ in pairs]), "LRUCA+LRU": (sizes, [b / 1000 for _, b in pairs])}
            other = "upper" if fixed == "lower" else "lower"
            panels.append(Panel(title, lines, f"{other} cache, blocks", "disk reads, thousands"))
            best[name], every[name], cost[name] = max(saved) >= 10, min(saved) >= 10, min(saved) >= -1
            rows.append([trace.name, fixed] + [f"{gain:+.1f}" for gain in saved])
    claims = [
        Claim("10 to 20 % fewer disk reads", "LRUCA above LRU reads 10 to 20 % less from disk; here: at the best size",
              best, "; ".join(f"{row[0]}, {row[1]} fixed: up to {max(map(float, row[2:])):.0f} %" for row in rows)),
        Claim("at every size", "the same at every size of the cache that varies", every,
              "least: " + span([min(map(float, row[2:])) for row in rows], " %")),
        Claim("never costs", "it never reads more (a per cent allowed)", cost,
              "least: " + span([min(map(float, row[2:])) for row in rows], " %")),
    ]  # fmt: skip
    heading = ["trace", "fixed"] + [f"other × {times:g}" for times in AROUND]
    return Findings(claims, panels, [("Disk reads saved, in per cent:", heading, rows)])


def disk_reads(program, trace, upper, lower, policy):
    report = program.simulate(trace, "--l1", f"{upper}blk:{policy}", "--l2", f"{lower}blk:lru")
    return report["disk"]["demand_reads"]


