"""The picture of a study: its panels, and one legend for all of them."""

import drawing


def draw(panels, path):
    """Writes the panels as one SVG file."""
    columns = 2 if len(panels) in (2, 4) else min(3, len(panels))
    rows = -(-len(panels) // columns)
    page, axes = drawing.pyplot.subplots(rows, columns, figsize=(3.4 * columns, 2.6 * rows), squeeze=False)
    labels = list(dict.fromkeys(label for panel in panels for label in panel.lines))
    places = [place for row in axes for place in row]
    for place, panel in zip(places, panels):
        (bars if panel.bars else lines)(place, panel, labels)
        place.set_title(panel.title, fontsize=9)
        place.set_xlabel(panel.x, fontsize=8)
        place.set_ylabel(panel.y, fontsize=8)
        place.tick_params(labelsize=7)
        drawing.clean(place)
        if panel.top:
            place.set_ylim(top=panel.top)
    for place in places[len(panels) :]:
        place.remove()
    found = {}
    for place in places[: len(panels)]:
        found |= dict(reversed(pair) for pair in zip(*place.get_legend_handles_labels()))
    columns_of_legend = min(len(found), 3 * columns)
    height = 0.25 * -(-len(found) // columns_of_legend) / (2.6 * rows)
    page.legend(found.values(), found.keys(), loc="lower center", ncol=columns_of_legend, frameon=False, fontsize=8)
    page.tight_layout(rect=(0, height, 1, 1))
    drawing.save(page, path)


def base_of(label):
    """What a line shares its colour with: its policy or scheme, without what is done to it."""
    for prefix in ("GL-", "EV-"):
        label = label.removeprefix(prefix)
    return label.split(", ")[0]


def lines(place, panel, labels):
    """Lines of one base have one colour; what is done to it is dashed."""
    bases = list(dict.fromkeys(map(base_of, labels)))
    for label, (xs, ys) in panel.lines.items():
        base = base_of(label)
        number = bases.index(base)
        is_second = label.startswith(("GL-", "EV-")) or label.endswith((", dynamic", ", Q1"))
        style = "--" if is_second else "-"
        colour = drawing.COLOURS[number % len(drawing.COLOURS)]
        mark = "" if is_second else drawing.MARKS[number % len(drawing.MARKS)]
        every = max(1, len(list(xs)) // 6)
        place.plot(xs, ys, style, marker=mark, markersize=3, markevery=every, linewidth=1.2, color=colour, label=label)
    if panel.is_log:
        place.set_xscale("log", base=2)
        xs = sorted({x for xs, _ in panel.lines.values() for x in xs})
        step = max(1, -(-len(xs) // 7))
        place.set_xticks(xs[::step], [short(x) for x in xs[::step]])
        place.minorticks_off()


def short(x):
    """A size as one reads it on an axis."""
    if x >= 1 << 20:
        return f"{x / (1 << 20):g}M"
    if x >= 1024 and x % 1024 == 0:
        return f"{x // 1024}k"
    return f"1/{1 / x:g}" if 0 < x < 1 and (1 / x).is_integer() else f"{x:g}"


def bars(place, panel, labels):
    """Stacked bars."""
    bottom = [0.0] * len(panel.bars)
    for label, values in panel.lines.items():
        colour = drawing.COLOURS[labels.index(label) % len(drawing.COLOURS)]
        place.bar(panel.bars, values, bottom=bottom, color=colour, label=label, width=0.7)
        bottom = [a + b for a, b in zip(bottom, values)]
