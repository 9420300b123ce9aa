"""TPC-C of a real database on a volume of the server, as one small file says: arms in turn, a file of
results for each run, and a table. As root, since volumes are mounted.

    python3 tools/experiment tools/experiment/example.toml
    python3 tools/experiment --table target/experiment/results/example
    python3 tools/experiment --clean

This module has the options and the order of the runs. One run is in `trial`, what is mounted in `volume`,
what is ended in `processes`, what the file may say in `settings`.
"""

import argparse
import json
import os
import pathlib
import shutil
import sys
import time
import traceback

import install
import pictures
import processes
import report
import settings
import trial
from processes import Failure, Interrupted

PROGRAMS = ["nbdfuse", "losetup", "mkfs.ext4", "fsck.ext4", "mount", "umount", "cp", "truncate"]


def arguments():
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", "target"))
    program = os.environ.get("UNDERCROFT", target / "release/undercroft")
    parser = argparse.ArgumentParser(
        prog="experiment", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", nargs="?", help="the experiment, as example.toml")
    parser.add_argument("--undercroft", type=pathlib.Path, default=program, help="the program (or UNDERCROFT)")
    parser.add_argument("--tools", type=pathlib.Path, default=target / "tools", help="where go-tpc and PostgreSQL 18 are")
    parser.add_argument("--work", type=pathlib.Path, default=target / "experiment", help="golden copies, runs and results")
    parser.add_argument("--smallest", action="store_true", help="whether it works: one warehouse, one round, seconds of load")
    parser.add_argument("--continue", dest="goes_on", action="store_true", help="keep results, make those that are missing")
    parser.add_argument("--table", metavar="RESULTS", type=pathlib.Path, help="print the table of a folder, and draw its picture; run nothing")
    parser.add_argument("--clean", action="store_true", help="end and unmount what a killed run has left")
    options = parser.parse_args()
    if not (options.file or options.table or options.clean):
        parser.error("a file, --table or --clean")
    for name in ("undercroft", "tools", "work"):
        setattr(options, name, pathlib.Path(getattr(options, name)).resolve())
    options.go_tpc = options.tools / "go-tpc"
    return options


def check_programs(options):
    if os.geteuid() != 0:
        raise Failure("it mounts volumes, and must be run by root")
    for program in PROGRAMS:
        if not shutil.which(program, path=os.environ["PATH"] + ":/usr/sbin:/sbin"):
            raise Failure(f"{program} is not installed; `tools/setup.sh test` installs it")
    for program in (options.undercroft, options.go_tpc):
        if not os.access(program, os.X_OK):
            raise Failure(f"{program} is not there; `make experiment` builds it")


def perform(options):
    experiment = settings.read(options.file)
    if options.smallest:
        experiment = settings.smallest(experiment)
    check_programs(options)
    if experiment.database.kind == "postgresql-18":
        install.postgresql_18(options.tools)
    results = options.work / "results" / experiment.name
    if results.exists() and not options.goes_on:
        # An hour's work is not lost by a second start.
        before = results.with_name(f"{experiment.name}.before")
        shutil.rmtree(before, ignore_errors=True)
        results.rename(before)
    results.mkdir(parents=True, exist_ok=True)
    shutil.copy(options.file, results / "experiment.toml")
    for number in range(1, experiment.rounds + 1):
        for place, arm in enumerate(experiment.arms, 1):
            path = results / f"{number:03}-{place:02}.json"
            if path.exists():
                continue
            began = time.monotonic()
            last = number == experiment.rounds
            check = experiment.check == "each" or experiment.check == "last" and last
            result = trial.trial(options, experiment, arm, number, check)
            part = path.with_suffix(".part")
            part.write_text(json.dumps(result, indent=1, default=str))
            part.rename(path)
            print(line(result, experiment.rounds, time.monotonic() - began), flush=True)
    said = report.table(results)
    (results / "table.md").write_text(said + "\n")
    print(f"\n{said}\n\n{results}/table.md")
    print(pictures.draw(results, results / "picture.svg") or f"{results}/picture.svg")
    checks = [one["checks"] for rounds in report.read(results).values() for one in rounds.values()]
    return any(said for check in checks for said in check.values())


def line(result, rounds, seconds):
    figures = [f"{name} {figure(result):,.{digits}f}" for name, figure, _, digits in report.FIGURES[:5]]
    warm = result["warm_up"]
    steady = f"warm after {warm['seconds']:.0f} s" if warm["steady"] else "not steady"
    return f"round {result['round']} of {rounds}, {result['arm']}: {', '.join(figures)} ({steady}, {seconds:.0f} s in all)"


def main():
    options = arguments()
    if options.table:
        print(report.table(options.table))
        print(pictures.draw(options.table, options.table / "picture.svg") or f"\n{options.table}/picture.svg")
        return 0
    processes.SIGNALS.listen()
    try:
        lock = processes.alone(options.work)
        if left := processes.clean(options.work):
            print(f"ended what a run had left: {', '.join(left)}", flush=True)
        if options.clean:
            return 0
        try:
            return 1 if perform(options) else 0
        except BaseException:
            keep_logs(options.work)
            raise
        finally:
            processes.clean(options.work)
            lock.close()
    except Failure as failure:
        print(f"experiment: {failure}", file=sys.stderr)
        return 1
    except Interrupted as interrupted:
        print(f"experiment: {interrupted}: all is ended and unmounted", file=sys.stderr)
        return 130


def keep_logs(work):
    """The logs of a run that failed, for whoever looks for the reason."""
    with processes.SIGNALS.deferred():
        try:
            logs = work / "failed"
            shutil.rmtree(logs, ignore_errors=True)
            logs.mkdir()
            for path in (work / "run").glob("*.log"):
                shutil.copy(path, logs)
        except OSError:
            traceback.print_exc()


if __name__ == "__main__":
    sys.exit(main())
