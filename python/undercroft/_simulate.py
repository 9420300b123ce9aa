"""One simulation, a characterisation, a miss ratio curve."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from typing import Any

import numpy as np

from . import _native
from ._frames import Columns
from ._policy import is_policy
from ._trace import Trace


def _level(level: Any, name: str) -> Any:
    """A level as the native module takes it."""
    if isinstance(level, str):
        return level
    if isinstance(level, tuple) and len(level) == 2:
        size, policy = level
        if isinstance(policy, str) or is_policy(policy):
            return str(size), policy
    raise TypeError(
        f"{name}: expected a text as '64MiB:lru', or a pair of a size and a subclass of "
        f"undercroft.Policy, found {level!r}"
    )


def _common(
    costs: str | None,
    demotions: str | None,
    seed: int,
    write_mode: str,
    stream_cutoff: int | str,
    write_back: bool | str,
    flash: str | None,
    evictions: str,
) -> dict[str, Any]:
    """Options of simulations and sweeps as the native module takes them."""
    rules = "" if write_back is True else write_back or None
    return {
        "costs": costs,
        "demotions": demotions,
        "seed": seed,
        "write_mode": write_mode,
        "stream_cutoff": str(stream_cutoff),
        "write_back": rules,
        "flash": flash,
        "evictions": evictions,
    }


def _clock(timed: bool, **options: Any) -> dict[str, Any] | None:
    """Options of a clock as the native module takes them; ``None`` without one."""
    given = [name for name, value in options.items() if value is not None]
    if given and not timed:
        raise ValueError(f"{', '.join(given)}: only with a clock; give timed=True")
    return options if timed else None


def _trace(trace: Any) -> Trace:
    if isinstance(trace, Trace):
        return trace
    raise TypeError(f"trace: expected undercroft.Trace, found {type(trace).__name__}; see Trace.open")


def simulate(
    trace: Trace,
    *,
    l1: Any = None,
    l2: Any = None,
    l3: Any = None,
    lower: Iterable[Any] = (),
    ratio: str | None = None,
    topology: str | os.PathLike[str] | None = None,
    placement: str = "access",
    evictions: str = "exact",
    warmup: int | str = 0,
    write_mode: str = "allocate",
    costs: str | None = None,
    stream_cutoff: int | str = 0,
    write_back: bool | str = False,
    flash: str | None = None,
    demotions: str | None = None,
    seed: int = 42,
    samples: int = 0,
    hint_distances: bool = False,
    bounds: bool = False,
    clients: str | Iterable[Trace] | None = None,
    data: str | None = None,
    partition: str | None = None,
    peer_fetch: bool = False,
    servers: int | None = None,
    timed: bool = False,
    outstanding: int | None = None,
    think_us: int | None = None,
    disks: int | None = None,
    disk_us: int | None = None,
    link: str | None = None,
    reloads: str | None = None,
) -> dict[str, Any]:
    """Simulates caches on a trace; the same object as ``undercroft simulate --json`` prints.

    *Levels.* ``l1``, ``l2``, ``l3``, and ``lower`` for those below them: the one nearest to the
    application first, as ``"64MiB:lru"``, or pairs ``("64MiB", MyPolicy)``. A trace of an already
    filtered stream takes ``l1`` only. ``ratio``: sizes of all levels as parts of the first one's,
    ``"1:2:4"``, instead of ``l2`` and those below.

    *Placement.* ``placement``: ``access``, ``eviction``, ``gl`` or a scheme such as ``d-hfa``, with
    options, as ``"eviction,on-hit=keep"``. ``evictions``: how they become known: ``exact`` (of the
    simulated level above), ``cct`` (from buffer addresses in a recorded trace), ``told`` (what
    clients told while it was recorded) or ``estimate`` (from an emulated client).

    *Counting.* ``warmup``: records that are simulated and not counted, or a share as ``"10%"``.
    ``write_mode``: ``allocate``, ``no-allocate`` or ``invalidate``. ``costs``: times of the levels
    and the disk in milliseconds, as ``"0.2,2,10"``. ``stream_cutoff``: sequential streams pass the
    lowest level beyond this size, in bytes or as ``"4MiB"``; 0: they are cached. ``write_back``:
    whether the disk's writes are counted as write-back at the lowest level makes them, or its
    rules, as ``"age=100000,percent=25"`` (block requests, percent of the level). The last two are
    for placement ``access``. ``flash``: a flash level between the lowest level and the disk, as
    ``"64GiB,budget=500GiB/day,rate=5000"``.

    *Schemes.* ``demotions``: ``free``, ``rtt`` or ``link=N`` (blocks a second). ``seed``: of those
    that toss coins. ``topology``: a file of caches in a tree, instead of levels. ``samples``: looks
    at the caches over the run. ``hint_distances``: whether hint reuse distances are found, which
    takes longer. ``bounds``: adds what no scheme can beat.

    *Several clients.* ``clients``: a list of the traces of the other clients, or ``"spaces"``: every
    device, unit or file of the trace is a client. ``l1`` is one level for all of them, or a list
    with one for each. ``data``: whether equal block numbers of different clients are the same
    block, ``disjoint`` (the default) or ``shared``. ``partition``: of the servers' caches among
    clients of disjoint data: ``shared``, ``equal`` or ``benefit``. ``peer_fetch``: whether clients
    serve each other what the servers miss. ``servers``: how many share the size of ``l2``. The
    traces are read anew by each call.

    *With a clock.* ``timed``: whether links, disks and reloads take time. ``outstanding``: requests
    under way of each client, default 1. ``think_us``: mean time from an answer to the next request,
    in microseconds, default 0. ``disks``: of each server, default 1. ``disk_us``: time of a disk
    for a block, in microseconds, default 8000. ``link``: bytes a second of each client's link, as
    ``"40MiB"``; by default it has no limit. ``reloads``: ``idle`` (the default) or ``demand``.

    Counts are in blocks, times in milliseconds, ratios from 0 to 1. The interpreter's lock is
    released, except with a policy written in Python. Ctrl-C ends a simulation.

    Raises ``ValueError`` for what cannot be simulated; :class:`TraceError`, ``OSError`` from
    reading; what a policy in Python raises.
    """
    if l3 is not None and l2 is None:
        raise ValueError("l3: there is no l2")
    if l1 is None and topology is None:
        raise ValueError("l1: a level is missing, as '64MiB:lru'")
    first = [] if l1 is None else l1 if isinstance(l1, list) else [l1]
    below = [("l2", l2), ("l3", l3), *(("lower", level) for level in lower)]
    below = [_level(level, name) for name, level in below if level is not None]
    more = clients if clients is None or isinstance(clients, str) else [_trace(t)._native for t in clients]
    options = {
        "placement": placement,
        "warmup": str(warmup),
        "common": _common(costs, demotions, seed, write_mode, stream_cutoff, write_back, flash, evictions),
        "ratio": ratio,
        "topology": None if topology is None else os.fspath(topology),
        "samples": samples,
        "hint_distances": hint_distances,
        "bounds": bounds,
        "clients": {
            "more": more,
            "data": data,
            "partition": partition,
            "peer_fetch": peer_fetch,
            "servers": servers,
        },
        "clock": _clock(
            timed,
            outstanding=outstanding,
            think_us=think_us,
            disks=disks,
            disk_us=disk_us,
            link=link,
            reloads=reloads,
        ),
    }
    first = [_level(level, "l1") for level in first]
    return json.loads(_native.simulate(_trace(trace)._native, first, below, options, None))


class Distances(Columns):
    """A histogram of distances in powers of two.

    ``columns``: ``up_to`` (largest distance of a bin, in block requests or distinct blocks),
    ``requests``, ``share`` and ``cumulative_share`` of all requests.
    """

    def __init__(self, name: str, unit: str, report: dict[str, Any], block_bytes: int):
        rows = report["bins"]
        super().__init__({key: np.array([row[key] for row in rows]) for key in (rows[0] if rows else {})})
        self.name, self.unit, self.block_bytes = name, unit, block_bytes
        self.median: int | None = report["median"]
        """The bin of the median; ``None`` if nothing is referenced twice."""
        self.hill: dict[str, Any] | None = report["hill"]
        """The hill that the histogram makes; ``None`` if nothing is referenced twice."""

    def plot(self, ax: Any = None, **kwargs: Any) -> Any:
        """Draws the histogram on matplotlib axes, which are returned."""
        from . import plot

        return plot.reuse_distance(self, ax=ax, **kwargs)


class Table(Columns):
    """Rows of a characterisation in columns, that can be drawn."""

    def __init__(self, name: str, rows: list[dict[str, Any]], block_bytes: int):
        super().__init__({key: np.array([row[key] for row in rows]) for key in (rows[0] if rows else {})})
        self.name, self.block_bytes = name, block_bytes

    def plot(self, ax: Any = None) -> Any:
        """Draws the rows on matplotlib axes, which are returned."""
        from . import plot

        return getattr(plot, self.name)(self, ax=ax)


class Characterization(dict):
    """What a trace asks for: the object of ``undercroft characterize --json``, with the histograms
    as objects that can be drawn."""

    @property
    def reuse_distance(self) -> Distances:
        """Stack distances: 1 + the distinct other blocks between two references to a block."""
        return Distances("stack distance", "blocks", self["stack_distance"], self["block_bytes"])

    @property
    def temporal_distance(self) -> Distances:
        """Temporal distances: the difference of the positions of two references to a block."""
        return Distances("temporal distance", "requests", self["temporal_distance"], self["block_bytes"])

    @property
    def frequency(self) -> Table:
        """How often blocks are referenced."""
        return Table("frequency", self["frequency"], self["block_bytes"])

    @property
    def concentration(self) -> Table:
        """How few blocks get most of the references."""
        return Table("concentration", self["concentration"], self["block_bytes"])

    @property
    def working_set(self) -> Table:
        """The windows of the working set."""
        return Table("working_set", self["working_set"]["windows"], self["block_bytes"])

    def __repr__(self) -> str:
        trace, blocks = self["trace"]["path"], self["blocks"]
        return f"<undercroft.Characterization of {trace}: {blocks['requests']} block requests>"


def characterize(
    trace: Trace,
    *,
    l1: str | None = None,
    caches: list[str] | tuple[str, ...] = (),
    rate: float = 1.0,
    max_blocks: int = 50_000_000,
) -> Characterization:
    """Describes a trace: request mix, working set, reuse distances, frequencies.

    ``l1``: a cache above, as ``"64MiB:lru"``: what it passes on is described. ``caches``: levels
    whose hits are split by distance. ``rate``: share of the blocks to sample. ``max_blocks``: most
    distinct blocks for which all figures are exact; of a trace with more, a sample is described.
    """
    caches = [cache if ":" in cache else f"{cache}:lru" for cache in caches]
    text = _native.characterize(_trace(trace)._native, l1, caches, max_blocks, rate, None)
    return Characterization(json.loads(text))


class MissRatioCurve(Columns):
    """Hit ratio against size. ``columns``: ``capacity_blocks``, ``read_hit_ratio``; the arrays are
    those of the engine, not copies."""

    def __init__(self, columns: dict[str, np.ndarray], policy: str, rate: float, block_bytes: int, reads: int):
        super().__init__(columns)
        self.policy, self.rate, self.block_bytes, self.reads = policy, rate, block_bytes, reads

    @property
    def capacity_blocks(self) -> np.ndarray:
        """Sizes in blocks."""
        return self.columns["capacity_blocks"]

    @property
    def read_hit_ratio(self) -> np.ndarray:
        """Read hits / reads at each size."""
        return self.columns["read_hit_ratio"]

    @property
    def read_miss_ratio(self) -> np.ndarray:
        """Read misses / reads at each size."""
        return 1.0 - self.read_hit_ratio

    def plot(self, ax: Any = None, **kwargs: Any) -> Any:
        """Draws the curve on matplotlib axes, which are returned."""
        from . import plot

        return plot.miss_ratio_curve(self, ax=ax, **kwargs)


def miss_ratio_curve(
    trace: Trace, *, policy: str = "lru", rate: float = 1.0, sizes: str | list[str] | None = None
) -> MissRatioCurve:
    """Hit ratio at many sizes from one pass.

    ``policy``: ``lru`` and ``opt`` are exact, at every size in blocks unless ``sizes`` are given;
    any other needs a ``rate``, the share of the blocks to sample (0.01), and is an estimate.
    ``sizes``: a list, or a text as ``"1%,64MiB..4GiB"``.
    """
    if sizes is not None and not isinstance(sizes, str):
        sizes = ",".join(sizes)
    trace = _trace(trace)
    (capacities, ratios), reads = _native.miss_ratio_curve(trace._native, policy, rate, sizes, None)
    columns = {"capacity_blocks": capacities, "read_hit_ratio": ratios}
    return MissRatioCurve(columns, policy, rate, trace.block_bytes, reads)
