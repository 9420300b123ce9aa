"""What a study finds: statements with a verdict that is computed, panels of a picture, tables. A condition is one
function over rows: what it says of the published figures, where they are known, stands beside what it says of ours.
"""

import dataclasses
import math

from pages import table


def count(cases):
    return f"{sum(cases.values())} of {len(cases)}"


@dataclasses.dataclass
class Claim:
    """A published statement, whether it holds in each case (a trace, or a size of it), and what was found."""

    name: str
    said: str
    cases: dict
    found: str
    # The published figures by the same condition; empty where they are not known.
    paper: dict = dataclasses.field(default_factory=dict)

    def word(self):
        if not self.cases:
            return "**no trace**"
        if all(self.cases.values()):
            return "**holds**"
        return "**in part**" if any(self.cases.values()) else "**not**"

    def verdict(self):
        """On the page: how many cases, and which, if they are few."""
        good, bad = ([case for case, holds in self.cases.items() if holds is which] for which in (True, False))
        text = f"{self.word()} ({count(self.cases)})"
        if not good or not bad or min(len(good), len(bad)) > 4:
            return text
        return f"{text}: " + (f"only {', '.join(good)}" if len(good) < len(bad) else f"not {', '.join(bad)}")

    def in_index(self):
        ours = [count(self.cases)] if self.word() == "**in part**" else []
        counts = ours + ([f"paper {count(self.paper)}"] if self.paper else [])
        return self.name + (f" ({'; '.join(counts)})" if counts else "")


def judge(name, said, holds, ours, found="{:.0f} %", paper=(), value=lambda row: row):
    """A claim: whether the value of each row holds, of our rows and of the published ones (both case to row). What was
    found is the values in a form, a text, or made of the cases."""
    values, of_paper = ({case: value(row) for case, row in dict(rows).items()} for rows in (ours, paper))
    cases, in_paper = ({case: bool(holds(value)) for case, value in of.items()} for of in (values, of_paper))
    text = found(cases) if callable(found) else listed(values, found) if "{" in found else found
    return Claim(name, said, cases, text, in_paper)


@dataclasses.dataclass
class Row:
    """A trace, or a published one: figures in per cent along sizes, which are also multiples of the client's cache."""

    sizes: list
    times: list
    hits: dict

    def near(self, times):
        """Where the size nearest to so many times the client's cache is."""
        return min(range(len(self.times)), key=lambda i: abs(math.log(self.times[i] / times)))

    def lines(self, without=()):
        return {label: (self.times, values) for label, values in self.hits.items() if label not in without}

    def table(self, caption, unit="blocks"):
        rows = [[size] + [one(values[i]) for values in self.hits.values()] for i, size in enumerate(self.sizes)]
        return caption, [unit, *self.hits], rows


def cells(rows, is_meant=lambda cell: True):
    """The sizes of each row as cases of their own: (row, index)."""
    all_ = {f"{name} {size}": (row, i) for name, row in rows.items() for i, size in enumerate(row.sizes)}
    return {case: cell for case, cell in all_.items() if is_meant(cell)}


@dataclasses.dataclass
class Panel:
    """Lines over an axis: label to (xs, ys), or bars over `bars`: label to ys, stacked or side by side."""

    title: str
    lines: dict
    x: str = ""
    y: str = ""
    bars: tuple = ()
    is_stacked: bool = True
    is_log: bool = True
    bottom: float = 0
    top: float = None
    # Published figures, drawn as points without a line: label to (xs, ys), in the colour of that label's line.
    points: dict = dataclasses.field(default_factory=dict)
    # A published range: (xs, lows, highs), of bars (low, high).
    band: tuple = ()
    # A place on the axis to mark, as the client's cache.
    mark: float = None


@dataclasses.dataclass
class Findings:
    claims: list
    panels: list = ()
    # Caption, heading, lines.
    tables: list = ()
    # Of panels; a few by their number otherwise.
    columns: int = None

    def verdict(self):
        """One line for the index."""
        words = {"**holds**": [], "**in part**": [], "**not**": [], "**no trace**": []}
        for claim in self.claims:
            words[claim.word()].append(claim.in_index())
        return "; ".join(f"{word}: {', '.join(names)}" for word, names in words.items() if names) or "**figures only**"

    def markdown(self, picture, alt, missing):
        """What stands on the page between the marks of the study."""
        lines = [[c.said, c.found, c.verdict(), count(c.paper) if c.paper else "not known"] for c in self.claims]
        parts = [table(["statement", "found", "verdict", "in the paper"], lines)] if lines else []
        if self.panels:
            parts.append(f"![{alt}]({picture})")
        parts += [f"{caption}\n\n{table(heading, rows)}" for caption, heading, rows in self.tables]
        if missing:
            parts.append(f"Missing: {missing}.")
        return "\n\n".join(parts)


def one(value):
    """A figure with one digit after the point."""
    return "" if value is None or math.isnan(value) else f"{value:.1f}"


def span(values, unit=""):
    """The smallest and the largest, as text."""
    values = list(values)
    low, high = one(min(values)), one(max(values))
    return f"{low}{unit}" if low == high else f"{low} to {high}{unit}"


def listed(values, form="{:.0f} %"):
    """Case and value of each, as text."""
    return ", ".join(f"{case} {form.format(value)}" for case, value in values.items())
