"""The golden copy: a database with its data, made once for each kind and size, and the copies that runs
begin with.

It is made on image files through loop devices, without the server. The images are what the server's stores
have below them, so a run needs no more than a copy.
"""

import hashlib
import json
import pathlib
import shutil

import databases
import disks
import load
from processes import Scope, run
from volume import loop, mounted

LOG_MIB = 2048
# Another number makes new ones: how they are made has changed.
MADE = 2


def data_mib(settings):
    return settings.warehouses * 256 + 1024


def folder(options, settings, version):
    """Where the golden copy of a database is: whatever determines its bytes is in the name."""
    key = {"made": MADE, "version": version, "warehouses": settings.warehouses, "layout": settings.layout}
    key |= {"checksums": settings.checksums, "settings": settings.settings, "sizes": [data_mib(settings), LOG_MIB]}
    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:8]
    return options.work / "golden" / f"{settings.kind}-{settings.warehouses}w-{digest}"


def make(options, settings, home):
    """Makes the golden copy if it is missing: its folder."""
    database = databases.make(settings, home, options.tools)
    place = folder(options, settings, database.version())
    if place.exists():
        return place
    print(f"preparing {place.name}: {settings.warehouses} warehouses", flush=True)
    part = pathlib.Path(f"{place}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    images = {"d": part / "d.img", "log": part / "log.img"}
    for name, size in (("d", data_mib(settings)), ("log", LOG_MIB)):
        run(["truncate", "-s", f"{size}M", images[name]])
    with Scope() as scope:
        devices = {name: loop(scope, image) for name, image in images.items()}
        attach(scope, database, devices, new=True)
        database.create()
        with database.running(512, more=database.loading):
            database.prepare()
            load.prepare(options.go_tpc, database, settings.warehouses)
            database.settle()
    part.rename(place)
    return place


def attach(scope, database, devices, new=False):
    """Mounts the volumes for a database, or gives it the device."""
    raw = database.settings.layout == "raw"
    for name, place in (("log", database.log), ("d", database.data)):
        if raw and name == "d":
            database.device = devices[name]
            continue
        if new:
            # Nothing is left to be initialised while a run is measured.
            run(["mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0", devices[name]])
        mounted(scope, devices[name], place)


def dealt(place, name, disk, size_mib):
    """Image files of a golden copy as a disk model takes them; an array's are made once."""
    count, unit = disks.parts(disk)
    if count == 1:
        return [place / f"{name}.img"]
    folder = place / f"{name}-{count}x{unit >> 10}k"
    if not folder.exists():
        part = pathlib.Path(f"{folder}.part")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir()
        each = disks.spindle_mib(disk, size_mib) << 20
        disks.split(place / f"{name}.img", disks.images(disk, part, name), unit, each)
        part.rename(folder)
    return disks.images(disk, folder, name)


def copy(place, name, disk, size_mib, home):
    """Copies a volume's images into the folder of a run."""
    files = disks.images(disk, home, name)
    for source, target in zip(dealt(place, name, disk, size_mib), files):
        run(["cp", "--reflink=auto", "--sparse=always", source, target])
    return files
