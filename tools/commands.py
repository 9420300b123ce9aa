"""Runs the targets of the Makefile, and so the scripts of tools/, at their smallest size: whether each still works, not
what it measures.

    commands.py BUILT [TARGET ...]     all of them, or these, with what is built in the folder BUILT
    commands.py BUILT --quick          those that take seconds: a part of `make test`
    commands.py --complete             whether each target and script is here, or among those that are not run

A command must succeed, print what it is expected to print, and change the files that it says it writes. What writes
into documents runs in a copy of the repository. The traces are small and made here, with the names of the real ones.
`make check-commands` runs all of them, before every release. Logs are in target/commands.
"""

import ast
import dataclasses
import fcntl
import fnmatch
import json
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time

WORK = pathlib.Path("target/commands").resolve()
TREE, TRACES = WORK / "tree", WORK / "traces"
# None of these takes so long, on a busy machine either.
PATIENCE_S = 3600
SKIPPED = {
    "test": "it is the other half: run it too",
    "python-test": "make test has it",
    "check-commands": "it is this",
    "examples": "check-commands has it",
    "clean": "it would take away what the others need",
}


@dataclasses.dataclass
class Command:
    """A target, and how it is run at its smallest size. In a line {free} is a free port of the machine."""

    target: str
    line: str
    # What must be in its output.
    shows: str
    # Files that it must change, relative to the repository; it then runs in a copy.
    writes: tuple = ()
    # Programs without which it cannot run; "root" is no program.
    needs: tuple = ()
    # It takes seconds, with a program that is not optimised either.
    is_quick: bool = False
    # Whether it compiles something: the others find everything built.
    builds: bool = False


def documents(*names):
    return tuple(f"docs/{name}.md" for name in names)


