"""The small file that describes an experiment: which keys it has, their defaults, and what is refused. What
the values do is in the modules that use them; `example.toml` explains the keys to those who write one.
"""

import dataclasses
import pathlib
import re
import tomllib

from disks import DISKS
from processes import Failure


@dataclasses.dataclass
class Database:
    kind: str
    warehouses: int = 2
    # The database's own cache.
    pool: str = "32MiB"
    # Of MariaDB: files on a file system, or InnoDB's tablespace on the raw volume.
    layout: str = "files"
    # Of PostgreSQL.
    checksums: bool = False
    # Further settings of the database, as it names them.
    settings: dict = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class Volume:
    """How the server keeps the volume of the data: part of an arm."""

    cache: str = "32MiB"
    policy: str = "auto"
    placement: str = "access"
    write: str = "through"
    # Further keys of `undercroft serve --volume`, verbatim.
    options: str = ""
    # Further options of `undercroft serve`.
    server: list = dataclasses.field(default_factory=list)
    # Write the requests down, and simulate them afterwards.
    record: bool = False
    # Sizes of a level on flash, and of a write log; each is a file of the run, read and written past the kernel's page cache.
    flash: str = ""
    log: str = ""
    # A second server between the database and this one: keys of its volume. The database's library tells that one.
    above: str = ""


@dataclasses.dataclass
class Load:
    # Of the closed loop, and of the warm-up.
    threads: int = 4
    # Transactions a minute of all kinds; 0: as many as there can be, a closed loop.
    rate: int = 0
    # Measured.
    seconds: int = 60
    # The warm-up takes so long at least and at most, and on to the end of an interval; it is looked at so often.
    warmup: int = 20
    warmup_max: int = 180
    warmup_step: int = 5
    # It ends when the hit ratios of three steps are so close, in points.
    warmup_points: float = 2.0


@dataclasses.dataclass
class Arm:
    name: str
    volume: Volume
    attach: bool = False
    # Reads past the kernel's page cache; default: where the database reads through it, if the library is loaded.
    bypass: bool | None = None
    # Further options of `undercroft attach`.
    attach_options: list = dataclasses.field(default_factory=list)
    # Other than the file's, if given.
    pool: str = ""


@dataclasses.dataclass
class Experiment:
    name: str
    title: str
    database: Database
    load: Load
    # Of the data, and of the log.
    disk: dict
    log_disk: dict
    arms: list
    rounds: int = 3
    # The arms of a round at the same time, or one after the other.
    at_once: bool = False
    # When the database is checked: after each run, after those of the last round, or never.
    check: str = "each"
    # Arms that the others are compared with; default: the first one.
    against: list = dataclasses.field(default_factory=list)


CHOICES = {"layout": ["files", "raw"], "check": ["each", "last", "never"]}


def make(kind, where, given, others=(), **more):
    """An instance of a class, from a table of the file. Its own keys and the others are those that there are."""
    known = {field.name: field for field in dataclasses.fields(kind)}
    for key, value in given.items():
        if key not in known or key in more:
            there = sorted(set(known) - set(more) | set(others))
            raise Failure(f"{where}: {key} is not known; there are {', '.join(there)}")
        is_right = isinstance(value, known[key].type) if isinstance(known[key].type, type) else True
        if known[key].type is float:
            is_right = isinstance(value, (int, float))
        if not is_right or (isinstance(value, bool) and known[key].type is int):
            raise Failure(f"{where}: {key} = {value!r} is not of type {known[key].type.__name__}")
        if key in CHOICES and value not in CHOICES[key]:
            raise Failure(f"{where}: {key} is one of {', '.join(CHOICES[key])}")
    try:
        return kind(**given, **more)
    except TypeError:
        missing = [name for name, field in known.items() if field.default is field.default_factory is dataclasses.MISSING]
        raise Failure(f"{where}: {', '.join(missing)} must be given") from None


def disk(where, given):
    """A disk model: `"file"`, or a table with its kind and parameters."""
    given = {"kind": given} if isinstance(given, str) else dict(given)
    if given.get("kind") not in DISKS:
        raise Failure(f"{where}: kind is one of {', '.join(DISKS)}")
    defaults = DISKS[given["kind"]]
    for key in given:
        if key != "kind" and key not in defaults:
            raise Failure(f"{where}: {key} is not known; {given['kind']} has {', '.join(defaults) or 'no parameters'}")
    return defaults | given


def mebibytes(size):
    """`32MiB` or `1GiB` as a number."""
    match = re.fullmatch(r"(\d+)(MiB|GiB)", size)
    if not match:
        raise Failure(f"{size!r} is not a size, as 32MiB or 1GiB")
    return int(match[1]) * (1024 if match[2] == "GiB" else 1)


def read(path):
    """Reads the file of an experiment."""
    path = pathlib.Path(path)
    try:
        given = tomllib.loads(path.read_text())
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise Failure(f"{path}: {error}") from None
    common = given.pop("volume", {})
    arms = []
    for number, table in enumerate(given.pop("arm", []), 1):
        volume = {field.name for field in dataclasses.fields(Volume)}
        own = {key: value for key, value in table.items() if key not in volume}
        table = common | {key: value for key, value in table.items() if key in volume}
        where = f"{path}: arm {number}"
        arms.append(make(Arm, where, own, volume, volume=make(Volume, where, table)))
        for size in (arms[-1].pool, arms[-1].volume.flash, arms[-1].volume.log):
            mebibytes(size or "1MiB")
    names = [arm.name for arm in arms]
    if not arms or len(set(names)) < len(names):
        raise Failure(f"{path}: at least one [[arm]], each with a name of its own")
    if unknown := set(given.setdefault("against", names[:1])) - set(names):
        raise Failure(f"{path}: against: no arm is named {', '.join(sorted(map(str, unknown)))}")
    parts = {
        "database": make(Database, f"{path}: database", given.pop("database", {})),
        "load": make(Load, f"{path}: load", given.pop("load", {})),
        "disk": disk(f"{path}: disk", given.pop("disk", "file")),
        "log_disk": disk(f"{path}: log_disk", given.pop("log_disk", "file")),
    }
    mebibytes(parts["database"].pool)
    title = given.pop("title", path.stem)
    others = ["title", "volume", "arm", *parts]
    return make(Experiment, path, given, others, name=path.stem, title=title, arms=arms, **parts)


def smallest(experiment):
    """The same with one warehouse, one round and seconds of load: it says whether an experiment works, and nothing else."""
    load = dataclasses.replace(experiment.load, rate=min(experiment.load.rate, 60), seconds=6, warmup=1, warmup_max=2, warmup_step=1)
    database = dataclasses.replace(experiment.database, warehouses=1)
    name = f"{experiment.name}-smallest"
    return dataclasses.replace(experiment, name=name, rounds=1, check="last", load=load, database=database)
