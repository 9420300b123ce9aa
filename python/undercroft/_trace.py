"""Traces: files, arrays and columns of data frames."""

from __future__ import annotations

import functools
import hashlib
import json
import os
from typing import Any

import numpy as np

from . import _native


class Trace:
    """A block trace.

    Made by :meth:`open`, :meth:`from_arrays` or :meth:`from_frame`. Its references are read when
    they are first needed, and kept in memory (4 bytes each; beyond 512 MiB in a temporary file).
    A trace of a file is pickled as its path, a trace of arrays with the arrays.
    """

    def __init__(self, native: _native.Trace, made: tuple[str, tuple[Any, ...]], identity: str | None):
        self._native = native
        self._made = made
        self._identity = identity

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        format: str | None = None,
        block: int | str | None = None,
        unit: int | None = None,
    ) -> Trace:
        """Opens a trace file; zstd, gzip, bzip2 and xz are undone.

        ``format``: a name with options, as ``"csv,id=2,op=4"``; by default it is recognised
        (:func:`undercroft.formats` lists the names). ``block``: cache block size, bytes or a text
        as ``"8KiB"``, 512 to 1 GiB; by default what the trace says, else 4 KiB. ``unit``: the
        numbers of the trace are addresses in units of so many bytes.

        Raises ``FileNotFoundError`` and other ``OSError``; :class:`TraceError` if no format fits
        or the file is damaged, with the line or byte; ``ValueError`` for a wrong option.
        """
        path = os.fspath(path)
        block = None if block is None else str(block)
        native = _native.Trace.open(path, format, block, unit)
        return cls(native, ("open", (path, format, block, unit)), None)

    @classmethod
    def from_arrays(
        cls,
        blocks: Any,
        *,
        is_write: Any = None,
        time_ns: Any = None,
        block: int | str | None = None,
        unit: int | None = None,
        name: str = "arrays",
    ) -> Trace:
        """A trace of arrays of equal lengths, one element a request.

        ``blocks``: block numbers, not negative; with ``unit``, addresses in units of so many bytes.
        ``is_write``: whether the request is a write; by default all are reads. ``time_ns``: times
        in nanoseconds, not negative. ``block``: the size of a block, bytes or text, default 4 KiB.
        ``name``: what results call the trace.

        Contiguous arrays of ``uint64``, ``bool`` and ``uint64`` are not copied: do not change them
        afterwards.
        """
        blocks = _whole("blocks", blocks)
        if is_write is not None:
            is_write = np.ascontiguousarray(is_write)
            if is_write.dtype != np.bool_:
                raise ValueError(f"is_write: expected booleans, found {is_write.dtype}")
        time_ns = None if time_ns is None else _whole("time_ns", time_ns)
        arrays = [array for array in (blocks, is_write, time_ns) if array is not None]
        if any(array.ndim != 1 for array in arrays):
            raise ValueError("blocks, is_write, time_ns: expected arrays of one dimension")
        block = None if block is None else str(block)
        native = _native.Trace.from_arrays(name, blocks, is_write, time_ns, block, unit)
        made = ("from_arrays", (name, blocks, is_write, time_ns, block, unit))
        return cls(native, made, None)

    from_numpy = from_arrays

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        *,
        blocks: str,
        is_write: str | None = None,
        time_ns: str | None = None,
        block: int | str | None = None,
        unit: int | None = None,
        name: str = "frame",
    ) -> Trace:
        """A trace of columns of a pandas or polars frame, by their names; see :meth:`from_arrays`."""
        columns = list(frame.columns)
        for column in (blocks, is_write, time_ns):
            if column is not None and column not in columns:
                raise ValueError(f"no column {column!r}; there are {', '.join(map(repr, columns))}")
        array = lambda column: None if column is None else frame[column].to_numpy()  # noqa: E731
        return cls.from_arrays(
            array(blocks),
            is_write=array(is_write),
            time_ns=array(time_ns),
            block=block,
            unit=unit,
            name=name,
        )

    @property
    def path(self) -> str:
        """Path of the file, or the name that was given."""
        return self._made[1][0]

    @property
    def block_bytes(self) -> int:
        """Block size in bytes."""
        return self._native.block_bytes

    @property
    def info(self) -> dict[str, Any]:
        """What the trace contains: format, records, requests (blocks), reads, writes, unique_blocks."""
        return json.loads(self._native.about())

    def __len__(self) -> int:
        """Block requests: reads and writes."""
        return self.info["requests"]

    def __repr__(self) -> str:
        return f"<undercroft.Trace {self.path}>"

    def __reduce__(self) -> tuple[Any, ...]:
        how, arguments = self._made
        # The worker's trace is the worker's state of the file; in arrays there is nothing else.
        key = self.identity() if how == "from_arrays" else _file_state(arguments[0])
        return _remake, (_Remade(how, arguments, key),)

    def identity(self) -> str:
        """Text that differs for traces of another content: a file's path, size and time, or a hash."""
        if self._made[0] == "open":
            return _native.about_file(self.path)
        if self._identity is None:
            digest = hashlib.blake2b(digest_size=16)
            for array in self._made[1][1:4]:
                digest.update(b"-" if array is None else array.data)
            self._identity = f"{self.path} blake2b={digest.hexdigest()}"
        return self._identity


def _whole(name: str, values: Any) -> np.ndarray:
    """Values as contiguous ``uint64``, without a copy if they are that already."""
    array = np.asarray(values)
    if array.size == 0 and array.dtype.kind == "f":
        array = array.astype(np.uint64)
    if array.dtype.kind not in "iu":
        raise ValueError(f"{name}: expected whole numbers, found {array.dtype}")
    if array.dtype.kind == "i" and array.size and array.min() < 0:
        raise ValueError(f"{name}: {array.min()} is negative")
    return np.ascontiguousarray(array, dtype=np.uint64)


def _file_state(path: str) -> str:
    try:
        return _native.about_file(path)
    except OSError:
        return path


class _Remade:
    """How a trace was made; equal ones share one trace in a worker process."""

    def __init__(self, how: str, arguments: tuple[Any, ...], key: str):
        self.how, self.arguments, self.key = how, arguments, key

    def _all(self) -> tuple[Any, ...]:
        options = self.arguments[1:] if self.how == "open" else self.arguments[4:]
        return self.how, self.key, options

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Remade) and self._all() == other._all()

    def __hash__(self) -> int:
        return hash(self._all())


@functools.lru_cache(maxsize=2)
def _remake(made: _Remade) -> Trace:
    if made.how == "open":
        path, format, block, unit = made.arguments
        return Trace.open(path, format=format, block=block, unit=unit)
    name, blocks, is_write, time_ns, block, unit = made.arguments
    return Trace.from_arrays(
        blocks, is_write=is_write, time_ns=time_ns, block=block, unit=unit, name=name
    )
