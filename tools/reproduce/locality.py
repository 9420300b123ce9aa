"""TPDS table 1 and figures 2 to 4: what the traces ask for, at both levels."""

import itertools

import published
from findings import Findings, Panel, judge, listed, one, span


def table1(program, traces):
    found = program.many(program.references, [(trace,) for trace in traces])
    rows = [
        [name, "client above", f"{mib} MiB", one(reads), one(writes), "", clients, published.NOT_PUBLIC]
        for name, mib, reads, writes, clients in published.TRACES
    ]
    ratios = {}
    for trace, report in zip(traces, found):
        blocks = report["blocks"]
        kind = "references" if trace.is_references else "below a client"
        client = f"{trace.client:,} blocks" if trace.client else "not known"
        millions = [f"{blocks[what] / 1e6:.2f}" for what in ("reads", "writes")]
        rows.append([f"**{trace.name}**", kind, client, *millions, f"{blocks['unique_blocks']:,}", "", trace.what])
        if trace.tells:
            ratios[trace.name] = blocks["reads"] / blocks["writes"]
    heading = ["trace", "level", "client's cache", "reads, M", "writes, M", "distinct blocks", "clients", "what"]
    theirs = {name: reads / writes for name, _, reads, writes, _ in published.TRACES[:4]}
    claims = [
        judge("reads to writes", f"databases have {span(theirs.values())} reads for each write; here: 1.5 to 2.1",
              lambda ratio: 1.5 <= ratio <= 2.1, ratios, "{:.1f}", theirs),
        judge("reads 2 to 3 times the writes", "they read 2 to 3 times as often as they write (text of USENIX 2003)",
              lambda ratio: 2 <= ratio <= 3, ratios, "{:.1f}", theirs),
    ]  # fmt: skip
    return Findings(claims, [], [("Ours in bold:", heading, rows)])


def histogram(distances):
    """Bins and shares in per cent of the re-references."""
    bins = distances["bins"]
    total = sum(one["requests"] for one in bins)
    return [one["up_to"] for one in bins], [100 * one["requests"] / max(total, 1) for one in bins]


def below(distances, limit):
    """Per cent of the re-references in bins up to a limit."""
    return sum(share for up_to, share in zip(*histogram(distances)) if up_to <= limit)


def panel(title, reports, which, is_summed=False, **more):
    """Histograms, or their sums, over the distance divided by the client's cache."""
    lines = {}
    for trace, report in reports:
        distances, shares = histogram(report[which])
        pairs = zip(distances, itertools.accumulate(shares) if is_summed else shares)
        lines[trace.name] = tuple(zip(*[(d / trace.client, share) for d, share in pairs if d >= trace.client / 64]))
    y = "re-references up to it, %" if is_summed else "re-references, %"
    return Panel(title, lines, "distance / client's cache", y, mark=1, **more)


def hills(reports):
    rows = []
    for trace, report in reports:
        row = [trace.name, f"{trace.client:,}" if trace.client else "not known"]
        for which in ("stack_distance", "temporal_distance"):
            hill = report[which]["hill"] or {"min": 0, "peak": 0, "max": 0}
            row += [f"{hill['min']:,} / {hill['peak']:,} / {hill['max']:,}"]
        rows.append(row)
    heading = ["trace", "client's cache, blocks", "hill by stack distance", "hill by temporal distance"]
    return "The hill of each histogram, as its begin, peak and end (bins):", heading, rows


def figure2(program, traces):
    reports = list(zip(traces, program.many(program.references, [(trace,) for trace in traces])))
    near = {trace.name: below(report["stack_distance"], 16) for trace, report in reports}
    claim = judge(
        "short distances at the first level",
        "74 % of the re-references of an Auspex client are at distance 16 or less; here: more than half",
        lambda share: share > 50, near, paper={"Auspex client": 74},
    )  # fmt: skip
    lines = {}
    for trace, report in reports:
        distances, shares = histogram(report["stack_distance"])
        lines[trace.name] = (distances, list(itertools.accumulate(shares)))
    shown = Panel("first level", lines, "distance, blocks", "re-references up to it, %", top=100,
                  points={"published: Auspex client": ([16], [74])})  # fmt: skip
    return Findings([claim], [shown], [hills(reports)])


