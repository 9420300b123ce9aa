"""TPDS tables 2 and 3 and figure 8: replacement policies at the second level."""

import published
from findings import Claim, Findings, Panel, cells, one, span

TIMES = (0.5, 1, 2, 4, 8, 16)
# Parameters of the policies that the paper set for each trace.
SECTIONS = ((0.01, 0.95), (0.03, 0.5), (0.1, 0.5), (0.1, 0.9), (0.3, 0.25), (0.3, 0.5))
TRIED = {
    "lfru": [f"lfru,decay={decay}" for decay in (0.01, 0.05, 0.2, 1, 5)],
    "fbr": [f"fbr,new={new},old={old}" for new, old in SECTIONS],
}


def tuned(program, trace, policy):
    """A policy, if the paper tuned it with the parameters that have the most hits on a trace, summed over the sizes."""
    if policy not in TRIED:
        return policy
    found = program.hit_ratios(trace, trace.sizes(*TIMES), TRIED[policy])
    return max(TRIED[policy], key=lambda one: sum(found[one, "access"]))


def ratios(program, trace, policies):
    """Sizes, and the hit ratios of each policy along them."""
    sizes = trace.sizes(*TIMES)
    names = {policy: tuned(program, trace, policy) for policy in policies}
    found = program.hit_ratios(trace, sizes, names.values())
    return sizes, {policy: found[name, "access"] for policy, name in names.items()}


def published_table2():
    """As ours: name to (multiples of the client's cache, policy to hit ratios)."""
    for name, (client, rows) in published.TABLE2.items():
        columns = list(zip(*rows.values()))
        yield name, [size / client for size in rows], dict(zip(published.POLICIES, columns))


def table2(program, traces):
    ours = {trace: ratios(program, trace, published.POLICIES) for trace in traces}
    locals_ = [policy for policy in published.POLICIES if policy != "opt"]
    holds = {key: {} for key in ("above", "best", "worst", "bound", "twice")}
    pairs = {key: [] for key in holds}
    small, winners = {}, []
    for trace, (sizes, found) in ours.items():
        # Where LRU comes near to OPT the cache has room for nearly everything, and all policies are alike.
        open_ = [i for i in range(len(sizes)) if found["opt"][i] - found["lru"][i] >= 5]
        # The most and the fewest hits of the eight without the one that is judged.
        most = {i: max(found[p][i] for p in locals_) for i in range(len(sizes))}
        fewest = {i: min(found[p][i] for p in locals_ if p != "mru") for i in open_}
        here = {
            "above": [(found["mq"][i], found["lru"][i]) for i in open_],
            "best": [(found["mq"][i] + 1, most[i]) for i in open_],
            "worst": [(fewest[i], found["mru"][i]) for i in open_],
            "bound": [(found["opt"][i] + 1e-9, most[i]) for i in most],
            "twice": [(found["mq"][i] + 1, found["lru"][i + 1]) for i in open_ if TIMES[i] <= 2],
        }
        for key, into in holds.items():
            into[trace.name] = cells(here[key])[0]
            pairs[key] += here[key]
        winners += [max(locals_, key=lambda policy: found[policy][i]) for i in open_]
        if trace.client:
            small[trace.name] = found["lru"][TIMES.index(1)]

    def found_in(key):
        return f"{cells(pairs[key])[1]} sizes"

    of_theirs = [values for _, _, values in published_table2()]
    best = [mq + 1 > max(v[p][i] for p in locals_) for v in of_theirs for i, mq in enumerate(v["mq"])]
    at = TIMES.index(4)
    gains = {t.name: 100 * (f["mq"][at] / max(f["lru"][at], 0.01) - 1) for t, (_, f) in ours.items()}
    claims = [
        Claim("MQ above LRU", "MQ has more hits than LRU at every size", holds["above"], found_in("above")),
        Claim(
            "MQ best",
            f"MQ has the most hits of the eight, or is within a point of it (in the paper: {sum(best)} of {len(best)})",
            holds["best"], found_in("best") + "; most hits: " + ", ".join(f"{p} {winners.count(p)}" for p in dict.fromkeys(winners)),
        ),
        Claim("MRU worst", "MRU has the fewest hits of the eight", holds["worst"], found_in("worst")),
        Claim("OPT above all", "no policy has more hits than OPT", holds["bound"], found_in("bound")),
        Claim(
            "LRU near nothing up to the client's size",
            "LRU hits 2 to 10 % where it is as large as the client's cache",
            {name: ratio <= 10.1 for name, ratio in small.items()},
            ", ".join(f"{name} {one(ratio)}" for name, ratio in small.items()) + " %",
        ),
        Claim(
            "LRU needs twice the cache",
            "MQ hits as often as LRU with twice the blocks (a point less allowed), up to twice the client's cache",
            holds["twice"], found_in("twice"),
        ),
        Claim(
            "gain at four times the client",
            "at four times the client's cache MQ has 53 % more hits than LRU (Oracle-128M); here: at least 25 %",
            {name: gain >= 25 for name, gain in gains.items()},
            ", ".join(f"{name} {gain:+.0f} %" for name, gain in gains.items()),
        ),
    ]  # fmt: skip
    panels = []
    for name, times, values in list(published_table2())[:1]:
        panels.append(Panel(f"published: {name}", {p: (times, v) for p, v in values.items()}, top=100))
    for trace, (sizes, found) in list(ours.items())[:5]:
        panels.append(Panel(trace.name, {p: (TIMES, v) for p, v in found.items()}, top=100))
    for panel in panels:
        panel.x, panel.y = "size / client's cache", "hit ratio, %"
    tables = [side_by_side(ours), parameters(program, traces)]
    for trace, (sizes, found) in ours.items():
        rows = [[f"{size:,}"] + [one(found[p][i]) for p in published.POLICIES] for i, size in enumerate(sizes)]
        above_it = f"below {trace.client:,} blocks" if trace.client else "client's cache not known"
        tables.append((f"{trace.name} ({trace.what}; {above_it}):", ["blocks", *published.POLICIES], rows))
    return Findings(claims, panels, tables)


