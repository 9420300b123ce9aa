"""TPDS tables 2 and 3 and figure 8: replacement policies at the second level."""

import published
from findings import Findings, Panel, Row, cells, count, judge, one, span

TIMES = (0.5, 1, 2, 4, 8, 16)
LOCAL = [policy for policy in published.POLICIES if policy != "opt"]
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


def rows_of(program, traces, policies):
    """Of each trace the hit ratios of the policies along the sizes."""
    rows = {}
    for trace in traces:
        sizes = trace.sizes(*TIMES)
        names = {policy: tuned(program, trace, policy) for policy in policies}
        found = program.hit_ratios(trace, sizes, names.values())
        hits = {policy: found[name, "access"] for policy, name in names.items()}
        rows[trace.name] = Row([f"{size:,}" for size in sizes], list(TIMES), hits)
    return rows


def parameters(program, traces):
    """The table of what the policies that the paper tuned are tuned to."""
    rows = [[trace.name] + [f"`{tuned(program, trace, policy)}`" for policy in TRIED] for trace in traces]
    return "Parameters with the most hits, summed over the sizes:", ["trace", *TRIED], rows


def is_open(cell):
    """Where LRU comes near to OPT the cache has room for nearly everything, and all policies are alike."""
    row, i = cell
    return row.hits["opt"][i] - row.hits["lru"][i] >= 5


def at(cell, policies=LOCAL):
    """The hits of each policy in one cell."""
    row, i = cell
    return {policy: row.hits[policy][i] for policy in policies}


def has_next(cell):
    """Whether the row goes on to twice the size, and the size is at most about twice the client's."""
    row, i = cell
    return is_open(cell) and row.times[i] <= 2.2 and i + 1 < len(row.times)


def table2(program, traces):
    ours, theirs = rows_of(program, traces, published.POLICIES), published.table2()
    open_, open_theirs = cells(ours, is_open), cells(theirs, is_open)
    known = {trace.name: ours[trace.name] for trace in traces if trace.client}
    most = [max(LOCAL, key=at(cell).get) for cell in open_.values()]
    winners = "most hits: " + ", ".join(f"{policy} {most.count(policy)}" for policy in LOCAL if policy in most)

    def at_client(row):
        return row.hits["lru"][row.near(1)]

    def gain(row):
        return 100 * (row.hits["mq"][row.near(4)] / max(row.hits["lru"][row.near(4)], 0.01) - 1)

    def as_twice(cell):
        row, i = cell
        return row.hits["mq"][i] + 1 > row.hits["lru"][i + 1]

    claims = [
        judge("MQ above LRU", "MQ has more hits than LRU at every size",
              lambda hits: hits["mq"] > hits["lru"], open_, by_trace, open_theirs, at),
        judge("MQ best", "MQ has the most hits of the eight, or is within a point of it",
              lambda hits: hits["mq"] + 1 > max(hits.values()), open_, winners, open_theirs, at),
        judge("MRU worst", "MRU has the fewest hits of the eight",
              lambda hits: hits["mru"] < sorted(hits.values())[1], open_, by_trace, open_theirs, at),
        judge("OPT above all", "no policy has more hits than OPT", lambda hits: hits["opt"] >= max(hits.values()),
              cells(ours), by_trace, cells(theirs), lambda cell: at(cell, published.POLICIES)),
        judge("LRU hits little up to the client's size",
              f"LRU hits {span(map(at_client, theirs.values()))} % at the client's size; here: no more than that",
              lambda share: share <= 22.1, known, "{:.1f} %", theirs, at_client),
        judge("LRU needs twice the cache",
              "MQ hits as often as LRU with twice the blocks (a point less allowed), up to twice the client's cache",
              as_twice, cells(ours, has_next), by_trace, cells(theirs, has_next)),
        judge("gain at four times the client",
              f"MQ has {span(map(gain, theirs.values()))} % more hits than LRU there; here: at least 10 %",
              lambda more: more >= 10, ours, "{:+.0f} %", theirs, gain),
    ]  # fmt: skip
    shown = {f"published: {name}": row for name, row in theirs.items()} | ours
    panels = panels_of(shown, traces, without=("lfu", "mru"))
    tables = [row.table(f"Published, {name} (not public):", "size") for name, row in theirs.items()]
    tables.append(parameters(program, traces))
    for trace in traces:
        above_it = f"below {trace.client:,} blocks" if trace.client else "client's cache not known"
        tables.append(ours[trace.name].table(f"{trace.name} ({trace.what}; {above_it}):"))
    return Findings(claims, panels, tables, 4)