# Without those that `make tpcc` has.
FILES = pathlib.Path("tools/experiment").glob("*.toml")
EXPERIMENTS = sorted(path.stem for path in FILES if not path.stem.startswith("tpcc-"))
MOUNTS = ("root", "nbdfuse", "losetup", "pg_ctlcluster")
COMMANDS = [
    Command("help", "make help", r"make help-measure", is_quick=True),
    Command("help-checks", "make help-checks", r"make simulate-patches", is_quick=True),
    Command("help-measure", "make help-measure", r"make experiment \[FILE", is_quick=True),
    Command("build", "make build", "", builds=True),
    Command("run", "try", "one experiment", is_quick=True),
    Command("demo", "make demo", r"w-tinylfu .* %", is_quick=True),
    Command("install", "make install DESTDIR={work}/root && {work}/root/usr/local/bin/undercroft --version", r"undercroft \d", is_quick=True),
    Command("package", "make package COMPRESSION=none", r"undercroft_.*\.deb", needs=("dpkg-deb", "strip")),
    Command("image", "make image", r"undercroft_.*\.oci\.tar", needs=("dpkg", "strip")),
    Command("python", "make python", "built .*whl", builds=True),
    Command("check-slow", "make check-slow", "simulated reference", needs=("rustup",), builds=True),
    Command("simulate-faults", "SIMULATE_MINUTES=0.1 make simulate-faults", r"seeds, ", builds=True),
    Command("simulate-campaign", "SIMULATE_SEEDS=100 make simulate-campaign", r"100 seeds, ", builds=True),
    Command("simulate-patches", "PATCHES=2-any-contents SIMULATE_SEEDS=100 make simulate-patches", r"\d\n", needs=("git",), builds=True),
    Command("interleavings", "SCHEDULES=100 make interleavings", "schedules", builds=True),
    Command("sanitize", "SANITIZE=frames make sanitize", "passed under", needs=("valgrind",), builds=True),
    Command("fuzz", "FUZZ_MINUTES=0.05 make fuzz", "inputs tried", needs=("cargo-fuzz",), builds=True),
    Command("soak", "SOAK_MINUTES=0.1 make soak", "test result: ok. 1 passed", builds=True),
    Command("effects", "make effects", "postgres is in", documents("user/cooperation"), is_quick=True),
    Command("content-aware", "make content-aware", "policies is in", documents("measurements/content-aware")),
    Command("hierarchies", "make hierarchies && make hierarchies HIERARCHIES=--sizes", "check is in", documents("measurements/hierarchies")),
    Command("flash", "make flash", r"evidence, MQ \| .* of \d", documents("measurements/flash")),
    Command("auto", "make auto", "", documents("measurements/auto"), needs=("zstd",), is_quick=True),
    Command("auto-picture", "make auto-picture", "", needs=("zstd",), builds=True),
    Command("tuned", "make tuned", "as chosen on one half", documents("measurements/auto")),
    Command("reproduce", "make reproduce", "hfa-figure10 is in", documents("measurements/reproduction", "measurements/reproduction/locality")),
    Command("bench", "make bench BENCH='--quick --only policies sweep curves memory --policies lru,arc'", "Peak memory"),
    Command("bench-reading", "make bench-reading BENCH=--quick", "M references/s", is_quick=True),
    Command("bench-server", "make bench-server BENCH='--quick --only depth16 copy'", "nbdcopy of", needs=("nbdkit", "qemu-nbd", "nbdcopy")),
    Command("bench-turns", "make bench-turns BENCH='--rounds 1'", r"READ of 1 byte[\s\S]*\| CHANGES"),
    Command("bench-hints", "make bench-hints BENCH='--rounds 1 --seconds 0.2' && make bench-hints BENCH='--instructions --seconds 0.2'", "eviction, 64 hints a message", needs=("valgrind",)),
    Command("bench-policies", "make bench-policies BENCH='--rounds 1 --seconds 0.2'", "one in four hits . lru"),
    Command("bench-log", "make bench-log BENCH='--rounds 1 --seconds 2'", r"back, log \| ", is_quick=True),
    Command("bench-flash", "make bench-flash BENCH=--quick", r"after kill -9: a read is answered[\s\S]*hits in memory, depth 32", is_quick=True),
    Command("bench-flash", "make bench-flash BENCH='--quick --only speed'", "foyer in a loop", builds=True),
    Command("bench-recording", "make bench-recording BENCH='--rounds 1 --seconds 0.2'", "1 in 16", is_quick=True),
    Command("bench-advice", "make bench-advice BENCH='--rounds 1 --seconds 0.2'", "adviser=yes", is_quick=True),
    Command("advice", "make advice ADVICE=sprite", "factor"),
    Command("bench-hierarchies", "make bench-hierarchies BENCH=--quick", r"h-hfa", is_quick=True),
    Command("bench-aware", "make bench-aware BENCH='--rounds 1'", "lru-ca above lru-ca, exact", is_quick=True),
    Command("bench-python", "make python bench-python BENCH='--rounds 1'", "The import takes", builds=True),
    Command("bench-against", "make bench-against BEFORE={built}/undercroft QUICK=1 BENCH='--rounds 1'", r"cases, \d+ beyond", needs=("valgrind",)),
    Command("experiment", "python3 tools/experiment/tests.py", "OK", is_quick=True),
    *(Command("experiment", f"make experiment FILE=tools/experiment/{name}.toml EXPERIMENT='--smallest --anew'"
              f" && python3 tools/experiment --table target/experiment/results/{name}-smallest",
              "wrong: 0", needs=MOUNTS) for name in EXPERIMENTS),
    Command("tpcc", "make tpcc EXPERIMENT='--smallest --anew'", r"(wrong: 0[\s\S]*){3}", needs=MOUNTS),
    Command("report-pictures", "HTTP=127.0.0.1:{free} LIVE_SECONDS=5 make report-pictures", "live-wide", ("docs/user/pictures/live-wide.png",), needs=("chromium",)),
]  # fmt: skip


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def missing(needs):
    """What a command needs and this machine lacks."""
    path = os.environ["PATH"] + ":/usr/sbin:/sbin"
    has = lambda name: os.geteuid() == 0 if name == "root" else shutil.which(name, path=path)
    return [name for name in needs if not has(name)]


