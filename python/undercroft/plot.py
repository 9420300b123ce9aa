"""Pictures on matplotlib axes, for papers: colours that colour-blind people can tell apart, markers
that remain without colours, units on the axes.

Every function takes ``ax=``, draws there (or on a new figure), and returns the axes.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ._frames import columns_of, need

# Okabe and Ito's colours, without their yellow, which is pale on paper.
COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"]
MARKERS = ["o", "s", "^", "D", "v", "P", "X", "*", "<", ">"]
LINES = ["-", "--", ":", "-."]

_STYLE = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "lines.linewidth": 1.4,
    "lines.markersize": 4.5,
    "legend.frameon": False,
    "figure.dpi": 150,
    "savefig.bbox": "tight",
    "pdf.fonttype": 42,
}


def _styled(draw: Any) -> Any:
    """Runs a function that draws with our style, which stays with what it draws.

    Only what is ours is set back. The first figure sets up a notebook to show figures, and the end of
    an rc_context around it would undo that: the notebook would show no other.
    """

    @functools.wraps(draw)
    def drawn(*args: Any, **kwargs: Any) -> Any:
        settings = need("matplotlib", "plot").rcParams
        before = {name: settings[name] for name in _STYLE}
        settings.update(_STYLE)
        try:
            return draw(*args, **kwargs)
        finally:
            settings.update(before)

    return drawn


def _axes(ax: Any) -> Any:
    """The axes given, or those of a new figure of a column's width."""
    if ax is not None:
        return ax
    _, ax = need("matplotlib.pyplot", "plot").subplots(figsize=(4.6, 3.0), layout="constrained")
    return ax