def panels_of(rows, traces, without=()):
    unknown = {trace.name: f"size / {trace.base():,} blocks" for trace in traces if not trace.client}
    return [
        Panel(name, row.lines(without), unknown.get(name, "size / client's cache"), "hit ratio, %", top=100)
        for name, row in rows.items()
    ]


def by_trace(cases):
    """How many sizes of each trace are as said."""
    traces = {}
    for case, holds in cases.items():
        traces.setdefault(case.rsplit(" ", 1)[0], {})[case] = holds
    return "sizes: " + ", ".join(f"{name} {count(of)}" for name, of in traces.items())


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
    plans = [(trace, trace.sizes(4)[0]) for trace in traces]
    found = program.many(lambda trace, size: split(program, trace, size), plans)
    ours = {trace.name: values for trace, values in zip(traces, found)}
    theirs = {"Oracle-128M": {policy: [1000 * x for x in values] for policy, values in published.TABLE3.items()}}

    claims = [
        judge("LRU keeps what is near", "LRU misses nothing at a distance below its size",
              lambda values: values["lru"][1] == 0, ours, "as defined", theirs),
        judge("MQ hits most beyond", "of the six, MQ has the most hits at distances of its size and beyond",
              lambda share: share >= 100, ours, "{:.0f} % of the most", theirs,
              lambda values: 100 * values["mq"][2] / max(other[2] for other in values.values())),
        judge("MQ misses less beyond", "there MQ has 36 % fewer misses than LRU; here: at least 20 %",
              lambda share: share >= 20, ours, "{:.0f} %", theirs,
              lambda values: 100 * (1 - values["mq"][3] / values["lru"][3])),
        judge("MQ gives up little", "misses below its size are a tenth of MQ's misses; here: at most a fifth",
              lambda share: share <= 20, ours, "{:.0f} %", theirs,
              lambda values: 100 * values["mq"][1] / (values["mq"][1] + values["mq"][3])),
    ]  # fmt: skip
    names = ["hits, near", "misses, near", "hits, far", "misses, far"]
    panels, tables = [], []
    shown = {"published: Oracle-128M": theirs["Oracle-128M"]}
    shown |= {f"{trace.name}, {size:,} blocks": ours[trace.name] for trace, size in plans}
    for title, values in shown.items():
        total = sum(values["lru"])
        bars = {name: [100 * v[i] / total for v in values.values()] for i, name in enumerate(names)}
        panels.append(Panel(title, bars, "", "re-references, %", bars=tuple(values), top=100))
        rows = [[policy] + [f"{x / 1000:,.1f}" for x in v] for policy, v in values.items()]
        tables.append((f"{title}, thousands:", ["policy", *names], rows))
    return Findings(claims, panels, tables)


def figure8(program, traces):
    policies = list(published.FIGURE8)
    ours, theirs = rows_of(program, traces, policies), published.figure8()
    claims = []
    for other in ("arc", "lirs", "fbr", "lfru"):
        claims.append(judge(
            f"MQ above {other.upper()}", f"MQ hits more often than {other.upper()} at every size "
            f"(HP Disk, 32 MB: {published.FIGURE8['mq']} against {published.FIGURE8[other]} %)",
            lambda points: points > 0, cells(ours), by_trace, cells(theirs),
            lambda cell, other=other: cell[0].hits["mq"][cell[1]] - cell[0].hits[other][cell[1]],
        ))  # fmt: skip
    panels = panels_of(ours, traces)
    hits = theirs["HP Disk"].hits
    panels.insert(0, Panel("published: HP Disk", hits, "", "hit ratio, %", ["32 MiB"], False, top=100))
    rows = [["HP Disk (not public)", "32 MB"] + [one(v) for v in published.FIGURE8.values()]]
    for name, row in ours.items():
        rows += [[name, size] + [one(row.hits[p][i]) for p in policies] for i, size in enumerate(row.sizes)]
    ratios = ("Hit ratios in per cent:", ["trace", "blocks", *policies], rows)
    return Findings(claims, panels, [parameters(program, traces), ratios])
