"""One run of an arm, from a copy of the golden database to a dictionary of everything that was counted. The
order of runs and the files of results are in the main module, the meaning of figures in the report.
"""

import contextlib
import json
import os
import pathlib
import platform
import shutil
import time

import databases
import disks
import golden
import load
from processes import Failure, Scope, in_own_group, run, unmount
from settings import mebibytes
from volume import Server, device

# Of the check: all that was written must be in the store, whatever the run's server was like.
CHECK_CACHE, CHECK_POOL_MIB = "64MiB", 256
# The folder of recordings, in that of the run.
RECORD = "recorded"
# What a device with a level on flash has beside the volumes' parts.
FLASH_HEAD_MIB = 1


def volumes(experiment, arm, files):
    """What the server of a run is told: the volume of the data, and of the log."""
    size = golden.data_mib(experiment.database)
    keys = arm.volume
    home = files["d"][0].parent
    write_log = f"log({home / 'write-log'},size={keys.log}):" if keys.log else ""
    data = f"d={write_log}{disks.store(experiment.disk, files['d'], size)},policy={keys.policy},cache={keys.cache}"
    data += f",placement={keys.placement},write={keys.write}" + (f",{keys.options}" if keys.options else "")
    if keys.record:
        data += f",record={home / RECORD},record-files=1000"
    # Nobody reads it back: no cache, and what is written is in its store when that is said.
    log = f"log={disks.store(experiment.log_disk, files['log'], golden.LOG_MIB)},cache=off,write=through"
    return [data, log]


def attached(options, arm, database, server, raw):
    """The command that loads the library into the database."""
    if not arm.attach:
        return []
    where = database.device if raw else database.data
    command = [options.undercroft, "attach", "--volume", f"{where}={server.uri('d')}", *arm.attach_options]
    if database.buffered and arm.bypass is not False:
        command += ["--bypass-page-cache"]
    return [*command, "--"]


def serve(scope, home, program, specifications, keys):
    """The server whose cache is looked at, and the one that the database is connected to."""
    flash = []
    if keys.flash:
        # As much a day as there can be: a run takes minutes.
        size = mebibytes(keys.flash) + FLASH_HEAD_MIB
        flash = ["--flash", f"{home / 'flash'},size={size}MiB,budget=off"]
    server = Server(scope, home, program, specifications, [*keys.server, *flash])
    if not keys.above:
        return server, server
    middle = home / "above"
    middle.mkdir()
    stores = [f"d={server.uri('d')},{keys.above}", f"log={server.uri('log')},cache=off,write=through"]
    return server, Server(scope, middle, program, stores)


def simulated(options, arm, home, served):
    """What the simulator counts for the requests that were recorded, from the start of the server to its end."""
    traces = sorted((home / RECORD / "d").glob("*.uct.zst"))
    if len(traces) != 1:
        raise Failure(f"{home / RECORD}: {len(traces)} recordings")
    if options.recordings:
        options.recordings.mkdir(parents=True, exist_ok=True)
        shutil.copy(traces[0], options.recordings / f"{home.name}-{arm.name}.uct.zst")
    keys = arm.volume
    command = [options.undercroft, "simulate", traces[0], "--l1", f"{keys.cache}:{keys.policy}", "--json"]
    if keys.placement != "access":
        command += ["--placement", keys.placement, "--evictions", "told"]
    level = json.loads(run(command))["levels"][0]
    counted = {"reads": level["reads"], "read_hits": level["read_hits"]}
    return {"simulator": counted, "server": {name: served[name] for name in counted}}


def forget():
    """What was read or copied before is in nobody's cache."""
    os.sync()
    pathlib.Path("/proc/sys/vm/drop_caches").write_text("3")


def difference(before, after):
    """Of all numbers in two dictionaries of the same shape."""
    changed = {}
    for key, value in after.items():
        old = before.get(key)
        if isinstance(value, dict):
            changed[key] = difference(old or {}, value)
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            changed[key] = value - (old if isinstance(old, (int, float)) else 0)
    return changed


def processors():
    """What the processors of the machine did since it started, in ticks; `steal` is what other machines had."""
    names = "user nice system idle iowait irq softirq steal".split()
    return dict(zip(names, map(int, pathlib.Path("/proc/stat").read_text().split()[1:])))


def measured(options, experiment, arm, database, server, process, others):
    """Warms up, runs the load, and reads all counters around it."""
    size = database.mib()

    def read_counters():
        counters = {"server": server.stats(), "database": database.counters(), "tracker": tracker()}
        return counters | {"processors": processors()}

    def tracker():
        if not arm.attach:
            return {}
        with contextlib.suppress(Failure):
            return json.loads(run([options.undercroft, "attach", "--check", process.pid, "--json"]))
        return {}

    warm, tpcc, before, after = load.measured(options, database, experiment.load, server, others, read_counters)
    others.ended()
    counted = {name: difference(before[name], after[name]) for name in before}
    return {"database_mib": size, "warm_up": warm, "tpcc": tpcc, "counted": counted, "before": before, "after": after}