def make_traces():
    """Small traces in the formats of the real ones, and with their names. They have reads, writes and buffers' addresses."""
    source = random.Random(1)
    # Some blocks are asked for often, some now and then, and a third once: no cache is too large or too small for a figure.
    block = lambda i: 50_000 + i if source.random() < 0.4 else int(50_000 ** source.random())
    requests = [(i, block(i), source.random() < 0.7) for i in range(60_000)]
    text = lambda line: "".join(f"{line(i, block, is_read)}\n" for i, block, is_read in requests)
    pages, sectors = (text(lambda i, block, _, unit=unit: f"{block * unit} {unit} 0 {i}") for unit in (1, 8))
    trc = text(lambda i, block, _: block)
    spc = text(lambda i, block, is_read: f"0,{block * 8},4096,{'wr'[is_read]},{i / 1000:.6f}")
    disksim = text(lambda i, block, is_read: f"{i * 1000} 1 {block * 8} 8 {int(is_read)}")
    head = "# block size 8192\ntime_us,op,file,block,blocks"
    rows = text(lambda i, block, is_read: f"{100 * i},{'WR'[is_read]},1,{block},1")
    told = text(lambda i, block, is_read: f"{100 * i},{'WR'[is_read]},1,{block},1,{4096 * (1000 + i % 4096):x}")
    vscsi = b"".join(struct.pack("<IIIHHQQ", i, 4096, 1, 0x28 if is_read else 0x2A, 1 << 8, block * 8, i * 1000)
                     for i, block, is_read in requests)  # fmt: skip
    texts = {"arc/OLTP.lis": pages, "arc/P3.lis": sectors, "arc/P6.lis": sectors}
    names = "2_pools cpp cs gli loop multi1 multi2 multi3 ps scan sprite zigzag"
    texts |= {f"lirs/{name}.trc": trc for name in names.split()}
    texts |= {"recorded/postgres-tpcc10w-L1.csv": f"{head}\n{rows}"}
    texts |= {f"recorded/{name}.csv": f"{head},buf\n{told}" for name in ("postgres-tpcc10w-sb32m", "mariadb-tpcc10w-pool32m")}
    texts |= {"spc/Financial1-first10000.spc": spc, "spc/WebSearch1-first24783.spc": spc, "disksim/tpcc-small.trace": disksim}
    for name, text in texts.items():
        path = TRACES / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        subprocess.run(["zstd", "-qf", "--rm", path], check=True)
    (TRACES / "vscsi").mkdir(exist_ok=True)
    (TRACES / "vscsi/cloudPhysicsIO.vscsi").write_bytes(vscsi)


def make_tree():
    """A copy of the repository, whose target folder is that of the repository."""
    left_out = shutil.ignore_patterns("target", ".git", "out", "data", "__pycache__")
    shutil.copytree(".", TREE, ignore=left_out, symlinks=True)
    (TREE / "target").symlink_to(WORK.parent)


def shell(line, folder, environment, log):
    """Runs a line of shell; whatever it has started has ended afterwards, or is killed."""
    process = subprocess.Popen(["sh", "-ec", line], cwd=folder, env=environment, stdin=subprocess.DEVNULL,
                               stdout=log, stderr=subprocess.STDOUT, start_new_session=True)  # fmt: skip
    try:
        return process.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        return -1
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def try_demo(make, built, environment, log):
    """`make run`, the commands that it says to try, and Ctrl-C: what went wrong. The server and the simulation must count
    the same."""
    listen, http = (f"127.0.0.1:{free_port()}" for _ in range(2))
    process = subprocess.Popen([*make, "run", f"LISTEN={listen}", f"HTTP={http}"], cwd=TREE, env=environment, text=True,
                               stdout=subprocess.PIPE, stderr=log, start_new_session=True)  # fmt: skip
    try:
        said = []
        for line in process.stdout:
            said.append(line)
            if "Ctrl-C" in line:
                break
        tried = [line.strip() for line in said if line.startswith(" " * 10) and "cache" not in line]
        log.write("".join(said) + "\n")
        log.flush()
        if len(tried) < 5:
            return f"it says to try {tried}"
        read = lambda line: json.loads(subprocess.check_output(f"{line} --json", shell=True, cwd=TREE, env=environment))
        simulated = read(next(line for line in tried if " simulate " in line))["levels"][1]
        counts = {"simulated": [simulated[name] for name in ("reads", "read_hits")]}
        for command in tried:
            if missing(command.split()[:1]):
                log.write(f"left out: {command}\n")
            # For ever, unless it is told how often.
            elif shell(command + " --count 1" * (" top " in command), TREE, environment, log):
                return f"{command} fails"
            elif " replay " in command:
                served = read(f"{built}/undercroft stats http://{http}")["volumes"]["demo"]
                counts["served"] = [served[name] for name in ("reads", "read_hits")]
        return "" if counts["simulated"] == counts.get("served") else str(counts)
    finally:
        os.killpg(process.pid, signal.SIGINT)
        process.wait(PATIENCE_S)


def changed(path):
    return not (TREE / path).exists() or (TREE / path).read_bytes() != pathlib.Path(path).read_bytes()


def check(command, name, built):
    """Runs a command: what is wrong with it, or nothing."""
    # The Makefile's own builds are done, and in a copy of the repository they would all be done again.
    cargo = [] if command.builds else ["CARGO=true"]
    make = ["make", "--no-print-directory", *cargo, f"BUILT={built}"]
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    environment = os.environ | {"UNDERCROFT_TRACES": str(TRACES), "PATH": path, "RUST_LOG": "error"}
    log = WORK / f"{name}.log"
    for written in command.writes:
        shutil.copy(written, TREE / written)
    with open(log, "w+") as output:
        if command.line == "try":
            wrong = try_demo(make, built, environment, output)
        else:
            line = re.sub(r"\bmake\b", " ".join(make), command.line)
            line = line.format(work=WORK, built=built, free=free_port())
            status = shell(line, "." if command.builds else TREE, environment, output)
            wrong = f"exit status {status}" if status else ""
        output.seek(0)
        said = output.read()
    if not wrong and not re.search(command.shows, said):
        wrong = f"it does not print {command.shows!r}"
    same = [] if wrong else [written for written in command.writes if not changed(written)]
    return f"it does not write {', '.join(same)}" if same else wrong


