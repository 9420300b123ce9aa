"""TPDS table 1 and figures 2 to 4: what the traces ask for, at both levels."""

import published
from findings import Claim, Findings, Panel, one, span


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
    said = "OLTP reads 2 to 3 times as often as it writes"
    cases = {name: 2 <= ratio <= 3 for name, ratio in ratios.items()}
    claim = Claim("reads to writes", said, cases, ", ".join(f"{n} {r:.1f}" for n, r in ratios.items()))
    return Findings([claim], [], [("Ours in bold:", heading, rows)])


def histogram(distances):
    """Bins and shares in per cent of the re-references."""
    bins = distances["bins"]
    total = sum(one["requests"] for one in bins)
    return [one["up_to"] for one in bins], [100 * one["requests"] / max(total, 1) for one in bins]


def below(distances, limit):
    """Per cent of the re-references in bins up to a limit."""
    return sum(share for up_to, share in zip(*histogram(distances)) if up_to <= limit)


def panel(title, reports, which):
    lines = {trace.name: histogram(report[which]) for trace, report in reports}
    return Panel(title, lines, "distance, blocks (bins are powers of two)", "re-references, %")


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
    claim = Claim(
        "short distances at the first level",
        "74 % of the re-references of an Auspex client are at distance 16 or less; here: more than half",
        {name: share > 50 for name, share in near.items()},
        ", ".join(f"{name} {share:.0f} %" for name, share in near.items()),
    )
    return Findings([claim], [panel("first level", reports, "stack_distance")], [hills(reports)])


def figure3(program, traces):
    reports = list(zip(traces, program.many(program.stream, [(trace,) for trace in traces])))
    known = [(trace, report) for trace, report in reports if trace.client]

    def hill(report, which, part):
        return report[which]["hill"][part]

    far = {trace.name: 100 - below(report["stack_distance"], trace.client // 2) for trace, report in known}
    begins = {trace.name: hill(report, "stack_distance", "min") >= trace.client for trace, report in known}
    peaks = {trace.name: hill(report, "temporal_distance", "peak") > trace.client for trace, report in known}
    claims = [
        Claim(
            "no short distances at the second level",
            "99 % of the re-references at the Auspex server are at 512 or more, half of a client's cache",
            {name: share >= 99 for name, share in far.items()},
            ", ".join(f"{name} {share:.0f} %" for name, share in far.items()),
        ),
        Claim(
            "the hill begins beyond the client's cache",
            "the hill of the histogram begins at or beyond the size of the client's cache",
            begins,
            ", ".join(f"{trace.name} {hill(r, 'stack_distance', 'min'):,} of {trace.client:,}" for trace, r in known),
        ),
        Claim(
            "the peak is beyond it",
            "the most frequent temporal distance is greater than the client's cache",
            peaks,
            ", ".join(f"{trace.name} {hill(r, 'temporal_distance', 'peak'):,}" for trace, r in known),
        ),
    ]
    panels = [
        panel("below a client, stack distance", reports, "stack_distance"),
        panel("temporal distance", reports, "temporal_distance"),
    ]
    return Findings(claims, panels, [hills(reports)])


def at_least(report, count):
    """Shares of blocks and of accesses in per cent of blocks with at least so many accesses."""
    row = next((row for row in report["frequency"] if row["at_least"] == count), None)
    return (100 * row["block_share"], 100 * row["reference_share"]) if row else (0, 0)


def figure4(program, traces):
    reports = list(zip(traces, program.many(program.stream, [(trace,) for trace in traces])))
    hot = {}
    for trace, report in reports:
        half = next(row for row in report["concentration"] if row["reference_share"] == 0.5)
        hot[trace.name] = 100 * half["blocks"] / report["blocks"]["unique_blocks"]
    twice = {trace.name: at_least(report, 2) for trace, report in reports}
    four = {trace.name: at_least(report, 4) for trace, report in reports}
    claims = [
        Claim(
            "few blocks get most accesses",
            "about 60 % of the accesses go to less than a tenth of the blocks; here: half of them",
            {name: share <= 10 for name, share in hot.items()},
            "half go to: " + ", ".join(f"{name} {share:.0f} %" for name, share in hot.items()) + " of the blocks",
        ),
        Claim(
            "blocks used once get few",
            "blocks with two accesses or more (70 %) get 95 % of the accesses; here: at least 85 %",
            {name: accesses >= 85 for name, (_, accesses) in twice.items()},
            "blocks " + span([blocks for blocks, _ in twice.values()], " %")
            + ", accesses " + span([accesses for _, accesses in twice.values()], " %"),
        ),
        Claim(
            "four accesses or more",
            "blocks with four accesses or more (40 %) get 90 % of the accesses; here: at least 80 %",
            {name: accesses >= 80 for name, (_, accesses) in four.items()},
            "blocks " + span([blocks for blocks, _ in four.values()], " %")
            + ", accesses " + span([accesses for _, accesses in four.values()], " %"),
        ),
    ]  # fmt: skip
    panels, rows = [], []
    for what, title in [("block_share", "blocks"), ("reference_share", "accesses to them")]:
        lines = {}
        for trace, report in reports:
            points = report["frequency"]
            lines[trace.name] = ([p["at_least"] for p in points], [100 * p[what] for p in points])
        panels.append(Panel(title, lines, "accesses to a block, at least", "%", top=100))
    counts = [2, 4, 8, 16, 32, 64]
    for trace, report in reports:
        pairs = [at_least(report, count) for count in counts]
        rows.append([trace.name] + [f"{one(blocks)} / {one(accesses)}" for blocks, accesses in pairs])
    heading = ["trace"] + [f"≥ {count}" for count in counts]
    rows.insert(0, ["Oracle-128M (not public)", "70 / 95", "40 / 90", "", "< 10 / 60 (≥ 16)", "", ""])
    return Findings(claims, panels, [("Per cent of the blocks / of the accesses that they get:", heading, rows)])


