"""What a study finds: statements with a verdict that is computed, panels of a picture, tables."""

import dataclasses
import math

from pages import table


@dataclasses.dataclass
class Claim:
    """A published statement, whether it holds in each case (a trace, mostly), and what was found."""

    name: str
    said: str
    cases: dict
    found: str

    def holds(self):
        return bool(self.cases) and all(self.cases.values())

    def verdict(self):
        good = [case for case, holds in self.cases.items() if holds]
        bad = [case for case, holds in self.cases.items() if not holds]
        if not self.cases:
            return "no trace for it"
        if not bad:
            return f"**holds** ({len(good)} of {len(good)})"
        if not good:
            return f"**does not hold** (0 of {len(bad)})"
        rest = f"only {', '.join(good)}" if len(good) < len(bad) else f"not {', '.join(bad)}"
        return f"**in part** ({len(good)} of {len(self.cases)}): {rest}"


@dataclasses.dataclass
class Panel:
    """Lines over an axis of sizes or distances: label to (xs, ys), or stacked bars: label to ys over `bars`."""

    title: str
    lines: dict
    x: str = ""
    y: str = ""
    bars: tuple = ()
    is_log: bool = True
    top: float = None


@dataclasses.dataclass
class Findings:
    claims: list
    panels: list
    # Caption, heading, lines.
    tables: list

    def verdict(self):
        """One line for the index."""
        words = {"**holds**": [], "**in part**": [], "**not**": []}
        for claim in self.claims:
            good = sum(claim.cases.values())
            if claim.holds():
                words["**holds**"].append(claim.name)
            elif good:
                words["**in part**"].append(f"{claim.name} ({good} of {len(claim.cases)})")
            else:
                words["**not**"].append(claim.name)
        return "; ".join(f"{word}: {', '.join(names)}" for word, names in words.items() if names)

    def markdown(self, picture, alt, missing):
        """What stands on the page between the marks of the study."""
        lines = [[claim.said, claim.found, claim.verdict()] for claim in self.claims]
        parts = [table(["statement", "found", "verdict"], lines)]
        if self.panels:
            parts.append(f"![{alt}]({picture})")
        parts += [f"{caption}\n\n{table(heading, rows)}" for caption, heading, rows in self.tables]
        if missing:
            parts.append(f"Missing: {missing}.")
        return "\n\n".join(parts)


def cells(pairs):
    """How many of (value, bound) pairs have the value above the bound, as text, and whether all have."""
    good = sum(one > other for one, other in pairs)
    return good == len(pairs), f"{good} of {len(pairs)}"


def one(value):
    """A figure with one digit after the point."""
    return "" if value is None or math.isnan(value) else f"{value:.1f}"


def span(values, unit=""):
    """The smallest and the largest, as text."""
    low, high = one(min(values)), one(max(values))
    return f"{low}{unit}" if low == high else f"{low} to {high}{unit}"
