"""The package takes what the program takes: each option of `simulate` and `sweep` has an argument of
that name, or is listed here with where else it is."""

import inspect
import re

import pytest

import undercroft as uc
from undercroft import _sweep

OF_TRACES = {"format", "block", "unit"}  # Arguments of Trace.open.
OF_COMMANDS = {"help", "json"}

ELSEWHERE = {
    "simulate": OF_TRACES | OF_COMMANDS | {"reload-threshold"},  # placement="eviction,threshold=N"
    "sweep": OF_TRACES
    | OF_COMMANDS
    | {
        "reload-threshold",
        "sizes",  # l2= has the sizes under a ratio too.
        "output",  # out=
        "jobs",  # executor=
        "report",  # `undercroft report DIR` makes the page of what out= has written.
    },
}

ARGUMENTS = {"simulate": uc.simulate, "sweep": _sweep._keyed}


@pytest.mark.parametrize("command", ["simulate", "sweep"])
def test_every_option_of_the_program_has_an_argument(command, program):
    told = program(command, "--help")
    options = set(re.findall(r"^ +(?:-\w, )?--([a-z][a-z0-9-]*)", told, re.M))
    assert {"l1", "l2", "placement", "evictions"} <= options, "the options were not found"
    arguments = {name.replace("_", "-") for name in inspect.signature(ARGUMENTS[command]).parameters}
    assert options - arguments - ELSEWHERE[command] == set(), "options without an argument"
    assert ELSEWHERE[command] - options == set(), "listed here, but no options"
    if command == "simulate":
        assert arguments - options == {"trace"}


def test_type_checkers_know_the_options_of_a_sweep():
    arguments = set(inspect.signature(_sweep._keyed).parameters) - {"traces", "keys"}
    assert set(_sweep.SweepOptions.__annotations__) == arguments