def figure3(program, traces):
    reports = list(zip(traces, program.many(program.stream, [(trace,) for trace in traces])))
    known = [(trace, report) for trace, report in reports if trace.client]

    def hill(report, which, part):
        return report[which]["hill"][part]

    far = {trace.name: 100 - below(report["stack_distance"], trace.client // 2) for trace, report in known}
    begins = {trace.name: (hill(report, "stack_distance", "min"), trace.client) for trace, report in known}
    peaks = {trace.name: (hill(report, "temporal_distance", "peak"), trace.client) for trace, report in known}
    claims = [
        judge("no short distances at the second level",
              "99 % of the re-references at the Auspex server are at 512 or more, half of a client's cache",
              lambda share: share >= 99, far, paper={"Auspex server": 99}),
        judge("the hill begins beyond the client's cache",
              "the hill of the histogram begins at or beyond the size of the client's cache",
              lambda pair: pair[0] >= pair[1], begins, "{0[0]:,} of {0[1]:,}"),
        judge("the peak is beyond it", "the most frequent temporal distance is greater than the client's cache",
              lambda pair: pair[0] > pair[1], peaks, "{0[0]:,}"),
    ]  # fmt: skip
    panels = [
        panel("stack distance", known, "stack_distance"),
        panel("temporal distance", known, "temporal_distance"),
        panel("stack distance, summed up", known, "stack_distance", True, top=100,
              points={"published: Auspex server": ([0.5], [1])}),
    ]  # fmt: skip
    return Findings(claims, panels, [hills(reports)])


def at_least(report, count):
    """Shares of blocks and of accesses in per cent of blocks with at least so many accesses."""
    row = next((row for row in report["frequency"] if row["at_least"] == count), None)
    return (100 * row["block_share"], 100 * row["reference_share"]) if row else (0, 0)


# Oracle-128M: shares of the blocks, and of the accesses that they get, by their least number of accesses. The last
# share of blocks is a bound.
ORACLE = {2: (70, 95), 4: (40, 90), 16: (10, 60)}


def figure4(program, traces):
    reports = list(zip(traces, program.many(program.stream, [(trace,) for trace in traces])))
    hot = {}
    for trace, report in reports:
        half = next(row for row in report["concentration"] if row["reference_share"] == 0.5)
        hot[trace.name] = 100 * half["blocks"] / report["blocks"]["unique_blocks"]
    twice, four = ({trace.name: at_least(report, count) for trace, report in reports} for count in (2, 4))

    def found(shares):
        blocks, accesses = zip(*shares.values())
        return f"blocks {span(blocks, ' %')}, accesses {span(accesses, ' %')}"

    claims = [
        judge("few blocks get most accesses",
              "about 60 % of the accesses go to less than a tenth of the blocks; here: half of them",
              # Of Oracle-128M this is a bound.
              lambda share: share <= 10, hot, f"half go to: {listed(hot)} of the blocks", {"Oracle-128M": 10}),
        judge("blocks used once get few", "blocks with 2 accesses or more (70 %) get 95 % of the accesses; here: 85 %",
              lambda shares: shares[1] >= 85, twice, found(twice), {"Oracle-128M": ORACLE[2]}),
        judge("four accesses or more", "blocks with 4 accesses or more (40 %) get 90 % of the accesses; here: 80 %",
              lambda shares: shares[1] >= 80, four, found(four), {"Oracle-128M": ORACLE[4]}),
    ]  # fmt: skip
    panels, rows = [], []
    known = [trace for trace in traces if trace.client]
    for which, (what, title) in enumerate([("block_share", "blocks"), ("reference_share", "accesses to them")]):
        lines = {}
        for trace, report in reports:
            points = [point for point in report["frequency"] if point["at_least"] <= 1024]
            if trace in known:
                lines[trace.name] = ([p["at_least"] for p in points], [100 * p[what] for p in points])
        points = {"published: Oracle-128M": (list(ORACLE), [shares[which] for shares in ORACLE.values()])}
        panels.append(Panel(title, lines, "accesses to a block, at least", "%", top=100, points=points))
    counts = [2, 4, 8, 16, 32, 64]
    for trace, report in reports:
        pairs = [at_least(report, count) for count in counts]
        rows.append([trace.name] + [f"{one(blocks)} / {one(accesses)}" for blocks, accesses in pairs])
    heading = ["trace"] + [f"≥ {count}" for count in counts]
    rows.insert(0, ["Oracle-128M (not public)", "70 / 95", "40 / 90", "", "< 10 / 60 (≥ 16)", "", ""])
    return Findings(claims, panels, [("Per cent of the blocks / of the accesses that they get:", heading, rows)])


