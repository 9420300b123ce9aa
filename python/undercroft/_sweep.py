"""Sweeps: every combination of sizes, policies and placements, on any executor."""

from __future__ import annotations

import concurrent.futures as futures
import hashlib
import inspect
import json
import os
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np

from . import _native
from ._frames import Columns
from ._simulate import _common, _level, _trace
from ._policy import is_policy
from ._trace import Trace


if TYPE_CHECKING:
    from typing_extensions import Unpack


class SweepOptions(TypedDict, total=False):
    """The options of :func:`sweep` and :func:`iter_sweep`, for type checkers; :func:`sweep` explains
    them."""

    l1: Any
    l2: str | Iterable[str] | None
    policy: Any
    placement: str | Iterable[str]
    ratio: str | None
    warmup: int | str
    write_mode: str
    costs: str | None
    demotions: str | None
    seed: int
    stream_cutoff: int | str
    write_back: bool | str
    flash: str | None
    evictions: str
    executor: futures.Executor | None
    out: str | os.PathLike[str] | None


class Rows(Columns):
    """The rows of a sweep, one a run, in the order of the plan.

    ``columns`` has the names of ``results.csv``: ``trace``, ``upper``, ``policy``, ``placement``,
    ``size``, ``capacity_blocks``, ``read_hit_ratio``, ``response_time_ms`` and more. Iterating gives
    each row as a dict.
    """

    def __init__(self, rows: list[dict[str, Any]]):
        self.rows = rows
        super().__init__({key: np.array([row[key] for row in rows]) for key in (rows[0] if rows else {})})

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows)

    def __repr__(self) -> str:
        cells = [
            (r["trace"], r["policy"], r["placement"], r["size"], f"{100 * r['read_hit_ratio']:.1f} %")
            for r in self.rows
        ]
        table = [("trace", "policy", "placement", "size", "read hits"), *cells]
        widths = [max(len(row[i]) for row in table) for i in range(5)]
        lines = ("  ".join(cell.ljust(w) for cell, w in zip(row, widths)).rstrip() for row in table)
        return "\n".join(lines)


def _carry_out(trace: Trace, plan: tuple[Any, ...], warmup: str, stop: Any = None) -> str:
    """One run, in whichever process: its row as JSON."""
    return _native.Plan(*plan).carry_out(trace._native, warmup, stop)


def _texts(values: Any, split: Callable[[str], list[str]], name: str) -> list[Any]:
    """A text or a list of texts and classes, split and each once."""
    items: list[Any] = []
    for value in [values] if isinstance(values, str) or is_policy(values) else values:
        if isinstance(value, str):
            items += split(value)
        elif name == "policy" and is_policy(value):
            items.append(value)
        else:
            raise TypeError(f"{name}: expected texts, found {value!r}")
    return list(dict.fromkeys(items))


def _own_text(policies: Iterable[Any]) -> str:
    """The sources of the classes among policies, for the keys of finished runs."""
    text = ""
    for policy in (p for p in policies if not isinstance(p, str)):
        try:
            source = inspect.getsource(policy)
        except (OSError, TypeError):
            raise ValueError(
                f"out: the source of {policy.__name__} is not known, so its results cannot be kept; "
                "define it in a file, or leave out"
            ) from None
        digest = hashlib.blake2b(source.encode(), digest_size=8).hexdigest()
        text += f" {policy.__qualname__}={digest}"
    return text


