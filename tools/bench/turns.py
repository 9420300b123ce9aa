#!/usr/bin/env python3
"""Whether connections of a server take turns: what a client gets beside others that send requests
which cost the server much and the client nothing, and how long a new connection waits there.

The same client is measured beside as many ordinary ones of the same depth, in turn. Everything is
real: the program, unix sockets, processes. Floods are CACHE and BLOCK_STATUS of long ranges and READs of
one byte, with up to 1,024 in flight on each connection. Usage: turns.py UNDERCROFT [--rounds N] [--against OTHER];
against another program the time of a read beside each flood is compared."""

import argparse
import contextlib
import json
import socket
import statistics
import struct
import subprocess
import threading
import time

from common import Case, Server, compare, exactly, spread

CONNECTIONS = 8
DEPTH = 16
SIZE = 1 << 30
SECONDS = 2.0

READ, CACHE, BLOCK_STATUS = 0, 5, 7
FLOODS = {
    "CACHE of 32 MiB": (CACHE, 32 << 20),
    "BLOCK_STATUS of 1 GiB": (BLOCK_STATUS, SIZE),
    "READ of 1 byte": (READ, 1),
}


class Flood:
    """One connection that sends the same requests without end, and takes the answers."""

    def __init__(self, path, export, requests, context=b""):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(path)
        self.negotiate(export, context)
        self.requests, self.ends = requests, False
        self.threads = [threading.Thread(target=self.send), threading.Thread(target=self.receive)]
        for thread in self.threads:
            thread.start()

    def option(self, number, data):
        self.socket.sendall(struct.pack(">QII", 0x49484156454F5054, number, len(data)) + data)

    def reply(self):
        _, _, kind, length = struct.unpack(">QIII", exactly(self.socket, 20))
        exactly(self.socket, length)
        return kind

    def negotiate(self, export, context):
        exactly(self.socket, 18)
        self.socket.sendall(struct.pack(">I", 3))
        name = export.encode()
        if context:
            self.option(8, b"")
            assert self.reply() == 1, "structured replies"
            length = struct.pack(">I", len(name))
            self.option(10, length + name + struct.pack(">II", 1, len(context)) + context)
            while self.reply() != 1:
                pass
        self.option(7, struct.pack(">I", len(name)) + name + struct.pack(">H", 0))
        while self.reply() != 1:
            pass

    def send(self):
        try:
            while not self.ends:
                self.socket.sendall(self.requests)
        except OSError:
            pass

    def receive(self):
        try:
            while self.socket.recv(1 << 20):
                pass
        except OSError:
            pass

    def end(self):
        self.ends = True
        try:
            self.socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        for thread in self.threads:
            thread.join()


def request(command, offset, length):
    return struct.pack(">IHHQQI", 0x25609513, 0, command, 1, offset, length)


def uri(path, export):
    return f"nbd+unix:///{export}?socket={path}"


def load(program, path, export, connections, seconds):
    command = [program, "bench", "nbd", uri(path, export), "--depth", str(DEPTH)]
    command += ["--connections", str(connections), "--seconds", str(seconds), "--json"]
    return subprocess.Popen(command, stdout=subprocess.PIPE)


def rate(process):
    return json.loads(process.communicate()[0])["requests_per_s"]


def connect_s(program, path):
    """Seconds until a new client has opened the volume and read a block."""
    began = time.monotonic()
    load(program, path, "victim", 1, 0.01).communicate()
    return time.monotonic() - began - 0.01


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("undercroft")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--against", metavar="OTHER", help="compare with another program")
    arguments = parser.parse_args()
    if arguments.against:
        with contextlib.ExitStack() as stack:
            compare(arguments.against, arguments.undercroft, cases(stack, arguments.against), arguments.rounds)
        return
    with serve(arguments.undercroft) as server:
        measure(arguments.undercroft, server.socket, arguments.rounds)


def serve(program):
    volumes = [f"{name}=mem:,size={SIZE},cache=128MiB" for name in ("victim", "other")]
    return Server(program, "--cache", "256MiB", "--volume", volumes[0], "--volume", volumes[1])


@contextlib.contextmanager
def flooding(connections, *flood):
    """Several connections that flood a server; for the others see `Flood`."""
    floods = [Flood(*flood) for _ in range(connections)]
    time.sleep(0.5)
    try:
        yield
    finally:
        for one in floods:
            one.end()


def flooded(path, command, length):
    """A server under a flood of requests that cost it much."""
    context = b"base:allocation" if command == BLOCK_STATUS else b""
    return flooding(CONNECTIONS, path, "other", request(command, 0, length) * 1024, context)


def cases(stack, loader):
    """Floods to compare two programs in, with the same client beside them."""
    servers = {}

    def cost(program, flood):
        if program not in servers:
            servers[program] = stack.enter_context(serve(program))
        path = servers[program].socket
        with flooded(path, *flood):
            return 1e6 / rate(load(loader, path, "victim", 1, SECONDS))

    for name, flood in FLOODS.items():
        yield Case(f"reads beside {name}", "us a read", lambda program, flood=flood: cost(program, flood))


def measure(program, path, rounds):
    ratios = {name: [] for name in FLOODS}
    waits = {name: [] for name in FLOODS}
    usual = []
    for _ in range(rounds):
        beside = load(program, path, "other", CONNECTIONS, SECONDS + 1)
        time.sleep(0.5)
        usual.append(rate(load(program, path, "victim", 1, SECONDS)))
        beside.wait()
        for name, (command, length) in FLOODS.items():
            with flooded(path, command, length):
                ratios[name].append(rate(load(program, path, "victim", 1, SECONDS)) / usual[-1])
                waits[name].append(connect_s(program, path))
    median = statistics.median
    print(f"A client of depth {DEPTH} beside {CONNECTIONS} others of depth {DEPTH}: "
          f"{median(usual):,.0f} reads a second; {rounds} rounds\n")
    print(f"| {CONNECTIONS} connections that send | x beside ordinary ones | target | "
          "a new client has read after, s | target |")
    print("| --- | --- | --- | --- | --- |")
    for name in FLOODS:
        its, waited = ratios[name], waits[name]
        print(f"| {name} | {spread(its)} | >= 0.5 | {spread(waited)} | <= 1 |")


if __name__ == "__main__":
    main()
