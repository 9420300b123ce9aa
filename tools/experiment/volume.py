"""The server with its volumes, and a volume as a device or a mounted file system. What is stored on it is
in the other modules.

A volume is an export of the server, a file by nbdfuse, a loop device over that file, and ext4 on the
device: this works without an NBD driver in the kernel.

A FLUSH takes as long as the disk needs for all that is dirty, and the server answers other requests meanwhile. A loop
device does not, if the same control group asks, and FLUSHes count as the first group's: so the database has a group of
its own (`processes`). nbdfuse does not, on the connection that has the FLUSH: so it has many connections.
"""

import json
import os
import time
import urllib.request

from processes import Failure, end, run, unmount, wait_until

# Longest path of a Unix socket.
SOCKET_MAX = 107
# Each request takes the next one. So many reads beside a FLUSH meet the one that it occupies about once.
CONNECTIONS = 128
# How long an end waits for the store: a slow disk may have to take all of a cache.
CLOSE_S = 900


class Server:
    """`undercroft serve`, until the scope ends."""

    def __init__(self, scope, home, program, volumes, options=()):
        self.home, self.socket = home, home / "socket"
        if len(str(self.socket)) > SOCKET_MAX:
            raise Failure(f"{self.socket}: too long for a socket; --work names a folder with a shorter path")
        said = home / "server.log"
        self.socket.unlink(missing_ok=True)
        volumes = [word for volume in volumes for word in ("--volume", volume)]
        listen = ["--listen", f"unix:{self.socket}", "--http", "127.0.0.1:0"]
        with open(said, "w") as log:
            command = [program, "serve", *listen, "--close-s", CLOSE_S, *volumes, *options]
            self.process = scope.child(command, patience=CLOSE_S + 60, stdout=log, stderr=log)
        scope.push(self.finish)
        wait_until(lambda: "  live" in said.read_text() or self.process.poll() is not None, "the server", 30)
        live = [line.split()[1] for line in said.read_text().splitlines() if line.startswith("  live")]
        if not live:
            raise Failure(f"the server does not start: {said.read_text()}")
        self.live = live[0]
        # For a database that runs as another user.
        os.chmod(self.socket, 0o777)
        self.opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def finish(self, error, *_):
        """Ends it, and sees to it that all was written, unless the run has failed anyhow."""
        if error is None and end(self.process, patience=CLOSE_S + 60) != 0:
            raise Failure(f"the server did not end well: {(self.home / 'server.log').read_text()}")

    def uri(self, volume):
        return f"nbd+unix:///{volume}?socket={self.socket}"

    def stats(self):
        """The counters of each volume, and when they were read."""
        try:
            with self.opener.open(self.live + "stats", timeout=30) as answer:
                return {"at_s": time.monotonic()} | json.load(answer)["volumes"]
        except OSError as error:
            said = (self.home / "server.log").read_text()
            raise Failure(f"the server does not answer: {error}: {said}") from None


def device(scope, server, volume):
    """A volume as a block device."""
    folder = server.home / f"fuse-{volume}"
    folder.mkdir(exist_ok=True)
    with open(server.home / f"nbdfuse-{volume}.log", "w") as log:
        scope.child(["nbdfuse", "--connections", CONNECTIONS, folder, server.uri(volume)], stdout=log, stderr=log)
    scope.callback(unmount, folder)
    wait_until((folder / "nbd").exists, "nbdfuse", 30)
    return loop(scope, folder / "nbd")


def loop(scope, file):
    name = run(["losetup", "--find", "--show", "--direct-io=on", file]).strip()
    scope.callback(run, ["losetup", "--detach", name], check=False)
    return name


def mounted(scope, name, folder):
    """Mounts a device that has a file system."""
    folder.mkdir(exist_ok=True)
    scope.callback(unmount, folder)
    run(["mount", name, folder])
    return folder
