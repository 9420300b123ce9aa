#!/usr/bin/env python3
"""What a level on flash takes of a server's memory, how soon after a restart it is there, and how fast it answers.

  flash.py UNDERCROFT [--only memory|large|speed] [--size GiB] [--seconds S] [--rounds N] [--run S] [--folder FOLDER] [--quick]

Memory and restarts: a volume as large as the level, on a file that is one hole, is read through once with a cache of 64 MiB:
blocks go to flash as they are read (rule=access), as fast as it takes them. Given is the server's own memory beyond that of a
server without flash which has read the same, for each block of 4 KiB that the level has room for. Then blocks are read at random,
some much more often than others. The server is ended and started again, killed and started again; given are the seconds until it
has answered a read, and how many of the blocks read did not come from the store, in the last minute before and the first one after.

Large (root): a level of 1 TiB on a loop device over a file of which only journal and table are written, all slots full (the
example `fill` of undercroft-flash). Given are the seconds until a read is answered after a normal end and after kill -9, until
the level is used, and its hits then.

Speed: see flash_speed.py.
"""

import argparse
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

import flash_speed
from common import Server, child_report

GIB = 1 << 30
CACHE = 64 << 20
# Of the large level, what is read at random: more than the cache.
PART = 256 << 20
# Of the other one, some blocks much more often than others.
SKEWED = "--random_distribution=zipf:1.1"


def serve(program, folder, size, flash):
    """A server; `flash`: the file or device of its level, or nothing."""
    arguments = ["--cache", str(CACHE), "--volume", f"d=file:{folder}/disk,size={size}"]
    if flash:
        arguments += ["--flash", f"{flash},size={size},rule=access,budget=off,restart=warm"]
    return Server(program, *arguments)


def load(server, *job):
    command = ["fio", "--name=d", "--ioengine=nbd", f"--uri={server.uri()}", "--output=/dev/null", *job]
    if subprocess.run(command).returncode:
        sys.exit("fio failed")


def read_through(server, size):
    load(server, "--rw=read", "--bs=128k", "--iodepth=4", f"--size={size}")


def counters(program, server):
    return child_report(program, "stats", server.uri())[0]["volumes"]["d"]["flash"]


def memory(server):
    return flash_speed.own_memory(server.process.pid)


def hit_share(program, server, seconds, size, *how):
    """The share of the blocks read at random that did not come from the store, in percent."""
    count = lambda: child_report(program, "stats", server.uri())[0]["volumes"]["d"]
    before = count()
    load(server, "--rw=randread", "--bs=4k", "--iodepth=16", "--randrepeat=0", f"--size={size}", "--time_based", f"--runtime={seconds}", *how)
    after = count()
    return 100 - 100 * (after["store_reads"] - before["store_reads"]) / (after["reads"] - before["reads"])


def started(program, folder, size, flash):
    """A server that has answered a read, and the seconds that it took."""
    began = time.monotonic()
    server = serve(program, folder, size, flash)
    subprocess.run(["qemu-io", "-r", "-f", "raw", "-c", "read 0 4k", server.uri()], stdout=subprocess.DEVNULL, check=True)
    return server, time.monotonic() - began


def measure_memory(program, folder, size, seconds):
    """Prints what the level takes of memory, and what is there before and after restarts."""
    with open(f"{folder}/disk", "wb") as disk:
        disk.truncate(size)
    with serve(program, folder, size, None) as server:
        read_through(server, size)
        without = memory(server)
    flash = f"{folder}/flash"
    with serve(program, folder, size, flash) as server:
        read_through(server, size)
        more, blocks = memory(server) - without, counters(program, server)["capacity_blocks"]
        print(f"{blocks:,} blocks of 4 KiB: {more / blocks:.1f} bytes of memory for each, {more / 2**20:.0f} MiB")
        hit_share(program, server, 2 * seconds, size, SKEWED)
        share = hit_share(program, server, seconds, size, SKEWED)
        print(f"before: {share:.1f} % of the blocks read did not come from the store", flush=True)
    for how in ("a normal end", "kill -9"):
        server, began_s = started(program, folder, size, flash)
        with server:
            found = counters(program, server)["durable"]
            share = hit_share(program, server, seconds, size, SKEWED)
            print(f"after {how}: a read is answered after {began_s:.2f} s, {found:,} blocks are found, "
                  f"{share:.1f} % did not come from the store", flush=True)
            server.process.kill()
            server.process.wait()


def wait_for_level(program, server):
    """Waits until the level is used. Returns how many blocks were found."""
    while True:
        found = counters(program, server)
        if found["up"]:
            return found["durable"]
        time.sleep(0.05)


def measure_large(program, folder, size):
    """Prints how soon a full level is there after restarts, on a loop device."""
    for name in ("disk", "flash"):
        with open(f"{folder}/{name}", "wb") as file:
            file.truncate(size)
    loop = subprocess.run(["losetup", "--find", "--show", f"{folder}/flash"], check=True, capture_output=True, text=True)
    device = loop.stdout.strip()
    try:
        subprocess.run([program, "flash", "format", device, "--size", str(size)], check=True)
        with serve(program, folder, size, device):
            pass
        fill = pathlib.Path(program).parent / "examples/fill"
        subprocess.run([fill, device, str(size)], check=True)
        for how in ("a normal end", "kill -9"):
            # What a machine has after its start.
            pathlib.Path("/proc/sys/vm/drop_caches").write_text("3")
            server, began_s = started(program, folder, size, device)
            with server:
                began = time.monotonic() - began_s
                found = wait_for_level(program, server)
                level_s = time.monotonic() - began
                share = hit_share(program, server, 5, PART)
                print(f"after {how}: a read is answered after {began_s:.2f} s, {found:,} blocks are there after {level_s:.2f} s, "
                      f"{share:.1f} % hits then, {memory(server) / 2**30:.2f} GiB of memory", flush=True)
                if how == "a normal end":
                    server.process.kill()
                    server.process.wait()
    finally:
        subprocess.run(["losetup", "--detach", device], check=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("undercroft")
    parser.add_argument("--only", choices=["memory", "large", "speed"], help="one part")
    parser.add_argument("--size", type=int, help="of the level, in GiB (memory: 32, large: 1024)")
    parser.add_argument("--seconds", type=int, default=60, help="memory: of reads at random")
    parser.add_argument("--rounds", type=int, default=5, help="speed")
    parser.add_argument("--run", type=float, default=3.0, help="speed: seconds of each run")
    parser.add_argument("--folder", default="target/bench", help="where the files are for the time")
    parser.add_argument("--quick", action="store_true", help="a level of 1 GiB, and one round of short runs: a trial")
    options = parser.parse_args()
    if options.quick:
        options.size, options.seconds, options.rounds, options.run = 1, 2, 1, 0.5
    program = os.path.abspath(options.undercroft)
    # A temporary folder of the system may lie in memory.
    os.makedirs(options.folder, exist_ok=True)
    # So that the servers are stopped also when we are.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    if options.only in (None, "memory"):
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            measure_memory(program, folder, (options.size or 32) * GIB, options.seconds)
    if options.only == "large":
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            measure_large(program, folder, (options.size or 1024) * GIB)
    if options.only in (None, "speed"):
        sizes = flash_speed.QUICK if options.quick else flash_speed.Sizes()
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            flash_speed.measure(program, folder, options.rounds, options.run, sizes)


main()
