"""The picture of an experiment, from its files of results: what was measured for each arm, or along the sizes
of the server's cache where the arms differ in it. Which figures there are, and the table, are in the report.
"""

import statistics

import report
from settings import mebibytes

PICTURED = [one for one in report.FIGURES if one[0].split(", for")[0] in (
    "transactions a minute", "new order, 99 %, ms", "hit ratio, %",
    "blocks read from the disk", "blocks written to the disk",
)]  # fmt: skip


def cache(result):
    return mebibytes(result["settings"]["volume"]["cache"])


def draw(folder, path):
    """Writes the picture as SVG. Returns why there is none, if so."""
    try:
        import drawing
    except ImportError:
        return "no picture: install python3-matplotlib"

    arms = report.read(folder)
    figures = [one for one in PICTURED if any(one[1](result) for rounds in arms.values() for result in rounds.values())]
    sizes = {cache(result) for rounds in arms.values() for result in rounds.values()}
    panel = along_sizes if len(sizes) > 1 else by_arm
    page, axes = drawing.pyplot.subplots(1, len(figures), figsize=(2.6 * len(figures), 3), squeeze=False)
    for place, (name, figure, *_) in zip(axes[0], figures):
        panel(place, arms, figure)
        place.set_title(name.replace(", for", ",\nfor"), fontsize=8)
        drawing.clean(place)
    handles, labels = axes[0][0].get_legend_handles_labels()
    page.legend(handles, labels, loc="lower center", ncol=6, frameon=False)
    page.tight_layout(rect=(0, 0.09, 1, 1))
    drawing.save(page, path)
    return ""


def by_arm(place, arms, figure):
    """The median of each arm as a bar, and each run as a dot."""
    from drawing import COLOURS

    for number, (arm, rounds) in enumerate(arms.items()):
        values = [figure(result) for result in rounds.values()]
        place.bar(number, statistics.median(values), label=arm, color=COLOURS[number % len(COLOURS)], alpha=0.75)
        place.plot([number] * len(values), values, "k.", markersize=4)
    place.set_xticks([])


def along_sizes(place, arms, figure):
    """A line for each placement and policy, over the sizes of the cache."""
    from drawing import COLOURS, MARKS

    lines = {}
    for rounds in arms.values():
        for result in rounds.values():
            volume = result["settings"]["volume"]
            line = lines.setdefault(f"{volume['placement']}, {volume['policy']}", {})
            line.setdefault(cache(result), []).append(figure(result))
    for number, (label, points) in enumerate(lines.items()):
        colour, mark = COLOURS[number % len(COLOURS)], MARKS[number % len(MARKS)]
        sizes = sorted(points)
        place.plot(sizes, [statistics.median(points[size]) for size in sizes], f"{mark}-", color=colour, label=label)
        for size in sizes:
            place.plot([size] * len(points[size]), points[size], ".", color=colour, markersize=3)
    place.set_xscale("log", base=2)
    ticks = sorted({size for points in lines.values() for size in points})
    place.set_xticks(ticks, [str(size) for size in ticks])
    place.set_xlabel("cache of the server, MiB")
