"""Which runs there are, in which order they are made, and how long they take. How a run is made is in `trial`."""

import dataclasses
import json
import math
import pathlib
import statistics

from settings import Arm, Experiment

# Copies, start, end and checks, for as long as no run says how long they take here.
BESIDE_S = 45


@dataclasses.dataclass
class Run:
    experiment: Experiment
    arm: Arm
    number: int
    # Of its results.
    path: pathlib.Path

    def longest_s(self):
        load = self.experiment.load
        # The warm-up ends with an interval of the load.
        intervals = math.ceil(load.warmup_max / load.seconds) + (2 if load.rate else 1)
        longest = intervals * load.seconds + BESIDE_S
        return longest / len(self.experiment.arms) if self.experiment.at_once else longest


def order(experiments, results):
    """Round by round, so that an early end leaves as many rounds of each. Each round begins with another arm."""
    runs = []
    for number in range(1, max(one.rounds for one in experiments) + 1):
        for experiment in experiments:
            count = len(experiment.arms) if number <= experiment.rounds else 0
            for place in ((number - 1 + step) % count for step in range(count)):
                path = results / experiment.name / f"{number:03}-{place + 1:02}.json"
                runs.append(Run(experiment, experiment.arms[place], number, path))
    return runs


def turns(missing):
    """Missing runs that are made at the same time: those of a round, or one alone."""
    at_once = {}
    for run in missing:
        together = (run.experiment.name, run.number) if run.experiment.at_once else run.path
        at_once.setdefault(together, []).append(run)
    return list(at_once.values())


def left(runs):
    """How many runs are missing, and the time they take: as long as the others of the same experiment."""
    missing = [run for run in runs if not run.path.exists()]
    took = {}
    for run in runs:
        if run.path.exists():
            took.setdefault(run.experiment.name, []).append(json.loads(run.path.read_text())["took_s"]["all"])
    known = {name: statistics.fmean(times) for name, times in took.items()}
    seconds = sum(known.get(run.experiment.name) or run.longest_s() for run in missing)
    most = "" if {run.experiment.name for run in missing} <= set(known) else "at most "
    return f"{len(runs) - len(missing)} of {len(runs)} runs are made, {most}{spoken(seconds)} left"


def spoken(seconds):
    return f"{seconds / 3600:.1f} hours" if seconds >= 5400 else f"{seconds / 60:.0f} minutes"
