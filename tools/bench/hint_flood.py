#!/usr/bin/env python3
"""What a reader of cached blocks feels of another client that floods the same volume with hints.

  hint_flood.py UNDERCROFT [--rounds N] [--seconds S] [--caches MIB ...] [--connections N ...]

All blocks of the volume are cached, with policy=lru-ca,knows=bloom. One connection reads them at random, one at a time;
others send messages of 1 MiB, as many as the server takes. Given are 99 % of the reads alone and beside the flood. The
first flood has one record of a type that is skipped: it costs what a MiB costs, whatever is in it.
"""

import argparse
import contextlib
import struct
import sys
import time

from common import Server, child_report, load, spread
from turns import flooding, request

MIB = 1 << 20
WRITE = 1
SKIPPED, DIGEST, CHANGES, FOLLOW = 5, 7, 9, 10
# Bits of the largest filter for a cache of 256 MiB.
BITS = 1 << 22
PART = 64 << 10
HASHES = 16


def record(kind, payload):
    return struct.pack(">HHI", kind, 0, len(payload)) + payload + bytes(-len(payload) % 8)


def filter_of(bits, byte, sequence):
    """A whole filter, in parts, and its number."""
    shape = struct.pack(">IBB", bits, HASHES, sequence % 256)
    data = bytes([byte]) * -(-bits // 8)
    parts = [record(DIGEST, shape + struct.pack(">H", at // PART) + data[at : at + PART]) for at in range(0, len(data), PART)]
    return b"".join(parts) + changes(bits, sequence % 256, sequence)


def changes(bits, seed, sequence, positions=b""):
    return record(CHANGES, struct.pack(">IBBHI", bits, HASHES, seed, 0, sequence) + positions)


def full(records):
    """As many of them as a message has room for."""
    message = b""
    for one in records:
        if len(message) + len(one) > MIB:
            break
        message += one
    return message


def follow():
    return record(FOLLOW, struct.pack(">BBBBIQ", 2, 64, HASHES, 0, 0, 2**64 - 1))


# Of each the messages that are sent in turn. Small filters have another shape each, so that nothing of the last is of
# use; changes are of bits that almost every block has.
FLOODS = {
    "nothing": [record(SKIPPED, bytes(MIB - 8))],
    "FOLLOW": [full([follow()] * MIB)],
    "DIGEST, one filter": [filter_of(BITS, byte, sequence) for sequence, byte in enumerate((0xFF, 0))],
    "DIGEST, small filters": [full(filter_of(8 + n % 9, 0xFF, n) for n in range(MIB))],
    "CHANGES": [full([filter_of(8, 0xFF, 1), *(changes(8, 1, n, bytes(2)) for n in range(2, MIB // 24))])],
}


def counts(program, server):
    return child_report(program, "stats", server.uri())[0]["volumes"]["d"]


@contextlib.contextmanager
def filled(program, cache):
    """A server with every block of its volume in a cache of so many MiB, and the bytes of the volume."""
    size, seconds = (cache - cache // 16) * MIB, 2
    with Server(program, "--volume", f"d=mem:,size={size},cache={cache}MiB,policy=lru-ca,knows=bloom") as server:
        while counts(program, server)["resident"] < size // 4096:
            load(program, server.uri(), "--depth", 16, "--block", "64KiB", "--seconds", seconds, "--sequential")
            seconds *= 2
        yield server, size


def flooded(server, window, messages, connections):
    requests = b"".join(request(WRITE, window, len(message)) + message for message in messages)
    context = b"x-undercroft:coop;v=1;want=follow,digest"
    return flooding(connections, server.socket, "d", requests, context)


def measure(program, server, seconds):
    """99 % of the reads of one connection in us, and messages of hints a second meanwhile."""
    began, before = time.monotonic(), counts(program, server)
    most = load(program, server.uri(), "--depth", 1, "--seconds", seconds)["read"]["p99_us"]
    after, took = counts(program, server), time.monotonic() - began
    if after["reads"] - before["reads"] != after["read_hits"] - before["read_hits"]:
        sys.exit("some reads missed")
    messages, refused = (after["aware"][name] - before["aware"][name] for name in ("hint_messages", "hint_messages_refused"))
    if refused:
        sys.exit("the server refuses such messages")
    return most, messages / took


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("undercroft")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2, help="of each run")
    parser.add_argument("--caches", nargs="*", type=int, default=[256, 1024], metavar="MIB")
    parser.add_argument("--connections", nargs="*", type=int, default=[1, 8], metavar="N")
    options = parser.parse_args()
    print("| cache, MiB | hints | connections | messages a second | reads alone, 99 %, us | beside, us | times |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for cache in options.caches:
        with filled(options.undercroft, cache) as (server, window):
            for name, messages in FLOODS.items():
                for connections in options.connections:
                    runs = []
                    for _ in range(options.rounds):
                        alone, _ = measure(options.undercroft, server, options.seconds)
                        with flooded(server, window, messages, connections):
                            beside, rate = measure(options.undercroft, server, options.seconds)
                        runs.append((rate, alone, beside, beside / alone))
                    cells = [spread(column, digits) for column, digits in zip(zip(*runs), (0, 0, 0, 1))]
                    print(f"| {cache} | {name} | {connections} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
