"""Results in columns, and as frames of pandas or polars."""

from __future__ import annotations

from typing import Any

import numpy as np


def need(module: str, extra: str) -> Any:
    """An optional module, or an error that says how to install it."""
    import importlib

    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(f"{module} is not installed: pip install 'undercroft[{extra}]'") from error


class Columns:
    """Columns of equal lengths, as NumPy arrays by name."""

    def __init__(self, columns: dict[str, np.ndarray]):
        self.columns = columns

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    def __getitem__(self, name: str) -> np.ndarray:
        return self.columns[name]

    def to_pandas(self) -> Any:
        """A pandas frame that shares the memory of the columns of numbers."""
        pandas = need("pandas", "pandas")
        series = {name: pandas.Series(values, copy=False) for name, values in self.columns.items()}
        return pandas.DataFrame(series, copy=False)

    def to_polars(self) -> Any:
        """A polars frame that shares the memory of the columns of numbers."""
        polars = need("polars", "polars")
        return polars.DataFrame(
            [polars.Series(name, values) for name, values in self.columns.items()]
        )


def columns_of(frame: Any) -> dict[str, np.ndarray]:
    """The columns of our results, of a pandas or of a polars frame."""
    if isinstance(frame, Columns):
        return frame.columns
    if hasattr(frame, "columns") and hasattr(frame, "__getitem__"):
        return {str(name): np.asarray(frame[name]) for name in frame.columns}
    raise TypeError(f"expected rows of a sweep or a frame, found {type(frame).__name__}")