def checked(options, experiment, place, database, files):
    """Starts the database again on the stores as the server left them, without a disk model, and checks it."""
    size = golden.data_mib(experiment.database)
    plain = [
        f"d={disks.store(experiment.disk, files['d'], size, slow=False)},cache={CHECK_CACHE}",
        f"log={disks.store(experiment.log_disk, files['log'], golden.LOG_MIB, slow=False)},cache=off",
    ]
    found = {}
    with Scope() as scope:
        server = Server(scope, place, options.undercroft, plain)
        devices = {name: device(scope, server, name) for name in ("d", "log")}
        with Scope() as files_in_use:
            golden.attach(files_in_use, database, devices)
            database.configure()
            with database.running(CHECK_POOL_MIB):
                found |= database.check()
                found |= database.violations()
            found |= database.check_files()
        for name, where in devices.items():
            if name == "log" or experiment.database.layout != "raw":
                found[f"fsck of {name}"] = said_by(["fsck.ext4", "-f", "-n", where])
    return found


def said_by(command):
    """What a check complains about: nothing, or what it says."""
    try:
        run(command)
    except Failure as failure:
        return str(failure)
    return ""


def prepare(options, experiment):
    """Makes the golden copy that all runs of an experiment begin with, as its disks have it: its folder."""
    home = new_home(options.work / "run")
    place = golden.make(options, experiment.database, home)
    for name, model in (("d", experiment.disk), ("log", experiment.log_disk)):
        golden.dealt(place, name, model, sizes(experiment)[name])
    return place


def sizes(experiment):
    """Of the volumes, in MiB."""
    return {"d": golden.data_mib(experiment.database), "log": golden.LOG_MIB}


def new_home(home):
    """An empty folder for a run."""
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(mode=0o755, parents=True)
    return home


def trial(options, experiment, arm, number, check, home, others):
    """Runs an arm once, in a folder, beside other runs or none. Everything that it starts has ended when it returns or
    fails."""
    new_home(home)
    with in_memory(home, experiment):
        return tried(options, experiment, arm, number, check, home, others)


@contextlib.contextmanager
def in_memory(home, experiment):
    """The folder for disks in memory, if there are any."""
    if "memory" not in (experiment.disk["kind"], experiment.log_disk["kind"]):
        yield
        return
    folder = home / disks.MEMORY
    folder.mkdir()
    run(["mount", "-t", "tmpfs", "tmpfs", folder])
    try:
        yield
    finally:
        unmount(folder)


def tried(options, experiment, arm, number, check, home, others):
    """As `trial`, in a folder that is prepared."""
    database = databases.make(experiment.database, home, options.tools)
    place = golden.folder(options, experiment.database, database.version())
    models = {"d": experiment.disk, "log": experiment.log_disk}
    files = {name: golden.copy(place, name, models[name], size, home) for name, size in sizes(experiment).items()}
    if experiment.load.rate:
        database.connections = load.terminals(experiment.load.rate) + 50
    raw = experiment.database.layout == "raw"
    began = time.time()
    with Scope() as scope:
        specifications = volumes(experiment, arm, files)
        server, upper = serve(scope, home, options.undercroft, specifications, arm.volume)
        devices = {name: device(scope, upper, name) for name in files}
        golden.attach(scope, database, devices)
        database.configure()
        forget()
        pool = mebibytes(arm.pool or experiment.database.pool)
        before, group = attached(options, arm, database, upper, raw), in_own_group()
        with database.running(pool, before, group=group) as process:
            result = measured(options, experiment, arm, database, server, process, others)
        forget()
        served = server.stats()["d"]
    ran = time.time()
    if arm.volume.record:
        result["recorded"] = simulated(options, arm, home, served)
    wrong = checked(options, experiment, home, database, files) if check else {}
    return {
        "experiment": experiment.name,
        "title": experiment.title,
        "against": experiment.against,
        "at_once": experiment.at_once,
        "arm": arm.name,
        "round": number,
        "began": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(began)),
        "took_s": {"run": ran - began, "check": time.time() - ran},
        "machine": {"kernel": platform.release(), "processors": os.cpu_count(), "load": os.getloadavg()},
        "database": {"version": database.version(), "pool_mib": pool} | vars(experiment.database),
        "disk": experiment.disk,
        "log_disk": experiment.log_disk,
        "volumes": specifications,
        "waits_for_flush": not group,
        "settings": vars(arm) | {"volume": vars(arm.volume)},
        "load": vars(experiment.load),
        **result,
        # Empty texts: nothing was found.
        "checks": wrong,
    }
