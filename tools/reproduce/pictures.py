"""The picture of a study: its panels, and one legend for all of them."""

import math

import drawing


def draw(panels, path, columns=None):
    """Writes the panels as one SVG file."""
    columns = columns or {1: 1, 2: 2, 4: 2}.get(len(panels), 3)
    rows = -(-len(panels) // columns)
    page, axes = drawing.pyplot.subplots(rows, columns, figsize=(max(5.1, 3.4 * columns), 2.6 * rows), squeeze=False)
    labels = list(dict.fromkeys(label for panel in panels for label in [*panel.lines, *panel.points]))
    places = [place for row in axes for place in row]
    for place, panel in zip(places, panels):
        draw_bars = stacked if panel.is_stacked else side_by_side
        (draw_bars if panel.bars else lines)(place, panel, labels)
        place.set_title(panel.title, fontsize=9)
        place.set_xlabel(panel.x, fontsize=8)
        place.set_ylabel(panel.y, fontsize=8)
        place.tick_params(labelsize=7)
        drawing.clean(place)
        place.set_ylim(bottom=panel.bottom, top=panel.top)
        if panel.bottom < 0:
            place.axhline(0, color="black", linewidth=0.8)
        if panel.mark:
            place.axvline(panel.mark, color="black", linewidth=0.8, linestyle=":", label="client's cache")
    for place in places[len(panels) :]:
        place.remove()
    found = {}
    for place in places[: len(panels)]:
        found |= dict(reversed(pair) for pair in zip(*place.get_legend_handles_labels()))
    columns_of_legend = min(len(found), max(5, 3 * columns))
    height = 0.25 * -(-len(found) // columns_of_legend) / (2.6 * rows)
    page.legend(found.values(), found.keys(), loc="lower center", ncol=columns_of_legend, frameon=False, fontsize=8)
    page.tight_layout(rect=(0, height, 1, 1))
    drawing.save(page, path)


def base_of(label):
    """What a line shares its colour with: its policy or scheme, without what is done to it."""
    return label.split(", ")[0]


def colour(label, labels):
    """Labels of one base have one colour; published figures without a line of their own are black."""
    bases = [base for base in dict.fromkeys(map(base_of, labels)) if not base.startswith("published")]
    base = base_of(label)
    return drawing.COLOURS[bases.index(base) % len(drawing.COLOURS)] if base in bases else "black"


def lines(place, panel, labels):
    """Lines; what is done to a base is dashed. Published figures are stars."""
    bases = list(dict.fromkeys(map(base_of, labels)))
    if panel.band:
        place.fill_between(*panel.band, color="black", alpha=0.12, linewidth=0, label="published range")
    for label, (xs, ys) in panel.lines.items():
        is_second = ", " in label
        mark = "" if is_second else drawing.MARKS[bases.index(base_of(label)) % len(drawing.MARKS)]
        place.plot(
            xs, ys, "--" if is_second else "-", marker=mark, markersize=3, markevery=max(1, len(list(xs)) // 6),
            linewidth=1.2, color=colour(label, labels), label=label,
        )  # fmt: skip
    for label, (xs, ys) in panel.points.items():
        name = None if label in panel.lines else label
        place.plot(xs, ys, "*", markersize=8, color=colour(label, labels), label=name)
    if all(isinstance(x, int) for xs, _ in panel.lines.values() for x in xs):
        place.xaxis.get_major_locator().set_params(integer=True)
    if panel.is_log:
        place.set_xscale("log", base=2)
        xs = sorted({x for xs, _ in (*panel.lines.values(), *panel.points.values()) for x in xs})
        low, high = math.floor(math.log2(xs[0])), math.ceil(math.log2(xs[-1]))
        ticks = xs if len(xs) <= 7 else [2.0**n for n in range(low, high + 1, -(-(high - low + 1) // 7))]
        place.set_xticks(ticks, [short(x) for x in ticks])
        place.minorticks_off()


def short(x):
    """A size as one reads it on an axis."""
    if x >= 1 << 20:
        return f"{x / (1 << 20):g}M"
    if x >= 1024 and x % 1024 == 0:
        return f"{int(x) // 1024}k"
    return f"1/{1 / x:g}" if 0 < x < 1 and (1 / x).is_integer() else f"{round(x, 1):g}"


def stacked(place, panel, labels):
    """Bars with the figures on top of each other."""
    bottom = [0.0] * len(panel.bars)
    for label, values in panel.lines.items():
        part = drawing.COLOURS[labels.index(label) % len(drawing.COLOURS)]
        place.bar(panel.bars, values, bottom=bottom, color=part, label=label, width=0.7)
        bottom = [a + b for a, b in zip(bottom, values)]


def side_by_side(place, panel, labels):
    """Bars of one case next to each other."""
    if panel.band:
        place.axhspan(*panel.band, color="black", alpha=0.1, linewidth=0, label="published range")
    width = 0.8 / len(panel.lines)
    for number, (label, values) in enumerate(panel.lines.items()):
        places = [i + (number - (len(panel.lines) - 1) / 2) * width for i in range(len(panel.bars))]
        place.bar(places, values, color=colour(label, labels), label=label, width=width)
    place.set_xticks(range(len(panel.bars)), panel.bars, fontsize=7 if len(panel.bars) < 6 else 6)
