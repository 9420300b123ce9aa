#!/usr/bin/env python3
"""What a write log before a store is worth to a client that flushes.

  write_log.py UNDERCROFT [--rounds N] [--seconds S] [--folder FOLDER]

fio writes blocks of 4 KiB at random to a volume of 256 MiB with a cache of 64 MiB, with a FLUSH after each 16, one write
at a time and 16; the store is a file whose requests take 1 ms each. Given are writes a second, with and without a log in
FOLDER, and how many times as many as write=through without one. Each setting begins with empty files. The load lasts
longer than the log could hold everything, so that the store must take most of what is written in that time.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

from common import Server, spread

LOG_MIB = 64
SETTINGS = {"through": ("through", ""), "back": ("back", ""), "through, log": ("through", "log"), "back, log": ("back", "log")}
DEPTHS = [1, 16]


def writes_a_second(program, folder, setting, depth, seconds):
    write, log = SETTINGS[setting]
    with tempfile.TemporaryDirectory(dir=folder) as place:
        store = f"delay(1ms):file:{place}/disk"
        if log:
            store = f"log({place}/log,size={LOG_MIB}MiB):{store}"
        volume = f"d={store},size=256MiB,write={write}"
        with Server(program, "--cache", "64MiB", "--volume", volume) as server:
            job = ["--name=d", "--rw=randwrite", "--bs=4k", "--size=256M", "--fsync=16", f"--iodepth={depth}", "--time_based"]
            command = ["fio", "--ioengine=nbd", f"--uri={server.uri()}", f"--runtime={seconds}", "--output-format=json", *job]
            run = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
            report = json.loads(run.stdout[run.stdout.index("{"):])
            if report["jobs"][0]["error"]:
                sys.exit(f"{setting}: fio failed")
            return report["jobs"][0]["write"]["iops"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("undercroft")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=15)
    parser.add_argument("--folder", default=None, help="where the files are; a temporary folder without")
    options = parser.parse_args()
    found = {}
    for number in range(options.rounds):
        settings = list(SETTINGS)
        for setting in settings[:: -1 if number % 2 else 1]:
            for depth in DEPTHS:
                rate = writes_a_second(os.path.abspath(options.undercroft), options.folder, setting, depth, options.seconds)
                found.setdefault((setting, depth), []).append(rate)
    print("| write= | " + " | ".join(f"depth {depth}: writes/s | times through" for depth in DEPTHS) + " |")
    print("| --- |" + " --- | --- |" * len(DEPTHS))
    for setting in SETTINGS:
        cells = [setting]
        for depth in DEPTHS:
            rates, base = found[setting, depth], found["through", depth]
            ratios = [rate / other for rate, other in zip(rates, base)]
            cells += [f"{statistics.median(rates):,.0f}", spread(ratios)]
        print(f"| {' | '.join(cells)} |")


main()
