"""Tests of what needs no machine: intervals, the order and the time of runs, the report and its place in a page."""

import json
import os
import pathlib
import random
import signal
import tempfile
import time
import types
import unittest
from unittest import mock

import abreast
import load
import pairs
import plan
import processes
import report
import settings
from processes import Failure

HERE = pathlib.Path(__file__).parent
COUNTED = {"server": {"d": {"reads": 1000, "read_hits": 400, "store_reads": 600}}, "tracker": {}}


def result(experiment, arm, number, transactions):
    """What a run leaves behind, made up."""
    tpcc = {"transactions": transactions, "new_orders": transactions // 2, "seconds": 120, "failed": 0, "kinds": {}}
    return {
        "title": experiment.title, "against": experiment.against, "at_once": experiment.at_once, "arm": arm.name, "round": number, "program": "1",
        "database": {"pool_mib": 32, "version": "1"} | vars(experiment.database), "database_mib": 512, "checks": {},
        "disk": experiment.disk, "log_disk": experiment.log_disk, "load": vars(experiment.load), "tpcc": tpcc,
        "warm_up": {"steady": number != 2, "steps": []}, "counted": COUNTED, "before": COUNTED, "after": COUNTED,
        "took_s": {"all": 300.0}, "waits_for_flush": False,
    }  # fmt: skip


class Intervals(unittest.TestCase):
    def test_few_pairs_have_none(self):
        self.assertEqual(pairs.interval([1.0, 2.0, 3.0, 4.0, 5.0]), (3.0, None, None))

    def test_equal_pairs_leave_no_doubt(self):
        self.assertEqual(pairs.relative([2] * 6, [1] * 6), pairs.relative([4] * 6, [2] * 6))
        self.assertEqual(pairs.absolute([2] * 6, [1] * 6), (1, 1, 1))

    def test_a_ratio_and_its_inverse_agree(self):
        values, others = [105, 112, 98, 120, 107, 111, 103, 109], [100] * 8
        mean, low, high = pairs.relative(values, others)
        inverse = pairs.relative(others, values)
        for one, other in zip((mean, low, high), (inverse[0], inverse[2], inverse[1])):
            self.assertAlmostEqual((1 + one / 100) * (1 + other / 100), 1, delta=0.002)
        self.assertLess(low, mean)
        self.assertLess(mean, high)

    def test_the_side_of_an_outlier_is_longer(self):
        mean, low, high = pairs.interval([1.0, 1.1, 0.9, 1.0, 1.05, 0.95, 1.0, -2.0])
        self.assertGreater(mean - low, 1.5 * (high - mean))

    def test_nineteen_of_twenty_have_the_mean(self):
        source = random.Random(7)
        samples = [[source.gauss(0, 1) for _ in range(10)] for _ in range(400)]
        have = sum(low <= 0 <= high for _, low, high in map(pairs.interval, samples))
        self.assertTrue(0.92 <= have / 400 <= 0.975, have)


class Load(unittest.TestCase):
    def test_the_load_that_warms_up_is_the_one_that_is_measured(self):
        made = []

        class Running:
            def __init__(self, _scope, _options, _database, threads, interval, _wait):
                self.begun, self.threads, self.interval, self.calls, self.lines = time.monotonic(), threads, interval, [], ["failed, err"]
                made.append(self)

            def watch(self):
                pass

            def interval_end(self, number):
                self.calls.append(number)
                return {"new_order": {"count": 7}, "new_order_err": {"count": 1}}

            def stop(self):
                self.calls.append("stop")

            errors = load.Running.errors

        looks = iter(range(100))
        counts = lambda look: {"reads": 10 * look, "read_hits": 5 * look, "resident": 8, "capacity_blocks": 8}
        server = types.SimpleNamespace(stats=lambda: {"at_s": 0, "d": counts(next(looks))})
        bounds = types.SimpleNamespace(
            threads=3, rate=0, seconds=0.2, warmup=0.1, warmup_max=0.9, warmup_step=0.1, warmup_points=2
        )
        with mock.patch("load.Running", Running):
            warm, tpcc, *_ = load.measured(None, None, bounds, server, abreast.Alone(), lambda: next(looks))
        # Three looks are needed, and the second interval is the first that ends after them.
        self.assertEqual((len(warm["steps"]), warm["steady"], warm["seconds"]), (3, True, 0.4))
        self.assertEqual([one.calls for one in made], [[2, 3, "stop"]])
        self.assertEqual((tpcc["transactions"], tpcc["failed"], tpcc["errors"]), (7, 1, []))
        # Terminals that think begin anew, and are spread before they are measured.
        made.clear()
        bounds.rate = 60
        with mock.patch("load.Running", Running):
            load.measured(None, None, bounds, server, abreast.Alone(), lambda: next(looks))
        self.assertEqual([one.calls for one in made], [["stop"], [1, 2, "stop"]])


class Runs(unittest.TestCase):
    def setUp(self):
        self.experiments = [settings.read(path) for path in sorted(HERE.glob("tpcc-*.toml"))]
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.results = pathlib.Path(folder.name)
        self.runs = plan.order(self.experiments, self.results)

    def write(self, run, transactions):
        run.path.parent.mkdir(parents=True, exist_ok=True)
        run.path.write_text(json.dumps(result(run.experiment, run.arm, run.number, transactions)))

    def test_a_round_of_everything_comes_before_the_next(self):
        numbers = [run.number for run in self.runs]
        self.assertEqual(numbers, sorted(numbers))
        self.assertEqual(len(self.runs), sum(one.rounds * len(one.arms) for one in self.experiments))
        self.assertEqual(len({run.path for run in self.runs}), len(self.runs))

    def test_arms_at_once_are_one_turn(self):
        turns = plan.turns(self.runs)
        self.assertEqual([run for turn in turns for run in turn], self.runs)
        for turn in turns:
            experiment = turn[0].experiment
            self.assertEqual(len(turn), len(experiment.arms) if experiment.at_once else 1)
            self.assertEqual(len({run.number for run in turn}), 1)

    def test_no_arm_is_always_first(self):
        for experiment in self.experiments:
            first = {}
            for run in self.runs:
                if run.experiment is experiment:
                    first.setdefault(run.number, run.arm.name)
            counts = [list(first.values()).count(arm.name) for arm in experiment.arms]
            self.assertLessEqual(max(counts) - min(counts), 1)

    def round(self, trial):
        runs = next(turn for turn in plan.turns(self.runs) if len(turn) > 1)
        with mock.patch("trial.trial", trial):
            return runs, abreast.round_of(types.SimpleNamespace(work=self.results), runs, False)

    def test_arms_of_a_round_warm_up_until_the_last_is_steady(self):
        def trial(_options, _experiment, arm, _number, _check, home, others):
            steps, wanted = 0, 1 + int(home.name)
            others.begin()
            while True:
                steps += 1
                if others.all_say(steps >= wanted):
                    break
            others.begin()
            return {"arm": arm.name, "steps": steps, "took_s": {}}

        runs, results = self.round(trial)
        self.assertEqual([result["arm"] for result in results], [run.arm.name for run in runs])
        self.assertEqual({result["steps"] for result in results}, {len(runs)})

    def test_the_processes_of_a_round_end_when_they_are_asked(self):
        def trial(_options, _experiment, _arm, _number, _check, home, _others):
            if home.name == "0":
                os.kill(os.getppid(), signal.SIGTERM)
            time.sleep(60)

        began = time.monotonic()
        with mock.patch("processes.SIGNALS.raised", False), mock.patch("processes.SIGNALS.number", None):
            processes.SIGNALS.listen()
            with self.assertRaises(processes.Interrupted):
                self.round(trial)
        self.assertLess(time.monotonic() - began, 30)

    def test_a_round_fails_with_the_arm_that_failed(self):
        def trial(_options, _experiment, _arm, _number, _check, home, others):
            if home.name == "1":
                raise Failure("the disk is full")
            others.begin()

        with self.assertRaisesRegex(Failure, "the disk is full"):
            self.round(trial)

    def test_time_left_is_as_that_of_the_runs_before(self):
        self.assertRegex(plan.left(self.runs), r"^0 of \d+ runs are made, at most \d+\.\d hours left$")
        for run in self.runs[:-12]:
            self.write(run, 1000)
        self.assertRegex(plan.left(self.runs), r"runs are made, 60 minutes left$")

    def test_a_report_says_what_was_steady_and_compares_with_both(self):
        experiment, source = self.experiments[0], random.Random(1)
        mine = [run for run in self.runs if run.experiment is experiment]
        for run in mine:
            gain = 1.25 if run.arm.name == experiment.arms[-1].name else 1.0
            self.write(run, int(gain * source.uniform(3000, 3100)))
        folder = mine[0].path.parent
        said = report.table(folder)
        self.assertIn("| of them steady after the warm-up | 9 |", said)
        self.assertIn("access, LRU, round 2", said)
        for base in experiment.against:
            self.assertIn(f"| against {base} |", said)
        self.assertRegex(said, r"\| transactions a minute \|.*\*\*\+2\d\.\d % \(\+2\d\.\d to \+2\d\.\d\)\*\*")
        report.PAGE = self.results / "page.md"
        (self.results / "pictures").mkdir()
        (folder / "picture.svg").write_text("<svg/>")
        page = f"# Page\n\n<!-- {experiment.name} -->\n\nearlier\n\n<!-- end {experiment.name} -->\n\nafter\n"
        report.PAGE.write_text(page)
        self.assertTrue(report.publish(folder, experiment, said))
        self.assertIn("25", report.PAGE.read_text())
        self.assertNotIn("earlier", report.PAGE.read_text())
        mine[3].path.unlink()
        self.assertFalse(report.publish(folder, experiment, said))


if __name__ == "__main__":
    unittest.main()
