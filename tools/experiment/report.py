"""Tables from the files of results: medians with ranges, and paired differences. It reads JSON and starts
nothing, so it can be repeated, and so can pictures be made later.
"""

import json
import statistics

import pairs


def each(*path, of="transactions"):
    """A counter for 1,000 transactions."""
    return lambda result: 1000 * at(result["counted"], *path) / max(1, result["tpcc"][of])


def at(table, *path):
    for name in path:
        table = (table or {}).get(name, 0)
    return table


def hit_ratio(result):
    volume = result["counted"]["server"]["d"]
    return 100 * volume["read_hits"] / volume["reads"] if volume["reads"] else 0.0


def simulated(whose):
    """The hit ratio of the whole run, in percent: the simulator's of the recording, or the server's."""

    def figure(result):
        counted = result.get("recorded", {}).get(whose)
        return 100 * counted["read_hits"] / max(1, counted["reads"]) if counted else 0.0

    return figure


def late(result):
    """Evictions that the library noticed only when the block was read again, in percent."""
    tracked = result["counted"]["tracker"]
    return 100 * tracked["late"] / max(1, tracked["evictions"] + tracked["late"]) if tracked else 0.0


def latency(percentile):
    return lambda result: result["tpcc"]["kinds"].get("new_order", {}).get(percentile, 0.0)


def a_minute(name):
    return lambda result: 60 * result["tpcc"][name] / result["tpcc"]["seconds"]


# Name, function of a result, whether a difference is a ratio (or in the figure's own unit), digits.
FIGURES = [
    ("transactions a minute", a_minute("transactions"), True, 0),
    ("new orders a minute", a_minute("new_orders"), True, 0),
    ("new order, median, ms", latency("p50_ms"), True, 0),
    ("new order, 99 %, ms", latency("p99_ms"), True, 0),
    ("hit ratio, %", hit_ratio, False, 1),
    ("late evictions, %", late, False, 2),
    ("hit ratio of the whole run, %", simulated("server"), False, 1),
    ("the same, simulated, %", simulated("simulator"), False, 1),
]
# Blocks are those of the server's cache, 4 KiB unless the volume says otherwise, on the volume of the data.
PER_1000 = [
    ("blocks read from the server", each("server", "d", "reads"), True, 0),
    ("blocks read from the disk", each("server", "d", "store_reads"), True, 0),
    ("blocks written to the disk", each("server", "d", "store_writes"), True, 0),
    ("evictions told", each("server", "d", "cooperation", "known_evictions"), True, 0),
    ("reloads", each("server", "d", "cooperation", "reloads"), True, 0),
    ("placed from staging", each("server", "d", "cooperation", "staged"), True, 0),
    ("contents accepted", each("server", "d", "cooperation", "demotions_accepted"), True, 0),
    ("contents refused", each("server", "d", "cooperation", "demotions_refused"), True, 0),
]


def read(folder):
    """Results of an experiment by arm and round, in the order of the runs."""
    arms = {}
    for path in sorted(folder.glob("*.json")):
        result = json.loads(path.read_text())
        arms.setdefault(result["arm"], {})[result["round"]] = result
    return arms


def row(cells):
    return f"| {' | '.join(cells)} |"


def head(cells):
    return [row(cells), "| --- " * len(cells) + "|"]


def spread(values, digits):
    text = f"{statistics.median(values):,.{digits}f}"
    if len(values) > 1:
        text += f" ({min(values):,.{digits}f} to {max(values):,.{digits}f})"
    return text


def medians(arms, figures):
    lines = head(["", *(name for name, *_ in figures)])
    for arm, rounds in arms.items():
        cells = [spread([figure(result) for result in rounds.values()], digits) for _, figure, _, digits in figures]
        lines.append(row([arm, *cells]))
    return lines


def signed(difference, unit):
    if difference is None:
        return ""
    mean, low, high = difference
    if low is None:
        return f"{mean:+.1f}{unit}"
    return f"{mean:+.1f}{unit} ({low:+.1f} to {high:+.1f})"


def differences(arms, figures):
    """Each arm against the first one, by rounds that both have."""
    base, *others = arms
    lines = head([f"against {base}", *(name for name, *_ in figures)])
    for other in others:
        rounds = sorted(set(arms[base]) & set(arms[other]))
        if not rounds:
            continue
        cells = []
        for _, figure, is_ratio, _ in figures:
            values, against = ([figure(arms[arm][number]) for number in rounds] for arm in (other, base))
            found = pairs.relative(values, against) if is_ratio else pairs.absolute(values, against)
            cells.append(signed(found, " %" if is_ratio else ""))
        lines.append(row([f"{other}, {len(rounds)} pairs", *cells]))
    return lines


def table(folder):
    """The report of a folder of results, in Markdown."""
    arms = read(folder)
    if not arms:
        return "no results"
    results = [result for rounds in arms.values() for result in rounds.values()]
    one = results[0]
    # What is zero in every run says nothing.
    figures, counted = ([one for one in part if any(map(one[1], results))] for part in (FIGURES, PER_1000))
    database, load = one["database"], one["load"]
    pace = f"{load['rate']} transactions a minute" if load["rate"] else f"{load['threads']} threads that never pause"
    about = f"{database['kind']} {database['version']}, {database['warehouses']} warehouses, {pace}, "
    lines = [f"# {one['title']}", "", about + f"{load['seconds']} s measured in each run"]
    lines += [f"disk: {json.dumps(one['disk'])}; log: {json.dumps(one['log_disk'])}", ""]
    lines += ["Medians (and ranges):", "", *medians(arms, figures)]
    lines += ["", "For 1,000 transactions:", "", *medians(arms, counted)]
    if len(arms) > 1:
        lines += ["", "Paired differences, with 95 % intervals by bootstrap where there are six pairs or more:", ""]
        lines += [*differences(arms, figures), "", *differences(arms, counted)]
    return "\n".join([*lines, "", *remarks(results)])


def remarks(results):
    """What a reader has to know before the figures: checks, errors, warm-ups that did not become steady."""
    bad = [f"{result['arm']}, round {result['round']}: {name}: {said}"
           for result in results for name, said in result["checks"].items() if said]
    checked = sum(bool(result["checks"]) for result in results)
    unsteady = sum(not result["warm_up"]["steady"] for result in results)
    failed = sum(result["tpcc"]["failed"] for result in results)
    lines = [f"{len(results)} runs. Databases checked after {checked}, wrong: {len(bad)}. Failed transactions: {failed}."]
    lines += [f"Not steady at the end of the warm-up: {unsteady} runs."] if unsteady else []
    return lines + [f"* **{one}**" for one in bad]