def _keyed(
    traces: Trace | Iterable[Trace],
    keys: list[str],
    *,
    l1: Any = None,
    l2: str | Iterable[str] | None = None,
    policy: Any = "all",
    placement: str | Iterable[str] = "access",
    ratio: str | None = None,
    warmup: int | str = 0,
    write_mode: str = "allocate",
    costs: str | None = None,
    demotions: str | None = None,
    seed: int = 42,
    stream_cutoff: int | str = 0,
    write_back: bool | str = False,
    flash: str | None = None,
    evictions: str = "exact",
    executor: futures.Executor | None = None,
    out: str | os.PathLike[str] | None = None,
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Runs every combination, and yields the key and the row of each as it is finished. ``keys``
    gets the keys of all runs, in the order of the plan."""
    traces = [_trace(traces)] if isinstance(traces, Trace) else [_trace(t) for t in traces]
    l2 = _native.SIZES if l2 is None else l2
    sizes = l2 if isinstance(l2, str) else ",".join(l2)
    upper = None if l1 is None else _level(l1, "l1")
    policies = _texts(policy, _native.split_policies, "policy")
    placements = _texts(placement, _native.split_placements, "placement")
    common = _common(costs, demotions, seed, write_mode, stream_cutoff, write_back, flash, evictions)
    whole = _native.Plan(upper, ratio, sizes, policies, placements, common)
    whole.check()
    own = ""
    if out is not None:
        own = _own_text([*policies, *(upper[1:] if isinstance(upper, tuple) else ())])
    journal = None if out is None else _native.Journal(os.fspath(out))
    missing = []
    for trace in traces:
        reading = _native.reading(trace._native, str(warmup), evictions) + own
        for key, size, which, rule in whole.runs(trace.identity(), reading):
            keys.append(key)
            row = None if journal is None else journal.row(key)
            if row is not None:
                yield key, json.loads(row)
            else:
                missing.append((key, trace, (upper, ratio, size, [policies[which]], [rule], common)))
    yield from _run(missing, str(warmup), executor, journal)
    if journal is not None:
        journal.finish(keys)


def _run(
    missing: list[tuple[str, Trace, tuple[Any, ...]]],
    warmup: str,
    executor: futures.Executor | None,
    journal: Any,
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Carries out runs, and yields their rows as they are finished. If the caller stops, what has
    not begun is cancelled; on threads of our own, what has begun ends too."""
    stop = _native.Stop() if executor is None else None
    pool = executor or futures.ThreadPoolExecutor(os.cpu_count())
    extra = () if stop is None else (stop,)
    running: dict[Any, str] = {}
    try:
        for key, trace, plan in missing:
            running[pool.submit(_carry_out, trace, plan, warmup, *extra)] = key
        for future in futures.as_completed(list(running)):
            row, key = future.result(), running[future]
            if journal is not None:
                journal.append(key, row)
            yield key, json.loads(row)
    finally:
        for future in running:
            future.cancel()
        if stop is not None:
            stop.set()
            pool.shutdown()


def sweep(
    traces: Trace | Iterable[Trace],
    *,
    progress: Callable[[int, dict[str, Any]], None] | None = None,
    **options: Unpack[SweepOptions],
) -> Rows:
    """Simulates every combination of traces, sizes, policies and placements.

    ``l1``: a level above the one that varies, as ``"64MiB:lru"``. ``l2``: sizes of the level that
    varies: a list, or a text with ranges in doublings, ``"64MiB..4GiB"``; by default 1 % to 100 % of
    the distinct blocks of each trace. ``policy``: names with
    parameters and subclasses of :class:`Policy`; ``"all"`` stands for all that can run online.
    ``placement``: as in :func:`simulate`, one or several. ``ratio``: all levels vary, their sizes
    as parts of the first one's, ``"1:4"``. ``warmup``, ``write_mode``, ``costs``, ``demotions``,
    ``seed``, ``stream_cutoff``, ``write_back``, ``flash``, ``evictions``: as in :func:`simulate`.

    ``executor``: any ``concurrent.futures.Executor``, of threads, of processes, or of a cluster
    (Dask's ``Client.get_executor()``); by default threads on the cores of this machine, which run
    side by side, since the interpreter's lock is released. Policies written in Python need
    processes for that, and a module that the processes can import. ``out``: a folder of results
    as ``undercroft sweep -o`` writes it; an interrupted sweep does there only what is missing,
    whichever of both began it. ``progress``: called with the number of finished runs and each
    row. :func:`iter_sweep` yields the rows as they are finished.
    """
    keys: list[str] = []
    rows = {}
    for key, row in _keyed(traces, keys, **options):
        rows[key] = row
        if progress is not None:
            progress(len(rows), row)
    return Rows([rows[key] for key in dict.fromkeys(keys)])


def iter_sweep(traces: Trace | Iterable[Trace], **options: Unpack[SweepOptions]) -> Iterator[dict[str, Any]]:
    """Yields each row of a sweep as it is finished, those found in ``out`` first.

    Takes the options of :func:`sweep`. If the caller stops early, what has not begun is cancelled;
    with ``out``, the next sweep goes on from there.
    """
    for _, row in _keyed(traces, [], **options):
        yield row
