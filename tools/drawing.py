"""How the pictures of the documents look: colours, marks, and SVG files that are small and the same for the same
figures. Needs matplotlib (Debian: python3-matplotlib).
"""

import re

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams |= {
    "svg.fonttype": "none", "svg.hashsalt": "undercroft", "font.size": 9, "font.sans-serif": ["DejaVu Sans"],
}  # fmt: skip

from matplotlib import pyplot  # noqa: E402

# What matplotlib writes and no viewer needs, and what stands for it.
NEEDLESS = [
    (r"\n *<!--.*?-->", ""),
    (r"(\d+\.\d)\d+(?!\.)(?![^<>]*</text>)", r"\1"),
    (r' transform="rotate\(-?0 [^)]*\)"', ""),
    (r'<g id="[^"]*"', "<g"),
    (r"\n *<(/?)g>(?=\n)", r"\n<\1g>"),
    (r" *\n +", "\n"),
]

# Told apart without colours, too: by print, and by people who see few.
COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#7f7f7f", "#5e3c99", "#000000"]
MARKS = "osD^vPX<>"


def clean(place):
    """The look of the axes of one panel."""
    place.set_ylim(bottom=0)
    place.spines[["top", "right"]].set_visible(False)
    place.grid(axis="y", alpha=0.3)
    place.set_axisbelow(True)


def save(page, path):
    """Writes a page of panels as SVG, without the comments and digits that nobody sees."""
    page.savefig(path, metadata={"Date": None, "Creator": None})
    pyplot.close(page)
    text = path.read_text()
    for pattern, better in NEEDLESS:
        text = re.sub(pattern, better, text)
    path.write_text(with_classes(text))


def with_classes(text):
    """The text with a class in place of each style that it repeats."""
    names = {}
    text = re.sub(r' style="([^"]*)"', lambda found: f' class="{names.setdefault(found[1], f"s{len(names)}")}"', text)
    rules = "".join(f".{name} {{{style}}}\n" for style, name in names.items())
    return text.replace("<defs>", f"<style>\n{rules}</style>\n<defs>", 1)
