"""Types of the native module."""

from os import PathLike
from typing import Any

import numpy as np

SIZES: str
"""Sizes of a sweep where none are given, as shares of the distinct blocks of each trace."""

class TraceError(ValueError):
    """A trace that is damaged or not known."""

class ContractError(AssertionError):
    """A policy does not keep the contract of policies."""

class Stop:
    def __init__(self) -> None: ...
    def set(self) -> None: ...

class Trace:
    block_bytes: int
    @staticmethod
    def open(path: str, format: str | None = None, block: str | None = None, unit: int | None = None) -> Trace: ...
    @staticmethod
    def from_arrays(
        name: str,
        blocks: np.ndarray,
        is_write: np.ndarray | None = None,
        time_ns: np.ndarray | None = None,
        block: str | None = None,
        unit: int | None = None,
    ) -> Trace: ...
    def about(self, stop: Stop | None = None) -> str: ...

class Plan:
    def __init__(
        self,
        l1: Any,
        ratio: str | None,
        sizes: str,
        policies: list[Any],
        placements: list[str],
        common: dict[str, Any],
    ) -> None: ...
    def check(self) -> None: ...
    def runs(self, about: str, reading: str) -> list[tuple[str, str, int, str]]: ...
    def carry_out(self, trace: Trace, warmup: str, stop: Stop | None) -> str: ...

class Journal:
    def __init__(self, folder: str | PathLike[str]) -> None: ...
    def row(self, key: str) -> str | None: ...
    def append(self, key: str, row: str) -> None: ...
    def finish(self, keys: list[str]) -> None: ...

def about_file(path: str) -> str: ...
def characterize(
    trace: Trace, l1: str | None, caches: list[str], max_blocks: int, rate: float, stop: Stop | None
) -> str: ...
def check_policy(policy: type, first_seed: int, seeds: int) -> None: ...
def formats() -> list[str]:
    """Names of the trace formats."""

def miss_ratio_curve(
    trace: Trace, policy: str, rate: float, sizes: str | None, stop: Stop | None
) -> tuple[tuple[np.ndarray, np.ndarray], int]: ...
def policies() -> list[tuple[str, str]]:
    """Name and summary of every policy."""

def reading(trace: Trace, warmup: str, evictions: str) -> str: ...
def simulate(
    trace: Trace, first: list[Any], lower: list[Any], options: dict[str, Any], stop: Stop | None
) -> str: ...
def split_placements(text: str) -> list[str]: ...
def split_policies(text: str) -> list[str]: ...