def size_label(size: float, _: Any = None) -> str:
    """A number of bytes as people write it."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.3g} {unit}"
        size /= 1024
    return f"{size:.3g} TiB"


def _size_axis(ax: Any, label: str, least: float, most: float) -> None:
    """Sizes in bytes by powers of two, at most about eight labels."""
    ticker = need("matplotlib.ticker", "plot")
    ax.set_xscale("log", base=2)
    first, last = int(np.floor(np.log2(least))), int(np.ceil(np.log2(most)))
    step = max(1, -(-(last - first) // 7))
    ax.xaxis.set_major_locator(ticker.FixedLocator([2.0**e for e in range(first, last + 1, step)]))
    ax.xaxis.set_major_formatter(ticker.FuncFormatter(size_label))
    ax.xaxis.set_minor_locator(ticker.NullLocator())
    ax.set_xlabel(label)
    if last - first >= 4:
        ax.tick_params(axis="x", labelrotation=30)


def _percent_axis(axis: Any) -> None:
    ticker = need("matplotlib.ticker", "plot")
    axis.set_major_formatter(ticker.PercentFormatter(1.0, decimals=None))


@_styled
def hit_ratio(frame: Any, *, ax: Any = None, value: str | None = None, trace: str | None = None) -> Any:
    """Hit ratio against size, a line for each policy and placement of a sweep.

    ``frame``: the rows of :func:`undercroft.sweep`, or a pandas or polars frame of them. ``value``:
    the column to draw; by default ``read_hit_ratio``, or ``aggregate_read_hit_ratio`` if all levels
    vary. ``trace``: which one, if there are several.
    """
    columns = columns_of(frame)
    traces = list(dict.fromkeys(columns["trace"].tolist()))
    if trace is None and len(traces) > 1:
        raise ValueError(f"trace: there are several, choose one: {', '.join(traces)}")
    chosen = columns["trace"] == (traces[0] if trace is None else trace)
    if not chosen.any():
        raise ValueError(f"trace: no rows of {trace!r}; there are {', '.join(traces)}")
    columns = {name: values[chosen] for name, values in columns.items()}
    if value is None:
        varies = "ratio" in columns and bool(columns["ratio"][0])
        value = "aggregate_read_hit_ratio" if varies else "read_hit_ratio"
    ax = _axes(ax)
    bytes_ = columns["capacity_blocks"].astype(float) * columns["block_bytes"]
    policies = list(dict.fromkeys(columns["policy"].tolist()))
    placements = list(dict.fromkeys(columns["placement"].tolist()))
    for i, policy in enumerate(policies):
        for j, placement in enumerate(placements):
            rows = np.flatnonzero((columns["policy"] == policy) & (columns["placement"] == placement))
            rows = rows[np.argsort(bytes_[rows])]
            if not len(rows):
                continue
            ax.plot(
                bytes_[rows],
                columns[value][rows],
                color=COLOURS[i % len(COLOURS)],
                marker=MARKERS[i % len(MARKERS)],
                markerfacecolor=None if j == 0 else "white",
                linestyle=LINES[j % len(LINES)],
                label=policy if len(placements) == 1 else f"{policy}, {placement}",
            )
    upper = str(columns["upper"][0])
    _size_axis(ax, f"cache size below {upper}" if upper else "cache size", bytes_.min(), bytes_.max())
    _percent_axis(ax.yaxis)
    ax.set_ylim(bottom=0)
    is_ratio = value.endswith("ratio")
    ax.set_ylabel(value.replace("_", " ") + (" (% of reads)" if is_ratio else ""))
    if not is_ratio:
        ax.yaxis.set_major_formatter(need("matplotlib.ticker", "plot").ScalarFormatter())
    ax.legend(fontsize="small", handlelength=2.6, ncols=1 + (len(policies) * len(placements) > 8))
    return ax


@_styled
def miss_ratio_curve(curve: Any, *, ax: Any = None, label: str | None = None, hits: bool = False) -> Any:
    """A curve of :func:`undercroft.miss_ratio_curve`, or of each of a list: misses against size.

    ``hits``: draw the hit ratio instead.
    """
    curves = list(curve) if isinstance(curve, (list, tuple)) else [curve]
    ax = _axes(ax)
    drawn = len(ax.lines)
    for i, one in enumerate(curves, start=drawn):
        sizes = one.capacity_blocks.astype(float) * one.block_bytes
        ratios = one.read_hit_ratio if hits else one.read_miss_ratio
        estimated = "" if one.rate == 1.0 else f" ({one.rate:.2g} of the blocks)"
        ax.plot(
            sizes,
            ratios,
            color=COLOURS[i % len(COLOURS)],
            linestyle=LINES[i % len(LINES)],
            marker=MARKERS[i % len(MARKERS)],
            markevery=_marks(sizes),
            label=label or one.policy + estimated,
        )
    lines = [line.get_xdata() for line in ax.lines]
    _size_axis(ax, "cache size", min(x[0] for x in lines), max(x[-1] for x in lines))
    _percent_axis(ax.yaxis)
    ax.set_ylim(0, 1)
    ax.set_ylabel(f"read {'hit' if hits else 'miss'} ratio (% of reads)")
    ax.legend(fontsize="small", handlelength=2.6)
    return ax


def _marks(sizes: np.ndarray) -> list[int]:
    """About a dozen points that are evenly spread on a logarithmic axis."""
    if len(sizes) <= 25:
        return list(range(len(sizes)))
    wanted = np.geomspace(sizes[0], sizes[-1], 12)
    return sorted(set(np.searchsorted(sizes, wanted).clip(0, len(sizes) - 1).tolist()))


@_styled
def reuse_distance(distances: Any, *, ax: Any = None) -> Any:
    """The hill of reuse distances: the share of the requests at each distance, and the share up to it.

    ``distances``: :attr:`undercroft.Characterization.reuse_distance` or ``temporal_distance``. Stack
    distances are drawn as sizes, those of the LRU cache that would just hit.
    """
    ax = _axes(ax)
    columns = distances.columns
    if not columns:
        raise ValueError("nothing is referenced twice, so there are no distances")
    is_size = distances.unit == "blocks"
    x = columns["up_to"].astype(float) * (distances.block_bytes if is_size else 1)
    ax.bar(x * 0.707, columns["share"], width=x * 0.42, color=COLOURS[0], label="at this distance")
    ax.plot(
        x,
        columns["cumulative_share"],
        color=COLOURS[1],
        marker=MARKERS[1],
        label="up to this distance",
    )
    if is_size:
        _size_axis(ax, "reuse distance (distinct blocks, as bytes)", x.min() / 2, x.max())
    else:
        ax.set_xscale("log", base=2)
        ax.set_xlabel(f"{distances.name} ({distances.unit})")
    _percent_axis(ax.yaxis)
    ax.set_ylim(0, 1)
    ax.set_ylabel("share of block requests (%)")
    ax.legend(fontsize="small", loc="upper left")
    return ax


@_styled
def frequency(rows: Any, *, ax: Any = None) -> Any:
    """The share of the blocks, and of the references, that belong to blocks with at least so many
    references: :attr:`undercroft.Characterization.frequency`."""
    ax = _axes(ax)
    for i, (name, label) in enumerate({"block_share": "of the blocks", "reference_share": "of the references"}.items()):
        ax.plot(rows["at_least"], rows[name], color=COLOURS[i], marker=MARKERS[i], label=label)
    ax.set_xscale("log", base=2)
    ax.set_xlabel("references to a block, at least")
    _percent_axis(ax.yaxis)
    ax.set_ylim(0, 1)
    ax.set_ylabel("share (%)")
    ax.legend(fontsize="small")
    return ax


@_styled
def concentration(rows: Any, *, ax: Any = None) -> Any:
    """The share of the references that the most referenced blocks get, against their size:
    :attr:`undercroft.Characterization.concentration`."""
    ax = _axes(ax)
    bytes_ = rows["blocks"].astype(float) * rows.block_bytes
    ax.plot(bytes_, rows["reference_share"], color=COLOURS[0], marker=MARKERS[0])
    _size_axis(ax, "most referenced blocks, as bytes", bytes_.min(), bytes_.max())
    _percent_axis(ax.yaxis)
    ax.set_ylim(0, 1)
    ax.set_ylabel("share of the references (%)")
    return ax


@_styled
def working_set(rows: Any, *, ax: Any = None) -> Any:
    """Distinct and new blocks of each window, as bytes:
    :attr:`undercroft.Characterization.working_set`."""
    ax = _axes(ax)
    windows = np.arange(1, len(rows) + 1)
    for i, (name, label) in enumerate({"unique_blocks": "distinct", "new_blocks": "never seen before"}.items()):
        ax.plot(windows, rows[name].astype(float) * rows.block_bytes, color=COLOURS[i], marker=MARKERS[i], label=label)
    ax.yaxis.set_major_formatter(need("matplotlib.ticker", "plot").FuncFormatter(size_label))
    ax.set_xlabel(f"window of {rows['requests'][0]:,} block requests")
    ax.set_ylim(bottom=0)
    ax.set_ylabel("blocks, as bytes")
    ax.legend(fontsize="small")
    return ax
