"""TPC-C of a real database on a volume of the server, as small files say: arms in turn, a file of results for each
run, and a table for each experiment. As root, since volumes are mounted. It may end at any time: the next start makes
the runs that are missing.

    python3 tools/experiment tools/experiment/example.toml
    python3 tools/experiment --table target/experiment/results/example
    python3 tools/experiment --clean

This module has the options, and goes through the runs. Their order is in `plan`, one run in `trial`, what is mounted
in `volume`, what is ended in `processes`, what a file may say in `settings`.
"""

import argparse
import hashlib
import json
import os
import pathlib
import shutil
import sys
import time
import traceback

import abreast
import install
import pictures
import plan
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
    parser.add_argument("files", nargs="*", type=pathlib.Path, help="as example.toml: a round of each in turn")
    parser.add_argument("--undercroft", type=pathlib.Path, default=program, help="the program (or UNDERCROFT)")
    parser.add_argument("--tools", type=pathlib.Path, default=target / "tools", help="where go-tpc and PostgreSQL 18 are")
    parser.add_argument("--work", type=pathlib.Path, default=target / "experiment", help="golden copies, runs and results")
    parser.add_argument("--recordings", metavar="FOLDER", type=pathlib.Path, help="keep what `record = true` records there")
    parser.add_argument("--smallest", action="store_true", help="whether it works: one warehouse, one round, seconds of load")
    parser.add_argument("--anew", action="store_true", help="keep earlier results as NAME.before, and begin again")
    parser.add_argument("--table", metavar="RESULTS", type=pathlib.Path, help="print the table of a folder, and draw its picture; run nothing")
    parser.add_argument("--clean", action="store_true", help="end and unmount what a killed run has left")
    options = parser.parse_args()
    if not (options.files or options.table or options.clean):
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
    read = [(path, settings.read(path)) for path in options.files]
    if options.smallest:
        read = [(path, settings.smallest(experiment)) for path, experiment in read]
    check_programs(options)
    experiments = [experiment for _, experiment in read]
    if any(experiment.database.kind == "postgresql-18" for experiment in experiments):
        install.postgresql_18(options.tools)
    results = options.work / "results"
    for path, experiment in read:
        begin(results / experiment.name, path, experiment, options.anew)
    runs = plan.order(experiments, results)
    print(f"{plan.left(runs)} (load of the machine: {os.getloadavg()[0]:.1f})", flush=True)
    missing = [run for run in runs if not run.path.exists()]
    for experiment in {run.experiment.name: run.experiment for run in missing}.values():
        trial.prepare(options, experiment)
    failed = make(options, runs, missing)
    return any([present(results / experiment.name, experiment) for experiment in experiments]) or failed


def begin(folder, path, experiment, anew):
    """A folder of results, with those that are there if they were made with the same settings."""
    kept = folder / "experiment.toml"
    if anew and folder.exists():
        # An hour's work is not lost by a second start.
        before = folder.with_name(f"{folder.name}.before")
        shutil.rmtree(before, ignore_errors=True)
        folder.rename(before)
    elif kept.exists() and measured(settings.read(kept)) != measured(settings.read(path)):
        raise Failure(f"{folder}: its results have other settings; --anew keeps them as {folder.name}.before")
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(path, kept)


def measured(experiment):
    """What must be the same in all runs."""
    return experiment.database, experiment.load, experiment.disk, experiment.log_disk, experiment.arms


def make(options, runs, missing):
    """Makes the missing runs; one that fails is left out, and two in a row end the program. Whether one has failed."""
    program = hashlib.sha256(options.undercroft.read_bytes()).hexdigest()[:12]
    failed = in_a_row = 0
    turns = plan.turns(missing)
    for turn in turns:
        try:
            results = made(options, turn)
        except Failure as failure:
            failed, in_a_row = failed + 1, in_a_row + 1
            if in_a_row == 2 or len(turns) == 1:
                raise
            keep_logs(options.work)
            about = f"{turn[0].experiment.name}, round {turn[0].number}, {', '.join(run.arm.name for run in turn)}"
            print(f"experiment: {about}: {failure}", file=sys.stderr, flush=True)
            processes.clean(options.work)
            continue
        in_a_row = 0
        for run, result in zip(turn, results):
            result["program"] = program
            part = run.path.with_suffix(".part")
            part.write_text(json.dumps(result, indent=1, default=str))
            part.rename(run.path)
            print(line(result, run.experiment), flush=True)
        print(plan.left(runs), flush=True)
    return failed > 0


def made(options, turn):
    """Makes the runs that are made at the same time: their results."""
    experiment, number = turn[0].experiment, turn[0].number
    check = experiment.check == "each" or experiment.check == "last" and number == experiment.rounds
    if experiment.at_once:
        return abreast.round_of(options, turn, check)
    began = time.monotonic()
    home = options.work / "run"
    result = trial.trial(options, experiment, turn[0].arm, number, check, home, abreast.Alone())
    result["took_s"]["all"] = time.monotonic() - began
    return [result]


def present(folder, experiment):
    """Writes and prints the table, and draws the picture. Whether a check has found something."""
    said = report.table(folder)
    (folder / "table.md").write_text(said + "\n")
    print(f"\n{said}\n\n{folder}/table.md")
    why = pictures.draw(folder, folder / "picture.svg")
    print(why or f"{folder}/picture.svg")
    if not why and report.publish(folder, experiment, said):
        print(f"{report.PAGE} has them")
    checks = [one["checks"] for rounds in report.read(folder).values() for one in rounds.values()]
    return any(said for check in checks for said in check.values())


def line(result, experiment):
    figures = [f"{name} {figure(result):,.{digits}f}" for name, figure, _, digits in report.FIGURES[:5]]
    warm = result["warm_up"]
    steady = f"warm after {warm['seconds']:.0f} s" if warm["steady"] else "not steady"
    about = f"{experiment.name}, round {result['round']} of {experiment.rounds}, {result['arm']}"
    return f"{about}: {', '.join(figures)} ({steady})"


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
            run = work / "run"
            for path in run.glob("**/*.log"):
                shutil.copy(path, logs / str(path.relative_to(run)).replace("/", "-"))
        except OSError:
            traceback.print_exc()


if __name__ == "__main__":
    sys.exit(main())
