"""Models of disks: how each is written as a store of the server, and which image files it takes. They are
made of the server's own stores; nothing here runs.

An array of hard disks is a stripe over files that each have a queue of their own and serve one request at a
time. A service time is drawn uniformly: it depends neither on the place nor on the length of a request,
requests are served in the order in which they arrive, and a write or a flush takes as long as a read.
Timers have a resolution of 1 ms, so an answer of the network volume comes up to 1 ms late.
"""

import os

# Kinds, and their parameters.
DISKS = {
    # The file as it is, through the page cache of the server's machine.
    "file": {},
    # The file as it is, past that page cache.
    "file-direct": {},
    # A file in memory. What a page cache has is written to its disk sooner or later, which takes time of the processors.
    "memory": {},
    "array": {"spindles": 4, "time": "5ms..9ms", "unit_kib": 64},
    "network": {"time": "500us..1ms", "queue": 64},
}

# The folder of a run whose files are in memory.
MEMORY = "memory"


def parts(disk):
    """How many image files a disk has, and the bytes that each takes in turn."""
    return (disk["spindles"], disk["unit_kib"] << 10) if disk["kind"] == "array" else (1, 0)


def spindle_mib(disk, size_mib):
    """Size of each file of an array: rounded up, so that all of a volume of `size_mib` fits."""
    return -(-size_mib // disk["spindles"])


def images(disk, folder, name):
    count, _ = parts(disk)
    folder = folder / MEMORY if disk["kind"] == "memory" else folder
    return [folder / f"{name}.{number}.img" for number in range(count)]


def store(disk, files, size_mib, slow=True):
    """The server's name of a store over image files; with `slow`, one that takes its time."""
    kind = disk["kind"]
    if kind == "array":
        each = spindle_mib(disk, size_mib)
        delay = f"delay({disk['time']},queue=1):" if slow else ""
        spindles = (f"{delay}file(size={each}MiB):{file}" for file in files)
        return f"stripe({disk['unit_kib']}KiB;{';'.join(spindles)})" if len(files) > 1 else next(spindles)
    options = "direct,size" if kind == "file-direct" and slow else "size"
    delay = f"delay({disk['time']},queue={disk['queue']}):" if kind == "network" and slow else ""
    return f"{delay}file({options}={size_mib}MiB):{files[0]}"


def data_ranges(descriptor):
    """Ranges of a file that are not holes."""
    at, size = 0, os.fstat(descriptor).st_size
    while at < size:
        try:
            start = os.lseek(descriptor, at, os.SEEK_DATA)
        except OSError:
            return
        at = os.lseek(descriptor, start, os.SEEK_HOLE)
        yield start, at


def split(image, files, unit, each):
    """Deals the units of an image out to the files of an array, which get `each` bytes."""
    targets = [open(file, "wb") for file in files]
    with open(image, "rb") as source:
        for start, stop in data_ranges(source.fileno()):
            for number in range(start // unit, -(-stop // unit)):
                source.seek(number * unit)
                piece = source.read(unit)
                if piece.strip(b"\0"):
                    target = targets[number % len(files)]
                    target.seek(number // len(files) * unit)
                    target.write(piece)
    for target in targets:
        target.truncate(each)
        target.close()
