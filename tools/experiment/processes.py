"""Child processes, what must be undone after them, and signals: nothing is left running or mounted when a
run ends, is interrupted, or was killed earlier. What the processes are for is in the other modules.

Every child carries the work folder in its environment (`MARK`), so that the next start finds those whose
parent was killed. Each has a session of its own: Ctrl-C reaches this program alone, which then ends the
others in order.
"""

import contextlib
import fcntl
import json
import os
import pathlib
import shutil
import signal
import subprocess
import time

MARK = "UNDERCROFT_EXPERIMENT"
# Where the control groups for block I/O are: version 1, and version 2.
GROUPS = [pathlib.Path("/sys/fs/cgroup/blkio"), pathlib.Path("/sys/fs/cgroup")]
GROUP = "undercroft-experiment"
# How long a process may take to end before it is killed: a server has to write back what is dirty.
PATIENCE_S = 600


class Failure(Exception):
    """Something that the user has to know, without a traceback."""


class Interrupted(BaseException):
    """A signal asked the program to end."""


class Signals:
    """SIGINT, SIGTERM and SIGHUP as one exception, raised once; held back while something must not stop half way."""

    def __init__(self):
        self.depth, self.number, self.raised = 0, None, False

    def listen(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self.arrive)

    def arrive(self, number, _frame):
        self.number = self.number or number
        self.deliver()

    def deliver(self):
        if self.number and not self.raised and self.depth == 0:
            self.raised = True
            raise Interrupted(signal.Signals(self.number).name)

    @contextlib.contextmanager
    def deferred(self):
        self.depth += 1
        try:
            yield
        finally:
            self.depth -= 1
        self.deliver()


SIGNALS = Signals()


def words(command):
    return [str(word) for word in command]


class Scope(contextlib.ExitStack):
    """What was started and mounted, undone in reverse order at the end; a signal does not stop that half way."""

    def __exit__(self, *error):
        with SIGNALS.deferred():
            return super().__exit__(*error)

    def child(self, command, stop=signal.SIGTERM, patience=PATIENCE_S, **options):
        """Starts a process that ends with the scope, if it has not ended before."""
        with SIGNALS.deferred():
            process = subprocess.Popen(words(command), stdin=subprocess.DEVNULL, start_new_session=True, **options)
            self.callback(end, process, stop, patience)
        return process


def end(process, stop=signal.SIGTERM, patience=PATIENCE_S):
    """Ends a process, which may have ended already: its exit status."""
    if process.poll() is None:
        process.send_signal(stop)
    try:
        return process.wait(patience)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def run(command, check=True, **options):
    """Runs a command to its end: what it prints. An interruption kills it, and what it has started."""
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        words(command), stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True, start_new_session=True, **options
    )
    try:
        output, errors = process.communicate()
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise
    if check and process.returncode != 0:
        raise Failure(f"{' '.join(words(command))}: exit status {process.returncode}: {errors or output}")
    return output


def in_own_group():
    """The beginning of a command whose block I/O is a group of its own; empty if this machine has no such groups."""
    root = next((root for root in GROUPS if root.is_dir()), GROUPS[-1])
    with contextlib.suppress(OSError):
        if root == GROUPS[-1]:
            (root / "cgroup.subtree_control").write_text("+io")
        (root / GROUP).mkdir(exist_ok=True)
        return ["sh", "-c", 'echo $$ > "$0" && exec "$@"', root / GROUP / "cgroup.procs"]
    return []


def wait_until(true, what, seconds=120):
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            raise Failure(f"{what}: not within {seconds} s")
        time.sleep(0.05)


def alone(work):
    """Locks a work folder for this program, and marks its children. Keep the result."""
    work.mkdir(parents=True, exist_ok=True)
    lock = open(work / "lock", "w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise Failure(f"{work}: another experiment uses this folder; --work names another one") from None
    os.environ[MARK] = str(work)
    return lock


def inside(path, folder):
    return path == str(folder) or path.startswith(f"{folder}/")


def left_running(work):
    """Processes that carry the mark of a work folder, or whose current folder is in it."""
    mark = f"{MARK}={work}".encode()
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        if int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            if mark in (entry / "environ").read_bytes().split(b"\0") or inside(os.readlink(entry / "cwd"), work / "run"):
                yield int(entry.name)


def mounts(work):
    """Mount points in a work folder with their types, the last one first."""
    found = []
    for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        where = before.split()[4].encode().decode("unicode_escape")
        if inside(where, work):
            found.append((where, after.split()[0]))
    return found[::-1]


def unmount(where):
    """Unmounts; what is still being closed by a dying process is waited for."""
    for _ in range(100):
        if subprocess.run(["umount", where], capture_output=True).returncode == 0 or not os.path.ismount(where):
            return
        time.sleep(0.1)
    run(["umount", "--lazy", where])


def detach_loops(work):
    listed = subprocess.run(["losetup", "--list", "--json", "--output", "NAME,BACK-FILE"], capture_output=True, text=True)
    for device in json.loads(listed.stdout or '{"loopdevices": []}')["loopdevices"]:
        if inside(device["back-file"] or "", work):
            run(["losetup", "--detach", device["name"]])


def clean(work):
    """Ends, unmounts and removes what runs have left in a work folder: what was there, for a message."""
    with SIGNALS.deferred():
        found = []
        deadline = time.monotonic() + 30
        while pids := list(left_running(work)):
            found += [f"process {pid}" for pid in pids if f"process {pid}" not in found]
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if time.monotonic() > deadline:
                raise Failure(f"processes that do not end: {pids}")
            time.sleep(0.1)
        # A file system before the loop device below it, and that before the file of nbdfuse.
        found += [where for where, _ in mounts(work)]
        for where, kind in mounts(work):
            if not kind.startswith("fuse"):
                unmount(where)
        detach_loops(work)
        for where, _ in mounts(work):
            unmount(where)
        for root in GROUPS:
            # Another experiment may use it, with another work folder.
            with contextlib.suppress(OSError):
                (root / GROUP).rmdir()
        shutil.rmtree(work / "run", ignore_errors=True)
        return found
