"""Tables from the files of results: medians with ranges, and paired differences. It reads JSON and starts nothing, so
it can be repeated. The arithmetic of differences is in `pairs`, the picture in `pictures`.
"""

import json
import pathlib
import shutil
import statistics
import sys
import textwrap

import pairs

TOOLS = pathlib.Path(__file__).resolve().parent.parent
sys.path.append(str(TOOLS))

import pages  # noqa: E402

# Where the reports of complete experiments are, if it has a place for them.
PAGE = TOOLS.parent / "docs/measurements/databases.md"


def each(name, *path):
    """A counter of the server for 1,000 transactions. Blocks are those of its cache, 4 KiB unless the volume says
    otherwise, on the volume of the data."""
    figure = lambda result: 1000 * at(result["counted"], "server", "d", *path) / max(1, result["tpcc"]["transactions"])
    return f"{name}, for 1,000 transactions", figure, True, 0


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


def slowest(operation, outcome):
    """What 99 % of the requests of the volume took at most, in ms, by the server's histograms before and after."""

    def figure(result):
        counts = {}
        for when, sign in (("before", -1), ("after", 1)):
            histogram = at(result[when]["server"]["d"], "latency_us", operation, outcome) or {}
            for bound, count in histogram.get("buckets", []):
                counts[bound] = counts.get(bound, 0) + sign * count
        fewer = 0.99 * sum(counts.values())
        for bound in sorted(counts):
            fewer -= counts[bound]
            if fewer <= 0:
                return bound / 1000
        return 0.0

    return figure


def drift(result):
    """The hit ratio that was measured, less that at the end of the warm-up, in points."""
    steps = result["warm_up"]["steps"][-3:]
    reads = sum(step["reads"] for step in steps)
    return hit_ratio(result) - 100 * sum(step["reads"] * step["hit_ratio"] for step in steps) / max(1, reads)


def processors(*names):
    """Ticks of these kinds, in percent of all."""

    def figure(result):
        ticks = result["counted"].get("processors", {})
        return 100 * sum(ticks.get(name, 0) for name in names) / max(1, sum(ticks.values()))

    return figure


def a_minute(name):
    return lambda result: 60 * result["tpcc"][name] / result["tpcc"]["seconds"]


# Name, function of a result, whether a difference is a ratio (or in the figure's own unit; None: arms are not compared),
# digits.
FIGURES = [
    ("transactions a minute", a_minute("transactions"), True, 0),
    ("new orders a minute", a_minute("new_orders"), True, 0),
    ("new order, median, ms", latency("p50_ms"), True, 0),
    ("new order, 99 %, ms", latency("p99_ms"), True, 0),
    ("hit ratio, %", hit_ratio, False, 1),
    ("hit ratio less that of the warm-up, points", drift, None, 1),
    ("disk read, 99 %, ms", slowest("read", "miss"), True, 0),
    ("FLUSH, 99 %, ms", slowest("flush", "hit"), True, 0),
    ("processors idle, %", processors("idle", "iowait"), None, 0),
    ("processors, had by other machines, %", processors("steal"), None, 1),
    ("late evictions, %", late, False, 2),
    ("hit ratio of the whole run, %", simulated("server"), False, 1),
    ("the same, simulated, %", simulated("simulator"), False, 1),
    each("blocks read from the server", "reads"),
    each("blocks read from the disk", "store_reads"),
    each("blocks written to the disk", "store_writes"),
    each("blocks read from flash", "flash", "hits"),
    each("blocks written to flash", "flash", "written"),
    each("evictions told", "cooperation", "known_evictions"),
    each("reloads", "cooperation", "reloads"),
    each("placed from staging", "cooperation", "staged"),
    each("contents accepted", "cooperation", "demotions_accepted"),
    each("contents refused", "cooperation", "demotions_refused"),
]


def read(folder):
    """Results of an experiment by arm and round, in the order of the file."""
    arms = {}
    for path in sorted(folder.glob("*.json"), key=lambda path: path.stem.split("-")[::-1]):
        result = json.loads(path.read_text())
        arms.setdefault(result["arm"], {})[result["round"]] = result
    return arms


def spread(values, digits):
    text = f"{statistics.median(values):,.{digits}f}"
    if len(values) > 1:
        text += f" ({min(values):,.{digits}f} to {max(values):,.{digits}f})"
    return text


def medians(arms, figures):
    rows = [["rounds", *map(len, arms.values())]]
    steady = [sum(result["warm_up"]["steady"] for result in rounds.values()) for rounds in arms.values()]
    rows.append(["of them steady after the warm-up", *steady])
    for name, figure, _, digits in figures:
        found = ([figure(result) for result in rounds.values()] for rounds in arms.values())
        rows.append([name, *(spread(values, digits) for values in found)])
    return pages.table(["", *arms], rows)


