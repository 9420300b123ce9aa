#!/usr/bin/env python3
"""What readers feel of a burst of writes with write-back, and what the burst takes beside them.

  bursts.py UNDERCROFT [--rounds N] [--against OTHER] [--only STORE ...] [--depths N ...]

6,000 random writes of 4 KiB go to a volume with a cache of 16 MiB, all at once, then a FLUSH; beside them one connection
reads blocks that are in no cache. The stores are disks of 5 ms that do one request at a time or four, and a file of
1 GiB whose pages are not in memory. Given are the time until the FLUSH is answered, without a reader and beside one, and
99 % of the reads before and beside it. With --against another program is measured in turn. The times of the slow stores
hardly depend on the machine; those of the file do.
"""

import argparse
import collections
import os
import pathlib
import random
import socket
import struct
import tempfile
import threading
import time

from common import Server, exactly, spread

BLOCK, MIB = 4096, 1 << 20
SIZE = 1 << 30
WRITES = 6000
IDLE_S = 3.0
READ, WRITE, FLUSH = 0, 1, 3
STORES = {
    "one at a time": "delay(5ms,queue=1):mem:,size=1GiB",
    "four at a time": "delay(5ms,queue=4):mem:,size=1GiB",
    "file": "file:{file}",
}


class Connection:
    """The requests of one client, by hand: many at a time, each with its own time."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(path)
        exactly(self.socket, 18)
        self.socket.sendall(struct.pack(">IQII", 3, 0x49484156454F5054, 1, 1) + b"d")
        exactly(self.socket, 10)

    def ask(self, command, block, handle, data=b""):
        length = 0 if command == FLUSH else BLOCK
        header = struct.pack(">IHHQQI", 0x25609513, 0, command, handle, block * BLOCK, length)
        self.socket.sendall(header + data)

    def answer(self, is_read):
        _, error, handle = struct.unpack(">IIQ", exactly(self.socket, 16))
        assert error == 0, f"error {error}"
        if is_read:
            exactly(self.socket, BLOCK)
        return handle


class Reader(threading.Thread):
    """Reads blocks of a quarter of the volume, so many at a time, and notes what each took. It reads each at most once:
    nothing has it. When all are read, it ends.
    """

    def __init__(self, path, depth, quarter):
        super().__init__()
        self.connection, self.depth, self.ends, self.times = Connection(path), depth, False, []
        count = SIZE // BLOCK // 4
        self.blocks = iter(random.sample(range(quarter * count, (quarter + 1) * count), count))
        self.start()

    def run(self):
        begun = {}
        while begun or not self.ends:
            while not self.ends and len(begun) < self.depth:
                block = next(self.blocks, None)
                if block is None:
                    self.ends = True
                    break
                begun[block] = time.monotonic()
                self.connection.ask(READ, block, block)
            if begun:
                handle = self.connection.answer(True)
                self.times.append((time.monotonic() - begun.pop(handle)) * 1e3)

    def end(self):
        self.ends = True
        self.join()
        return self.times


def most(times):
    """99 % of them, in ms."""
    return sorted(times)[min(len(times) - 1, len(times) * 99 // 100)]


def burst(path):
    """Seconds for the writes and a FLUSH."""
    connection = Connection(path)
    data, began = os.urandom(BLOCK), time.monotonic()

    def take():
        for _ in range(WRITES):
            connection.answer(False)

    taker = threading.Thread(target=take)
    taker.start()
    blocks = random.Random(7)
    for number in range(WRITES):
        connection.ask(WRITE, blocks.randrange(SIZE // BLOCK // 2), number, data)
    taker.join()
    connection.ask(FLUSH, 0, 0)
    connection.answer(False)
    return time.monotonic() - began


def forget(file):
    """None of its pages is in memory any more."""
    number = os.open(file, os.O_RDWR)
    os.fsync(number)
    os.posix_fadvise(number, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(number)


def measure(program, store, depth, file):
    """Seconds of the burst, and 99 % of the reads before and beside it."""
    forget(file)
    volume = f"d={store.format(file=file)},cache=16MiB,write=back"
    with Server(program, "--cache", "16MiB", "--volume", volume) as server:
        before = [0]
        if depth:
            reader = Reader(server.socket, depth, 2)
            time.sleep(IDLE_S)
            before = reader.end()
            reader = Reader(server.socket, depth, 3)
        took = burst(server.socket)
        return took, most(before), most(reader.end()) if depth else 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("undercroft")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--against", metavar="OTHER")
    parser.add_argument("--only", nargs="*", choices=STORES)
    parser.add_argument("--depths", nargs="*", type=int, default=[1, 16])
    arguments = parser.parse_args()
    programs = {"this": arguments.undercroft}
    if arguments.against:
        programs = {"before": arguments.against, **programs}
    folder = pathlib.Path("target/bench")
    folder.mkdir(parents=True, exist_ok=True)
    print("| store | depth of the reader | program | burst and FLUSH, s | x without reader | "
          "reads before, 99 %, ms | beside, ms | times |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    with tempfile.NamedTemporaryFile(dir=folder, suffix=".img") as image:
        for _ in range(SIZE // MIB):
            image.write(os.urandom(MIB))
        image.flush()
        for name in arguments.only or STORES:
            found = collections.defaultdict(list)
            for number in range(arguments.rounds):
                for title in list(programs)[:: -1 if number % 2 else 1]:
                    for depth in [0, *arguments.depths]:
                        its = measure(programs[title], STORES[name], depth, image.name)
                        found[title, depth].append(its)
            for depth in [0, *arguments.depths]:
                for title in programs:
                    row(name, depth, title, found)


def row(name, depth, title, found):
    took, before, beside = zip(*found[title, depth])
    alone, _, _ = zip(*found[title, 0])
    cells = [name, str(depth), title, spread(took)]
    if depth:
        cells += [spread([one / other for one, other in zip(took, alone)]), spread(before), spread(beside),
                  spread([one / other for one, other in zip(beside, before)], 1)]
    else:
        cells += ["", "", "", ""]
    print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
