"""Simulates caches below other caches on block traces.

The engine is that of the ``undercroft`` program and server, and gives the same counts.

>>> import undercroft as uc
>>> trace = uc.Trace.from_arrays([1, 2, 3, 1, 2, 3])
>>> uc.simulate(trace, l1="3blk:lru")["levels"][0]["read_hits"]
3

Sizes are texts: ``"64MiB"`` are bytes, ``"1000blk"`` are blocks, ``"10%"`` is a share of the
distinct blocks of the trace. A level is a size and a policy, ``"64MiB:mq,m=4"``, or a pair
``("64MiB", MyPolicy)`` with a policy written in Python (:class:`Policy`).
"""

from . import plot
from ._native import ContractError, TraceError, formats, policies
from ._policy import Policy, check_policy
from ._simulate import Characterization, Distances, MissRatioCurve, characterize, miss_ratio_curve, simulate
from ._sweep import Rows, iter_sweep, sweep
from ._trace import Trace

__all__ = [
    "Characterization",
    "ContractError",
    "Distances",
    "MissRatioCurve",
    "Policy",
    "Rows",
    "Trace",
    "TraceError",
    "characterize",
    "check_policy",
    "formats",
    "iter_sweep",
    "miss_ratio_curve",
    "plot",
    "policies",
    "simulate",
    "sweep",
]