def run(built, wanted, is_quick):
    chosen = [command for command in COMMANDS if not wanted or command.target in wanted]
    chosen = [command for command in chosen if command.is_quick or not is_quick]
    if unknown := set(wanted) - {command.target for command in COMMANDS}:
        sys.exit(f"commands: not in the list: {', '.join(sorted(unknown))}")
    WORK.mkdir(parents=True, exist_ok=True)
    lock = open(WORK / "lock", "w")
    # Until another run has ended: it uses the same folders.
    fcntl.flock(lock, fcntl.LOCK_EX)
    for folder in (TREE, TRACES):
        shutil.rmtree(folder, ignore_errors=True)
    make_traces()
    make_tree()
    failed = left_out = 0
    for number, command in enumerate(chosen):
        name = f"{number:02}-{command.target}"
        began = time.monotonic()
        if lacks := missing(command.needs):
            left_out += 1
            print(f"left out  {command.target}: needs {', '.join(lacks)}", flush=True)
        elif wrong := check(command, name, built):
            failed += 1
            print(f"FAILED    {command.line}: {wrong}; {WORK / name}.log", flush=True)
        else:
            print(f"ok        {command.line}: {time.monotonic() - began:.0f} s", flush=True)
    print(f"commands: {len(chosen) - failed - left_out} of {len(chosen)} work, {left_out} left out, {failed} failed")
    return 1 if failed else 0


def reached():
    """Files of tools/ that the Makefile and the lines above come to, by what names or imports what."""
    made = {"target", "__pycache__"}
    files = {str(path): path for path in pathlib.Path("tools").rglob("*") if path.is_file() and not made & {*path.parts}}
    found, new = set(), [pathlib.Path("Makefile").read_text(), *(command.line for command in COMMANDS)]
    while new:
        text, named = new.pop(), set()
        for word in set(re.findall(r"tools/[\w./*-]+", text)):
            word = word.rstrip("./")
            named |= set(fnmatch.filter(files, word)) if "*" in word else set()
            main = f"{word}/__main__.py"
            below = [main] if main in files else [name for name in files if name.startswith(f"{word}/")]
            named |= {word, *below} & set(files)
        named |= {name for name in files if re.search(rf'"{re.escape(pathlib.Path(name).name)}"', text)}
        for name in named - found:
            found.add(name)
            new.append(files[name].read_text())
            if name.endswith(".py"):
                new.append(" ".join(imported(files[name])))
    return found, set(files)


def imported(path):
    """Paths of the modules beside a script, or above it, that it imports."""
    for node in ast.walk(ast.parse(path.read_text())):
        names = [one.name for one in node.names] if isinstance(node, ast.Import) else [getattr(node, "module", None)]
        for name in names if isinstance(node, (ast.Import, ast.ImportFrom)) else []:
            for folder in (path.parent, path.parent.parent):
                if (folder / f"{name}.py").exists():
                    yield str(folder / f"{name}.py")


def complete():
    """Whether each target and each file of tools/ is run by something in the list, or has a reason why not."""
    targets = set(re.findall(r"^([a-z][a-z-]*):", pathlib.Path("Makefile").read_text(), re.M))
    listed = {command.target for command in COMMANDS}
    wrong = [f"make {name}: neither in COMMANDS nor in SKIPPED" for name in sorted(targets - listed - set(SKIPPED))]
    wrong += [f"make {name}: not in the Makefile" for name in sorted((listed | set(SKIPPED)) - targets)]
    wrong += [f"make {name}: in COMMANDS and in SKIPPED" for name in sorted(listed & set(SKIPPED))]
    found, files = reached()
    wrong += [f"{name}: no command comes to it" for name in sorted(files - found)]
    print(*wrong, sep="\n", end="\n" if wrong else "")
    return 1 if wrong else 0


def main():
    match sys.argv[1:]:
        case ["--complete"]:
            return complete()
        case [built, "--quick"]:
            return run(built, [], True)
        case [built, *wanted] if not built.startswith("-"):
            return run(built, wanted, False)
    sys.exit("usage: commands.py BUILT [--quick | TARGET ...] | commands.py --complete")


if __name__ == "__main__":
    sys.exit(main())