def side_by_side(ours):
    """All traces at four times the client's cache, published and ours."""
    rows = []
    for name, times, values in published_table2():
        i = min(range(len(times)), key=lambda i: abs(times[i] - 4))
        rows.append([f"{name} (not public)"] + [one(values[p][i]) for p in published.POLICIES])
    for trace, (_, found) in ours.items():
        rows.append([f"**{trace.name}**"] + [one(found[p][TIMES.index(4)]) for p in published.POLICIES])
    return "At about four times the client's cache, ours in bold:", ["trace", *published.POLICIES], rows


def parameters(program, traces):
    """What each trace was given."""
    rows = [[trace.name] + [f"`{tuned(program, trace, policy)}`" for policy in TRIED] for trace in traces]
    return "Parameters with the most hits, summed over the sizes:", ["trace", *TRIED], rows


def split(program, trace, size):
    """Table 3's four cells of each policy, by temporal distance."""
    names = [tuned(program, trace, policy) for policy in published.TABLE3]
    caches = [part for name in names for part in ("--cache", f"{size}blk:{name}")]
    report = program.stream(trace, *caches)
    found = {}
    for policy, one in zip(published.TABLE3, report["splits"], strict=True):
        cut = one["by_temporal"]
        found[policy] = [cut[what] for what in ("lt_hits", "lt_misses", "ge_hits", "ge_misses")]
    return found


def table3(program, traces):
    sizes = [trace.sizes(4)[0] for trace in traces]
    found = dict(zip(traces, program.many(lambda t, s: split(program, t, s), list(zip(traces, sizes)))))
    fewer, left, none, most = {}, {}, {}, {}
    for trace, values in found.items():
        misses, base = values["mq"][3], values["lru"][3]
        fewer[trace.name] = 100 * (1 - misses / base)
        left[trace.name] = 100 * values["mq"][1] / (values["mq"][1] + misses)
        none[trace.name] = values["lru"][1] == 0
        most[trace.name] = values["mq"][2] >= max(other[2] for other in values.values())
    claims = [
        Claim("LRU keeps what is near", "LRU misses nothing at a distance below its size", none, "as defined"),
        Claim("MQ hits most beyond", "of the six, MQ has the most hits at distances of its size and beyond", most,
              "hits beyond: " + ", ".join(f"{t.name} {v['mq'][2] / 1000:.0f}k" for t, v in found.items())),
        Claim("MQ misses less beyond", "there MQ has 36 % fewer misses than LRU; here: at least 20 %",
              {name: share >= 20 for name, share in fewer.items()},
              ", ".join(f"{name} {share:.0f} %" for name, share in fewer.items())),
        Claim("MQ gives up little", "misses below its size are a tenth of MQ's misses; here: at most a fifth",
              {name: share <= 20 for name, share in left.items()},
              ", ".join(f"{name} {share:.0f} %" for name, share in left.items())),
    ]  # fmt: skip
    names = ["hits, near", "misses, near", "hits, far", "misses, far"]
    panels, tables = [], []
    shown = [("published: Oracle-128M", {p: [1000 * x for x in v] for p, v in published.TABLE3.items()})]
    shown += [(f"{trace.name}, {size:,} blocks", found[trace]) for trace, size in zip(traces, sizes)]
    for title, values in shown:
        total = sum(values["lru"])
        bars = {name: [100 * v[i] / total for v in values.values()] for i, name in enumerate(names)}
        panels.append(Panel(title, bars, "", "re-references, %", bars=tuple(values), top=100))
        rows = [[policy] + [f"{x / 1000:,.1f}" for x in v] for policy, v in values.items()]
        tables.append((f"{title}, thousands:", ["policy", *names], rows))
    return Findings(claims, panels, tables)


def figure8(program, traces):
    policies = list(published.FIGURE8)
    found = {trace: ratios(program, trace, policies) for trace in traces}
    beats = {}
    pairs = {"arc": [], "lirs": []}
    for other in pairs:
        beats[other] = {}
        for trace, (_, values) in found.items():
            here = list(zip(values["mq"], values[other]))
            beats[other][trace.name] = cells(here)[0]
            pairs[other] += here
    claims = [
        Claim(f"MQ above {other.upper()}", f"MQ hits more often than {other.upper()} at every size "
              f"(HP Disk, 32 MB: {published.FIGURE8['mq']} against {published.FIGURE8[other]} %)", beats[other],
              f"{cells(of)[1]} sizes; MQ ahead by {span([a - b for a, b in of])} points")
        for other, of in pairs.items()
    ]  # fmt: skip
    lines = [(trace.name, {p: (TIMES, v) for p, v in values.items()}) for trace, (_, values) in found.items()]
    panels = [Panel(name, these, "size / client's cache", "hit ratio, %", top=100) for name, these in lines]
    rows = [["HP Disk (not public)", "32 MB"] + [one(v) for v in published.FIGURE8.values()]]
    for trace, (sizes, values) in found.items():
        rows += [[trace.name, f"{size:,}"] + [one(values[p][i]) for p in policies] for i, size in enumerate(sizes)]
    return Findings(claims, panels, [("Hit ratios in per cent:", ["trace", "blocks", *policies], rows)])
