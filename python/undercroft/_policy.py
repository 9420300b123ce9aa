"""Replacement policies written in Python."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any, Union

from . import _native

Report = Union[None, int, Iterable[Union[int, "tuple[int, str]"]]]
"""What a call evicted: ``None``, a block, or a list of blocks and of pairs ``(block, kind)``."""


class Policy:
    """The base of a replacement policy. Slow, but right: the engine runs it as it runs its own.

    Blocks are whole numbers from 0, in the order of their first references. A subclass defines
    ``__len__``, ``__contains__``, ``residents``, ``touch``, ``admit`` and ``discard``, and calls
    ``super().__init__(capacity)``. Methods that may evict return what they evicted: ``None``, a
    block, or a list of blocks. A block that is evicted but remembered without its data (a ghost) is
    reported as ``(block, "remembered")``, a ghost that is dropped as ``(block, "forgotten")``.

    Equal calls must give equal answers: take random numbers from ``random.Random(seed)``.
    :func:`check_policy` checks all this.
    """

    def __init__(self, capacity: int):
        self.capacity = capacity
        """Most resident blocks, at least 1."""

    def __len__(self) -> int:
        """Number of resident blocks."""
        raise NotImplementedError(f"{type(self).__name__}.__len__")

    def __contains__(self, block: object) -> bool:
        """Whether a block is resident."""
        raise NotImplementedError(f"{type(self).__name__}.__contains__")

    def residents(self) -> Iterable[int]:
        """The resident blocks, the next victim first."""
        raise NotImplementedError(f"{type(self).__name__}.residents")

    def touch(self, block: int) -> Report:
        """A reference to a resident block. Evicts nothing, but may drop ghosts."""
        raise NotImplementedError(f"{type(self).__name__}.touch")

    def admit(self, block: int) -> Report:
        """A reference to a block that is not resident: it becomes resident."""
        raise NotImplementedError(f"{type(self).__name__}.admit")

    def discard(self, block: int) -> Report:
        """Forgets a block, resident or not. This is no eviction and not reported."""
        raise NotImplementedError(f"{type(self).__name__}.discard")

    def resize(self, capacity: int) -> Report:
        """Changes the capacity, at least 1. The default evicts the next victims."""
        self.capacity = capacity
        evicted = list(self.residents())[: max(0, len(self) - capacity)]
        for block in evicted:
            self.discard(block)
        return evicted

    def victim(self) -> int | None:
        """The block that admitting an unknown one would evict; ``None`` while there is room."""
        if len(self) < self.capacity:
            return None
        return next(iter(self.residents()), None)

    def remembers(self, block: int) -> bool:
        """Whether a block is a ghost."""
        return False

    def take(self, block: int) -> Report:
        """A resident block moves to the level above. The default discards it."""
        return self.discard(block)

    def note(self, block: int) -> Report:
        """A reference to a block that is not resident was served elsewhere. The default ignores it."""
        return None

    def place(self, block: int) -> Report:
        """The level above evicted a block, which is not an access. The default is that of an access."""
        return self.touch(block) if block in self else self.admit(block)

    def validate(self) -> None:
        """Checks invariants of its own with ``assert``. Called by :func:`check_policy`."""


def is_policy(policy: Any) -> bool:
    """Whether this is a class of a policy."""
    return inspect.isclass(policy) and issubclass(policy, Policy)


def check_policy(policy: type[Policy], *, seeds: int = 100, first_seed: int = 0) -> None:
    """Checks a policy against the contract that the engine's own policies keep.

    Random calls are made from each of ``seeds`` seeds, and everything that can be seen is compared:
    what is resident, what was reported, the next victim, and that equal calls give equal answers.
    Raises :class:`ContractError` with the rule that does not hold and the few calls that show it,
    or what the policy raised.
    """
    if not is_policy(policy):
        raise TypeError(f"expected a subclass of undercroft.Policy, found {policy!r}")
    _native.check_policy(policy, first_seed, seeds)