def signed(difference, unit):
    """A difference with its interval: bold if that leaves no doubt which one is more."""
    if difference is None:
        return ""
    mean, low, high = difference
    if low is None:
        return f"{mean:+.1f}{unit}"
    said = f"{mean:+.1f}{unit} ({low:+.1f} to {high:+.1f})"
    return f"**{said}**" if low > 0 or high < 0 else said


def differences(arms, base, figures):
    """Each arm against one of them, by rounds that both have."""
    pairs_of = {arm: sorted(set(arms[base]) & set(arms[arm])) for arm in arms if arm != base}
    pairs_of = {arm: rounds for arm, rounds in pairs_of.items() if rounds}
    rows = [["pairs", *map(len, pairs_of.values())]]
    for name, figure, is_ratio, _ in figures:
        if is_ratio is None:
            continue
        cells = []
        for arm, rounds in pairs_of.items():
            values, against = ([figure(arms[one][number]) for number in rounds] for one in (arm, base))
            found = pairs.relative(values, against) if is_ratio else pairs.absolute(values, against)
            cells.append(signed(found, " %" if is_ratio else ""))
        # A ratio with nothing is none.
        rows += [[name, *cells]] if any(cells) else []
    return pages.table([f"against {base}", *pairs_of], rows)


def table(folder):
    """The report of a folder of results, in Markdown."""
    arms = read(folder)
    if not arms:
        return "no results"
    results = [result for rounds in arms.values() for result in rounds.values()]
    one = results[0]
    # What is zero in every run says nothing.
    figures = [one for one in FIGURES if any(map(one[1], results))]
    database, load = one["database"], one["load"]
    pace = f"{load['rate']} transactions a minute" if load["rate"] else f"{load['threads']} threads that never pause"
    size = f"{one['database_mib']:,.0f} MiB (warehouses: {database['warehouses']})"
    at_once = ", all arms of a round at the same time" if one["at_once"] else ""
    about = f"{database['kind']} {database['version']}, {size}, {database['pool_mib']} MiB of its own cache, {pace}, "
    lines = [f"{one['title']}: {about}{load['seconds']} s measured in each run{at_once}. Medians, with ranges in brackets."]
    lines += [f"Disk: `{json.dumps(one['disk'])}`, of the log `{json.dumps(one['log_disk'])}`.", ""]
    lines += [medians(arms, figures)]
    if len(arms) > 1:
        lines += ["", "Paired differences, with 95 % intervals by bootstrap where there are six pairs or more:"]
    for base in one["against"]:
        if base in arms and len(arms) > 1:
            lines += ["", differences(arms, base, figures)]
    return "\n".join(map(wrapped, [*lines, "", *remarks(results)]))


def wrapped(text):
    return text if text.startswith("|") else textwrap.fill(text, 131, break_on_hyphens=False)


def remarks(results):
    """What a reader has to know before the figures: checks, errors, warm-ups that did not become steady."""
    bad = [f"{result['arm']}, round {result['round']}: {name}: {said}"
           for result in results for name, said in result["checks"].items() if said]
    checked = sum(bool(result["checks"]) for result in results)
    failed = sum(result["tpcc"]["failed"] for result in results)
    lines = [f"{len(results)} runs. Checked after {checked}, wrong: {len(bad)}. Failed transactions: {failed}."]
    unsteady = [f"{result['arm']}, round {result['round']}" for result in results if not result["warm_up"]["steady"]]
    if unsteady:
        lines += [f"Not steady at the end of the warm-up, and counted like the others: {'; '.join(unsteady)}."]
    if any(result["waits_for_flush"] for result in results):
        lines += ["The machine has no control groups for block I/O: what the database asked waited for each FLUSH."]
    if (programs := len({result["program"] for result in results})) > 1:
        lines += [f"They were made by {programs} builds of the program."]
    return lines + [f"* **{one}**" for one in bad]


def publish(folder, experiment, said):
    """Puts report and picture of a complete experiment into the page, if that has a place for it: whether it has."""
    text, mark = PAGE.read_text(), experiment.name
    arms = read(folder)
    complete = sum(map(len, arms.values())) == len(experiment.arms) * experiment.rounds
    if f"<!-- {mark} -->\n" not in text or not complete:
        return False
    shutil.copy(folder / "picture.svg", PAGE.parent / f"pictures/{mark}.svg")
    PAGE.write_text(pages.put(text, mark, f"{said}\n\n![the same as bars](pictures/{mark}.svg)"))
    return True
